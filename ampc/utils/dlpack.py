"""Tensors shared with other libraries by DLPack, under torch.utils.dlpack's names."""

from __future__ import annotations

import enum
from typing import Any

from .._tensor.interop import from_dlpack

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]


class DLDeviceType(enum.IntEnum):
    """The numbers of DLPack's kinds of device. ampc has tensors of kDLCPU and kDLCUDA."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17


def to_dlpack(tensor: Any) -> Any:
    """A capsule with the tensor's memory, which one library can take once. from_dlpack takes tensors themselves, too."""
    return tensor.__dlpack__()
