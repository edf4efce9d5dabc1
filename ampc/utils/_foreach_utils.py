"""Lists of tensors by device and dtype: torch.utils._foreach_utils, which optimizers ask before they use _foreach_*."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, List, Optional

from .._C import Tensor
from .._tensor.grouping import _group_tensors_by_device_and_dtype  # noqa: F401

_foreach_supported_types = [Tensor]


def _get_foreach_kernels_supported_devices() -> List[str]:
    """The kinds of device for which optimizers use _foreach_* unless told otherwise."""
    return ["cuda"]


def _get_fused_kernels_supported_devices() -> List[str]:
    """The kinds of device on which a whole step of an optimizer is one call: all."""
    return ["cuda", "cpu"]


def _device_has_foreach_support(device: Any) -> bool:
    """Whether _foreach_* take tensors of that device: those of every device that there is."""
    return device.type in ("cpu", "cuda")


def _has_foreach_support(tensors: Sequence[Optional[Tensor]], device: Any) -> bool:
    """The same, of tensors that are of no subclass."""
    return _device_has_foreach_support(device) and all(t is None or type(t) in _foreach_supported_types for t in tensors)
