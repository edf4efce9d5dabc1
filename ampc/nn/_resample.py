"""Resampling along one dimension at a time: interpolation, means of windows, padding. Also sampling at arbitrary positions.

Resampling of one dimension is a table (_resample_weights.py). It says which values with which weights add up to each result."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, Callable, List, Optional, Tuple

from .. import _C, _checks, _ops
from .._C import Tensor
from .._out import own
from ..autograd import inference_mode

__all__ = [
    "affine_grid", "channel_shuffle", "grid_sample", "interpolate", "pad", "pixel_shuffle", "pixel_unshuffle",
    "upsample", "upsample_bilinear", "upsample_nearest",
]

_HALF = (_C.float16, _C.bfloat16)
Table = Tuple[Any, ...]  # (kind, arguments), see _resample_weights.py


# -- tables ----------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def _table_tensors(table: Table, size: int, device: str) -> Tuple[Tensor, ...]:
    from . import _resample_weights as tables  # NumPy is loaded when it is needed
    with inference_mode(False):
        return tuple(_C.from_numpy(a).to(device) for a in tables.with_adjoint(table, size))


def resampled(x: Tensor, dim: int, table: Table) -> Tensor:
    """x with dimension ``dim`` resampled by a table."""
    index, weight, back_index, back_weight = _table_tensors(table, x.shape[dim], str(x.device))
    return _ops._resample(x, index, weight, back_index, back_weight, dim % x.ndim)


def window_lengths(table: Table, size: int, device: str) -> Tensor:
    """The number of values in each window of `sums`."""
    return (1 / _table_tensors(table, size, device)[1].amax(1)).round()


def sums(what: str, size: int, window: int, step: int, around: int, ceil_mode: bool, count_pad: bool, divisor: Optional[float]) -> Table:
    """Means of windows, or sums divided by ``divisor``."""
    return ("sums", what, size, window, step, around, ceil_mode, count_pad, divisor)


def adaptive_means(size: int, out: int) -> Table:
    """Means of ``out`` parts of ``size`` values."""
    return ("adaptive", size, out)


# -- interpolation -----------------------------------------------------------------------------------------------


def in_float32(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """f(x) computed in float32 for the 16-bit types, and rounded once; under autocast it stays float32."""
    if x.dtype not in _HALF:
        return f(x)
    wide = _ops._autocast_wide(x)
    return f(wide) if wide.dtype == _C.float32 else f(x.float()).to(x.dtype)


_MODES = {"nearest": None, "nearest-exact": None, "linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2, "area": None}


def _output_sizes(x: Tensor, size: Any, scale_factor: Any, recompute: Optional[bool]) -> Tuple[List[int], List[Optional[float]]]:
    nd = x.ndim - 2
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: give either `size` or `scale_factor`")
    if size is not None:
        sizes = _checks.each(size, "interpolate", nd)
        if len(sizes) != nd:
            raise ValueError(f"interpolate: `size` must be one number or {nd}, got {sizes}")
        return sizes, [None] * nd
    factors = [float(s) for s in scale_factor] if isinstance(scale_factor, (list, tuple)) else [float(scale_factor)] * nd
    if len(factors) != nd:
        raise ValueError(f"interpolate: `scale_factor` must be one number or {nd}, got {factors}")
    sizes = [math.floor(n * f) for n, f in zip(x.shape[2:], factors)]
    return sizes, [None] * nd if recompute else [1.0 / f for f in factors]


def _table_of(mode: str, size: int, out: int, given: Optional[float], corners: bool, antialias: bool) -> Table:
    scale = size / out if given is None else given
    if mode == "area":
        return adaptive_means(size, out)
    if mode.startswith("nearest"):
        return ("nearest", size, out, scale, 0.5 if mode == "nearest-exact" else 0.0)
    if corners:
        scale = (size - 1) / (out - 1) if out > 1 else 0.0
    cubic = mode == "bicubic"
    if antialias:
        return ("smoothed", size, out, scale, corners, cubic)
    return ("cubic" if cubic else "linear", size, out, scale, corners)


def _picked(x: Tensor, tables: List[Table]) -> Tensor:
    """Each result is one value: for dtypes that are not summed."""
    for d, table in enumerate(tables):
        x = x.index_select(d + 2, _table_tensors(table, x.shape[d + 2], str(x.device))[0].flatten())
    return x


def _of_bytes(x: Tensor, tables: List[Table]) -> Tensor:
    """Weights are whole numbers of 16 bits, as in images' usual libraries, and each dimension is rounded to bytes, the last one first."""
    from ._resample_weights import weight_bits
    for d, table in reversed(list(enumerate(tables))):
        if x.shape[d + 2] == table[2] and table[0] != "smoothed":
            continue
        bits = weight_bits(table)
        x = resampled(x.double(), d + 2, ("bits", bits, *table))
        x = ((x + 2.0 ** (bits - 1)) / 2.0**bits).floor().clamp(0, 255).to(_C.uint8)
    return x


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
    if min(sizes) < 1 or min(input.shape[2:]) < 1:
        raise RuntimeError(f"interpolate: sizes must be 1 or more, got {list(input.shape[2:])} and {sizes}")

    if not input.is_floating_point() and mode.startswith("nearest"):
        return _picked(input, [_table_of(mode, input.shape[d + 2], sizes[d], scales[d], False, False) for d in range(nd)])
    if input.dtype is _C.uint8 and mode in ("bilinear", "bicubic"):
        return _of_bytes(input, [_table_of(mode, input.shape[d + 2], sizes[d], scales[d], bool(align_corners), antialias) for d in range(nd)])

    def run(x: Tensor) -> Tensor:
        for d in range(nd):
            x = resampled(x, d + 2, _table_of(mode, x.shape[d + 2], sizes[d], scales[d], bool(align_corners), antialias))
        return x

    return in_float32(run, input)


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


def _pad_constant(x: Tensor, sides: List[Tuple[int, int, int]], value: float) -> Tensor:
    for d, before, after in sides:  # negative ones cut
        if before < 0 or after < 0:
            x = x.narrow(d, max(-before, 0), x.shape[d] - max(-before, 0) - max(-after, 0))
    shape = list(x.shape)
    offset = [0] * x.ndim
    for d, before, after in sides:
        shape[d] += max(before, 0) + max(after, 0)
        offset[d] = max(before, 0)
    if shape == list(x.shape):
        return x.clone()
    room = x.detach().new_full(shape, value)
    at = sum(o * s for o, s in zip(offset, room.stride())) if x.numel() else 0  # nothing may lie behind the memory
    return _ops._as_strided_scatter(room, x, list(x.shape), list(room.stride()), at)


def _sides(input: Tensor, pad: Sequence[int]) -> List[Tuple[int, int, int]]:
    """(dimension, how many before it, how many behind it) of each pair of numbers."""
    numbers = _checks.integers(pad, "pad")
    if len(numbers) % 2 or len(numbers) > 2 * input.ndim:
        raise RuntimeError(f"pad: expected pairs of numbers, at most {input.ndim} of them, got {numbers}")
    return [(input.ndim - 1 - i, numbers[2 * i], numbers[2 * i + 1]) for i in range(len(numbers) // 2)]


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: Optional[float] = None) -> Tensor:
    """Input with values put around it: ``pad`` is (left, right) of the last dimension, then of the one before, and so on;
    negative numbers cut. ``mode``: 'constant' (``value``), 'reflect', 'replicate' or 'circular'."""
    sides = _sides(input, pad)
    if mode == "constant":
        return _pad_constant(input, sides, 0.0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"pad: `mode` must be constant, reflect, replicate or circular, got {mode!r}")
    if value is not None:
        raise ValueError(f"pad: `value` goes with mode='constant', not with {mode!r}")
    if len(sides) not in (input.ndim - 1, input.ndim - 2) or not 1 <= len(sides) <= 3:
        raise NotImplementedError(f"pad: {mode} padding of {len(sides)} dimensions does not fit shape {list(input.shape)}")
    from ._resample_weights import around
    for d, before, after in sides:
        at = _C.from_numpy(around(mode, input.shape[d], before, after)).to(input.device)
        input = input.index_select(d, at)
    return input


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """pad with a constant, under torch's own name for it: ampc.constant_pad_nd."""
    return _pad_constant(input, _sides(input, pad), value)


# -- sampling at any positions -----------------------------------------------------------------------------------------


def _unnormalised(at: Tensor, size: int, corners: bool) -> Tensor:
    return (at + 1) * ((size - 1) / 2) if corners else ((at + 1) * size - 1) / 2


def _reflected(at: Tensor, size: int, corners: bool) -> Tensor:
    low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
    if span <= 0:
        return at * 0
    off = (at - low).abs()
    turns = (off / span).floor().detach()
    rest = off - turns * span
    return _ops.where(turns % 2 == 0, rest + low, span - rest + low)


def _position(at: Tensor, size: int, padding: str, corners: bool) -> Tensor:
    if padding == "border":
        return at.clamp(0, size - 1)
    return _reflected(at, size, corners).clamp(0, size - 1) if padding == "reflection" else at


def _values_at(x: Tensor, positions: List[Tensor]) -> Tensor:
    """x [N, C, ...] at whole positions, one tensor [N, ...] a dimension: [N, C, ...]; zeros outside."""
    flat, inside = (positions[0] * 0).nan_to_num(0.0).long(), positions[0] == positions[0]
    for at, size in zip(positions, x.shape[2:]):
        inside = inside & (at >= 0) & (at <= size - 1)
        flat = flat * size + at.detach().nan_to_num(0.0).clamp(0, size - 1).long()
    n, c = x.shape[:2]
    index = flat.reshape(n, 1, -1).expand(n, c, flat[0].numel())
    values = x.reshape(n, c, -1).gather(2, index).reshape(n, c, *flat.shape[1:])
    return _ops.where(inside.unsqueeze(1), values, 0.0)


def _sample_linear(x: Tensor, at: List[Tensor]) -> Tensor:
    low = [a.floor().detach() for a in at]
    terms = []
    for corner in range(2 ** len(at)):
        bits = [corner >> d & 1 for d in range(len(at))]
        parts = [a - l if b else 1 - (a - l) for a, l, b in zip(at, low, bits)]
        weight = functools.reduce(operator.mul, parts)
        terms.append(_values_at(x, [l + b for l, b in zip(low, bits)]) * weight.unsqueeze(1))
    return functools.reduce(operator.add, terms)


def _cubic_parts(t: Tensor) -> List[Tensor]:
    a = -0.75
    far = lambda x: ((a * x - 5 * a) * x + 8 * a) * x - 4 * a  # noqa: E731
    near = lambda x: ((a + 2) * x - (a + 3)) * x * x + 1  # noqa: E731
    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _sample_cubic(x: Tensor, at: List[Tensor], padding: str, corners: bool) -> Tensor:
    low = [a.floor().detach() for a in at]
    parts = [_cubic_parts(a - l) for a, l in zip(at, low)]
    terms = []
    for j in range(4):
        for i in range(4):
            positions = [_position(low[0] + (j - 1), x.shape[2], padding, corners), _position(low[1] + (i - 1), x.shape[3], padding, corners)]
            terms.append(_values_at(x, positions) * (parts[0][j] * parts[1][i]).unsqueeze(1))
    return functools.reduce(operator.add, terms)


def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: Optional[bool] = None) -> Tensor:
    """Samples the input [N, C, H, W] or [N, C, D, H, W] at the positions in ``grid`` (Jaderberg et al. 2015).

    ``grid`` is [N, ..., 2] or [N, ..., 3] and holds (x, y) or (x, y, z) in [-1, 1]. ``mode`` is 'bilinear', 'nearest' or 'bicubic' (4-d),
    ``padding_mode`` 'zeros', 'border' or 'reflection'. Under autocast it runs in the widest dtype of both."""
    nd = input.ndim - 2
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(f"grid_sample: `mode` must be bilinear, nearest or bicubic, got {mode!r}")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"grid_sample: `padding_mode` must be zeros, border or reflection, got {padding_mode!r}")
    if nd not in (2, 3) or grid.ndim != input.ndim or grid.shape[-1] != nd or grid.shape[0] != input.shape[0]:
        raise RuntimeError(f"grid_sample: grid {list(grid.shape)} does not fit input {list(input.shape)}; expected [N, ..., {nd}]")
    if mode == "bicubic" and nd != 2:
        raise RuntimeError("grid_sample: bicubic takes 4-d input only")
    if input.dtype != grid.dtype:
        if not _C._autocast_active():
            raise RuntimeError(f"grid_sample: input and grid must have one dtype, got {input.dtype} and {grid.dtype}")
        wide = _C.promote_types(input.dtype, grid.dtype)
        input, grid = input.to(wide), grid.to(wide)
    corners, dtype = bool(align_corners), input.dtype
    if dtype in _HALF:
        input, grid = input.float(), grid.float()
    at = [_unnormalised(grid[..., nd - 1 - d], input.shape[2 + d], corners) for d in range(nd)]
    if mode == "bicubic":
        return _sample_cubic(input, at, padding_mode, corners).to(dtype)
    at = [_position(a, input.shape[2 + d], padding_mode, corners) for d, a in enumerate(at)]
    if mode == "bilinear":
        return _sample_linear(input, at).to(dtype)
    y = _values_at(input, [a.round() for a in at])
    if grid.requires_grad:  # whose gradient is zero, not absent
        y = y + _ops.where(grid < float("-inf"), grid, 0.0).sum(-1).unsqueeze(1)
    return y.to(dtype)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: Optional[bool] = None) -> Tensor:
    """The grid [N, ..., nd] of an affine map theta [N, nd, nd + 1], for grid_sample to ``size`` [N, C, ...]."""
    if not theta.is_floating_point():
        raise ValueError(f"affine_grid: theta must be floating point, got {theta.dtype}")
    if not isinstance(size, (list, tuple)) or not all(isinstance(n, int) for n in size):
        raise TypeError(f"affine_grid: `size` must be a list or tuple of ints, got {size!r}")
    if any(n < 1 for n in size):
        raise ValueError(f"affine_grid: sizes must be above 0, got {list(size)}")
    nd = len(size) - 2
    if nd not in (2, 3) or list(theta.shape) != [size[0], nd, nd + 1]:
        raise ValueError(f"affine_grid: theta must be [{size[0]}, {nd}, {nd + 1}], got {list(theta.shape)}")
    from ._resample_weights import grid_positions
    positions = grid_positions(size[2:], bool(align_corners))
    base = _C.from_numpy(positions).to(theta.device, theta.dtype)
    return (base @ theta.transpose(1, 2)).reshape(size[0], *size[2:], nd)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """[..., C r r, H, W] to [..., C, H r, W r] (Shi et al. 2016)."""
    r = upscale_factor
    *lead, c, h, w = input.shape
    if r < 1 or c % (r * r):
        raise RuntimeError(f"pixel_shuffle: {c} channels are no multiple of the square of {r}")
    n = len(lead)
    x = input.reshape(*lead, c // (r * r), r, r, h, w)
    return own(x.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2).reshape(*lead, c // (r * r), h * r, w * r), input)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """[..., C, H r, W r] to [..., C r r, H, W]."""
    r = downscale_factor
    *lead, c, h, w = input.shape
    if r < 1 or h % r or w % r:
        raise RuntimeError(f"pixel_unshuffle: {h} x {w} is no multiple of {r}")
    n = len(lead)
    x = input.reshape(*lead, c, h // r, r, w // r, r)
    return own(x.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3).reshape(*lead, c * r * r, h // r, w // r), input)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels [N, groups, C / groups, ...] in the order of the second."""
    n, c = input.shape[:2]
    if groups < 1 or c % groups:
        raise RuntimeError(f"channel_shuffle: {c} channels are no multiple of {groups} groups")
    return own(input.reshape(n, groups, c // groups, *input.shape[2:]).transpose(1, 2).reshape(input.shape), input)


def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """grid_sample, its modes as numbers."""
    mode, outside = ("bilinear", "nearest", "bicubic")[interpolation_mode], ("zeros", "border", "reflection")[padding_mode]
    return grid_sample(input, grid, mode, outside, align_corners)


_checks.install(globals())
