"""Runs each 16-bit operator a second time, in float32 on the same values, and compares the results."""

from __future__ import annotations

import math
import sys
from typing import Any, Dict, List, NamedTuple, Tuple

from .. import _C
from .._messages.callers import call_site, location_text
from .._ops import SHOWN
from ._ear import stats_of
from ._finding import limit_of
from ._watcher import Watcher
from .nonfinite import _text, is_own

PASSED = {"cast", "clone", "to_device", "low"}  # they only round or move the result of another operator
HALVES = ("float16", "bfloat16")

Key = Tuple[str, Tuple[str, int], str, str]


def distance(room: float) -> str:
    """In words, for a number that can double so often before it is the largest one."""
    return f"2^{abs(room):.0f} times {'below' if room >= 0 else 'above'}" if abs(room) >= 0.5 else "close to"


class OperatorError(NamedTuple):
    """The rounding error of one 16-bit operator in one line of the script."""

    op: str
    location: Tuple[str, int]
    dtype: str
    backward_of: str  # the operator whose gradient it is a part of, or ''
    error: float  # of its result against float32's from the same inputs: |a - b| / |b| in their norms, the largest of the sampled calls
    amax: float  # the largest magnitude it made
    calls: int  # of it there; run again were the first, second, fourth, eighth ...

    @property
    def room(self) -> float:
        """How often ``amax`` can double before it overflows the dtype; nan where every value is 0."""
        return math.log2(limit_of(self.dtype) / self.amax) if 0 < self.amax < math.inf else 0.0 if self.amax else math.nan

    def __str__(self) -> str:
        of = f" in the backward pass of {self.backward_of}" if self.backward_of else ""
        below = f", {distance(self.room)} the largest {self.dtype} value" if 0 < self.amax < math.inf else ""
        return f"{location_text(self.location)}: {self.op}{of}: relative error {100 * self.error:.2g} %, largest result {self.amax:.3g}{below}"


class Shadow(Watcher):
    """``with Shadow() as s:`` runs this thread's 16-bit operators a second time in float32 and compares. Of the calls in one line of the
    script it takes the first, second, fourth, eighth and so on. ``s.operators`` has the largest error first. Operators that draw random
    numbers and those that write in place are left out."""

    def __init__(self) -> None:
        self._seen: Dict[Key, Tuple[float, float, int]] = {}

    @property
    def operators(self) -> List[OperatorError]:
        """All that were compared, the largest error first."""
        every = [OperatorError(*key, *values) for key, values in self._seen.items()]
        return sorted(every, key=lambda e: -e.error if math.isfinite(e.error) else -math.inf)

    def _saw(self, op: str, inputs: tuple, outputs: tuple, low: Any, onto: bool, nanoseconds: int) -> None:
        dtype = _text(outputs[0].dtype) if low is None else _text(low)
        if dtype not in HALVES or onto or op in PASSED or outputs[0].numel() == 0 or is_own(sys._getframe(1)):
            return
        running = _C._running()
        key = (SHOWN[op], call_site(), dtype, running[0] if running else "")
        error, amax, calls = self._seen.get(key, (0.0, 0.0, 0))
        if calls & (calls + 1) == 0:
            wide = _C._again(tuple(t.float() if t is not None and t.dtype in (_C.float16, _C.bfloat16) else t for t in inputs))
            if wide is None:
                return
            error = max(error, _difference(outputs[0], wide[0]))
        _, finite, infs, *_ = stats_of(outputs[0].detach())
        self._seen[key] = error, max(amax, math.inf if infs else finite), calls + 1


def _difference(made: Any, exact: Any) -> float:
    """|made - exact| / |exact|; inf where only ``made`` is not finite."""
    if not exact.is_floating_point():
        return 0.0
    size, away = exact.double().norm().item(), (made.double() - exact.double()).norm().item()
    if not math.isfinite(size):
        return 0.0  # the inputs are the cause, or float32 overflows too
    return math.inf if not math.isfinite(away) else away / size if size > 0 else 0.0 if away == 0 else math.inf
