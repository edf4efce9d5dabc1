"""GPU memory: what is used, what is cached, and limits."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Dict, Optional, Set, Tuple

from .. import _C
from .._names.missing import absent_from
from .streams import index_of

__all__ = [
    "MemPool", "empty_cache", "get_per_process_memory_fraction", "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory_allocated",
    "memory_reserved", "memory_stats", "memory_summary", "reset_max_memory_allocated", "reset_peak_memory_stats",
    "set_per_process_memory_fraction", "use_mem_pool",
]


def _stats(device: Any) -> Optional[Dict[str, int]]:
    return _C._cuda_memory(index_of(device)) if _C._cuda_count() else None


def empty_cache() -> None:
    """Gives cached memory that no tensor uses back to the driver (without a GPU: the CPU's, to the system)."""
    for i in range(_C._cuda_count()):
        _C._cuda_empty_cache(i)
    if not _C._cuda_count():
        _C._memory_trim()


def memory_allocated(device: Any = None) -> int:
    """Bytes of live tensors on a GPU (without one: on the CPU)."""
    stats = _stats(device)
    return stats["allocated"] if stats else _C._memory()["current"]


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that were live at once since the last reset_peak_memory_stats."""
    stats = _stats(device)
    return stats["allocated_peak"] if stats else _C._memory()["peak"]


def memory_reserved(device: Any = None) -> int:
    """Bytes held from the driver: live and cached."""
    stats = _stats(device)
    return stats["reserved"] if stats else _C._memory()["current"]


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes held at once since the last reset_peak_memory_stats."""
    stats = _stats(device)
    return stats["reserved_peak"] if stats else _C._memory()["peak"]


def reset_peak_memory_stats(device: Any = None) -> None:
    """Starts the peaks again from now."""
    if _C._cuda_count():
        _C._cuda_memory_reset_peak(index_of(device))
    else:
        _C._memory_reset_peak()


reset_max_memory_allocated = reset_peak_memory_stats


def memory_stats(device: Any = None) -> Dict[str, int]:
    """torch's names for what is known: ``allocated_bytes.all.current`` and the like; {} without a GPU."""
    s = _stats(device)
    if not s:
        return {}
    return OrderedDict([
        ("active.all.current", s["blocks"]), ("active_bytes.all.current", s["allocated"]), ("active_bytes.all.peak", s["allocated_peak"]),
        ("allocated_bytes.all.current", s["allocated"]), ("allocated_bytes.all.peak", s["allocated_peak"]),
        ("allocation.all.allocated", s["allocations"]), ("allocation.all.current", s["blocks"]),
        ("inactive_split.all.current", s["free"]),
        ("num_alloc_retries", s["retries"]), ("num_device_alloc", s["driver_calls"]), ("num_ooms", s["failures"]),
        ("requested_bytes.all.current", s["requested"]),
        ("reserved_bytes.all.current", s["reserved"]), ("reserved_bytes.all.peak", s["reserved_peak"]),
        ("segment.all.current", s["segments"]),
    ])


def _size(n: int) -> str:
    for unit, bytes in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n >= bytes:
            return f"{n / bytes:.1f} {unit}"
    return f"{n} B"


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """What memory_stats knows, as a table for people; one line when ``abbreviated``."""
    s = _stats(device)
    if not s:
        return f"no GPU; {_size(memory_allocated())} of tensors on the CPU, {_size(max_memory_allocated())} at most"
    short = (f"cuda:{index_of(device)}: {_size(s['allocated'])} in use (peak {_size(s['allocated_peak'])}), "
             f"{_size(s['reserved'])} held (peak {_size(s['reserved_peak'])})")
    if abbreviated:
        return short
    rows = [("in use by tensors", _size(s["allocated"]), _size(s["allocated_peak"])),
            ("asked for by them", _size(s["requested"]), ""),
            ("held from the driver", _size(s["reserved"]), _size(s["reserved_peak"])),
            ("cached", _size(s["reserved"] - s["allocated"]), ""),
            ("live blocks", str(s["blocks"]), ""), ("pieces held", str(s["segments"]), ""),
            ("allocations so far", str(s["allocations"]), ""), ("calls of the driver", str(s["driver_calls"]), ""),
            ("cache emptied to go on", str(s["retries"]), ""), ("out of memory", str(s["failures"]), "")]
    line = "+" + "-" * 26 + "+" + "-" * 14 + "+" + "-" * 14 + "+"
    body = [f"| {name:<24} | {now:>12} | {peak:>12} |" for name, now, peak in [(f"cuda:{index_of(device)}", "now", "peak"), *rows]]
    return "\n".join([line, body[0], line, *body[1:], line])


def mem_get_info(device: Any = None) -> Tuple[int, int]:
    """(free, total) bytes of a GPU, as the driver counts them. RuntimeError without one."""
    return _C._cuda_memory_info(index_of(device))


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Holds this process to a part of a GPU's memory; beyond it OutOfMemoryError is raised. ValueError outside [0, 1]."""
    if not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
        raise ValueError(f"set_per_process_memory_fraction: `fraction` must be between 0 and 1, got {fraction!r}")
    _C._cuda_memory_limit(index_of(device), float(fraction))
    _fractions[index_of(device)] = float(fraction)


_fractions: Dict[int, float] = {}


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The part of a GPU's memory that ``set_per_process_memory_fraction`` has left to this process; 1.0 at first."""
    return _fractions.get(index_of(device), 1.0)


_pool_numbers = itertools.count(1)


class MemPool:
    """A pool of memory apart from the others', for ``use_mem_pool``: what a captured graph keeps using. When the pool
    object dies, its memory joins everybody's as it becomes free."""

    def __init__(self) -> None:
        self._number = next(_pool_numbers)
        self.id = (0, self._number)
        self._gpus: Set[int] = set()  # that it has memory on
        _pools[self.id] = self

    def handle(self) -> Tuple[int, int]:
        """Its id, which keeps the pool as long as it lives itself."""
        return _Handle(self)


class _Handle(Tuple[int, int]):
    """A pool's id."""

    def __new__(cls, pool: MemPool) -> _Handle:
        self = super().__new__(cls, pool.id)
        self.pool = pool  # type: ignore[attr-defined]
        return self


_pools: weakref.WeakValueDictionary[Tuple[int, int], MemPool] = weakref.WeakValueDictionary()


def pool_of(handle: Any) -> MemPool:
    """The pool of a handle or an id. ValueError for anything else, and for a pool that is gone."""
    found = handle if isinstance(handle, MemPool) else _pools.get(tuple(handle)) if isinstance(handle, tuple) else None
    if found is None:
        raise ValueError(f"pool: expected what graph_pool_handle() or a graph's pool() returns, got {handle!r}")
    return found


def retire_with(pool: MemPool, index: int) -> None:
    """The pool's memory on a GPU is everybody's again when the pool dies."""
    if index not in pool._gpus:
        pool._gpus.add(index)
        weakref.finalize(pool, _C._cuda_pool_retire, index, pool._number).atexit = False


class use_mem_pool(_C.Scope):
    """``with use_mem_pool(pool):`` this thread's allocations on a GPU come from the pool."""

    def __init__(self, pool: MemPool, device: Any = None) -> None:
        self._pool, self._index = pool, index_of(device)

    def _changes(self) -> tuple:
        return ((_C._cuda_pool_begin, (self._index, self._pool._number), _C._cuda_pool_end, (self._index,)),
                (retire_with, (self._pool, self._index), None, ()))

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
