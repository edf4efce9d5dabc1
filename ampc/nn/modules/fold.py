"""Unfold and Fold: windows to columns (im2col) and back (col2im)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from ..._C import Tensor
from .. import functional as F
from .module import Module

_Sizes = Union[int, Sequence[int]]


class Unfold(Module):
    """The windows of [N, C, H, W] as columns [N, C times a window's values, windows]."""

    def __init__(self, kernel_size: _Sizes, dilation: _Sizes = 1, padding: _Sizes = 0, stride: _Sizes = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Fold(Module):
    """Columns added up where their windows lie in [N, C, *output_size]."""

    def __init__(self, output_size: _Sizes, kernel_size: _Sizes, dilation: _Sizes = 1, padding: _Sizes = 0, stride: _Sizes = 1) -> None:
        super().__init__()
        self.output_size, self.kernel_size, self.dilation, self.padding, self.stride = output_size, kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
                f"stride={self.stride}")
