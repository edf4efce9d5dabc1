"""Optimizers of several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._names.missing import absent_from
from .zero_redundancy_optimizer import ZeroRedundancyOptimizer

__all__ = ["ZeroRedundancyOptimizer"]

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
