"""The loss scale of a GPU: a float32 tensor there, which the GPU itself adapts, so that the host never waits for it."""

from __future__ import annotations

from typing import Any, List, Optional

from .. import _C
from .. import _creation as make
from .._C import Tensor


class DeviceScale:
    """What ``_C.ScalerState`` is on the CPU. Reading ``scale`` or ``growth_tracker`` as numbers waits for the GPU."""

    def __init__(self, scale: float, growth_factor: float, backoff_factor: float, growth_interval: int, min_scale: float, max_scale: float,
                 hysteresis: int, device: Any) -> None:
        self.scale_tensor = make.full((), scale, dtype=_C.float32, device=device)
        self.tracker_tensors = make.zeros(3, dtype=_C.int32, device=device)  # good steps in a row, overflows in a row, see ac_gpu_scale
        self.before_nans = make.zeros((), dtype=_C.float32, device=device)
        self.min_scale, self.max_scale, self.hysteresis = min_scale, max_scale, hysteresis
        self.growth_factor, self.backoff_factor, self.growth_interval = growth_factor, backoff_factor, growth_interval

    @property
    def scale(self) -> float:
        return self.scale_tensor.item()

    @scale.setter
    def scale(self, value: float) -> None:
        self.scale_tensor.fill_(value)

    @property
    def growth_tracker(self) -> int:
        return self.tracker_tensors[0].item()

    @growth_tracker.setter
    def growth_tracker(self, value: int) -> None:
        self.tracker_tensors[0] = value

    @property
    def overflows(self) -> int:
        return self.tracker_tensors[1].item()

    @overflows.setter
    def overflows(self, value: int) -> None:
        self.tracker_tensors[1] = value

    @property
    def inverse(self) -> float:
        """1 / scale, computed in float64 and rounded once to float32."""
        return self.scale_tensor.double().reciprocal().float().item()

    def update(self, found: List[Tensor], bad_losses: List[Tensor]) -> None:
        """Adapts the scale to an iteration's flags: pairs as ``_C._cuda_look`` leaves them, and whether losses themselves were nan."""
        _C._cuda_scale_update(self.scale_tensor, self.tracker_tensors, self.before_nans, self._total(found), self._total(bad_losses),
                              self.growth_factor, self.backoff_factor, self.growth_interval, self.min_scale, self.max_scale, self.hysteresis)

    def _total(self, flags: List[Tensor]) -> Optional[Tensor]:
        here = [f.to(self.scale_tensor.device, _C.float32, non_blocking=True) for f in flags]
        return sum(here[1:], here[0]) if here else None
