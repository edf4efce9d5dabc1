"""GradScaler: dynamic loss scaling around any optimizer.

float16 has no numbers below 6e-8, where many gradients lie. The loss is multiplied by a scale before backward, and the gradients are
divided by it after. When a gradient overflows, the step is skipped and the scale lowered; after ``growth_interval`` good steps it is
raised. Source: torch.amp.GradScaler.

This file checks the order of calls. ``_scale.py`` defines what a scale is, ``_unscale.py`` divides gradients, ``_options.py`` has the options, and
``_optimizers.py`` defines what an optimizer offers. ``ampc/_events.py`` passes events on to diagnosis."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable
from copy import copy
from enum import Enum
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar, Union, overload

from .. import _C
from .._C import Tensor
from .._events import StepLedger, StepRecord, StepReport, announce
from ..cuda.graphs import captured_graph
from ._device_scale import DeviceScale
from ._gate import Gate
from ._host_scale import HostScale, NanStreak
from ._ledger import GradStats, loss_behind
from ._optimizers import leave_step_out, step_that_unscales, step_with_closure, takes_scaler, why_wait
from ._options import ScaleOptions
from ._parts import stats_of_all
from ._scale import Scale, check_kind, check_scaling, check_state, checked_scale, each_tensor
from ._unscale import divide_by_number, gradients_of, no_gradients
from .autocast_mode import cuda_means_cpu

Several = TypeVar("Several", bound=Union[List[Any], Tuple[Any, ...]])
_numbers = itertools.count(1)


class OptState(Enum):
    """What was done with an optimizer's gradients since the last update()."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh_state() -> Dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}, "stats": []}


def _tell_of_replay(scaler: Any, optimizer: Any, scale: Any, loss: Any, found_inf: Dict[Any, Tensor], stats: List[GradStats]) -> None:
    """Announces the step of a CUDA graph's replay. The next one overwrites its tensors, so listeners get copies."""
    copies = [GradStats(stat.table.clone(), stat.positions, None, stat.flags.clone()) for stat in stats]
    found = {device: copied.flags[0] for device, copied in zip(found_inf, copies)}
    scale, loss = (value.clone() if isinstance(value, Tensor) else value for value in (scale, loss))
    announce.step_decided(scaler, optimizer, scale, loss, found, copies)


class GradScaler(ScaleOptions):
    """Scales losses and unscales gradients.

    Args:
        device: 'cuda' or 'cpu', with a number if wanted, which changes nothing; without a usable GPU 'cuda' acts on the CPU.
        init_scale: the first scale, a positive finite float32.
        growth_factor: above 1; the scale is multiplied by it after ``growth_interval`` steps without overflow.
        backoff_factor: in (0, 1); the scale is multiplied by it on overflow.
        growth_interval: steps in a row without overflow before the scale grows, >= 1.
        enabled: if False, ``step`` calls the optimizer's step, and the other methods have no effect.
        min_scale, max_scale: limits of the scale; by default the range of normal float32 powers of two.
        hysteresis: how many steps in a row must overflow before the scale shrinks, >= 1 (Megatron-LM, Transformer Engine).
        fp16_gradients: True allows float16 gradients; unscaling them may lose what scaling saved.

    A gradient that is finite while scaled but infinite when unscaled counts as overflow. No overflow of gradients is what comes of losses that
    are themselves infinite or nan: where no loss of an iteration is finite, the step is skipped, and the scale stays. A nan is none either if
    it remains when the scale has fallen to 1. Then the scale returns to its value before the nans. On the CPU a warning tells of both, once; on
    a GPU that would have to wait. ``last_step`` describes the last ``step``.
    """

    ledger: StepLedger  # a listener to events sets this and the next
    last_step: Optional[StepRecord] = None

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True, *, min_scale: float = 2.0**-126, max_scale: float = 2.0**127,
                 hysteresis: int = 1, fp16_gradients: bool = False) -> None:
        check_kind(device, bool(enabled))
        self._device, self._enabled = device, bool(enabled)
        self._init_scale, self._init_growth_tracker, self._init_overflows = init_scale, 0, 0
        self._growth_factor, self._backoff_factor, self._growth_interval = growth_factor, backoff_factor, growth_interval
        self._min_scale, self._max_scale, self._hysteresis, self._fp16_gradients = min_scale, max_scale, hysteresis, bool(fp16_gradients)
        self._losses: List[Any] = []  # of this iteration, before they were scaled, see Scale.read_loss
        self._nan_streak = NanStreak()
        self._loss: Union[float, Tensor, None] = None  # the last one, before it was scaled
        self._number, self._round = next(_numbers), 0  # what a provenance names: who scaled, in which of its iterations
        self._connected: Optional[bool] = None  # whether the losses of this iteration have a history
        self._state: Optional[Scale] = None  # made at the first use, as torch does
        self._per_optimizer_states: Dict[int, Dict[str, Any]] = defaultdict(_fresh_state)
        if self._enabled:
            if device.startswith("cuda"):
                cuda_means_cpu("GradScaler")
            check_scaling(growth_factor, backoff_factor, growth_interval, init_scale, min_scale, max_scale, hysteresis)
        announce.scaler_made(self)

    # -- the scale -------------------------------------------------------------------------------------

    def _lazy_init_scale_growth_tracker(self, device: Any = None) -> None:
        options = (self._init_scale, self._growth_factor, self._backoff_factor, self._growth_interval, self._min_scale, self._max_scale,
                   self._hysteresis)
        on_gpu = device is not None and device.type == "cuda"
        state: Scale = DeviceScale(*options, device) if on_gpu else HostScale.after(self._nan_streak, *options)
        state.growth_tracker, state.overflows = self._init_growth_tracker, self._init_overflows
        self._state = state  # at once: interrupted, there is none

    def _need_scale(self, what: str) -> Scale:
        if self._state is None:
            raise AssertionError(f"{what}() was called before scale(), which creates the scale. Call scaler.scale(loss).backward() first")
        return self._state

    def _check_scale_growth_tracker(self, funcname: str) -> tuple:
        self._need_scale(funcname)
        return self._scale, self._growth_tracker

    @property
    def _scale(self) -> Optional[Tensor]:
        return None if self._state is None else self._state.scale_tensor

    @property
    def _growth_tracker(self) -> Optional[Tensor]:
        return None if self._state is None else self._state.tracker_tensor

    def _get_scale_async(self) -> Optional[Tensor]:
        return self._scale

    # -- scaling -----------------------------------------------------------------------------------------

    @overload
    def scale(self, outputs: Tensor) -> Tensor: ...
    @overload
    def scale(self, outputs: Several) -> Several: ...
    @overload
    def scale(self, outputs: Iterable[Any]) -> Iterable[Any]: ...

    def scale(self, outputs: Union[Tensor, Iterable[Any]]) -> Any:
        """Multiplies ``outputs`` by the scale: a Tensor, or an iterable of Tensors, nested or not. ValueError for anything else."""
        announce.loss_scaled(self, outputs)
        return each_tensor(outputs, self._scaled) if self._enabled else outputs

    def _scaled(self, value: Tensor) -> Tensor:
        if self._state is None:
            self._lazy_init_scale_growth_tracker(value.device)
        state: Any = self._state
        if value.numel() == 1:
            self._loss = state.read_loss(value.detach())
            self._losses.append(self._loss)
        self._connected = bool(self._connected) or value.requires_grad
        scaled = state.times(value)
        _C._mark_scaled(scaled, self._number, self._round, state.known)
        return scaled

    # -- unscaling ---------------------------------------------------------------------------------------

    def _unscale_grads_(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> Dict[Any, Tensor]:
        """Divides the optimizer's gradients, in one pass for each device. Returns {device: 1.0 if any is not finite else 0.0}; a GPU's
        number stays on the GPU. ``inv_scale`` is a Scale to divide by, or a number to multiply by. 1.0 only checks the gradients."""
        divide = getattr(inv_scale, "divide_gradients", None) or partial(divide_by_number, self._need_scale("unscale_"), float(inv_scale))
        self._per_optimizer_states[id(optimizer)]["stats"] = stats = []
        found = {}
        for device, grads, positions in gradients_of(optimizer, allow_fp16):
            stats.append(stats_of_all(grads, divide(device, grads, positions)))
            found[device] = stats[-1].flags[0]
        return found

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of the optimizer's parameters by the scale, in place, and checks them for overflow.

        Call it before clipping, once an iteration for each optimizer. RuntimeError when called twice or after ``step``; AssertionError
        before ``scale``; ValueError for float16 gradients."""
        if not self._enabled:
            return
        state = self._need_scale("unscale_")
        mine = self._per_optimizer_states[id(optimizer)]
        if mine["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() was already called for this optimizer since the last update(); call it once, after the last "
                               "backward(), and read, log and clip the gradients after that")
        if mine["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() was called after step(), which has used these gradients. If step() belongs to the iteration before, call "
                               "scaler.update() once at the end of each iteration; otherwise call unscale_() before step()")
        announce.unscaling(self._number, self._round, state.known, optimizer)
        mine["found_inf_per_device"] = self._unscale_grads_(optimizer, state, 0.0, self._fp16_gradients)
        _C._set_provenance(optimizer.param_groups, "unscaled")
        mine["stage"] = OptState.UNSCALED

    def take_unscaled(self, optimizer: Any) -> None:
        """Checks gradients that are already unscaled, so that ``step`` may follow. Use it instead of ``unscale_`` if the script computes
        gradients itself. It needs no ``scale`` before it. RuntimeError after ``unscale_`` or ``step`` in the same iteration."""
        if not self._enabled:
            return
        mine = self._per_optimizer_states[id(optimizer)]
        if mine["stage"] is not OptState.READY:
            raise RuntimeError("take_unscaled() must be called before unscale_() and step(), once an iteration; call scaler.update() at the end of "
                               "each")
        if self._state is None:
            first = next((p for group in optimizer.param_groups for p in group["params"]), None)
            self._lazy_init_scale_growth_tracker(None if first is None else first.device)
        self._check_inf_per_device(optimizer)
        mine["stage"] = OptState.UNSCALED

    def _maybe_opt_step(self, optimizer: Any, optimizer_state: Dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        found = list(optimizer_state["found_inf_per_device"].values())
        if any(flag.is_cuda for flag in found):
            why = why_wait(optimizer, found)
            if not why:  # the GPU decides, so the CPU does not wait
                return optimizer.step_unless(found[0], *args, **kwargs)
            announce.step_waits(optimizer, why)
        if sum(v.item() for v in found):
            return leave_step_out(optimizer, kwargs)
        return optimizer.step(*args, **kwargs)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscales the optimizer's gradients if needed, and calls ``optimizer.step(*args, **kwargs)`` if all are finite.

        Nothing of a skipped step is seen. On a GPU it is skipped there, without waiting; but where code of a script runs within the optimizer's
        step, ``step`` waits until it is known.

        Returns the optimizer's result, or None if the step was skipped. RuntimeError when called twice since ``update``; AssertionError
        when the optimizer has no gradients.

        A closure calls ``scaler.scale(loss).backward()`` and returns the loss. The optimizer may call it several times, and gradients are
        unscaled after each call. If one call overflows, parameters and the optimizer's state get their old values back."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        closure = kwargs.get("closure") or (args[0] if args and callable(args[0]) else None)
        if closure is not None:
            return self._step_with_closure(optimizer, closure, args[1:], {k: v for k, v in kwargs.items() if k != "closure"})
        self._need_scale("step")
        mine = self._per_optimizer_states[id(optimizer)]
        if mine["stage"] is OptState.STEPPED:
            raise RuntimeError("step() was already called for this optimizer since the last update(); call scaler.update() once at the end of each "
                               "iteration")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._step_inside(optimizer, mine, args, kwargs)
        if mine["stage"] is OptState.READY:
            self.unscale_(optimizer)
        else:
            announce.stepping_unscaled(optimizer)
        if not mine["found_inf_per_device"]:
            raise AssertionError(no_gradients(optimizer, "step", self._connected))
        self._tell_of_step(optimizer, mine)
        result = self._maybe_opt_step(optimizer, mine, *args, **kwargs)
        _C._set_provenance(optimizer.param_groups, "taken")
        mine["stage"] = OptState.STEPPED
        return result

    def _tell_of_step(self, optimizer: Any, mine: Dict[str, Any]) -> None:
        stats = mine["stats"]
        told = (self, optimizer, self._need_scale("step").snapshot(), loss_behind(self._losses, stats), mine["found_inf_per_device"], stats)
        graph = captured_graph()
        if graph is None:
            announce.step_decided(*told)
        else:  # there is no step before a replay
            graph.at_replay(partial(_tell_of_replay, *told))

    def _step_with_closure(self, optimizer: Any, closure: Callable[[], Any], args: tuple, kwargs: Dict[str, Any]) -> Any:
        mine = self._per_optimizer_states[id(optimizer)]
        if mine["stage"] is not OptState.READY:
            raise RuntimeError("step: a closure unscales by itself, but unscale_() or step() was already called for this optimizer since the last "
                               "update(); leave unscale_() out, and call scaler.update() once at the end of each iteration")

        def found() -> bool:
            mine["stage"] = OptState.READY
            self.unscale_(optimizer)
            if not mine["found_inf_per_device"]:
                raise AssertionError("step: no parameter has a gradient after the closure; does it call scaler.scale(loss).backward()?")
            self._tell_of_step(optimizer, mine)
            return any(v.item() for v in mine["found_inf_per_device"].values())

        try:
            return step_with_closure(optimizer, closure, found, args, kwargs)
        finally:
            mine["stage"] = OptState.STEPPED

    def _step_inside(self, optimizer: Any, mine: Dict[str, Any], args: tuple, kwargs: Dict[str, Any]) -> Any:
        if takes_scaler(optimizer):
            result = optimizer.step(*args, **{**kwargs, "grad_scaler": self})
        else:
            if mine["stage"] is OptState.READY:
                self._check_inf_per_device(optimizer)
            scale = None if mine["stage"] is OptState.UNSCALED else self._scale
            result = step_that_unscales(optimizer, scale, list(mine["found_inf_per_device"].values()), args, kwargs)
        mine["stage"] = OptState.STEPPED
        return result

    def report(self) -> StepReport:
        """A report on the last 1,000 steps. It prints as text, a notebook shows tables and pictures, ``save(path)`` writes a picture."""
        return self.ledger.report(self)

    def __repr__(self) -> str:
        if not self._enabled:
            return "GradScaler(enabled=False)"
        return (f"GradScaler('{self._device}', scale {self.get_scale():.8g}, {self._get_growth_tracker()} of {self._growth_interval} good steps "
                f"to the next growth, {self.ledger.total} steps)")

    def _repr_html_(self) -> str:
        import html

        return f"<p>{html.escape(repr(self))}</p>" + (self.report()._repr_html_() if self.ledger.total else "")

    def gate(self, scheduler: Any) -> Gate:
        """Wraps a scheduler, so that its ``step`` has no effect after a skipped step."""
        return Gate(self, scheduler)

    # -- after the step ------------------------------------------------------------------------------------

    def update(self, new_scale: Union[float, Tensor, None] = None) -> None:
        """Ends the iteration: grows or shrinks the scale, or sets it to ``new_scale``.

        AssertionError before any ``step`` or ``unscale_``, or for a ``new_scale`` that is not a positive finite number."""
        if not self._enabled:
            return
        state = self._need_scale("update")
        if new_scale is not None:
            state.scale = checked_scale(new_scale)
        else:
            found = [v for s in self._per_optimizer_states.values() for v in s["found_inf_per_device"].values()]
            if not found:
                raise AssertionError("update: no gradient was checked since the last update(); call step(optimizer) first")
            state.adapt(found, self._losses, self._all_stats, self._culprit)
        self._end_iteration()

    def _end_iteration(self) -> None:
        self._losses, self._connected = [], None
        self._round += 1
        self._per_optimizer_states = defaultdict(_fresh_state)

    def _all_stats(self) -> list:
        return [stat for s in self._per_optimizer_states.values() for stat in s["stats"]]

    def _culprit(self) -> str:
        culprit = self.last_step.culprit if self.last_step else None
        return culprit.name if culprit else "?"

    def get_scale(self) -> float:
        """The current scale; 1.0 when disabled."""
        if not self._enabled:
            return 1.0
        scale = self._init_scale if self._state is None else self._state.scale
        announce.scale_read(scale)
        return scale

    # -- saving ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """A dict with scale, growth_factor, backoff_factor, growth_interval and _growth_tracker; {} when disabled."""
        if not self._enabled:
            return {}
        state = {"scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
                 "growth_interval": self._growth_interval, "_growth_tracker": self._get_growth_tracker()}
        if self._hysteresis > 1:  # torch's have no such key
            state["_overflows"] = self._init_overflows if self._state is None else self._state.overflows
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Continues from a state_dict. RuntimeError when it is empty (from a disabled scaler); KeyError when it lacks something; TypeError for what
        is no dict."""
        if not self._enabled:
            return
        check_state(state_dict)
        self._init_scale = checked_scale(float(state_dict["scale"]))
        self._init_growth_tracker, self._init_overflows = int(state_dict["_growth_tracker"]), int(state_dict.get("_overflows", 0))
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        if self._state is not None:
            self._lazy_init_scale_growth_tracker(self._state.device)

    def __getstate__(self) -> Dict[str, Any]:
        state = {k: v for k, v in self.__dict__.items() if k not in ("_number", "ledger")}
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError("a GradScaler can be pickled only between iterations: before scale() or after update()")
            state["_init_scale"] = self.get_scale()
            state["_init_growth_tracker"] = self._get_growth_tracker()
            state["_init_overflows"] = self._init_overflows if self._state is None else self._state.overflows
            state.update(last_step=None, _losses=[])
        state.update(_loss=None, _state=None, _per_optimizer_states={}, _nan_streak=copy(self._nan_streak))
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update({"_nan_streak": NanStreak(), **state})
        self._number = next(_numbers)
        self._per_optimizer_states = defaultdict(_fresh_state)
        announce.scaler_made(self)

    def _check_inf_per_device(self, optimizer: Any) -> Dict[Any, Tensor]:
        """Checks for overflow without changing the gradients."""
        self._need_scale("_check_inf_per_device")
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = found = self._unscale_grads_(optimizer, 1.0, 0.0, True)
        return found

    def _found_inf_per_device(self, optimizer: Any) -> Dict[Any, Tensor]:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
