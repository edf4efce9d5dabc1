"""The random stream's functions, under torch.random's names."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, Optional

from . import _C
from ._names.missing import absent_from
from ._tensor.creation import default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state

__all__ = ["default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state", "thread_safe_generator"]


class fork_rng(_C.Scope):
    """Afterwards, random numbers go on as if none had been drawn inside. ``devices``: the GPUs that this holds for, which draw from the CPU's
    stream: it is kept in any case. Also a decorator."""

    def __init__(self, devices: Optional[Iterable[Any]] = None, enabled: bool = True, _caller: str = "fork_rng", _devices_kw: str = "devices",
                 device_type: str = "cuda") -> None:
        self._enabled = enabled

    def _changes(self) -> tuple:
        return ((None, (), _C._set_rng_state, _C._rng_state()),) if self._enabled else ()

    def __call__(self, f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self:
                return f(*args, **kwargs)

        return wrapped


def thread_safe_generator() -> None:
    """None: a worker of a DataLoader has a random stream of its own, the process's."""


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
