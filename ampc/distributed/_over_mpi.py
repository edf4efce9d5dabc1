"""Collectives by MPI: what it does runs in the group's thread, where no other thread waits for its result. Values of a GPU are copied to the host's
memory and back. Processes of one host do without MPI, in memory that they share (``_shared.py``)."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, List, Optional

from .. import _ops
from .._C import Tensor
from .._tensor import creation as make
from . import _mpi, _over_hosts
from ._agreement import agree, check, described, submit
from ._memory import apart, bring_back, memory, placing, row, settled
from ._shared import MOST, in_words
from .reductions import DTYPES, HALVES, ReduceOp, type_and_op, type_of_bytes, widened
from .work import TAGS, Message, Transfer, Work

if TYPE_CHECKING:
    from .groups import ProcessGroup


class OverMPI:
    """A group's operations by MPI; ``OverNCCL`` has the same methods. Arguments are checked, roots are ranks in the group, and ``result`` is what
    the Work gives."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group

    def _place(self) -> Optional[int]:
        """Which part of all values this rank's may be in their memory: MPI wants two memories."""
        return self._group.rank() if self._group.on_one_host else None

    def all_reduce(self, t: Tensor, op: Any, async_op: bool, result: Any) -> Optional[Work]:
        """In place."""
        members = self._group
        same, shape = described("all_reduce", t, op.name), f", shape {list(t.shape)}"
        shared = members.shared
        if shared is not None and members.on_one_host:
            own = settled(row(t))
            divisor = members.size() if op is ReduceOp.AVG else 1

            def f() -> None:
                check(members, shared.all_reduce(same, own, op, own, divisor), same + shape)

            return submit(members, async_op, same, f, result, lambda: bring_back(t, own), here=True)
        if members.apart is not None and members.apart.takes(t):
            return _over_hosts.all_reduce_by_messages(members, members.apart, t, op, same, shape, async_op, result)
        comm = members.comm if members.leaders is None else members.leaders
        if t.dtype in HALVES and members.between <= MOST:
            return _over_hosts.all_reduce_halves(t, op, members, comm, same, shape, async_op, result)
        MPI, moved = _mpi.start(), widened(row(t))
        kind, reduction = type_and_op(MPI, moved, op)
        buffer = [memory(MPI, moved), moved.numel(), kind]

        def over_hosts() -> None:
            agree(members, same, shape)
            if shared is not None:
                shared.all_reduce(same, moved, op, moved, 1)
            if comm != MPI.COMM_NULL:
                comm.Allreduce(MPI.IN_PLACE, buffer, reduction)
            if shared is not None:
                shared.broadcast(same, moved, 0)

        return submit(members, async_op, same, over_hosts, result, lambda: _take(t, moved, op, members))

    def all_reduce_parts(self, tensors: List[Tensor], op: Any) -> Work:
        """In place, as one row, of tensors of one dtype on the CPU which do not overlap. The group's processes must share memory, all of them."""
        members, parts = self._group, tuple(settled(row(t)) for t in tensors)
        shared, divisor = members.shared, members.size() if op is ReduceOp.AVG else 1
        same = in_words("all_reduce", sum(t.numel() for t in parts), parts[0].dtype.name, (op.name,))
        assert shared is not None

        def f() -> None:
            check(members, shared.all_reduce_parts(same, parts, op, divisor), same)

        def finish() -> None:
            for t, part in zip(tensors, parts):
                bring_back(t, part)

        return members.submit(same, f, tensors, finish)

    def reduce(self, t: Tensor, op: Any, root: int, async_op: bool, result: Any) -> Optional[Work]:
        """In place in the root; the others' stay."""
        members = self._group
        same, shape, here = described("reduce", t, op.name, f"to {root}"), f", shape {list(t.shape)}", members.rank() == root
        shared = members.shared
        if shared is not None and members.on_one_host:
            own = settled(row(t))
            divisor = members.size() if op is ReduceOp.AVG else 1

            def in_memory() -> None:
                check(members, shared.all_reduce(same, own, op, own if here else None, divisor), same + shape)

            return submit(members, async_op, same, in_memory, result, (lambda: bring_back(t, own)) if here else None, here=True)
        MPI, moved = _mpi.start(), widened(row(t))
        kind, reduction = type_and_op(MPI, moved, op)
        buffer = [memory(MPI, moved), moved.numel(), kind]

        def f() -> None:
            agree(members, same, shape)
            members.comm.Reduce(MPI.IN_PLACE if here else buffer, buffer if here else None, reduction, root)

        return submit(members, async_op, same, f, result, (lambda: _take(t, moved, op, members)) if here else None)

    def reduce_scatter(self, what: str, out: Tensor, parts: List[Tensor], op: Any, async_op: bool, result: Any) -> Optional[Work]:
        """``parts`` in a row are one for each rank."""
        members, own = self._group, row(out)
        t, same, shared = apart(_in_a_row(parts), own, self._place()), described(what, out, op.name), members.shared
        if shared is not None and members.on_one_host:
            all_ = settled(t)
            divisor = members.size() if op is ReduceOp.AVG else 1

            def in_memory() -> None:
                check(members, shared.reduce_scatter(same, all_, op, own, divisor), same)

            return submit(members, async_op, same, in_memory, result, lambda: bring_back(out, own), here=True)
        if members.between <= MOST and (t.dtype in HALVES if shared is None else members.by_host):
            return _over_hosts.reduce_parts(members, same, t, out, op, async_op, result)
        MPI, given = _mpi.start(), widened(t)
        moved = make.empty(out.numel(), dtype=given.dtype, device="cpu")
        kind, reduction = type_and_op(MPI, moved, op)
        source, target = [memory(MPI, given), given.numel(), kind], [memory(MPI, moved), moved.numel(), kind]

        def f() -> None:
            agree(members, same)
            members.comm.Reduce_scatter(source, target, [moved.numel()] * members.size(), reduction)

        return submit(members, async_op, same, f, result, lambda: _take(out, moved, op, members), given)

    def broadcast(self, t: Tensor, root: int, async_op: bool, result: Any) -> Optional[Work]:
        """In place."""
        members = self._group
        MPI, moved = _mpi.start(), row(t)
        buffer, same = [memory(MPI, moved), moved.numel(), type_of_bytes(MPI, moved)], described("broadcast", t, f"from {root}")
        shape, shared, here = f", shape {list(t.shape)}", members.shared, members.on_one_host

        def f() -> None:
            if shared is not None and here:
                check(members, shared.broadcast(same, moved, root), same + shape)
                return
            agree(members, same, shape)
            members.comm.Bcast(buffer, root)

        return submit(members, async_op, same, f, result, lambda: bring_back(t, moved), here=here)

    def all_gather(self, what: str, t: Tensor, outs: List[Tensor], async_op: bool, result: Any) -> Optional[Work]:
        """Into tensors of the ranks, or one for all."""
        return self._collect(described(what, t), t, outs, None, async_op, result)

    def gather(self, t: Tensor, outs: List[Tensor], root: int, async_op: bool, result: Any) -> Optional[Work]:
        """``outs`` are empty in others than the root."""
        return self._collect(described("gather", t, f"to {root}"), t, outs, root, async_op, result)

    def _collect(self, same: str, t: Tensor, outs: List[Tensor], root: Optional[int], async_op: bool, result: Any) -> Optional[Work]:
        """All ranks' values, in the root, or with None in each."""
        members, MPI, total = self._group, _mpi.start(), t.numel() * self._group.size() if outs else 0
        moved = row(outs[0]) if len(outs) == 1 and outs[0].numel() == total else make.empty(total, dtype=t.dtype, device="cpu")
        given = apart(row(t), moved, self._place())
        kind, shape = type_of_bytes(MPI, t), f", shape {list(t.shape)}"
        source, target = [memory(MPI, given), given.numel(), kind], [memory(MPI, moved), t.numel(), kind] if outs else None
        shared = members.shared if members.on_one_host and root is None else None
        has_leaders = root is None and members.leaders is not None and bool(members.by_host)
        by_hosts = _over_hosts.gather_for_all(members, same, given, moved) if has_leaders else None

        def f() -> None:
            if shared is not None:
                check(members, shared.all_gather(same, given, moved), same + shape)
                return
            agree(members, same, shape)
            if by_hosts is not None:
                by_hosts()
            elif root is None:
                members.comm.Allgather(source, target)
            else:
                members.comm.Gather(source, target, root)

        return submit(members, async_op, same, f, result, placing(outs, moved), given, here=shared is not None)

    def scatter(self, t: Tensor, parts: List[Tensor], root: int, async_op: bool, result: Any) -> Optional[Work]:
        """``parts`` are empty in others than the root."""
        members = self._group
        here = members.rank() == root
        given = _in_a_row(parts) if here else make.empty(0, dtype=t.dtype, device="cpu")
        MPI, moved = _mpi.start(), row(t)
        kind, same = type_of_bytes(MPI, t), described("scatter", t, f"from {root}")
        source, target = [memory(MPI, given), t.numel(), kind] if here else None, [memory(MPI, moved), moved.numel(), kind]

        def f() -> None:
            agree(members, same, f", shape {list(t.shape)}")
            members.comm.Scatter(source, target, root)

        return submit(members, async_op, same, f, result, lambda: bring_back(t, moved), given)

    def exchange(self, what: str, outs: List[Tensor], parts: List[Tensor], counts: Any, async_op: bool, result: Any) -> Optional[Work]:
        """Row i of ``parts`` goes to rank i, and that of ``outs`` comes from it; of one tensor each, rows are of so many elements."""
        members, given = self._group, _in_a_row(parts)
        moved = row(outs[0]) if len(outs) == 1 and outs[0].numel() == sum(counts[1]) else make.empty(sum(counts[1]), dtype=given.dtype, device="cpu")
        MPI, same, given = _mpi.start(), f"{what} of {given.dtype.name}", apart(given, moved)
        kind = type_of_bytes(MPI, given)
        source, target = [memory(MPI, given), counts[0], kind], [memory(MPI, moved), counts[1], kind]

        def f() -> None:
            agree(members, same)
            _check_counts(members, what, *counts)
            members.comm.Alltoallv(source, target)

        return submit(members, async_op, same, f, result, placing(outs, moved), given)

    def barrier(self, async_op: bool, device_ids: Any) -> Optional[Work]:
        """``device_ids`` are of a group of GPUs."""
        members = self._group

        def f() -> None:
            agree(members, "barrier")
            if not members.on_one_host:
                members.comm.Barrier()

        if members.apart is not None:
            return _over_hosts.barrier_by_messages(members, members.apart, async_op)
        return submit(members, async_op, "barrier", f, [], None, here=members.on_one_host)

    def messages(self, messages: List[Message]) -> List[Work]:
        """Begins messages, one after the other."""
        return [self._message(m) for m in messages]

    def _message(self, m: Message) -> Work:
        MPI, moved, members = _mpi.start(), row(m.t), self._group
        status, size = MPI.Status(), m.t.numel() * m.t.element_size()
        buffer, tag = [memory(MPI, moved), MPI.BYTE], _tag(MPI, m.tag, m.t.dtype.name)
        source = MPI.ANY_SOURCE if m.rank is None else m.rank
        request = members.comm.Isend(buffer, m.rank, tag) if m.sends else members.comm.Irecv(buffer, source, tag)

        def finish() -> None:
            got = status.Get_count(MPI.BYTE)
            if got != size:
                raise RuntimeError(f"{m.what}: the message has {got} bytes, the tensor {size}")
            bring_back(m.t, moved)

        def other() -> str:
            """Of which dtype a message is that has come with this tag, where it is another than the tensor's."""
            for name in () if m.sends else DTYPES:
                there = _tag(MPI, m.tag, name)
                if there != tag and members.comm.Iprobe(source, there, status):
                    return f"rank {members.ranks[status.Get_source()]} has sent {status.Get_count(MPI.BYTE)} bytes of {name}"
            return ""

        work = Transfer(members, m.what, request, status, [m.tensor], bool if m.sends else finish, other)
        work.kept = moved
        return work


def _tag(MPI: Any, tag: int, dtype: str) -> int:
    """MPI's tag of a message: the script's, and the dtype above, as far as the library has tags for it. So a message of another dtype is never
    taken."""
    code = DTYPES.index(dtype) if MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) >= len(DTYPES) * TAGS else 0
    return tag + code * TAGS


def _in_a_row(tensors: List[Tensor]) -> Tensor:
    """All values, in a row on the CPU."""
    return row(tensors[0]) if len(tensors) == 1 else _ops.cat([row(t).reshape(-1) for t in tensors])


def _take(t: Tensor, moved: Tensor, op: Any, members: ProcessGroup) -> None:
    """The result of a reduction; a mean is divided here."""
    if op is ReduceOp.AVG and moved.numel():
        bring_back(moved, moved)
        moved.div_(members.size())
    bring_back(t, moved)


def _check_counts(members: ProcessGroup, what: str, sent: List[int], wanted: List[int]) -> None:
    """RuntimeError in every process where one sends another number of elements than is waited for."""
    MPI, come = _mpi.start(), array("q", wanted)
    members.comm.Alltoall(array("q", sent), come)
    wrong = [f"rank {members.ranks[i]} sends {come[i]} elements to rank {members.ranks[members.rank()]}, which waits for {n}"
             for i, n in enumerate(wanted) if come[i] != n]
    if members.comm.allreduce(len(wrong), MPI.SUM):
        texts = [text for each in members.comm.allgather(wrong) for text in each]
        raise RuntimeError(f"{what}: " + "; ".join(texts))
