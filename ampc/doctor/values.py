"""The rules about values that a doctor follows: the guard reports what they find."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any, Dict, List

from .. import _C
from .._events import Listener, listen
from .._messages.callers import call_site
from ..autograd.engine import __file__ as _ENGINE
from ._finding import Location
from .averages import Averages
from .recomputed import Recomputed
from .rounded import Counts, Differences, Numbers, Rates
from .scaled_updates import ScaledUpdates
from .spoiled import Spoiled


class Values:
    """What one doctor knows. It sees the operators of its thread that concern it, and hears of steps and backward passes there. While nothing
    is in ``followed``, csrc/python/doctor.c decides which concern it; it sees all from then on."""

    def __init__(self, made: Dict[int, Any]) -> None:
        self._made, self._thread = made, threading.get_ident()
        self.followed: List[Any] = []  # a rule that follows a tensor by its memory
        self.counts, self.differences, self.numbers, self.rates = Counts(self.followed), Differences(self.followed), Numbers(self.followed), Rates()
        self.averages, self.scaled, self.spoiled, self.recomputed = Averages(), ScaledUpdates(self.followed), Spoiled(), Recomputed()
        self._has_scaled = False  # whether a scaler has multiplied a loss

    def begin(self) -> None:
        """Hears of events from now on."""
        _ALL.add(self)

    @property
    def here(self) -> bool:
        """Whether this is its thread."""
        return threading.get_ident() == self._thread

    def let_go(self) -> None:
        """Forgets all tensors and hears of nothing more, when the doctor ends."""
        _ALL.discard(self)
        for marked in (self.counts, self.differences, self.numbers, self.scaled):
            marked.marks.clear()
        for rule in (self.averages, self.spoiled, self.recomputed):
            rule.clear()
        self.followed.clear()

    def saw(self, op: str, inputs: tuple, outputs: tuple, low: Any, onto: bool, location: Location) -> None:
        """An operator has run; what a doctor knows of its target is that of before. Parts of composite operators and formulas are not judged."""
        running = _C._running()
        if running is None and sys._getframe(2).f_code.co_filename == _ENGINE:
            return  # gradients are added up
        if len(outputs) != 1 or not inputs and op != "arange":
            return
        out = outputs[0]
        if out.is_meta:
            return
        if running is not None:
            if running[0][:1].isupper():
                self.recomputed.saw(op, inputs, out, low, running, location)
            return
        self.recomputed.saw(op, inputs, out, low, None, location)
        self.counts.saw(op, inputs, out, low, onto, location)
        self.numbers.saw(op, inputs, out)
        self.rates.saw(op, inputs, out, location)
        known = [self._made.get(_C._address(t)) for t in inputs if t is not None]
        ops = {m.op if m is not None else "" for m in known}
        self.differences.saw(op, inputs, out, location, len(known) == 2 and len(ops) == 1 and "" not in ops)
        before = known[0] if onto and known else None
        self.averages.saw(op, inputs, out, onto, location, (before.op, before.location) if before is not None else None)
        if self._has_scaled:
            self.scaled.saw(op, inputs, out, onto, location)

    def saw_bad(self, op: str, inputs: tuple, out: Any, onto: bool, location: Location) -> None:
        """An operator has given what is not finite."""
        if _C._running() is None and sys._getframe(2).f_code.co_filename != _ENGINE:
            self.spoiled.saw(op, inputs, out, onto, location, self._made)


_ALL: weakref.WeakSet = weakref.WeakSet()


class _Heard(Listener):
    """Passes events on to the doctors of the thread."""

    def number_rounded(self, value: float, t: Any) -> None:
        """A script makes a 16-bit tensor of a number."""
        here = _here()
        if here:
            for each in here:
                each.numbers.made(value, t, call_site())

    def loss_scaled(self, scaler: Any, outputs: Any) -> None:
        """A scaler multiplies a loss."""
        for each in _here():
            each._has_scaled = True

    def backward_begins(self, loss: Any) -> None:
        """New gradients."""
        for each in _here():
            each.scaled.begins()

    def norm_taken(self, t: Any) -> None:
        """Of a gradient, or of anything."""
        for each in _here():
            each.scaled.measured()

    def step_begins(self, optimizer: Any, closure: bool) -> None:
        """An optimizer's step."""
        for each in _here():
            each.rates.steps(optimizer)

    def step_decided(self, scaler: Any, optimizer: Any, scale: Any, loss: Any, found_inf: Dict[Any, Any], stats: Any) -> None:
        """A scaler makes it, or skips it."""
        here = _here()
        if here:
            skipped = any(float(flag.item()) for flag in found_inf.values())
            for each in here:
                each.spoiled.decided(skipped)


def _here() -> list:
    return [each for each in _ALL if each.here] if _ALL else []


listen(_Heard())
