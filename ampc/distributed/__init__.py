"""torch.distributed for one process: questions about the group are answered; communication raises an error."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["ReduceOp", "all_gather", "all_reduce", "barrier", "broadcast", "destroy_process_group", "get_rank", "get_world_size",
           "init_process_group", "is_available", "is_initialized", "is_torchelastic_launched"]


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


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    """RuntimeError: training in several processes is not there yet."""
    raise RuntimeError("training in several processes is not there yet; run one process, without torch.distributed")


init_process_group = destroy_process_group = all_reduce = all_gather = broadcast = barrier = _refuse


class ReduceOp:
    """Names of reductions."""

    SUM, AVG, PRODUCT, MIN, MAX = range(5)
