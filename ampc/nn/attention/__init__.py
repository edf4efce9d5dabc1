"""torch.nn.attention: which kernel computes attention. Here shapes and device choose it, and every choice gives the same numbers."""

from __future__ import annotations

from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Iterator

from ..._names.missing import absent_from

__all__ = ["SDPBackend", "WARN_FOR_UNFUSED_KERNELS", "sdpa_kernel"]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(IntEnum):
    """Names of torch's kernels."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Accepts SDPBackends, or a list of them. TypeError for anything else."""
    for b in backends if isinstance(backends, (list, tuple)) else [backends]:
        if not isinstance(b, SDPBackend):
            raise TypeError(f"sdpa_kernel: expected SDPBackend, got {type(b).__name__}")
    yield


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
