"""Padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Tuple, Union

from ... import _checks
from ..._C import Tensor
from .. import functional as F
from .module import Module


class _Pad(Module):
    """Widens the last dimensions: ``padding`` is one number for all sides, or (left, right), then (top, bottom), and so on."""

    _dims = 0
    _mode = "constant"

    def __init__(self, padding: Union[int, Sequence[int]]) -> None:
        super().__init__()
        self.padding: Tuple[int, ...] = tuple(_checks.each(padding, type(self).__name__, 2 * self._dims))
        if len(self.padding) != 2 * self._dims:
            raise ValueError(f"{type(self).__name__}: `padding` must be one number or {2 * self._dims}, got {padding!r}")

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: Union[int, Sequence[int]], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Any:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """With ``value``, in the last 1 dimension."""

    _dims = 1


class ConstantPad2d(_ConstantPad):
    """With ``value``, in the last 2 dimensions."""

    _dims = 2


class ConstantPad3d(_ConstantPad):
    """With ``value``, in the last 3 dimensions."""

    _dims = 3


class ZeroPad1d(_Pad):
    """With zeros, in the last 1 dimension."""

    _dims, _mode = 1, "constant"


class ZeroPad2d(_Pad):
    """With zeros, in the last 2 dimensions."""

    _dims, _mode = 2, "constant"


class ZeroPad3d(_Pad):
    """With zeros, in the last 3 dimensions."""

    _dims, _mode = 3, "constant"


class ReflectionPad1d(_Pad):
    """With what lies as far inside, the edge left out, in the last 1 dimension."""

    _dims, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """With what lies as far inside, the edge left out, in the last 2 dimensions."""

    _dims, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """With what lies as far inside, the edge left out, in the last 3 dimensions."""

    _dims, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """With the value at the edge, in the last 1 dimension."""

    _dims, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """With the value at the edge, in the last 2 dimensions."""

    _dims, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """With the value at the edge, in the last 3 dimensions."""

    _dims, _mode = 3, "replicate"


class _CircularPad(_Pad):
    _mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (self._dims + 1, self._dims + 2):
            most = self._dims + 2
            raise ValueError(f"{type(self).__name__}: expected {most - 1} or {most} dimensions ([N,] C, ...), got shape {list(input.shape)}")
        return super().forward(input)


class CircularPad1d(_CircularPad):
    """With what lies at the other end, in the last 1 dimension."""

    _dims = 1


class CircularPad2d(_CircularPad):
    """With what lies at the other end, in the last 2 dimensions."""

    _dims = 2


class CircularPad3d(_CircularPad):
    """With what lies at the other end, in the last 3 dimensions."""

    _dims = 3
