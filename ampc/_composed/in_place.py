"""Functions that write into a tensor, and in-place forms of functions whose operators have none in the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import _C, _ops
from .._C import Tensor
from .._messages import checks as _checks
from .._tensor import creation as make
from .._tensor.device import channels_last, channels_last_3d, contiguous_format, preserve_format
from .._tensor.out import in_place

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


def resize_(self: Tensor, *sizes: Any, size: Any = None, memory_format: Any = None) -> Tensor:
    """Another size in place: a view of the same storage from its first element on, row by row or as ``memory_format`` says. The storage
    grows where it must, its new values uninitialised; on a GPU the tensor moves to a new one. Of its own size it stays as it is.

    RuntimeError where gradients are recorded, and for a storage that must grow and cannot: an array's, or a shared one."""
    if not sizes and size is None:
        raise TypeError("resize_: expected a size")
    if self.requires_grad:
        raise RuntimeError("resize_: the tensor requires gradients")
    model = make._laid_out(make.empty(*(sizes if size is None else (size,)), device="meta"), memory_format, False)
    if model.shape == self.shape and memory_format in (None, preserve_format):
        return self
    return _resized(self, tuple(model.shape), model.stride())


def _resized(self: Tensor, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    from .._tensor.storage import tensor_on

    dtype, start = self.dtype, self.storage_offset()
    there, wanted = self._storage_bytes() // dtype.itemsize, _C._storage_reach(1, start, size, stride)
    if not self.is_meta or wanted <= there:
        self._turned_into(lambda: tensor_on(self, dtype, start, size, stride))
        if wanted > there and make.asked["deterministic"] and self.numel():
            self.data.as_strided((wanted - there,), (1,), there).fill_(make.unset(dtype))  # which counts as one write with the rest
        return self
    grown = make.empty(wanted - start, dtype=dtype, device=self.device)
    grown[: there - start].copy_(self.as_strided((there - start,), (1,)))
    return self._taken_over(grown.as_strided(size, stride))


def resize_as_(self: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """resize_ to another's shape; with ``memory_format=torch.preserve_format`` to its order of channels, too."""
    if memory_format is preserve_format:
        memory_format = next((f for f in (channels_last, channels_last_3d) if the_template.is_contiguous(memory_format=f)), contiguous_format)
    return resize_(self, the_template.shape, memory_format=memory_format)


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
