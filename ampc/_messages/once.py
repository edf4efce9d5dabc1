"""Warnings that a process gives once."""

from __future__ import annotations

from typing import Set

from .callers import warn

_said: Set[str] = set()
_always = False


def set_warn_always(b: bool) -> None:
    """Whether warnings that a process gives once are given each time; at first they are not. Python's own filters stay as they are.
    RuntimeError unless ``b`` is a bool."""
    global _always
    if not isinstance(b, bool):
        raise RuntimeError(f"set_warn_always: expected a bool, got {type(b).__name__}")
    _always = b


def is_warn_always_enabled() -> bool:
    """What `set_warn_always` was told last; False at first."""
    return _always


def say_once(what: str, text: str) -> None:
    """A UserWarning for the script's line, the first time in a process that ``what`` is asked for, or each time after `set_warn_always`."""
    if _always or what not in _said:
        _said.add(what)
        warn(text)


def say_that_nothing_is_compiled() -> None:
    """What compile does not do."""
    say_once("compile", "compile: the model runs as it is: ampc compiles no models, its core is compiled already (said once)")
