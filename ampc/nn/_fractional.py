"""Fractional max pooling (Graham 2014): windows whose distances are drawn, so that any size can be pooled to any smaller one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, List, Optional, Union

from .. import _C, _checks, _ops
from .. import _creation as make
from .._C import Tensor

__all__ = ["fractional_max_pool2d", "fractional_max_pool3d"]



def _sizes(nd: int, what: str, input: Tensor, kernel: List[int], output_size: Any, output_ratio: Any) -> List[int]:
    """The result's, which are given or are a part of the input's."""
    if (output_size is None) == (output_ratio is None):
        raise ValueError(f"{what}: give either `output_size` or `output_ratio`")
    if output_ratio is not None:
        ratios = list(output_ratio) if isinstance(output_ratio, (list, tuple)) else [output_ratio] * nd
        if len(ratios) != nd or not all(0 < r < 1 for r in ratios):
            raise ValueError(f"{what}: `output_ratio` must be numbers between 0 and 1, got {output_ratio}")
        sizes = [int(n * r) for n, r in zip(input.shape[-nd:], ratios)]
    else:
        sizes = _checks.integers(output_size, what)
        sizes = sizes * nd if len(sizes) == 1 else sizes
    for n, k, size in zip(input.shape[-nd:], kernel, sizes):
        if k < 1 or size < 1 or size + k - 1 > n:
            raise RuntimeError(f"{what}: windows of {kernel} at {sizes} positions do not fit shape {list(input.shape)}")
    return sizes


def _starts(draws: Tensor, size: int, window: int, out: int) -> Tensor:
    """Where windows begin, for each of ``draws`` [...] from 0 to 1: [..., out]. The last one ends with the values."""
    if out == 1:
        return (draws * 0).long().unsqueeze(-1) + (size - window)
    alpha = make.full((), size - window, dtype=draws.dtype, device=draws.device) / (out - 1)
    first = draws.unsqueeze(-1)
    at = ((make.arange(out - 1, device=draws.device).to(draws.dtype) + first) * alpha).long() - (first * alpha).long()
    return _ops.cat([at, (first * 0).long() + (size - window)], -1)


def _pool(nd: int, what: str, input: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, return_indices: bool, samples: Any) -> Any:
    if input.ndim not in (nd + 1, nd + 2):
        raise RuntimeError(f"{what}: expected {nd + 1} or {nd + 2} dimensions ([N,] C, ...), got shape {list(input.shape)}")
    kernel = _checks.integers(kernel_size, what)
    kernel = kernel * nd if len(kernel) == 1 else kernel
    if len(kernel) != nd:
        raise ValueError(f"{what}: `kernel_size` must be one number or {nd}, got {kernel}")
    sizes = _sizes(nd, what, input, kernel, output_size, output_ratio)
    x = input if input.ndim == nd + 2 else input.unsqueeze(0)
    n, c = x.shape[:2]
    draws = make.rand(n, c, nd, dtype=x.dtype, device=x.device) if samples is None else samples
    if draws.ndim != 3 or tuple(draws.shape[1:]) != (c, nd) or draws.shape[0] < n:
        raise RuntimeError(f"{what}: `_random_samples` must be {[n, c, nd]}, got {list(draws.shape)}")
    draws = draws[:n]
    flat, taps = make.zeros((n, c) + (1,) * nd, dtype=_C.int64, device=x.device), make.zeros((1,) * nd, dtype=_C.int64, device=x.device)
    for d in range(nd):
        own = draws[..., nd - 1 - d] if nd == 2 else draws[..., d]  # torch's order of the drawn numbers
        start = _starts(own, x.shape[2 + d], kernel[d], sizes[d])
        rest = [1] * (nd - 1 - d)
        flat = flat * x.shape[2 + d] + start.reshape(n, c, *[1] * d, sizes[d], *rest)
        taps = taps * x.shape[2 + d] + make.arange(kernel[d], device=x.device).reshape(*[1] * d, kernel[d], *rest)
    at = flat.reshape(n, c, math.prod(sizes), 1) + taps.flatten()
    values = x.reshape(n, c, 1, math.prod(x.shape[2:])).expand(n, c, at.shape[2], -1).gather(3, at)
    most, which = values.max(-1)
    y, where = most.reshape(n, c, *sizes), at.gather(3, which.unsqueeze(-1)).reshape(n, c, *sizes)
    if input.ndim == nd + 1:
        y, where = y.squeeze(0), where.squeeze(0)
    return (y, where) if return_indices else y


def fractional_max_pool2d(input: Tensor, kernel_size: Union[int, Sequence[int]], output_size: Any = None, output_ratio: Any = None,
                          return_indices: bool = False, _random_samples: Optional[Tensor] = None) -> Any:
    """The largest value of windows that are drawn, input [N, C, H, W], to ``output_size``, or to ``output_ratio`` of the input's size."""
    return _pool(2, "fractional_max_pool2d", input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def fractional_max_pool3d(input: Tensor, kernel_size: Union[int, Sequence[int]], output_size: Any = None, output_ratio: Any = None,
                          return_indices: bool = False, _random_samples: Optional[Tensor] = None) -> Any:
    """The largest value of windows that are drawn, input [N, C, D, H, W], to ``output_size``, or to ``output_ratio`` of the input's size."""
    return _pool(3, "fractional_max_pool3d", input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


_checks.install(globals())
