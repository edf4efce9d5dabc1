"""Memory layouts: row-major, channels last, and bytes viewed as another dtype. The functions are methods of Tensor, attached here."""

from __future__ import annotations

from typing import Any

from .. import _C, _ops
from .._C import Tensor
from .._messages import checks as _checks
from .device import channels_last, channels_last_3d, contiguous_format, memory_format, preserve_format
from .unsupported_dtypes import AbsentDtype


def _last_order(format: Any, t: Tensor, what: str) -> list:
    """Dimensions with the channels last."""
    if t.ndim != format.ndim:
        raise RuntimeError(f"{what}: {format} is of {format.ndim} dimensions, got {t.ndim}")
    return [0, *range(2, t.ndim), 1]


def check_format(format: Any, what: str) -> None:
    """TypeError for what is neither None nor a memory format."""
    if format is not None and not isinstance(format, memory_format):
        raise TypeError(f"{what}: `memory_format` must be a memory_format, got {format!r}")


def in_format(t: Tensor, format: Any, what: str) -> Tensor:
    """t laid out that way; itself when it is, or when nothing is asked."""
    check_format(format, what)
    if format is None or format is preserve_format:
        return t
    if is_contiguous(t, format):
        return t
    if format is contiguous_format:
        return _ops._contiguous(t)
    order = _last_order(format, t, what)
    return _ops._contiguous(t.permute(order)).permute([order.index(d) for d in range(t.ndim)])


def unchanged(t: Tensor, format: Any, what: str) -> Tensor:
    """t where nothing else changes, laid out as ``format`` says: itself for rows, too, unless its channels are last. So does torch's ``to``."""
    rows = format is contiguous_format and not any(f.ndim == t.ndim and is_contiguous(t, f) for f in (channels_last, channels_last_3d))
    return t if rows else in_format(t, format, what)


def is_contiguous(self: Tensor, memory_format: Any = contiguous_format) -> bool:
    """True when the values lie without gaps: row by row, or as ``memory_format`` says."""
    if memory_format is contiguous_format:
        return Tensor._is_row_major(self)
    return self.ndim == memory_format.ndim and Tensor._is_row_major(self.permute(_last_order(memory_format, self, "is_contiguous")))


def contiguous(self: Tensor, memory_format: Any = contiguous_format) -> Tensor:
    """The tensor itself when its values lie without gaps, row by row (or as ``memory_format`` says), else a copy that does."""
    return in_format(self, memory_format, "contiguous")


@_checks.overridable
def clone(input: Tensor, *, memory_format: Any = preserve_format) -> Tensor:
    """A copy in memory of its own, in the same order or as ``memory_format`` says."""
    laid_out = input if memory_format is preserve_format else in_format(input, memory_format, "clone")
    return _ops.clone(input) if laid_out is input else laid_out


def view(self: Tensor, *sizes: Any, size: Any = None, dtype: Any = None) -> Tensor:
    """The same memory with another shape; with a dtype, its bytes read as that."""
    if size is not None:
        if sizes:
            raise TypeError("view: sizes were given twice: one by one, and as `size`")
        sizes = (size,)
    if dtype is not None:
        if sizes:
            raise TypeError("view: takes sizes or a dtype, got both")
        return self._view_dtype(dtype)
    if len(sizes) == 1 and isinstance(sizes[0], (_C.dtype, AbsentDtype)):
        return self._view_dtype(sizes[0])
    return self._view(*sizes)


for _method in (is_contiguous, contiguous, clone, view):
    setattr(Tensor, _method.__name__, _method)


def with_attributes(cls: Any, raw: Tensor, requires_grad: bool, attributes: dict) -> Tensor:
    """A tensor as a new object of ``cls``, or as it is, with Python's attributes."""
    t = raw if cls is Tensor else _C._make_subclass(cls, raw, False)
    t.requires_grad = requires_grad
    t.__dict__.update(attributes)
    return t
