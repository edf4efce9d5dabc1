"""Samplers: the order in which samples are drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, List, Optional, TypeVar, Union

from ... import _C
from ..._composed.random import multinomial
from ..._tensor import creation as make

T_co = TypeVar("T_co", covariant=True)


class Sampler(Generic[T_co]):
    """The base of samplers: ``__iter__`` gives indices, or lists of them."""

    def __init__(self, data_source: Any = None) -> None:
        pass

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ..."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """All indices in random order, again and again up to ``num_samples``. With ``replacement``, each draw may be any index."""

    def __init__(self, data_source: Sized, replacement: bool = False, num_samples: Optional[int] = None, generator: Any = None) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(f"RandomSampler: `replacement` must be a bool, got {replacement!r}")
        self.data_source, self.replacement, self._num_samples, self.generator = data_source, replacement, num_samples, generator
        if not isinstance(self.num_samples, int) or self.num_samples < 1:
            what = "`data_source` has no samples" if num_samples is None else f"`num_samples` must be an integer of 1 or more, got {num_samples!r}"
            raise ValueError(f"RandomSampler: {what}")

    @property
    def num_samples(self) -> int:
        """How many indices it gives."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n, left = len(self.data_source), self.num_samples
        while self.replacement and left > 0:  # by pieces: it may be asked for more than memory holds
            piece = min(left, 4096)
            yield from make.randint(0, n, (piece,), generator=self.generator, device="cpu").tolist()
            left -= piece
        while left > 0 and n > 0:
            order = make.randperm(n, generator=self.generator, device="cpu").tolist()[:left]
            yield from order
            left -= len(order)

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices, in random order."""

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        return (self.indices[i] for i in make.randperm(len(self.indices), generator=self.generator, device="cpu").tolist())

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn with these weights."""

    def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None) -> None:
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples < 1:
            raise ValueError(f"WeightedRandomSampler: `num_samples` must be an integer of 1 or more, got {num_samples!r}")
        if not isinstance(replacement, bool):
            raise ValueError(f"WeightedRandomSampler: `replacement` must be a bool, got {replacement!r}")
        self.weights = make.as_tensor(weights, dtype=_C.float64, device="cpu")
        if self.weights.ndim != 1:
            raise ValueError(f"WeightedRandomSampler: `weights` must be one list of numbers, got shape {list(self.weights.shape)}")
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        yield from multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator).tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[List[int]]):
    """Lists of ``batch_size`` of another sampler's indices; the last may be shorter, or (``drop_last``) is left out."""

    def __init__(self, sampler: Union[Sampler[int], Iterable[int]], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
            raise ValueError(f"BatchSampler: `batch_size` must be an integer of 1 or more, got {batch_size!r}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"BatchSampler: `drop_last` must be a bool, got {drop_last!r}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[List[int]]:
        batch: List[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else (n + self.batch_size - 1) // self.batch_size
