"""Reductions and cumulative functions, written with the table's operators."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from .. import _C, _checks
from .._C import Tensor
from .._dims import wrap_dim
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


def _dim_and_correction(what: str, dim: Any, unbiased: Any, correction: Any) -> Tuple[Any, Any]:
    """A bool in the place of ``dim`` is ``unbiased``, which is another word for a correction of 1 or 0."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise TypeError(f"{what}: give `unbiased` or `correction`, not both")
    return dim, correction if unbiased is None else int(unbiased)


def var_mean(input: Tensor, dim: Any = None, unbiased: Optional[bool] = None, keepdim: bool = False, *,
             correction: Any = None) -> Tuple[Tensor, Tensor]:
    """(var, mean)"""
    dim, correction = _dim_and_correction("var_mean", dim, unbiased, correction)
    return input.var(dim, correction=correction, keepdim=keepdim), input.mean(dim, keepdim)


def std_mean(input: Tensor, dim: Any = None, unbiased: Optional[bool] = None, keepdim: bool = False, *,
             correction: Any = None) -> Tuple[Tensor, Tensor]:
    """(std, mean)"""
    dim, correction = _dim_and_correction("std_mean", dim, unbiased, correction)
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
    dim = wrap_dim(dim, input.ndim, "diff")
    if n < 0:
        raise RuntimeError(f"diff: `n` must be 0 or more, got {n}")
    if n == 0:  # not even joined
        return input.clone()
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


def _wide(x: Tensor) -> Tensor:
    """Integers as int64, in which neighbours add up without wrapping."""
    return x if x.is_floating_point() else x.long()


def _trapezoids(y: Tensor, x: Optional[Tensor], dx: float, dim: int) -> Tensor:
    if y.ndim == 0:
        raise IndexError("trapezoid: a 0-d tensor has no dimension to integrate along")
    n = y.shape[wrap_dim(dim, y.ndim, "trapezoid")]
    if x is not None and x.ndim == 1 and x.shape[0] != n:
        raise RuntimeError(f"trapezoid: {x.shape[0]} positions `x` for {n} values")
    y = _wide(y)
    both = y.narrow(dim, min(n, 1), max(n - 1, 0)) + y.narrow(dim, 0, max(n - 1, 0))
    if x is None:
        return both * (dx / 2)
    steps = diff(_wide(x)) if x.ndim == 1 else diff(_wide(x), 1, dim)
    if x.ndim == 1:
        steps = steps.reshape([-1 if d == dim % y.ndim else 1 for d in range(y.ndim)])
    return both * steps / 2


def _weights(w: Optional[Tensor], n: int, whole: bool, name: str) -> Optional[Tensor]:
    """Weights of n observations: whole numbers, or floating point ones."""
    if w is None:
        return None
    if w.ndim > 1 or w.numel() != n:
        raise RuntimeError(f"cov: `{name}` must be a vector of {n}, one for each observation, got shape {list(w.shape)}")
    if w.dtype == _C.bool or w.is_floating_point() == whole:
        raise RuntimeError(f"cov: `{name}` must be {'integers' if whole else 'floating point'}, got {w.dtype}")
    if bool((w < 0).any()):
        raise RuntimeError(f"cov: `{name}` must not be negative")
    return w


def cov(input: Tensor, *, correction: int = 1, fweights: Optional[Tensor] = None, aweights: Optional[Tensor] = None) -> Tensor:
    """The covariance of the rows of a matrix, a column each observation; ``fweights`` says how often each was made, ``aweights`` how
    much each counts."""
    if input.ndim > 2:
        raise RuntimeError(f"cov: expected at most 2 dimensions, got {input.ndim}")
    if input.dtype == _C.bool:
        raise RuntimeError("cov: bool has no covariance; convert with .long()")
    x = input.reshape(1, -1) if input.ndim < 2 else input
    n = x.shape[1]
    often, much = _weights(fweights, n, True, "fweights"), _weights(aweights, n, False, "aweights")
    w = much if often is None else often if much is None else often * much
    total: Any = n if w is None else w.sum()
    if isinstance(total, Tensor) and not bool(total):
        raise RuntimeError("cov: the weights sum to zero")
    x = x - ((x if w is None else x * w).sum(1, True) / total)
    room = total - correction
    if w is not None and much is not None and correction != 0:
        room = total - correction * (w * much).sum() / total
    product = x @ (x if w is None else x * w).t()
    return (product / (room.clamp(min=0) if isinstance(room, Tensor) else max(room, 0))).squeeze()


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
    return _f["cat"]([ends[0], inner, ends[1]], d)


def _by_coordinates(x: Tensor, d: int, where: Tensor, edge_order: int) -> Tensor:
    """The gradient along d where the values lie at these coordinates: the slope of the parabola through three neighbours."""
    n = x.shape[d]
    at = lambda i, k=1: x.narrow(d, i, k)  # noqa: E731
    h = diff(where).reshape([-1 if k == d else 1 for k in range(x.ndim)])
    p, q = h.narrow(d, 0, n - 2), h.narrow(d, 1, n - 2)
    inner = -q / (p * (p + q)) * at(0, n - 2) + (q - p) / (p * q) * at(1, n - 2) + p / (q * (p + q)) * at(2, n - 2)
    first, last = h.narrow(d, 0, 1), h.narrow(d, n - 2, 1)
    if edge_order == 1:
        return _f["cat"]([(at(1) - at(0)) / first, inner, (at(n - 1) - at(n - 2)) / last], d)
    p, q = first, h.narrow(d, 1, 1)
    begin = -(2 * p + q) / (p * (p + q)) * at(0) + (p + q) / (p * q) * at(1) - p / (q * (p + q)) * at(2)
    p, q = h.narrow(d, n - 3, 1), last
    end = q / (p * (p + q)) * at(n - 3) - (p + q) / (p * q) * at(n - 2) + (2 * q + p) / (q * (p + q)) * at(n - 1)
    return _f["cat"]([begin, inner, end], d)


_checks.install(globals())
