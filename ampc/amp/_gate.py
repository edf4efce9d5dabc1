"""Schedulers that wait for steps which were made."""

from __future__ import annotations

from typing import Any


class Gate:
    """A scheduler that follows the steps that were applied. All else is the scheduler's own."""

    def __init__(self, scaler: Any, scheduler: Any) -> None:
        self._scaler, self._scheduler = scaler, scheduler

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """The scheduler's, unless the scaler's last step was skipped. On a GPU it waits to know."""
        last = self._scaler.last_step
        if last is not None and last.skipped:
            return None
        return self._scheduler.step(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)
