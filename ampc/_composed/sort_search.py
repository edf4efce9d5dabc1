"""Histograms, whose bins are a number or edges, and unique values, whose results are as many as are asked for."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Sequence
from typing import Any, Optional

from .. import _ops
from .._C import Tensor
from .._messages import checks as _checks
from .._tensor import creation as make
from .._tensor.out import written

__all__ = ["histogram", "histogramdd", "unique", "unique_consecutive"]
METHODS = ["histogram", "unique", "unique_consecutive"]


Histogram = namedtuple("histogram", ["hist", "bin_edges"])  # type: ignore[name-match]  # torch's word
HistogramDD = namedtuple("histogramdd", ["hist", "bin_edges"])  # type: ignore[name-match]  # torch's word


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


def histogram(input: Tensor, bins: Any, *, range: Optional[Sequence[float]] = None, weight: Optional[Tensor] = None, density: bool = False,
              out: Optional[Sequence[Tensor]] = None) -> Histogram:
    """How many values, or how much of their ``weight``, lie in each bin, and the bins' edges. ``bins`` is their number, or their edges."""
    x = input.detach().reshape(-1)
    edges = _edges(x, bins, range, "histogram")
    return written(Histogram(_ops._histogram(x.reshape(-1, 1), weight, [edges], density), edges), out, "histogram")


def histogramdd(input: Tensor, bins: Any, *, range: Optional[Sequence[float]] = None, weight: Optional[Tensor] = None,
                density: bool = False) -> HistogramDD:
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
    return HistogramDD(_ops._histogram(x, weight, edges, density), edges)


# -- unique values -------------------------------------------------------------------------------------------------------------


def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Optional[int] = None) -> Any:
    """The different values in order (or, with ``dim``, the different slices); with where each element's is, and how often each
    occurs."""
    return _asked(_ops._unique(input, False, return_inverse, return_counts, dim), return_inverse, return_counts)


def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: Optional[int] = None) -> Any:
    """unique of neighbours only, in the order they have."""
    return _asked(_ops._unique(input, True, return_inverse, return_counts, dim), return_inverse, return_counts)


def _asked(found: Any, inverse: bool, counts: bool) -> Any:
    """The values alone, or with what else was asked for."""
    more = [found.indices] * inverse + [found.counts] * counts
    return (found.values, *more) if more else found.values


_checks.install(globals())
