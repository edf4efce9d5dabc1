"""The gradients of convolutions as functions, for scripts that write a backward of their own."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

from .. import _ops
from .._C import Tensor
from .._messages import checks as _checks

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def conv1d_input(input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                 groups: int = 1) -> Tensor:
    """The gradient of conv1d's input, of shape ``input_size`` [N, C, L]. RuntimeError where ``grad_output`` has not the shape of the result."""
    return _input(1, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv1d_weight(input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                  groups: int = 1) -> Tensor:
    """The gradient of conv1d's weight, of shape ``weight_size`` [out, C / groups, taps]. RuntimeError where ``grad_output`` has not the shape
    of the result."""
    return _weight(1, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv2d_input(input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                 groups: int = 1) -> Tensor:
    """conv1d_input for conv2d: ``input_size`` is [N, C, H, W]."""
    return _input(2, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv2d_weight(input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                  groups: int = 1) -> Tensor:
    """conv1d_weight for conv2d: ``weight_size`` is [out, C / groups, height, width]."""
    return _weight(2, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv3d_input(input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                 groups: int = 1) -> Tensor:
    """conv1d_input for conv3d: ``input_size`` is [N, C, D, H, W]."""
    return _input(3, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv3d_weight(input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                  groups: int = 1) -> Tensor:
    """conv1d_weight for conv3d: ``weight_size`` is [out, C / groups, depth, height, width]."""
    return _weight(3, input, weight_size, grad_output, stride, padding, dilation, groups)


def _input(nd: int, size: Sequence[int], weight: Tensor, g: Tensor, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
    sizes, windows = _sizes(f"conv{nd}d_input: input_size", size, nd), _windows(f"conv{nd}d_input", nd, stride, padding, dilation)
    left = _left_over(f"conv{nd}d_input", sizes, list(weight.shape), g, windows, groups)
    strides, paddings, dilations = windows
    return _ops.convolution(g, weight, None, strides, paddings, dilations, True, left, groups)


def _weight(nd: int, x: Tensor, size: Sequence[int], g: Tensor, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
    sizes, windows = _sizes(f"conv{nd}d_weight: weight_size", size, nd), _windows(f"conv{nd}d_weight", nd, stride, padding, dilation)
    _left_over(f"conv{nd}d_weight", list(x.shape), sizes, g, windows, groups)
    strides, paddings, dilations = windows
    return _ops._convolution_weight(x, g, sizes[2:], strides, paddings, dilations, groups)


def _sizes(what: str, size: Sequence[int], nd: int) -> List[int]:
    sizes = _checks.integers(size, what)
    if len(sizes) != nd + 2:
        raise RuntimeError(f"{what}: expected {nd + 2} sizes, got {sizes}")
    return sizes


def _windows(what: str, nd: int, *lists: Any) -> Tuple[List[int], ...]:
    """Stride, padding and dilation for each dimension."""
    windows = tuple(values * nd if len(values) == 1 else values for values in (_checks.each(value, what, nd) for value in lists))
    if any(len(values) != nd for values in windows) or min(windows[0]) < 1:
        raise RuntimeError(f"{what}: expected 1 or {nd} numbers each of `stride`, `padding` and `dilation`, and strides of at least 1, got {lists}")
    return windows


def _left_over(what: str, x: List[int], w: List[int], g: Tensor, windows: Tuple[List[int], ...], groups: int) -> List[int]:
    """How many of the last positions of an input of shape ``x`` no window reaches, for each dimension."""
    covered = [n + 2 * p - d * (k - 1) - 1 for n, k, p, d in zip(x[2:], w[2:], *windows[1:])]
    expected = [x[0], w[0], *(n // s + 1 for n, s in zip(covered, windows[0]))]
    if len(x) != len(w) or groups < 1 or x[1] != w[1] * groups or list(g.shape) != expected:
        raise RuntimeError(f"{what}: an input {x} and a weight {w} of {groups} groups give a result {expected}, and the input has as many channels "
                           f"as the weight's times groups; `grad_output` is {list(g.shape)}")
    return [n % s for n, s in zip(covered, windows[0])]


_checks.install(globals())
