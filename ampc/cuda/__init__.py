"""CUDA. This build computes on the CPU: what asks about devices says there are none, what waits or
frees does nothing, and memory statistics count the CPU's tensors, so that timing helpers keep working."""

from __future__ import annotations

from typing import Any

from .. import _C
from . import amp


def is_available() -> bool:
    """False: this build has no CUDA backend."""
    return False


def device_count() -> int:
    """0"""
    return 0


def is_bf16_supported() -> bool:
    """False without a device."""
    return False


def synchronize(device: Any = None) -> None:
    """Nothing to wait for."""


def empty_cache() -> None:
    """Gives cached memory back to the system."""
    _C._memory_trim()


def memory_allocated(device: Any = None) -> int:
    """Bytes of live tensor data (on the CPU)."""
    return _C._memory()["current"]


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes of tensor data that were live at once."""
    return _C._memory()["peak"]


def reset_peak_memory_stats(device: Any = None) -> None:
    """Starts max_memory_allocated again from now."""
    _C._memory_reset_peak()


reset_max_memory_allocated = reset_peak_memory_stats


def manual_seed(seed: int) -> None:
    """Seeds the random stream."""
    _C.manual_seed(seed)


manual_seed_all = manual_seed

__all__ = ["amp", "device_count", "empty_cache", "is_available", "is_bf16_supported", "manual_seed", "manual_seed_all",
           "max_memory_allocated", "memory_allocated", "reset_max_memory_allocated", "reset_peak_memory_stats", "synchronize"]
