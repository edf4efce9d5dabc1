"""Loss scales for training loops that scale, divide and step by themselves. ``GradScaler`` does all of that."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, List, Optional

from .. import _C
from .._C import Tensor


class StaticLossScaler:
    """A scale that never changes.

    Args:
        scale: a positive finite number.

    ValueError for another."""

    def __init__(self, scale: float = 2.0**15) -> None:
        self.scale = _positive(scale, type(self).__name__, "scale")

    def scale_loss(self, loss: Any) -> Any:
        """``loss`` times the scale."""
        return loss * self.scale

    def unscale_gradients(self, gradients: Iterable[Optional[Tensor]]) -> List[Optional[Tensor]]:
        """The gradients divided by the scale, new ones; None stays None."""
        return [None if g is None else g / self.scale for g in gradients]

    @staticmethod
    def has_overflow(gradients: Iterable[Optional[Tensor]]) -> bool:
        """Whether one of the gradients is not finite; in one read of them, waiting for a GPU."""
        by_device: Dict[Any, list] = {}
        for g in gradients:
            if g is not None and g.numel():
                by_device.setdefault(g.device, []).append(g.detach())
        tables = [_C._cuda_grad_stats(some)[0] if device.type == "cuda" else _C._grad_stats(some) for device, some in by_device.items()]
        return any(infs + nans > 0 for _, _, infs, nans, *_ in (_C._sum_up(table.cpu()) for table in tables))

    def update_scale(self, overflow: Any) -> None:
        """Nothing: the scale stays."""

    def state_dict(self) -> Dict[str, Any]:
        """What ``load_state_dict`` takes."""
        return dict(self.__dict__)

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Continues from a state_dict. ValueError for one of another kind."""
        if set(state) != set(self.__dict__):
            raise ValueError(f"{type(self).__name__}: expected a state with {', '.join(sorted(self.__dict__))}, got {', '.join(sorted(state))}")
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items())})"


class DynamicLossScaler(StaticLossScaler):
    """A scale that adapts to overflows.

    By default it is divided by ``scale_factor`` after ``scale_window`` overflows in a row, down to 1, and never grows. This suits a
    known good scale with data that sometimes overflows. ``growth=True`` is the usual method (Micikevicius et al. 2018, section 3.2): the
    scale is divided at every overflow, and multiplied after ``scale_window`` steps without one.

    Args:
        init_scale: a positive finite number.
        scale_factor: above 1.
        scale_window: steps, >= 1.
        growth: whether the scale grows.

    ValueError for what is out of range."""

    def __init__(self, init_scale: float = 2.0**15, scale_factor: float = 2.0, scale_window: int = 2000, growth: bool = False) -> None:
        name = type(self).__name__
        super().__init__(_positive(init_scale, name, "init_scale"))
        if not scale_factor > 1 or math.isinf(scale_factor):
            raise ValueError(f"{name}: `scale_factor` must be above 1, got {scale_factor}")
        if scale_window < 1:
            raise ValueError(f"{name}: `scale_window` must be 1 or more, got {scale_window}")
        self.scale_factor, self.scale_window, self.growth = scale_factor, int(scale_window), bool(growth)
        self.consecutive_overflows = self.good_steps = 0

    def update_scale(self, overflow: Any) -> None:
        """Ends a step in which there was an overflow, or none."""
        if overflow:
            self.good_steps, self.consecutive_overflows = 0, self.consecutive_overflows + 1
            if self.growth or self.consecutive_overflows >= self.scale_window:
                self.scale, self.consecutive_overflows = max(self.scale / self.scale_factor, 1.0), 0
            return
        self.consecutive_overflows, self.good_steps = 0, self.good_steps + 1
        if self.growth and self.good_steps >= self.scale_window:
            self.scale, self.good_steps = min(self.scale * self.scale_factor, 2.0**127), 0


def _positive(scale: Any, who: str, what: str) -> float:
    if not (isinstance(scale, (int, float)) and 0 < scale < math.inf):
        raise ValueError(f"{who}: `{what}` must be a positive finite number, got {scale!r}")
    return float(scale)
