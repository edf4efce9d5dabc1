"""Convolution and pooling: windows over the last one, two or three dimensions.

Inputs are [N, C, ...] or, for one sample, [C, ...]. A number stands for the same number in every dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, List, Optional, Tuple, Union

from .. import _C, _checks, _ops
from .._C import Tensor
from .._out import takes_out
from ._resample import adaptive_means, resampled, sums, window_lengths

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "conv1d", "conv2d", "conv3d", "conv_tbc",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "fold", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d",
    "max_pool2d", "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d", "unfold",
]

_Sizes = Union[int, Sequence[int]]


def _list(value: Any, nd: int, what: str) -> List[int]:
    numbers = _checks.integers(value, what)
    if len(numbers) == 1:
        numbers *= nd
    if len(numbers) != nd:
        raise RuntimeError(f"{what}: expected one number or {nd}, got {list(numbers)}")
    return numbers


def _batched(x: Tensor, nd: int, what: str) -> Tuple[Tensor, bool]:
    """[N, C, ...], and whether a batch of one was made of it."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{what}: expected a Tensor, got {type(x).__name__}")
    if x.ndim not in (nd + 1, nd + 2):
        raise RuntimeError(f"{what}: expected {nd + 1} or {nd + 2} dimensions ([N,] C, ...), got shape {list(x.shape)}")
    return (x.unsqueeze(0), True) if x.ndim == nd + 1 else (x, False)


# -- convolution --------------------------------------------------------------------------------------------


def _same_padding(x: Tensor, weight: Tensor, stride: List[int], dilation: List[int], what: str) -> Tuple[Tensor, List[int]]:
    """'same': as many results as values; where the padding is uneven, the right side gets the rest first."""
    if any(s != 1 for s in stride):
        raise RuntimeError(f"{what}: padding='same' needs stride 1, got {stride}")
    total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:])]
    if any(t % 2 for t in total):
        from ._resample import pad
        x = pad(x, [side for t in reversed(total) for side in (0, t % 2)])
    return x, [t // 2 for t in total]


def _convolve(nd: int, what: str, input: Tensor, weight: Tensor, bias: Optional[Tensor], stride: _Sizes, padding: Any, dilation: _Sizes,
              groups: int) -> Tensor:
    x, single = _batched(input, nd, what)
    if weight.ndim != nd + 2:
        raise RuntimeError(f"{what}: `weight` must have {nd + 2} dimensions, got shape {list(weight.shape)}")
    step, apart = _list(stride, nd, what), _list(dilation, nd, what)
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise RuntimeError(f"{what}: `padding` must be numbers, 'same' or 'valid', got {padding!r}")
        x, around = _same_padding(x, weight, step, apart, what) if padding == "same" else (x, [0] * nd)
    else:
        around = _list(padding, nd, what)
    y = _ops.convolution(x, weight, bias, step, around, apart, False, [0] * nd, groups)
    return y.squeeze(0) if single else y


def conv1d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: _Sizes = 1, padding: Union[str, _Sizes] = 0,
           dilation: _Sizes = 1, groups: int = 1) -> Tensor:
    """Convolution of input [N, C, L] with weight [out, C / groups, taps]; ``padding`` may be 'same' or 'valid'."""
    return _convolve(1, "conv1d", input, weight, bias, stride, padding, dilation, groups)


def conv2d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: _Sizes = 1, padding: Union[str, _Sizes] = 0,
           dilation: _Sizes = 1, groups: int = 1) -> Tensor:
    """Convolution of input [N, C, H, W] with weight [out, C / groups, ...]; ``padding`` may be 'same' or 'valid'."""
    return _convolve(2, "conv2d", input, weight, bias, stride, padding, dilation, groups)


def conv3d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: _Sizes = 1, padding: Union[str, _Sizes] = 0,
           dilation: _Sizes = 1, groups: int = 1) -> Tensor:
    """Convolution of input [N, C, D, H, W] with weight [out, C / groups, ...]; ``padding`` may be 'same' or 'valid'."""
    return _convolve(3, "conv3d", input, weight, bias, stride, padding, dilation, groups)


def _transposed(nd: int, what: str, input: Tensor, weight: Tensor, bias: Optional[Tensor], stride: _Sizes, padding: _Sizes,
                output_padding: _Sizes, groups: int, dilation: _Sizes) -> Tensor:
    x, single = _batched(input, nd, what)
    if weight.ndim != nd + 2:
        raise RuntimeError(f"{what}: `weight` must have {nd + 2} dimensions, got shape {list(weight.shape)}")
    step, around, apart, more = (_list(v, nd, what) for v in (stride, padding, dilation, output_padding))
    y = _ops.convolution(x, weight, bias, step, around, apart, True, more, groups)
    return y.squeeze(0) if single else y


def conv_transpose1d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: _Sizes = 1, padding: _Sizes = 0,
                     output_padding: _Sizes = 0, groups: int = 1, dilation: _Sizes = 1) -> Tensor:
    """The adjoint of conv1d: input [N, C, L], weight [C, out / groups, taps]."""
    return _transposed(1, "conv_transpose1d", input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: _Sizes = 1, padding: _Sizes = 0,
                     output_padding: _Sizes = 0, groups: int = 1, dilation: _Sizes = 1) -> Tensor:
    """The adjoint of conv2d: input [N, C, H, W], weight [C, out / groups, ...]."""
    return _transposed(2, "conv_transpose2d", input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: _Sizes = 1, padding: _Sizes = 0,
                     output_padding: _Sizes = 0, groups: int = 1, dilation: _Sizes = 1) -> Tensor:
    """The adjoint of conv3d: input [N, C, D, H, W], weight [C, out / groups, ...]."""
    return _transposed(3, "conv_transpose3d", input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """conv1d of input [T, N, C] with weight [taps, C, out]."""
    return conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad).permute(2, 0, 1)


def unfold(input: Tensor, kernel_size: _Sizes, dilation: _Sizes = 1, padding: _Sizes = 0, stride: _Sizes = 1) -> Tensor:
    """The windows of input [N, C, H, W] as columns [N, C * taps, positions]."""
    if input.dtype is _C.bool:
        return unfold(input.float(), kernel_size, dilation, padding, stride).bool()
    x, single = _batched(input, 2, "unfold")
    y = _ops._im2col(x, *(_list(v, 2, "unfold") for v in (kernel_size, dilation, padding, stride)))
    return y.squeeze(0) if single else y


def fold(input: Tensor, output_size: _Sizes, kernel_size: _Sizes, dilation: _Sizes = 1, padding: _Sizes = 0, stride: _Sizes = 1) -> Tensor:
    """Columns [N, C * taps, positions] added up where ``unfold`` took them from: [N, C, *output_size]."""
    x = input.unsqueeze(0) if input.ndim == 2 else input
    y = _ops._col2im(x, *(_list(v, 2, "fold") for v in (output_size, kernel_size, dilation, padding, stride)))
    return y.squeeze(0) if input.ndim == 2 else y


# -- pooling -------------------------------------------------------------------------------------------------


def _steps(stride: Any, window: List[int], nd: int, what: str) -> List[int]:
    """The window itself where no stride is given."""
    none = stride is None or isinstance(stride, (list, tuple)) and not stride
    return window if none else _list(stride, nd, what)


def _max_pool(nd: int, what: str, input: Tensor, kernel_size: _Sizes, stride: Any, padding: _Sizes, dilation: _Sizes, ceil_mode: bool,
              return_indices: bool) -> Any:
    _batched(input, nd, what)
    window = _list(kernel_size, nd, what)
    step = _steps(stride, window, nd, what)
    pair = _ops._max_pool(input, window, step, _list(padding, nd, what), _list(dilation, nd, what), ceil_mode)
    return tuple(pair) if return_indices else pair[0]


def max_pool1d(input: Tensor, kernel_size: _Sizes, stride: Optional[_Sizes] = None, padding: _Sizes = 0, dilation: _Sizes = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest value of each window of input [N, C, L]; with ``return_indices`` also where it is."""
    return _max_pool(1, "max_pool1d", input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(input: Tensor, kernel_size: _Sizes, stride: Optional[_Sizes] = None, padding: _Sizes = 0, dilation: _Sizes = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest value of each window of input [N, C, H, W]; with ``return_indices`` also where in the plane it is."""
    return _max_pool(2, "max_pool2d", input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(input: Tensor, kernel_size: _Sizes, stride: Optional[_Sizes] = None, padding: _Sizes = 0, dilation: _Sizes = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest value of each window of input [N, C, D, H, W]; with ``return_indices`` also where in the volume it is."""
    return _max_pool(3, "max_pool3d", input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _sizes_or_own(input: Tensor, output_size: Any, nd: int, what: str) -> List[int]:
    """None keeps a dimension's size."""
    if nd > 1 and input.ndim <= nd and isinstance(output_size, (list, tuple)):
        raise ValueError(f"{what}: expected at least {nd + 1} dimensions ([N,] C, ...), got shape {list(input.shape)}")
    if not isinstance(output_size, (list, tuple)):
        sizes: List[Any] = _checks.integers(output_size, what) * nd
    else:
        sizes = [None if s is None else _checks.integers(s, what)[0] for s in output_size]
    if len(sizes) != nd:
        raise RuntimeError(f"{what}: expected one size or {nd}, got {sizes}")
    return [own if s is None else int(s) for s, own in zip(sizes, input.shape[-nd:])]


def _adaptive_max(nd: int, what: str, input: Tensor, output_size: Any, return_indices: bool) -> Any:
    sizes = _sizes_or_own(input, output_size, nd, what)
    _batched(input, nd, what)
    one = [1] * nd
    pair = _ops._max_pool(input, sizes, one, [0] * nd, one, False, True)
    return tuple(pair) if return_indices else pair[0]


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """max_pool1d whose windows divide the input into ``output_size`` parts."""
    return _adaptive_max(1, "adaptive_max_pool1d", input, output_size, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """max_pool2d whose windows divide the input into ``output_size`` parts; None keeps a size."""
    return _adaptive_max(2, "adaptive_max_pool2d", input, output_size, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """max_pool3d whose windows divide the input into ``output_size`` parts; None keeps a size."""
    return _adaptive_max(3, "adaptive_max_pool3d", input, output_size, return_indices)


def _max_unpool(nd: int, what: str, input: Tensor, indices: Tensor, kernel_size: _Sizes, stride: Any, padding: _Sizes, output_size: Any) -> Tensor:
    x, single = _batched(input, nd, what)
    if indices.shape != input.shape:
        raise RuntimeError(f"{what}: input {list(input.shape)} and indices {list(indices.shape)} must have one shape")
    window, around = _list(kernel_size, nd, what), _list(padding, nd, what)
    step = window if stride is None else _list(stride, nd, what)
    usual = [(n - 1) * s - 2 * p + k for n, s, p, k in zip(x.shape[2:], step, around, window)]
    size = usual if output_size is None else _checks.integers(output_size, what)[-nd:]
    flat = x.new_zeros((x.shape[0], x.shape[1], _product(size)))
    at = indices.reshape(x.shape[0], x.shape[1], -1)
    y = flat.scatter(2, at, x.reshape(at.shape)).reshape(*x.shape[:2], *size)
    return y.squeeze(0) if single else y


def max_unpool1d(input: Tensor, indices: Tensor, kernel_size: _Sizes, stride: Optional[_Sizes] = None, padding: _Sizes = 0,
                 output_size: Any = None) -> Tensor:
    """Values back where max_pool1d found them, zeros elsewhere."""
    return _max_unpool(1, "max_unpool1d", input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(input: Tensor, indices: Tensor, kernel_size: _Sizes, stride: Optional[_Sizes] = None, padding: _Sizes = 0,
                 output_size: Any = None) -> Tensor:
    """Values back where max_pool2d found them, zeros elsewhere."""
    return _max_unpool(2, "max_unpool2d", input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(input: Tensor, indices: Tensor, kernel_size: _Sizes, stride: Optional[_Sizes] = None, padding: _Sizes = 0,
                 output_size: Any = None) -> Tensor:
    """Values back where max_pool3d found them, zeros elsewhere."""
    return _max_unpool(3, "max_unpool3d", input, indices, kernel_size, stride, padding, output_size)


def _product(numbers: Sequence[int]) -> int:
    total = 1
    for n in numbers:
        total *= n
    return total


def _avg_pool(nd: int, what: str, input: Tensor, kernel_size: _Sizes, stride: Any, padding: _Sizes, ceil_mode: bool, count_include_pad: bool,
              divisor_override: Optional[int]) -> Tensor:
    _batched(input, nd, what)
    window, around = _list(kernel_size, nd, what), _list(padding, nd, what)
    step = _steps(stride, window, nd, what)
    if divisor_override == 0:
        raise RuntimeError(f"{what}: `divisor_override` must not be 0")
    if input.dtype is _C.int64:
        return _whole_means(nd, what, input, window, step, around, ceil_mode, count_include_pad, divisor_override)
    for d in range(nd):
        if step[d] < 1 or around[d] < 0:
            raise RuntimeError(f"{what}: stride must be above 0 and padding 0 or more, got {step[d]} and {around[d]}")
        if 2 * around[d] > window[d]:
            raise RuntimeError(f"{what}: padding {around[d]} must be at most half of the window's {window[d]}")
        divisor = None if divisor_override is None else 1.0 if d else float(divisor_override)
        table = sums(what, input.shape[d - nd], window[d], step[d], around[d], ceil_mode, count_include_pad, divisor)
        input = resampled(input, d - nd, table)
    return input


def _whole_means(nd: int, what: str, x: Tensor, window: List[int], step: List[int], around: List[int], ceil_mode: bool,
                 count_include_pad: bool, divisor_override: Optional[int]) -> Tensor:
    """avg_pool of integers: exact sums over the numbers of their values, rounded toward zero."""
    total = _avg_pool(nd, what, x.double(), window, step, around, ceil_mode, count_include_pad, 1)
    if divisor_override is not None:
        return (total / divisor_override).trunc().to(x.dtype)
    counts = total.new_ones(())
    for d in range(nd):
        table = sums(what, x.shape[d - nd], window[d], step[d], around[d], ceil_mode, count_include_pad, None)
        counts = counts.unsqueeze(-1) * window_lengths(table, x.shape[d - nd], str(x.device))
    return (total / counts).trunc().to(x.dtype)


def avg_pool1d(input: Tensor, kernel_size: _Sizes, stride: Optional[_Sizes] = None, padding: _Sizes = 0, ceil_mode: bool = False,
               count_include_pad: bool = True) -> Tensor:
    """The mean of each window of input [N, C, L]."""
    return _avg_pool(1, "avg_pool1d", input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@takes_out
def avg_pool2d(input: Tensor, kernel_size: _Sizes, stride: Optional[_Sizes] = None, padding: _Sizes = 0, ceil_mode: bool = False,
               count_include_pad: bool = True, divisor_override: Optional[int] = None, *, out: Optional[Tensor] = None) -> Tensor:
    """The mean of each window of input [N, C, H, W]."""
    return _avg_pool(2, "avg_pool2d", input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@takes_out
def avg_pool3d(input: Tensor, kernel_size: _Sizes, stride: Optional[_Sizes] = None, padding: _Sizes = 0, ceil_mode: bool = False,
               count_include_pad: bool = True, divisor_override: Optional[int] = None, *, out: Optional[Tensor] = None) -> Tensor:
    """The mean of each window of input [N, C, D, H, W]."""
    return _avg_pool(3, "avg_pool3d", input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _adaptive_avg(nd: int, what: str, input: Tensor, output_size: Any) -> Tensor:
    sizes = _sizes_or_own(input, output_size, nd, what)
    _batched(input, nd, what)
    if min(sizes) < 0:
        raise RuntimeError(f"{what}: `output_size` must be 0 or more, got {min(sizes)}")
    if 0 in sizes:
        return input.flatten(-nd)[..., :0].reshape(*input.shape[:-nd], *sizes)
    for d, size in enumerate(sizes):
        input = resampled(input, d - nd, adaptive_means(input.shape[d - nd], size))
    return input


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """avg_pool1d whose windows divide the input into ``output_size`` parts."""
    return _adaptive_avg(1, "adaptive_avg_pool1d", input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """avg_pool2d whose windows divide the input into ``output_size`` parts; None keeps a size."""
    return _adaptive_avg(2, "adaptive_avg_pool2d", input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """avg_pool3d whose windows divide the input into ``output_size`` parts; None keeps a size."""
    return _adaptive_avg(3, "adaptive_avg_pool3d", input, output_size)


def _lp_pool(pool: Any, nd: int, input: Tensor, norm_type: float, kernel_size: _Sizes, stride: Any, ceil_mode: bool) -> Tensor:
    if abs(norm_type) == float("inf"):
        sign = 1 if norm_type > 0 else -1
        largest = (max_pool1d, max_pool2d, max_pool3d)[nd - 1](sign * input.abs(), kernel_size, stride, 0, 1, ceil_mode)
        return sign * largest
    taps = _product(_list(kernel_size, nd, "lp_pool"))
    wide = input.float() if input.dtype.itemsize == 2 else input  # whose powers 16 bits may not hold
    total = pool(wide**norm_type, kernel_size, stride, 0, ceil_mode) * taps
    zero = total == 0  # a window of zeros has the gradient 0, not nan
    return _ops.where(zero, 0.0, _ops.where(zero, 1.0, total) ** (1.0 / norm_type)).to(input.dtype)


def lp_pool1d(input: Tensor, norm_type: float, kernel_size: _Sizes, stride: Optional[_Sizes] = None, ceil_mode: bool = False) -> Tensor:
    """The root of each window's sum of powers, input [N, C, L]: signed as torch's, so 1 gives sums and odd powers may give nan."""
    return _lp_pool(avg_pool1d, 1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input: Tensor, norm_type: float, kernel_size: _Sizes, stride: Optional[_Sizes] = None, ceil_mode: bool = False) -> Tensor:
    """The root of each window's sum of powers, input [N, C, H, W]; signs as in `lp_pool1d`."""
    return _lp_pool(avg_pool2d, 2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input: Tensor, norm_type: float, kernel_size: _Sizes, stride: Optional[_Sizes] = None, ceil_mode: bool = False) -> Tensor:
    """The root of each window's sum of powers, input [N, C, D, H, W]; signs as in `lp_pool1d`."""
    return _lp_pool(avg_pool3d, 3, input, norm_type, kernel_size, stride, ceil_mode)


_checks.install(globals())
