"""What this process has for NCCL."""

from __future__ import annotations

from typing import Any

from .. import _C


def why_no_nccl() -> str:
    """Why NCCL cannot be used in this process; '' where it can."""
    try:
        _C._nccl_version()
    except RuntimeError as error:
        return str(error)
    return ""


def number_of_gpu(device_ids: Any = None) -> int:
    """Of the GPU that is named, or of the current one."""
    from ..cuda import current_device

    return int(device_ids[0]) if device_ids else current_device()
