"""Structures of plain objects as JSON. Lists, strings, numbers and dicts with string keys are themselves; everything else is an
object with its kind under '#'."""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict, defaultdict
from typing import Any, Callable, Dict, List, Set

from .. import _C
from .._C import Tensor
from .._device import Size, device
from ._tensors import Collection, Library


class NeedsPickle(Exception):
    """Says which class it is that has no place in JSON."""


def tensor(t: Tensor, tensors: Collection, path: str) -> Dict[str, Any]:
    from ..nn import Parameter

    if type(t) not in (Tensor, Parameter):
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
        return tensor(obj, tensors, path)
    if kind is bytes:
        return {"#": "bytes", "value": base64.b64encode(obj).decode("ascii")}
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
    within.add(id(obj))
    try:
        return _container(obj, kind, lambda part, key: _encode(part, tensors, f"{path}.{key}" if path else str(key), within))
    finally:
        within.discard(id(obj))


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


def decode(value: Any, library: Library) -> Any:
    """What `encode` was given."""
    if isinstance(value, list):
        return [decode(v, library) for v in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("#")
    if kind is None:
        return {k: decode(v, library) for k, v in value.items()}
    if kind == "tensor":
        return library.get(value)
    if kind not in _KINDS:
        raise RuntimeError(f"load: the file's structure has a {kind!r}, which this version of ampc does not know")
    return _KINDS[kind](value, library)


def _items(value: Dict[str, Any], library: Library) -> List[Any]:
    return [decode(v, library) for v in value["items"]]


def _ordered(value: Dict[str, Any], library: Library) -> Any:
    made: Any = OrderedDict(_items(value, library))
    if "metadata" in value:
        made._metadata = decode(value["metadata"], library)
    return made


def _default(value: Dict[str, Any], library: Library) -> Any:
    factory = {name: factory for factory, name in _FACTORIES.items()}[value["factory"]]
    return defaultdict(factory, _items(value, library))


def _plain_dtype(text: str) -> Any:
    """A NumPy dtype of numbers: anything else would take the file's bytes for addresses."""
    import numpy as np

    found = np.dtype(text) if isinstance(text, str) and len(text) <= 4 else None
    if found is None or found.kind not in "biuf":
        raise RuntimeError(f"load: the file is damaged: {text!r} is no dtype of numbers")
    return found


def _scalar(value: Dict[str, Any], library: Library) -> Any:
    import numpy as np

    return np.frombuffer(base64.b64decode(value["value"]), dtype=_plain_dtype(value["dtype"]))[0]


def _array(value: Dict[str, Any], library: Library) -> Any:
    return library.get(value["data"]).numpy().view(_plain_dtype(value["dtype"])).reshape(value["shape"])


_KINDS: Dict[str, Callable[[Dict[str, Any], Library], Any]] = {
    "float": lambda v, _: float(v["value"]), "complex": lambda v, _: complex(v["value"]), "bytes": lambda v, _: base64.b64decode(v["value"]),
    "dtype": lambda v, _: getattr(_C, v["value"]) if isinstance(getattr(_C, v["value"], None), _C.dtype) else None,
    "device": lambda v, _: device(v["value"]), "tuple": lambda v, library: tuple(_items(v, library)),
    "set": lambda v, library: set(_items(v, library)), "frozenset": lambda v, library: frozenset(_items(v, library)),
    "Size": lambda v, library: Size(_items(v, library)),
    "dict": lambda v, library: dict(_items(v, library)), "Counter": lambda v, library: Counter(dict(_items(v, library))),
    "OrderedDict": _ordered, "defaultdict": _default, "numpy scalar": _scalar, "numpy array": _array,
}
