"""Tensors as bytes and back, and where they go."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import _C
from .. import _creation as make
from .._C import Tensor
from .._device import device

DTYPES = {"F64": _C.float64, "F32": _C.float32, "F16": _C.float16, "BF16": _C.bfloat16, "I64": _C.int64, "I32": _C.int32, "I16": _C.int16,
          "I8": _C.int8, "U8": _C.uint8, "BOOL": _C.bool}  # as safetensors calls them


def from_bytes(data: Any, dtype: Any, shape: Tuple[int, ...]) -> Tensor:
    """A tensor on memory that may be written; ``data`` has been checked to be as long as dtype and shape say."""
    if not len(data):
        return make.empty(shape, dtype=dtype)
    import numpy as np

    return _C.from_numpy(np.frombuffer(data, dtype=np.uint8)).view(dtype).view(shape)


class Placer:
    """Brings loaded tensors to where ``map_location`` says."""

    def __init__(self, map_location: Any) -> None:
        self.where: Optional[Callable[[Tensor, str], Any]] = None
        if map_location is None:
            return
        if isinstance(map_location, dict):
            names = {str(k): v for k, v in map_location.items()}
            self.where = lambda t, name: names.get(name)
        elif callable(map_location):
            self.where = map_location
        else:
            to = device(map_location)
            self.where = lambda t, name: to

    def __call__(self, t: Tensor, name: str) -> Tensor:
        """``t`` lies on the CPU, ``name`` is where it was saved from."""
        found = None if self.where is None else self.where(t, name)
        if isinstance(found, Tensor):
            return found
        if found is None:
            found = device(name)
            if found.type != "cpu" and (found.index or 0) >= _C._cuda_count():
                return t
        return t.to(found)


class Collection:
    """The tensors of a structure, each memory once."""

    def __init__(self) -> None:
        self.found: List[Tuple[Tensor, Dict[str, Any], str]] = []

    def add(self, t: Tensor, path: str) -> Dict[str, Any]:
        """What stands for ``t`` in the structure; filled in by `stored`."""
        ref: Dict[str, Any] = {"#": "tensor"}
        if t.device.type != "cpu":
            ref["device"] = str(t.device)
        if t.requires_grad:
            ref["grad"] = True
        self.found.append((t, ref, path))
        return ref

    def stored(self) -> Dict[str, Tensor]:
        """Name and values (contiguous, on the CPU) of all that is to be written."""
        groups: Dict[Any, List[Tuple[Tensor, Dict[str, Any], str]]] = {}
        for item in self.found:
            t = item[0]
            key: Any = (t._storage_ptr(), t.dtype, str(t.device)) if t.numel() else id(item[1])
            groups.setdefault(key, []).append(item)
        named: Dict[str, Tensor] = {}
        for group in groups.values():
            name = _unused(named, group[0][2])
            views = {(t.storage_offset(), tuple(t.shape), tuple(t.stride())) for t, _, _ in group}
            named[name] = self._alone(group, name) if len(views) == 1 else self._together(group, name)
        return named

    def _alone(self, group: List[Tuple[Tensor, Dict[str, Any], str]], name: str) -> Tensor:
        t = group[0][0].detach()
        if not t.is_contiguous() and _span(t)[1] - _span(t)[0] == t.numel():  # dense, in another order
            return self._together(group, name)
        for _, ref, _ in group:
            ref["name"] = name
        return t.cpu().contiguous()

    def _together(self, group: List[Tuple[Tensor, Dict[str, Any], str]], name: str) -> Tensor:
        spans = [_span(t) for t, _, _ in group]
        first, end = min(s[0] for s in spans), max(s[1] for s in spans)
        for t, ref, _ in group:
            ref.update(name=name, offset=t.storage_offset() - first, shape=list(t.shape), stride=list(t.stride()))
        return _C._functions["as_strided"](group[0][0].detach(), (end - first,), (1,), first).cpu().contiguous()


def _span(t: Tensor) -> Tuple[int, int]:
    """The elements of its storage that a tensor reaches: the first, and one past the last."""
    return t.storage_offset(), t.storage_offset() + 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))


def _unused(named: Dict[str, Tensor], path: str) -> str:
    name, n = path or "tensor", 1
    while name in named:
        n += 1
        name = f"{path or 'tensor'}.{n}"
    return name


class Library:
    """The tensors of a file by name, made into what a structure's references say."""

    def __init__(self, named: Dict[str, Tensor], place: Placer) -> None:
        self.named, self.place = named, place
        self.placed: Dict[Tuple[str, str], Tensor] = {}

    def get(self, ref: Dict[str, Any]) -> Tensor:
        from ..nn import Parameter

        where, name = ref.get("device", "cpu"), ref["name"]
        if name not in self.named:
            raise RuntimeError(f"load: the file's structure names a tensor {name!r} that is not in it")
        if (name, where) not in self.placed:
            self.placed[name, where] = self.place(self.named[name], where)
        t = self.placed[name, where]
        if "stride" in ref:
            t = checked_view(t, ref["offset"], ref["shape"], ref["stride"])
        elif ref.get("kind") == "parameter" or ref.get("grad"):
            t = t.detach()
        if ref.get("kind") == "parameter":
            return Parameter(t, requires_grad=ref.get("grad", False))
        return t.requires_grad_() if ref.get("grad") else t


def checked_view(flat: Tensor, offset: int, shape: Any, stride: Any) -> Tensor:
    """A view of a flat tensor that reaches no further than it. RuntimeError for numbers that do not fit."""
    good = len(shape) == len(stride) and all(isinstance(n, int) and n >= 0 for n in (offset, *shape, *stride))
    if good and all(shape):
        good = offset + sum((n - 1) * s for n, s in zip(shape, stride)) < flat.numel()
    if not good:
        raise RuntimeError(f"load: the file is damaged: a tensor of shape {list(shape)}, strides {list(stride)}, at {offset} of {flat.numel()} "
                           "values")
    return _C._functions["as_strided"](flat, tuple(shape), tuple(stride), offset)

