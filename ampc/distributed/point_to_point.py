"""Messages from one process to another, and the barrier that says who has not come to it."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Tuple

from .._C import Tensor
from . import _mpi
from ._memory import check_tensor
from .collectives import left_out, place
from .errors import WrongRank
from .groups import ProcessGroup, group_of
from .work import TAGS, Message, Work, seconds_of

MARK = 1 << 24  # the tags from here on are of the barrier's messages, two for each barrier


def _partner(what: str, group: ProcessGroup, name: str, rank: Optional[int], group_rank: Optional[int]) -> int:
    found = place(what, group, name, rank, group_rank)
    if found == group.rank():
        raise WrongRank(f"{what}: `{name}` is this process itself (rank {group.ranks[found]})")
    return found


def _check_tag(what: str, tag: Any) -> int:
    if isinstance(tag, bool) or not isinstance(tag, int) or not 0 <= tag < TAGS:
        raise RuntimeError(f"{what}: `tag` must be a number from 0 to {TAGS - 1}, got {tag!r}")
    return tag


def _message(sends: bool, group: Any, tensor: Tensor, rank: Optional[int], group_rank: Optional[int], tag: int) -> Tuple[ProcessGroup, Message]:
    what, name = ("isend", "dst") if sends else ("irecv", "src")
    members, t = group_of(what, group), check_tensor(what, "tensor", tensor)
    partner = None if not sends and rank is None and group_rank is None else _partner(what, members, name, rank, group_rank)
    members.need(what)
    whose = "any rank" if partner is None else f"rank {members.ranks[partner]}"
    said = f"a {'send' if sends else 'receive'} of {t.numel()} elements of {t.dtype.name} {'to' if sends else 'from'} {whose}"
    return members, Message(said, t, partner, sends, _check_tag(what, tag), tensor)


def isend(tensor: Tensor, dst: Optional[int] = None, group: Any = None, tag: int = 0, group_dst: Optional[int] = None) -> Optional[Work]:
    """Begins to send the tensor to rank ``dst``; it must not be written before the Work's ``wait()``. ValueError for this rank itself."""
    if left_out("isend", group):
        return None
    members, message = _message(True, group, tensor, dst, group_dst, tag)
    return members.begin([message])[0]


def irecv(tensor: Tensor, src: Optional[int] = None, group: Any = None, tag: int = 0, group_src: Optional[int] = None) -> Optional[Work]:
    """Begins to receive into the tensor from rank ``src``, or from any; it has its values after the Work's ``wait()``. RuntimeError there
    where a message of another size or dtype came. Between GPUs, ``src`` must be given, and ``tag`` tells no messages apart."""
    if left_out("irecv", group):
        return None
    members, message = _message(False, group, tensor, src, group_src, tag)
    return members.begin([message])[0]


def send(tensor: Tensor, dst: Optional[int] = None, group: Any = None, tag: int = 0, group_dst: Optional[int] = None) -> None:
    """Sends the tensor to rank ``dst``, and waits until it may be written again."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(tensor: Tensor, src: Optional[int] = None, group: Any = None, tag: int = 0, group_src: Optional[int] = None) -> int:
    """Receives into the tensor from rank ``src``, or from any, and returns the sender's rank; -1 where this process is not in the group."""
    work = irecv(tensor, src, group, tag, group_src)
    return -1 if work is None else work.source_rank()


class P2POp:
    """One of the messages for ``batch_isend_irecv``: ``op`` is isend or irecv."""

    def __init__(self, op: Callable[..., Any], tensor: Tensor, peer: Optional[int] = None, group: Any = None, tag: int = 0,
                 group_peer: Optional[int] = None) -> None:
        if op not in (isend, irecv):
            raise ValueError("P2POp: `op` must be ampc.distributed.isend or irecv")
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = op, tensor, peer, group, tag, group_peer


def batch_isend_irecv(p2p_op_list: List[P2POp]) -> List[Work]:
    """Begins all these messages, and returns a Work for each. Between GPUs they travel together, so a rank may send before it receives; in a
    group of more than two, its first must be a call of all ranks. ValueError for an empty list or other elements."""
    if not p2p_op_list or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError("batch_isend_irecv: expected a list of P2POp with an element or more")
    works: List[Any] = [None] * len(p2p_op_list)
    by_group: Dict[ProcessGroup, List[Tuple[int, Message]]] = {}
    for i, p in enumerate(p2p_op_list):
        if not left_out("batch_isend_irecv", p.group):
            members, message = _message(p.op is isend, p.group, p.tensor, p.peer, p.group_peer, p.tag)
            by_group.setdefault(members, []).append((i, message))
    for members, numbered in by_group.items():
        for (i, _), work in zip(numbered, members.begin([message for _, message in numbered])):
            works[i] = work
    return works


# -- a barrier that names who is missing --------------------------------------------------------------------------------


def _wait_for(requests: List[Any], end: float) -> List[int]:
    """The positions of requests that have not ended in time; these are cancelled."""
    left = list(range(len(requests)))
    while True:
        left = [i for i in left if not requests[i].Test()]
        if not left or time.monotonic() >= end:
            break
        time.sleep(5e-4)
    for i in left:
        requests[i].Cancel()
        requests[i].Wait()
    return left


def _expected(members: ProcessGroup, tag: int, end: float) -> List[int]:
    """The ranks that have not come to rank 0 in time; all others are told."""
    MPI, others = _mpi.start(), list(range(1, members.size()))
    tokens = [bytearray(1) for _ in others]
    late = {others[i] for i in _wait_for([members.comm.Irecv([t, MPI.BYTE], r, tag) for r, t in zip(others, tokens)], end)}
    told = bytearray(members.size())  # 1 where a rank is missing
    for rank in late:
        told[rank] = 1
    for rank in others:
        if rank not in late:
            members.comm.Send([told, MPI.BYTE], rank, tag + 1)
    return [members.ranks[rank] for rank in sorted(late)]


def _answered(members: ProcessGroup, tag: int, end: float) -> Tuple[bool, List[int]]:
    """Whether rank 0 has answered in time, and the ranks that it misses."""
    MPI, told = _mpi.start(), bytearray(members.size())
    answer = members.comm.Irecv([told, MPI.BYTE], 0, tag + 1)
    members.comm.Send([bytearray(1), MPI.BYTE], 0, tag)
    if _wait_for([answer], end):
        return False, []
    return True, [members.ranks[i] for i, missing in enumerate(told) if missing]


def monitored_barrier(group: Any = None, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False) -> None:
    """Waits until every process has come here. RuntimeError that names those that have not come within ``timeout`` (by default the group's):
    the first of them, or with ``wait_all_ranks`` all. The group can be used after that. ValueError for processes that are connected without MPI."""
    if left_out("monitored_barrier", group):
        return
    members = group_of("monitored_barrier", group)
    members.need("monitored_barrier")
    if members.start is not _mpi:
        raise ValueError("monitored_barrier: it goes by MPI, and these processes are connected without; call barrier()")
    seconds = members.seconds if timeout is None else seconds_of("monitored_barrier", timeout)
    end = time.monotonic() + seconds
    tag = MARK + 2 * (next(members.barriers) % 1000)  # of a number, so that who comes late does not stand for the next
    answered, missing = (True, _expected(members, tag, end)) if members.rank() == 0 else _answered(members, tag, end + 1 + seconds / 10)
    if not answered:
        raise RuntimeError(f"monitored_barrier: rank {members.ranks[0]} has not come to the barrier within {seconds:g} s")
    if missing:
        texts = missing if wait_all_ranks else missing[:1]
        raise RuntimeError(f"monitored_barrier: rank{'s' if len(texts) > 1 else ''} {', '.join(map(str, texts))} of {members.size()} "
                           f"did not come to the barrier within {seconds:g} s")
