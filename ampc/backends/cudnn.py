"""Convolutions by cuDNN if it is found, else by im2col columns and cuBLASLt.

cuDNN always runs its implicit product, which gives the same numbers every time. So ``benchmark`` has no effect."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType
from typing import Iterator

from .. import _C


def is_available() -> bool:
    """Whether cuDNN 9 was found."""
    return version() is not None


def version() -> int | None:
    """Its version as one number, 91000 for 9.10.0; None where it was not found."""
    numbers = _C._cuda_note("cudnn").split(".")
    if not all(n.isdigit() for n in numbers):
        return None
    major, minor, patch = map(int, numbers)
    return major * 10000 + minor * 100 + patch


def is_acceptable(tensor: _C.Tensor) -> bool:
    """Whether convolutions of such a tensor may use cuDNN: it lies on a GPU, is floating point, and cuDNN was found and is not switched off."""
    return bool(_C._cuda_use_cudnn() and tensor.is_cuda and tensor.is_floating_point() and is_available())


def _switch(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"backends.cudnn.{name} must be a bool, got {type(value).__name__}")
    return value


@contextmanager
def flags(enabled: bool | None = False, benchmark: bool | None = False, benchmark_limit: int | None = 10, deterministic: bool | None = False,
          allow_tf32: bool | None = True, fp32_precision: str | None = "none") -> Iterator[None]:
    """Inside, ``enabled`` and ``allow_tf32`` are these, or stay as they are for None; the others change nothing, as ever."""
    before = _C._cuda_use_cudnn(), _C._cuda_convolution_tf32()
    if enabled is not None:
        _C._cuda_use_cudnn(_switch(enabled, "enabled"))
    if allow_tf32 is not None:
        _C._cuda_convolution_tf32(_switch(allow_tf32, "allow_tf32"))
    try:
        yield
    finally:
        _C._cuda_use_cudnn(before[0])
        _C._cuda_convolution_tf32(before[1])


class _Convolutions(ModuleType):
    @property
    def enabled(self) -> bool:
        """Whether convolutions may use cuDNN; True at first."""
        return _C._cuda_use_cudnn()

    @enabled.setter
    def enabled(self, on: bool) -> None:
        _C._cuda_use_cudnn(_switch(on, "enabled"))

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 convolutions may round their operands to TF32 (10 bits of mantissa); False at first, unlike torch's."""
        return _C._cuda_convolution_tf32()

    @allow_tf32.setter
    def allow_tf32(self, on: bool) -> None:
        _C._cuda_convolution_tf32(_switch(on, "allow_tf32"))

    @property
    def deterministic(self) -> bool:
        """True: the same numbers every time. False may be asked for and changes nothing."""
        return True

    @deterministic.setter
    def deterministic(self, on: bool) -> None:
        _switch(on, "deterministic")

    @property
    def benchmark(self) -> bool:
        """False: one algorithm is used, so none are tried out. True may be asked for and changes nothing."""
        return False

    @benchmark.setter
    def benchmark(self, on: bool) -> None:
        _switch(on, "benchmark")


sys.modules[__name__].__class__ = _Convolutions
