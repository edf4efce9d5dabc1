"""GradScaler: dynamic loss scaling around any optimizer.

float16 has no numbers below 6e-8, where many gradients lie. The loss is multiplied by a scale before
backward and the gradients divided by it after; when a gradient overflows, the step is skipped and the
scale lowered, and after ``growth_interval`` good steps it is raised. Source: torch.amp.GradScaler.
"""

from __future__ import annotations

import inspect
import math
from collections import abc, defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any, Dict, Optional, Union

from .. import _C
from .. import _creation as make
from .._C import Tensor
from .._device import CPU
from ._device_scale import DeviceScale
from ._ledger import remember
from .autocast_mode import cuda_means_cpu


class OptState(Enum):
    """Where an optimizer stands within an iteration."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh_state() -> Dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """Scales losses and unscales gradients.

    Args:
        device: 'cuda' or 'cpu'; without a usable GPU 'cuda' acts on the CPU.
        init_scale: the first scale, a positive finite float32.
        growth_factor: > 1, by which the scale grows after ``growth_interval`` steps without overflow.
        backoff_factor: in (0, 1), by which it shrinks on overflow.
        growth_interval: how many good steps in a row, >= 1.
        enabled: False makes every method do nothing but ``step``, which steps.

    The scale never becomes 0, infinite or nan. A gradient that is finite while scaled but infinite
    when unscaled counts as overflow.
    """

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True) -> None:
        if not isinstance(device, str):
            raise TypeError(f"GradScaler: `device` must be 'cuda' or 'cpu', got {device!r}; torch.cuda.amp.GradScaler takes "
                            "init_scale first")
        self._device = device
        self._enabled = bool(enabled)
        self._init_scale = init_scale
        self._init_growth_tracker = 0
        self._growth_factor, self._backoff_factor, self._growth_interval = growth_factor, backoff_factor, growth_interval
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
        if growth_interval < 1:
            raise ValueError(f"GradScaler: `growth_interval` must be 1 or more, got {growth_interval}")

    # -- the scale, made at the first use as torch does ------------------------------------------------

    def _lazy_init_scale_growth_tracker(self, device: Any = None) -> None:
        options = (self._init_scale, self._growth_factor, self._backoff_factor, self._growth_interval)
        on_gpu = device is not None and device.type == "cuda"
        self._state = DeviceScale(*options, device) if on_gpu else _C.ScalerState(*options)
        self._state.growth_tracker = self._init_growth_tracker

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
            return self._state.tracker_tensor
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
            if isinstance(state, DeviceScale):
                return value * state.scale_tensor.to(value.device, non_blocking=True)
            return value * self._scale
        if isinstance(value, abc.Iterable) and not isinstance(value, (str, bytes)):
            parts = map(self._scaled, value)
            if isinstance(value, (list, tuple)):
                return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
            return parts
        raise ValueError(f"scale: expected a Tensor or an iterable of Tensors, got {type(value).__name__}")

    # -- unscaling ---------------------------------------------------------------------------------------

    def _unscale_grads_(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> Dict[Any, Tensor]:
        """One C pass over the optimizer's gradients on each device; {device: 1.0 if any is not finite else 0.0}. Of a GPU the
        number is there, and nobody waits for it."""
        grads: Dict[Any, list] = defaultdict(list)
        for g, group in enumerate(optimizer.param_groups):
            for i, p in enumerate(group["params"]):
                if not isinstance(p, Tensor):
                    raise AssertionError(f"the optimizer's parameters must be Tensors, got {type(p).__name__}")
                if p.grad is None:
                    continue
                if not allow_fp16 and p.grad.dtype == _C.float16:
                    raise ValueError(
                        f"the gradient of parameter {i} (group {g}, shape {list(p.shape)}) is float16: unscaling it would lose what "
                        "scaling saved. Keep the parameters in float32 and let autocast choose float16 for the products")
                grads[p.grad.device].append(p.grad)
        return {device: self._unscale_on(device, some, inv_scale) for device, some in grads.items()}

    @staticmethod
    def _unscale_on(device: Any, grads: list, inv_scale: Any) -> Tensor:
        """``inv_scale``: a number (1.0 only looks), or a DeviceScale to divide by."""
        by_scale = isinstance(inv_scale, DeviceScale)
        if device.type == "cpu":
            factor = inv_scale.inverse if by_scale else float(inv_scale)
            found = _C._look(grads, factor)
            if factor != 1.0:
                _C._scale_all(grads, factor)
            remember(grads, found)
            return make.full((), 1.0 if _C._bad(found) else 0.0, dtype=_C.float32, device=CPU)
        found = make.zeros((), dtype=_C.float32, device=device)
        if by_scale:
            remember(grads, _C._cuda_unscale(grads, inv_scale.scale_tensor.to(device, non_blocking=True), found, True, True))
        else:
            by = None if inv_scale == 1.0 else make.full((), float(inv_scale), dtype=_C.float32, device=device)
            _C._cuda_unscale(grads, by, found)
        return found

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
        inverse = state if isinstance(state, DeviceScale) else state.inverse
        mine["found_inf_per_device"] = self._unscale_grads_(optimizer, inverse, 0.0, False)
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
            return None
        return optimizer.step(*args, **kwargs)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscales the optimizer's gradients unless that was done, and calls ``optimizer.step(*args,
        **kwargs)`` unless one is not finite. Returns what it returned, None when skipped.

        RuntimeError when called twice since ``update``, or with a closure; AssertionError when the
        optimizer has no gradients."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if kwargs.get("closure") is not None or (args and callable(args[0])):
            raise RuntimeError("step: closures cannot be used with an enabled GradScaler")
        state = self._need_scale("step")
        mine = self._per_optimizer_states[id(optimizer)]
        if mine["stage"] is OptState.STEPPED:
            raise RuntimeError("step() was already called for this optimizer since the last update()")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._step_inside(optimizer, state, mine, *args, **kwargs)
        if mine["stage"] is OptState.READY:
            self.unscale_(optimizer)
        if not mine["found_inf_per_device"]:
            raise AssertionError(
                "step: none of the optimizer's parameters has a gradient; was backward() called on the scaled loss, and does "
                "the loss depend on these parameters?")
        result = self._maybe_opt_step(optimizer, mine, *args, **kwargs)
        mine["stage"] = OptState.STEPPED
        return result

    def _step_inside(self, optimizer: Any, state: Any, mine: Dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """For optimizers that unscale within their own step: they find ``grad_scale`` and ``found_inf`` on themselves."""
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
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
            found = [v for s in self._per_optimizer_states.values() for v in s["found_inf_per_device"].values()]
            if not found:
                raise AssertionError("update: no gradient was looked at since the last update(); call step(optimizer) first")
            if isinstance(state, DeviceScale):
                state.update(found)
            else:
                state.update(any(v.item() for v in found))
        self._per_optimizer_states = defaultdict(_fresh_state)

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
        return {"scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
                "growth_interval": self._growth_interval, "_growth_tracker": self._get_growth_tracker()}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Continues from a state_dict. RuntimeError when it is empty (from a disabled scaler)."""
        if not self._enabled:
            return
        if len(state_dict) == 0:
            raise RuntimeError("load_state_dict: the state is empty; it was saved from a disabled GradScaler")
        self._init_scale = self._checked_scale(float(state_dict["scale"]))
        self._init_growth_tracker = int(state_dict["_growth_tracker"])
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
        state["_state"] = None
        state["_per_optimizer_states"] = {}
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._per_optimizer_states = defaultdict(_fresh_state)

    def _check_inf_per_device(self, optimizer: Any) -> Dict[Any, Tensor]:
        """Looks for overflow without changing the gradients."""
        self._need_scale("_check_inf_per_device")
        found = self._unscale_grads_(optimizer, 1.0, 0.0, True)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = found
        return found

    def _found_inf_per_device(self, optimizer: Any) -> Dict[Any, Tensor]:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]


def _f32(x: float) -> float:
    """x rounded to float32; infinite where that overflows."""
    if abs(x) > 3.4028235677973366e38:
        return math.copysign(math.inf, x)
    return make.full((), float(x), dtype=_C.float32, device=CPU).item()


