"""Switches of the CUDA backend."""

from __future__ import annotations

from .. import _C


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


matmul = _Products()
