"""Collectives of processes on several hosts. Within a host values pass through the memory that its processes share; between hosts one process of each
takes part, the leader. There 16-bit values travel as they are, and sums are rounded once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, List, Optional

from .. import _C
from .._C import Tensor
from .._tensor import creation as make
from . import _mpi
from ._agreement import agree, check, submit
from ._memory import bring_back, memory, row, settled
from ._shared import COMBINE
from .reductions import HALVES, ReduceOp, type_of_bytes
from .work import Work

if TYPE_CHECKING:
    from ._apart import Apart
    from .groups import ProcessGroup


class Shares:
    """``out`` becomes this process' share of the reduction of all ``given``, divided. Shares lie in a row, of ``counts`` elements each. ``given`` has
    the dtype of ``out``, or float32 for 16 bits.

    Each process gives the others the values of their shares, and combines what it gets. MPI's own reduction would take float32 for 16 bits."""

    def __init__(self, MPI: Any, comm: Any, op: Any, given: Tensor, counts: List[int], out: Tensor, divisor: int) -> None:
        own, kind = counts[comm.rank], type_of_bytes(MPI, given)
        self._comm, self._out, self._how = comm, out, (COMBINE[op], comm.size, divisor)
        self._parts = make.empty(comm.size * own, dtype=given.dtype, device="cpu")
        self._sent = [memory(MPI, given), counts, _begins(counts), kind]
        self._got = [memory(MPI, self._parts), [own] * comm.size, kind]

    def run(self) -> None:
        """Collective over the communicator."""
        how, size, divisor = self._how
        self._comm.Alltoallv(self._sent, self._got)
        _C._ranks_combine(how, self._parts, size, divisor, self._out)


def _begins(counts: List[int]) -> List[int]:
    """Where parts begin that lie in a row."""
    return [sum(counts[:i]) for i in range(len(counts))]


class Halves:
    """``result`` of 16 bits becomes the reduction of all ``given``, which are as long, of its dtype or float32, and divided: each process has a
    share, and gives it to all."""

    def __init__(self, MPI: Any, comm: Any, op: Any, given: Tensor, result: Tensor, divisor: int) -> None:
        size, n = comm.size, given.numel()
        edges = [n * rank // size for rank in range(size + 1)]
        counts = [end - begin for begin, end in zip(edges, edges[1:])]
        self._shares = Shares(MPI, comm, op, given, counts, result[slice(*edges[comm.rank:comm.rank + 2])], divisor)
        self._comm, self._place, self._all = comm, MPI.IN_PLACE, [memory(MPI, result), counts, edges[:-1], MPI.UINT16_T]

    def run(self) -> None:
        """Collective over the communicator."""
        self._shares.run()
        self._comm.Allgatherv(self._place, self._all)


def all_reduce_halves(t: Tensor, op: Any, members: ProcessGroup, comm: Any, same: str, shape: str, async_op: bool, result: Any) -> Optional[Work]:
    """Of 16-bit values. Within a host they are reduced in float32, so that they are rounded once in all."""
    MPI, shared, own = _mpi.start(), members.shared, settled(row(t))
    given = own if shared is None else own.float()
    between = None if comm == MPI.COMM_NULL else Halves(MPI, comm, op, given, own.reshape(-1), _divisor(members, op))

    def over_hosts() -> None:
        agree(members, same, shape)
        if shared is not None:
            shared.all_reduce(same, given, op, given, 1)
        if between is not None:
            between.run()
        if shared is not None:
            shared.broadcast(same, own, 0)

    return submit(members, async_op, same, over_hosts, result, lambda: bring_back(t, own))


def all_reduce_by_messages(members: ProcessGroup, apart: Apart, t: Tensor, op: Any, same: str, shape: str, async_op: bool,
                           result: Any) -> Optional[Work]:
    """Of processes that share no memory; ``apart`` takes ``t``."""
    own, divisor = settled(row(t)), _divisor(members, op)

    def f() -> None:
        check(members, apart.all_reduce(same, own, op, divisor), same + shape)

    return submit(members, async_op, same, f, result, lambda: bring_back(t, own), here=True)


def barrier_by_messages(members: ProcessGroup, apart: Apart, async_op: bool) -> Optional[Work]:
    """The same: who has heard of all has waited for all."""
    return submit(members, async_op, "barrier", lambda: check(members, apart.agree("barrier"), "barrier"), [], None, here=True)


def _divisor(members: ProcessGroup, op: Any) -> int:
    return members.size() if op is ReduceOp.AVG else 1


def reduce_parts(members: ProcessGroup, same: str, given: Tensor, out: Tensor, op: Any, async_op: bool, result: Any) -> Optional[Work]:
    """``given``, on the CPU, has a part for each process in a row."""
    MPI, shared, n = _mpi.start(), members.shared, out.numel()
    if shared is None:
        own = row(out)
        shares = Shares(MPI, members.comm, op, settled(given), [n] * members.size(), own, _divisor(members, op))

        def between_all() -> None:
            agree(members, same)
            shares.run()

        return submit(members, async_op, same, between_all, result, lambda: bring_back(out, own), given)
    values = given.float() if given.dtype in HALVES else settled(given)
    counts, leads = [n * size for size in members.by_host], members.leaders != MPI.COMM_NULL
    sums = make.empty(values.numel(), dtype=values.dtype, device="cpu") if leads else None
    of_host = make.empty(counts[members.host], dtype=out.dtype, device="cpu")
    between = Shares(MPI, members.leaders, op, sums, counts, of_host, _divisor(members, op)) if sums is not None else None
    begin = n * members.place_on_host

    def over_hosts() -> None:
        agree(members, same)
        shared.all_reduce(same, values, op, sums, 1)
        if between is not None:
            between.run()
        shared.broadcast(same, of_host, 0)

    return submit(members, async_op, same, over_hosts, result, lambda: bring_back(out, of_host[begin:begin + n]), given)


def gather_for_all(members: ProcessGroup, same: str, given: Tensor, moved: Tensor) -> Callable[[], None]:
    """What brings all processes' ``given`` into ``moved``, where a group's memory is shared."""
    MPI, shared, n = _mpi.start(), members.shared, given.numel()
    counts = [n * size for size in members.by_host]
    begin = sum(counts[:members.host])
    of_host, everything = moved.view(-1)[begin:begin + counts[members.host]], [memory(MPI, moved), counts, _begins(counts), type_of_bytes(MPI, moved)]

    def run() -> None:
        assert shared is not None
        shared.all_gather(same, given, of_host)
        if members.leaders != MPI.COMM_NULL:
            members.leaders.Allgatherv(MPI.IN_PLACE, everything)
        shared.broadcast(same, moved, 0)

    return run
