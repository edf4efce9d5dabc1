"""Further functions of nn.functional: max pooling with indices, and products of groups of matrices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Optional

from .. import _ops
from .._C import Tensor
from ._fractional import fractional_max_pool2d, fractional_max_pool3d

adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = _ops.adaptive_max_pool1d, _ops.adaptive_max_pool2d, _ops.adaptive_max_pool3d
max_pool1d, max_pool2d, max_pool3d = _ops.max_pool1d, _ops.max_pool2d, _ops.max_pool3d

__all__ = [
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d_with_indices", "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d_with_indices", "grouped_mm", "max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices",
    "native_channel_shuffle",
]


def _with_indices(pool: Callable[..., Any], at: int) -> Callable[..., Any]:
    """``pool`` with ``return_indices``, its argument ``at``, whatever is given for it: as torch's."""

    @functools.wraps(pool)
    def both(*args: Any, **kwargs: Any) -> Any:
        if len(args) > at:
            return pool(*args[:at], True, *args[at + 1:], **kwargs)
        return pool(*args, **{**kwargs, "return_indices": True})

    both.__name__ = both.__qualname__ = pool.__name__ + "_with_indices"
    return both


max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = (_with_indices(pool, 6) for pool in (max_pool1d, max_pool2d, max_pool3d))
adaptive_max_pool1d_with_indices = _with_indices(adaptive_max_pool1d, 2)
adaptive_max_pool2d_with_indices = _with_indices(adaptive_max_pool2d, 2)
adaptive_max_pool3d_with_indices = _with_indices(adaptive_max_pool3d, 2)
fractional_max_pool2d_with_indices = _with_indices(fractional_max_pool2d, 4)
fractional_max_pool3d_with_indices = _with_indices(fractional_max_pool3d, 4)
native_channel_shuffle = _ops.channel_shuffle


def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float = 2.0) -> Tensor:
    """Scales the rows of ``input`` at ``indices`` down, in place, to a norm of at most ``max_norm``."""
    rows = indices.flatten().unique()
    input.detach().index_copy_(0, rows, _ops.renorm(input.detach().index_select(0, rows), norm_type, 0, max_norm))
    return input


def grouped_mm(mat_a: Tensor, mat_b: Tensor, *, offs: Optional[Tensor] = None, bias: Optional[Tensor] = None, out_dtype: Any = None) -> Tensor:
    """Products of groups of matrices. The groups of a matrix end at ``offs``, one behind the other; what is behind the last gives 0.

    - [m, k] and [groups, k, n]: groups of rows, [m, n].
    - [groups, m, k] and [k, n]: groups of columns, [m, n].
    - [m, k] and [k, n]: groups of what is summed over, [groups, m, n].
    - [groups, m, k] and [groups, k, n], without ``offs``: [groups, m, n].

    RuntimeError for shapes that do not fit, and for a ``bias``, which torch's refuses, too."""
    if bias is not None:
        raise RuntimeError("grouped_mm: `bias` is not supported; add it to the result")
    if not (mat_a.ndim in (2, 3) and mat_b.ndim in (2, 3)) or mat_a.shape[-1] != mat_b.shape[-2]:
        raise RuntimeError(f"grouped_mm: {list(mat_a.shape)} and {list(mat_b.shape)} do not fit; expected [(groups,) m, k] and [(groups,) k, n]")
    if (offs is None) != (mat_a.ndim == mat_b.ndim == 3):
        raise RuntimeError("grouped_mm: `offs` goes with at least one matrix, and is needed for it")
    if offs is None:
        y = _ops.matmul(mat_a, mat_b)
    else:
        y = _in_groups(mat_a, mat_b, offs.tolist())
    return y if out_dtype is None else y.to(out_dtype)


def _in_groups(a: Tensor, b: Tensor, ends: list) -> Tensor:
    along, whole = (0, a.shape[0]) if b.ndim == 3 else (1, b.shape[1]) if a.ndim == 3 else (None, a.shape[1])
    groups = len(b) if b.ndim == 3 else len(a) if a.ndim == 3 else len(ends)
    sizes = [end - begin for begin, end in zip([0, *ends], [*ends, whole])]
    if len(ends) != groups or any(n < 0 for n in sizes):
        raise RuntimeError(f"grouped_mm: `offs` must rise to {whole} at most in {groups} steps, got {ends}")
    left = a.unbind(0) if a.ndim == 3 else a.split(sizes, 0 if b.ndim == 3 else 1)
    right = b.unbind(0) if b.ndim == 3 else b.split(sizes, 1 if a.ndim == 3 else 0)
    parts = [x @ y for x, y in zip(left, right)]
    if along is None:
        return _ops.stack(parts[:groups])
    rest = [parts[0].new_zeros((sizes[-1], b.shape[2]) if along == 0 else (a.shape[1], sizes[-1]))] if sizes[-1] else []
    return _ops.cat(parts[:groups] + rest, along)
