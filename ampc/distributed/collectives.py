"""Collectives of tensors: every process of the group calls them, in the same order.

Each checks its arguments, and submits what MPI does to the group's thread. Before that the processes compare what they were called with, so
that a difference is an error in all of them, which names it, and never a hang. TORCH_DISTRIBUTED_DEBUG=OFF leaves the comparison out."""

from __future__ import annotations

import zlib
from array import array
from typing import Any, Callable, List, Optional, Sequence

from .. import _creation as make
from .._C import Tensor
from .._callers import warn
from . import _mpi
from ._halves import Halves
from ._memory import bring_back, check_like, check_list, check_tensor, flat, memory, row, settled, spread
from ._shared import ALL_GATHER, ALL_REDUCE, BROADCAST, MEET, MOST, REDUCE_SCATTER, in_words
from .errors import WrongRank
from .groups import ProcessGroup, get_group_rank, group_of, is_member, names
from .reductions import HALVES, ReduceOp, check_reduction, type_and_op, type_of_bytes, widened
from .work import Work


def agree(group: ProcessGroup, same: str, more: str = "") -> None:
    """RuntimeError in every process unless all call with the same ``same``; the message adds ``more``. On one host it waits for all. Runs in
    the group's turn."""
    if group.size() == 1:
        return
    if group.shared is not None and group.on_one_host:
        check(group, group.shared.meet(same), same + more)
    elif group.checks:
        _compare(group, same, more)


def _compare(group: ProcessGroup, same: str, more: str) -> None:
    MPI = _mpi.start()
    number = zlib.crc32(same.encode())
    mine, most = array("q", (number, -number)), array("q", (0, 0))
    group.comm.Allreduce(mine, most, MPI.MAX)
    check(group, most[0] == -most[1], same + more)


def check(group: ProcessGroup, agreed: bool, text: str) -> None:
    """RuntimeError in every process where they do not agree, which says what each calls."""
    if not agreed:
        group._differ(text)


def described(what: str, t: Tensor, *more: Any) -> str:
    """What must be the same in every process, in words."""
    return in_words(what, t.numel(), t.dtype.name, more)


def left_out(what: str, group: Any) -> bool:
    """Whether this process is no member of the group, which a warning tells."""
    if is_member(group):
        return False
    warn(f"{what}: this process is not in the group, so nothing is done")
    return True


def at_once(group: Any, async_op: bool, kind: int, to: Any, given: Any, op: Any, root: int = 0) -> bool:
    """Whether the core has run a collective that is waited for. Where its arguments are not good, need a copy, or other operations are before it,
    nothing is done."""
    members = names.WORLD if group is None else group
    return not async_op and isinstance(members, ProcessGroup) and members.at_once(kind, to, given, op, root)


def submit(group: ProcessGroup, async_op: bool, what: str, f: Callable[[], Any], result: Any, finish: Optional[Callable[[], Any]],
           given: Optional[Tensor] = None, here: bool = False) -> Optional[Work]:
    """Submits ``f`` and waits for it, or returns the Work, which keeps ``given`` alive. With ``here``, and nothing else to wait for, ``f`` runs in
    this thread."""
    if here and not async_op and group.run_here(what, f):
        if finish is not None:
            finish()
        return None
    work = group.submit(what, f, result, finish)
    work.kept = given
    if async_op:
        return work
    work.wait()
    return None


def place(what: str, group: ProcessGroup, name: str, rank: Optional[int], group_rank: Optional[int], default: Optional[int] = None) -> int:
    """The rank in the group of a root or partner, which is given by its rank among all or in the group. ValueError for both or neither, or for a
    rank that there is not, which is a RuntimeError, too."""
    if rank is not None and group_rank is not None:
        raise ValueError(f"{what}: `{name}` and `group_{name}` exclude each other")
    if group_rank is not None:
        if not 0 <= group_rank < group.size():
            raise WrongRank(f"{what}: `group_{name}` must be from 0 to {group.size() - 1}, got {group_rank}")
        return group_rank
    rank = default if rank is None else rank
    if rank is None:
        raise ValueError(f"{what}: `{name}` or `group_{name}` says which rank")
    if rank not in group.ranks:
        raise WrongRank(f"{what}: `{name}` must be one of the group's ranks {group.ranks}, got {rank}")
    return get_group_rank(group, rank)


# -- reductions --------------------------------------------------------------------------------------------------------


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Optional[Work]:
    """The tensors of all processes reduced, in place, in each of them. 16-bit floating point is reduced in float32 and rounded once.

    TypeError for what is no tensor or reduction; RuntimeError where the dtype has no such reduction, or the processes differ in dtype or
    number of elements."""
    if at_once(group, async_op, ALL_REDUCE, tensor, tensor, op) or left_out("all_reduce", group):
        return None
    return _all_reduce(tensor, op, group_of("all_reduce", group), async_op)


def _all_reduce(tensor: Tensor, op: Any, members: ProcessGroup, async_op: bool) -> Optional[Work]:
    t = check_tensor("all_reduce", "tensor", tensor)
    op = check_reduction("all_reduce", op, t)
    same, shape = described("all_reduce", t, op.name), f", shape {list(t.shape)}"
    shared = members.shared
    if shared is not None and members.on_one_host:
        own = settled(row(t))
        divisor = members.size() if op is ReduceOp.AVG else 1

        def f() -> None:
            check(members, shared.all_reduce(same, own, op, own, divisor), same + shape)

        return submit(members, async_op, same, f, [tensor], lambda: bring_back(t, own), here=True)
    comm = members.comm if members.leaders is None else members.leaders
    if t.dtype in HALVES and (members.size() if members.leaders is None else members.hosts) <= MOST:
        return _all_reduce_halves(t, op, members, comm, same, shape, async_op, tensor)
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

    return submit(members, async_op, same, over_hosts, [tensor], lambda: _take(t, moved, op, members))


def _all_reduce_halves(t: Tensor, op: Any, members: ProcessGroup, comm: Any, same: str, shape: str, async_op: bool,
                       tensor: Tensor) -> Optional[Work]:
    """Of 16-bit values over several hosts. Within a host they are reduced in float32, so that they are rounded once in all."""
    MPI, shared, own = _mpi.start(), members.shared, settled(row(t))
    given = own if shared is None else own.float()
    divisor = members.size() if op is ReduceOp.AVG else 1
    between = None if comm == MPI.COMM_NULL else Halves(MPI, comm, op, given, own.reshape(-1), divisor)

    def over_hosts() -> None:
        agree(members, same, shape)
        if shared is not None:
            shared.all_reduce(same, given, op, given, 1)
        if between is not None:
            between.run()
        if shared is not None:
            shared.broadcast(same, own, 0)

    return submit(members, async_op, same, over_hosts, [tensor], lambda: bring_back(t, own))


def _take(t: Tensor, moved: Tensor, op: Any, members: ProcessGroup) -> None:
    """The result of a reduction; a mean is divided here."""
    if op is ReduceOp.AVG and moved.numel():
        bring_back(moved, moved)
        moved.div_(members.size())
    bring_back(t, moved)


def reduce(tensor: Tensor, dst: Optional[int] = None, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False,
           group_dst: Optional[int] = None) -> Optional[Work]:
    """The tensors of all processes reduced, in place, in the process ``dst`` alone; the others' stay. Errors as in ``all_reduce``."""
    if left_out("reduce", group):
        return None
    members, t = group_of("reduce", group), check_tensor("reduce", "tensor", tensor)
    root, op = place("reduce", members, "dst", dst, group_dst), check_reduction("reduce", op, t)
    same, shape, here = described("reduce", t, op.name, f"to {root}"), f", shape {list(t.shape)}", members.rank() == root
    shared = members.shared
    if shared is not None and members.on_one_host:
        own = settled(row(t))
        divisor = members.size() if op is ReduceOp.AVG else 1

        def in_memory() -> None:
            check(members, shared.all_reduce(same, own, op, own if here else None, divisor), same + shape)

        return submit(members, async_op, same, in_memory, [tensor], (lambda: bring_back(t, own)) if here else None, here=True)
    MPI, moved = _mpi.start(), widened(row(t))
    kind, reduction = type_and_op(MPI, moved, op)
    buffer = [memory(MPI, moved), moved.numel(), kind]

    def f() -> None:
        agree(members, same, shape)
        members.comm.Reduce(MPI.IN_PLACE if here else buffer, buffer if here else None, reduction, root)

    return submit(members, async_op, same, f, [tensor], (lambda: _take(t, moved, op, members)) if here else None)


def reduce_scatter_tensor(output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Optional[Work]:
    """``output`` is this rank's part of the reduced ``input``, which has as many equal parts as the group has ranks."""
    what = "reduce_scatter_tensor"
    if at_once(group, async_op, REDUCE_SCATTER, output, input, op) or left_out(what, group):
        return None
    members, out, t = group_of(what, group), check_tensor(what, "output", output), check_tensor(what, "input", input)
    check_like(what, "input", t, out, out.numel() * members.size())
    return _reduce_scatter(what, out, row(t), op, members, async_op, [output])


def reduce_scatter(output: Tensor, input_list: List[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Optional[Work]:
    """``output`` is the reduction of every process' ``input_list[this rank]``; all have its shape."""
    what = "reduce_scatter"
    if left_out(what, group):
        return None
    members, out = group_of(what, group), check_tensor(what, "output", output)
    parts = check_list(what, "input_list", input_list, members.size())
    for i, part in enumerate(parts):
        check_like(what, f"input_list[{i}]", part, out, out.numel())
    return _reduce_scatter(what, out, flat(parts), op, members, async_op, [output])


def _reduce_scatter(what: str, out: Tensor, t: Tensor, op: Any, members: ProcessGroup, async_op: bool, result: Any) -> Optional[Work]:
    op, same, shared = check_reduction(what, op, out), described(what, out, op.name), members.shared
    if shared is not None and members.on_one_host:
        own, parts = row(out), settled(t)
        divisor = members.size() if op is ReduceOp.AVG else 1

        def in_memory() -> None:
            check(members, shared.reduce_scatter(same, parts, op, own, divisor), same)

        return submit(members, async_op, same, in_memory, result, lambda: bring_back(out, own), here=True)
    MPI, given = _mpi.start(), widened(t)
    moved = make.empty(out.numel(), dtype=given.dtype, device="cpu")
    kind, reduction = type_and_op(MPI, moved, op)
    source, target = [memory(MPI, given), given.numel(), kind], [memory(MPI, moved), moved.numel(), kind]

    def f() -> None:
        agree(members, same)
        members.comm.Reduce_scatter(source, target, [moved.numel()] * members.size(), reduction)

    return submit(members, async_op, same, f, result, lambda: _take(out, moved, op, members), given)


# -- moving values -----------------------------------------------------------------------------------------------------


def broadcast(tensor: Tensor, src: Optional[int] = None, group: Any = None, async_op: bool = False,
              group_src: Optional[int] = None) -> Optional[Work]:
    """Every process' tensor has the values of that of rank ``src``, in place."""
    if left_out("broadcast", group):
        return None
    members, t = group_of("broadcast", group), check_tensor("broadcast", "tensor", tensor)
    root = place("broadcast", members, "src", src, group_src)
    return None if at_once(members, async_op, BROADCAST, t, t, None, root) else _broadcast(tensor, t, root, members, async_op)


def _broadcast(tensor: Tensor, t: Tensor, root: int, members: ProcessGroup, async_op: bool) -> Optional[Work]:
    MPI, moved = _mpi.start(), row(t)
    buffer, same = [memory(MPI, moved), moved.numel(), type_of_bytes(MPI, moved)], described("broadcast", t, f"from {root}")
    shape, shared, here = f", shape {list(t.shape)}", members.shared, members.on_one_host

    def f() -> None:
        if shared is not None and here:
            check(members, shared.broadcast(same, moved, root), same + shape)
            return
        agree(members, same, shape)
        members.comm.Bcast(buffer, root)

    return submit(members, async_op, same, f, [tensor], lambda: bring_back(t, moved), here=here)


def all_gather(tensor_list: List[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Optional[Work]:
    """``tensor_list[i]`` takes the values of rank i's ``tensor``."""
    if left_out("all_gather", group):
        return None
    members, t = group_of("all_gather", group), check_tensor("all_gather", "tensor", tensor)
    outs = check_list("all_gather", "tensor_list", tensor_list, members.size())
    for i, out in enumerate(outs):
        check_like("all_gather", f"tensor_list[{i}]", out, t, t.numel())
    return _all_gather("all_gather", t, outs, members, async_op, [tensor_list])


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Optional[Work]:
    """``output_tensor`` takes the values of every rank's ``input_tensor``, one after the other."""
    what = "all_gather_into_tensor"
    if at_once(group, async_op, ALL_GATHER, output_tensor, input_tensor, None) or left_out(what, group):
        return None
    members, t, out = group_of(what, group), check_tensor(what, "input_tensor", input_tensor), check_tensor(what, "output_tensor", output_tensor)
    check_like(what, "output_tensor", out, t, t.numel() * members.size())
    return _all_gather(what, t, [out], members, async_op, [output_tensor])


def _all_gather(what: str, t: Tensor, outs: List[Tensor], members: ProcessGroup, async_op: bool, result: Any) -> Optional[Work]:
    MPI, given = _mpi.start(), row(t)
    total = t.numel() * members.size()
    moved = row(outs[0]) if len(outs) == 1 and outs[0].numel() == total else make.empty(total, dtype=t.dtype, device="cpu")
    kind, same = type_of_bytes(MPI, t), described(what, t)
    source, target = [memory(MPI, given), given.numel(), kind], [memory(MPI, moved), t.numel(), kind]
    shape, shared, here = f", shape {list(t.shape)}", members.shared, members.on_one_host

    def f() -> None:
        if shared is not None and here:
            check(members, shared.all_gather(same, given, moved), same + shape)
            return
        agree(members, same, shape)
        members.comm.Allgather(source, target)

    finish = (lambda: bring_back(outs[0], moved)) if len(outs) == 1 else (lambda: spread(outs, moved))
    return submit(members, async_op, same, f, result, finish, given, here)


def gather(tensor: Tensor, gather_list: Optional[List[Tensor]] = None, dst: Optional[int] = None, group: Any = None, async_op: bool = False,
           group_dst: Optional[int] = None) -> Optional[Work]:
    """In rank ``dst`` (0 by default) ``gather_list[i]`` takes the values of rank i's ``tensor``. ValueError for a list in another rank."""
    if left_out("gather", group):
        return None
    members, t = group_of("gather", group), check_tensor("gather", "tensor", tensor)
    root = place("gather", members, "dst", dst, group_dst, members.ranks[0])
    here, outs = members.rank() == root, []
    if here:
        outs = check_list("gather", "gather_list", gather_list, members.size())
        for i, out in enumerate(outs):
            check_like("gather", f"gather_list[{i}]", out, t, t.numel())
    elif gather_list:
        raise ValueError("gather: `gather_list` must be None in every rank but `dst`")
    MPI, given = _mpi.start(), row(t)
    moved = make.empty(t.numel() * members.size() if here else 0, dtype=t.dtype, device="cpu")
    kind, same = type_of_bytes(MPI, t), described("gather", t, f"to {root}")
    source, target = [memory(MPI, given), given.numel(), kind], [memory(MPI, moved), t.numel(), kind] if here else None

    def f() -> None:
        agree(members, same, f", shape {list(t.shape)}")
        members.comm.Gather(source, target, root)

    return submit(members, async_op, same, f, [gather_list], lambda: spread(outs, moved), given)


def scatter(tensor: Tensor, scatter_list: Optional[List[Tensor]] = None, src: Optional[int] = None, group: Any = None, async_op: bool = False,
            group_src: Optional[int] = None) -> Optional[Work]:
    """``tensor`` takes the values of ``scatter_list[this rank]`` of rank ``src`` (0 by default). ValueError for a list in another rank."""
    if left_out("scatter", group):
        return None
    members, t = group_of("scatter", group), check_tensor("scatter", "tensor", tensor)
    root = place("scatter", members, "src", src, group_src, members.ranks[0])
    here, given = members.rank() == root, make.empty(0, dtype=t.dtype, device="cpu")
    if here:
        parts = check_list("scatter", "scatter_list", scatter_list, members.size())
        for i, part in enumerate(parts):
            check_like("scatter", f"scatter_list[{i}]", part, t, t.numel())
        given = flat(parts)
    elif scatter_list:
        raise ValueError("scatter: `scatter_list` must be None in every rank but `src`")
    MPI, moved = _mpi.start(), row(t)
    kind, same = type_of_bytes(MPI, t), described("scatter", t, f"from {root}")
    source, target = [memory(MPI, given), t.numel(), kind] if here else None, [memory(MPI, moved), moved.numel(), kind]

    def f() -> None:
        agree(members, same, f", shape {list(t.shape)}")
        members.comm.Scatter(source, target, root)

    return submit(members, async_op, same, f, [tensor], lambda: bring_back(t, moved), given)


# -- from each to each -------------------------------------------------------------------------------------------------


def all_to_all(output_tensor_list: List[Tensor], input_tensor_list: List[Tensor], group: Any = None, async_op: bool = False) -> Optional[Work]:
    """``output_tensor_list[i]`` takes the values of rank i's ``input_tensor_list[this rank]``; sizes may differ."""
    if left_out("all_to_all", group):
        return None
    members = group_of("all_to_all", group)
    outs = check_list("all_to_all", "output_tensor_list", output_tensor_list, members.size())
    parts = check_list("all_to_all", "input_tensor_list", input_tensor_list, members.size())
    for name, tensors in (("output_tensor_list", outs), ("input_tensor_list", parts)):
        for i, t in enumerate(tensors):
            check_like("all_to_all", f"{name}[{i}]", t, parts[0], t.numel())
    moved = make.empty(sum(t.numel() for t in outs), dtype=parts[0].dtype, device="cpu")
    counts = [t.numel() for t in parts], [t.numel() for t in outs]
    return _exchange("all_to_all", flat(parts), moved, counts, members, async_op, [output_tensor_list], lambda: spread(outs, moved))


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Optional[Sequence[int]] = None,
                      input_split_sizes: Optional[Sequence[int]] = None, group: Any = None, async_op: bool = False) -> Optional[Work]:
    """Part i of ``input`` goes to rank i, and part i of ``output`` comes from it. Parts lie along the first dimension: of the sizes that are
    given, else all of one size."""
    what = "all_to_all_single"
    if left_out(what, group):
        return None
    members, out, t = group_of(what, group), check_tensor(what, "output", output), check_tensor(what, "input", input)
    if out.dtype != t.dtype:
        raise RuntimeError(f"{what}: `output` and `input` must have one dtype, got {out.dtype} and {t.dtype}")
    counts = _parts(what, "input", t, input_split_sizes, members.size()), _parts(what, "output", out, output_split_sizes, members.size())
    moved = row(out)
    return _exchange(what, row(t), moved, counts, members, async_op, [output], lambda: bring_back(out, moved))


def _parts(what: str, name: str, t: Tensor, sizes: Optional[Sequence[int]], count: int) -> List[int]:
    """How many elements each part has. RuntimeError where the sizes do not fit."""
    rows = t.shape[0] if t.ndim else 1
    each = t.numel() // rows if rows else 0
    if sizes is None or len(sizes) == 0:
        if rows % count:
            raise RuntimeError(f"{what}: `{name}` has {rows} rows, which {count} ranks cannot share alike; give `{name}_split_sizes`")
        return [rows // count * each] * count
    if len(sizes) != count or sum(sizes) != rows or min(sizes) < 0:
        raise RuntimeError(f"{what}: `{name}_split_sizes` must be {count} sizes with the sum {rows}, got {list(sizes)}")
    return [size * each for size in sizes]


def _exchange(what: str, given: Tensor, moved: Tensor, counts: Any, members: ProcessGroup, async_op: bool, result: Any,
              finish: Callable[[], Any]) -> Optional[Work]:
    MPI = _mpi.start()
    kind, same = type_of_bytes(MPI, given), f"{what} of {given.dtype.name}"
    source, target = [memory(MPI, given), counts[0], kind], [memory(MPI, moved), counts[1], kind]

    def f() -> None:
        agree(members, same)
        _check_counts(members, what, *counts)
        members.comm.Alltoallv(source, target)

    return submit(members, async_op, same, f, result, finish, given)


def _check_counts(members: ProcessGroup, what: str, sent: List[int], wanted: List[int]) -> None:
    """RuntimeError in every process where one sends another number of elements than is waited for."""
    MPI, come = _mpi.start(), array("q", wanted)
    members.comm.Alltoall(array("q", sent), come)
    wrong = [f"rank {members.ranks[i]} sends {come[i]} elements to rank {members.ranks[members.rank()]}, which waits for {n}"
             for i, n in enumerate(wanted) if come[i] != n]
    if members.comm.allreduce(len(wrong), MPI.SUM):
        texts = [text for each in members.comm.allgather(wrong) for text in each]
        raise RuntimeError(f"{what}: " + "; ".join(texts))


# -- waiting -----------------------------------------------------------------------------------------------------------


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Optional[Work]:
    """Waits until every process of the group has come here."""
    if at_once(group, async_op, MEET, None, None, None) or left_out("barrier", group):
        return None
    members = group_of("barrier", group)

    def f() -> None:
        agree(members, "barrier")
        if not members.on_one_host:
            members.comm.Barrier()

    return submit(members, async_op, "barrier", f, [], None, here=members.on_one_host)


__all__ = ["all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single", "barrier", "broadcast", "gather", "reduce",
           "reduce_scatter", "reduce_scatter_tensor", "scatter"]
