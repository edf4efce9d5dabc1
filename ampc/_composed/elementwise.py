"""Elementwise functions, written with the table's operators."""

from __future__ import annotations

from typing import Any

from .. import _C, _checks, _ops
from .._C import Tensor
from .._out import in_place

__all__ = []
METHODS = ["float_power_"]


def float_power_(self: Tensor, exponent: Any) -> Tensor:
    """float_power, in place. RuntimeError unless the tensor is float64."""
    if self.dtype != _C.float64:
        raise RuntimeError(f"float_power_: the result is float64, which a {self.dtype} tensor does not hold")
    return in_place(self, _ops.float_power, exponent)


_checks.install(globals())
