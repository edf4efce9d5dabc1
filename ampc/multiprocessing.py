"""Python's multiprocessing, with the names that torch adds. Tensors travel between processes by value."""

from __future__ import annotations

import multiprocessing as _python
from multiprocessing import *  # noqa: F403
from multiprocessing.connection import wait
from typing import Any, Callable, Optional, Set, Tuple

__all__ = [*_python.__all__, "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", "spawn"]


def get_all_sharing_strategies() -> Set[str]:
    """{'file_system'}, for nothing is shared by descriptor."""
    return {"file_system"}


def get_sharing_strategy() -> str:
    """'file_system'"""
    return "file_system"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepts 'file_system' and 'file_descriptor': tensors are copied between processes either way. ValueError for another."""
    if new_strategy not in ("file_system", "file_descriptor"):
        raise ValueError(f"set_sharing_strategy: expected 'file_system' or 'file_descriptor', got {new_strategy!r}")


def spawn(fn: Callable, args: Tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
          start_method: str = "spawn") -> Optional[Any]:
    """Runs ``fn(i, *args)`` in ``nprocs`` new processes and waits for them; the list of processes when ``join`` is False.
    RuntimeError when one of them fails, after the others have been ended: they might wait for it."""
    context: Any = _python.get_context(start_method)
    processes = [context.Process(target=fn, args=(i, *args), daemon=daemon) for i in range(nprocs)]
    for p in processes:
        p.start()
    if not join:
        return processes
    running = list(processes)
    while running and not any(p.exitcode for p in processes):
        wait([p.sentinel for p in running])
        running = [p for p in running if p.is_alive()]
    bad = [i for i, p in enumerate(processes) if p.exitcode]
    for p in running:
        p.terminate()
    for p in processes:
        p.join()
    if bad:
        raise RuntimeError(f"spawn: processes {bad} failed with exit codes {[processes[i].exitcode for i in bad]}; their tracebacks are above")
    return None
