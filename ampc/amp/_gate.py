"""Schedulers that follow applied steps only."""

from __future__ import annotations

from typing import Any


class Gate:
    """A scheduler whose ``step`` has no effect after a skipped step. All other attributes are the scheduler's own."""

    def __init__(self, scaler: Any, scheduler: Any) -> None:
        self._scaler, self._scheduler = scaler, scheduler

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the scheduler's step unless the scaler skipped its last step. On a GPU it waits for that answer."""
        last = self._scaler.last_step
        if last is not None and last.skipped:
            return None
        return self._scheduler.step(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)
