"""Upsampling modules."""

from __future__ import annotations

from typing import Any, Optional

from ._function_module import FunctionModule

__all__ = ["Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]


class Upsample(FunctionModule, function="interpolate"):
    """``F.interpolate`` to ``size`` or by ``scale_factor``; ``mode`` 'nearest', 'linear', 'bilinear', 'bicubic' or 'trilinear'."""

    size: Any = None
    scale_factor: Any = None
    mode: str = "nearest"
    align_corners: Optional[bool] = None
    recompute_scale_factor: Optional[bool] = None

    def __post_init__(self) -> None:
        if isinstance(self.scale_factor, (tuple, list)):
            self.scale_factor = tuple(float(s) for s in self.scale_factor)
        else:
            self.scale_factor = self.scale_factor and float(self.scale_factor)

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
