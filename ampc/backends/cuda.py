"""Settings of the CUDA backend."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Iterator, NamedTuple, Optional

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


# -- attention: one way, whose kernels are chosen by the shapes; these say so --


def flash_sdp_enabled() -> bool:
    """False: no flash attention kernel of a library is used."""
    return False


def mem_efficient_sdp_enabled() -> bool:
    """False."""
    return False


def cudnn_sdp_enabled() -> bool:
    """False."""
    return False


def math_sdp_enabled() -> bool:
    """True: attention is made of its parts on a GPU."""
    return True


class SDPAParams(NamedTuple):
    """The arguments of one call of ``scaled_dot_product_attention``, as ``can_use_flash_attention`` and its siblings take them."""

    query: _C.Tensor
    key: _C.Tensor
    value: _C.Tensor
    attn_mask: Optional[_C.Tensor]
    dropout: float
    is_causal: bool
    enable_gqa: bool


def _leave(enabled: bool) -> None:
    """Accepted; there is one way of attention on a GPU."""


enable_flash_sdp = enable_mem_efficient_sdp = enable_math_sdp = enable_cudnn_sdp = _leave


@contextmanager
def sdp_kernel(enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True) -> Iterator[None]:
    """Accepted; there is one way of attention on a GPU."""
    yield


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
