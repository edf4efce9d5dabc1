"""Datasets: collections of samples."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, List, Optional, Tuple, TypeVar, Union

from ... import _creation as make
from ..._C import Tensor

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Samples by index. A subclass defines ``__getitem__`` and, for most samplers, ``__len__``. If it defines ``__getitems__``, that gets a
    list of indices. ``a + b`` concatenates datasets."""

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Samples in a stream. A subclass defines ``__iter__``, and finds its part in a worker process by ``get_worker_info()``."""

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
        self.cumulative_sizes: List[int] = list(accumulate(len(d) for d in self.datasets))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"ConcatDataset: index {index} of {len(self)} samples")
        which = bisect_right(self.cumulative_sizes, at)
        return self.datasets[which][at - (self.cumulative_sizes[which - 1] if which else 0)]


class ChainDataset(IterableDataset[T_co]):
    """One stream after another."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[T_co]:
        for d in self.datasets:
            if not isinstance(d, IterableDataset):
                raise AssertionError(f"ChainDataset: expected IterableDatasets, got {type(d).__name__}")
            yield from d

    def __len__(self) -> int:
        sizes: List[int] = [len(d) for d in self.datasets]  # type: ignore[arg-type]
        return sum(sizes)


class Subset(Dataset[T_co]):
    """The samples at ``indices`` of another dataset."""

    def __init__(self, dataset: Dataset, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[[self.indices[i] for i in index] if isinstance(index, list) else self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Dataset, lengths: Sequence[Union[int, float]], generator: Optional[Any] = None) -> List[Subset]:
    """Splits a dataset at random. ``lengths`` are numbers of samples, or fractions that add up to 1. Samples that remain by rounding
    go to the first parts. ValueError if the lengths do not add up."""
    n: int = len(dataset)  # type: ignore[arg-type]
    sizes = list(lengths)
    if math.isclose(sum(sizes), 1) and all(0 <= s <= 1 for s in sizes):
        parts = [math.floor(n * s) for s in sizes]
        for i in range(n - sum(parts)):
            parts[i % len(parts)] += 1
        sizes = list(parts)
    if sum(sizes) != n:
        raise ValueError(f"random_split: the lengths {list(lengths)} add up to {sum(sizes)}, the dataset has {n} samples")
    order = make.randperm(n, generator=generator).tolist()
    return [Subset(dataset, order[end - int(size):end]) for end, size in zip(accumulate(int(s) for s in sizes), sizes)]
