"""Structures of plain objects as JSON. Lists, strings, numbers and dicts with string keys are themselves; everything else is an
object with its kind under '#'."""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict, defaultdict
from typing import Any, Callable, Dict, List, Set

from .. import _C
from .._C import Tensor
from .._tensor.device import Size, device
from .._tensor.storage import UntypedStorage
from ..storage import TypedStorage
from ._bounds import DEPTH, brief, checked_keys, checked_pairs
from ._tensors import Collection, Library, truth_values


class NeedsPickle(Exception):
    """Raised for an object that JSON cannot hold; names its class."""


def reference(t: Tensor, tensors: Collection, path: str) -> Dict[str, Any]:
    """What stands for a tensor, without its attributes."""
    from ..nn import Parameter

    if type(t) not in (Tensor, Parameter):
        if hasattr(type(t), "device_mesh"):  # a part of a tensor, which says so
            t.__reduce_ex__(2)
        raise NeedsPickle(f"a tensor of class {type(t).__name__}")
    ref = tensors.add(t, path)
    if type(t) is Parameter:
        ref["kind"] = "parameter"
    return ref


def encode(obj: Any, tensors: Collection) -> Any:
    """``obj`` as JSON, its tensors in ``tensors``. NeedsPickle for other objects; ValueError for what contains itself."""
    return _encode(obj, tensors, "", set())


def _encode(obj: Any, tensors: Collection, path: str, within: Set[int]) -> Any:
    kind = type(obj)
    if obj is None or kind in (bool, str, int):
        return obj
    if kind is float:
        return obj if math.isfinite(obj) else {"#": "float", "value": repr(obj)}
    if isinstance(obj, Tensor):
        return _tensor(obj, tensors, path, within)
    if kind in (bytes, bytearray):
        return {"#": kind.__name__, "value": base64.b64encode(obj).decode("ascii")}
    if kind in (UntypedStorage, TypedStorage):
        return _storage(obj, tensors, path)
    if kind is complex:
        return {"#": "complex", "value": repr(obj)}
    if isinstance(obj, _C.dtype):
        return {"#": "dtype", "value": obj.name}
    if isinstance(obj, device):
        return {"#": "device", "value": str(obj)}
    if kind.__module__ == "numpy":
        return _numpy(obj, tensors, path)
    if id(obj) in within:
        raise ValueError(f"save: the structure contains itself at {path or 'its top'}")
    if len(within) == DEPTH:
        raise ValueError(f"save: at most {DEPTH} containers within each other can be saved, found more at {path}")
    within.add(id(obj))
    try:
        return _container(obj, kind, lambda part, key: _encode(part, tensors, f"{path}.{key}" if path else str(key), within))
    finally:
        within.discard(id(obj))


def _tensor(t: Tensor, tensors: Collection, path: str, within: Set[int]) -> Dict[str, Any]:
    """A tensor; with its attributes where it is met first."""
    is_new = t not in tensors
    ref = reference(t, tensors, path)
    if not is_new or not t.__dict__:
        return ref
    return {"#": "described", "tensor": ref, "attributes": _encode(t.__dict__, tensors, f"{path}.__dict__", within)}


def _storage(obj: Any, tensors: Collection, path: str) -> Dict[str, Any]:
    """A storage: a tensor of its bytes, and the dtype that it is read as."""
    s = obj.untyped()
    made = {"#": "storage", "data": tensors.add(_C._storage_tensor(s, _C.uint8, 0, (s.nbytes(),), (1,)), path)}
    return {**made, "dtype": obj.dtype.name} if isinstance(obj, TypedStorage) else made


def _container(obj: Any, kind: type, part: Callable[[Any, Any], Any]) -> Any:
    def items(values: Any) -> List[Any]:
        return [part(v, i) for i, v in enumerate(values)]

    def pairs() -> List[Any]:
        return [[part(k, "key"), part(v, k)] for k, v in obj.items()]

    if kind is list:
        return items(obj)
    if kind is dict and all(type(k) is str and k != "#" for k in obj):
        return {k: part(v, k) for k, v in obj.items()}
    if kind is dict or kind is Counter:
        return {"#": kind.__name__, "items": pairs()}
    if kind is OrderedDict:
        more = {"metadata": part(obj._metadata, "metadata")} if hasattr(obj, "_metadata") else {}
        return {"#": "OrderedDict", "items": pairs(), **more}
    if kind is defaultdict and obj.default_factory in _FACTORIES:
        return {"#": "defaultdict", "factory": _FACTORIES[obj.default_factory], "items": pairs()}
    if kind in (tuple, set, frozenset, Size):
        return {"#": kind.__name__, "items": items(obj)}
    raise NeedsPickle(f"an object of class {kind.__module__}.{kind.__qualname__}")


_FACTORIES = {None: "", dict: "dict", list: "list", int: "int", float: "float", set: "set"}


def _numpy(obj: Any, tensors: Collection, path: str) -> Any:
    import numpy as np

    if isinstance(obj, np.generic) and obj.dtype.kind in "biuf":
        return {"#": "numpy scalar", "dtype": obj.dtype.str, "value": base64.b64encode(obj.tobytes()).decode("ascii")}
    if type(obj) is np.ndarray and obj.dtype.kind in "biuf":
        values = _C.from_numpy(np.frombuffer(bytearray(obj.tobytes()), np.uint8) if obj.size else np.empty(0, np.uint8))
        return {"#": "numpy array", "dtype": obj.dtype.str, "shape": list(obj.shape), "data": tensors.add(values, path)}
    raise NeedsPickle(f"an object of class numpy.{type(obj).__name__}")


def decode(value: Any, library: Library, depth: int = 0) -> Any:
    """The inverse of `encode`. ``depth`` is the number of containers around the value; the pairs of a dict count, too."""
    if not isinstance(value, (dict, list)):
        return value
    if depth > 2 * DEPTH:
        raise RuntimeError(f"load: the file is damaged: more than {DEPTH} containers within each other")
    if isinstance(value, list):
        return [decode(v, library, depth + 1) for v in value]
    kind = value.get("#")
    if kind is None:
        return {k: decode(v, library, depth + 1) for k, v in value.items()}
    if kind == "tensor":
        return library.get(value)
    if kind == "described":
        t = library.get(_checked(dict, value["tensor"]))
        t.__dict__.update({_checked(str, k): v for k, v in decode(value["attributes"], library, depth + 1).items()})
        return t
    if isinstance(kind, str) and kind in _CONTAINERS:
        made = _CONTAINERS[kind](value, [decode(v, library, depth + 1) for v in _checked(list, value["items"])])
        if kind == "OrderedDict" and "metadata" in value:
            made._metadata = decode(value["metadata"], library, depth + 1)
        return made
    if isinstance(kind, str) and kind in _LEAVES:
        return _LEAVES[kind](value, library)
    raise RuntimeError(f"load: the file's structure has {brief(kind)}, which this version of ampc does not know")


def _checked(cls: type, value: Any) -> Any:
    if type(value) is not cls:
        raise TypeError(f"expected a {cls.__name__}, found {brief(value)}")
    return value


def _stored(value: Dict[str, Any], library: Library) -> Any:
    s = library.get(_checked(dict, value["data"])).untyped_storage()
    return TypedStorage(wrap_storage=s, dtype=_dtype({"value": value["dtype"]}, library)) if "dtype" in value else s


def _dtype(value: Dict[str, Any], library: Library) -> Any:
    found = getattr(_C, _checked(str, value["value"]), None)
    if not isinstance(found, _C.dtype):
        raise TypeError(f"{brief(value['value'])} is no dtype")
    return found


def _numbers(text: Any) -> Any:
    """A NumPy dtype of numbers: anything else would take the file's bytes for addresses."""
    import numpy as np

    found = np.dtype(text) if isinstance(text, str) and len(text) <= 4 else None
    if found is None or found.kind not in "biuf":
        raise TypeError(f"{brief(text)} is no dtype of numbers")
    return found


def _scalar(value: Dict[str, Any], library: Library) -> Any:
    import numpy as np

    dtype, raw = _numbers(value["dtype"]), base64.b64decode(value["value"])
    if len(raw) != dtype.itemsize:
        raise ValueError(f"{len(raw)} bytes for a {dtype}")
    return np.frombuffer(truth_values(np.frombuffer(raw, np.uint8)) if dtype.kind == "b" else raw, dtype=dtype)[0]


def _array(value: Dict[str, Any], library: Library) -> Any:
    """An array, whose bytes are a tensor of their own."""
    dtype, ref, shape = _numbers(value["dtype"]), value["data"], _checked(list, value["shape"])
    if "stride" in ref or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("the numbers of an array do not fit")
    raw = library.get({"name": ref["name"]}).numpy()
    return (truth_values(raw) if dtype.kind == "b" else raw).view(dtype).reshape(shape)


def _size(value: Dict[str, Any], items: List[Any]) -> Any:
    return Size([_checked(int, n) for n in items])


def _default(value: Dict[str, Any], items: List[Any]) -> Any:
    factory = {name: factory for factory, name in _FACTORIES.items()}[value["factory"]]
    return defaultdict(factory, checked_pairs(items))


_CONTAINERS: Dict[str, Callable[[Dict[str, Any], List[Any]], Any]] = {
    "tuple": lambda _, items: tuple(items), "set": lambda _, items: set(checked_keys(items)), "Size": _size,
    "frozenset": lambda _, items: frozenset(checked_keys(items)), "dict": lambda _, items: dict(checked_pairs(items)),
    "Counter": lambda _, items: Counter(dict(checked_pairs(items))),
    "OrderedDict": lambda _, items: OrderedDict(checked_pairs(items)),
    "defaultdict": _default,
}
_LEAVES: Dict[str, Callable[[Dict[str, Any], Library], Any]] = {
    "float": lambda v, _: float(_checked(str, v["value"])), "complex": lambda v, _: complex(_checked(str, v["value"])),
    "bytes": lambda v, _: base64.b64decode(v["value"]), "bytearray": lambda v, _: bytearray(base64.b64decode(v["value"])), "storage": _stored,
    "dtype": _dtype, "device": lambda v, _: device(_checked(str, v["value"])),
    "numpy scalar": _scalar, "numpy array": _array,
}
