"""Buckets: gradients of several parameters, which travel in one message."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Dict, List, Sequence

from ... import _C
from ..._C import Tensor
from ..._tensor import creation as make


class Bucket:
    """Parameters by their numbers, and once it is asked for a row with a view for each one's gradient."""

    def __init__(self, index: int, numbers: List[int], parameters: Sequence[Tensor]) -> None:
        self.index, self.numbers = index, numbers
        self.parameters = [parameters[i] for i in numbers]
        self.place = {number: i for i, number in enumerate(numbers)}
        self.waits = set(numbers)  # for these gradients
        self.own: Dict[int, Tensor] = {}  # what is averaged in place, of the parameters whose gradient has come
        self.sent: List[Tensor] = []  # what travels for each parameter, and has the average then
        self.work: Any = None  # a Work or Future of the message

    @cached_property
    def row(self) -> Tensor:
        """Memory for all gradients."""
        first = self.parameters[0]
        return make.zeros(sum(p.numel() for p in self.parameters), dtype=first.dtype, device=first.device)

    @cached_property
    def views(self) -> List[Tensor]:
        """Parts of the row with the parameters' shapes."""
        return views_of(self.row, self.parameters)


def views_of(row: Tensor, parameters: Sequence[Tensor]) -> List[Tensor]:
    """Parts of the row with the parameters' shapes. Each is a storage of its own on that memory: a write to one is none to the others."""
    views, begin, storage = [], 0, row.untyped_storage()
    for p in parameters:
        end = begin + p.numel() * p.element_size()
        empty = make.empty(p.shape, dtype=p.dtype, device="meta")
        views.append(_C._storage_tensor(storage[begin:end], p.dtype, 0, tuple(p.shape), empty.stride()))
        begin = end
    return views


class GradBucket:
    """What a communication hook gets: the gradients of a bucket."""

    def __init__(self, bucket: Bucket, is_last: bool) -> None:
        self._bucket, self._is_last = bucket, is_last

    def index(self) -> int:
        """Its number, in the order of messages."""
        return self._bucket.index

    def buffer(self) -> Tensor:
        """All gradients in a row: this process' own, neither summed nor divided."""
        return self._bucket.row

    def gradients(self) -> List[Tensor]:
        """Views of the row with the parameters' shapes."""
        return list(self._bucket.views)

    def parameters(self) -> List[Tensor]:
        """The parameters."""
        return list(self._bucket.parameters)

    def is_last(self) -> bool:
        """Whether it is the last one of a backward pass."""
        return self._is_last

    def set_buffer(self, buffer: Tensor) -> None:
        """Writes other values into the row."""
        self._bucket.row.copy_(buffer.reshape(-1))


def make_buckets(order: Sequence[int], parameters: Sequence[Tensor], limits: Sequence[int]) -> List[Bucket]:
    """Buckets of at most so many bytes each, those after the last limit of as many as that, in the given order of parameters; one dtype and device
    each."""
    lists: List[List[int]] = []
    open_: Dict[Any, int] = {}  # the last bucket of a kind
    used: Dict[Any, int] = {}
    for number in order:
        p = parameters[number]
        key, size = (p.dtype, p.device), p.numel() * p.element_size()
        if key not in open_ or used[key] + size > limits[min(open_[key], len(limits) - 1)]:
            open_[key], used[key] = len(lists), 0
            lists.append([])
        lists[open_[key]].append(number)
        used[key] += size
    return [Bucket(i, numbers, parameters) for i, numbers in enumerate(lists)]
