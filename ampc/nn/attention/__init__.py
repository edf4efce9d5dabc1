"""torch.nn.attention: which kernel computes attention. Here shapes and device choose it, and every choice gives the same numbers."""

from __future__ import annotations

from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Iterator, List

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


# Those that scripts have allowed, the one to prefer first; and the order in which they are shown.
_DEFAULT = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION, SDPBackend.OVERRIDEABLE]
_SHOWN = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH, SDPBackend.OVERRIDEABLE]
_allowed = _DEFAULT


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Accepts SDPBackends, or a list of them. TypeError for anything else."""
    global _allowed
    wanted = list(backends) if isinstance(backends, (list, tuple)) else [backends]
    for b in wanted:
        if not isinstance(b, SDPBackend):
            raise TypeError(f"sdpa_kernel: expected SDPBackend, got {type(b).__name__}")
    before, _allowed = _allowed, wanted if set_priority else [b for b in _DEFAULT if b in wanted]
    try:
        yield
    finally:
        _allowed = before


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> List[SDPBackend]:
    """The kernels that ``sdpa_kernel`` allows; ``with_priority``: the one to prefer first."""
    return list(_allowed) if with_priority else [b for b in _SHOWN if b in _allowed]


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
