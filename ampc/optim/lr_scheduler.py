"""Learning rates that change over training. Source of names and meaning: torch.optim.lr_scheduler.

A scheduler holds its optimizer's groups and sets their ``lr`` at every ``step()``; the first values are set when it is made. Most work
on the rate that is there, so several can follow one another or act together.
"""

from __future__ import annotations

import math
import types
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

from .._events import announce
from .._messages import checks as _checks
from .._names.missing import absent_from
from ._cycles import CyclicLR as CyclicLR
from ._cycles import OneCycleLR as OneCycleLR
from ._schedule import LRScheduler, per_group, warn_of_epoch
from ._schedule import _enable_get_lr_call as _enable_get_lr_call
from .optimizer import Optimizer

_LRScheduler = LRScheduler  # torch's older name, from which schedulers of other packages derive


class LambdaLR(LRScheduler):
    """The initial rate times ``lr_lambda(epoch)``; one function, or one for every group.

    ``state_dict`` keeps what callable objects hold, but no functions."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Union[Callable[[int], float], List[Callable[[int], float]]], last_epoch: int = -1) -> None:
        self.lr_lambdas = per_group(type(self).__name__, "lr_lambda", lr_lambda, optimizer)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> List[float]:
        return [base * f(self.last_epoch) for base, f in zip(self.base_lrs, self.lr_lambdas)]

    def state_dict(self) -> Dict[str, Any]:
        state = super().state_dict()
        state["lr_lambdas"] = [None if isinstance(f, types.FunctionType) else dict(f.__dict__) for f in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        state = dict(state_dict)
        for f, kept in zip(self.lr_lambdas, state.pop("lr_lambdas")):
            if kept is not None:
                f.__dict__.update(kept)
        super().load_state_dict(state)


class MultiplicativeLR(LambdaLR):
    """The present rate times ``lr_lambda(epoch)`` at every step."""

    def get_lr(self) -> List[float]:
        return [rate if self._is_initial else rate * f(self.last_epoch) for rate, f in zip(self._now(), self.lr_lambdas)]


class StepLR(LRScheduler):
    """Times ``gamma`` every ``step_size`` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> List[float]:
        return self._times(self.gamma if self.last_epoch and self.last_epoch % self.step_size == 0 else 1.0)

    def _get_closed_form_lr(self) -> List[float]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Times ``gamma`` at each of the ``milestones``; twice at one that is there twice."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> List[float]:
        return self._times(self.gamma ** self.milestones[self.last_epoch])

    def _get_closed_form_lr(self) -> List[float]:
        return [base * self.gamma ** bisect_right(sorted(self.milestones.elements()), self.last_epoch) for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Times ``factor`` for the first ``total_iters`` epochs. ValueError for a factor outside [0, 1]."""

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1:
            raise ValueError(f"ConstantLR: `factor` must be in [0, 1], got {factor}")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> List[float]:
        if self.last_epoch == 0:
            return self._times(self.factor)
        return self._times(1 / self.factor if self.last_epoch == self.total_iters else 1.0)

    def _get_closed_form_lr(self) -> List[float]:
        return [base * (self.factor if self.last_epoch < self.total_iters else 1.0) for base in self.base_lrs]


class LinearLR(LRScheduler):
    """Times a factor that goes from ``start_factor`` to ``end_factor`` in ``total_iters`` epochs, then stays. ValueError for a
    ``start_factor`` outside (0, 1] or an ``end_factor`` outside [0, 1]."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5,
                 last_epoch: int = -1) -> None:
        if not 0 < start_factor <= 1:
            raise ValueError(f"LinearLR: `start_factor` must be above 0 and at most 1, got {start_factor}")
        if not 0 <= end_factor <= 1:
            raise ValueError(f"LinearLR: `end_factor` must be in [0, 1], got {end_factor}")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        return self.start_factor + (self.end_factor - self.start_factor) * min(self.total_iters, epoch) / self.total_iters

    def get_lr(self) -> List[float]:
        if self.last_epoch == 0:
            return self._times(self.start_factor)
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._now()
        return self._times(self._factor(self.last_epoch) / self._factor(self.last_epoch - 1))

    def _get_closed_form_lr(self) -> List[float]:
        return [base * self._factor(self.last_epoch) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Times ``gamma`` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> List[float]:
        return self._times(1.0 if self._is_initial else self.gamma)

    def _get_closed_form_lr(self) -> List[float]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Times (1 - epoch / total_iters) ** power, down to 0."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _left(self, epoch: int) -> float:
        return 1 - min(self.total_iters, epoch) / self.total_iters

    def get_lr(self) -> List[float]:
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._now()
        return self._times((self._left(self.last_epoch) / self._left(self.last_epoch - 1)) ** self.power)

    def _get_closed_form_lr(self) -> List[float]:
        return [base * self._left(self.last_epoch) ** self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate to ``eta_min`` in ``T_max`` epochs, and back (Loshchilov and Hutter 2017)."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def _height(self, epoch: int) -> float:
        return (1 + math.cos(math.pi * epoch / self.T_max)) / 2

    def get_lr(self) -> List[float]:
        if self._is_initial:
            return self._now()
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # up from the lowest point, which has no multiple
            return [rate + (base - self.eta_min) * (1 - self._height(1)) for rate, base in zip(self._now(), self.base_lrs)]
        ratio = self._height(self.last_epoch) / self._height(self.last_epoch - 1)
        return [self.eta_min + (rate - self.eta_min) * ratio for rate in self._now()]

    def _get_closed_form_lr(self) -> List[float]:
        return [self.eta_min + (base - self.eta_min) * self._height(self.last_epoch) for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from the initial rate to ``eta_min`` in ``T_0`` epochs, then restarts (Loshchilov and Hutter 2017).

    Each cycle is ``T_mult`` times as long as the one before. ``step(epoch)`` takes fractions. ValueError if ``T_0`` or ``T_mult`` is no
    integer above 0."""

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        for name, value in (("T_0", T_0), ("T_mult", T_mult)):
            if not isinstance(value, (int, float)):
                raise TypeError(f"CosineAnnealingWarmRestarts: `{name}` must be an int, got {type(value).__name__}")
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"CosineAnnealingWarmRestarts: `{name}` must be an integer of 1 or more, got {value!r}")
        self.T_0, self.T_i, self.T_mult, self.eta_min, self.T_cur = T_0, T_0, T_mult, eta_min, float(last_epoch)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> List[float]:
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: Optional[float] = None) -> None:
        if epoch is not None and epoch < 0:
            raise ValueError(f"CosineAnnealingWarmRestarts.step: `epoch` must not be negative, got {epoch}")
        self._step_count += 1
        at = self.last_epoch + 1 if epoch is None else epoch
        self.T_i, self.T_cur = self.T_0, float(at)
        while self.T_cur >= self.T_i:
            if self.T_mult == 1:
                self.T_cur %= self.T_i
            else:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        self.last_epoch = math.floor(at)
        self._set(self.get_lr())


class _OfSchedulers(LRScheduler):
    """Base of those that are made of others, which count for themselves."""

    def _hold(self, schedulers: Sequence[LRScheduler], optimizer: Optional[Optimizer]) -> None:
        name = type(self).__name__
        if not schedulers:
            raise ValueError(f"{name}: there are no schedulers")
        self.optimizer = optimizer or schedulers[0].optimizer
        for i, s in enumerate(schedulers):
            if isinstance(s, ReduceLROnPlateau):
                raise ValueError(f"{name}: scheduler {i} is a ReduceLROnPlateau, which needs a metric at every step")
            if s.optimizer is not self.optimizer:
                raise ValueError(f"{name}: scheduler {i} has another optimizer")
        self._schedulers = list(schedulers)

    def _undo_first_step(self) -> None:
        """Of each scheduler in it: it has made its first step when it was made, and will make it in its turn."""
        for s in self._schedulers:
            if isinstance(s, _OfSchedulers):
                s._undo_first_step()
            else:
                s.last_epoch -= 1

    def _step_members(self) -> None:
        raise NotImplementedError

    def step(self, epoch: Optional[int] = None) -> None:
        if epoch is not None:
            raise TypeError(f"{type(self).__name__}.step: takes no epoch; its schedulers count for themselves")
        self._step_members()

    def state_dict(self) -> Dict[str, Any]:
        return {**super().state_dict(), "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        state = dict(state_dict)
        for s, kept in zip(self._schedulers, state.pop("_schedulers")):
            s.load_state_dict(kept)
        super().load_state_dict(state)


class SequentialLR(_OfSchedulers):
    """One scheduler after another: the i-th until epoch ``milestones[i]``. ValueError where their numbers or optimizers do not fit."""

    def __init__(self, optimizer: Optimizer, schedulers: List[LRScheduler], milestones: List[int], last_epoch: int = -1) -> None:
        self._hold(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(f"SequentialLR: {len(schedulers)} schedulers have {len(schedulers) - 1} milestones between them, got {len(milestones)}")
        self._milestones, self.last_epoch = list(milestones), last_epoch + 1
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        self._undo_first_step()
        self._schedulers[0]._initial_step()
        self._last_lr = self._schedulers[0].get_last_lr()

    def _step_members(self) -> None:
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        current = self._schedulers[i]
        current._update_lr(0) if i > 0 and self._milestones[i - 1] == self.last_epoch else current.step()
        self._last_lr = current.get_last_lr()


class ChainedScheduler(_OfSchedulers):
    """Several at once: every step is one of each, in order. ValueError where there are none, or optimizers differ."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optional[Optimizer] = None) -> None:
        self._hold(schedulers, optimizer)
        self._last_lr = [float(group["lr"]) for group in self.optimizer.param_groups]

    def _step_members(self) -> None:
        for s in self._schedulers:
            s.step()
        self._last_lr = self._now()


class ReduceLROnPlateau(LRScheduler):
    """Times ``factor`` when the metric given to ``step(metric)`` has not got better for more than ``patience`` epochs.

    Args:
        mode: 'min' or 'max', which way is better.
        threshold, threshold_mode: by how much: 'rel', a part of the best so far, or 'abs'.
        cooldown: epochs after a reduction in which none is bad.
        min_lr: a lower bound, or one for every group; eps: reductions smaller than this are left out.

    ValueError for a factor of 1 or more, and for unknown modes."""

    def __init__(self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
                 threshold_mode: str = "rel", cooldown: int = 0, min_lr: Union[float, List[float]] = 0.0, eps: float = 1e-8) -> None:
        if factor >= 1.0:
            raise ValueError(f"ReduceLROnPlateau: `factor` must be below 1, got {factor}")
        if mode not in ("min", "max"):
            kind = ValueError if isinstance(mode, str) else _checks.NoWord
            raise kind(f"ReduceLROnPlateau: `mode` must be 'min' or 'max', got {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            kind = ValueError if isinstance(threshold_mode, str) else _checks.NoWord
            raise kind(f"ReduceLROnPlateau: `threshold_mode` must be 'rel' or 'abs', got {threshold_mode!r}")
        self.optimizer, self.mode, self.factor, self.patience, self.cooldown = optimizer, mode, factor, patience, cooldown
        self.threshold, self.threshold_mode, self.eps = threshold, threshold_mode, eps
        self.min_lrs = per_group("ReduceLROnPlateau", "min_lr", min_lr, optimizer)
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.last_epoch, self._last_lr = 0, self._now()
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self._reset()

    def _reset(self) -> None:
        self.best = self.mode_worse
        self.num_bad_epochs, self.cooldown_counter = 0, 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether ``a`` is better than ``best``, by the threshold."""
        return self._is_better(a, best)

    def _is_better(self, a: float, best: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        if self.threshold_mode == "abs":
            return sign * a < sign * best - self.threshold
        return sign * a < sign * (best * (1 - sign * self.threshold))

    @property
    def in_cooldown(self) -> bool:
        """Whether a reduction is so recent that no epoch counts as bad."""
        return self.cooldown_counter > 0

    def step(self, metrics: Any, epoch: Optional[int] = None) -> None:  # type: ignore[override]
        """Notes the epoch's metric, a number or a Tensor of one, and lowers the rates where it is time."""
        current = float(metrics)
        announce.metric_given(current)
        if epoch is not None:
            warn_of_epoch("ReduceLROnPlateau")
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(self.last_epoch)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._now()

    def _reduce_lr(self, epoch: int) -> None:
        """Lowers the rates of all groups, also of those that were added later. Libraries put another function in its place."""
        if len(self.min_lrs) != len(self.optimizer.param_groups):
            if self.default_min_lr is None:
                raise RuntimeError(f"ReduceLROnPlateau: the optimizer has {len(self.optimizer.param_groups)} groups, and `min_lr` was given for "
                                   f"{len(self.min_lrs)}; set `min_lrs` to a list of as many")
            self.min_lrs = [self.default_min_lr] * len(self.optimizer.param_groups)
        lowered = [max(rate * self.factor, least) for rate, least in zip(self._now(), self.min_lrs)]
        self._set([new if old - new > self.eps else old for old, new in zip(self._now(), lowered)])


def get_cosine_schedule_with_warmup(optimizer: Optimizer, num_warmup_steps: int, num_training_steps: int, num_cycles: float = 0.5,
                                    last_epoch: int = -1) -> LambdaLR:
    """Linear from 0 to the initial rate in the warm-up, then ``num_cycles`` waves of a cosine to the end: half a wave ends at 0.
    Source: transformers' function of that name."""

    def factor(step: int) -> float:
        if step < num_warmup_steps:
            return step / max(1, num_warmup_steps)
        part = (step - num_warmup_steps) / max(1, num_training_steps - num_warmup_steps)
        return max(0.0, (1 + math.cos(2 * math.pi * num_cycles * part)) / 2)

    return LambdaLR(optimizer, factor, last_epoch)


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
