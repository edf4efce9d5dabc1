"""Tensors as MPI takes them: their own memory where that is one row of values on the CPU, else a copy that is brought back."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

from .. import _C, _ops
from .._C import Tensor
from ..autograd.grad_mode import no_grad


def check_tensor(what: str, name: str, t: Any) -> Tensor:
    """The tensor without history. TypeError for what is no tensor; RuntimeError for one without values."""
    if not isinstance(t, Tensor):
        raise TypeError(f"{what}: `{name}` must be a Tensor, got {type(t).__name__}")
    if t.device.type == "meta":
        raise RuntimeError(f"{what}: `{name}` is on 'meta' and has no values")
    return t.detach()


def check_list(what: str, name: str, tensors: Any, size: int) -> List[Tensor]:
    """The tensors without history. ValueError for None; TypeError for other things; RuntimeError for another number than the group's size."""
    if tensors is None:
        raise ValueError(f"{what}: `{name}` must be given in this rank")
    if not isinstance(tensors, Sequence) or isinstance(tensors, str):
        raise TypeError(f"{what}: `{name}` must be a list of Tensors, got {type(tensors).__name__}")
    if len(tensors) != size:
        raise RuntimeError(f"{what}: `{name}` must have a tensor for each of the {size} ranks of the group, got {len(tensors)}")
    return [check_tensor(what, f"{name}[{i}]", t) for i, t in enumerate(tensors)]


def check_like(what: str, name: str, t: Tensor, like: Tensor, numel: int) -> None:
    """ValueError for another dtype than that of ``like``; RuntimeError for another number of elements."""
    if t.dtype != like.dtype or t.numel() != numel:
        kind = ValueError if t.dtype != like.dtype else RuntimeError
        raise kind(f"{what}: `{name}` must have {numel} elements of {like.dtype}, got {list(t.shape)} of {t.dtype}")


def row(t: Tensor) -> Tensor:
    """The tensor itself, or a copy that lies in one row on the CPU."""
    return (t if t.device.type == "cpu" else t.cpu()).contiguous()


def flat(tensors: List[Tensor]) -> Tensor:
    """All values of tensors of one dtype, in a row on their device."""
    return _ops.cat([t.contiguous().reshape(-1) for t in tensors])


def bring_back(t: Tensor, moved: Tensor) -> None:
    """``t`` has the values of ``moved``; where that is its own memory, the write is noted."""
    with no_grad():
        if t is not moved:
            _copy(t, moved.reshape(t.shape))
        else:
            _C._note_write(t, "distributed", False)


def _copy(t: Tensor, values: Tensor) -> None:
    """Elements that an expanded tensor shows several times are written once: they are equal."""
    for dim, (size, step) in enumerate(zip(t.shape, t.stride())):
        if step == 0 and size > 1:
            t, values = t.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
    t.copy_(values)


def spread(tensors: List[Tensor], moved: Tensor) -> None:
    """Each tensor takes its part of ``moved``."""
    begin = 0
    for t in tensors:
        bring_back(t, moved[begin:begin + t.numel()])
        begin += t.numel()


def placing(outs: List[Tensor], moved: Tensor) -> Callable[[], None]:
    """What brings ``moved`` into tensors of its parts, or into one tensor, whose own memory it may be."""
    if len(outs) == 1 and outs[0].numel() == moved.numel():
        return lambda: bring_back(outs[0], moved)
    return lambda: spread(outs, moved.view(-1))


def apart(given: Tensor, moved: Tensor, place: Optional[int] = None) -> Tensor:
    """``given``, or a copy where it lies in the memory of ``moved``, which is written while others read. The shorter of the two may be part
    ``place`` of the longer. Both lie in a row."""
    begin, to = _C._address(given), _C._address(moved)
    size, room = given.numel() * given.element_size(), moved.numel() * moved.element_size()
    if begin + size <= to or to + room <= begin:
        return given
    in_place = place is not None and (begin - to if size <= room else to - begin) == place * min(size, room)
    return given if in_place else given.clone()


def settled(t: Tensor) -> Tensor:
    """The tensor, whose memory holds its values: a factor that was left for later is multiplied in."""
    _C._settle(t)
    return t


def memory(MPI: Any, t: Tensor) -> Any:
    """The memory of a tensor that lies in a row on the CPU. Its writes are not noted, see ``bring_back``."""
    return MPI.memory.fromaddress(_C._address(settled(t)), t.numel() * t.element_size())
