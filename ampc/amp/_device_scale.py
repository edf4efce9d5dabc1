"""The loss scale where the losses are: a float32 on the GPU, adapted there, so that nobody waits for it."""

from __future__ import annotations

from typing import Any, List

from .. import _C
from .. import _creation as make
from .._C import Tensor


class DeviceScale:
    """What ``_C.ScalerState`` is on the CPU. Reading ``scale`` or ``growth_tracker`` as numbers waits for the GPU."""

    def __init__(self, scale: float, growth_factor: float, backoff_factor: float, growth_interval: int, device: Any) -> None:
        self.scale_tensor = make.full((), scale, dtype=_C.float32, device=device)
        self.tracker_tensor = make.zeros((), dtype=_C.int32, device=device)
        self.growth_factor, self.backoff_factor, self.growth_interval = growth_factor, backoff_factor, growth_interval

    @property
    def scale(self) -> float:
        return self.scale_tensor.item()

    @scale.setter
    def scale(self, value: float) -> None:
        self.scale_tensor.fill_(value)

    @property
    def growth_tracker(self) -> int:
        return self.tracker_tensor.item()

    @growth_tracker.setter
    def growth_tracker(self, value: int) -> None:
        self.tracker_tensor.fill_(value)

    @property
    def inverse(self) -> float:
        """1 / scale, computed in float64 and rounded once to float32."""
        return self.scale_tensor.double().reciprocal().float().item()

    def update(self, found: List[Tensor]) -> None:
        """Adapts the scale to the flags of an iteration."""
        flags = [f.to(self.scale_tensor.device, non_blocking=True) for f in found]
        total = flags[0] if len(flags) == 1 else sum(flags[1:], flags[0])
        _C._cuda_scale_update(self.scale_tensor, self.tracker_tensor, total, self.growth_factor, self.backoff_factor, self.growth_interval)
