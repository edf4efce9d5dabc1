"""The path of modules in which an error arose. The exception collects it on its way out; nothing is kept while all goes well."""

from __future__ import annotations

import sys
from typing import Any, List

_PATH = "_ampc_path"  # (the outermost module so far, the path from it, the innermost module)


def mark(error: BaseException, module: Any) -> None:
    """``error`` leaves ``module``'s call: its note, from the second module on, names the innermost one by its path from here."""
    about = error.__dict__.get(_PATH)
    if about is None:
        error.__dict__[_PATH] = module, "", module
        return
    inner, path, first = about
    if inner is module:  # its own call within its call
        return
    name = next((n for n, m in module.named_modules() if m is inner), None) or f"<{type(inner).__name__}>"
    path = f"{name}.{path}" if path else name
    error.__dict__[_PATH] = module, path, first
    _note(error, f"in {path}: {_text(first)}")


def _text(module: Any) -> str:
    try:
        text = repr(module)
    except Exception:  # the error on its way says more than one in extra_repr
        return type(module).__name__
    return text if "\n" not in text else type(module).__name__


def _note(error: BaseException, text: str) -> None:
    """As a note (Python 3.11), which tracebacks show; before that, at the end of the message of errors that are ampc's to word."""
    if sys.version_info >= (3, 11):
        notes: List[str] = [n for n in getattr(error, "__notes__", []) if n != error.__dict__.get("_ampc_note")]
        error.__notes__ = [*notes, text]
    elif type(error) in (RuntimeError, ValueError, TypeError, IndexError) and len(error.args) == 1 and isinstance(error.args[0], str):
        old = error.__dict__.get("_ampc_note")
        message = error.args[0][:-len(old) - 3] if old else error.args[0]
        error.args = (f"{message} ({text})",)
    error.__dict__["_ampc_note"] = text
