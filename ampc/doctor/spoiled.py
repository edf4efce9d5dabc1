"""Tells of running values, such as averages, that the overflow of one skipped step has made infinite or nan for ever."""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, NamedTuple, Set, Tuple

from .. import _C
from ._finding import Location
from .guard import say

FAR, MOST = 4, 16  # operators between a value and what it was the last time; values of a line
RUNNING = {"add", "sub", "lerp", "mul", "maximum", "minimum"}


class Line(NamedTuple):
    """What an operator of a line gave that is not finite, weakly, since a decision about a step, and between the two decisions before."""

    began: int  # the decision before which it first did
    decided: int
    now: List[Any]
    before: List[Any]


class Spoiled:
    """Running values that are not finite, by the operator and line that make them."""

    def __init__(self) -> None:
        self._lines: Dict[Tuple[str, Location], Line] = {}
        self._decided = 0  # about steps of scalers
        self._skipped: Set[int] = set()

    def clear(self) -> None:
        """Forgets all."""
        self._lines.clear()

    def decided(self, skipped: bool) -> None:
        """A scaler makes a step, or skips it."""
        if skipped:
            self._skipped.add(self._decided)
        self._decided += 1

    def saw(self, op: str, inputs: tuple, out: Any, onto: bool, location: Location, made: Dict[int, Any]) -> None:
        """An operator outside of backward has given what is not finite. ``made``: what a doctor knows of tensors by their addresses."""
        if op not in RUNNING or out.requires_grad:
            return
        line = self._lines.get((op, location)) or Line(self._decided, self._decided, [], [])
        if line.decided < self._decided:
            line = line._replace(decided=self._decided, now=[], before=line.now)
        self._lines[op, location] = line
        if len(line.now) < MOST:
            line.now.append(weakref.ref(out))
        if line.began not in self._skipped or line.began == self._decided:
            return
        given = [t for t in inputs if t is not None]
        last = [t for t in (ref() for ref in line.before) if t is not None]
        old = [t for t in given if _is_made_of(t, last, made)]
        if len(old) == 1 and all(bool(t.detach().isfinite().all()) for t in given if t is not old[0] and t.is_floating_point()):
            say("step-not-skipped", "a running value became inf or nan by the gradients of a step that the scaler skipped, and it stays so: "
                "the scaler leaves out the optimizer's step, and nothing else",
                "update it where the step was made: `if not scaler.last_step.skipped:`, or where the new value is finite", *location)


def _is_made_of(t: Any, last: List[Any], made: Dict[int, Any]) -> bool:
    """Whether a tensor is one of others, which are alive, or was made of it by few operators."""
    front, at = [_C._address(t)], {_C._address(each) for each in last}
    for _ in range(FAR):
        if at.intersection(front):
            return True
        front = [a for m in (made.get(a) for a in front) if m is not None and m.bad for a in m.inputs]
    return False
