"""Finds the line of the user's script that called ampc."""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from types import TracebackType
from typing import Any, Dict, Optional, Tuple, Type

OUTSIDE: Dict[str, bool] = {}  # of files: whether they are a script's
_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def is_script(file: str) -> bool:
    """Whether a file is a script's, rather than one of ampc or of what it calls a script's functions by."""
    outside = OUTSIDE.get(file)
    if outside is None:
        outside = OUTSIDE[file] = not file.startswith(_HOME) and os.path.basename(file) not in ("contextlib.py", "functools.py")
    return outside


def _users_frame() -> Any:
    """The innermost frame outside ampc, or the outermost frame if there is none. Counted from here, because `f_back` of Python 3.11
    gives None where memory is missing, and leaves its MemoryError to whoever is called next."""
    for depth in itertools.count(1):
        try:
            frame = sys._getframe(depth)
        except ValueError:  # none is further out
            return sys._getframe(depth - 1)
        if is_script(frame.f_code.co_filename):
            return frame


def call_site() -> Tuple[str, int]:
    """File and line of the innermost call outside ampc."""
    frame = _users_frame()
    return frame.f_code.co_filename, frame.f_lineno


def warn(text: str, category: Type[Warning] = UserWarning) -> None:
    """Like ``warnings.warn``, but always for the script's line."""
    frame = _users_frame()
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})  # so that each line is warned about once
    module = names.get("__name__", "<string>")  # Python drops a warning of no module
    warnings.warn_explicit(text, category, frame.f_code.co_filename, frame.f_lineno, module, registry)


def is_shown(text: str, category: Type[Warning], location: Tuple[str, int]) -> bool:
    """Whether the filters let a warning through that ``warnings.warn_explicit`` gives for a line."""
    file, line = location
    module = file[:-3] if file.endswith(".py") else file
    for action, message, kind, where, number in warnings.filters:
        fits = (not message or message.match(text)) and issubclass(category, kind) and (not where or where.match(module))
        if fits and number in (0, line):
            return action != "ignore"
    return True


def innermost(error: BaseException) -> Optional[TracebackType]:
    """The entry of an error's traceback for the innermost line of a script; None without one."""
    found, at = None, error.__traceback__
    while at is not None:
        if is_script(at.tb_frame.f_code.co_filename):
            found = at
        at = at.tb_next
    return found


def end_at_script(error: BaseException) -> None:
    """Cuts the traceback of an error that ampc raises behind the innermost line of a script. That of one that ampc only comes across, such as by a
    defect of its own, stays."""
    import opcode  # here, so that `import ampc` does not load it

    at = last = innermost(error)
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if at is not None and last is not None and opcode.opname[last.tb_frame.f_code.co_code[last.tb_lasti]] in ("RAISE_VARARGS", "RERAISE"):
        at.tb_next = None


def location_text(location: Tuple[str, int]) -> str:
    """``train.py:17``, or ``Cell In[3], line 2`` in a notebook."""
    ipython: Any = sys.modules.get("IPython")
    compiler: Any = getattr(ipython.get_ipython(), "compile", None) if ipython is not None else None
    cell = compiler.format_code_name(location[0]) if hasattr(compiler, "format_code_name") else None
    return f"{cell[0]} {cell[1]}, line {location[1]}" if cell else f"{location[0]}:{location[1]}"
