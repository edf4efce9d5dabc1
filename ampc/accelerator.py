"""The accelerator of this machine: CUDA, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional, Union

from . import _C, cuda
from ._names.missing import absent_from
from ._tensor.device import device
from .cuda import (
    current_stream,
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_peak_memory_stats,
    set_stream,
    synchronize,
)
from .cuda import device_count as _count

__all__ = ["current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count", "device_index", "empty_cache",
           "get_memory_info", "is_available", "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats",
           "reset_peak_memory_stats", "set_device_idx", "set_device_index", "set_stream", "synchronize"]


def current_accelerator(check_available: bool = False) -> Optional[device]:
    """device('cuda'), or None where there is no GPU that can be used."""
    return device("cuda") if cuda.is_available() else None


def is_available() -> bool:
    """Whether there is an accelerator."""
    return cuda.is_available()


def device_count() -> int:
    """How many."""
    return _count()


def current_device_index() -> int:
    """The number of the one that 'cuda' means."""
    return cuda.current_device()


def set_device_index(where: Union[int, str, device, None]) -> None:
    """Makes 'cuda' mean this one."""
    if where is not None:
        cuda.set_device(where)


current_device_idx, set_device_idx = current_device_index, set_device_index


class device_index(_C.Scope):
    """Inside, 'cuda' means this GPU; None changes nothing."""

    def __init__(self, device: Optional[int], /) -> None:
        self.index = device

    def _changes(self) -> tuple:
        return () if self.index is None else cuda.device(self.index)._changes()


def get_memory_info(where: Any = None) -> Dict[str, int]:
    """Free and total bytes of the GPU's memory."""
    return dict(zip(("free", "total"), cuda.mem_get_info(where)))


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
