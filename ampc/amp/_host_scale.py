"""The loss scale as a number on the CPU, which the core adapts."""

from __future__ import annotations

import math
from typing import Any, Callable, List, Optional, Tuple

from .. import _C
from .._C import Tensor
from .._messages.callers import warn
from .._tensor import creation as make
from .._tensor.device import CPU
from ._ledger import INFS, NANS, GradStats, only_nans
from ._unscale import divide_by_number


class NanStreak:
    """Consecutive steps with nans but no infinities. A scale that is loaded or pickled keeps it."""

    before: Optional[float] = None  # the scale at the first of them
    at_one = False  # whether they went on at scale 1
    told = False  # whether a loss that is not finite was warned about


class HostScale(_C.ScalerState):
    """``Scale`` on the CPU."""

    streak: NanStreak
    device = CPU
    known = _C.ScalerState.scale  # the same attribute by another name

    @classmethod
    def after(cls, streak: NanStreak, *options: Any) -> HostScale:
        """A scale that continues a streak."""
        made = cls(*options)
        made.streak = streak
        return made

    @property
    def scale_tensor(self) -> Tensor:
        """The scale as a tensor."""
        return make.full((), self.scale, dtype=_C.float32, device=CPU)

    @property
    def tracker_tensor(self) -> Tensor:
        """The good steps in a row, as a tensor."""
        return make.full((), self.growth_tracker, dtype=_C.int32, device=CPU)

    def snapshot(self) -> float:
        """The scale."""
        return self.scale

    def times(self, value: Tensor) -> Tensor:
        """``value`` times the scale."""
        return value * make.full((), self.scale, dtype=_C.float32, device=CPU)

    def read_loss(self, loss: Tensor) -> float:
        """The loss as a number."""
        return loss.item()

    def divide_gradients(self, device: Any, grads: List[Tensor], positions: List[Tuple[int, int]]) -> GradStats:
        """Divides gradients on one device."""
        return divide_by_number(self, self.inverse, device, grads, positions)

    def flags_of(self, sums: Tuple[float, ...]) -> Tensor:
        """[1.0 where some value is not finite]."""
        return make.full((1,), sums[INFS] + sums[NANS] > 0, dtype=_C.float32, device=CPU)

    def adapt(self, found_inf: List[Tensor], losses: list, stats: Callable[[], List[GradStats]], culprit: Callable[[], str]) -> None:
        """Adapts the scale to overflow, but not to nans that no scale would prevent."""
        found = any(v.item() for v in found_inf)
        nans, streak = found and only_nans(stats()), self.streak
        if not nans:
            streak.before, streak.at_one = None, False
        if found and losses and not any(map(math.isfinite, losses)):
            self._tell_of_loss(losses[0])
            return
        if nans:
            if streak.before is None:
                streak.before = self.scale
            if not streak.at_one and self.scale <= 1:
                streak.at_one, self.scale = True, streak.before
                warn(f"GradScaler: the gradient of parameter {culprit()} is nan at a scale of 1, too. So scaling is not the cause, "
                     f"and the scale returns to {streak.before:g}. Look for a division by 0, the logarithm or square root of 0, or "
                     "0 times infinity in the model or its data, and whether zero_grad() clears the gradients of each iteration")
            if streak.at_one:
                return
        self.update(found)

    def _tell_of_loss(self, loss: float) -> None:
        """Warns, once, that steps are skipped because of the loss."""
        if self.streak.told:
            return
        self.streak.told = True
        warn(f"GradScaler: the loss itself is {loss}, so no scale helps: this step is skipped, as are all with such a loss, and the scale stays. An "
             "operator of the forward pass overflowed, or the batch contains inf or nan; `ampc run --doctor` or `with ampc.doctor():` names which")
