"""Settings of the CUDA backend."""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Iterable, Iterator, NamedTuple, Optional

from .. import _C
from .._names.missing import absent_from


def is_built() -> bool:
    """Whether this build has GPU code."""
    return _C._cuda_note("kernels").startswith("built")


class _Products:
    """Matrix products on GPUs."""

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 products may round their operands to TF32 (10 bits of mantissa), which tensor cores multiply several
        times as fast; False at first, as in torch."""
        return _C._cuda_allow_tf32()

    @allow_tf32.setter
    def allow_tf32(self, on: bool) -> None:
        if not isinstance(on, bool):
            raise TypeError(f"allow_tf32 must be a bool, got {type(on).__name__}")
        _C._cuda_allow_tf32(on)

    @property
    def allow_fp16_reduced_precision_reduction(self) -> bool:
        """False: products of 16-bit types are added up in float32. Setting it gives a leave that is not taken."""
        return False

    @allow_fp16_reduced_precision_reduction.setter
    def allow_fp16_reduced_precision_reduction(self, on: object) -> None:
        pass

    allow_bf16_reduced_precision_reduction = allow_fp16_reduced_precision_reduction
    allow_fp16_accumulation = allow_fp16_reduced_precision_reduction


matmul = _Products()


# -- attention: shapes and device choose its kernel, and every choice gives the same numbers; so what is allowed here is only remembered --


class SDPBackend(IntEnum):
    """Names of torch's kernels of attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    __str__ = Enum.__str__


# In the order in which allowed ones are shown, and the one to prefer first.
_SHOWN = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH, SDPBackend.OVERRIDEABLE]
_priority = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION, SDPBackend.OVERRIDEABLE]
_allowed = set(_SHOWN)


def _allow(backends: Iterable[SDPBackend], set_priority: bool) -> None:
    """These kernels alone; ``set_priority``: the first of them first."""
    first = list(backends)
    _allowed.clear()
    _allowed.update(first)
    if set_priority:
        _priority.sort(key=lambda b: first.index(b) if b in first else len(first))


def _switch(backend: SDPBackend, enabled: bool) -> None:
    if not isinstance(enabled, bool):
        raise TypeError(f"{backend}: `enabled` must be a bool, got {type(enabled).__name__}")
    (_allowed.add if enabled else _allowed.discard)(backend)


def flash_sdp_enabled() -> bool:
    """Whether scripts allow torch's kernel FLASH_ATTENTION: True at first. What computes attention does not depend on it."""
    return SDPBackend.FLASH_ATTENTION in _allowed


def mem_efficient_sdp_enabled() -> bool:
    """The same of EFFICIENT_ATTENTION."""
    return SDPBackend.EFFICIENT_ATTENTION in _allowed


def cudnn_sdp_enabled() -> bool:
    """The same of CUDNN_ATTENTION."""
    return SDPBackend.CUDNN_ATTENTION in _allowed


def math_sdp_enabled() -> bool:
    """The same of MATH."""
    return SDPBackend.MATH in _allowed


def enable_flash_sdp(enabled: bool) -> None:
    """Says what ``flash_sdp_enabled()`` answers. TypeError for anything but a bool."""
    _switch(SDPBackend.FLASH_ATTENTION, enabled)


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Says what ``mem_efficient_sdp_enabled()`` answers."""
    _switch(SDPBackend.EFFICIENT_ATTENTION, enabled)


def enable_cudnn_sdp(enabled: bool) -> None:
    """Says what ``cudnn_sdp_enabled()`` answers."""
    _switch(SDPBackend.CUDNN_ATTENTION, enabled)


def enable_math_sdp(enabled: bool) -> None:
    """Says what ``math_sdp_enabled()`` answers."""
    _switch(SDPBackend.MATH, enabled)


class SDPAParams(NamedTuple):
    """The arguments of one call of ``scaled_dot_product_attention``, as ``can_use_flash_attention`` and its siblings take them."""

    query: _C.Tensor
    key: _C.Tensor
    value: _C.Tensor
    attn_mask: Optional[_C.Tensor]
    dropout: float
    is_causal: bool
    enable_gqa: bool


@contextmanager
def sdp_kernel(enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True) -> Iterator[None]:
    """``nn.attention.sdpa_kernel`` of the kernels that are enabled: torch's older form."""
    wanted = {SDPBackend.FLASH_ATTENTION: enable_flash, SDPBackend.MATH: enable_math, SDPBackend.EFFICIENT_ATTENTION: enable_mem_efficient,
              SDPBackend.CUDNN_ATTENTION: enable_cudnn}
    before = list(_allowed)
    _allow([b for b, on in wanted.items() if on], False)
    try:
        yield
    finally:
        _allow(before, False)


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
