"""The memory behind tensors as bytes, and tensors on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .. import _C
from .._C import Tensor, dtype
from . import creation as make
from .device import META_NUMBER, device, device_of, number_of


def count_of(what: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{what}: expected a number of bytes or elements, got {type(value).__name__}")
    return value.__index__()


class UntypedStorage(_C.StorageBase):
    """The bytes that one or more tensors are views of.

    ``UntypedStorage(nbytes, device="cpu")`` has that many bytes, their values undefined; ``UntypedStorage([1, 2])`` these bytes;
    ``tensor.untyped_storage()`` gives a tensor's. A storage has one object, which lives as long as its memory is used: two tensors share
    memory exactly when ``a.untyped_storage() is b.untyped_storage()``. It keeps the memory alive. Writes are seen by every tensor on it, and
    counted, so that ``backward`` refuses values that it needs and that were written."""

    __slots__ = ("__weakref__", "_filename", "_memory")
    _filename: str
    _memory: Tuple[Any, int]  # the shared memory that it lies in, and its first byte there
    is_sparse = is_sparse_csr = False

    def __new__(cls, data: Any = 0, *, device: Any = None) -> UntypedStorage:
        if hasattr(data, "__index__") and not isinstance(data, Tensor):
            return _C._storage_new(cls, count_of("UntypedStorage", data), number_of("cpu" if device is None else device))
        if isinstance(data, (UntypedStorage, bytes, bytearray)) or isinstance(data, Sequence) and not isinstance(data, str):
            values = [value.__index__() & 255 for value in data]
            new = _C._storage_new(cls, len(values), number_of("cpu" if device is None else device))
            _bytes(new).copy_(make.tensor(values, dtype=_C.uint8, device="cpu"))
            return new
        raise TypeError(f"UntypedStorage: expected a number of bytes or a sequence of them, got {type(data).__name__}")

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """``nbytes`` of a file, mapped into memory. With ``shared``, what is written goes to the file, which is made, and made longer, as needed;
        else it stays here. RuntimeError for a file that is too short or cannot be opened."""
        from .buffers import from_file

        if not nbytes:
            return cls(0)
        try:
            s = from_file(os.fspath(filename), shared, nbytes, dtype=_C.uint8).untyped_storage()
        except OSError as error:
            raise RuntimeError(f"UntypedStorage.from_file: {filename} cannot be mapped: {error.strerror}") from error
        if shared:
            s._filename = os.fspath(filename)
            s._shared = True
        return s

    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: Optional[str] = None, count: int = -1, offset: int = 0, dtype: Any = None) -> UntypedStorage:
        """A copy of ``count`` values (-1: all) of an object with Python's buffer protocol, from byte ``offset`` on. ``byte_order`` is 'native',
        'little' or 'big', of values of ``dtype``."""
        dtype = dtype or _C.uint8
        if byte_order not in (None, "native", "little", "big"):
            raise ValueError(f"from_buffer: `byte_order` must be 'native', 'little' or 'big', got {byte_order!r}")
        data = bytes(memoryview(buffer).cast("B"))[offset:]
        if offset < 0 or count * dtype.itemsize > len(data) or (count < 0 and len(data) % dtype.itemsize):
            raise ValueError(f"from_buffer: {'all' if count < 0 else count} values of {dtype} do not fit {len(data)} bytes")
        data = data if count < 0 else data[:count * dtype.itemsize]
        s = _C._tensor_from_bytes(data, _C.uint8, [len(data)]).untyped_storage()
        if byte_order not in (None, "native", sys.byteorder):
            s.byteswap(dtype)
        return s

    # -- facts ------------------------------------------------------------------------------------------------

    def nbytes(self) -> int:
        """Its size in bytes."""
        return self._nbytes

    size = __len__ = nbytes

    def element_size(self) -> int:
        """1"""
        return 1

    def data_ptr(self) -> int:
        """Where its first byte lies; 0 if it has none."""
        return self._address if self._nbytes else 0

    @property
    def device(self) -> device:
        """Where it lives."""
        return device_of(self._device_number)

    @property
    def is_cuda(self) -> bool:
        """True on a GPU."""
        return self.device.type == "cuda"

    def get_device(self) -> Optional[int]:
        """The GPU's number; None on the CPU."""
        return self.device.index

    @property
    def filename(self) -> Optional[str]:
        """The file that it was mapped from with ``shared``, or None."""
        return getattr(self, "_filename", None)

    def untyped(self) -> UntypedStorage:
        """Itself."""
        return self

    def resizable(self) -> bool:
        """Whether ``resize_`` works: for memory that is ampc's own and whose address no array or other library holds."""
        return not self._foreign and self._device_number != META_NUMBER

    def is_shared(self) -> bool:
        """Whether other processes see what is written: after ``share_memory_``, of a file mapped with ``shared``, and on a GPU."""
        return self._shared or self.is_cuda

    def is_pinned(self) -> bool:
        """True in page-locked memory of the CPU."""
        return _bytes(self).is_pinned()

    # -- values -----------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        """One byte as an int; for a slice a storage on that part of the memory."""
        if isinstance(index, slice):
            start, stop = self._span(index)
            return _C._storage_slice(self, start, stop)
        return int(_bytes(self)[self._place(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, (float, bool)) or not hasattr(value, "__index__"):
            raise RuntimeError(f"a storage's bytes are set to an int, got {type(value).__name__}")
        if isinstance(index, slice):
            start, stop = self._span(index)
            _bytes(self)[start:stop].fill_(value.__index__() & 255)
        else:
            _bytes(self)[self._place(index)] = value.__index__() & 255

    def _span(self, index: slice) -> Tuple[int, int]:
        start, stop, step = index.indices(self._nbytes)
        if step != 1:
            raise RuntimeError(f"a storage can be sliced with a step of 1 only, got {step}")
        return start, max(start, stop)

    def _place(self, index: Any) -> int:
        if not hasattr(index, "__index__"):
            raise TypeError(f"can't index a storage with {type(index).__name__}")
        i, n = index.__index__(), self._nbytes
        if not -n <= i < n:
            raise IndexError(f"a storage of {n} bytes is indexed from {-n} to {n - 1}, got {i}")
        return i % n

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def tolist(self) -> List[int]:
        """Its bytes as ints."""
        return _bytes(self).tolist()

    def fill_(self, value: int) -> UntypedStorage:
        """Sets every byte."""
        self[:] = value
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> UntypedStorage:
        """Copies another storage's bytes in. RuntimeError for one of another size."""
        if not hasattr(source, "untyped"):
            raise TypeError(f"copy_: expected a storage, got {type(source).__name__}")
        if source.nbytes() != self._nbytes:
            raise RuntimeError(f"copy_: the storage has {self._nbytes} bytes, and the one to copy {source.nbytes()}")
        _bytes(self).copy_(_bytes(source.untyped()), non_blocking=non_blocking)
        return self

    def clone(self) -> UntypedStorage:
        """A copy."""
        return _C._storage_new(UntypedStorage, self._nbytes, self._device_number).copy_(self)

    def new(self) -> UntypedStorage:
        """An empty one on the same device."""
        return _C._storage_new(UntypedStorage, 0, self._device_number)

    def byteswap(self, dtype: dtype) -> None:
        """Reverses the order of the bytes of each value of ``dtype``."""
        rows = _bytes(self).view(-1, dtype.itemsize)
        rows.copy_(rows.flip(1))

    # -- memory -----------------------------------------------------------------------------------------------

    def resize_(self, size: int) -> UntypedStorage:
        """Gives it another size; bytes that are new are undefined. The memory never becomes smaller before the storage dies, so that tensors
        that reached further keep their values. RuntimeError where ``resizable`` is False."""
        if isinstance(size, bool) or not hasattr(size, "__index__"):
            raise RuntimeError(f"resize_: expected a number of bytes, got {type(size).__name__}")
        n = size.__index__()
        if n < 0:
            raise RuntimeError(f"resize_: a storage has 0 bytes or more, got {n}")
        if not self.resizable():
            raise RuntimeError("resize_: its memory is shared, or belongs to an array or a buffer, and cannot be resized; clone() it")
        if n > self._room:
            new = _C._storage_new(UntypedStorage, max(n, self._room * 3 // 2), self._device_number)
            _C._storage_move(self, new)
        _C._storage_set_bytes(self, n)
        return self

    def share_memory_(self) -> UntypedStorage:
        """Moves it to memory that processes share: those forked from this one, and those that get it through ``multiprocessing``, as an argument
        or by a queue. Does nothing on a GPU. NotImplementedError on a system that does not fork."""
        if not self.is_shared():
            from .shared_memory import share

            share([self])
        return self

    def pin_memory(self, device: Any = None) -> UntypedStorage:
        """A copy in page-locked memory of the CPU, or itself where there is no GPU."""
        if self.is_cuda:
            raise TypeError("pin_memory: only memory of the CPU can be pinned")
        return _bytes(self).pin_memory().untyped_storage()

    def cpu(self) -> UntypedStorage:
        """The storage on the CPU: itself when it is there."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        """The storage on a GPU: itself when it is there. RuntimeError where there is none."""
        return self.to(device="cuda" if device is None else device, non_blocking=non_blocking)

    def to(self, *, device: Any, non_blocking: bool = False) -> UntypedStorage:
        """The storage on another device: itself when it is there."""
        there = number_of(device)
        if there == self._device_number:
            return self
        return _C._storage_new(UntypedStorage, self._nbytes, there).copy_(self, non_blocking)

    def type(self, dtype: Any = None) -> Any:
        """The name of its type. RuntimeError for a type to convert to: bytes have none; ``float()`` and others convert each byte."""
        if dtype is None:
            return "torch.storage.UntypedStorage" if not self.is_cuda else "torch.cuda.storage.UntypedStorage"
        raise RuntimeError("type: the bytes of a storage have no type; tensor.to(dtype) converts values")

    # -- Python's protocols -----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return text_of(self, f"[torch.storage.UntypedStorage(device={self.device}) of size {len(self)}]")

    def __bytes__(self) -> bytes:
        return _C._tensor_bytes(_bytes(self))

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self._nbytes

    def __copy__(self) -> UntypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: Dict[int, Any]) -> UntypedStorage:
        memo[id(self)] = found = self.clone()
        return found

    def __reduce__(self) -> Any:
        return _from_bytes, (bytes(self), str(self.device))


def _from_bytes(data: bytes, where: str) -> UntypedStorage:
    """The inverse of pickling: a storage of these bytes, on the device it was on."""
    return _C._tensor_from_bytes(data, _C.uint8, [len(data)]).to(where).untyped_storage()


def _bytes(s: UntypedStorage) -> Tensor:
    """A vector of uint8 on a storage's memory."""
    return _C._storage_tensor(s, _C.uint8, 0, (s._nbytes,), (1,))


def text_of(s: Any, end: str) -> str:
    return " " + "\n ".join(str(value) for value in s.tolist()) + "\n" + end


def tensor_on(source: Any, dtype: Any, offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """A tensor on a storage, or on that of a tensor: on all of it, or where the numbers say, in elements. The storage grows if it can and
    must. RuntimeError for a typed storage of another dtype, and for numbers that do not fit."""
    if getattr(source, "dtype", dtype) is not dtype:
        raise RuntimeError(f"expected a storage or a tensor of {dtype}, got {source.dtype}")
    s = source.untyped_storage() if isinstance(source, Tensor) else source.untyped()
    if size is None:
        size, stride, offset = (s.nbytes() // dtype.itemsize,), (1,), 0
    if stride is None:
        stride = make.empty(size, device="meta").stride()
    needed = _C._storage_reach(dtype.itemsize, offset, size, stride)
    if needed > s.nbytes():
        s.resize_(needed)
    return _C._storage_tensor(s, dtype, offset, size, stride)


def without_values(dtype: Any, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """A tensor on 'meta'. RuntimeError for numbers that no tensor has."""
    storage = _C._storage_new(UntypedStorage, _C._storage_reach(dtype.itemsize, 0, size, stride), META_NUMBER)
    return _C._storage_tensor(storage, dtype, 0, size, stride)


def memory_of(dtype: Any, source: Any, storage_offset: Any = None, size: Any = None, stride: Any = None) -> Tensor:
    """What ``set_`` takes over: a tensor as it is, or a tensor on a source. TypeError for arguments of other kinds."""
    if not isinstance(source, Tensor) and not hasattr(source, "untyped"):
        raise TypeError(f"set_: expected a storage or a Tensor, got {type(source).__name__}")
    if storage_offset is None and size is None and stride is None:
        return source if isinstance(source, Tensor) else tensor_on(source, dtype)
    if storage_offset is None or not isinstance(size, (tuple, list)):
        raise TypeError("set_: expected set_(source) or set_(source, storage_offset, size, stride=None), the size being a tuple of ints")
    return tensor_on(source, dtype, storage_offset, size, stride)
