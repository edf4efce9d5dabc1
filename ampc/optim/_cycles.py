"""Schedules that go up and down, and take momentum the other way."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Union

from ._schedule import LRScheduler, per_group
from .optimizer import Optimizer


def set_momentum(group: Dict[str, Any], value: float) -> None:
    """Of a group: its momentum, or Adam's first beta."""
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


def _needs_momentum(name: str, optimizer: Optimizer) -> None:
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError(f"{name}: {type(optimizer).__name__} has no momentum; say cycle_momentum=False")


def _phases(rise: float, total_steps: int, three_phase: bool) -> List[Dict[str, Any]]:
    """The step with which each phase ends, and the names of a group's numbers between which it goes; in torch's words, as they are saved."""
    names = [("initial_lr", "max_lr", "max_momentum", "base_momentum"), ("max_lr", "min_lr", "base_momentum", "max_momentum")]
    ends = [float(rise) - 1, total_steps - 1]
    if three_phase:
        names[1:] = [("max_lr", "initial_lr", "base_momentum", "max_momentum"), ("initial_lr", "min_lr", "max_momentum", "max_momentum")]
        ends.insert(1, 2 * rise - 2)
    keys = ("start_lr", "end_lr", "start_momentum", "end_momentum")
    return [{"end_step": end, **dict(zip(keys, between))} for end, between in zip(ends, names)]


class OneCycleLR(LRScheduler):
    """Up from ``max_lr / div_factor`` to ``max_lr`` in the first ``pct_start`` of the steps, then down to ``initial / final_div_factor``
    (Smith and Topin 2018); ``three_phase`` first goes back to the initial rate. Momentum, or Adam's first beta, goes the other way. Step
    it after every batch.

    ``total_steps``, or ``epochs`` and ``steps_per_epoch``, says how long. ValueError for options out of range, and for more steps than that."""

    def __init__(self, optimizer: Optimizer, max_lr: Union[float, List[float]], total_steps: Optional[int] = None, epochs: Optional[int] = None,
                 steps_per_epoch: Optional[int] = None, pct_start: float = 0.3, anneal_strategy: str = "cos", cycle_momentum: bool = True,
                 base_momentum: Union[float, List[float]] = 0.85, max_momentum: Union[float, List[float]] = 0.95, div_factor: float = 25.0,
                 final_div_factor: float = 1e4, three_phase: bool = False, last_epoch: int = -1) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR: give `total_steps`, or both `epochs` and `steps_per_epoch`")
            total_steps = epochs * steps_per_epoch
        if not isinstance(total_steps, (int, float)):
            raise TypeError(f"OneCycleLR: `total_steps` must be an int, got {type(total_steps).__name__}")
        if not isinstance(total_steps, int) or total_steps < 1:
            raise ValueError(f"OneCycleLR: the number of steps must be an integer of 1 or more, got {total_steps!r}")
        if not 0 <= pct_start <= 1:
            raise ValueError(f"OneCycleLR: `pct_start` must be in [0, 1], got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"OneCycleLR: `anneal_strategy` must be 'cos' or 'linear', got {anneal_strategy!r}")
        self.total_steps, self._anneal_func_type, self.cycle_momentum = total_steps, anneal_strategy, cycle_momentum
        self._schedule_phases = _phases(pct_start * total_steps, total_steps, three_phase)
        highest = per_group("OneCycleLR", "max_lr", max_lr, optimizer)
        if last_epoch == -1:
            for group, high in zip(optimizer.param_groups, highest):
                group["initial_lr"], group["max_lr"] = high / div_factor, high
                group["min_lr"] = group["initial_lr"] / final_div_factor
        if cycle_momentum:
            _needs_momentum("OneCycleLR", optimizer)
            lows = per_group("OneCycleLR", "base_momentum", base_momentum, optimizer)
            highs = per_group("OneCycleLR", "max_momentum", max_momentum, optimizer)
            for group, low, high in zip(optimizer.param_groups, lows, highs):
                if last_epoch == -1:
                    group["base_momentum"], group["max_momentum"] = low, high
                    set_momentum(group, high)
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, part: float) -> float:
        if self._anneal_func_type == "linear":
            return start + (end - start) * part
        return end + (start - end) * (1 + math.cos(math.pi * part)) / 2

    def get_lr(self) -> List[float]:
        if self.last_epoch > self.total_steps:
            raise ValueError(f"OneCycleLR: step {self.last_epoch} of {self.total_steps}; it was made for fewer")
        begin = 0.0
        for phase in self._schedule_phases:
            end = phase["end_step"]
            if self.last_epoch <= end or phase is self._schedule_phases[-1]:
                break
            begin = end
        part = (self.last_epoch - begin) / (end - begin)
        groups = self.optimizer.param_groups
        if self.cycle_momentum:
            for group in groups:
                set_momentum(group, self._between(group[phase["start_momentum"]], group[phase["end_momentum"]], part))
        return [self._between(group[phase["start_lr"]], group[phase["end_lr"]], part) for group in groups]


class CyclicLR(LRScheduler):
    """Up from ``base_lr`` to ``max_lr`` in ``step_size_up`` steps, down again in ``step_size_down``, and so on (Smith 2017). Momentum, or Adam's
    first beta, goes the other way. Step it after every batch.

    Args:
        mode: 'triangular': all cycles alike; 'triangular2': each half as high as the one before; 'exp_range': times ``gamma ** step``.
        scale_fn: in place of a mode: the height, by the number of the cycle from 1 on, or, with ``scale_mode`` 'iterations', of the step.

    ValueError for an unknown mode, and for optimizers without momentum. ``state_dict`` keeps no ``scale_fn``."""

    def __init__(self, optimizer: Optimizer, base_lr: Union[float, List[float]], max_lr: Union[float, List[float]], step_size_up: int = 2000,
                 step_size_down: Optional[int] = None, mode: str = "triangular", gamma: float = 1.0,
                 scale_fn: Optional[Callable[[float], float]] = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
                 base_momentum: Union[float, List[float]] = 0.8, max_momentum: Union[float, List[float]] = 0.9, last_epoch: int = -1) -> None:
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError(f"CyclicLR: `mode` must be triangular, triangular2 or exp_range, or `scale_fn` given; got {mode!r}")
        self.total_size = float(step_size_up) + float(step_size_up if step_size_down is None else step_size_down)
        self.step_ratio = step_size_up / self.total_size
        self.mode, self.gamma, self.cycle_momentum, self._scale_fn = mode, gamma, cycle_momentum, scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        lows = per_group("CyclicLR", "base_lr", base_lr, optimizer)
        self.max_lrs = per_group("CyclicLR", "max_lr", max_lr, optimizer)
        if cycle_momentum:
            _needs_momentum("CyclicLR", optimizer)
            self.base_momentums = per_group("CyclicLR", "base_momentum", base_momentum, optimizer)
            self.max_momentums = per_group("CyclicLR", "max_momentum", max_momentum, optimizer)
            for group, low, high in zip(optimizer.param_groups, self.base_momentums, self.max_momentums):
                set_momentum(group, high)
                group["base_momentum"], group["max_momentum"] = low, high
        if last_epoch == -1:
            for group, low in zip(optimizer.param_groups, lows):
                group["initial_lr"] = low
        super().__init__(optimizer, last_epoch)
        self.base_lrs = lows

    def scale_fn(self, x: float) -> float:
        """The height of cycle, or of step, x."""
        if self._scale_fn is not None:
            return self._scale_fn(x)
        return 1.0 if self.mode == "triangular" else 0.5 ** (x - 1) if self.mode == "triangular2" else self.gamma ** x

    def get_lr(self) -> List[float]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        part = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        part *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums):
                set_momentum(group, high - (high - low) * part)
        return [low + (high - low) * part for low, high in zip(self.base_lrs, self.max_lrs)]

    def state_dict(self) -> Dict[str, Any]:
        state = super().state_dict()
        del state["_scale_fn"]
        return state
