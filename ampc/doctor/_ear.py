"""What the doctor hears of: the batches that a DataLoader has handed out."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Deque, Dict, Iterator, List, NamedTuple, Tuple

from .. import _C
from .._events import Listener

MOST = 8  # bad tensors of batches that are remembered, and samples that are named


class Served(NamedTuple):
    """A tensor of a batch that was not finite when it came from a DataLoader."""

    tensor: Any  # kept, so that its memory is no other tensor's
    number: int  # of the batch in its pass, from 0
    rows: List[int]
    samples: List[int]  # of these rows, in the data set; [] where that is not known


class Ear(Listener):
    """Listens for a doctor, on the thread that made it. ``made`` is what the doctor knows of tensors by their addresses."""

    def __init__(self, made: Dict[int, Any]) -> None:
        self._made, self._thread = made, threading.get_ident()
        self._bad: Deque[Served] = deque(maxlen=MOST)

    def batch_served(self, batch: Any, dataset: Any, number: int, indices: Any) -> None:
        """Remembers what is not finite in it."""
        if threading.get_ident() != self._thread:
            return
        for t in _tensors(batch):
            self._made.pop(_C._address(t), None)
            if sum(stats_of(t)[2:4]) > 0:
                self._bad.append(_served(t, dataset, number, indices))

    def served(self, t: Any) -> str:
        """Says of which samples the tensor is, where a batch has it."""
        for each in reversed(self._bad):
            begin = _C._address(each.tensor)
            if begin <= _C._address(t) < begin + each.tensor.numel() * each.tensor.element_size():
                rows = f"row{'s' if len(each.rows) > 1 else ''} {_listed(each.rows)} of batch {each.number}"
                samples = f", sample{'s' if len(each.samples) > 1 else ''} {_listed(each.samples)} of the data set" if each.samples else ""
                return f"; it came from a DataLoader: {rows}{samples}"
        return ""


def _served(t: Any, dataset: Any, number: int, indices: Any) -> Served:
    if not isinstance(indices, (list, tuple)):  # no batches: the sample itself
        return Served(t, number, [0], _in_whole_set(dataset, [indices]))
    rows = (~t.detach().isfinite()).reshape(t.shape[0], -1).any(1).nonzero().flatten().tolist() if t.ndim else [0]
    fits = t.ndim and t.shape[0] == len(indices)
    return Served(t, number, rows, _in_whole_set(dataset, [indices[row] for row in rows]) if fits else [])


def _in_whole_set(dataset: Any, indices: list) -> List[int]:
    """Indices of a subset as those of the set that it is of; [] of samples that have no index."""
    if not all(isinstance(i, int) for i in indices):
        return []
    while hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
        dataset, indices = dataset.dataset, [int(dataset.indices[i]) for i in indices]
    return indices


def _tensors(batch: Any) -> Iterator[Any]:
    """The floating point ones in it."""
    if isinstance(batch, _C.Tensor):
        if batch.is_floating_point() and batch.numel():
            yield batch
    elif isinstance(batch, (list, tuple, dict)):
        for part in batch.values() if isinstance(batch, dict) else batch:
            yield from _tensors(part)


def _listed(numbers: List[int]) -> str:
    return ", ".join(map(str, numbers[:MOST])) + (f" and {len(numbers) - MOST} more" if len(numbers) > MOST else "")


def stats_of(t: Any) -> Tuple[float, float, float, float, float]:
    """Squares, largest magnitude, infinities, nans, small values; waits for a GPU."""
    t = t.detach()
    dense = t if t.is_contiguous() else t.contiguous()
    return _C._sum_up((_C._cuda_grad_stats([dense]) if t.is_cuda else _C._grad_stats([dense])).cpu())
