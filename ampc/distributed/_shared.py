"""Memory that processes of one host share, and the collectives through it: the core combines values there (csrc/cpu/ranks/ranks.h).

The memory is a file without a name, which is gone when the last process is that has it open, however it ended. MPI's own windows
(``MPI.Win.Allocate_shared``) must be freed by all ranks together, which a dead rank would keep from ending."""

from __future__ import annotations

import mmap
import os
import tempfile
import zlib
from typing import Any, Callable, Optional

from .. import _C
from .._C import Tensor
from .reductions import ReduceOp

BUFFER = 1 << 20  # bytes of a buffer; each rank has two in each group
MOST = 256  # ranks of a host that share memory
SPINS, HELPER_SPINS = 2000, 100  # looks at a counter before a thread sleeps, where each rank has a core; of the group's thread, beside another
MEET, ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST = range(5)
_LINE = 128  # bytes of a rank's counters
COMBINE = {ReduceOp.SUM: 0, ReduceOp.AVG: 0, ReduceOp.PRODUCT: 1, ReduceOp.MIN: 2, ReduceOp.MAX: 3, ReduceOp.BAND: 4, ReduceOp.BOR: 5,
            ReduceOp.BXOR: 6}


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
    """The memory of a group's ranks on this host. Making it is collective over the communicator ``host``.

    ``waits()`` is called every tenth of a second while this rank waits. What it raises, as a signal may, ends the collective half way, and
    ``lost(error)`` is called."""

    def __init__(self, host: Any, checks: bool, waits: Callable[[], Any], lost: Callable[[BaseException], Any]) -> None:
        self._checks, self._waits, self._lost = checks, waits, lost
        memory = shared_memory(host, host.size * (_LINE + 2 * BUFFER))
        self._group = _C._ranks_open(memory, host.rank, host.size, BUFFER)
        self._spins = (HELPER_SPINS, SPINS) if host.size <= (os.cpu_count() or 1) else (0, 0)
        self.in_callers_thread = False  # which has nothing else to do

    def _run(self, kind: int, same: str, how: int = 0, given: Any = None, result: Any = None, n: int = 0, root: int = 0, divisor: int = 1) -> bool:
        """Whether all ranks are called with ``same``."""
        said = zlib.crc32(same.encode())
        spins = self._spins[self.in_callers_thread]
        try:
            return _C._ranks_run(self._group, kind, how, given, result, n, root, divisor, said, not self._checks, spins, self._waits)
        except BaseException as error:
            self._lost(error)
            raise

    def meet(self, same: str) -> bool:
        """Waits until all ranks have come here."""
        return self._run(MEET, same)

    def all_reduce(self, same: str, t: Tensor, op: Any, result: Optional[Tensor], divisor: int) -> bool:
        """The reduction of all ranks' ``t``, divided, into ``result``, which may be ``t``, or None."""
        return self._run(ALL_REDUCE, same, COMBINE[op], t, result, t.numel(), 0, divisor)

    def reduce_scatter(self, same: str, t: Tensor, op: Any, result: Tensor, divisor: int) -> bool:
        """This rank's part of the reduction of all ranks' ``t``, divided."""
        return self._run(REDUCE_SCATTER, same, COMBINE[op], t, result, result.numel(), 0, divisor)

    def all_gather(self, same: str, t: Tensor, result: Tensor) -> bool:
        """All ranks' ``t``, one after the other, in ``result``."""
        return self._run(ALL_GATHER, same, 0, t, result, t.numel())

    def broadcast(self, same: str, t: Tensor, root: int) -> bool:
        """``t`` takes the values of rank ``root`` of this host."""
        return self._run(BROADCAST, same, 0, t, t, t.numel(), root)
