"""Distances and similarities."""

from __future__ import annotations

from typing import Any, ClassVar

from ..._C import Tensor
from .. import functional as F
from ._function_module import FunctionModule
from .module import Module

__all__ = ["CosineSimilarity", "PairwiseDistance"]


class PairwiseDistance(Module):
    """The norm of order ``p`` of x1 - x2 + eps along the last dimension."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(FunctionModule, function="cosine_similarity"):
    """x1 . x2 / (|x1| |x2|) along ``dim``."""

    dim: int = 1
    eps: float = 1e-8
    _shown: ClassVar[Any] = ()

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:  # type: ignore[override]
        return self._call(x1, x2)
