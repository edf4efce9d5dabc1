"""Functions that write at indices of a tensor."""

from __future__ import annotations

import math
from typing import Any, List, Optional, Tuple

from .. import _C, _checks, _ops
from .. import _creation as make
from .._C import Tensor
from .._dims import wrap_dim
from .._finfo import iinfo
from .._out import in_place, takes_out
from ..autograd import Function

__all__ = ["index_reduce", "scatter", "scatter_reduce"]
METHODS = [*__all__, "scatter_", "scatter_reduce_", "index_reduce_"]


def _indices(index: Tensor, dim: int) -> List[Tensor]:
    """Where each element of ``index`` points, one index a dimension."""
    axes = [make.arange(n, device=index.device).reshape([n if d == e else 1 for e in range(index.ndim)]) for d, n in enumerate(index.shape)]
    axes[dim] = index
    return axes


def _widest(x: Tensor, src: Any) -> Any:
    """Under autocast a mix of dtypes runs in the widest."""
    if not isinstance(src, Tensor) or src.dtype == x.dtype or not _C._autocast_active():
        return x, src
    wide = _C.promote_types(x.dtype, src.dtype)
    return x.to(wide), src.to(wide)


def _check(what: str, x: Tensor, dim: int, index: Tensor) -> int:
    if index.dtype not in (_C.int64, _C.int32):
        raise RuntimeError(f"{what}: `index` must be int64, got {index.dtype}")
    if max(x.ndim, 1) != max(index.ndim, 1):
        raise RuntimeError(f"{what}: `index` has {index.ndim} dimensions, the tensor {x.ndim}")
    d = wrap_dim(dim, x.ndim, what)
    if any(n > m for k, (n, m) in enumerate(zip(index.shape, x.shape)) if k != d):
        raise RuntimeError(f"{what}: `index` {list(index.shape)} is larger than the tensor {list(x.shape)}, apart from dimension {dim}")
    return d


def _cut(src: Tensor, index: Tensor, what: str) -> Tensor:
    """src may be larger than index: what is beyond is not used."""
    if src.ndim != index.ndim:
        raise RuntimeError(f"{what}: `src` must have the dimensions of `index`, {index.ndim}, got {src.ndim}")
    for d, n in enumerate(index.shape):
        if src.shape[d] < n:
            raise RuntimeError(f"{what}: `index` {list(index.shape)} is larger than `src` {list(src.shape)}")
        if src.shape[d] > n:
            src = src.narrow(d, 0, n)
    return src


@takes_out
def scatter(input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: Optional[str] = None,
            out: Optional[Tensor] = None) -> Tensor:
    """x with src (a tensor or a number) written at ``index`` along ``dim``; of several writes to one index, one stands.
    ``reduce`` 'add' or 'multiply' joins them with what is there."""
    if reduce is not None:
        if reduce not in ("add", "multiply"):
            raise RuntimeError(f"scatter: `reduce` must be 'add' or 'multiply', got {reduce!r}")
        given = src if src is not None else value
        full = given if isinstance(given, Tensor) else input.new_full(index.shape, given)
        return scatter_reduce(input, dim, index, full, "sum" if reduce == "add" else "prod")
    d = _check("scatter", input, dim, index)
    input, given = _widest(input, src if src is not None else value)
    if given is None:
        raise TypeError("scatter: give `src` or `value`")
    if index.numel() == 0:
        return input.clone()
    if input.ndim == 0:
        return scatter(input.reshape(1), 0, index.reshape(-1), given.reshape(-1) if isinstance(given, Tensor) else given).reshape(())
    values = _cut(given, index, "scatter") if isinstance(given, Tensor) and given.ndim else given
    if isinstance(values, Tensor):
        if values.dtype != input.dtype:
            raise RuntimeError(f"scatter: `src` must be {input.dtype}, got {values.dtype}")
    else:
        values = input.new_full((), values)
    return input.index_put(_indices(index, d), values)


def _extreme_of(dtype: Any, largest: bool) -> Any:
    if dtype.is_floating_point:
        return math.inf if largest else -math.inf
    limits = iinfo(dtype)
    return limits.max if largest else limits.min


@takes_out
def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True,
                   out: Optional[Tensor] = None) -> Tensor:
    """x with src joined to it at ``index`` along ``dim`` by 'sum', 'prod', 'mean', 'amax' or 'amin'; without ``include_self`` what
    was there counts only where nothing comes."""
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"scatter_reduce: `reduce` must be sum, prod, mean, amax or amin, got {reduce!r}")
    d = _check("scatter_reduce", input, dim, index)
    input, src = _widest(input, src)
    if src.dtype != input.dtype:
        raise RuntimeError(f"scatter_reduce: `src` must be {input.dtype}, got {src.dtype}")
    if input.dtype == _C.bool:  # sums are "or", products "and"
        return scatter_reduce(input.long(), dim, index, src.long(), reduce, include_self=include_self).to(_C.bool)
    if input.ndim == 0:
        return scatter_reduce(input.reshape(1), 0, index.reshape(-1), src.reshape(-1), reduce, include_self=include_self).reshape(())
    src = _cut(src, index, "scatter_reduce")
    if index.numel() == 0:
        return input.clone()
    if reduce in ("sum", "mean"):
        return _add_up(input, d, index, src, reduce, include_self)
    low, high = _ops.aminmax(index)
    if int(low.item()) < 0 or int(high.item()) >= input.shape[d]:
        raise IndexError(f"scatter_reduce: `index` must be from 0 to {input.shape[d] - 1}, got {int(low.item())} to {int(high.item())}")
    at, own, given = _flat_indices(input, _indices(index, d), src.shape), input.reshape(-1), src.reshape(-1)
    joined = _product(own, at, given, include_self) if reduce == "prod" else _extreme(own, at, given, include_self, reduce)
    return joined.reshape(input.shape)


def _add_up(x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool) -> Tensor:
    ones = make.ones(index.shape, dtype=x.dtype, device=x.device)
    count = make.zeros(x.shape, dtype=x.dtype, device=x.device).scatter_add(dim, index, ones)
    start = x if include_self else _ops.where(count > 0, x * 0, x)
    total = start.scatter_add(dim, index, src)
    if reduce == "sum":
        return total
    n = count + 1 if include_self else count.clamp(min=1)
    return total / n if x.is_floating_point() else total // n


def _flat_indices(x: Tensor, indices: List[Tensor], shape: Any) -> Tensor:
    """Indices into the flattened x."""
    flat = make.zeros((), dtype=_C.int64, device=x.device)
    for at, size in zip(indices, x.shape):
        flat = flat * size + at
    return flat.expand(shape).reshape(-1)


def _runs(values: Tensor, at: Tensor, size: int, join: Any, neutral: Any) -> Tuple[Tensor, Tensor, Tensor]:
    """Values that meet in one of ``size`` elements, joined: (elements that any came to, what they make, how many came to each
    element). In order of index, each value takes in the one 1, 2, 4, ... behind it (Hillis and Steele 1986)."""
    key, order = at.sort(0)
    count = make.zeros(size, dtype=_C.int64, device=at.device).scatter_add(0, key, make.ones_like(key))
    begin = count.cumsum(0) - count
    here = make.arange(key.shape[0], device=at.device)
    left, y, step, most = (begin + count)[key] - here, values[order], 1, int(count.max().item())
    while step < most:
        behind = y[(here + step).clamp(max=key.shape[0] - 1)]
        y = join(y, _ops.where(left > step, behind, neutral))
        step *= 2
    met = (count > 0).nonzero().reshape(-1)
    return met, y[begin[met]], count


def _product(own: Tensor, at: Tensor, values: Tensor, include_self: bool) -> Tensor:
    met, products, _ = _runs(values, at, own.shape[0], _ops.mul, values.new_ones(()))
    return own.index_put([met], own[met] * products if include_self else products)


def _extreme(own: Tensor, at: Tensor, values: Tensor, include_self: bool, reduce: str) -> Tensor:
    join, worst = _ops.maximum if reduce == "amax" else _ops.minimum, _extreme_of(own.dtype, reduce == "amin")
    start, given = own.detach(), values.detach()
    met, best, count = _runs(given, at, own.shape[0], join, given.new_full((), worst))
    joined = start.index_put([met], join(start[met], best) if include_self else best)
    if not (own.requires_grad or values.requires_grad):
        return joined
    return _Extreme.apply(own, values, joined, at, (start == joined) if include_self else count == 0)


class _Extreme(Function):
    """``joined``, whose gradient those that are equal to it share."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, values: Tensor, joined: Tensor, at: Tensor, stays: Tensor) -> Tensor:
        ties = values == joined[at]
        sharers = stays.to(joined.dtype).scatter_add(0, at, ties.to(joined.dtype))
        ctx.save_for_backward(at, stays, ties, sharers)
        return joined.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tuple[Optional[Tensor], ...]:
        at, stays, ties, sharers = ctx.saved_tensors
        share = g / sharers
        return _ops.where(stays, share, 0.0), _ops.where(ties, share[at], 0.0), None, None, None


@takes_out
def index_reduce(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True,
                 out: Optional[Tensor] = None) -> Tensor:
    """scatter_reduce of whole slices: 'prod', 'mean', 'amax' or 'amin'."""
    d = wrap_dim(dim, input.ndim, "index_reduce")
    if source.dtype is not input.dtype:
        raise RuntimeError(f"index_reduce: x and source must have the same dtype, got {input.dtype} and {source.dtype}")
    if source.ndim != input.ndim or any(n != m for k, (n, m) in enumerate(zip(source.shape, input.shape)) if k != d):
        raise RuntimeError(f"index_reduce: source must have x's shape but in dimension {dim}, got {list(source.shape)} and {list(input.shape)}")
    at = index.reshape([-1 if k == d else 1 for k in range(source.ndim)]).expand(source.shape)
    return scatter_reduce(input, d, at, source, reduce, include_self=include_self)


def _written(write: Any) -> Any:
    def f(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return in_place(self, write, *args, **kwargs)
    f.__name__, f.__doc__ = write.__name__ + "_", f"{write.__name__}, in place."
    return f


scatter_, scatter_reduce_, index_reduce_ = map(_written, (scatter, scatter_reduce, index_reduce))


_checks.install(globals())
