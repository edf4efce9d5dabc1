"""Collectives of tensors: every process of the group calls them, in the same order.

Each checks its arguments, and gives them to the group's way for tensors of their device: ``OverMPI`` or ``OverNCCL``. There the processes compare
what they were called with, so that a difference is an error in all of them, which names it, and never a hang. TORCH_DISTRIBUTED_DEBUG=OFF leaves
the comparison out."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

from .._C import Tensor
from .._messages.callers import warn
from ._memory import bring_back, check_like, check_list, check_tensor
from ._shared import ALL_GATHER, ALL_REDUCE, BROADCAST, MEET, REDUCE_SCATTER
from .errors import WrongRank
from .groups import ProcessGroup, get_group_rank, group_of, is_member, names
from .reductions import ReduceOp, check_reduction
from .work import Several, Work


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
    members, t = group_of("all_reduce", group), check_tensor("all_reduce", "tensor", tensor)
    op = check_reduction("all_reduce", op, t)
    return members.way("all_reduce", t).all_reduce(t, op, async_op, [tensor])


def reduce(tensor: Tensor, dst: Optional[int] = None, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False,
           group_dst: Optional[int] = None) -> Optional[Work]:
    """The tensors of all processes reduced, in place, in the process ``dst`` alone; the others' stay. Errors as in ``all_reduce``."""
    if left_out("reduce", group):
        return None
    members, t = group_of("reduce", group), check_tensor("reduce", "tensor", tensor)
    root, op = place("reduce", members, "dst", dst, group_dst), check_reduction("reduce", op, t)
    return members.way("reduce", t).reduce(t, op, root, async_op, [tensor])


def reduce_scatter_tensor(output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Optional[Work]:
    """``output`` is this rank's part of the reduced ``input``, which has as many equal parts as the group has ranks."""
    what = "reduce_scatter_tensor"
    if at_once(group, async_op, REDUCE_SCATTER, output, input, op) or left_out(what, group):
        return None
    members, out, t = group_of(what, group), check_tensor(what, "output", output), check_tensor(what, "input", input)
    check_like(what, "input", t, out, out.numel() * members.size())
    return members.way(what, out, t).reduce_scatter(what, out, [t], check_reduction(what, op, out), async_op, [output])


def reduce_scatter(output: Tensor, input_list: List[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Optional[Work]:
    """``output`` is the reduction of every process' ``input_list[this rank]``. Parts of different sizes are reduced one after the other."""
    what = "reduce_scatter"
    if left_out(what, group):
        return None
    members, out = group_of(what, group), check_tensor(what, "output", output)
    parts = check_list(what, "input_list", input_list, members.size())
    for i, part in enumerate(parts):
        check_like(what, f"input_list[{i}]", part, out, out.numel() if i == members.rank() else part.numel())
    if any(part.numel() != out.numel() for part in parts):
        return _reduce_each(members, output, parts, check_reduction(what, op, out), async_op)
    return members.way(what, out, *parts).reduce_scatter(what, out, parts, check_reduction(what, op, out), async_op, [output])


def _reduce_each(members: ProcessGroup, output: Tensor, parts: List[Tensor], op: Any, async_op: bool) -> Optional[Work]:
    """Each part into the rank that it is for."""
    own = parts[members.rank()] = parts[members.rank()].clone()
    way = members.way("reduce_scatter", output, *parts)
    works = [way.reduce(part, op, rank, True, None) for rank, part in enumerate(parts)]
    work = Several(works, [output], lambda: bring_back(output.detach(), own))
    if async_op:
        return work
    work.wait()
    return None


# -- moving values -----------------------------------------------------------------------------------------------------


def broadcast(tensor: Tensor, src: Optional[int] = None, group: Any = None, async_op: bool = False,
              group_src: Optional[int] = None) -> Optional[Work]:
    """Every process' tensor has the values of that of rank ``src``, in place."""
    if left_out("broadcast", group):
        return None
    members, t = group_of("broadcast", group), check_tensor("broadcast", "tensor", tensor)
    root = place("broadcast", members, "src", src, group_src)
    if at_once(members, async_op, BROADCAST, t, t, None, root):
        return None
    return members.way("broadcast", t).broadcast(t, root, async_op, [tensor])


def all_gather(tensor_list: List[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Optional[Work]:
    """``tensor_list[i]`` takes the values of rank i's ``tensor``."""
    if left_out("all_gather", group):
        return None
    members, t = group_of("all_gather", group), check_tensor("all_gather", "tensor", tensor)
    outs = check_list("all_gather", "tensor_list", tensor_list, members.size())
    for i, out in enumerate(outs):
        check_like("all_gather", f"tensor_list[{i}]", out, t, t.numel())
    return members.way("all_gather", t, *outs).all_gather("all_gather", t, outs, async_op, [tensor_list])


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Optional[Work]:
    """``output_tensor`` takes the values of every rank's ``input_tensor``, one after the other."""
    what = "all_gather_into_tensor"
    if at_once(group, async_op, ALL_GATHER, output_tensor, input_tensor, None) or left_out(what, group):
        return None
    members, t, out = group_of(what, group), check_tensor(what, "input_tensor", input_tensor), check_tensor(what, "output_tensor", output_tensor)
    check_like(what, "output_tensor", out, t, t.numel() * members.size())
    return members.way(what, t, out).all_gather(what, t, [out], async_op, [output_tensor])


def gather(tensor: Tensor, gather_list: Optional[List[Tensor]] = None, dst: Optional[int] = None, group: Any = None, async_op: bool = False,
           group_dst: Optional[int] = None) -> Optional[Work]:
    """In rank ``dst`` (0 by default) ``gather_list[i]`` takes the values of rank i's ``tensor``. ValueError for a list in another rank."""
    if left_out("gather", group):
        return None
    members, t = group_of("gather", group), check_tensor("gather", "tensor", tensor)
    root = place("gather", members, "dst", dst, group_dst, members.ranks[0])
    outs: List[Tensor] = []
    if members.rank() == root:
        outs = check_list("gather", "gather_list", gather_list, members.size())
        for i, out in enumerate(outs):
            check_like("gather", f"gather_list[{i}]", out, t, t.numel())
    elif gather_list:
        raise ValueError("gather: `gather_list` must be None in every rank but `dst`")
    return members.way("gather", t, *outs).gather(t, outs, root, async_op, [gather_list])


def scatter(tensor: Tensor, scatter_list: Optional[List[Tensor]] = None, src: Optional[int] = None, group: Any = None, async_op: bool = False,
            group_src: Optional[int] = None) -> Optional[Work]:
    """``tensor`` takes the values of ``scatter_list[this rank]`` of rank ``src`` (0 by default). ValueError for a list in another rank."""
    if left_out("scatter", group):
        return None
    members, t = group_of("scatter", group), check_tensor("scatter", "tensor", tensor)
    root = place("scatter", members, "src", src, group_src, members.ranks[0])
    parts: List[Tensor] = []
    if members.rank() == root:
        parts = check_list("scatter", "scatter_list", scatter_list, members.size())
        for i, part in enumerate(parts):
            check_like("scatter", f"scatter_list[{i}]", part, t, t.numel())
    elif scatter_list:
        raise ValueError("scatter: `scatter_list` must be None in every rank but `src`")
    return members.way("scatter", t, *parts).scatter(t, parts, root, async_op, [tensor])


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
    counts = [t.numel() for t in parts], [t.numel() for t in outs]
    return members.way("all_to_all", *outs, *parts).exchange("all_to_all", outs, parts, counts, async_op, [output_tensor_list])


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
    return members.way(what, out, t).exchange(what, [out], [t], counts, async_op, [output])


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


# -- waiting -----------------------------------------------------------------------------------------------------------


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Optional[Work]:
    """Waits until every process of the group has come here. In a group of GPUs the GPU of ``device_ids`` waits, by default the current one, and
    the host for it."""
    if (not device_ids and at_once(group, async_op, MEET, None, None, None)) or left_out("barrier", group):
        return None
    return group_of("barrier", group).way_of_barrier(device_ids).barrier(async_op, device_ids)


__all__ = ["all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single", "barrier", "broadcast", "gather", "reduce",
           "reduce_scatter", "reduce_scatter_tensor", "scatter"]
