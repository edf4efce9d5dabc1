"""Functions based on the order of values whose arguments come in several forms: quantiles, histograms, unique values, search in sorted values."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Sequence
from typing import Any, Optional

from .. import _C, _checks, _ops
from .. import _creation as make
from .._C import Tensor
from .._dims import wrap_dim
from .._out import takes_out

__all__ = ["bucketize", "histc", "histogram", "histogramdd", "nanquantile", "quantile", "searchsorted", "unique", "unique_consecutive"]
METHODS = ["histc", "histogram", "nanquantile", "quantile", "unique", "unique_consecutive"]


_BETWEEN = ("linear", "lower", "higher", "nearest", "midpoint")


def _quantile(what: str, x: Tensor, q: Any, dim: Optional[int], keepdim: bool, interpolation: str, ignore_nan: bool) -> Tensor:
    if not x.is_floating_point() or x.dtype not in (_C.float32, _C.float64):
        raise RuntimeError(f"{what}: expected float32 or float64, got {x.dtype}")
    if interpolation not in _BETWEEN:
        raise RuntimeError(f"{what}: `interpolation` must be one of {', '.join(_BETWEEN)}, got {interpolation!r}")
    if dim is not None and not -max(x.ndim, 1) <= dim < max(x.ndim, 1):
        raise IndexError(f"{what}: dimension {dim} is out of range for a tensor of {x.ndim} dimensions")
    if isinstance(q, (list, tuple, str)):
        raise TypeError(f"{what}: `q` must be a number or a Tensor, got {type(q).__name__}")
    part = q if isinstance(q, Tensor) else make.tensor(q, dtype=x.dtype, device=x.device)
    if part.ndim > 1 or part.dtype != x.dtype:
        raise RuntimeError(f"{what}: `q` must be a number or a vector of {x.dtype}, got {part.ndim} dimensions of {part.dtype}")
    if not bool(((part >= 0) & (part <= 1)).all()):
        raise RuntimeError(f"{what}: `q` must lie in [0, 1]")
    along = None if dim is None else wrap_dim(dim, x.ndim, what)
    shape = [1] * x.ndim if dim is None else [1 if d == along else s for d, s in enumerate(x.shape)]
    rows = x.reshape(1, -1) if dim is None or x.ndim == 0 else x.movedim(dim, -1)
    if rows.shape[-1] == 0:
        raise RuntimeError(f"{what}: needs at least one element")
    values = rows.sort(-1)[0]
    nans = rows.isnan().sum(-1, True)
    count = rows.shape[-1] - nans if ignore_nan else nans * 0 + rows.shape[-1]
    at = part.reshape(-1) * (count - 1).clamp(min=0).to(x.dtype)
    low = at.floor()
    if interpolation == "lower":
        at = low
    elif interpolation == "higher":
        at = low = at.ceil()
    elif interpolation == "nearest":
        at = low = at.round()
    below = values.gather(-1, low.long())
    if interpolation in ("linear", "midpoint"):
        above = values.gather(-1, at.ceil().long())
        weight = at - low if interpolation == "linear" else (at != low).to(x.dtype) * 0.5
        below = below.lerp(above, weight)
    empty = count == 0 if ignore_nan else nans > 0
    out = _ops.where(empty, math.nan, below)  # [..., q]
    lead = [out.shape[-1]] if part.ndim else []
    if not keepdim:
        shape = [] if dim is None or x.ndim == 0 else list(rows.shape[:-1])
    return out.movedim(-1, 0).reshape([*lead, *shape]).clone()  # no view, which no_grad would close to writing


@takes_out
def quantile(input: Tensor, q: Any, dim: Optional[int] = None, keepdim: bool = False, *, interpolation: str = "linear",
             out: Optional[Tensor] = None) -> Tensor:
    """The value below which the part ``q`` in [0, 1] lies, of all or along ``dim``; several q make a dimension in front."""
    return _quantile("quantile", input, q, dim, keepdim, interpolation, False)


@takes_out
def nanquantile(input: Tensor, q: Any, dim: Optional[int] = None, keepdim: bool = False, *, interpolation: str = "linear",
                out: Optional[Tensor] = None) -> Tensor:
    """quantile of what is not nan."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)


# -- indices in a sorted list -----------------------------------------------------------------------------------------------


@takes_out
def searchsorted(sorted_sequence: Tensor, input: Any, *, out_int32: bool = False, right: bool = False, side: Optional[str] = None,
                 sorter: Optional[Tensor] = None, out: Optional[Tensor] = None) -> Tensor:
    """Where values would go into rows in order along the last dimension: before equal ones, behind them with right=True
    (side='right')."""
    if side not in (None, "left", "right"):
        raise RuntimeError(f"searchsorted: `side` must be 'left' or 'right', got {side!r}")
    if side == "left" and right:
        raise RuntimeError("searchsorted: side='left' and right=True contradict each other")
    if sorted_sequence.ndim == 0:
        raise RuntimeError("searchsorted: a 0-d tensor has no order to search")
    if sorter is not None and sorter.shape != sorted_sequence.shape:
        raise RuntimeError(f"searchsorted: `sorter` has shape {list(sorter.shape)}, the values {list(sorted_sequence.shape)}")
    rows = sorted_sequence if sorter is None else sorted_sequence.gather(-1, sorter)
    values = input if isinstance(input, Tensor) else make.tensor(input, dtype=rows.dtype, device=rows.device)
    if rows.ndim != 1 and list(rows.shape[:-1]) != list(values.shape[:-1]):
        raise RuntimeError(f"searchsorted: rows {list(rows.shape)} and values {list(values.shape)} must agree in all but the last dimension")
    n, behind = rows.shape[-1], right or side == "right"
    low = make.zeros(values.shape, dtype=_C.int64, device=rows.device)
    high = low + n
    for _ in range(max(n, 1).bit_length()):  # bisection, all at once
        mid = (low + high) // 2
        safe = mid.clamp(max=max(n - 1, 0))
        if n == 0:
            break
        there = rows[safe] if rows.ndim == 1 else rows.gather(-1, safe)
        on = ~(there > values if behind else there >= values) & (low < high)  # so nan goes behind all
        low, high = _ops.where(on, mid + 1, low), _ops.where(on | (low >= high), high, mid)
    return low.int() if out_int32 else low


@takes_out
def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Optional[Tensor] = None) -> Tensor:
    """Between which boundaries values lie: searchsorted(boundaries, input)."""
    if boundaries.ndim != 1:
        raise RuntimeError(f"bucketize: `boundaries` must be a vector, got {boundaries.ndim} dimensions")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


@takes_out
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Optional[Tensor] = None) -> Tensor:
    """How many values lie in each of ``bins`` equal parts of [min, max], the last one closed; of the values' own range when both
    are 0."""
    if bins < 1:
        raise RuntimeError(f"histc: `bins` must be above 0, got {bins}")
    x = input.detach().reshape(-1)
    low, high = float(min), float(max)
    if low == high == 0 and x.numel():
        low, high = (float(v.item()) for v in _ops.aminmax(x))
    if low == high:
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"histc: the range from {low} to {high} is not finite")
    if low > high:
        raise RuntimeError(f"histc: `max` {high} must be above `min` {low}")
    inside = (x >= low) & (x <= high)
    at = ((x.double() - low) * (bins / (high - low))).nan_to_num(0.0).clamp(0, bins - 1).long()
    return make.zeros(bins, dtype=x.dtype, device=x.device).scatter_add(0, at, inside.to(x.dtype))


Histogram = namedtuple("Histogram", ["hist", "bin_edges"])


def _edges(x: Tensor, bins: Any, span: Optional[Sequence[float]], what: str) -> Tensor:
    """The edges of one dimension's bins: those given, or of so many equal ones over ``span`` (that of the values where None)."""
    if isinstance(bins, Tensor):
        if span is not None:
            raise TypeError(f"{what}: give edges as `bins`, or a number of bins and a `range`, not both")
        if bins.ndim != 1 or bins.dtype != x.dtype or not bins.shape[0]:
            raise RuntimeError(f"{what}: edges must be a vector of {x.dtype}, got {bins.ndim} dimensions of {bins.dtype}")
        return bins
    if bins < 1:
        raise RuntimeError(f"{what}: `bins` must be above 0, got {bins}")
    low, high = (float(v) for v in span) if span is not None else (v.item() for v in _ops.aminmax(x)) if x.numel() else (0.0, 1.0)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"{what}: the range from {low} to {high} is not finite")
    if low > high:
        raise RuntimeError(f"{what}: the range's end {high} must not be below its begin {low}")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return make.linspace(low, high, bins + 1, dtype=x.dtype, device=x.device)


def _counted(points: Tensor, edges: Sequence[Tensor], weight: Optional[Tensor], density: bool, what: str) -> Tensor:
    """How many rows of ``points`` lie in each cell between the edges; the last cell of a dimension is closed."""
    if not points.is_floating_point():
        raise NotImplementedError(f"{what}: expected floating point, got {points.dtype}")
    if weight is not None and (weight.numel() != points.shape[0] or weight.dtype != points.dtype):
        raise RuntimeError(f"{what}: `weight` must hold {points.shape[0]} values of {points.dtype}, got {weight.numel()} of {weight.dtype}")
    sizes = [e.shape[0] - 1 for e in edges]
    cell, inside = make.zeros(points.shape[0], dtype=_C.int64, device=points.device), make.ones(points.shape[0], dtype=_C.bool, device=points.device)
    for d, (e, n) in enumerate(zip(edges, sizes)):
        x = points[:, d].contiguous()
        at = searchsorted(e, x, right=True) - 1
        inside = inside & (x >= e[0]) & (x <= e[-1])
        cell = cell * n + at.clamp(0, max(n - 1, 0))
    each = (make.ones(points.shape[0], dtype=points.dtype, device=points.device) if weight is None else weight.reshape(-1)) * inside.to(points.dtype)
    hist = make.zeros(math.prod(sizes), dtype=points.dtype, device=points.device)
    if math.prod(sizes):
        hist = hist.scatter_add(0, cell, each)
    hist = hist.reshape(sizes)
    if density:
        hist = hist / hist.sum()
        for d, e in enumerate(edges):
            hist = hist / (e[1:] - e[:-1]).reshape([-1 if k == d else 1 for k in range(len(edges))])
    return hist


@takes_out
def histogram(input: Tensor, bins: Any, *, range: Optional[Sequence[float]] = None, weight: Optional[Tensor] = None, density: bool = False,
              out: Optional[Sequence[Tensor]] = None) -> Histogram:
    """How many values, or how much of their ``weight``, lie in each bin, and the bins' edges. ``bins`` is their number, or their edges."""
    x = input.detach().reshape(-1)
    edges = _edges(x, bins, range, "histogram")
    return Histogram(_counted(x.reshape(-1, 1), [edges], weight, density, "histogram"), edges)


def histogramdd(input: Tensor, bins: Any, *, range: Optional[Sequence[float]] = None, weight: Optional[Tensor] = None,
                density: bool = False) -> Histogram:
    """histogram of points [..., N]: ``bins`` for each of N dimensions, ``range`` 2 N numbers; a tuple of edges."""
    if input.ndim < 2:
        raise RuntimeError(f"histogramdd: expected points [..., N], got shape {list(input.shape)}")
    n = input.shape[-1]
    x = input.detach().reshape(-1, n) if n else input.detach().reshape(input.numel(), 0)
    each = [bins] * n if isinstance(bins, int) else list(bins)
    if len(each) != n or (range is not None and len(range) != 2 * n):
        raise RuntimeError(f"histogramdd: `bins` needs {n} entries and `range` {2 * n}, for points of {n} dimensions")
    spans = [None if range is None else range[2 * d:2 * d + 2] for d, _ in enumerate(each)]
    edges = tuple(_edges(x[:, d], b, s, "histogramdd") for d, (b, s) in enumerate(zip(each, spans)))
    return Histogram(_counted(x, edges, weight, density, "histogramdd"), edges)


# -- unique values -------------------------------------------------------------------------------------------------------------


def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Optional[int] = None) -> Any:
    """The different values in order (or, with ``dim``, the different slices); with where each element's is, and how often each
    occurs."""
    if dim is None:
        flat = input.reshape(-1)
        values, order = flat.sort(0)
        rows = values.unsqueeze(1)
    else:
        rows = _slices(input, dim)
        order = make.arange(rows.shape[0], device=input.device)
        for column in range(rows.shape[1] - 1, -1, -1):  # the last column decides least
            order = order[rows[:, column][order].sort(0)[1]]
        rows = rows[order]
    fresh = _starts(rows)
    return _unique_result(input, dim, rows, order, fresh, return_inverse, return_counts, input.shape if dim is None else None)


def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: Optional[int] = None) -> Any:
    """unique of neighbours only, in the order they have."""
    rows = input.reshape(-1, 1) if dim is None else _slices(input, dim)
    order = make.arange(rows.shape[0], device=input.device)
    return _unique_result(input, dim, rows, order, _starts(rows), return_inverse, return_counts, input.shape if dim is None else None)


def _slices(x: Tensor, dim: int) -> Tensor:
    """The slices along ``dim``, a row each."""
    dim = wrap_dim(dim, x.ndim, "unique")
    if x.numel() == 0 and x.shape[dim]:
        raise RuntimeError(f"unique: the slices along dimension {dim} of shape {list(x.shape)} are empty")
    return x.movedim(dim, 0).reshape(x.shape[dim], x.numel() // max(x.shape[dim], 1))


def _starts(rows: Tensor) -> Tensor:
    """True where a row differs from the one before."""
    n = rows.shape[0]
    first = make.ones(min(n, 1), dtype=_C.bool, device=rows.device)
    return first if n < 2 else _ops.cat([first, (rows[1:] != rows[:-1]).any(1)])


def _unique_result(x: Tensor, dim: Optional[int], rows: Tensor, order: Tensor, fresh: Tensor, inverse: bool, counts: bool, shape: Any) -> Any:
    starts = fresh.nonzero().reshape(-1)
    kept = rows[starts]
    if dim is None:
        values = kept.reshape(-1)
    else:
        moved = x.movedim(dim, 0)
        values = kept.reshape(starts.shape[0], *moved.shape[1:]).movedim(0, dim)
    results = [values]
    if inverse:
        group = fresh.long().cumsum(0) - 1
        back = make.zeros(order.shape, dtype=_C.int64, device=x.device).scatter(0, order, group)
        results.append(back if shape is None else back.reshape(shape))
    if counts:
        ends = _ops.cat([starts[1:], make.full((min(1, starts.shape[0]),), rows.shape[0], dtype=_C.int64, device=x.device)])
        results.append(ends - starts)
    return results[0] if len(results) == 1 else tuple(results)


_checks.install(globals())
