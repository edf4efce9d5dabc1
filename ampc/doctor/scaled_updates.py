"""Tells of parameters that a script changes by itself, by gradients that are still multiplied by the loss scale."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional

from .. import _C
from ._finding import Location
from ._marks import Marks
from .digits import seen_alpha
from .guard import is_divided_by, loss_scale, say

PLAIN = {"mul", "div", "neg", "clone", "cast", "contiguous"}  # what is made of a gradient by these is still one
UPDATES = {"add", "sub"}


class Gradient(NamedTuple):
    """A gradient, or what was made of it: it is multiplied by the loss scale, and by this factor."""

    scale: float
    factor: float


class ScaledUpdates:
    """Follows scaled gradients through numbers that they are multiplied by, until they change a parameter. A script that does anything else
    with them, such as taking their norm, may divide by the scale in this way, and nothing is said."""

    def __init__(self, followed: List[Any]) -> None:
        self.marks = Marks(followed)
        self._measured = False

    def measured(self) -> None:
        """A norm of gradients is taken, by what is no operator."""
        self._measured = True

    def begins(self) -> None:
        """New gradients are made."""
        self._measured = False

    def saw(self, op: str, inputs: tuple, out: Any, onto: bool, location: Location) -> None:
        """An operator has run forward, on the gradients of a loss that a scaler has multiplied."""
        if op in UPDATES and onto and out.requires_grad and out.is_leaf:
            self._updated(inputs, out, location)
            return
        found = self._gradient(inputs)
        if found is None:
            return
        factor = _factor(op, inputs) if op in PLAIN else None
        if factor is None:
            self._measured = True
        elif onto:
            self.marks.take_off(out)
        else:
            mark = next(iter(self.marks.among(inputs)), None)
            self.marks.add(out, mark.location if mark is not None else location, found._replace(factor=found.factor * factor))

    def _gradient(self, inputs: tuple) -> Optional[Gradient]:
        mark = next(iter(self.marks.among(inputs)), None) if self.marks else None
        if mark is not None:
            return mark.what
        scaled = any(t is not None and t.is_floating_point() and _C._is_scaled(t) for t in inputs)
        return Gradient(loss_scale(), 1.0) if scaled else None

    def _updated(self, inputs: tuple, out: Any, location: Location) -> None:
        found = self._gradient(inputs[1:])
        if found is None or self._measured:
            return
        mark = next(iter(self.marks.among(inputs[1:])), None)
        factor = abs(found.factor * seen_alpha())
        if factor * found.scale > 1.0 and found.scale > 1.0 and not is_divided_by(factor, found.scale):  # 1 / scale is in it otherwise
            say("edit-scaled-gradients", f"a parameter is changed by {factor:.3g} times its gradient, which is still multiplied by the loss scale "
                f"{found.scale:g}", "call scaler.unscale_(optimizer) before the gradients are used, or divide by scaler.get_scale()",
                *(mark.location if mark is not None else location))


def _factor(op: str, inputs: tuple) -> Optional[float]:
    """What an operator multiplies a gradient by: a number of the script; None for anything else."""
    if op not in ("mul", "div"):
        return 1.0
    others = [t for t in inputs if t is not None and t.ndim == 0 and t.dtype in (_C.float64, _C.int64) and not t.is_cuda]
    if len(others) != 1 or op == "div" and others[0] is inputs[0]:
        return None
    number = float(others[0].item())
    return number if op == "mul" else 1 / number if number else None
