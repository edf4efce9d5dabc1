"""torch's own files, written so that ``torch.load(weights_only=True)`` reads them.

The opcodes are written here, one kind of value after the other, and no object is asked how it wants to be pickled. What torch's reader
refuses is refused here, by its place in the structure. The layout is that of torch.serialization, version 3: a zip whose entries are not
compressed and begin at multiples of 64 bytes."""

from __future__ import annotations

import ctypes
import io
import struct
import zipfile
from collections import Counter, OrderedDict
from typing import Any, Callable, Dict, List, Tuple

from .. import _C
from .._C import Tensor
from .._tensor.device import Size, device
from ._bounds import DEPTH
from ._pt import STORAGES
from ._tensors import check_reach, whole_storage

_NAMES = {dtype: name for name, dtype in STORAGES.items() if name != "UntypedStorage"}
_ALIGNMENT = 64
_LARGE = 2**30  # bytes from which on an entry's size has a field of its own
_ENTRY, _ZIP64 = 30, 20  # bytes of an entry's own header, and of the field that a large one has
_HINTS = {"numpy": "save a number's .item(), or a tensor of an array", "defaultdict": "save dict(d)", "frozenset": "save set(s)",
          "Module": "save its state_dict()"}


class _Storage:
    """A storage of the file: how its tensors see it."""

    def __init__(self, number: int, t: Tensor) -> None:
        self.key, self.tensor, self.dtypes = str(number), t, {t.dtype}
        self.location = str(t.device)

    def kind(self) -> Tuple[str, str, int]:
        """Module and name of the class that the pickle names, and the number of its elements."""
        dtype = next(iter(self.dtypes))
        if len(self.dtypes) > 1:
            return "torch.storage", "UntypedStorage", self.tensor._storage_bytes()
        return "torch", _NAMES[dtype], self.tensor._storage_bytes() // dtype.itemsize

    def size(self) -> int:
        """Its bytes in the file: whole elements."""
        return self.kind()[2] * (1 if len(self.dtypes) > 1 else next(iter(self.dtypes)).itemsize)

    def write(self, file: Any) -> None:
        flat, size = whole_storage(self.tensor), self.size()
        if size:
            file.write(memoryview((ctypes.c_char * size).from_address(flat.data_ptr())))


class _Pickle:
    """Writes one structure: protocol 2, as torch does."""

    def __init__(self, storages: Dict[Any, _Storage], writers: Dict[type, Callable[[_Pickle, Any, str], None]]) -> None:
        self.out = bytearray(b"\x80\x02")
        self.storages, self.writers = storages, writers
        self.memo: Dict[Any, int] = {}
        self.kept: List[Any] = []  # so that an id in the memo stays its object's
        self.within: List[int] = []

    def __call__(self, value: Any, path: str) -> None:
        write = self.writers.get(type(value))
        if write is None and isinstance(value, _C.dtype):
            self.name("torch", value.name)
        elif write is None:
            raise _refused(value, path)
        elif type(value) in _PLAIN:
            write(self, value, path)
        elif ("id", id(value)) in self.memo and id(value) not in self.within:
            self.recall(("id", id(value)))
        else:
            self.nested(write, value, path)

    def nested(self, write: Callable[[_Pickle, Any, str], None], value: Any, path: str) -> None:
        if id(value) in self.within:
            raise ValueError(f"save: the structure contains itself at {path or 'its top'}")
        if len(self.within) == DEPTH:
            raise ValueError(f"save: at most {DEPTH} containers within each other can be saved, found more at {path}")
        self.kept.append(value)
        self.within.append(id(value))
        write(self, value, path)
        self.within.pop()
        if ("id", id(value)) not in self.memo:
            self.keep(("id", id(value)))

    # -- words of the pickle ----------------------------------------------------------------------------------

    def keep(self, key: Any) -> None:
        """Remembers what was written last."""
        n = self.memo[key] = len(self.memo)
        self.out += b"q" + bytes([n]) if n < 256 else b"r" + struct.pack("<I", n)

    def recall(self, key: Any) -> None:
        n = self.memo[key]
        self.out += b"h" + bytes([n]) if n < 256 else b"j" + struct.pack("<I", n)

    def name(self, module: str, name: str) -> None:
        if ("name", module, name) in self.memo:
            return self.recall(("name", module, name))
        self.out += f"c{module}\n{name}\n".encode("ascii")
        self.keep(("name", module, name))

    def text(self, value: str) -> None:
        if ("text", value) in self.memo:
            return self.recall(("text", value))
        data = value.encode("utf-8", "surrogatepass")
        if len(data) >= 2**32:
            raise ValueError("save: torch's files hold strings and bytes of less than 4 GiB; make a uint8 tensor of larger ones")
        self.out += b"X" + struct.pack("<I", len(data)) + data
        self.keep(("text", value))

    def integer(self, value: int, path: str = "") -> None:
        if 0 <= value < 256:
            self.out += b"K" + bytes([value])
        elif 0 <= value < 65536:
            self.out += b"M" + struct.pack("<H", value)
        elif -2**31 <= value < 2**31:
            self.out += b"J" + struct.pack("<i", value)
        else:
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            if len(data) > 255:
                raise TypeError(f"save: the int at {path or 'the top'} has {value.bit_length()} bits, and torch's files hold at most 2039")
            self.out += b"\x8a" + bytes([len(data)]) + data

    def integers(self, values: Any) -> None:
        self.out += b"("
        for value in values:
            self.integer(value)
        self.out += b"t"

    # -- tensors ----------------------------------------------------------------------------------------------

    def storage_of(self, t: Tensor) -> _Storage:
        """The storage of the file for a tensor, which it is noted with."""
        size = t._storage_bytes()
        key = (t._storage_ptr(), size, str(t.device)) if size else ("empty", t.dtype, str(t.device))
        if key not in self.storages:
            self.storages[key] = _Storage(len(self.storages), t)
        self.storages[key].dtypes.add(t.dtype)
        return self.storages[key]

    def reference(self, s: _Storage) -> None:
        module, name, count = s.kind()
        self.out += b"("
        self.text("storage")
        self.name(module, name)
        self.text(s.key)
        self.text(s.location)
        self.integer(count)
        self.out += b"tQ"

    def tensor(self, t: Tensor, path: str) -> None:
        if t.is_meta:
            return self.tensor_without_values(t)
        check_reach(t, path)
        s = self.storage_of(t)
        as_bytes = len(s.dtypes) > 1
        self.name("torch._utils", "_rebuild_tensor_v3" if as_bytes else "_rebuild_tensor_v2")
        self.out += b"("
        self.reference(s)
        self.integer(t.storage_offset())
        self.integers(t.shape)
        self.integers(t.stride())
        self.out += b"\x88" if t.requires_grad else b"\x89"
        self.no_hooks()
        if as_bytes:
            self.name("torch", t.dtype.name)
        self.out += b"tR"

    def tensor_without_values(self, t: Tensor) -> None:
        self.name("torch._utils", "_rebuild_meta_tensor_no_storage")
        self.out += b"("
        self.name("torch", t.dtype.name)
        self.integers(t.shape)
        self.integers(t.stride())
        self.out += b"\x88tR" if t.requires_grad else b"\x89tR"

    def parameter(self, p: Tensor, path: str) -> None:
        self.name("torch._utils", "_rebuild_parameter")
        self.out += b"("
        self.tensor(p.detach(), path)
        self.out += b"\x88" if p.requires_grad else b"\x89"
        self.no_hooks()
        self.out += b"tR"

    def no_hooks(self) -> None:
        self.name("collections", "OrderedDict")
        self.out += b")R"

    # -- containers and others --------------------------------------------------------------------------------

    def parts(self, values: Any, path: str) -> None:
        for i, value in enumerate(values):
            self(value, f"{path}.{i}" if path else str(i))

    def sequence(self, value: Any, path: str) -> None:
        self.out += b"]"
        self.keep(("id", id(value)))
        if value:
            self.out += b"("
            self.parts(value, path)
            self.out += b"e"

    def tuple(self, value: Any, path: str) -> None:
        if value:
            self.out += b"("
            self.parts(value, path)
            self.out += b"t"
        else:
            self.out += b")"

    def made_of_list(self, module: str, name: str, value: Any, path: str) -> None:
        """An object that a call with one list makes."""
        self.name(module, name)
        self.out += b"]"
        if value:
            self.out += b"("
            self.parts(value, path)
            self.out += b"e"
        self.out += b"\x85R"

    def items(self, value: Any, path: str) -> None:
        if not value:
            return
        self.out += b"("
        for key, one in value.items():
            at = f"{path}.{key}" if path else str(key)
            self(key, f"the key {at}")
            self(one, at)
        self.out += b"u"

    def dict(self, value: Any, path: str) -> None:
        self.out += b"}"
        self.keep(("id", id(value)))
        self.items(value, path)

    def ordered_dict(self, value: Any, path: str) -> None:
        self.no_hooks()
        self.keep(("id", id(value)))
        self.items(value, path)
        if hasattr(value, "_metadata"):
            self.out += b"}"
            self.text("_metadata")
            self(value._metadata, f"{path}._metadata" if path else "_metadata")
            self.out += b"sb"

    def counter(self, value: Any, path: str) -> None:
        self.name("collections", "Counter")
        self.out += b"}"
        self.items(value, path)
        self.out += b"\x85R"

    def size(self, value: Any, path: str) -> None:
        self.name("torch", "Size")
        self.integers(value)
        self.out += b"\x85R"

    def device(self, value: Any, path: str) -> None:
        self.name("torch", "device")
        self.text(value.type)
        if value.index is None:
            self.out += b"\x85R"
        else:
            self.integer(value.index)
            self.out += b"\x86R"

    def bytes(self, value: Any, path: str) -> None:
        self.name("_codecs", "encode")
        self.text(value.decode("latin1"))
        self.text("latin1")
        self.out += b"\x86R"

    def floating(self, value: float) -> None:
        self.out += b"G" + struct.pack(">d", value)

    def complex(self, value: Any, path: str) -> None:
        self.name("builtins", "complex")
        self.floating(value.real)
        self.floating(value.imag)
        self.out += b"\x86R"


def _constant(code: bytes) -> Callable[[_Pickle, Any, str], None]:
    def write(pickle: _Pickle, value: Any, path: str) -> None:
        pickle.out += code

    return write


def _writers() -> Dict[type, Callable[[_Pickle, Any, str], None]]:
    from ..nn.parameter import Buffer, Parameter

    return {
        type(None): _constant(b"N"), bool: lambda p, v, path: p.out.extend(b"\x88" if v else b"\x89"), int: _Pickle.integer,
        float: lambda p, v, path: p.floating(v), str: lambda p, v, path: p.text(v), complex: _Pickle.complex, bytes: _Pickle.bytes,
        Tensor: _Pickle.tensor, Buffer: _Pickle.tensor, Parameter: _Pickle.parameter,
        list: _Pickle.sequence, tuple: _Pickle.tuple, dict: _Pickle.dict,
        OrderedDict: _Pickle.ordered_dict, Counter: _Pickle.counter, Size: _Pickle.size, device: _Pickle.device,
        set: lambda p, v, path: p.made_of_list("builtins", "set", v, path),
    }


_PLAIN = {type(None), bool, int, float, str}  # written again wherever they stand


def _refused(value: Any, path: str) -> TypeError:
    kind = type(value)
    words = {kind.__module__.split(".")[0], *(base.__name__ for base in kind.__mro__)}
    hint = next((text for word, text in _HINTS.items() if word in words),
                "save tensors, numbers, strings, bytes, and lists, tuples, sets and dicts of them")
    return TypeError(f"save: {path or 'the whole'} is an object of class {kind.__module__}.{kind.__qualname__}, which torch.load(weights_only=True) "
                     f"does not read; {hint}")


def _pickled(obj: Any) -> Tuple[bytes, List[_Storage]]:
    """The pickle, and the storages that it names. Written twice where a storage turns out to be of several dtypes."""
    storages: Dict[Any, _Storage] = {}
    writers = _writers()
    for _ in range(2):
        pickle = _Pickle(storages, writers)
        pickle(obj, "")
        if not any(len(s.dtypes) > 1 for s in storages.values()):
            break
    return bytes(pickle.out + b"."), list(storages.values())


# -- the zip file ---------------------------------------------------------------------------------------------------


def _entry(archive: zipfile.ZipFile, name: str, size: int, write: Callable[[Any], Any]) -> None:
    """An entry whose bytes begin at a multiple of 64."""
    info = zipfile.ZipInfo("archive/" + name)
    info.file_size, large = size, size > _LARGE
    start = archive.start_dir + _ENTRY + len(info.filename) + (_ZIP64 if large else 0) + 4
    padding = -start % _ALIGNMENT
    info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
    with archive.open(info, "w", force_zip64=large) as file:
        write(file)


def _fill(file: Any, obj: Any) -> None:
    code, storages = _pickled(obj)
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in (("data.pkl", code), (".format_version", b"1"), (".storage_alignment", b"%d" % _ALIGNMENT), ("byteorder", b"little")):
            _entry(archive, name, len(data), lambda f, data=data: f.write(data))  # type: ignore[misc]
        for s in storages:
            _entry(archive, f"data/{s.key}", s.size(), s.write)
        _entry(archive, "version", 2, lambda f: f.write(b"3\n"))


def write_torch(obj: Any, path: str) -> None:
    with open(path, "wb") as file:
        _fill(file, obj)


def torch_bytes(obj: Any) -> bytes:
    file = io.BytesIO()
    _fill(file, obj)
    return file.getvalue()
