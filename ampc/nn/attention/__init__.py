"""torch.nn.attention: which kernel computes attention. Here shapes and device choose it, and every choice gives the same numbers."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Iterator, List

from ..._names.missing import absent_from
from ...backends import cuda
from ...backends.cuda import SDPBackend

__all__ = ["SDPBackend", "WARN_FOR_UNFUSED_KERNELS", "sdpa_kernel"]

WARN_FOR_UNFUSED_KERNELS = False


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Within it ``backends``, an SDPBackend or a list of them, are the kernels that scripts allow, as ``backends.cuda.flash_sdp_enabled()`` and
    its siblings tell; ``set_priority``: the first one is preferred. AssertionError for anything else."""
    wanted = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(wanted, (list, tuple)) or not all(isinstance(b, SDPBackend) for b in wanted):
        raise AssertionError(f"sdpa_kernel: expected an SDPBackend or a list of them, got {backends!r}")
    before = _cur_sdpa_kernel_backends(set_priority)
    cuda._allow(wanted, set_priority)
    try:
        yield
    finally:
        cuda._allow(before, set_priority)


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> List[SDPBackend]:
    """The kernels that ``sdpa_kernel`` allows; ``with_priority``: the one to prefer first."""
    return [b for b in (cuda._priority if with_priority else cuda._SHOWN) if b in cuda._allowed]


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
