"""Anomaly detection: backward stops at the first operator whose gradient is nan."""

from __future__ import annotations

from typing import Any

from .. import _C
from .grad_mode import no_grad

__all__ = ["detect_anomaly", "set_detect_anomaly"]


def _stop_at_nan(name: str, index: int, grad: Any) -> None:
    with no_grad():
        if grad.isnan().any():
            raise RuntimeError(f"Function '{name}' returned nan values in its {index}th output, in backward. To see the line of the script and "
                               "what to write instead, run the step in `with ampc.doctor() as found:` and print found.report()")


def _ignore(name: str, index: int, grad: Any) -> None:
    """Detection is on, and nans may pass."""


def _hook_for(mode: bool, check_nan: bool) -> list:
    if not isinstance(mode, int) or not isinstance(check_nan, int):
        raise TypeError(f"anomaly detection is switched with bools, got {type(mode).__name__} and {type(check_nan).__name__}")
    return [(_stop_at_nan if check_nan else _ignore) if mode else None]


def is_anomaly_enabled() -> bool:
    """Whether anomaly detection is on."""
    return _C._anomaly() is not None


def is_anomaly_check_nan_enabled() -> bool:
    """Whether backward stops at nans while anomaly detection is on."""
    return _C._anomaly() is not _ignore


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """Turns anomaly detection on or off, for the whole process."""
    _C._swap_anomaly(_hook_for(enabled, check_nan))


class detect_anomaly(_C.Scope):
    """A context in which backward raises RuntimeError, with the operator's name, where a gradient becomes nan; not with
    ``check_nan=False``. Every gradient is looked at, so it is slow. ``ampc.doctor()`` tells the script's line and the remedy too."""

    def __init__(self, check_nan: bool = True) -> None:
        self._hook = _hook_for(True, check_nan)

    def _changes(self) -> tuple:
        cell = list(self._hook)  # one for each time that it is entered
        return ((_C._swap_anomaly, (cell,), _C._swap_anomaly, (cell,)),)


class set_detect_anomaly(_C.Scope):
    """Turns anomaly detection on or off at once, and, where it is used in a ``with``, back at its end."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = _hook_for(mode, check_nan)
        _C._swap_anomaly(self._before)

    def _changes(self) -> tuple:
        return ((_C._anomaly, (), _C._swap_anomaly, (list(self._before),)),)
