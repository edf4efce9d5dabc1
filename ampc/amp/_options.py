"""The options of GradScaler that can be read and set while it is used."""

from __future__ import annotations

from typing import Optional

from ._scale import Scale


class ScaleOptions:
    """How the loss scale grows and shrinks. ``GradScaler`` sets the fields, and makes the scale at the first use."""

    _enabled: bool
    _growth_factor: float
    _backoff_factor: float
    _growth_interval: int
    _init_growth_tracker: int
    _state: Optional[Scale]

    def get_growth_factor(self) -> float:
        """The factor by which the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets the factor by which the scale grows, > 1."""
        self._set_option("growth_factor", new_factor)

    def get_backoff_factor(self) -> float:
        """The factor by which the scale shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets the factor by which the scale shrinks, in (0, 1)."""
        self._set_option("backoff_factor", new_factor)

    def get_growth_interval(self) -> int:
        """Steps without overflow before the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets how many steps without overflow come before the scale grows."""
        self._set_option("growth_interval", new_interval)

    def _set_option(self, name: str, value: float) -> None:
        setattr(self, f"_{name}", value)
        if self._state is not None:
            setattr(self._state, name, value)

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._state is None else self._state.growth_tracker

    def is_enabled(self) -> bool:
        """Whether losses are scaled."""
        return self._enabled
