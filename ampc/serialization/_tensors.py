"""Tensors as bytes and back, and the device that they are loaded to."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import _C, _ops
from .._C import Tensor
from .._tensor import creation as make
from .._tensor.device import device
from .._tensor.storage import without_values
from ._bounds import brief

DTYPES = {"F64": _C.float64, "F32": _C.float32, "F16": _C.float16, "BF16": _C.bfloat16, "I64": _C.int64, "I32": _C.int32, "I16": _C.int16,
          "I8": _C.int8, "U8": _C.uint8, "BOOL": _C.bool}  # as safetensors calls them
DTYPE_OF = {d.name: d for d in DTYPES.values()}


def from_bytes(data: Any, dtype: Any, shape: Tuple[int, ...]) -> Tensor:
    """A tensor on memory that may be written; ``data`` has been checked to be as long as dtype and shape say."""
    if not len(data):
        return make.empty(shape, dtype=dtype)
    import numpy as np

    raw = np.frombuffer(data, dtype=np.uint8)
    return _C.from_numpy(truth_values(raw) if dtype is _C.bool else raw).view(dtype).view(shape)


def truth_values(raw: Any) -> Any:
    """Bytes of bools: 0 and 1, as nothing reckons with others."""
    return (raw != 0).view("uint8") if len(raw) and raw.max() > 1 else raw


class Mapper:
    """Brings loaded tensors to where ``map_location`` says."""

    def __init__(self, map_location: Any) -> None:
        self.where: Optional[Callable[[Tensor, str], Any]] = None
        self.failed: Optional[Exception] = None  # what the caller's function raised
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
        """Moves ``t`` from the CPU. ``name`` is the device that it was saved from."""
        try:
            found = None if self.where is None else self.where(t, name)
        except Exception as error:
            self.failed = error
            raise
        if isinstance(found, Tensor):
            return found
        if found is None:
            found = device(name)
            if found.type != "cpu" and (found.index or 0) >= _C._cuda_count():
                return t
        try:
            return t.to(found)
        except _C.NoGPU as error:
            raise RuntimeError(f"load: map_location asks to deserialize a tensor on the CUDA device '{found}', and cuda.is_available() is False; "
                               "pass map_location=\"cpu\"") from error


def check_reach(t: Tensor, path: str) -> None:
    """RuntimeError for a tensor whose storage was given fewer bytes than it reads."""
    if _C._storage_reach(t.itemsize, t.storage_offset(), t.shape, t.stride()) > t._storage_bytes():
        raise RuntimeError(f"save: the tensor at {path or 'the top'} reaches beyond its storage, which was resized to {t._storage_bytes()} bytes")


def whole_storage(t: Tensor) -> Tensor:
    """All bytes of a tensor's storage, on the CPU."""
    return _C._storage_tensor(t.untyped_storage(), _C.uint8, 0, (t._storage_bytes(),), (1,)).cpu()


class Collection:
    """The tensors of a structure that is saved. Each storage is saved once, as a whole."""

    def __init__(self) -> None:
        self.found: List[Tuple[Tensor, Dict[str, Any], str]] = []
        self.refs: Dict[int, Dict[str, Any]] = {}

    def __contains__(self, t: Tensor) -> bool:
        return id(t) in self.refs

    def add(self, t: Tensor, path: str) -> Dict[str, Any]:
        """What stands for ``t`` in the structure; filled in by `stored`. A tensor that is met again is to be one again."""
        if id(t) in self.refs:
            self.refs[id(t)].setdefault("same", len(self.refs))
            return self.refs[id(t)]
        check_reach(t, path)
        ref: Dict[str, Any] = {"#": "tensor"}
        self.refs[id(t)] = ref
        if t.device.type != "cpu":
            ref["device"] = str(t.device)
        if t.requires_grad:
            ref["grad"] = True
        if t.is_meta:
            ref.update(dtype=t.dtype.name, shape=list(t.shape), stride=list(t.stride()))
            return ref
        self.found.append((t, ref, path))
        return ref

    def stored(self) -> Dict[str, Tensor]:
        """Name and values (contiguous, on the CPU) of all that is to be written."""
        groups: Dict[Any, List[Tuple[Tensor, Dict[str, Any], str]]] = {}
        for item in self.found:
            t = item[0]
            size = t._storage_bytes()
            key: Any = (t._storage_ptr(), size, str(t.device)) if size else id(item[1])
            groups.setdefault(key, []).append(item)
        named: Dict[str, Tensor] = {}
        for group in groups.values():
            name = _unused(named, group[0][2])
            named[name] = self._alone(group, name) if all(_is_whole(t) for t, _, _ in group) else self._together(group, name)
        return named

    def _alone(self, group: List[Tuple[Tensor, Dict[str, Any], str]], name: str) -> Tensor:
        for _, ref, _ in group:
            ref["name"] = name
        return group[0][0].detach().cpu()

    def _together(self, group: List[Tuple[Tensor, Dict[str, Any], str]], name: str) -> Tensor:
        """The whole storage as a flat tensor: of bytes where it has been viewed in several dtypes."""
        finest = min((t for t, _, _ in group), key=lambda t: t.element_size()).detach()
        flat = _ops.as_strided(finest, (finest._storage_bytes() // finest.element_size(),), (1,), 0)
        mixed = len({t.dtype for t, _, _ in group}) > 1
        for t, ref, _ in group:
            ref.update(name=name, offset=t.storage_offset(), shape=list(t.shape), stride=list(t.stride()))
            if mixed:
                ref["dtype"] = t.dtype.name
        return (flat.view(_C.uint8) if mixed else flat).cpu()


def _is_whole(t: Tensor) -> bool:
    """Whether a tensor is its whole storage, in order."""
    return t.is_contiguous() and t.numel() * t.element_size() == t._storage_bytes()


def _unused(named: Dict[str, Tensor], path: str) -> str:
    name, n = path or "tensor", 1
    while name in named:
        n += 1
        name = f"{path or 'tensor'}.{n}"
    return name


class Library:
    """The tensors of a file by name, from which the references of a structure are resolved."""

    def __init__(self, named: Dict[str, Tensor], mapper: Mapper) -> None:
        self.named, self.mapper = named, mapper
        self.placed: Dict[Tuple[str, str], Tensor] = {}
        self.made: Dict[int, Tensor] = {}

    def get(self, ref: Dict[str, Any]) -> Tensor:
        """The tensor of a reference; the same one for references that say so."""
        if "same" not in ref:
            return self._made(ref)
        if ref["same"] not in self.made:
            self.made[ref["same"]] = self._made(ref)
        return self.made[ref["same"]]

    def _made(self, ref: Dict[str, Any]) -> Tensor:
        from ..nn import Parameter

        t = self._placed(ref) if "name" in ref else without_values(DTYPE_OF[ref["dtype"]], ref["shape"], ref["stride"])
        if ref.get("kind") == "parameter":
            return Parameter(t, requires_grad=ref.get("grad", False))
        return t.requires_grad_() if ref.get("grad") else t

    def _placed(self, ref: Dict[str, Any]) -> Tensor:
        where, name = ref.get("device", "cpu"), ref["name"]
        if name not in self.named:
            raise RuntimeError(f"load: the file's structure names a tensor {brief(name)} that is not in it")
        if (name, where) not in self.placed:
            self.placed[name, where] = self.mapper(self.named[name], where)
        t = self.placed[name, where]
        if "dtype" in ref:
            t = in_dtype(t, ref)
        elif "stride" in ref:
            t = checked_view(t, ref["offset"], ref["shape"], ref["stride"])
        elif ref.get("kind") == "parameter" or ref.get("grad"):
            t = t.detach()
        return t


def in_dtype(flat: Tensor, ref: Dict[str, Any]) -> Tensor:
    """A view of a flat tensor of bytes as another dtype."""
    dtype = DTYPE_OF[ref["dtype"]]
    if flat.dtype is not _C.uint8:
        raise RuntimeError(f"load: the file is damaged: bytes are to be {dtype}, and are {flat.dtype}")
    t = checked_view(flat[:flat.numel() // dtype.itemsize * dtype.itemsize].view(dtype), ref["offset"], ref["shape"], ref["stride"])
    if dtype is _C.bool and t.numel() and int(flat[ref["offset"]:_end(ref["offset"], ref["shape"], ref["stride"])].max()) > 1:
        raise RuntimeError("load: the file is damaged: a bool is neither 0 nor 1")
    return t


def _end(offset: int, shape: Any, stride: Any) -> int:
    """One past the last element that a view with elements reaches."""
    return offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride))


def checked_view(flat: Tensor, offset: Any, shape: Any, stride: Any) -> Tensor:
    """A view of a flat tensor that reaches no further than it. RuntimeError for numbers that do not fit."""
    good = len(shape) == len(stride) and all(type(n) is int and 0 <= n < 2**63 for n in (offset, *shape, *stride))
    if good:
        good = math.prod(shape) * flat.element_size() < 2**63
    if good and all(shape):
        good = _end(offset, shape, stride) <= flat.numel()
    if not good:
        raise RuntimeError(f"load: the file is damaged: a tensor of {len(shape)} sizes that does not fit the {flat.numel()} values of its storage")
    return _ops.as_strided(flat, tuple(shape), tuple(stride), offset)
