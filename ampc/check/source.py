"""Checks a file: applies all rules, heeds comments that silence them, and orders the findings by line."""

from __future__ import annotations

import re
import sys
from typing import List, NamedTuple

from ..doctor.rules import NOTES
from . import constants, functions, losses, numerics, order, ranks, updates
from .reader import Script


class Finding(NamedTuple):
    """One defect."""

    file: str
    line: int
    rule: str
    message: str
    fix: str

    @property
    def is_note(self) -> bool:
        """Whether it is about speed alone."""
        return self.rule in NOTES

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {'note: ' if self.is_note else ''}{self.rule}: {self.message}; {self.fix}"


def check_source(source: str, file: str = "<string>") -> List[Finding]:
    """What is wrong in a script's text, by line; nothing in one that computes with another package than torch. SyntaxError where it is not
    Python, ValueError where it is nested too deeply. ``# ampc: ignore`` on a line silences it, ``# ampc: ignore[rule, rule]`` these rules."""
    try:
        return _found(Script(source, file), file, source.splitlines())
    except RecursionError:
        raise ValueError(f"an expression is nested more deeply than Python's recursion limit of {sys.getrecursionlimit()} allows to read") from None


def _found(script: Script, file: str, lines: List[str]) -> List[Finding]:
    if script.of_others:
        return []
    rules = [*order.RULES, *updates.RULES, *numerics.RULES, functions.check, losses.check, constants.check, ranks.check]
    found = {Finding(file, line, rule, what, fix) for f in rules for rule, line, what, fix in f(script)}
    return sorted(f for f in found if not _silenced(lines[f.line - 1], f.rule))


def _silenced(line: str, rule: str) -> bool:
    m = re.search(r"#\s*ampc:\s*ignore(?:\[([^\]]*)\])?", line)
    return m is not None and (m.group(1) is None or rule in re.split(r"\s*,\s*", m.group(1).strip()))


def check_file(path: str) -> List[Finding]:
    """Of a file. OSError, SyntaxError, and ValueError for one that is not text, or is nested too deeply."""
    import tokenize

    with tokenize.open(path) as f:
        return check_source(f.read(), path)
