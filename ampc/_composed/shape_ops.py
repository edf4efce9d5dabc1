"""Functions with as many results as there are tensors or parts; and of the indices of triangles."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Sequence
from typing import Any, List, Optional, Tuple, Union

from .. import _C, _ops
from .._C import Tensor
from .._messages import checks as _checks
from .._tensor import creation as make
from .._tensor.dims import broadcast_shapes, wrap_dim

__all__ = ["atleast_1d", "atleast_2d", "atleast_3d", "broadcast_shapes", "broadcast_tensors", "dsplit", "hsplit", "meshgrid", "split_with_sizes",
           "tensor_split", "tril_indices", "triu_indices", "unravel_index", "view_as_real", "vsplit"]
METHODS = ["dsplit", "hsplit", "tensor_split", "vsplit", "swapaxes_", "swapdims_", "t_", "transpose_", "split_with_sizes"]


def _dims(value: Any) -> List[int]:
    return _checks.integers(value, "dims")


def _several(tensors: Any, what: str) -> Any:
    """Tensors that were given one by one, or as one list."""
    one = len(tensors) == 1 and isinstance(tensors[0], (list, tuple))
    return _checks.tensors(tuple(tensors[0]) if one else tensors, what)


def broadcast_tensors(*tensors: Any) -> Tuple[Tensor, ...]:
    """Tensors expanded to the shape they broadcast to."""
    tensors = _several(tensors, "broadcast_tensors")
    shape = broadcast_shapes(*(t.shape for t in tensors))
    return tuple(t if t.shape == shape else t.expand(*shape) for t in tensors)


def meshgrid(*tensors: Any, indexing: Optional[str] = None) -> Tuple[Tensor, ...]:
    """Coordinates of the grid that vectors span; ``indexing`` 'ij' (default) or 'xy', which swaps the first two."""
    tensors = _several(tensors, "meshgrid")
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(f"meshgrid: `indexing` must be 'ij' or 'xy', got {indexing!r}")
    if not tensors:
        raise RuntimeError("meshgrid: needs at least one tensor")
    if any(t.dtype is not tensors[0].dtype for t in tensors):
        raise RuntimeError(f"meshgrid: needs tensors of one dtype, got {', '.join(str(t.dtype) for t in tensors)}")
    if any(t.ndim > 1 for t in tensors):
        raise RuntimeError("meshgrid: takes vectors and 0-d tensors")
    axes = [t.reshape(-1) for t in tensors]
    swap = indexing == "xy" and len(axes) > 1
    order = [1, 0, *range(2, len(axes))] if swap else list(range(len(axes)))
    shape = [len(axes[i]) for i in order]
    return tuple(a.reshape([-1 if order[d] == i else 1 for d in range(len(axes))]).expand(*shape) for i, a in enumerate(axes))


# -- joining -----------------------------------------------------------------------------------------------------


def _each(tensors: Any, ndim: int) -> Any:
    out = tuple(_ops._at_least(t, ndim) for t in _several(tensors, "atleast"))
    return out[0] if len(out) == 1 else out


def atleast_1d(*tensors: Any) -> Any:
    """0-d tensors with a dimension of size 1."""
    return _each(tensors, 1)


def atleast_2d(*tensors: Any) -> Any:
    """Dimensions of size 1 put in front, up to 2."""
    return _each(tensors, 2)


def atleast_3d(*tensors: Any) -> Any:
    """Dimensions of size 1 added, up to 3."""
    return _each(tensors, 3)


_parts = _checks.also(indices="indices_or_sections", sections="indices_or_sections", tensor_indices_or_sections="indices_or_sections")


@_parts
def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> Tuple[Tensor, ...]:
    """As many nearly equal parts along ``dim``, or cut before each of the indices listed."""
    if input.ndim == 0:
        raise RuntimeError("tensor_split: a 0-d tensor has no dimension to cut")
    n = input.shape[wrap_dim(dim, input.ndim, "tensor_split")]
    if isinstance(indices_or_sections, Tensor):
        if indices_or_sections.dtype != _C.int64:
            raise RuntimeError(f"tensor_split: indices or a number of parts must be int64, got {indices_or_sections.dtype}")
        if indices_or_sections.ndim > 1:
            raise RuntimeError(f"tensor_split: a tensor of indices must have 1 dimension, got {indices_or_sections.ndim}")
        indices_or_sections = indices_or_sections.tolist()
    if _checks.is_integer(indices_or_sections):
        k = int(indices_or_sections)
        if k < 1:
            raise RuntimeError(f"tensor_split: the number of parts must be above 0, got {k}")
        if k >= 2**31:
            raise ValueError(f"tensor_split: {k} parts are more than memory holds")
        sizes = [n // k + (i < n % k) for i in range(k)]
        cuts = list(itertools.accumulate(sizes))[:-1]
    else:
        cuts = _checks.integers(indices_or_sections, "tensor_split")
    ends = [builtins.min(builtins.max(c + n if c < 0 else c, 0), n) for c in cuts] + [n]
    starts = [0, *ends[:-1]]
    if starts == sorted(starts):
        return input._cut_into([b - a for a, b in zip(starts, ends)], dim, False)
    return tuple(input.narrow(dim, builtins.min(a, n), builtins.max(b - a, 0)) for a, b in zip(starts, ends))


@_parts
def hsplit(input: Tensor, indices_or_sections: Any) -> Tuple[Tensor, ...]:
    """tensor_split along dimension 1, of vectors along 0."""
    return _even_split("hsplit", input, indices_or_sections, 0 if input.ndim == 1 else 1, 1)


@_parts
def vsplit(input: Tensor, indices_or_sections: Any) -> Tuple[Tensor, ...]:
    """tensor_split along dimension 0."""
    return _even_split("vsplit", input, indices_or_sections, 0, 2)


@_parts
def dsplit(input: Tensor, indices_or_sections: Any) -> Tuple[Tensor, ...]:
    """tensor_split along dimension 2."""
    return _even_split("dsplit", input, indices_or_sections, 2, 3)


def _even_split(what: str, x: Tensor, parts: Any, dim: int, least: int) -> Tuple[Tensor, ...]:
    if x.ndim < least:
        raise RuntimeError(f"{what}: expected at least {least} dimensions, got {x.ndim}")
    if not isinstance(parts, (int, Tensor, list, tuple)):
        raise TypeError(f"{what}: expected a number of parts or a list of indices, got {type(parts).__name__}")
    if isinstance(parts, int) and (parts < 1 or x.shape[dim] % parts):
        raise RuntimeError(f"{what}: dimension {dim} of size {x.shape[dim]} does not divide into {parts} parts")
    return tensor_split(x, parts, dim)


# -- triangles and diagonals ------------------------------------------------------------------------------------------


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, layout: Any = None,
                 pin_memory: bool = False) -> Tensor:
    """The indices of a matrix' lower triangle: int64 [2, n]."""
    return make.finish(_indices_of(_ops.tril, row, col, offset, dtype, device, layout), False, None, pin_memory)


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, layout: Any = None,
                 pin_memory: bool = False) -> Tensor:
    """The indices of a matrix' upper triangle: int64 [2, n]."""
    return make.finish(_indices_of(_ops.triu, row, col, offset, dtype, device, layout), False, None, pin_memory)


def _indices_of(part: Any, row: int, col: int, offset: int, dtype: Any, device: Any, layout: Any) -> Tensor:
    at = part(make.ones(row, col, dtype=_C.bool, device=device, layout=layout), offset).nonzero()
    return at.t().contiguous().to(dtype or _C.int64)


def unravel_index(indices: Tensor, shape: Union[int, Sequence[int]]) -> Tuple[Tensor, ...]:
    """Positions in the flattened tensor as one index a dimension, each int64."""
    out: List[Tensor] = []
    if indices.is_floating_point() or indices.dtype is _C.bool:
        raise TypeError(f"unravel_index: the indices must be integers, got {indices.dtype}")
    sizes = _dims(shape)
    if any(n < 0 for n in sizes):
        raise ValueError(f"unravel_index: a size is negative in {sizes}")
    indices = indices.to(_C.int64)
    for size in reversed(sizes):
        out.append(indices % size)
        indices = indices // size
    return tuple(reversed(out))


# -- methods of the same name ---------------------------------------------------------------------------------------------


def view_as_real(input: Tensor) -> Tensor:
    """RuntimeError: there are no complex tensors."""
    raise RuntimeError("view_as_real: there are no complex tensors")


@_checks.also(axis0="dim0", axis1="dim1")
def transpose_(self: Tensor, dim0: int, dim1: int) -> Tensor:
    """transpose, in place."""
    return self._turned_into(lambda: self.transpose(dim0, dim1))


def t_(self: Tensor) -> Tensor:
    """t, in place."""
    return self._turned_into(lambda: self.t())


swapaxes_ = swapdims_ = transpose_


def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> Tuple[Tensor, ...]:
    """split into parts of these sizes."""
    return input.split(list(split_sizes), dim)


_checks.install(globals())
