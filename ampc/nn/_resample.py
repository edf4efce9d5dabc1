"""Interpolation and padding: what their arguments of many forms mean for the operators of the table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, List, Optional, Tuple

from .. import _ops
from .._C import Tensor
from .._messages import checks as _checks

__all__ = ["interpolate", "pad", "upsample", "upsample_bilinear", "upsample_nearest"]

# -- interpolation -----------------------------------------------------------------------------------------------

_MODES = {"nearest": None, "nearest-exact": None, "linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2, "area": None}


def _output_sizes(x: Tensor, size: Any, scale_factor: Any, recompute: Optional[bool]) -> Tuple[List[int], List[Optional[float]]]:
    """The result's sizes, and the scales of positions that are given."""
    nd = x.ndim - 2
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: give either `size` or `scale_factor`")
    if size is not None:
        sizes = _checks.each(size, "interpolate", nd)
        if len(sizes) != nd:
            raise ValueError(f"interpolate: `size` must be one number or {nd}, got {sizes}")
        return sizes, [None] * 3
    each = scale_factor if isinstance(scale_factor, (list, tuple)) else [scale_factor] * nd
    factors = [_checks.number("interpolate", "scale_factor", s) for s in each]
    if len(factors) != nd:
        raise ValueError(f"interpolate: `scale_factor` must be one number or {nd}, got {factors}")
    sizes = [math.floor(n * f) for n, f in zip(x.shape[2:], factors)]
    return sizes, [None] * 3 if recompute or min(sizes) < 1 else [1.0 / f for f in factors] + [None] * (3 - nd)


def interpolate(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Optional[bool] = None,
                recompute_scale_factor: Optional[bool] = None, antialias: bool = False) -> Tensor:
    """Input [N, C, ...] resized to ``size``, or by ``scale_factor``.

    Args:
        mode: 'nearest', 'nearest-exact', 'linear' (3-d), 'bilinear' and 'bicubic' (4-d), 'trilinear' (5-d), 'area'.
        align_corners: whether the outermost values keep their positions; for the linear and cubic modes.
        antialias: for 'bilinear' and 'bicubic': the filter widens as it shrinks.

    float32 under autocast. ValueError for sizes or modes that do not fit, NotImplementedError for a wrong number of dimensions."""
    nd = input.ndim - 2
    if mode not in _MODES:
        raise NotImplementedError(f"interpolate: `mode` must be one of {', '.join(_MODES)}; got {mode!r}")
    if nd not in (1, 2, 3) or (_MODES[mode] or nd) != nd:
        raise NotImplementedError(f"interpolate: mode {mode!r} does not take {input.ndim} dimensions")
    if align_corners is not None and _MODES[mode] is None:
        raise ValueError(f"interpolate: `align_corners` goes with linear, bilinear, bicubic and trilinear, not with {mode!r}")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError(f"interpolate: `antialias` goes with bilinear and bicubic, not with {mode!r}")
    sizes, scales = _output_sizes(input, size, scale_factor, recompute_scale_factor)
    return _ops._interpolate(input, sizes, scales[0], scales[1], scales[2], mode, bool(align_corners), antialias)


def upsample(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Optional[bool] = None) -> Tensor:
    """interpolate's older name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate with mode 'nearest': an older name."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate with mode 'bilinear' and aligned corners: an older name."""
    return interpolate(input, size, scale_factor, "bilinear", True)


# -- padding ------------------------------------------------------------------------------------------------------


def _pairs(input: Tensor, pad: Sequence[int]) -> Tuple[List[int], List[int]]:
    """How many values before and behind each dimension, the last one first."""
    numbers = _checks.integers(pad, "pad")
    if len(numbers) % 2 or len(numbers) > 2 * input.ndim:
        raise RuntimeError(f"pad: expected pairs of numbers, at most {input.ndim} of them, got {numbers}")
    return numbers[::2], numbers[1::2]


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: Optional[float] = None) -> Tensor:
    """Input with values put around it: ``pad`` is (left, right) of the last dimension, then of the one before, and so on;
    negative numbers cut. ``mode``: 'constant' (``value``), 'reflect', 'replicate' or 'circular'."""
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise NotImplementedError(f"pad: `mode` must be constant, reflect, replicate or circular, got {mode!r}")
    if value and mode != "constant":
        raise RuntimeError(f"pad: a `value` other than 0 goes with mode='constant', not with {mode!r}")
    return _ops._pad(input, *_pairs(input, pad), mode, 0.0 if value is None else value)


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """pad with a constant, under torch's own name for it: ampc.constant_pad_nd."""
    return _ops._pad(input, *_pairs(input, pad), "constant", value)


# -- sampling at any positions -----------------------------------------------------------------------------------------


def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """grid_sample, its modes as numbers."""
    mode, outside = ("bilinear", "nearest", "bicubic")[interpolation_mode], ("zeros", "border", "reflection")[padding_mode]
    return _ops.grid_sample(input, grid, mode, outside, align_corners)


_checks.install(globals())
