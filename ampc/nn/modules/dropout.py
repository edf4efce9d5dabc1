"""Dropout (Srivastava et al. 2014)."""

from __future__ import annotations

from typing import Any, ClassVar

from ..._C import Tensor
from .. import functional as F
from ._function_module import FunctionModule

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _DropoutNd(FunctionModule, function=""):
    """Base: ``p``, the probability that something is zeroed when training, and ``inplace``. ValueError for p outside [0, 1]."""

    p: float = 0.5
    inplace: bool = False
    _shown: ClassVar[Any] = ("p", "inplace")

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise ValueError(f"{type(self).__name__}: `p` must be between 0 and 1, got {self.p}")

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self._function)(input, self.p, self.training, self.inplace)


class Dropout(_DropoutNd, function="dropout"):
    """Zeroes elements with probability ``p`` when training."""


class Dropout1d(_DropoutNd, function="dropout1d"):
    """Zeroes whole channels of [N, C, L] or [C, L] with probability ``p`` when training."""


class Dropout2d(_DropoutNd, function="dropout2d"):
    """Zeroes whole channels of [N, C, H, W] with probability ``p`` when training. Of [N, C] it zeroes elements."""


class Dropout3d(_DropoutNd, function="dropout3d"):
    """Zeroes whole channels of [N, C, D, H, W] with probability ``p`` when training; of other ranks those of one sample, [C, ...]."""


class AlphaDropout(_DropoutNd, function="alpha_dropout"):
    """Sets elements to SELU's limit, keeping mean and variance (Klambauer et al. 2017) with probability ``p`` when training."""


class FeatureAlphaDropout(_DropoutNd, function="feature_alpha_dropout"):
    """AlphaDropout of whole channels of x [N, C, ...]."""
