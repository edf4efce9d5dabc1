"""Padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Tuple, Union

from ..._C import Tensor
from ..._messages import checks as _checks
from .. import functional as F
from ._function_module import OfDims

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "ReflectionPad1d", "ReflectionPad2d",
    "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]


class _Pad(OfDims):
    """Widens the last dimensions: ``padding`` is one number for all sides, or (left, right), then (top, bottom), and so on."""

    _mode = "constant"

    def __init_subclass__(cls, mode: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._mode = mode or cls._mode

    def __init__(self, padding: Union[int, Sequence[int]]) -> None:
        super().__init__()
        self.padding: Tuple[int, ...] = tuple(_checks.each(padding, type(self).__name__, 2 * self._dims))
        if len(self.padding) != 2 * self._dims and (len(self.padding) % 2 or self._mode != "constant"):
            raise ValueError(f"{type(self).__name__}: `padding` must be one number or {2 * self._dims}, got {padding!r}")

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    def __init__(self, padding: Union[int, Sequence[int]], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Any:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd, dims=1):
    """With ``value``, in the last 1 dimension."""


class ConstantPad2d(_ConstantPadNd, dims=2):
    """With ``value``, in the last 2 dimensions."""


class ConstantPad3d(_ConstantPadNd, dims=3):
    """With ``value``, in the last 3 dimensions."""


class _Zeros(_ConstantPadNd):
    def __init__(self, padding: Union[int, Sequence[int]]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_Zeros, ConstantPad1d):
    """With zeros, in the last 1 dimension."""


class ZeroPad2d(_Zeros, ConstantPad2d):
    """With zeros, in the last 2 dimensions."""


class ZeroPad3d(_Zeros, ConstantPad3d):
    """With zeros, in the last 3 dimensions."""


class _ReflectionPadNd(_Pad, mode="reflect"):
    """See ``ReflectionPad1d`` and the others."""


class ReflectionPad1d(_ReflectionPadNd, dims=1):
    """With what lies as far inside, the edge left out, in the last 1 dimension."""


class ReflectionPad2d(_ReflectionPadNd, dims=2):
    """With what lies as far inside, the edge left out, in the last 2 dimensions."""


class ReflectionPad3d(_ReflectionPadNd, dims=3):
    """With what lies as far inside, the edge left out, in the last 3 dimensions."""


class _ReplicationPadNd(_Pad, mode="replicate"):
    """See ``ReplicationPad1d`` and the others."""


class ReplicationPad1d(_ReplicationPadNd, dims=1):
    """With the value at the edge, in the last 1 dimension."""


class ReplicationPad2d(_ReplicationPadNd, dims=2):
    """With the value at the edge, in the last 2 dimensions."""


class ReplicationPad3d(_ReplicationPadNd, dims=3):
    """With the value at the edge, in the last 3 dimensions."""


class _CircularPadNd(_Pad, mode="circular"):
    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (self._dims + 1, self._dims + 2):
            most = self._dims + 2
            raise ValueError(f"{type(self).__name__}: expected {most - 1} or {most} dimensions ([N,] C, ...), got shape {list(input.shape)}")
        return super().forward(input)


class CircularPad1d(_CircularPadNd, dims=1):
    """With what lies at the other end, in the last 1 dimension."""


class CircularPad2d(_CircularPadNd, dims=2):
    """With what lies at the other end, in the last 2 dimensions."""


class CircularPad3d(_CircularPadNd, dims=3):
    """With what lies at the other end, in the last 3 dimensions."""
