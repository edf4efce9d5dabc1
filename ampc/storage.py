"""Storages: the memory behind tensors, with torch's two kinds of them, bytes and values of a dtype."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any, Dict, Iterator, List, Optional

from . import _C
from ._C import Tensor, dtype
from ._tensor import creation as make
from ._tensor.device import device, number_of
from ._tensor.storage import UntypedStorage, count_of, text_of

__all__ = ["TypedStorage", "UntypedStorage"]

_NAMES = {_C.float64: "Double", _C.float32: "Float", _C.float16: "Half", _C.bfloat16: "BFloat16", _C.int64: "Long", _C.int32: "Int",
          _C.int16: "Short", _C.int8: "Char", _C.uint8: "Byte", _C.bool: "Bool"}


class TypedStorage:
    """A storage read as values of one dtype: torch's older interface, of ``tensor.storage()``.

    ``TypedStorage(n, dtype=, device=)`` has that many values, undefined; ``TypedStorage([1.5, 2], dtype=)`` these; ``TypedStorage(wrap_storage=s,
    dtype=)`` reads the bytes of ``s``. ``FloatStorage`` and its like make them of one dtype. torch warns that they will go; ampc does not."""

    is_sparse = is_sparse_csr = False
    dtype: dtype
    _untyped_storage: UntypedStorage

    def __init__(self, *args: Any, wrap_storage: Optional[UntypedStorage] = None, dtype: Any = None, device: Any = None,
                 _internal: bool = False) -> None:
        if wrap_storage is not None:
            if args or device is not None or not isinstance(wrap_storage, UntypedStorage):
                raise TypeError("TypedStorage: `wrap_storage` is an UntypedStorage, and stands without sizes, values or a device")
            if not isinstance(dtype, _C.dtype):
                raise TypeError(f"TypedStorage: `wrap_storage` needs a dtype, got {dtype!r}")
            self.dtype, self._untyped_storage = dtype, wrap_storage
            return
        if len(args) > 1:
            raise TypeError(f"TypedStorage: expected a size or a sequence of values, got {len(args)} arguments")
        self.dtype = dtype or _C.get_default_dtype()
        data = args[0] if args else 0
        if hasattr(data, "__index__") and not isinstance(data, Tensor):
            self._untyped_storage = UntypedStorage(count_of("TypedStorage", data) * self.dtype.itemsize, device="cpu" if device is None else device)
        elif isinstance(data, (Sequence, TypedStorage, UntypedStorage)) and not isinstance(data, str):
            self._untyped_storage = make.tensor(list(data), dtype=self.dtype, device="cpu" if device is None else device).untyped_storage()
        else:
            raise TypeError(f"TypedStorage: expected a size or a sequence of values, got {type(data).__name__}")

    def _like(self, untyped: UntypedStorage) -> TypedStorage:
        return TypedStorage(wrap_storage=untyped, dtype=self.dtype)

    def _values(self) -> Tensor:
        return _C._storage_tensor(self._untyped_storage, self.dtype, 0, (self.size(),), (1,))

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> TypedStorage:
        """``size`` values of a file, mapped into memory, as UntypedStorage.from_file. RuntimeError on TypedStorage itself."""
        if cls is TypedStorage:
            raise RuntimeError("from_file is of FloatStorage and its like, which know their dtype")
        return TypedStorage(wrap_storage=UntypedStorage.from_file(filename, shared, size * cls.dtype.itemsize), dtype=cls.dtype)

    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: Optional[str] = None, count: int = -1, offset: int = 0, *, dtype: Any = None,
                    device: Any = None) -> TypedStorage:
        """A copy of a buffer's values, as UntypedStorage.from_buffer."""
        kind = dtype or getattr(cls, "dtype", None) or _C.get_default_dtype()
        if device is not None and number_of(device):
            raise RuntimeError("from_buffer: a buffer is read to the CPU")
        return TypedStorage(wrap_storage=UntypedStorage.from_buffer(buffer, byte_order, count, offset, kind), dtype=kind)

    @property
    def _dtype(self) -> Any:
        return self.dtype

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    @property
    def device(self) -> device:
        """Where it lives."""
        return self._untyped_storage.device

    @property
    def is_cuda(self) -> bool:
        """True on a GPU."""
        return self._untyped_storage.is_cuda

    @property
    def filename(self) -> Optional[str]:
        """The file that it was mapped from with ``shared``, or None."""
        return self._untyped_storage.filename

    def untyped(self) -> UntypedStorage:
        """Its bytes."""
        return self._untyped_storage

    def size(self) -> int:
        """Number of values."""
        return self.nbytes() // self.dtype.itemsize

    __len__ = _size = size

    def nbytes(self) -> int:
        """Its size in bytes."""
        return self._untyped_storage.nbytes()

    _nbytes = nbytes

    def element_size(self) -> int:
        """Bytes of a value."""
        return self.dtype.itemsize

    _element_size = element_size

    def data_ptr(self) -> int:
        """Where its first byte lies; 0 if it has none."""
        return self._untyped_storage.data_ptr()

    _data_ptr = data_ptr

    def get_device(self) -> Optional[int]:
        """The GPU's number; None on the CPU."""
        return self._untyped_storage.get_device()

    def resizable(self) -> bool:
        """Whether ``resize_`` works, see UntypedStorage."""
        return self._untyped_storage.resizable()

    def resize_(self, size: int) -> None:
        """Gives it room for another number of values, see UntypedStorage."""
        self._untyped_storage.resize_(count_of("resize_", size) * self.dtype.itemsize)

    def is_shared(self) -> bool:
        """Whether other processes see what is written, see UntypedStorage."""
        return self._untyped_storage.is_shared()

    _is_shared = is_shared

    def is_pinned(self) -> bool:
        """True in page-locked memory of the CPU."""
        return self._untyped_storage.is_pinned()

    def share_memory_(self) -> TypedStorage:
        """Moves it to memory that forked processes share, see UntypedStorage."""
        self._untyped_storage.share_memory_()
        return self

    def pin_memory(self, device: Any = None) -> TypedStorage:
        """A copy in page-locked memory of the CPU, or itself where there is no GPU."""
        return self._like(self._untyped_storage.pin_memory())

    def __getitem__(self, index: Any) -> Any:
        """One value as a Python number. RuntimeError for a slice: only untyped storages are sliced."""
        if isinstance(index, slice) or not hasattr(index, "__index__"):
            raise RuntimeError(f"a typed storage is indexed with an int, got {type(index).__name__}; slices are of untyped storages")
        i, n = index.__index__(), self.size()
        if not -n <= i < n:
            raise IndexError(f"a storage of {n} values is indexed from {-n} to {n - 1}, got {i}")
        return self._values()[i].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(index, (int, slice)) or isinstance(value, (TypedStorage, UntypedStorage)):
            raise RuntimeError("a typed storage's values are set at an int or a slice, to numbers")
        self._values()[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> List[Any]:
        """Its values as Python numbers."""
        return self._values().tolist()

    def fill_(self, value: Any) -> TypedStorage:
        """Sets every value."""
        self._values().fill_(value)
        return self

    def copy_(self, source: Any, non_blocking: Optional[bool] = None) -> TypedStorage:
        """Copies another storage's bytes in, whatever its dtype. RuntimeError for one of another size in bytes."""
        self._untyped_storage.copy_(source, bool(non_blocking))
        return self

    def clone(self) -> TypedStorage:
        """A copy."""
        return self._like(self._untyped_storage.clone())

    def cpu(self) -> TypedStorage:
        """The storage on the CPU."""
        return self._like(self._untyped_storage.cpu())

    def cuda(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        """The storage on a GPU. RuntimeError where there is none."""
        return self._like(self._untyped_storage.cuda(device, non_blocking))

    def to(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        """The storage on another device."""
        return self._like(self._untyped_storage.to(device=device, non_blocking=non_blocking))

    def pickle_storage_type(self) -> str:
        """The name of its legacy class."""
        return _NAMES[self.dtype] + "Storage"

    _pickle_storage_type = pickle_storage_type

    def type(self, dtype: Any = None) -> Any:
        """The name of its type; or its values in the dtype of another legacy class, given itself or by name."""
        if dtype is None:
            return f"torch.{'cuda.' if self.is_cuda else ''}{self.pickle_storage_type()}"
        kind = LEGACY.get(dtype.split(".")[-1]) if isinstance(dtype, str) else dtype
        kind = kind if isinstance(kind, _C.dtype) else getattr(kind, "dtype", None)
        if not isinstance(kind, _C.dtype):
            raise RuntimeError(f"type: expected a storage class, its name or a dtype, got {dtype!r}")
        return self if kind is self.dtype else self._to(kind)

    def _to(self, dtype: Any) -> TypedStorage:
        if not isinstance(dtype, _C.dtype):
            raise TypeError(f"expected a dtype, got {dtype!r}")
        values = self._values()
        return typed_storage(values.clone() if dtype is self.dtype else values.to(dtype))

    def __repr__(self) -> str:
        return text_of(self, f"[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {len(self)}]")

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def __copy__(self) -> TypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: Dict[int, Any]) -> TypedStorage:
        return self._like(copy.deepcopy(self._untyped_storage, memo))

    def __reduce__(self) -> Any:
        return _typed, (self._untyped_storage, self.dtype)


def _typed(untyped: UntypedStorage, dtype: Any) -> TypedStorage:
    return TypedStorage(wrap_storage=untyped, dtype=dtype)


def typed_storage(t: Tensor) -> TypedStorage:
    """The storage of a tensor as values of its dtype."""
    return TypedStorage(wrap_storage=t.untyped_storage(), dtype=t.dtype)


def _conversion(kind: Any, name: str) -> Any:
    def convert(self: Any) -> TypedStorage:
        typed = self if isinstance(self, TypedStorage) else TypedStorage(wrap_storage=self, dtype=_C.uint8)
        return typed._to(kind)

    convert.__name__ = name
    convert.__doc__ = f"A copy with each value (of an untyped storage: each byte) as {kind.name}."
    return convert


for _kind, _name in _NAMES.items():
    _method = "bfloat16" if _name == "BFloat16" else _name.lower()
    setattr(UntypedStorage, _method, _conversion(_kind, _method))
    setattr(TypedStorage, _method, _conversion(_kind, _method))


class _LegacyStorageMeta(type):
    """``isinstance(s, FloatStorage)`` asks for a typed storage of that dtype and device; ``FloatStorage(3)`` makes one."""

    dtype: Any
    _on: str

    def __instancecheck__(cls, s: object) -> bool:
        return type(s) is TypedStorage and s.dtype is cls.dtype and s.device.type == cls._on

    def __call__(cls, *args: Any, wrap_storage: Optional[UntypedStorage] = None) -> Any:
        if wrap_storage is None:
            return TypedStorage(*args, dtype=cls.dtype, device=cls._on)
        if wrap_storage.device.type != cls._on:
            raise RuntimeError(f"{cls.__name__}: `wrap_storage` must be on {cls._on}, is on {wrap_storage.device}")
        return TypedStorage(*args, wrap_storage=wrap_storage, dtype=cls.dtype)


class _LegacyStorage(TypedStorage, metaclass=_LegacyStorageMeta):
    """What ``FloatStorage`` and its like derive from."""


@functools.cache
def legacy_storages(on: str) -> Dict[str, Any]:
    """FloatStorage and its like of a device's kind, by name."""
    module = "ampc" if on == "cpu" else f"ampc.{on}"
    return {f"{name}Storage": _LegacyStorageMeta(f"{name}Storage", (_LegacyStorage,), {
        "dtype": kind, "_on": on, "__module__": module, "__doc__": f"Makes storages of {kind.name}: from a number of values, or from values."})
        for kind, name in _NAMES.items()}


LEGACY = legacy_storages("cpu")


def is_storage(obj: Any) -> bool:
    """Whether it is a storage, typed or untyped."""
    return isinstance(obj, (UntypedStorage, TypedStorage))
