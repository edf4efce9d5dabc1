"""torch.distributed for one process: questions about the group are answered; communication raises an error (see the table in _library_names)."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from .._missing import absent_from

__all__ = ["ReduceOp", "get_rank", "get_world_size", "is_available", "is_initialized", "is_torchelastic_launched"]


def is_available() -> bool:
    """False."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def is_torchelastic_launched() -> bool:
    """False."""
    return False


def get_rank(group: Any = None) -> int:
    """0"""
    return 0


def get_world_size(group: Any = None) -> int:
    """1"""
    return 1


class _Reduction(IntEnum):
    """Reductions."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR = range(8)


class ReduceOp:
    """Names of reductions."""

    RedOpType = _Reduction
    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR = _Reduction


__getattr__ = absent_from(__name__)
