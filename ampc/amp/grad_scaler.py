"""GradScaler: dynamic loss scaling around any optimizer.

float16 has no numbers below 6e-8, where many gradients lie. The loss is multiplied by a scale before
backward and the gradients divided by it after; when a gradient overflows, the step is skipped and the
scale lowered, and after ``growth_interval`` good steps it is raised. Source: torch.amp.GradScaler.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections import abc, defaultdict
from collections.abc import Iterable
from copy import deepcopy
from enum import Enum
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from .. import _C
from .. import _creation as make
from .._C import Tensor
from .._device import CPU
from ..doctor import guard
from ..doctor._names import Names
from ..doctor.ledger import INFS, NANS, Ledger, Step, only_nans
from ._device_scale import DeviceScale
from ._ledger import remember
from .autocast_mode import cuda_means_cpu

_numbers = itertools.count(1)


class OptState(Enum):
    """Where an optimizer stands within an iteration."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh_state() -> Dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}, "flags": [], "seen": []}


class _Overflow(Exception):
    """Leaves an optimizer's step from within its closure."""


class GradScaler:
    """Scales losses and unscales gradients.

    Args:
        device: 'cuda' or 'cpu'; without a usable GPU 'cuda' acts on the CPU.
        init_scale: the first scale, a positive finite float32.
        growth_factor: > 1, by which the scale grows after ``growth_interval`` steps without overflow.
        backoff_factor: in (0, 1), by which it shrinks on overflow.
        growth_interval: how many good steps in a row, >= 1.
        enabled: False makes every method do nothing but ``step``, which steps.
        min_scale, max_scale: what the scale does not leave; by default all normal float32 powers of two.
        hysteresis: how many steps in a row must overflow before the scale shrinks, >= 1 (Megatron-LM, Transformer Engine).
        fp16_gradients: True allows gradients that are themselves float16, and may lose in unscaling what scaling saved.

    A gradient that is finite while scaled but infinite when unscaled counts as overflow. A loss that is itself nan, or
    nans that are still there when the scale has come down to 1, are no overflow: the step is skipped, and the scale stays (or
    comes back to) where it was, with a warning on the CPU; for a GPU nobody waits. ``last_step`` tells what the last ``step`` met.
    """

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True, *, min_scale: float = 2.0**-126, max_scale: float = 2.0**127,
                 hysteresis: int = 1, fp16_gradients: bool = False) -> None:
        if not isinstance(device, str):
            raise TypeError(f"GradScaler: `device` must be 'cuda' or 'cpu', got {device!r}; torch.cuda.amp.GradScaler takes "
                            "init_scale first")
        self._device = device
        self._enabled = bool(enabled)
        self._init_scale = init_scale
        self._init_growth_tracker = 0
        self._growth_factor, self._backoff_factor, self._growth_interval = growth_factor, backoff_factor, growth_interval
        self._min_scale, self._max_scale, self._hysteresis, self._fp16_gradients = min_scale, max_scale, hysteresis, bool(fp16_gradients)
        self._init_overflows = 0
        self._bad_losses: List[Any] = []  # of this iteration: True, or, where the scale is on a GPU, flags there
        self._before_nans: Optional[float] = None  # the scale when steps began to meet nans alone
        self._nans_at_one = False  # and they were still there at scale 1
        self.last_step: Optional[Step] = None
        self.ledger = Ledger()
        self._loss: Union[float, Tensor, None] = None  # the last one, before it was scaled
        self._number, self._round = next(_numbers), 0  # what stamps name: who scaled, in which of its iterations
        self._connected: Optional[bool] = None  # whether the losses of this iteration have a history
        self._state: Union[_C.ScalerState, DeviceScale, None] = None
        self._per_optimizer_states: Dict[int, Dict[str, Any]] = defaultdict(_fresh_state)
        if not self._enabled:
            return
        if device not in ("cuda", "cpu"):
            raise RuntimeError(f"GradScaler: device '{device}' cannot be scaled for; expected 'cuda' or 'cpu'")
        if device == "cuda":
            cuda_means_cpu("GradScaler")
        if not growth_factor > 1.0:
            raise AssertionError(f"GradScaler: `growth_factor` must be above 1, got {growth_factor}")
        if not 0.0 < backoff_factor < 1.0:
            raise AssertionError(f"GradScaler: `backoff_factor` must be between 0 and 1, got {backoff_factor}")
        if not (init_scale > 0 and math.isfinite(_f32(init_scale)) and _f32(init_scale) > 0):
            raise ValueError(f"GradScaler: `init_scale` must be a positive finite float32, got {init_scale}")
        if not 0 < _f32(min_scale) <= _f32(init_scale) <= _f32(max_scale) < math.inf:
            raise ValueError(f"GradScaler: `min_scale`, `init_scale` and `max_scale` must be positive finite float32 in that order, got "
                             f"{min_scale}, {init_scale} and {max_scale}")
        if hysteresis < 1:
            raise ValueError(f"GradScaler: `hysteresis` must be 1 or more, got {hysteresis}")
        if growth_interval < 1:
            raise ValueError(f"GradScaler: `growth_interval` must be 1 or more, got {growth_interval}")

    # -- the scale, made at the first use as torch does ------------------------------------------------

    def _lazy_init_scale_growth_tracker(self, device: Any = None) -> None:
        options = (self._init_scale, self._growth_factor, self._backoff_factor, self._growth_interval, self._min_scale, self._max_scale,
                   self._hysteresis)
        on_gpu = device is not None and device.type == "cuda"
        self._state = DeviceScale(*options, device) if on_gpu else _C.ScalerState(*options)
        self._state.growth_tracker, self._state.overflows = self._init_growth_tracker, self._init_overflows

    def _need_scale(self, what: str) -> Union[_C.ScalerState, DeviceScale]:
        if self._state is None:
            raise AssertionError(f"{what} was called before scale(): there is no scale yet. Call "
                                 "scaler.scale(loss).backward() earlier in the iteration")
        return self._state

    def _check_scale_growth_tracker(self, funcname: str) -> tuple:
        self._need_scale(funcname)
        return self._scale, self._growth_tracker

    @property
    def _scale(self) -> Optional[Tensor]:
        if isinstance(self._state, DeviceScale):
            return self._state.scale_tensor
        return None if self._state is None else make.full((), self._state.scale, dtype=_C.float32, device=CPU)

    @property
    def _growth_tracker(self) -> Optional[Tensor]:
        if isinstance(self._state, DeviceScale):
            return self._state.tracker_tensors[0]
        return None if self._state is None else make.full((), self._state.growth_tracker, dtype=_C.int32, device=CPU)

    def _get_scale_async(self) -> Optional[Tensor]:
        return self._scale

    # -- scaling -----------------------------------------------------------------------------------------

    def scale(self, outputs: Union[Tensor, Iterable[Any]]) -> Any:
        """``outputs`` (a Tensor, or lists, tuples and iterables of them) times the scale.

        ValueError when something else is among them."""
        if not self._enabled:
            return outputs
        return self._scaled(outputs)

    def _scaled(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            if self._state is None:
                self._lazy_init_scale_growth_tracker(value.device)
            state = self._state
            if value.numel() == 1:
                self._look_at_loss(value.detach())
            self._connected = bool(self._connected) or value.requires_grad
            if isinstance(state, DeviceScale):
                scaled, known = value * state.scale_tensor.to(value.device, non_blocking=True), 0.0
            else:
                scaled, known = value * self._scale, self.get_scale()
            _C._stamp_loss(scaled, self._number, self._round, known)
            return scaled
        if isinstance(value, abc.Iterable) and not isinstance(value, (str, bytes)):
            parts = map(self._scaled, value)
            if isinstance(value, (list, tuple)):
                return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
            return parts
        raise ValueError(f"scale: expected a Tensor or an iterable of Tensors, got {type(value).__name__}")

    def _look_at_loss(self, value: Tensor) -> None:
        """Notes a loss that is nan before it is scaled."""
        if isinstance(self._state, DeviceScale):
            self._loss = value
            self._bad_losses.append(value.isnan())
        else:
            self._loss = value.item()
            if math.isnan(self._loss):
                self._bad_losses.append(True)

    # -- unscaling ---------------------------------------------------------------------------------------

    def _unscale_grads_(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> Dict[Any, Tensor]:
        """One C pass over the optimizer's gradients on each device; {device: 1.0 if any is not finite else 0.0}. Of a GPU the
        number is there, and nobody waits for it."""
        grads: Dict[Any, list] = defaultdict(list)
        places: Dict[Any, list] = defaultdict(list)
        for g, group in enumerate(optimizer.param_groups):
            for i, p in enumerate(group["params"]):
                if not isinstance(p, Tensor):
                    raise AssertionError(f"the optimizer's parameters must be Tensors, got {type(p).__name__}")
                if p.grad is None:
                    continue
                if not allow_fp16 and p.grad.dtype == _C.float16:
                    raise ValueError(
                        f"the gradient of parameter {Names().of_parameter(optimizer, g, i)}, shape {list(p.shape)}, is float16: unscaling it would "
                        "lose what scaling saved. Keep the parameters in float32 (leave out model.half()) and let autocast choose float16 for the "
                        "products; or give the optimizer float32 masters, rounding='master', and say GradScaler(fp16_gradients=True)")
                grads[p.grad.device].append(p.grad)
                places[p.grad.device].append((g, i))
        mine = self._per_optimizer_states[id(optimizer)]
        mine["seen"], mine["flags"], found = [], [], {}
        for device, some in grads.items():
            flags, table, sums = self._unscale_on(device, some, inv_scale)
            found[device] = flags[0]
            mine["flags"].append(flags)
            mine["seen"].append((table, places[device], sums))
        return found

    def _unscale_on(self, device: Any, grads: list, inv_scale: Any) -> Tuple[Tensor, Tensor, Optional[tuple]]:
        """``inv_scale``: a number (1.0 only looks), or a DeviceScale to divide by. Whether something was not finite and, where the
        scale is on a GPU, whether infinite, too; what the pass saw of each; on the CPU also the sums of that."""
        by_scale = isinstance(inv_scale, DeviceScale)
        if device.type == "cpu":
            factor = inv_scale.inverse if by_scale else float(inv_scale)
            table = _C._look(grads, factor)
            if factor != 1.0:
                _C._scale_all(grads, factor)
            remember(grads, table)
            sums = _C._sum_up(table)
            flags = make.full((1 if isinstance(self._state, _C.ScalerState) else 2,), sums[INFS] + sums[NANS] > 0, dtype=_C.float32, device=CPU)
            if len(flags) == 2:
                flags[1] = sums[INFS] > 0
            return flags, table, sums
        flags = make.zeros(2, dtype=_C.float32, device=device)
        if by_scale:
            inverse = make.empty((), dtype=_C.float64, device=device)
            table = _C._cuda_look(grads, inv_scale.scale_tensor.to(device, non_blocking=True), flags, inverse)
            _C._scale_all(grads, 1.0, inverse)
        else:
            if inv_scale != 1.0:
                _C._scale_all(grads, float(inv_scale))
            table = _C._cuda_look(grads, None, flags)
        remember(grads, table)
        return flags, table, None

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of the optimizer's parameters by the scale, in place, and looks for
        overflow; once an iteration for each optimizer, before clipping.

        RuntimeError when called twice or after ``step``; AssertionError before ``scale``; ValueError for
        float16 gradients."""
        if not self._enabled:
            return
        state = self._need_scale("unscale_")
        mine = self._per_optimizer_states[id(optimizer)]
        if mine["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() was already called for this optimizer since the last update()")
        if mine["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() comes before step(), which was already called for this optimizer")
        on_gpu = isinstance(state, DeviceScale)
        guard.before_unscale(self._number, self._round, 0.0 if on_gpu else state.scale, optimizer)
        inverse = state if on_gpu else state.inverse
        mine["found_inf_per_device"] = self._unscale_grads_(optimizer, inverse, 0.0, self._fp16_gradients)
        _C._restamp(optimizer.param_groups, "unscaled")
        mine["stage"] = OptState.UNSCALED

    def take_unscaled(self, optimizer: Any) -> None:
        """The optimizer's gradients are divided already: they are looked at, and ``step`` follows. In place of ``unscale_``, for who makes
        gradients by hand; it needs no ``scale`` before it. RuntimeError where this iteration has unscaled or stepped already."""
        if not self._enabled:
            return
        mine = self._per_optimizer_states[id(optimizer)]
        if mine["stage"] is not OptState.READY:
            raise RuntimeError("take_unscaled() comes before unscale_() and step(), once an iteration")
        if self._state is None:
            first = next((p for group in optimizer.param_groups for p in group["params"]), None)
            self._lazy_init_scale_growth_tracker(None if first is None else first.device)
        self._check_inf_per_device(optimizer)
        mine["stage"] = OptState.UNSCALED

    def _maybe_opt_step(self, optimizer: Any, optimizer_state: Dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        found = list(optimizer_state["found_inf_per_device"].values())
        can_leave_out = getattr(optimizer, "_can_leave_out", None)
        if len(found) == 1 and found[0].is_cuda and can_leave_out is not None and can_leave_out():
            optimizer._found_inf = found[0]  # the GPU leaves the step out where it must; nobody waits
            try:
                return optimizer.step(*args, **kwargs)
            finally:
                optimizer._found_inf = None
        if sum(v.item() for v in found):
            optimizer._has_stepped = True  # as far as a scheduler goes
            optimizer._n_skipped = getattr(optimizer, "_n_skipped", 0) + 1
            if kwargs.get("zero_grad"):
                optimizer.zero_grad(set_to_none=False)
            return None
        return optimizer.step(*args, **kwargs)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscales the optimizer's gradients unless that was done, and calls ``optimizer.step(*args,
        **kwargs)`` unless one is not finite. Returns what it returned, None when skipped.

        A closure, which calls ``scaler.scale(loss).backward()`` as a step's script does and returns the loss, may be called any
        number of times; gradients are unscaled after each. Overflow in one of them undoes the whole step: parameters and the
        optimizer's state are as before.

        RuntimeError when called twice since ``update``; AssertionError when the optimizer has no gradients."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        closure = kwargs.get("closure") or (args[0] if args and callable(args[0]) else None)
        if closure is not None:
            return self._step_with_closure(optimizer, closure, args[1:], {k: v for k, v in kwargs.items() if k != "closure"})
        state = self._need_scale("step")
        mine = self._per_optimizer_states[id(optimizer)]
        if mine["stage"] is OptState.STEPPED:
            raise RuntimeError("step() was already called for this optimizer since the last update()")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._step_inside(optimizer, state, mine, *args, **kwargs)
        if mine["stage"] is OptState.READY:
            self.unscale_(optimizer)
        else:
            guard.before_unscaled_step(optimizer)
        if not mine["found_inf_per_device"]:
            raise AssertionError(guard.no_gradients(optimizer, "step", self._connected))
        self._note_step(optimizer, mine)
        result = self._maybe_opt_step(optimizer, mine, *args, **kwargs)
        mine["stage"] = OptState.STEPPED
        return result

    def _note_step(self, optimizer: Any, mine: Dict[str, Any]) -> None:
        state = self._state
        scale = state.scale_tensor.clone() if isinstance(state, DeviceScale) else self.get_scale()
        found = list(mine["found_inf_per_device"].values())
        self.last_step = self.ledger.add(optimizer, scale, self._loss, found, mine["seen"])

    def _step_with_closure(self, optimizer: Any, closure: Callable[[], Any], args: tuple, kwargs: Dict[str, Any]) -> Any:
        mine = self._per_optimizer_states[id(optimizer)]
        if mine["stage"] is not OptState.READY:
            raise RuntimeError("step: with a closure it comes alone: unscale_() or step() was already called for this optimizer")
        params = [p for group in optimizer.param_groups for p in group["params"]]
        before = [p.detach().clone() for p in params]
        memory = {k: deepcopy(v) for k, v in optimizer.state.items()}  # the keys are the parameters themselves

        def unscaled() -> Any:
            loss = closure()
            mine["stage"] = OptState.READY
            self.unscale_(optimizer)
            if not mine["found_inf_per_device"]:
                raise AssertionError("step: the closure left no gradient; does it call scaler.scale(loss).backward()?")
            self._note_step(optimizer, mine)
            if self.last_step is not None and self.last_step.skipped:
                raise _Overflow
            return loss

        try:
            return optimizer.step(unscaled, *args, **kwargs)
        except _Overflow:
            for p, old in zip(params, before):
                p.detach().copy_(old)
            optimizer.state.clear()
            optimizer.state.update(memory)
            if kwargs.get("zero_grad"):
                optimizer.zero_grad(set_to_none=False)
            return None
        finally:
            mine["stage"] = OptState.STEPPED

    def report(self) -> Any:
        """What the last 1,000 steps met: text when printed, tables and pictures in a notebook, ``save(path)`` for a picture."""
        from ..doctor.ledger_report import LedgerReport

        return LedgerReport(self)

    def __repr__(self) -> str:
        if not self._enabled:
            return "GradScaler(enabled=False)"
        return (f"GradScaler('{self._device}', scale {self.get_scale():.8g}, {self._get_growth_tracker()} of {self._growth_interval} good steps "
                f"to the next growth, {self.ledger.total} steps)")

    def _repr_html_(self) -> str:
        import html

        return f"<p>{html.escape(repr(self))}</p>" + (str(self.report()._repr_html_()) if self.ledger.total else "")

    def gate(self, scheduler: Any) -> Gate:
        """``scheduler``, whose ``step`` does nothing after a step that was skipped."""
        return Gate(self, scheduler)

    def _step_inside(self, optimizer: Any, state: Any, mine: Dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """For optimizers that unscale within their own step: they find ``grad_scale`` and ``found_inf`` on themselves."""
        from inspect import signature

        if "grad_scaler" in signature(optimizer.step).parameters:
            kwargs["grad_scaler"] = self
            result = optimizer.step(*args, **kwargs)
            mine["stage"] = OptState.STEPPED
            return result
        if mine["stage"] is OptState.READY:
            self._check_inf_per_device(optimizer)
        found = mine["found_inf_per_device"]
        own = getattr(optimizer, "grad_scale", None)
        optimizer.grad_scale = own if mine["stage"] is OptState.UNSCALED else self._scale if own is None else self._scale * own
        optimizer.found_inf = sum(found.values()) if found else make.zeros(())
        try:
            result = optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale, optimizer.found_inf
        mine["stage"] = OptState.STEPPED
        return result

    # -- after the step ------------------------------------------------------------------------------------

    def update(self, new_scale: Union[float, Tensor, None] = None) -> None:
        """Ends the iteration: adapts the scale to what the steps found, or sets it to ``new_scale``.

        AssertionError before any ``step`` or ``unscale_``, or for a ``new_scale`` that is not a positive
        finite number."""
        if not self._enabled:
            return
        state = self._need_scale("update")
        if new_scale is not None:
            state.scale = self._checked_scale(new_scale)
        else:
            stages = list(self._per_optimizer_states.values())
            found = [v for s in stages for v in s["found_inf_per_device"].values()]
            if not found:
                raise AssertionError("update: no gradient was looked at since the last update(); call step(optimizer) first")
            if isinstance(state, DeviceScale):
                state.update([pair for s in stages for pair in s["flags"]], self._bad_losses)
            else:
                bad = any(v.item() for v in found)
                self._update_number(state, bad, bad and only_nans([look for s in stages for look in s["seen"]]))
        self._bad_losses, self._connected = [], None
        self._round += 1
        self._per_optimizer_states = defaultdict(_fresh_state)

    def _update_number(self, state: Any, found: bool, nans: bool) -> None:
        """Tells overflow from what no scale would have prevented."""
        if not nans:
            self._before_nans, self._nans_at_one = None, False
        if found and self._bad_losses:
            return
        if nans:
            if self._before_nans is None:
                self._before_nans = state.scale
            if not self._nans_at_one and state.scale <= 1:
                self._nans_at_one, state.scale = True, self._before_nans
                culprit = self.last_step.culprit if self.last_step else None
                warnings.warn(f"GradScaler: the gradient of parameter {culprit.name if culprit else '?'} is nan at a scale of 1, too, so "
                              f"scaling is not what makes it; the scale is back at {self._before_nans:g}. Look for a division by 0, the "
                              "logarithm or square root of 0, or 0 times infinity in the model or its data", stacklevel=3)
            if self._nans_at_one:
                return
        state.update(found)

    @staticmethod
    def _checked_scale(new_scale: Union[float, Tensor]) -> float:
        if isinstance(new_scale, Tensor):
            if new_scale.numel() != 1 or new_scale.requires_grad or not new_scale.is_floating_point():
                raise AssertionError("update: `new_scale` must be a float or a floating point Tensor of one element that does not "
                                     "require gradients")
            new_scale = new_scale.item()
        if not isinstance(new_scale, (int, float)) or not (_f32(new_scale) > 0 and math.isfinite(_f32(new_scale))):
            raise AssertionError(f"update: `new_scale` must be a positive finite float32, got {new_scale!r}")
        return float(new_scale)

    # -- getters and setters ----------------------------------------------------------------------------------

    def get_scale(self) -> float:
        """The present scale; 1.0 when disabled."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._state is None else self._state.scale

    def get_growth_factor(self) -> float:
        """By what the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets by what the scale grows, > 1."""
        self._growth_factor = new_factor
        if self._state is not None:
            self._state.growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """By what it shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets by what it shrinks, in (0, 1)."""
        self._backoff_factor = new_factor
        if self._state is not None:
            self._state.backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Good steps before the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets how many good steps before the scale grows."""
        self._growth_interval = new_interval
        if self._state is not None:
            self._state.growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._state is None else self._state.growth_tracker

    def is_enabled(self) -> bool:
        """Whether it scales."""
        return self._enabled

    # -- saving ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """``scale growth_factor backoff_factor growth_interval _growth_tracker``; {} when disabled."""
        if not self._enabled:
            return {}
        state = {"scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
                 "growth_interval": self._growth_interval, "_growth_tracker": self._get_growth_tracker()}
        if self._hysteresis > 1:  # torch's have no such key
            state["_overflows"] = self._init_overflows if self._state is None else self._state.overflows
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Continues from a state_dict. RuntimeError when it is empty (from a disabled scaler)."""
        if not self._enabled:
            return
        if len(state_dict) == 0:
            raise RuntimeError("load_state_dict: the state is empty; it was saved from a disabled GradScaler")
        self._init_scale = self._checked_scale(float(state_dict["scale"]))
        self._init_growth_tracker, self._init_overflows = int(state_dict["_growth_tracker"]), int(state_dict.get("_overflows", 0))
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        if self._state is not None:
            device = self._state.scale_tensor.device if isinstance(self._state, DeviceScale) else None
            self._lazy_init_scale_growth_tracker(device)

    def __getstate__(self) -> Dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError("a GradScaler can be pickled between iterations only: before scale(), or after update()")
            state["_init_scale"] = self.get_scale()
            state["_init_growth_tracker"] = self._get_growth_tracker()
            state["_init_overflows"] = self._init_overflows if self._state is None else self._state.overflows
            state["last_step"], state["_bad_losses"] = None, []
        del state["_number"]
        state["ledger"], state["_loss"] = Ledger(), None
        state["_state"] = None
        state["_per_optimizer_states"] = {}
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._number = next(_numbers)
        self._per_optimizer_states = defaultdict(_fresh_state)

    def _check_inf_per_device(self, optimizer: Any) -> Dict[Any, Tensor]:
        """Looks for overflow without changing the gradients."""
        self._need_scale("_check_inf_per_device")
        found = self._unscale_grads_(optimizer, 1.0, 0.0, True)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = found
        return found

    def _found_inf_per_device(self, optimizer: Any) -> Dict[Any, Tensor]:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]


class Gate:
    """A scheduler that follows the steps that were applied. All else is the scheduler's own."""

    def __init__(self, scaler: GradScaler, scheduler: Any) -> None:
        self._scaler, self._scheduler = scaler, scheduler

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """The scheduler's, unless the scaler's last step was skipped. On a GPU it waits to know."""
        last = self._scaler.last_step
        if last is not None and last.skipped:
            return None
        return self._scheduler.step(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)


def _f32(x: float) -> float:
    """x rounded to float32; infinite where that overflows."""
    if abs(x) > 3.4028235677973366e38:
        return math.copysign(math.inf, x)
    return make.full((), float(x), dtype=_C.float32, device=CPU).item()


