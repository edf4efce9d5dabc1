"""Pixel shuffle and unshuffle, which move elements between channels and pixels."""

from __future__ import annotations

from ._function_module import FunctionModule

__all__ = ["PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(FunctionModule, function="pixel_shuffle"):
    """[N, C r^2, H, W] to [N, C, H r, W r] (Shi et al. 2016)."""

    upscale_factor: int


class PixelUnshuffle(FunctionModule, function="pixel_unshuffle"):
    """[N, C, H r, W r] to [N, C r^2, H, W]."""

    downscale_factor: int
