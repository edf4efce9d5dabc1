"""Tells of a forward pass that an autograd Function repeats in its backward, outside of the autocast region that it ran in."""

from __future__ import annotations

from typing import Any, Dict

from .. import _C
from .._ops import SHOWN
from ._finding import Location
from .guard import say
from .rounded import HALF, text_of

PRODUCTS = frozenset({"linear", "mm", "bmm", "addmm", "baddbmm", "convolution", "matmul"})
MOST = 1000


class Recomputed:
    """The dtypes of products that ran without a gradient, by their weights."""

    def __init__(self) -> None:
        self.ran: Dict[int, tuple] = {}  # address of the weight -> operator, shape and dtype of the result

    def clear(self) -> None:
        """Forgets all."""
        self.ran.clear()

    def saw(self, op: str, inputs: tuple, out: Any, low: Any, running: Any, location: Location) -> None:
        """An operator has run. ``running``: the formula, or the Function's backward, that it is a part of."""
        if op not in PRODUCTS:
            return
        weight = next((t for t in inputs[1:] if t is not None and t.is_leaf and t.requires_grad and t.dtype not in HALF), None)
        if weight is None:
            return
        if running is None:
            if len(self.ran) > MOST:
                self.ran.clear()
            if out.requires_grad:
                self.ran.pop(_C._address(weight), None)
            elif low in HALF:
                self.ran[_C._address(weight)] = op, tuple(out.shape), low
        elif out.requires_grad and self.ran.get(_C._address(weight), ())[:2] == (op, tuple(out.shape)) and low is None:
            ran = text_of(self.ran[_C._address(weight)][2])
            say("recomputed-in-other-precision", f"{SHOWN[op]} runs in {text_of(out.dtype)} here, in a backward pass that repeats a part of the "
                f"forward pass; there autocast ran it in {ran}, so gradients are those of other values",
                "enter the region again: torch.autocast(..., enabled=what torch.is_autocast_enabled said in forward), or use "
                "torch.utils.checkpoint, which does so", *location)
