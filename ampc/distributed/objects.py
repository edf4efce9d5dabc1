"""Collectives of Python objects, which travel pickled. Unpickling runs code, so processes of a group must trust each other."""

from __future__ import annotations

import pickle
from typing import Any, List, Optional

from .. import _C
from .._tensor import creation as make
from .._tensor.buffers import frombuffer
from .collectives import left_out, place
from .groups import group_of
from .point_to_point import recv, send


def _check_length(what: str, name: str, items: Any, length: int) -> None:
    if not isinstance(items, list):
        raise TypeError(f"{what}: `{name}` must be a list, got {type(items).__name__}")
    if len(items) != length:
        raise ValueError(f"{what}: `{name}` must have {length} elements, got {len(items)}")


def all_gather_object(object_list: List[Any], obj: Any, group: Any = None) -> None:
    """``object_list[i]`` becomes rank i's ``obj``. The list has as many elements as the group has ranks."""
    if left_out("all_gather_object", group):
        return
    members = group_of("all_gather_object", group)
    _check_length("all_gather_object", "object_list", object_list, members.size())

    def f(by: Any) -> None:
        object_list[:] = by.allgather(obj)

    members.objects("all_gather_object", f)


def gather_object(obj: Any, object_gather_list: Optional[List[Any]] = None, dst: Optional[int] = None, group: Any = None,
                  group_dst: Optional[int] = None) -> None:
    """In rank ``dst`` (0 by default) ``object_gather_list[i]`` becomes rank i's ``obj``."""
    if left_out("gather_object", group):
        return
    members = group_of("gather_object", group)
    root = place("gather_object", members, "dst", dst, group_dst, members.ranks[0])
    if members.rank() == root:
        _check_length("gather_object", "object_gather_list", object_gather_list, members.size())
    elif object_gather_list:
        raise ValueError("gather_object: `object_gather_list` must be None in every rank but `dst`")

    def f(by: Any) -> None:
        got = by.gather(obj, root)
        if object_gather_list is not None and got is not None:
            object_gather_list[:] = got

    members.objects(f"gather_object to {root}", f)


def broadcast_object_list(object_list: List[Any], src: Optional[int] = None, group: Any = None, device: Any = None,
                          group_src: Optional[int] = None) -> None:
    """Every process' list has the objects of that of rank ``src`` (0 by default). All lists have one length."""
    if left_out("broadcast_object_list", group):
        return
    members = group_of("broadcast_object_list", group)
    root = place("broadcast_object_list", members, "src", src, group_src, members.ranks[0])
    _check_length("broadcast_object_list", "object_list", object_list, len(object_list) if isinstance(object_list, list) else 0)

    def f(by: Any) -> None:
        object_list[:] = by.bcast(object_list if members.rank() == root else None, root)

    members.objects(f"broadcast_object_list of {len(object_list)} objects from {root}", f)


def scatter_object_list(scatter_object_output_list: List[Any], scatter_object_input_list: Optional[List[Any]] = None, src: Optional[int] = None,
                        group: Any = None, group_src: Optional[int] = None) -> None:
    """``scatter_object_output_list[0]`` becomes ``scatter_object_input_list[this rank]`` of rank ``src`` (0 by default)."""
    if left_out("scatter_object_list", group):
        return
    members = group_of("scatter_object_list", group)
    root = place("scatter_object_list", members, "src", src, group_src, members.ranks[0])
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("scatter_object_list: `scatter_object_output_list` must be a list with an element, which is replaced")
    if members.rank() == root:
        _check_length("scatter_object_list", "scatter_object_input_list", scatter_object_input_list, members.size())

    def f(by: Any) -> None:
        scatter_object_output_list[0] = by.scatter(scatter_object_input_list if members.rank() == root else None, root)

    members.objects(f"scatter_object_list from {root}", f)


def send_object_list(object_list: List[Any], dst: Optional[int] = None, group: Any = None, device: Any = None, group_dst: Optional[int] = None,
                     use_batch: bool = False) -> None:
    """Sends the objects to rank ``dst``, which calls ``recv_object_list``. ``device`` and ``use_batch`` are torch's, of no effect here."""
    if left_out("send_object_list", group):
        return
    members = group_of("send_object_list", group)
    _check_length("send_object_list", "object_list", object_list, len(object_list) if isinstance(object_list, list) else 0)
    data = pickle.dumps(object_list)
    head = make.tensor([len(object_list), len(data)], dtype=_C.int64, device=members.device)
    values = frombuffer(bytearray(data), dtype=_C.uint8).to(members.device)
    for t in (head, values):
        send(t, dst, group, group_dst=group_dst)


def recv_object_list(object_list: List[Any], src: Optional[int] = None, group: Any = None, device: Any = None, group_src: Optional[int] = None,
                     use_batch: bool = False) -> int:
    """The list becomes that of rank ``src``, or of any, which calls ``send_object_list``. Returns the sender's rank, or -1 where this process is not
    in the group. RuntimeError where the sender's list has another length. ``device`` and ``use_batch`` are of no effect."""
    what = "recv_object_list"
    if left_out(what, group):
        return -1
    members = group_of(what, group)
    _check_length(what, "object_list", object_list, len(object_list) if isinstance(object_list, list) else 0)
    head = make.empty(2, dtype=_C.int64, device=members.device)
    sender = recv(head, src, group, group_src=group_src)
    count, size = head.tolist()
    values = make.empty(size, dtype=_C.uint8, device=members.device)
    recv(values, sender, group)
    if count != len(object_list):
        raise RuntimeError(f"{what}: rank {sender} has sent {count} objects, and `object_list` has {len(object_list)} elements")
    object_list[:] = pickle.loads(values.cpu().numpy().tobytes())
    return sender
