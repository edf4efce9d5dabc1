"""Convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Optional, Tuple, Union

from ..._C import Tensor
from ..._messages import checks as _checks
from ..._tensor import creation as make
from .. import functional as F
from .. import init
from ..parameter import Parameter
from ._function_module import OfDims
from .module import Module

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

_Sizes = Union[int, Sequence[int]]
_PADDINGS = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


def _tuple(what: str, value: Any, n: int) -> Tuple[int, ...]:
    """One number for each dimension."""
    values = tuple(_checks.each(value, what, n))
    if not values:
        raise RuntimeError(f"{what} must be one number or {n}, got none")
    if len(values) != n:
        raise ValueError(f"{what} must be one number or {n}, got {value!r}")
    return values


class _ConvNd(OfDims):
    """What all convolutions share: weight and bias, and the numbers that say how windows lie. ``padding_mode``: 'zeros', 'reflect',
    'replicate' or 'circular'. ValueError for groups that do not divide the channels, and for unknown paddings."""

    _transposed = False

    def _setup(self, in_channels: int, out_channels: int, kernel_size: _Sizes, stride: _Sizes, padding: Union[str, _Sizes], dilation: _Sizes,
               groups: int, bias: bool, padding_mode: str, device: Any, dtype: Any, output_padding: _Sizes = 0) -> None:
        Module.__init__(self)
        name, n = type(self).__name__, self._dims
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(f"{name}: {groups} groups do not divide {in_channels} channels in and {out_channels} out")
        if padding_mode not in _PADDINGS:
            raise ValueError(f"{name}: `padding_mode` must be one of {', '.join(_PADDINGS)}, got {padding_mode!r}")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(f"{name}: `padding` must be numbers, 'same' or 'valid', got {padding!r}")
        self.in_channels, self.out_channels, self.groups, self.padding_mode = in_channels, out_channels, groups, padding_mode
        self.transposed = self._transposed
        self.kernel_size, self.stride = _tuple(f"{name}: `kernel_size`", kernel_size, n), _tuple(f"{name}: `stride`", stride, n)
        self.padding = padding if isinstance(padding, str) else _tuple(f"{name}: `padding`", padding, n)
        self.dilation = _tuple(f"{name}: `dilation`", dilation, n)
        self.output_padding = _tuple(f"{name}: `output_padding`", output_padding, n)
        if padding == "same" and any(s != 1 for s in self.stride):
            raise ValueError(f"{name}: padding='same' needs a stride of 1, got {self.stride}")
        channels = (in_channels, out_channels // groups) if self._transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(make.empty(*channels, *self.kernel_size, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(make.empty(out_channels, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias anew, uniform within 1 / sqrt(values a window has)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        fan_in = self.weight.shape[1] * math.prod(self.kernel_size)
        if self.bias is not None and fan_in > 0:
            init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    @property
    def _reversed_padding_repeated_twice(self) -> Tuple[int, ...]:
        """How far the input is padded before a window, and behind it, the last dimension first, as ``F.pad`` wants it."""
        pads: list = []
        for d in reversed(range(self._dims)):
            if isinstance(self.padding, str):
                whole = self.dilation[d] * (self.kernel_size[d] - 1) if self.padding == "same" else 0
                pads += [whole // 2, whole - whole // 2]
            else:
                pads += [self.padding[d]] * 2
        return tuple(pads)

    def extra_repr(self) -> str:
        shown = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        for name, plain in (("padding", (0,) * self._dims), ("dilation", (1,) * self._dims), ("output_padding", (0,) * self._dims), ("groups", 1)):
            if getattr(self, name) != plain:
                shown.append(f"{name}={getattr(self, name)}")
        if self.bias is None:
            shown.append("bias=False")
        if self.padding_mode != "zeros":
            shown.append(f"padding_mode={self.padding_mode}")
        return ", ".join(shown)


class _Forward(_ConvNd):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: _Sizes, stride: _Sizes = 1, padding: Union[str, _Sizes] = 0,
                 dilation: _Sizes = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None,
                 dtype: Any = None) -> None:
        self._setup(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
        """The convolution, with another weight than the module's own where a subclass wants it; torch's name."""
        conv = getattr(F, f"conv{self._dims}d")
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._reversed_padding_repeated_twice, _PADDINGS[self.padding_mode]), 0
        return conv(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class _ConvTransposeNd(_ConvNd):
    _transposed = True

    def __init__(self, in_channels: int, out_channels: int, kernel_size: _Sizes, stride: _Sizes = 1, padding: _Sizes = 0,
                 output_padding: _Sizes = 0, groups: int = 1, bias: bool = True, dilation: _Sizes = 1, padding_mode: str = "zeros",
                 device: Any = None, dtype: Any = None) -> None:
        if padding_mode != "zeros":
            raise ValueError(f"{type(self).__name__}: only padding_mode='zeros' has a transposed convolution, got {padding_mode!r}")
        self._setup(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype, output_padding)

    def _extra(self, input: Tensor, output_size: Optional[Sequence[int]]) -> Tuple[int, ...]:
        """The output padding that makes the wanted size."""
        if output_size is None:
            return self.output_padding
        n, sizes = self._dims, list(output_size)[-self._dims:]
        least = [(input.shape[d - n] - 1) * self.stride[d] - 2 * self.padding[d] + self.dilation[d] * (self.kernel_size[d] - 1) + 1 for d in range(n)]
        most = [size + s - 1 for size, s in zip(least, self.stride)]
        if len(sizes) != n or any(not a <= size <= b for a, size, b in zip(least, sizes, most)):
            raise ValueError(f"{type(self).__name__}: `output_size` must be between {least} and {most}, got {list(output_size)}")
        return tuple(size - a for size, a in zip(sizes, least))

    def forward(self, input: Tensor, output_size: Optional[Sequence[int]] = None) -> Tensor:
        conv = getattr(F, f"conv_transpose{self._dims}d")
        return conv(input, self.weight, self.bias, self.stride, self.padding, self._extra(input, output_size), self.groups, self.dilation)


_ConvTransposeMixin = _ConvTransposeNd  # torch's older name, which libraries ask for


class Conv1d(_Forward, dims=1):
    """Convolution of x [N, C, L], or without N; weight [out_channels, in_channels / groups, *kernel_size]; see ``_ConvNd``."""


class Conv2d(_Forward, dims=2):
    """Convolution of x [N, C, H, W], or without N; weight [out_channels, in_channels / groups, *kernel_size]; see ``_ConvNd``."""


class Conv3d(_Forward, dims=3):
    """Convolution of x [N, C, D, H, W], or without N; weight [out_channels, in_channels / groups, *kernel_size]; see ``_ConvNd``."""


class ConvTranspose1d(_ConvTransposeNd, dims=1):
    """Transposed convolution of x [N, C, L], or without N; weight [in_channels, out_channels / groups, *kernel_size]; see ``_ConvNd``."""


class ConvTranspose2d(_ConvTransposeNd, dims=2):
    """Transposed convolution of x [N, C, H, W], or without N; weight [in_channels, out_channels / groups, *kernel_size]; see ``_ConvNd``."""


class ConvTranspose3d(_ConvTransposeNd, dims=3):
    """Transposed convolution of x [N, C, D, H, W], or without N; weight [in_channels, out_channels / groups, *kernel_size]; see ``_ConvNd``."""
