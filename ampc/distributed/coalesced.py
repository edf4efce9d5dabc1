"""Collectives of several tensors in one call, which torch has deprecated."""

from __future__ import annotations

from typing import Any, List, Optional

from .._C import Tensor
from ..futures import Future
from ._memory import check_list, flat, spread
from .collectives import all_gather_into_tensor, all_reduce, left_out
from .groups import group_of
from .reductions import ReduceOp
from .work import Work


def _checked(what: str, name: str, tensors: Any) -> List[Tensor]:
    """Tensors of one dtype and device. ValueError for none of them, or several dtypes."""
    found = check_list(what, name, tensors, len(tensors) if isinstance(tensors, (list, tuple)) else 0)
    if not found:
        raise ValueError(f"{what}: `{name}` must have a tensor or more")
    if len({(t.dtype, t.device) for t in found}) > 1:
        raise ValueError(f"{what}: the tensors of `{name}` must have one dtype and device, got {[str(t.dtype) for t in found]}")
    return found


def _ends(work: Optional[Work], async_op: bool, finish: Any, result: Any) -> Any:
    """After the collective ``finish()`` brings the values back: now, or when the Future is waited for."""
    if not async_op:
        finish()
        return None
    assert work is not None
    left = [finish]

    def value() -> Any:
        work.wait()
        while left:
            left.pop()()
        return result

    return Future.of(value, work.is_completed)


def all_reduce_coalesced(tensors: List[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Optional[Future]:
    """All tensors of all processes reduced, in place, as one ``all_reduce``. With ``async_op`` it returns a Future of them, which has to be waited
    for. ValueError for tensors of several dtypes, or none."""
    what = "all_reduce_coalesced"
    if left_out(what, group):
        return None
    given = _checked(what, "tensors", tensors)
    row = flat(given)
    return _ends(all_reduce(row, op, group, async_op), async_op, lambda: spread(given, row), tensors)


def all_gather_coalesced(output_tensor_lists: List[List[Tensor]], input_tensor_list: List[Tensor], group: Any = None,
                         async_op: bool = False) -> Optional[Future]:
    """``output_tensor_lists[i][k]`` takes the values of rank i's ``input_tensor_list[k]``. With ``async_op`` it returns a Future, which has to be
    waited for. RuntimeError for outputs of other numbers of elements, ValueError for several dtypes, or no tensors."""
    what = "all_gather_coalesced"
    if left_out(what, group):
        return None
    members, given = group_of(what, group), _checked(what, "input_tensor_list", input_tensor_list)
    outs = output_tensor_lists
    if not isinstance(outs, (list, tuple)) or len(outs) != members.size():
        raise RuntimeError(f"{what}: `output_tensor_lists` must have a list for each of the {members.size()} ranks of the group")
    found = [check_list(what, f"output_tensor_lists[{i}]", each, len(given)) for i, each in enumerate(outs)]
    for i, each in enumerate(found):
        if [(t.numel(), t.dtype) for t in each] != [(t.numel(), t.dtype) for t in given]:
            raise RuntimeError(f"{what}: the tensors of `output_tensor_lists[{i}]` must have the elements and dtypes of `input_tensor_list`")
    row = flat(given)
    whole = row.new_empty(row.numel() * members.size())
    work = all_gather_into_tensor(whole, row, group, async_op)
    return _ends(work, async_op, lambda: spread([t for each in found for t in each], whole), outs)
