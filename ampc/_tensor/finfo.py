"""The limits of dtypes: ``finfo`` of floating point ones, ``iinfo`` of integers."""

from __future__ import annotations

import math
from typing import Any

from .. import _C
from .._C import Tensor, dtype
from .unsupported_dtypes import AbsentDtype

__all__ = ["finfo", "iinfo"]

_FORMATS = {  # binary digits with the hidden one, the largest number, the smallest normal one
    "float64": (53, (2.0 - 2.0**-52) * 2.0**1023, 2.0**-1022), "float32": (24, (2.0 - 2.0**-23) * 2.0**127, 2.0**-126),
    "bfloat16": (8, (2.0 - 2.0**-7) * 2.0**127, 2.0**-126), "float16": (11, 65504.0, 2.0**-14), "float8_e5m2": (3, 57344.0, 2.0**-14),
    "float8_e4m3fn": (4, 448.0, 2.0**-6), "float8_e4m3fnuz": (4, 240.0, 2.0**-7), "float8_e5m2fnuz": (3, 57344.0, 2.0**-15),
}


def _dtype_of(type: Any) -> Any:
    """The dtype that ``type`` is, or that of a tensor, as the array API has it."""
    return type.dtype if isinstance(type, Tensor) else type


class finfo:
    """Limits of a floating point dtype, or of a tensor's: ``bits eps max min tiny smallest_normal smallest_subnormal resolution digits``
    (decimal ones), and ``hardware``, what multiplies it here. ``ampc.formats`` has them side by side."""

    def __init__(self, type: Any = None) -> None:
        type = _C.get_default_dtype() if type is None else _dtype_of(type)
        if not isinstance(type, (dtype, AbsentDtype)) or not type.is_floating_point:
            raise TypeError(f"finfo: expected a floating point dtype, got {type}; use iinfo")
        digits, self.max, self.tiny = _FORMATS[type.name]
        self.dtype = type.name
        self.bits = 8 * type.itemsize
        self.eps = 2.0 ** (1 - digits)
        self.min, self.smallest_normal = -self.max, self.tiny
        self.smallest_subnormal = self.tiny * self.eps
        self.resolution = 10.0 ** -math.floor((digits - 1) * math.log10(2))
        self.digits = digits * math.log10(2)

    @property
    def hardware(self) -> str:
        """What multiplies it on this machine."""
        from ..formats import hardware_of

        return hardware_of(self.dtype)

    def __repr__(self) -> str:
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
                f"smallest_normal={self.tiny:g}, tiny={self.tiny:g}, dtype={self.dtype})")


class iinfo:
    """Limits of an integer dtype, or of a tensor's: ``bits max min``."""

    def __init__(self, type: Any) -> None:
        type = _dtype_of(type)
        if not isinstance(type, (dtype, AbsentDtype)) or type.is_floating_point or type == _C.bool:
            raise TypeError(f"iinfo: expected an integer dtype, got {type}; use finfo")
        self.dtype = type.name
        self.bits = 8 * type.itemsize
        self.min = -(2 ** (self.bits - 1)) if type.is_signed else 0
        self.max = 2 ** (self.bits - 1) - 1 if type.is_signed else 2**self.bits - 1

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
