"""Averages of a model's weights over training: stochastic weight averaging (Izmailov et al. 2018) and exponential moving averages."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Union

from .._C import Tensor, int64
from .._names.missing import absent_from
from .._tensor import creation as make
from .._tensor.grouping import _group_tensors_by_device_and_dtype as _group_tensors_by_device_and_dtype  # schedules of other packages use it here
from ..autograd import no_grad
from ..nn.modules.batchnorm import _BatchNorm
from ..nn.modules.module import Module
from ._schedule import LRScheduler, per_group
from .optimizer import Optimizer

__all__ = ["AveragedModel", "SWALR", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn", "update_bn"]

_One = Callable[[Tensor, Tensor, Any], Tensor]
_Many = Callable[[List[Tensor], List[Tensor], Any], None]


def get_ema_avg_fn(decay: float = 0.999) -> _One:
    """For ``AveragedModel(avg_fn=)``: decay times the average, and the rest of what is there now. ValueError unless 0 <= decay <= 1."""
    if not 0 <= decay <= 1:
        raise ValueError(f"the decay of a moving average must lie in [0, 1], got {decay}")

    @no_grad()
    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> _One:
    """For ``AveragedModel(avg_fn=)``: the mean of all so far."""
    @no_grad()
    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def _each(average: _One) -> _Many:
    """``average`` for lists, into the first."""
    @no_grad()
    def update(averaged: List[Tensor], current: List[Tensor], num_averaged: Any) -> None:
        for mean, now in zip(averaged, current):
            mean.copy_(average(mean, now, num_averaged))

    return update


def get_ema_multi_avg_fn(decay: float = 0.999) -> _Many:
    """For ``AveragedModel(multi_avg_fn=)``: `get_ema_avg_fn` of lists."""
    return _each(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> _Many:
    """For ``AveragedModel(multi_avg_fn=)``: `get_swa_avg_fn` of lists."""
    return _each(get_swa_avg_fn())


class AveragedModel(Module):
    """A copy of a model, as ``module``, whose parameters are averages of what they were at each ``update_parameters(model)``.

    Args:
        avg_fn: (average, now, number averaged) -> new average; the mean of all by default.
        multi_avg_fn: the same of lists of one dtype and device, into the first.
        use_buffers: buffers are averaged, too; else they are those of the model now."""

    n_averaged: Tensor

    def __init__(self, model: Module, device: Any = None, avg_fn: Optional[_One] = None, multi_avg_fn: Optional[_Many] = None,
                 use_buffers: bool = False) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("AveragedModel: give `avg_fn` or `multi_avg_fn`, not both")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", make.tensor(0, dtype=int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Takes the model's weights into the averages."""
        pairs = self._pairs(self.module.parameters(), model.parameters())
        buffers = self._pairs(self.module.buffers(), model.buffers())
        first = not self.n_averaged.item()
        for mean, now in (pairs if first else []) + ([] if self.use_buffers and not first else buffers):
            mean.copy_(now)
        if not first:
            self._average(pairs + (buffers if self.use_buffers else []))
        self.n_averaged += 1

    def _pairs(self, averages: Iterable[Tensor], values: Iterable[Tensor]) -> List[Tuple[Tensor, Tensor]]:
        return [(mean.detach(), now.detach().to(mean.device)) for mean, now in zip(averages, values)]

    def _average(self, pairs: List[Tuple[Tensor, Tensor]]) -> None:
        update = self.multi_avg_fn or _each(self.avg_fn or get_swa_avg_fn())
        alike: Dict[Any, List[Tuple[Tensor, Tensor]]] = {}
        for mean, now in pairs:
            alike.setdefault((str(mean.device), mean.dtype), []).append((mean, now))
        for those in alike.values():
            update([mean for mean, _ in those], [now for _, now in those], self.n_averaged.to(those[0][0].device))


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Counts the statistics of the model's batch norms anew, over all batches alike: tensors, or lists whose first is the input."""
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if not norms:
        return
    momenta, was_training = [m.momentum for m in norms], model.training
    for m in norms:
        m.reset_running_stats()
        m.momentum = None
    model.train()
    try:
        for batch in loader:
            x = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(x if device is None else x.to(device))
    finally:
        for m, momentum in zip(norms, momenta):
            m.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """From each group's rate to ``swa_lr``, one or one for every group, in ``anneal_epochs`` steps, along a cosine or a line; then it stays.

    ValueError for an unknown strategy, and for a negative number of steps."""

    def __init__(self, optimizer: Optimizer, swa_lr: Union[float, List[float]], anneal_epochs: int = 10, anneal_strategy: str = "cos",
                 last_epoch: int = -1) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"SWALR: `anneal_strategy` must be 'cos' or 'linear', got {anneal_strategy!r}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"SWALR: `anneal_epochs` must be an integer of 0 or more, got {anneal_epochs!r}")
        for group, rate in zip(optimizer.param_groups, per_group("SWALR", "swa_lr", swa_lr, optimizer)):
            group["swa_lr"] = rate
        self.anneal_epochs, self._anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _part(self, step: int) -> float:
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> List[float]:
        step = max(self._step_count - 1, not self.anneal_epochs)
        before, now = self._part(step - 1), self._part(step)
        ends = [group["swa_lr"] for group in self.optimizer.param_groups]
        begins = [end if before == 1 else (rate - before * end) / (1 - before) for rate, end in zip(self._now(), ends)]
        return [end * now + begin * (1 - now) for begin, end in zip(begins, ends)]

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
