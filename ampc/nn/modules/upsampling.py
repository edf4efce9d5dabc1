"""Upsampling modules."""

from __future__ import annotations

from typing import Any, Optional

from ..._C import Tensor
from .. import functional as F
from .module import Module


class Upsample(Module):
    """``F.interpolate`` to ``size`` or by ``scale_factor``; ``mode`` 'nearest', 'linear', 'bilinear', 'bicubic' or 'trilinear'."""

    def __init__(self, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Optional[bool] = None,
                 recompute_scale_factor: Optional[bool] = None) -> None:
        super().__init__()
        self.size, self.mode, self.align_corners, self.recompute_scale_factor = size, mode, align_corners, recompute_scale_factor
        self.scale_factor = tuple(float(s) for s in scale_factor) if isinstance(scale_factor, (tuple, list)) else scale_factor and float(scale_factor)

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)

    def extra_repr(self) -> str:
        how = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{how}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """[N, C, H, W] by the nearest value."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """[N, C, H, W] bilinearly, corners on corners."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
