"""Norms whose kind is a word, and gradients along several dimensions."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from .. import _ops
from .._C import Tensor
from .._events import announce
from .._messages import checks as _checks
from .._tensor.dims import wrap_dim
from .._tensor.out import written
from ..linalg import matrix_norm

__all__ = ["gradient", "norm", "nuclear_norm"]
METHODS = ["norm"]


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


_checks.install(globals())
