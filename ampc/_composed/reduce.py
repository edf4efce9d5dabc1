"""Norms whose kind is a word, and gradients along several dimensions."""

from __future__ import annotations

import math
from typing import Any, List, Optional, Tuple

from .. import _ops
from .._C import Tensor
from .._events import announce
from .._messages import checks as _checks
from .._tensor import creation as make
from .._tensor.dims import wrap_dim
from .._tensor.out import written
from ..linalg import matrix_norm

__all__ = ["gradient", "norm", "nuclear_norm", "segment_reduce"]
METHODS = ["norm"]
_SEGMENTS = {"sum": ("sum", 0.0), "mean": ("sum", 0.0), "prod": ("prod", 1.0), "max": ("amax", -math.inf), "amax": ("amax", -math.inf),
             "min": ("amin", math.inf), "amin": ("amin", math.inf)}  # what scatter_reduce calls it, and where it begins


def nuclear_norm(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Optional[Tensor] = None) -> Tensor:
    """The sum of singular values. float32 under autocast."""
    return matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim, out=out)


def norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Optional[Tensor] = None, dtype: Any = None) -> Tensor:
    """The p-norm over ``dim`` (all when None); 'fro' the 2-norm, 'nuc' the sum of a matrix' singular values. float32 under autocast."""
    if p == "nuc":
        y = nuclear_norm(input, dim, keepdim)
    elif isinstance(p, str) and p != "fro":
        raise RuntimeError(f"norm: `p` must be a number, 'fro' or 'nuc', got {p!r}")
    else:
        announce.norm_taken(input)
        y = _ops._norm(input, 2 if p in ("fro", None) else p, dim, keepdim, dtype=dtype)
    return written(y, out, "norm")


def _steps(input: Tensor, spacing: Any, dim: Any) -> Tuple[List[int], List[Any]]:
    """The dimensions that gradients are taken along, and the spacing of each: a number, or a vector of coordinates."""
    dims = list(range(input.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    dims = [wrap_dim(d, input.ndim, "gradient") for d in dims]
    if len(set(dims)) < len(dims):
        raise RuntimeError(f"gradient: `dim` {dim} names a dimension twice")
    if not isinstance(spacing, (list, tuple)):
        return dims, [1.0 if spacing is None else float(spacing)] * len(dims)
    if len(spacing) != len(dims):
        raise RuntimeError(f"gradient: {len(spacing)} spacings for {len(dims)} dimensions")
    return dims, list(spacing)


def gradient(input: Tensor, *, spacing: Any = 1.0, dim: Any = None, edge_order: int = 1) -> Tuple[Tensor, ...]:
    """Central differences along each dimension, ``edge_order`` 1 or 2 at the ends; ``spacing`` is one number, or for each dimension a
    number or a vector of coordinates."""
    dims, steps = _steps(input, spacing, dim)
    return tuple(_ops._gradient(input, h, 1.0, d, edge_order) if isinstance(h, Tensor) else _ops._gradient(input, None, float(h), d, edge_order)
                 for d, h in zip(dims, steps))


def segment_reduce(data: Tensor, reduce: str, *, lengths: Optional[Tensor] = None, indices: Optional[Tensor] = None, offsets: Optional[Tensor] = None,
                   axis: int = 0, unsafe: bool = False, initial: Any = None) -> Tensor:
    """The sum, mean, prod, max or min of each of the segments that lie one after another along ``axis``, from their ``lengths`` or from where each
    begins and the last ends (``offsets``): integers of the shape of ``data`` before ``axis``, and a last dimension of segments. ``initial``
    begins each of them, and is the result of an empty one; without it that is 0, nan, 1, -inf or inf. RuntimeError, unless ``unsafe``, for
    lengths that do not add up to the size along ``axis``."""
    if reduce not in _SEGMENTS:
        raise RuntimeError(f"segment_reduce: `reduce` must be one of {', '.join(_SEGMENTS)}, got {reduce!r}")
    if indices is not None:
        raise RuntimeError("segment_reduce: `indices` have no effect in torch either; give `lengths` or `offsets`")
    if (lengths is None) == (offsets is None):
        raise RuntimeError("segment_reduce: give `lengths` or `offsets`, and not both")
    axis, size = wrap_dim(axis, data.ndim, "segment_reduce"), data.shape[axis]
    sizes: Any = lengths if offsets is None else offsets.diff()
    if tuple(sizes.shape[:-1]) != tuple(data.shape[:axis]) or sizes.ndim != axis + 1:
        need = [*data.shape[:axis], "segments"]
        raise RuntimeError(f"segment_reduce: data of shape {list(data.shape)}, axis {axis}, needs lengths of shape {need}, got {list(sizes.shape)}")
    if not unsafe and (sizes.amin() < 0 or (sizes.sum(-1) != size).any()).item():
        raise RuntimeError(f"segment_reduce: the lengths along the axis must be 0 or more, and add up to {size}; or pass unsafe=True")
    operation, begin = _SEGMENTS[reduce]
    start = begin if initial is None else initial
    rest = (1,) * (data.ndim - axis - 1)
    ends, positions = sizes.cumsum(-1), make.arange(size, device=data.device).expand(data.shape[:axis + 1])
    segment = _ops.searchsorted(ends, positions.contiguous(), right=True)  # behind the last end lies one segment more
    room = make.full((*sizes.shape[:-1], sizes.shape[-1] + 1, *data.shape[axis + 1:]), start, dtype=data.dtype, device=data.device)
    y = room.scatter_reduce(axis, segment.reshape(*segment.shape, *rest).expand(data.shape), data, operation).narrow(axis, 0, sizes.shape[-1])
    if reduce != "mean":
        return y
    count = sizes.reshape(*sizes.shape, *rest)
    return y / count if initial is None else _ops.where(count == 0, y, y / count.clamp(min=1))


_checks.install(globals())
