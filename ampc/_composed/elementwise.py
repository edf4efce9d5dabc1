"""Elementwise functions, written with the table's operators."""

from __future__ import annotations

from typing import Any, Optional

from .. import _C, _checks, _ops
from .. import _creation as make
from .._C import Tensor
from .._out import in_place, takes_out
from .sort_search import searchsorted

__all__ = ["isin"]
METHODS = ["float_power_"]


def float_power_(self: Tensor, exponent: Any) -> Tensor:
    """float_power, in place. RuntimeError unless the tensor is float64."""
    if self.dtype != _C.float64:
        raise RuntimeError(f"float_power_: the result is float64, which a {self.dtype} tensor does not hold")
    return in_place(self, _ops.float_power, exponent)


@takes_out
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False, out: Optional[Tensor] = None) -> Tensor:
    """True where an element is among test_elements."""
    some = next(t for t in (elements, test_elements) if isinstance(t, Tensor))
    x = elements if isinstance(elements, Tensor) else make.tensor(elements, device=some.device)
    y = test_elements if isinstance(test_elements, Tensor) else make.tensor(test_elements, device=some.device)
    common = _C.promote_types(x.dtype, y.dtype)
    values = y.to(common).reshape(-1).sort()[0]
    if values.is_floating_point():
        values = values[values == values]  # nan equals nothing, and does not tell where others would be
    if values.shape[0] == 0:
        found = make.zeros_like(x, dtype=_C.bool)
    else:
        x = x.to(common)
        found = values[searchsorted(values, x).clamp(max=values.shape[0] - 1)] == x
    return found.logical_not() if invert else found


_checks.install(globals())
