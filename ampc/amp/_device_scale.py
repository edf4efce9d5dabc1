"""The loss scale on a GPU: a float32 tensor that the GPU itself adapts, so the CPU does not wait for it."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple

from .. import _C
from .._C import Tensor
from .._tensor import creation as make
from .._tensor.device import CPU
from ._ledger import INFS, NANS, GradStats, remember
from ._unscale import divide_by_number


class DeviceScale:
    """``Scale`` on a GPU."""

    known = 0.0
    _used: Optional[Tensor] = None  # the scale that gradients of this iteration were divided by

    def __init__(self, scale: float, growth_factor: float, backoff_factor: float, growth_interval: int, min_scale: float, max_scale: float,
                 hysteresis: int, device: Any) -> None:
        self.scale_tensor = make.full((), scale, dtype=_C.float32, device=device)
        self.tracker_tensors = make.zeros(3, dtype=_C.int32, device=device)  # good steps in a row, overflows in a row, see ac_gpu_scale
        self.before_nans = make.zeros((), dtype=_C.float32, device=device)
        self.min_scale, self.max_scale, self.hysteresis = min_scale, max_scale, hysteresis
        self.growth_factor, self.backoff_factor, self.growth_interval = growth_factor, backoff_factor, growth_interval

    @property
    def scale(self) -> float:
        """The current scale. Waits for the GPU."""
        return self.scale_tensor.item()

    @scale.setter
    def scale(self, value: float) -> None:
        self.scale_tensor.fill_(value)
        self._used = None

    @property
    def growth_tracker(self) -> int:
        """Good steps in a row. Waits for the GPU."""
        return self.tracker_tensors[0].item()

    @growth_tracker.setter
    def growth_tracker(self, value: int) -> None:
        self.tracker_tensors[0] = value

    @property
    def overflows(self) -> int:
        """Overflows in a row. Waits for the GPU."""
        return self.tracker_tensors[1].item()

    @overflows.setter
    def overflows(self, value: int) -> None:
        self.tracker_tensors[1] = value

    @property
    def inverse(self) -> float:
        """1 / scale, computed in float64 and rounded once to float32."""
        return self.scale_tensor.double().reciprocal().float().item()

    @property
    def device(self) -> Any:
        """The GPU."""
        return self.scale_tensor.device

    @property
    def tracker_tensor(self) -> Tensor:
        """The good steps in a row."""
        return self.tracker_tensors[0]

    def snapshot(self) -> Tensor:
        """A copy of the scale; dividing gradients by it has made one already."""
        return self.scale_tensor.clone() if self._used is None else self._used

    def times(self, value: Tensor) -> Tensor:
        """``value`` times the scale."""
        return value * self._scale_on(value)

    def read_loss(self, loss: Tensor) -> Tensor:
        """The loss; ``adapt`` looks whether it is finite then."""
        return loss

    def divide_gradients(self, device: Any, grads: List[Tensor], positions: List[Tuple[int, int]]) -> GradStats:
        """Divides gradients on one device. For gradients on the CPU it waits for the scale."""
        if device.type == "cpu":
            return divide_by_number(self, self.inverse, device, grads, positions)
        table, flags, inverse, self._used = _C._cuda_grad_stats(grads, self._scale_on(grads[0]))
        _C._scale_all(grads, 1.0, inverse)
        remember(grads, table)
        return GradStats(table, positions, None, flags)

    def flags_of(self, sums: Tuple[float, ...]) -> Tensor:
        """[1.0 where some value is not finite, 1.0 where some is infinite]."""
        flags = make.full((2,), sums[INFS] + sums[NANS] > 0, dtype=_C.float32, device=CPU)
        flags[1] = sums[INFS] > 0
        return flags

    def adapt(self, found_inf: List[Tensor], losses: list, stats: Callable[[], List[GradStats]], culprit: Callable[[], str]) -> None:
        """Adapts the scale on the GPU, by the flags of all gradients. Nothing warns of nans."""
        _C._cuda_scale_update(self.scale_tensor, self.tracker_tensors, self.before_nans, self._total([stat.flags for stat in stats()]),
                              self._one_loss(losses), self.growth_factor, self.backoff_factor, self.growth_interval, self.min_scale,
                              self.max_scale, self.hysteresis)
        self._used = None

    def _one_loss(self, losses: List[Tensor]) -> Optional[Tensor]:
        """A number that is finite where one of the losses is, or there is none."""
        if len(losses) == 1 and self._is_beside(losses[0]):
            return losses[0]
        finite = self._total([(loss * 0 == 0).float() for loss in losses])
        return None if finite is None else finite.reciprocal()

    def _is_beside(self, t: Tensor) -> bool:
        return t.dtype is _C.float32 and _C._device_index(t) == _C._device_index(self.scale_tensor)

    def _scale_on(self, t: Tensor) -> Tensor:
        """The scale, on the device of another tensor."""
        same = _C._device_index(t) == _C._device_index(self.scale_tensor)
        return self.scale_tensor if same else self.scale_tensor.to(t.device, non_blocking=True)

    def _total(self, flags: List[Tensor]) -> Optional[Tensor]:
        here = [f if self._is_beside(f) else f.to(self.scale_tensor.device, _C.float32, non_blocking=True) for f in flags]
        return sum(here[1:], here[0]) if here else None
