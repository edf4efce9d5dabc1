"""What the doctor hears of: the batches that a DataLoader has given out, the losses of backward, and the steps of optimizers."""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, List, NamedTuple, Tuple

from .. import _C, _ops
from .._events import Listener
from .._messages.callers import call_site
from ._growth import TENFOLD, growth

MOST = 8  # bad tensors of batches that are remembered, and samples that are named


class Served(NamedTuple):
    """A tensor of a batch that was not finite when it came from a DataLoader."""

    tensor: Any  # kept, so that its memory is no other tensor's
    number: int  # of the batch in its pass, from 0
    rows: List[int]
    samples: List[int]  # of these rows, in the data set; [] where that is not known


class Steps:
    """An optimizer's steps, and the norms of its parameters before some of them."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer, self.count = optimizer, 0
        self.norms: Deque[float] = deque(maxlen=5)


class Ear(Listener):
    """Listens for a doctor, on the thread that made it. ``made`` is what the doctor knows of tensors by their addresses; ``loss_is_known`` is
    called with a loss, ``settle`` where gradients are complete."""

    def __init__(self, made: Dict[int, Any], loss_is_known: Callable[[Any], None], settle: Callable[..., None]) -> None:
        self._made, self._thread, self._loss_is_known, self._settle = made, threading.get_ident(), loss_is_known, settle
        self.misuse: Dict[Tuple[str, str, int], Any] = {}  # the guard's reports, by rule, file and line
        self._bad: Deque[Served] = deque(maxlen=MOST)
        self._losses: Dict[Tuple[str, int], Deque[float]] = {}  # by the line of backward()
        self._steps: Dict[int, Steps] = {}  # by the id of the optimizer
        self._scaler: Callable[[], Any] = lambda: None  # that of the last loss, weakly

    def let_go(self) -> None:
        """Forgets batches, losses and optimizers, when the doctor ends. The guard's reports stay."""
        self._bad.clear()
        self._losses.clear()
        self._steps.clear()

    def batch_served(self, batch: Any, dataset: Any, number: int, indices: Any) -> None:
        """Remembers what is not finite in it."""
        if threading.get_ident() != self._thread:
            return
        for t in _tensors(batch):
            self._made.pop(_C._address(t), None)
            if sum(stats_of(t)[2:4]) > 0:
                self._bad.append(_served(t, dataset, number, indices))

    def misuse_found(self, report: Any) -> None:
        """Keeps the report."""
        if threading.get_ident() == self._thread:
            self.misuse.setdefault(report[:3], report)

    def backward_begins(self, loss: Any) -> None:
        """Keeps the loss."""
        if threading.get_ident() == self._thread and loss.numel() == 1 and not loss.is_meta:
            values = self._losses.setdefault(call_site(), deque(maxlen=50))
            values.append(loss.item() / (_C._scale_of(loss) or self.scale()))
        if threading.get_ident() == self._thread:
            self._loss_is_known(loss)

    def backward_ended(self, loss: Any) -> None:
        """What its gradients contain is certain."""
        if threading.get_ident() == self._thread:
            self._settle(gradients=True)

    def loss_scaled(self, scaler: Any, outputs: Any) -> None:
        """The same as for backward. Keeps the scaler."""
        if threading.get_ident() == self._thread:
            self._scaler = weakref.ref(scaler)
            for t in _tensors(outputs):
                self._loss_is_known(t)

    def scale(self) -> float:
        """What the last loss was multiplied by. A scale on a GPU is not known to the loss' graph, and is read from its scaler."""
        scaler = self._scaler()
        return 1.0 if scaler is None or scaler._state is None else scaler._state.scale

    def step_begins(self, optimizer: Any, closure: bool) -> None:
        """Keeps the norm of its parameters, at every tenth step."""
        if threading.get_ident() != self._thread:
            return
        steps = self._steps.setdefault(id(optimizer), Steps(optimizer))
        if steps.count % 10 == 0:
            steps.norms.append(_norm(optimizer))
        steps.count += 1
        self._settle(gradients=True)

    def grown(self) -> str:
        """Says that the loss, or the parameters, have grown tenfold; '' if they have not."""
        for values in self._losses.values():
            found = growth(list(values))
            if found is not None:
                return f"the loss grew from {found[0]:.3g} to {found[1]:.3g} within {found[2]} steps"
        for steps in self._steps.values():
            now, before = _norm(steps.optimizer), steps.norms[0]
            if before > 0 and not now <= TENFOLD * before:
                return f"the norm of the parameters grew from {before:.3g} to {now:.3g} within {min(steps.count, 10 * len(steps.norms))} steps"
        return ""

    def has_stepped(self, parameter: Any) -> bool:
        """Whether an optimizer has changed it."""
        return any(parameter is p for steps in self._steps.values() for p in _params(steps.optimizer))

    def served(self, t: Any) -> str:
        """Says of which samples the tensor is, where a batch has it."""
        for each in reversed(self._bad):
            begin = _C._address(each.tensor)
            if begin <= _C._address(t) < begin + each.tensor.numel() * each.tensor.element_size():
                rows = f"row{'s' if len(each.rows) > 1 else ''} {_listed(each.rows)} of batch {each.number}"
                samples = f", sample{'s' if len(each.samples) > 1 else ''} {_listed(each.samples)} of the data set" if each.samples else ""
                return f"; it came from a DataLoader: {rows}{samples}"
        return ""


def _params(optimizer: Any) -> List[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _norm(optimizer: Any) -> float:
    """Of all its parameters together; infinite where one is not finite."""
    every = [stats_of(p) for p in _params(optimizer) if is_judged(p)]
    return math.inf if any(infs + nans > 0 for _, _, infs, nans, _ in every) else math.sqrt(sum(stats[0] for stats in every))


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
        if is_judged(batch):
            yield batch
    elif isinstance(batch, (list, tuple, dict)):
        for part in batch.values() if isinstance(batch, dict) else batch:
            yield from _tensors(part)


def _listed(numbers: List[int]) -> str:
    return ", ".join(map(str, numbers[:MOST])) + (f" and {len(numbers) - MOST} more" if len(numbers) > MOST else "")


def is_judged(t: Any) -> bool:
    """Whether a tensor has values that may be inf or nan."""
    return t.is_floating_point() and t.numel() > 0 and not t.is_meta


def stats_of(t: Any) -> Tuple[float, float, float, float, float]:
    """Squares, largest magnitude, infinities, nans, small values; waits for a GPU. All that it calls is of the core, so that a doctor around
    it knows whose operators these are."""
    t = t.detach()
    dense = t if t.is_contiguous() else t.contiguous()
    return _C._sum_up(_ops._to_device(_C._cuda_grad_stats([dense])[0], 0) if t.is_cuda else _C._grad_stats([dense]))
