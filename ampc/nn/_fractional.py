"""Fractional max pooling (Graham 2014): windows whose distances are drawn, so that any size can be pooled to any smaller one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, List, Optional, Union

from .. import _ops
from .._C import Tensor
from .._messages import checks as _checks
from .._tensor import creation as make

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
    y, where = _ops._fractional_max_pool(x, draws[:n], kernel, sizes)
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
