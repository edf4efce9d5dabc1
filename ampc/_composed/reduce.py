"""Norms whose kind is a word, and gradients along several dimensions."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from .. import _checks, _ops
from .._C import Tensor
from .._dims import wrap_dim
from .._events import announce
from .._out import takes_out, written
from ..linalg import matrix_norm

__all__ = ["gradient", "norm", "nuclear_norm"]
METHODS = ["norm"]


@takes_out
def nuclear_norm(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Optional[Tensor] = None) -> Tensor:
    """The sum of singular values. float32 under autocast."""
    return matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim)


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
    for d, h in zip(dims, spacing):
        if isinstance(h, Tensor) and (h.ndim != 1 or h.shape[0] != input.shape[d]):
            raise RuntimeError(f"gradient: the coordinates of dimension {d} must be a vector of {input.shape[d]}, got shape {list(h.shape)}")
    return dims, list(spacing)


def gradient(input: Tensor, *, spacing: Any = 1.0, dim: Any = None, edge_order: int = 1) -> Tuple[Tensor, ...]:
    """Central differences along each dimension, ``edge_order`` 1 or 2 at the ends; ``spacing`` is one number, or for each dimension a
    number or a vector of coordinates."""
    if edge_order not in (1, 2):
        raise RuntimeError(f"gradient: `edge_order` must be 1 or 2, got {edge_order}")
    dims, steps = _steps(input, spacing, dim)
    for d in dims:
        if input.shape[d] < edge_order + 1:
            raise RuntimeError(f"gradient: dimension {d} needs at least {edge_order + 1} values, got {input.shape[d]}")
    return tuple((_by_coordinates if isinstance(h, Tensor) else _by_step)(input, d, h, edge_order) for d, h in zip(dims, steps))


def _by_step(x: Tensor, d: int, h: Any, edge_order: int) -> Tensor:
    """The gradient along d where values lie h apart."""
    n, h = x.shape[d], float(h)
    at = lambda i, k=1: x.narrow(d, i, k)  # noqa: E731
    inner = (at(2, n - 2) - at(0, n - 2)) / (2 * h) if n > 2 else x.narrow(d, 0, 0)
    if edge_order == 1:
        ends = ((at(1) - at(0)) / h, (at(n - 1) - at(n - 2)) / h)
    else:
        ends = ((-1.5 * at(0) + 2 * at(1) - 0.5 * at(2)) / h, (1.5 * at(n - 1) - 2 * at(n - 2) + 0.5 * at(n - 3)) / h)
    return _ops.cat([ends[0], inner, ends[1]], d)


def _by_coordinates(x: Tensor, d: int, where: Tensor, edge_order: int) -> Tensor:
    """The gradient along d where the values lie at these coordinates: the slope of the parabola through three neighbours."""
    n = x.shape[d]
    at = lambda i, k=1: x.narrow(d, i, k)  # noqa: E731
    h = _ops.diff(where).reshape([-1 if k == d else 1 for k in range(x.ndim)])
    p, q = h.narrow(d, 0, n - 2), h.narrow(d, 1, n - 2)
    inner = -q / (p * (p + q)) * at(0, n - 2) + (q - p) / (p * q) * at(1, n - 2) + p / (q * (p + q)) * at(2, n - 2)
    first, last = h.narrow(d, 0, 1), h.narrow(d, n - 2, 1)
    if edge_order == 1:
        return _ops.cat([(at(1) - at(0)) / first, inner, (at(n - 1) - at(n - 2)) / last], d)
    p, q = first, h.narrow(d, 1, 1)
    begin = -(2 * p + q) / (p * (p + q)) * at(0) + (p + q) / (p * q) * at(1) - p / (q * (p + q)) * at(2)
    p, q = h.narrow(d, n - 3, 1), last
    end = q / (p * (p + q)) * at(n - 3) - (p + q) / (p * q) * at(n - 2) + (2 * q + p) / (q * (p + q)) * at(n - 1)
    return _ops.cat([begin, inner, end], d)


_checks.install(globals())
