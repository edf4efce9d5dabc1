"""Functions of several tensors, or with several results, and of sizes that depend on values."""

from __future__ import annotations

import builtins
import functools
import itertools
from collections.abc import Sequence
from typing import Any, List, Optional, Tuple, Union

from .. import _C, _checks, _ops
from .. import _creation as make
from .._C import Tensor
from .._dims import broadcast_shapes, wrap_dim
from .._out import own
from .sort_search import searchsorted

__all__ = ["atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors", "cartesian_prod", "combinations",
           "dsplit", "hsplit", "meshgrid", "repeat_interleave", "split_with_sizes", "tensor_split", "tril_indices", "triu_indices",
           "unravel_index", "view_as_real", "vsplit"]
METHODS = ["dsplit", "hsplit", "repeat_interleave", "tensor_split", "vsplit", "swapaxes_", "swapdims_", "t_", "transpose_", "split_with_sizes"]


def _dims(value: Any) -> List[int]:
    return _checks.integers(value, "dims")


# -- moving values --------------------------------------------------------------------------------------------


def repeat_interleave(input: Tensor, repeats: Any = None, dim: Optional[int] = None, *, output_size: Optional[int] = None) -> Tensor:
    """Each element (along ``dim``, or of the flattened tensor) repeated ``repeats`` times: a number, or an int tensor with one for
    each. With one argument, an int tensor: the indices that this takes. ``output_size``: how many there will be."""
    y = _repeated(input, repeats, dim)
    size = y.shape[0 if dim is None else dim]
    if output_size is not None and output_size != size:
        raise RuntimeError(f"repeat_interleave: `output_size` is {output_size}, but the repeats make {size}")
    return y


def _repeated(input: Tensor, repeats: Any, dim: Optional[int]) -> Tensor:
    if repeats is None:
        return _repeated(make.arange(input.numel(), device=input.device), input.reshape(-1), None)
    repeats = repeats if isinstance(repeats, (bool, Tensor)) or not _checks.is_integer(repeats) else int(repeats)
    if isinstance(repeats, bool) or not isinstance(repeats, (int, Tensor)):
        raise TypeError(f"repeat_interleave: `repeats` must be an int or an int Tensor, got {type(repeats).__name__}")
    if isinstance(repeats, int):
        _checks.integers(repeats, "repeat_interleave")
    elif repeats.is_floating_point() or repeats.dtype is _C.bool:
        raise NotImplementedError(f"repeat_interleave: `repeats` must hold integers, got {repeats.dtype}")
    x = input.reshape(-1) if dim is None else input
    d = 0 if dim is None else wrap_dim(dim, input.ndim, "repeat_interleave")
    n = x.shape[d]
    if isinstance(repeats, Tensor) and repeats.numel() == 1:
        repeats = int(repeats.item())
    if isinstance(repeats, int):
        if repeats < 0:
            raise RuntimeError(f"repeat_interleave: `repeats` must be 0 or more, got {repeats}")
        wide = x.unsqueeze(d + 1).expand(*x.shape[: d + 1], repeats, *x.shape[d + 1:])
        return own(wide.reshape(*x.shape[:d], n * repeats, *x.shape[d + 1:]), input)
    if repeats.ndim != 1 or repeats.shape[0] != n:
        raise RuntimeError(f"repeat_interleave: `repeats` must hold {n} numbers, got shape {list(repeats.shape)}")
    if bool((repeats < 0).any()):
        raise RuntimeError("repeat_interleave: `repeats` must be 0 or more")
    ends = repeats.long().cumsum(0)
    total = int(ends[-1].item()) if n else 0
    return x.index_select(d, searchsorted(ends, make.arange(total, device=x.device), right=True))


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


def _each(f: Any, tensors: Any) -> Any:
    tensors = _several(tensors, "atleast")
    out = tuple(f(t) for t in tensors)
    return out[0] if len(out) == 1 else out


def atleast_1d(*tensors: Any) -> Any:
    """0-d tensors with a dimension of size 1."""
    return _each(lambda t: t.reshape(1) if t.ndim == 0 else t, tensors)


def atleast_2d(*tensors: Any) -> Any:
    """Dimensions of size 1 put in front, up to 2."""
    return _each(lambda t: t.reshape(1, 1) if t.ndim == 0 else t.unsqueeze(0) if t.ndim == 1 else t, tensors)


def atleast_3d(*tensors: Any) -> Any:
    """Dimensions of size 1 added, up to 3."""
    def one(t: Tensor) -> Tensor:
        return t.reshape(1, 1, 1) if t.ndim == 0 else t.reshape(1, -1, 1) if t.ndim == 1 else t.unsqueeze(-1) if t.ndim == 2 else t
    return _each(one, tensors)


def _some(tensors: Sequence[Tensor], what: str) -> Sequence[Tensor]:
    if len(_checks.tensors(tensors, what)) == 0:
        raise RuntimeError(f"{what}: needs at least one tensor, got an empty list")
    return tensors


def _common_dtype(tensors: Sequence[Tensor]) -> Any:
    """What tensors promote to: those with dimensions decide, 0-d ones only by a higher category."""
    ranks = [functools.reduce(_C.promote_types, found) for found in
             ([t.dtype for t in tensors if t.ndim], [t.dtype for t in tensors if not t.ndim]) if found]
    return ranks[0] if len(ranks) == 1 else _C.result_type(make.empty(0, dtype=ranks[0]), make.empty((), dtype=ranks[1]))


def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal, zeros elsewhere."""
    if not tensors:
        return make.zeros(1, 0)
    for i, t in enumerate(_checks.tensors(tensors, "block_diag")):
        if t.ndim > 2:
            raise RuntimeError(f"block_diag: tensors must have at most 2 dimensions, tensor {i} has {t.ndim}")
    every = [atleast_2d(t) for t in tensors]
    dtype = _common_dtype(tensors)
    width, rows, at = sum(t.shape[1] for t in every), [], 0
    for t in every:
        n, m = t.shape
        zeros = make.zeros
        rows.append(_ops.cat([zeros(n, at, dtype=dtype, device=t.device), t.to(dtype), zeros(n, width - at - m, dtype=dtype, device=t.device)], 1))
        at += m
    return _ops.cat(rows, 0)


def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> Tuple[Tensor, ...]:
    """As many nearly equal parts along ``dim``, or cut before each of the indices listed."""
    if input.ndim == 0:
        raise RuntimeError("tensor_split: a 0-d tensor has no dimension to cut")
    n = input.shape[wrap_dim(dim, input.ndim, "tensor_split")]
    if isinstance(indices_or_sections, Tensor):
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
        cuts = [int(i) for i in indices_or_sections]
    ends = [builtins.min(builtins.max(c + n if c < 0 else c, 0), n) for c in cuts] + [n]
    starts = [0, *ends[:-1]]
    if starts == sorted(starts):
        return input._cut_into([b - a for a, b in zip(starts, ends)], dim, False)
    return tuple(input.narrow(dim, builtins.min(a, n), builtins.max(b - a, 0)) for a, b in zip(starts, ends))


def hsplit(input: Tensor, indices_or_sections: Any) -> Tuple[Tensor, ...]:
    """tensor_split along dimension 1, of vectors along 0."""
    return _even_split("hsplit", input, indices_or_sections, 0 if input.ndim == 1 else 1, 1)


def vsplit(input: Tensor, indices_or_sections: Any) -> Tuple[Tensor, ...]:
    """tensor_split along dimension 0."""
    return _even_split("vsplit", input, indices_or_sections, 0, 2)


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


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Every choice of one element from each vector, a row each."""
    for t in _some(tensors, "cartesian_prod"):
        if t.ndim != 1:
            raise RuntimeError(f"cartesian_prod: expected each tensor to be a vector, got {t.ndim} dimensions")
        if t.dtype is not tensors[0].dtype:
            raise RuntimeError(f"cartesian_prod: needs tensors of one dtype, got {tensors[0].dtype} and {t.dtype}")
    if len(tensors) == 1:
        return tensors[0]
    rows = 0 if any(len(t) == 0 for t in tensors) else _rows([len(t) for t in tensors])
    columns, before = [], min(rows, 1)  # rows are before * len(t) * after: an element stands for `after` rows, the vector comes `before` times
    for t in tensors:
        after = rows // (before * len(t)) if rows else 0
        columns.append(t.reshape(1, -1, 1).expand(before, len(t), after).reshape(-1))
        before *= len(t)
    return _ops.stack(columns, 1)


def _rows(sizes: List[int]) -> int:
    rows = 1
    for n in sizes:
        rows *= n
        if rows >= 2**63:
            raise RuntimeError("cartesian_prod: the result would have 2**63 rows or more")
    return rows


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Every choice of ``r`` elements of a vector, a row each."""
    if input.ndim != 1:
        raise RuntimeError(f"combinations: expected a vector, got {input.ndim} dimensions")
    if r < 0:
        raise RuntimeError(f"combinations: `r` must be 0 or more, got {r}")
    if r == 0:  # torch's has no row for the one choice of nothing
        return input.new_empty(0)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    indices = [list(p) for p in choose(range(input.shape[0]), r)]
    return input[_C._tensor_from(indices, _C.int64).reshape(len(indices), r).to(input.device)]


# -- triangles and diagonals ------------------------------------------------------------------------------------------


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None) -> Tensor:
    """The indices of a matrix' lower triangle: int64 [2, n]."""
    return _indices_of(_ops.tril, row, col, offset, dtype, device)


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None) -> Tensor:
    """The indices of a matrix' upper triangle: int64 [2, n]."""
    return _indices_of(_ops.triu, row, col, offset, dtype, device)


def _indices_of(part: Any, row: int, col: int, offset: int, dtype: Any, device: Any) -> Tensor:
    at = part(make.ones(row, col, dtype=_C.bool, device=device), offset).nonzero()
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
