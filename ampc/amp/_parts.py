"""Gradients that are parts of tensors that processes share out. ``ampc.distributed.tensor`` knows the other parts, and says here how they count."""

from __future__ import annotations

from typing import Any, Callable, List, Optional

from .._C import Tensor
from ._ledger import GradStats

_known: List[Any] = []  # the functions of join_by(), once it was called


def join_by(stats: Callable[[List[Tensor], GradStats], GradStats], norm: Callable[[List[Tensor], float], float]) -> None:
    """Takes what joins the statistics of gradients, and what gives their norm of an order, over the processes."""
    _known[:] = [stats, norm]


def _are_there(tensors: List[Tensor]) -> bool:
    return bool(_known) and any(hasattr(type(t), "device_mesh") for t in tensors)


def stats_of_all(grads: List[Tensor], stats: GradStats) -> GradStats:
    """The statistics of gradients, with those of the other processes' parts, so that all skip the same step."""
    return _known[0](grads, stats) if _are_there(grads) else stats


def norm_of_all(tensors: List[Tensor], norm_type: float) -> Optional[float]:
    """The norm of tensors of which some are parts; None where none is."""
    return _known[1](tensors, norm_type) if _are_there(tensors) else None
