"""The random stream's functions under torch.random's names."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager
from typing import Any, Iterator, Optional

from . import cuda
from ._creation import default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state

__all__ = ["default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state", "thread_safe_generator"]


@contextmanager
def fork_rng(devices: Optional[Iterable[Any]] = None, enabled: bool = True, _caller: str = "fork_rng", _devices_kw: str = "devices",
             device_type: str = "cuda") -> Iterator[None]:
    """Afterwards, random numbers go on as if none had been drawn inside. ``devices``: the GPUs that this holds for, all when None."""
    if not enabled:
        yield
        return
    there = list(range(cuda.device_count()) if devices is None else devices) if cuda.is_initialized() else []
    here, states = get_rng_state(), [cuda.get_rng_state(d) for d in there]
    try:
        yield
    finally:
        set_rng_state(here)
        for d, state in zip(there, states):
            cuda.set_rng_state(state, d)


def thread_safe_generator() -> None:
    """None: a worker of a DataLoader has a random stream of its own, the process's."""
