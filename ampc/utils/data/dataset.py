"""Datasets: collections of samples."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, List, Optional, Tuple, TypeVar, Union

from ..._C import Tensor
from ..._messages.callers import warn
from ..._names.place import shown_name
from ..._tensor import creation as make

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Samples by index. A subclass defines ``__getitem__`` and, for most samplers, ``__len__``. If it defines ``__getitems__``, that gets a
    list of indices. ``a + b`` concatenates datasets."""

    __module__ = shown_name(__name__)  # by which libraries know it

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], ABC):
    """Samples in a stream. A subclass defines ``__iter__``, and finds its part in a worker process by ``get_worker_info()``. TypeError for
    making one of a class that does not define it."""

    @abstractmethod
    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")

    def __add__(self, other: Dataset) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[Tuple[Tensor, ...]]):
    """Sample i has row i of each tensor. AssertionError if the numbers of rows differ."""

    def __init__(self, *tensors: Tensor) -> None:
        if any(t.shape[0] != tensors[0].shape[0] for t in tensors):
            raise AssertionError(f"TensorDataset: tensors have {[t.shape[0] for t in tensors]} rows; they must be equally many")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> Tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


class StackDataset(Dataset[Any]):
    """Sample i has sample i of each dataset: a tuple, or a dict of those given by name. ValueError for none, and where their lengths differ."""

    def __init__(self, *args: Dataset, **kwargs: Dataset) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset: " + ("give datasets by position or by name, not both" if args else "at least one dataset is needed"))
        self.datasets: Any = kwargs or args
        lengths = [len(d) for d in self._all()]  # type: ignore[arg-type]
        if len(set(lengths)) != 1:
            raise ValueError(f"StackDataset: the datasets have {lengths} samples; they must be equally many")
        self._length = lengths[0]

    def _all(self) -> List[Dataset]:
        return list(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets)

    def _together(self, samples: Iterable[Any]) -> Any:
        return dict(zip(self.datasets, samples)) if isinstance(self.datasets, dict) else tuple(samples)

    def __getitem__(self, index: Any) -> Any:
        return self._together(d[index] for d in self._all())

    def __getitems__(self, indices: List[int]) -> List[Any]:
        columns = []
        for d in self._all():
            many = getattr(d, "__getitems__", None)
            column = many(indices) if callable(many) else [d[i] for i in indices]
            if len(column) != len(indices):
                raise ValueError(f"StackDataset: a dataset's __getitems__ gave {len(column)} samples for {len(indices)} indices")
            columns.append(column)
        return [self._together(samples) for samples in zip(*columns)]

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T_co]):
    """One dataset after another. AssertionError for none, and for streams."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("ConcatDataset: there are no datasets")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset: an IterableDataset has no indices; use ChainDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> List[int]:
        """The lengths, added up one after the other."""
        return list(accumulate(map(len, sequence)))

    @property
    def cummulative_sizes(self) -> List[int]:
        """The older spelling of ``cumulative_sizes``, with a FutureWarning."""
        warn("ConcatDataset.cummulative_sizes is the older spelling of cumulative_sizes", FutureWarning)
        return self.cumulative_sizes

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        at = index + len(self) if index < 0 else index
        if at < 0:
            raise ValueError(f"ConcatDataset: index {index} of {len(self)} samples")
        if at >= len(self):
            raise IndexError(f"ConcatDataset: index {index} of {len(self)} samples")
        which = bisect_right(self.cumulative_sizes, at)
        return self.datasets[which][at - (self.cumulative_sizes[which - 1] if which else 0)]


class ChainDataset(IterableDataset[T_co]):
    """One stream after another."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = datasets

    def _streams(self) -> Iterator[IterableDataset]:
        for d in self.datasets:
            if not isinstance(d, IterableDataset):
                raise AssertionError(f"ChainDataset: expected IterableDatasets, got {type(d).__name__}")
            yield d

    def __iter__(self) -> Iterator[T_co]:
        for d in self._streams():
            yield from d

    def __len__(self) -> int:
        sizes: List[int] = [len(d) for d in self._streams()]  # type: ignore[arg-type]
        return sum(sizes)


class Subset(Dataset[T_co]):
    """The samples at ``indices`` of another dataset."""

    def __init__(self, dataset: Dataset, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[[self.indices[i] for i in index] if isinstance(index, list) else self.indices[index]]

    def __getitems__(self, indices: List[int]) -> List[Any]:
        many = getattr(self.dataset, "__getitems__", None)
        return [self.dataset[self.indices[i]] for i in indices] if many is None else many([self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Dataset, lengths: Sequence[Union[int, float]], generator: Optional[Any] = None) -> List[Subset]:
    """Splits a dataset at random. ``lengths`` are numbers of samples, or fractions that add up to 1. Samples that remain by rounding
    go to the first parts, with a warning for a part without samples. ValueError if the lengths do not add up."""
    n: int = len(dataset)  # type: ignore[arg-type]
    sizes = _sizes_of_fractions(lengths, n) if math.isclose(sum(lengths), 1) and sum(lengths) <= 1 else list(lengths)
    if sum(sizes) != n:
        raise ValueError(f"random_split: the lengths {list(lengths)} add up to {sum(sizes)}, the dataset has {n} samples")
    order = make.randperm(n, generator=generator).tolist()
    return [Subset(dataset, order[end - size:end]) for end, size in zip(accumulate(sizes), sizes)]


def _sizes_of_fractions(fractions: Sequence[float], n: int) -> List[int]:
    bad = [f for f in fractions if not 0 <= f <= 1]
    if bad:
        raise ValueError(f"random_split: fractions must be between 0 and 1, got {bad[0]}")
    sizes = [math.floor(n * f) for f in fractions]
    for i in range(n - sum(sizes)):
        sizes[i % len(sizes)] += 1
    empty = [i for i, size in enumerate(sizes) if size == 0]
    if empty:
        warn(f"random_split: of {n} samples, the parts {empty} have none")
    return sizes
