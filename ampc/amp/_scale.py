"""The interface of a loss scale, and the checks of GradScaler's arguments.

Two classes have the interface. ``_host_scale.py`` keeps the scale on the CPU, ``_device_scale.py`` on the GPU."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sized
from functools import partial
from typing import Any, Callable, List, Protocol, SupportsFloat, Tuple, Union

from .. import _C
from .._C import Tensor
from .._tensor import creation as make
from .._tensor.device import CPU
from ._ledger import GradStats

Loss = Union[float, Tensor]


class Scale(Protocol):
    """A dynamic loss scale. Reading a number of a scale on a GPU waits for the GPU. The methods do not wait."""

    growth_factor: float
    backoff_factor: float
    growth_interval: int

    @property
    def scale(self) -> float:
        """The present scale."""

    @scale.setter
    def scale(self, value: float) -> None: ...

    @property
    def growth_tracker(self) -> int:
        """Good steps in a row."""

    @growth_tracker.setter
    def growth_tracker(self, value: int) -> None: ...

    @property
    def overflows(self) -> int:
        """Overflows in a row."""

    @overflows.setter
    def overflows(self, value: int) -> None: ...

    @property
    def inverse(self) -> float:
        """1 / scale, computed in float64 and rounded once to float32."""

    @property
    def known(self) -> float:
        """The scale, or 0.0 if the CPU would have to wait for it."""

    @property
    def device(self) -> Any:
        """The device that holds the scale."""

    @property
    def scale_tensor(self) -> Tensor:
        """The scale, a 0-d float32 tensor."""

    @property
    def tracker_tensor(self) -> Tensor:
        """The good steps in a row, a 0-d int32 tensor."""

    def snapshot(self) -> Loss:
        """The scale of this moment, for a record; a later change does not reach it."""

    def times(self, value: Tensor) -> Tensor:
        """``value`` times the scale."""

    def read_loss(self, loss: Tensor) -> Loss:
        """A loss of one element, for a record and for ``adapt``."""

    def divide_gradients(self, device: Any, grads: List[Tensor], positions: List[Tuple[int, int]]) -> GradStats:
        """Divides gradients on one device, in place. Returns statistics of them."""

    def flags_of(self, sums: Tuple[float, ...]) -> Tensor:
        """Turns sums over gradients on the CPU into ``GradStats.flags``."""

    def adapt(self, found_inf: List[Tensor], losses: list, stats: Callable[[], List[GradStats]], culprit: Callable[[], str]) -> None:
        """Ends an iteration: raises or lowers the scale.

        ``found_inf`` are the flags of all gradients, ``losses`` the iteration's, of ``read_loss``. ``stats()`` returns the statistics of
        gradients, ``culprit()`` the name of the first parameter whose gradient is not finite. The scale stays where no loss was finite. Where
        only some were not, the scale may be the cause: an overflow of the gradients of one loss can be in the next, as in a gradient penalty."""


def each_tensor(value: Any, scaled: Callable[[Tensor], Tensor]) -> Any:
    """Applies ``scaled`` to a Tensor, or to each Tensor of nested iterables. ValueError for anything else."""
    if isinstance(value, Tensor):
        return scaled(value)
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        parts = map(partial(each_tensor, scaled=scaled), value)
        if isinstance(value, (list, tuple)):
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        return parts
    raise ValueError(f"scale: expected a Tensor or an iterable of Tensors, got {type(value).__name__}")


# -- checks of arguments -----------------------------------------------------------------------------


def f32(x: float) -> float:
    """x rounded to float32; infinite where that overflows."""
    if abs(x) > 3.4028235677973366e38:
        return math.copysign(math.inf, x)
    return make.full((), float(x), dtype=_C.float32, device=CPU).item()


def check_kind(device: Any, enabled: bool) -> None:
    """TypeError or RuntimeError for an invalid ``device`` of GradScaler."""
    if not isinstance(device, str):
        raise TypeError(f"GradScaler: `device` must be 'cuda' or 'cpu', got {device!r}; torch.cuda.amp.GradScaler takes "
                        "init_scale first")
    if enabled and device.partition(":")[0] not in ("cuda", "cpu"):
        raise RuntimeError(f"GradScaler: `device` must be 'cuda' or 'cpu', got '{device}'")


def check_scaling(growth_factor: float, backoff_factor: float, growth_interval: int, init_scale: float, min_scale: float, max_scale: float,
                  hysteresis: int) -> None:
    """TypeError for an option of GradScaler that is no number; AssertionError or ValueError for one that is out of range."""
    options = {"init_scale": init_scale, "growth_factor": growth_factor, "backoff_factor": backoff_factor, "growth_interval": growth_interval,
               "min_scale": min_scale, "max_scale": max_scale, "hysteresis": hysteresis}
    for name, value in options.items():
        if not isinstance(value, SupportsFloat):
            raise TypeError(f"GradScaler: `{name}` must be a number, got {value!r}")
    if not growth_factor > 1.0:
        raise AssertionError(f"GradScaler: `growth_factor` must be above 1, got {growth_factor}")
    if not 0.0 < backoff_factor < 1.0:
        raise AssertionError(f"GradScaler: `backoff_factor` must be between 0 and 1, got {backoff_factor}")
    if not (init_scale > 0 and math.isfinite(f32(init_scale)) and f32(init_scale) > 0):
        raise ValueError(f"GradScaler: `init_scale` must be a positive finite float32, got {init_scale}")
    if not 0 < f32(min_scale) <= f32(init_scale) <= f32(max_scale) < math.inf:
        raise ValueError(f"GradScaler: `min_scale`, `init_scale` and `max_scale` must be positive finite float32 in that order, got "
                         f"{min_scale}, {init_scale} and {max_scale}")
    if hysteresis < 1:
        raise ValueError(f"GradScaler: `hysteresis` must be 1 or more, got {hysteresis}")
    if growth_interval < 1:
        raise ValueError(f"GradScaler: `growth_interval` must be 1 or more, got {growth_interval}")


def check_state(state: Any) -> None:
    """TypeError, RuntimeError or KeyError for what no GradScaler's state_dict() has returned."""
    needed = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")
    if isinstance(state, Sized) and len(state) == 0:
        raise RuntimeError("load_state_dict: the state is empty, as a disabled GradScaler saves it")
    if not isinstance(state, Mapping):
        raise TypeError(f"load_state_dict: expected a dict that a GradScaler's state_dict() has returned, got {type(state).__name__}")
    lacking = [name for name in needed if name not in state]
    if lacking:
        raise KeyError(f"load_state_dict: the state has {list(state)} and lacks {lacking}; load what a GradScaler's state_dict() has returned")


def checked_scale(new_scale: Union[float, Tensor, None]) -> float:
    """``new_scale`` as a number. AssertionError if it cannot be a scale."""
    if isinstance(new_scale, Tensor):
        if new_scale.numel() != 1 or new_scale.requires_grad or not new_scale.is_floating_point():
            raise AssertionError("update: `new_scale` must be a float or a floating point Tensor of one element that does not "
                                 "require gradients")
        new_scale = new_scale.item()
    if not isinstance(new_scale, (int, float)) or not (f32(new_scale) > 0 and math.isfinite(f32(new_scale))):
        raise AssertionError(f"update: `new_scale` must be a positive finite float32, got {new_scale!r}")
    return float(new_scale)
