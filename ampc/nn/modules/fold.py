"""Unfold and Fold: windows to columns (im2col) and back (col2im)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from ._function_module import FunctionModule

__all__ = ["Fold", "Unfold"]

_Sizes = Union[int, Sequence[int]]


class Unfold(FunctionModule, function="unfold"):
    """The windows of [N, C, H, W] as columns [N, C times a window's values, windows]."""

    kernel_size: _Sizes
    dilation: _Sizes = 1
    padding: _Sizes = 0
    stride: _Sizes = 1


class Fold(FunctionModule, function="fold"):
    """Columns added up where their windows lie in [N, C, *output_size]."""

    output_size: _Sizes
    kernel_size: _Sizes
    dilation: _Sizes = 1
    padding: _Sizes = 0
    stride: _Sizes = 1
