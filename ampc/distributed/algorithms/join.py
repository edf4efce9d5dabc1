"""Ranks with different numbers of batches: within ``Join``, a rank that has no more batches takes part in the others' collectives.
Source: torch.distributed.algorithms.join."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional

from ..._names.missing import absent_from
from ..._tensor import creation as make
from ..collectives import all_reduce
from ..groups import get_rank
from ..work import Work

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """What a rank without more batches does for one ``Joinable``."""

    def main_hook(self) -> None:
        """Takes part in the collectives of one iteration of the others: forward, backward and step."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Runs once when no rank has more batches. ``is_last_joiner``: whether this rank is one of the last."""


class _JoinConfig(NamedTuple):
    """What a Joinable knows of the Join that it is in."""

    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool


class Joinable(ABC):
    """What can be in a ``Join``. It calls ``Join.notify_join_context(self)`` before the collectives of each iteration."""

    _join_config = _JoinConfig(False, False, False)

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join_config = _JoinConfig(False, False, False)

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Its hook. ``kwargs`` are those of the Join, the same for all."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """The device of the tensors by which the ranks tell each other who has joined."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The group of processes."""


class Join:
    """A context for training loops with different numbers of batches on the ranks.

    Args:
        joinables: what takes part, such as a DistributedDataParallel and a ZeroRedundancyOptimizer, in the order of their collectives.
        enable: False: the context has no effect.
        throw_on_early_termination: a rank without more batches raises a RuntimeError, and so do all others in their next iteration.
        kwargs: handed to each ``join_hook``.

    ValueError without joinables, and for joinables of several groups."""

    def __init__(self, joinables: List[Joinable], enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any) -> None:
        if not joinables:
            raise ValueError("Join: `joinables` must have at least one")
        self._joinables, self._enable, self._throws = list(joinables), enable, throw_on_early_termination
        self._hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        for i, joinable in enumerate(joinables):
            joinable._join_config = _JoinConfig(enable, throw_on_early_termination, i == 0)
        self._group = joinables[0].join_process_group
        if any(joinable.join_process_group is not self._group for joinable in joinables):
            raise ValueError("Join: the joinables must be of one process group")
        self._device = joinables[0].join_device

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if self._enable and kind is None:
                self._take_part()
        finally:
            for joinable in self._joinables:
                joinable._join_config = _JoinConfig(False, False, False)

    def _take_part(self) -> None:
        iterations = 0
        while self._sum(0.0):
            if self._throws:
                self._sum(1.0)
                raise RuntimeError(f"Join: rank {get_rank(self._group)} has no more inputs, and other ranks have")
            for hook in self._hooks:
                hook.main_hook()
            iterations += 1
        for hook in self._hooks:
            hook.post_hook(iterations == 0)

    def _sum(self, value: float) -> float:
        t = make.full((1,), value, device=self._device)
        all_reduce(t, group=self._group)
        return t.item()

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Optional[Work]:
        """Tells the other ranks that this one has another batch. Of several joinables only the first tells it.

        Returns the Work of the message, whose result is the number of ranks that have another batch; None where nothing was sent.
        RuntimeError where a rank has no more and ``throw_on_early_termination`` is set."""
        config = joinable._join_config
        if not config.enable or not config.is_first_joinable:
            return None
        group, device = joinable.join_process_group, joinable.join_device
        work = all_reduce(make.ones(1, device=device), group=group, async_op=True)
        if config.throw_on_early_termination:
            ended = make.zeros(1, device=device)
            assert work is not None
            work.wait()
            if work.result()[0].item() < len(group.ranks):  # those that have joined send one message more
                all_reduce(ended, group=group)
            if ended.item():
                raise RuntimeError("Join: at least one rank has no more inputs, so all stop")
        return work


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
