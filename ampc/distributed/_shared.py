"""Memory that processes of one host share, and the collectives through it: the core combines values there (csrc/cpu/ranks/ranks.h).

The memory is a file without a name, which is gone when the last process is that has it open, however it ended. MPI's own windows
(``MPI.Win.Allocate_shared``) must be freed by all ranks together, which a dead rank would keep from ending."""

from __future__ import annotations

import functools
import mmap
import os
import tempfile
import zlib
from typing import Any, Optional, Tuple

from .. import _C
from .._C import Tensor
from .reductions import ReduceOp

BUFFER = 1 << 20  # bytes of a buffer; each rank has two in each group
MOST = 256  # ranks of a host that share memory
SPINS = 100  # looks at a counter before a thread gives Python's lock back, looks on for some microseconds, and sleeps, where each rank has a core
MEET, ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST = range(5)
_NAMES = "barrier", "all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor", "broadcast"  # of what runs at once
_LINE = 128  # bytes of a rank's counters
OPS = tuple(ReduceOp)
COMBINE = {ReduceOp.SUM: 0, ReduceOp.AVG: 0, ReduceOp.PRODUCT: 1, ReduceOp.MIN: 2, ReduceOp.MAX: 3, ReduceOp.BAND: 4, ReduceOp.BOR: 5,
            ReduceOp.BXOR: 6}


@functools.lru_cache(1024)
def in_words(what: str, numel: int, dtype: str, more: Tuple[Any, ...]) -> str:
    """A collective in words, which are the same in all processes."""
    return ", ".join([f"{what} of {numel} elements of {dtype}", *map(str, more)])


def call_in_words(kind: int, numel: int, dtype: str, op: Any, root: int) -> str:
    """The same of one that the core runs at once."""
    more = (f"from {root}",) if kind == BROADCAST else () if op is None else (op.name,)
    return in_words(_NAMES[kind], numel, dtype, more) if kind != MEET else _NAMES[MEET]


def checksum_of(text: str) -> int:
    """What stands for a text in the comparison of calls."""
    return zlib.crc32(text.encode())


def shared_memory(host: Any, size: int) -> mmap.mmap:
    """Zeros that the processes of the communicator ``host`` share. Collective; OSError in all of them where there is no such memory."""
    for make in (_without_a_name, _unlinked):
        descriptor = _opened(host, *(make(size) if host.rank == 0 else (-1, "")))
        if descriptor is not None:
            try:
                return mmap.mmap(descriptor, size)
            finally:
                os.close(descriptor)
    raise OSError("the processes of this host cannot share memory: neither /proc nor a folder for temporary files is common to them")


def _without_a_name(size: int) -> Any:
    try:
        descriptor = os.memfd_create("ampc")
        os.truncate(descriptor, size)
        return descriptor, f"/proc/{os.getpid()}/fd/{descriptor}"
    except (AttributeError, OSError):  # another system than Linux; not allowed
        return -1, ""


def _unlinked(size: int) -> Any:
    for folder in filter(os.path.isdir, ("/dev/shm", tempfile.gettempdir())):
        descriptor, name = tempfile.mkstemp(prefix="ampc_", dir=folder)
        try:
            if hasattr(os, "posix_fallocate"):  # so that a full disk is an error here, and no signal later
                os.posix_fallocate(descriptor, 0, size)
            os.truncate(descriptor, size)
            return descriptor, name
        except OSError:
            os.close(descriptor)
            os.unlink(name)
    return -1, ""


def _opened(host: Any, descriptor: int, name: str) -> Optional[int]:
    """The file of rank 0 in each process; None in all where one cannot open it."""
    name = host.bcast(name)
    if host.rank:
        try:
            descriptor = os.open(name, os.O_RDWR)
        except OSError:
            descriptor = -1
    good = min(host.allgather(descriptor)) >= 0
    if host.rank == 0 and name and not name.startswith("/proc/"):
        os.unlink(name)
    if not good and descriptor >= 0:
        os.close(descriptor)
    return descriptor if good else None


class Shared:
    """The memory of a group's ranks on this host, for the group's ``Ranks``, and the board's ``fields`` for it. Making it is collective over the
    communicator ``host``."""

    def __init__(self, host: Any, ranks: _C.Ranks, checks: bool, fields: Tuple[Any, Any]) -> None:
        spins = SPINS if host.size <= (os.cpu_count() or 1) else 0
        ranks.share(shared_memory(host, host.size * (_LINE + 2 * BUFFER)), host.rank, host.size, BUFFER, checks, spins, *fields)
        self._ranks = ranks

    def _run(self, kind: int, same: str, how: int = 0, given: Any = None, result: Any = None, n: int = 0, root: int = 0, divisor: int = 1) -> bool:
        """Whether all ranks are called with ``same``."""
        return self._ranks.run(kind, how, given, result, n, root, divisor, checksum_of(same))

    def meet(self, same: str) -> bool:
        """Waits until all ranks have come here."""
        return self._run(MEET, same)

    def all_reduce(self, same: str, t: Tensor, op: Any, result: Optional[Tensor], divisor: int) -> bool:
        """The reduction of all ranks' ``t``, divided, into ``result``, which may be ``t``, or None."""
        return self._run(ALL_REDUCE, same, COMBINE[op], t, result, t.numel(), 0, divisor)

    def all_reduce_parts(self, same: str, parts: Tuple[Tensor, ...], op: Any, divisor: int) -> bool:
        """The reduction of all ranks' elements, divided, in their place. They lie in tensors of one dtype, which do not overlap."""
        return self._run(ALL_REDUCE, same, COMBINE[op], parts, None, sum(t.numel() for t in parts), 0, divisor)

    def reduce_scatter(self, same: str, t: Tensor, op: Any, result: Tensor, divisor: int) -> bool:
        """This rank's part of the reduction of all ranks' ``t``, divided."""
        return self._run(REDUCE_SCATTER, same, COMBINE[op], t, result, result.numel(), 0, divisor)

    def all_gather(self, same: str, t: Tensor, result: Tensor) -> bool:
        """All ranks' ``t``, one after the other, in ``result``."""
        return self._run(ALL_GATHER, same, 0, t, result, t.numel())

    def broadcast(self, same: str, t: Tensor, root: int) -> bool:
        """``t`` takes the values of rank ``root`` of this host."""
        return self._run(BROADCAST, same, 0, t, t, t.numel(), root)
