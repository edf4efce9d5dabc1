"""A sampler for training in several processes."""

from __future__ import annotations

from typing import Any, Iterator, List, Optional

from ..._events import announce
from ..._tensor import creation as make
from ...distributed.groups import get_rank, get_world_size
from .sampler import Sampler


class DistributedSampler(Sampler):
    """The indices of a dataset that belong to process ``rank`` of ``num_replicas``.

    They are every ``num_replicas``-th index of a permutation by ``seed`` and `set_epoch`, or in order without ``shuffle``. All processes
    get the same number: indices from the beginning are repeated, or the last ones dropped with ``drop_last``. ValueError for a rank
    outside the range.

    ``num_replicas`` and ``rank`` are by default those of the group of all processes; ValueError without one."""

    def __init__(self, dataset: Any, num_replicas: Optional[int] = None, rank: Optional[int] = None, shuffle: bool = True, seed: int = 0,
                 drop_last: bool = False) -> None:
        self.num_replicas, self.rank = get_world_size() if num_replicas is None else num_replicas, get_rank() if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"DistributedSampler: `rank` must be in [0, {self.num_replicas}), got {self.rank}")
        self.dataset, self.shuffle, self.seed, self.drop_last, self.epoch = dataset, shuffle, seed, drop_last, 0
        self.told = False  # the epoch, since the last pass
        self._ever_told, self._passes = False, 0
        n, each = len(dataset), self.num_replicas
        self.num_samples = n // each if drop_last else -(-n // each)
        self.total_size = self.num_samples * each

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        if self.num_replicas > 1:
            announce.order_begins(self, self.shuffle and self._passes > 0 and not self._ever_told)
        self.told, self._passes = False, self._passes + 1
        if self.shuffle:
            order = make.randperm(n, generator=make.Generator().manual_seed(self.seed + self.epoch)).tolist()
        else:
            order = list(range(n))
        while order and len(order) < self.total_size:
            order += order[:self.total_size - len(order)]
        return self._served(order[self.rank:self.total_size:self.num_replicas])

    def _served(self, indices: List[int]) -> Iterator[int]:
        yield from indices
        announce.order_ends(self)

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Another permutation for each epoch."""
        self.epoch, self.told, self._ever_told = epoch, True, True
