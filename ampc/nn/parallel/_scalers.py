"""What the GradScaler of this iteration must agree on with those of other processes."""

from __future__ import annotations

import math
import weakref
from typing import Any, List, Optional

from ..._events import Listener, listen
from ..._tensor import creation as make


class _Last(Listener):
    """Knows the scaler that has scaled a loss last."""

    scaler: Optional[weakref.ref] = None
    others_scale = False

    def loss_scaled(self, scaler: Any, outputs: Any) -> None:
        """Keeps it."""
        self.scaler = weakref.ref(scaler)


_last = _Last()
FACTS = 3
NO_FACTS = (0.0, -math.inf, -math.inf)  # of a process without a loss of its own


def begin() -> None:
    """Listens from the first call on."""
    if not _listening:
        _listening.append(_last)
        listen(_last)


_listening: List[_Last] = []


def _current() -> Any:
    """The scaler of a loss whose step is not decided yet; None without one."""
    scaler = _last.scaler() if _last.scaler is not None else None
    return scaler if scaler is not None and scaler.is_enabled() and scaler._connected is not None else None


def facts() -> List[float]:
    """Whether no loss was finite, and the scale twice, so that the largest of all processes tells both ends. Waits for a GPU."""
    scaler = _current()
    if scaler is None:
        return [0.0, 0.0, 0.0]
    scale = scaler._need_scale("scale").scale
    return [float(not any(math.isfinite(loss) for loss in scaler._losses)), scale, -scale]


def take(largest: List[float]) -> None:
    """Takes what is largest over all processes: where one has no loss that is finite, all keep their scale. RuntimeError for scales that
    differ."""
    scaler = _current()
    if largest[1] != -largest[2]:
        raise RuntimeError(f"GradScaler: the ranks' scales differ, they are from {-largest[2]:g} to {largest[1]:g}; give all the same init_scale "
                           "or load_state_dict(), and call step() and update() in all or none")
    if scaler is not None and largest[0]:
        state = scaler._need_scale("scale")
        scaler._losses = [state.read_loss(make.full((), math.nan, device=state.device))]


def note(largest: List[float]) -> None:
    """Notes, in a process that has no loss of its own in this pass, whether the others' losses are scaled."""
    _last.others_scale = largest[1] > 0


def others_scale() -> bool:
    """Whether they were in the last such pass."""
    return _last.others_scale
