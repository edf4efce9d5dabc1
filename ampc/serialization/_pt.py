"""torch's own files (a zip of a pickle and the bytes of each storage), read without unpickling.

The reader knows the few opcodes that state dicts are written with. Names in the pickle are only names here: none is imported,
nothing is called; what rebuilds a tensor is recognised and done by this file, after its numbers have been checked against the
bytes that are there. Sources: pickletools; torch.serialization's file layout (version 3); CVE-2025-32434 and CVE-2026-24747 are what
comes of less."""

from __future__ import annotations

import io
import pickle
import pickletools
import zipfile
from collections import Counter, OrderedDict, defaultdict
from typing import Any, Callable, Dict, List, Tuple

from .. import _C
from .._C import Tensor
from .._device import Size, device
from ._tensors import Placer, checked_view, from_bytes

STORAGES = {"DoubleStorage": _C.float64, "FloatStorage": _C.float32, "HalfStorage": _C.float16, "BFloat16Storage": _C.bfloat16,
            "LongStorage": _C.int64, "IntStorage": _C.int32, "ShortStorage": _C.int16, "CharStorage": _C.int8, "ByteStorage": _C.uint8,
            "BoolStorage": _C.bool, "UntypedStorage": _C.uint8}


def is_zip(data: bytes) -> bool:
    return data[:4] == b"PK\x03\x04"


def is_legacy(data: bytes) -> bool:
    return data[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04") or b"ustar" in data[250:270]


class _Archive:
    """The entries of a file, which must lie in it as they are."""

    def __init__(self, data: bytes, name: str, place: Placer) -> None:
        self.name, self.place = name, place
        try:
            self.zip = zipfile.ZipFile(io.BytesIO(data))
            found = [n for n in self.zip.namelist() if n == "data.pkl" or n.endswith("/data.pkl")]
        except zipfile.BadZipFile as error:
            raise RuntimeError(f"load: {name} is damaged: {error}") from error
        if not found:
            raise RuntimeError(f"load: {name} is a zip file without a data.pkl: a TorchScript module or something else, no state dict")
        self.root = found[0][:-len("data.pkl")]
        if self.root + "constants.pkl" in self.zip.namelist():
            raise RuntimeError(f"load: {name} holds a TorchScript module; load it with torch and save its state_dict")
        order = self.zip.read(self.root + "byteorder") if self.root + "byteorder" in self.zip.namelist() else b"little"
        if order != b"little":
            raise RuntimeError(f"load: {name} was written on a machine with another order of bytes")
        self.storages: Dict[str, Tensor] = {}

    def pickle(self) -> bytes:
        return self.read("data.pkl", None)

    def read(self, key: str, size: Any) -> bytes:
        """One entry, of `size` bytes: looked at before anything is allocated."""
        try:
            info = self.zip.getinfo(self.root + key)
        except KeyError:
            raise RuntimeError(f"load: {self.name} is damaged: there is no {key!r} in it") from None
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise RuntimeError(f"load: {self.name} is damaged: {key!r} is compressed, which torch never does")
        if size is not None and info.file_size != size:
            raise RuntimeError(f"load: {self.name} is damaged: {key!r} has {info.file_size} bytes, its tensors say {size}")
        return self.zip.read(info)

    def storage(self, reference: Any) -> Tensor:
        """The flat tensor that ('storage', type, key, location, elements) names."""
        if not (isinstance(reference, tuple) and len(reference) == 5 and reference[0] == "storage"):
            raise _refused(self.name, f"a reference to {reference!r}")
        _, kind, key, location, count = reference
        dtype = STORAGES.get(kind.name) if isinstance(kind, _Name) and kind.module in ("torch", "torch.storage") else None
        if dtype is None or not isinstance(key, str) or not isinstance(location, str) or type(count) is not int or count < 0:
            raise _refused(self.name, f"a storage of {kind!r}")
        if key not in self.storages:
            flat = from_bytes(bytearray(self.read("data/" + key, count * dtype.itemsize)), dtype, (count,))
            self.storages[key] = self.place(flat, location)
        return self.storages[key]


def _refused(name: str, what: str) -> pickle.UnpicklingError:
    return pickle.UnpicklingError(f"load: {name} holds {what}, which only unpickling brings back, and that runs whatever code the file asks for. If "
                                  "you trust where it came from, pass weights_only=False; better, save a state_dict")


class _Name:
    """A name that the pickle mentions."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}"

    def __repr__(self) -> str:
        return self.full


# -- what names may stand for ------------------------------------------------------------------------------------


def _tensor(flat: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False, hooks: Any = None, metadata: Any = None) -> Tensor:
    if not isinstance(flat, Tensor) or not isinstance(size, tuple) or not isinstance(stride, tuple):
        raise RuntimeError("load: the file is damaged: a tensor is not made of a storage and sizes")
    t = checked_view(flat, offset, size, stride)
    return t.requires_grad_() if requires_grad is True else t


def _parameter(data: Any, requires_grad: Any = True, hooks: Any = None) -> Tensor:
    from ..nn import Parameter

    if not isinstance(data, Tensor):
        raise RuntimeError("load: the file is damaged: a parameter is not made of a tensor")
    return Parameter(data.detach(), requires_grad=bool(requires_grad))


def _size(values: Any = ()) -> Size:
    return Size(values)


def _device(kind: Any, index: Any = None) -> device:
    return device(kind if index is None else f"{kind}:{int(index)}")


def _default(factory: Any = None) -> Any:
    kinds = {"builtins.dict": dict, "builtins.list": list, "builtins.int": int, "builtins.float": float, "builtins.set": set}
    if factory is not None and not (isinstance(factory, _Name) and factory.full.replace("__builtin__", "builtins") in kinds):
        raise RuntimeError(f"load: a defaultdict of {factory!r} cannot be read")
    return defaultdict(None if factory is None else kinds[factory.full.replace("__builtin__", "builtins")])


def _bytes(text: Any = "", encoding: Any = "latin1") -> bytes:
    return str(text).encode("latin1")


CALLS: Dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor_v2": _tensor, "torch._utils._rebuild_tensor": _tensor, "torch._utils._rebuild_parameter": _parameter,
    "collections.OrderedDict": lambda pairs=(): OrderedDict(pairs), "collections.Counter": lambda values=(): Counter(values),
    "collections.defaultdict": _default, "torch.Size": _size, "torch.device": _device, "_codecs.encode": _bytes,
    "builtins.set": lambda values=(): set(values), "__builtin__.set": lambda values=(): set(values),
    "builtins.frozenset": lambda values=(): frozenset(values), "builtins.complex": lambda re, im: complex(re, im),
}
DTYPES = {f"torch.{d.name}": d for d in STORAGES.values()}


class _Mark:
    pass


class _Reader:
    """A stack machine for the opcodes of state dicts."""

    def __init__(self, archive: _Archive) -> None:
        self.archive = archive
        self.stack: List[Any] = []
        self.memo: Dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        try:
            for op, arg, _ in pickletools.genops(data):
                if op.name == "STOP":
                    return self.top()
                self.step(op.name, arg)
        except (IndexError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise RuntimeError(f"load: {self.archive.name} is damaged: {type(error).__name__}: {error}") from error
        raise RuntimeError(f"load: {self.archive.name} is damaged: its pickle has no end")

    def top(self) -> Any:
        value = self.stack.pop()
        if isinstance(value, (_Mark, _Name)):
            raise _refused(self.archive.name, f"{value!r}")
        return value

    def since_mark(self) -> List[Any]:
        at = max(i for i, v in enumerate(self.stack) if isinstance(v, _Mark))
        values = self.stack[at + 1:]
        del self.stack[at:]
        return values

    def step(self, op: str, arg: Any) -> None:
        push = self.stack.append
        if op in ("PROTO", "FRAME"):
            return
        if op in _VALUES:
            push(arg)
        elif op in _NEW:
            push(_NEW[op]())
        elif op in ("BINPUT", "LONG_BINPUT", "PUT"):
            self.memo[int(arg)] = self.stack[-1]
        elif op == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif op in ("BINGET", "LONG_BINGET", "GET"):
            push(self.memo[int(arg)])
        elif op in _TUPLES:
            n = _TUPLES[op]
            values = tuple(self.stack[len(self.stack) - n:])
            if len(values) < n:
                raise IndexError("the stack is empty")
            del self.stack[len(self.stack) - n:]
            push(values)
        elif op == "TUPLE":
            push(tuple(self.since_mark()))
        elif op in ("LIST", "DICT"):
            values_ = self.since_mark()
            push(values_ if op == "LIST" else dict(zip(values_[::2], values_[1::2])))
        elif op in ("APPEND", "APPENDS"):
            more = [self.stack.pop()] if op == "APPEND" else self.since_mark()
            self.kind(list).extend(more)
        elif op in ("SETITEM", "SETITEMS"):
            pairs = [self.stack.pop(), self.stack.pop()][::-1] if op == "SETITEM" else self.since_mark()
            target = self.kind(dict)
            for key, value in zip(pairs[::2], pairs[1::2]):
                target[key] = value
        elif op == "ADDITEMS":
            added = self.since_mark()
            self.kind(set).update(added)
        elif op == "GLOBAL":
            push(self.named(*arg.split(" ", 1)))
        elif op == "STACK_GLOBAL":
            name, module = self.stack.pop(), self.stack.pop()
            push(self.named(str(module), str(name)))
        elif op == "BINPERSID":
            push(self.archive.storage(self.stack.pop()))
        elif op == "REDUCE":
            self.call()
        elif op == "BUILD":
            self.build()
        elif op == "POP":
            self.stack.pop()
        else:
            raise _refused(self.archive.name, f"a pickle with the opcode {op}")

    def kind(self, cls: type) -> Any:
        if not isinstance(self.stack[-1], cls):
            raise TypeError(f"expected a {cls.__name__}")
        return self.stack[-1]

    def named(self, module: str, name: str) -> Any:
        return DTYPES.get(f"{module}.{name}") or _Name(module, name)

    def call(self) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, _Name) or function.full not in CALLS:
            raise _refused(self.archive.name, f"an object made by {function!r}")
        if not isinstance(args, tuple):
            raise TypeError("arguments are no tuple")
        self.stack.append(CALLS[function.full](*args))

    def build(self) -> None:
        """The attributes of a state dict: its `_metadata`."""
        state, target = self.stack.pop(), self.stack[-1]
        if not isinstance(target, OrderedDict) or not isinstance(state, dict) or set(state) - {"_metadata"}:
            raise _refused(self.archive.name, f"a {type(target).__name__} with attributes of its own")
        if "_metadata" in state:
            target._metadata = state["_metadata"]  # type: ignore[attr-defined]


_VALUES = {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG", "FLOAT", "BINFLOAT",
           "UNICODE", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
_NEW: Dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": set, "MARK": _Mark,
                                      "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


# -- on request: all that a pickle can do -----------------------------------------------------------------------------


class _Trusting(pickle.Unpickler):
    """Unpickles, torch's classes as ampc's of the same name."""

    def __init__(self, archive: _Archive, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.archive = archive

    def persistent_load(self, reference: Tuple[Any, ...]) -> Tensor:
        return self.archive.storage(reference)

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full in CALLS and module.startswith("torch"):
            return CALLS[full]
        if full in DTYPES:
            return DTYPES[full]
        if name in STORAGES:
            return _Name(module, name)
        if module.split(".")[0] == "torch":
            module = "ampc" + module[len("torch"):]
        return super().find_class(module, name)


def read(data: bytes, place: Placer, trusted: bool, name: str) -> Any:
    archive = _Archive(data, name, place)
    code = archive.pickle()
    return _Trusting(archive, code).load() if trusted else _Reader(archive).run(code)
