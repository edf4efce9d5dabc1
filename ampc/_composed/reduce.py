"""Reductions and cumulative functions, written with the table's operators."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from .. import _C, _checks
from .._C import Tensor
from .._events import announce
from .._out import own, takes_out, written
from ..linalg import matrix_norm

_f = _C._functions

__all__ = ["corrcoef", "cov", "cumulative_trapezoid", "diff", "frobenius_norm", "gradient", "nanmean", "nansum", "norm", "nuclear_norm", "std_mean",
           "trace", "trapezoid", "trapz", "var_mean"]
METHODS = ["corrcoef", "cov", "diff", "nanmean", "nansum", "norm", "trace", "cumsum_", "cumprod_"]


def _plain(x: Tensor) -> Tensor:
    return _f["where"](x.isnan(), 0.0, x) if x.is_floating_point() else x


@takes_out
def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Optional[Tensor] = None) -> Tensor:
    """sum with nan counting 0."""
    return _plain(input).sum(dim, keepdim, dtype=dtype)


@takes_out
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Optional[Tensor] = None) -> Tensor:
    """mean of what is not nan."""
    return nansum(input, dim, keepdim, dtype=dtype) / input.isnan().logical_not().sum(dim, keepdim)


def var_mean(input: Tensor, dim: Any = None, *, correction: int = 1, keepdim: bool = False) -> Tuple[Tensor, Tensor]:
    """(var, mean)"""
    return input.var(dim, correction=correction, keepdim=keepdim), input.mean(dim, keepdim)


def std_mean(input: Tensor, dim: Any = None, *, correction: int = 1, keepdim: bool = False) -> Tuple[Tensor, Tensor]:
    """(std, mean)"""
    return input.std(dim, correction=correction, keepdim=keepdim), input.mean(dim, keepdim)


def trace(input: Tensor) -> Tensor:
    """The sum of a matrix' diagonal."""
    if input.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, got {input.ndim} dimensions")
    return input.diagonal().sum()


@takes_out
def frobenius_norm(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Optional[Tensor] = None) -> Tensor:
    """The square root of the sum of squares. float32 under autocast."""
    return _f["_norm"](input, 2, dim, keepdim)


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
        y = _f["_norm"](input, 2 if p in ("fro", None) else p, dim, keepdim, dtype=dtype)
    return written(y, out, "norm")


@takes_out
def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Optional[Tensor] = None, append: Optional[Tensor] = None,
         *, out: Optional[Tensor] = None) -> Tensor:
    """Differences of neighbours along ``dim``, ``n`` times."""
    if input.ndim == 0:
        raise RuntimeError("diff: a 0-d tensor has no neighbours")
    if n < 0:
        raise RuntimeError(f"diff: `n` must be 0 or more, got {n}")
    parts = [p for p in (prepend, input, append) if p is not None]
    x = _f["cat"](parts, dim) if len(parts) > 1 else input
    for _ in range(n):
        size = x.shape[dim]
        if not size:
            break
        later, earlier = (x.narrow(dim, min(k, size), max(size - 1, 0)) for k in (1, 0))
        x = later.logical_xor(earlier) if x.dtype == _C.bool else later - earlier
    return own(x, input)


def trapezoid(y: Tensor, x: Optional[Tensor] = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """The integral of y along ``dim`` by trapezoids, over positions x or steps dx."""
    return _trapezoids(y, x, dx, dim).sum(dim)


trapz = trapezoid


def cumulative_trapezoid(y: Tensor, x: Optional[Tensor] = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """trapezoid up to each position but the first."""
    return _trapezoids(y, x, dx, dim).cumsum(dim)


def _trapezoids(y: Tensor, x: Optional[Tensor], dx: float, dim: int) -> Tensor:
    n = y.shape[dim]
    both = y.narrow(dim, min(n, 1), max(n - 1, 0)) + y.narrow(dim, 0, max(n - 1, 0))
    if x is None:
        return both * (dx / 2)
    steps = diff(x) if x.ndim == 1 else diff(x, 1, dim)
    if x.ndim == 1:
        steps = steps.reshape([-1 if d == dim % y.ndim else 1 for d in range(y.ndim)])
    return both * steps / 2


def cov(input: Tensor, *, correction: int = 1, fweights: Optional[Tensor] = None, aweights: Optional[Tensor] = None) -> Tensor:
    """The covariance of the rows of a matrix, a column each observation."""
    if input.ndim > 2:
        raise RuntimeError(f"cov: expected at most 2 dimensions, got {input.ndim}")
    x = input.reshape(1, -1) if input.ndim < 2 else input
    weights = None
    for w in (fweights, aweights):
        if w is not None:
            weights = w.to(x.dtype) if weights is None else weights * w.to(x.dtype)
    if weights is None:
        total: Any = float(x.shape[1])
        centred = x - x.mean(1, True)
        product, room = centred @ centred.t(), total - correction
    else:
        total = weights.sum()
        centred = x - (x * weights).sum(1, True) / total
        square = total if aweights is None else (weights * aweights.to(x.dtype)).sum() / total
        product, room = (centred * weights) @ centred.t(), total - correction * (square if aweights is not None else 1)
    out = product / (room.clamp(min=0) if isinstance(room, Tensor) else max(room, 0.0))
    return out.reshape(()) if input.ndim < 2 else out


def corrcoef(input: Tensor) -> Tensor:
    """The correlation of the rows of a matrix."""
    c = cov(input)
    if c.ndim == 0:
        return c / c
    root = c.diagonal().sqrt()
    return (c / root.unsqueeze(1) / root).clamp(-1, 1)


def cumsum_(self: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """cumsum, in place."""
    return self.copy_(self.cumsum(dim, dtype=dtype))


def cumprod_(self: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """cumprod, in place."""
    return self.copy_(self.cumprod(dim, dtype=dtype))


def gradient(input: Tensor, *, spacing: Any = 1.0, dim: Any = None, edge_order: int = 1) -> Tuple[Tensor, ...]:
    """Central differences along each dimension, ``edge_order`` 1 or 2 at the ends; spacing one number or one a dimension."""
    dims = list(range(input.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    steps = [float(spacing)] * len(dims) if isinstance(spacing, (int, float)) else [float(s) for s in spacing]
    out = []
    for d, h in zip(dims, steps):
        n = input.shape[d]
        if n < edge_order + 1:
            raise RuntimeError(f"gradient: dimension {d} needs at least {edge_order + 1} values, got {n}")
        at = lambda i, k=1, d=d: input.narrow(d, i, k)  # noqa: E731
        inner = (at(2, n - 2) - at(0, n - 2)) / (2 * h) if n > 2 else input.narrow(d, 0, 0)
        if edge_order == 1:
            ends = ((at(1) - at(0)) / h, (at(n - 1) - at(n - 2)) / h)
        else:
            ends = ((-1.5 * at(0) + 2 * at(1) - 0.5 * at(2)) / h, (1.5 * at(n - 1) - 2 * at(n - 2) + 0.5 * at(n - 3)) / h)
        out.append(_f["cat"]([ends[0], inner, ends[1]], d))
    return tuple(out)


_checks.install(globals())
