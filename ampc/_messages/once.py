"""Warnings that a process gives once."""

from __future__ import annotations

from typing import Set

from .callers import warn

_said: Set[str] = set()


def say_once(what: str, text: str) -> None:
    """A UserWarning for the script's line, the first time in a process that ``what`` is asked for."""
    if what not in _said:
        _said.add(what)
        warn(text)


def say_that_nothing_is_compiled() -> None:
    """What compile does not do."""
    say_once("compile", "compile: the model runs as it is: ampc compiles no models, its core is compiled already (said once)")
