"""Functions that write into a tensor, and in-place forms of functions whose operators have none in the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, List

from .. import _C, _checks, _ops
from .. import _creation as make
from .._C import Tensor
from .._out import in_place

__all__ = []
METHODS = ["apply_", "fill_diagonal_", "float_power_", "map2_", "map_", "resize_", "resize_as_"]


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """The main diagonal filled, in place; ``wrap``: again after each square of a tall matrix."""
    if self.ndim < 2:
        raise RuntimeError(f"fill_diagonal_: expected at least 2 dimensions, got {self.ndim}")
    if self.ndim > 2:
        if len(set(self.shape)) != 1:
            raise RuntimeError(f"fill_diagonal_: more than 2 dimensions must have one size, got {list(self.shape)}")
        self.as_strided([self.shape[0]], [sum(self.stride())], self.storage_offset()).fill_(fill_value)
        return self
    step = self.shape[1] + 1
    for first in range(0, self.shape[0] if wrap else 1, step):
        self[first:].diagonal().fill_(fill_value)
    return self


def _mapped(name: str, self: Tensor, callable: Callable[..., Any], *others: Tensor) -> Tensor:
    if self.is_cuda:
        raise TypeError(f"{name}: works on the CPU only")
    values = zip(*(t.expand(self.shape).reshape(-1).tolist() for t in (self, *others)))
    return self.copy_(make.tensor([callable(*each) for each in values], dtype=self.dtype, device="cpu").reshape(self.shape))


def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Each element replaced by what a Python function makes of it; slow, CPU only."""
    return _mapped("apply_", self, callable)


def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Each element replaced by a Python function of it and tensor's; slow, CPU only."""
    return _mapped("map_", self, callable, tensor)


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """Each element replaced by a Python function of it, x's and y's; slow, CPU only."""
    return _mapped("map2_", self, callable, x, y)


def resize_(self: Tensor, *sizes: Any) -> Tensor:
    """Another size in place: what fits of the old values, in order, the rest uninitialised. RuntimeError where gradients are
    recorded."""
    if self.requires_grad:
        raise RuntimeError("resize_: the tensor requires gradients")
    size: List[int] = list(make._size(sizes))
    if any(n < 0 for n in size):
        raise RuntimeError(f"resize_: sizes must be 0 or more, got {size}")
    total = 1
    for n in size:
        total *= n
    flat = self.detach().reshape(-1)
    if total > flat.shape[0]:
        flat = _ops.cat([flat, flat.new_empty(total - flat.shape[0])])
    self.data = flat[:total].reshape(size)
    return self


def resize_as_(self: Tensor, the_template: Tensor) -> Tensor:
    """resize_ to another's shape."""
    return resize_(self, *the_template.shape)


def float_power_(self: Tensor, exponent: Any) -> Tensor:
    """float_power, in place. RuntimeError unless the tensor is float64."""
    if self.dtype != _C.float64:
        raise RuntimeError(f"float_power_: the result is float64, which a {self.dtype} tensor does not hold")
    return in_place(self, _ops.float_power, exponent)


def _written(f: Callable[..., Any], name: str) -> Callable[..., Tensor]:
    def g(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return in_place(self, f, *args, **kwargs)
    g.__name__, g.__doc__ = name + "_", f"{name}, in place."
    return g


# Of rows that give truth values. They record nothing, so the table has no in-place form of them; a tensor that truth values are written
# into loses its history.
for _row in (_ops.eq, _ops.ne, _ops.lt, _ops.le, _ops.gt, _ops.ge, _ops.logical_and, _ops.logical_or, _ops.logical_xor, _ops.logical_not):
    for _name in (_row.__name__, *(other for other, row in _ops.ALIASES.items() if row == _row.__name__)):
        setattr(Tensor, _name + "_", _written(_row, _name))


_checks.install(globals())
