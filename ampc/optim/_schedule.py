"""The base of schedules of learning rates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Dict, List, Optional

from .._C import Tensor
from .._events import announce
from .._messages.callers import warn
from .optimizer import Optimizer

NOT_STATE = ("optimizer", "_seen")  # the second: this process's counts


@contextmanager
def _enable_get_lr_call(scheduler: LRScheduler) -> Iterator[LRScheduler]:
    """``get_lr()`` is called for new rates within; torch's name, which schedulers of other packages use."""
    scheduler._get_lr_called_within_step = True
    try:
        yield scheduler
    finally:
        scheduler._get_lr_called_within_step = False


class LRScheduler:
    """Base of the schedulers. A subclass defines ``get_lr()``, a rate for every group at ``self.last_epoch``; and, where the rates
    of any epoch can be told at once, ``_get_closed_form_lr()``.

    Args:
        optimizer: whose rates are set.
        last_epoch: steps made so far, for one that continues; the groups then have an ``initial_lr``. -1 begins.

    TypeError for something else than an optimizer; KeyError for groups without ``initial_lr`` where training continues."""

    _get_lr_called_within_step = False  # schedulers of other packages warn by it when get_lr() is called for the last rates
    _is_initial = False  # whether the step under way is the one that a new scheduler makes, which leaves the rates where they are

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = need_optimizer(type(self).__name__, optimizer)
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", float(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(f"{type(self).__name__}: group {i} has no 'initial_lr', which last_epoch={last_epoch} needs; load the "
                               "optimizer's state first, or set it")
        self.base_lrs: List[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._last_lr: List[float] = []
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> List[float]:
        """A rate for every group; the present ones are in the groups."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr()")

    def get_last_lr(self) -> List[float]:
        """The rates that were set last, one a group."""
        return self._last_lr

    def step(self, epoch: Optional[int] = None) -> None:
        """Goes on by one, or to ``epoch``, and sets the rates."""
        if self._step_count == 1 and not self.optimizer._has_stepped:
            warn(f"{type(self).__name__}.step() came before the first optimizer.step(), so the first rate is never used; call "
                 "optimizer.step() first")
        self._report_skips()
        self._step_count += 1
        if epoch is not None:
            warn_of_epoch(type(self).__name__)
        self._update_lr(epoch)

    def _update_lr(self, epoch: Optional[int] = None) -> None:
        """Sets the rates of the next epoch, or of ``epoch``."""
        closed = None if epoch is None else getattr(self, "_get_closed_form_lr", None)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        with _enable_get_lr_call(self):
            rates = self.get_lr() if closed is None else closed()
        self._set(rates)

    def _report_skips(self) -> None:
        """Going on is premature where a scaler has left out every step since it last did."""
        now = self.optimizer._n_applied, self.optimizer._n_skipped
        before, self._seen = getattr(self, "_seen", now), now
        if now[0] == before[0] and now[1] > before[1]:
            announce.schedule_ahead(type(self).__name__, now[1] - before[1])

    def _set(self, rates: Sequence[float]) -> None:
        if len(rates) != len(self.optimizer.param_groups):
            raise ValueError(f"{type(self).__name__}: {len(rates)} rates for {len(self.optimizer.param_groups)} groups; make the scheduler "
                             "after the last add_param_group()")
        for group, rate in zip(self.optimizer.param_groups, rates):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(float(rate))
            else:
                group["lr"] = rate
        self._last_lr = [float(group["lr"]) for group in self.optimizer.param_groups]

    def _now(self) -> List[float]:
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def _times(self, factor: float) -> List[float]:
        return [rate * factor for rate in self._now()]

    def state_dict(self) -> Dict[str, Any]:
        """All of it but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k not in NOT_STATE}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Continues from a ``state_dict()``."""
        self.__dict__.update(state_dict)


def need_optimizer(name: str, optimizer: Any) -> Optimizer:
    """``optimizer``. TypeError for something else."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{name}: expected an Optimizer, got {type(optimizer).__name__}")
    return optimizer


def warn_of_epoch(name: str) -> None:
    """The epoch of step() is deprecated, as in torch."""
    warn(f"{name}.step: its epoch is deprecated; call step() without it, which goes on by one")


def per_group(name: str, what: str, values: Any, optimizer: Optimizer) -> list:
    """A value for every group, from one or a list of them; of Tensors copies, which stay when the rates change in place. TypeError for
    something else than an optimizer."""
    n = len(need_optimizer(name, optimizer).param_groups)
    each = list(values) if isinstance(values, (list, tuple)) else [values] * n
    if len(each) != n:
        raise ValueError(f"{name}: `{what}` has {len(each)} values for {n} parameter groups")
    return [value.clone() if isinstance(value, Tensor) else value for value in each]
