"""Memory that processes share: an anonymous file, mapped by each of them. Its descriptor travels through ``multiprocessing``."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Sequence
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any, Tuple

from .. import _C
from .._C import Tensor
from .buffers import frombuffer
from .layout import with_attributes

ALIGNMENT = 64  # bytes, as of ampc's own memory


class SharedMemory:
    """A mapped file without a name. ``storages`` are those that lie in it, by their first byte; with them it dies."""

    _known: weakref.WeakValueDictionary[Tuple[int, int], SharedMemory] = weakref.WeakValueDictionary()
    _lock = threading.Lock()

    def __init__(self, descriptor: int, nbytes: int) -> None:
        """Takes over the descriptor."""
        self.descriptor, self.nbytes = descriptor, nbytes
        weakref.finalize(self, os.close, descriptor)
        self.data = mmap.mmap(descriptor, nbytes)
        self.storages: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    @classmethod
    def of_size(cls, nbytes: int) -> SharedMemory:
        """New memory, zeros."""
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("ampc")
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, nbytes)
        return cls._of(descriptor, nbytes)

    @classmethod
    def received(cls, handle: Any, nbytes: int) -> SharedMemory:
        """What another process has sent: one object for each file."""
        return cls._of(handle.detach(), nbytes)

    @classmethod
    def _of(cls, descriptor: int, nbytes: int) -> SharedMemory:
        facts = os.fstat(descriptor)
        with cls._lock:
            found = cls._known.get((facts.st_dev, facts.st_ino))
            if found is not None:
                os.close(descriptor)
                return found
            cls._known[facts.st_dev, facts.st_ino] = found = cls(descriptor, nbytes)
            return found

    def __reduce__(self) -> Any:
        return SharedMemory.received, (DupFd(self.descriptor), self.nbytes)

    def block(self, start: int, nbytes: int) -> Any:
        """A storage on a part of it."""
        return frombuffer(self.data, dtype=_C.uint8, count=nbytes, offset=start).untyped_storage()

    def storage(self, start: int, nbytes: int) -> Any:
        """The storage that lies there: the same object as long as it lives."""
        s = self.storages.get(start)
        if s is None:
            s = self.block(start, nbytes)
            self.keep(s, start)
        return s

    def keep(self, s: Any, start: int) -> None:
        """Notes that ``s`` lies here."""
        s._shared, s._memory = True, (self, start)
        self.storages[start] = s


def share(storages: Sequence[Any]) -> None:
    """Moves storages of the CPU into one shared memory. NotImplementedError where the system forks no processes."""
    if not hasattr(os, "fork"):
        raise NotImplementedError("share_memory_: this system does not fork, and memory is not shared with processes that it spawns")
    register_kinds(Tensor, *{type(s) for s in storages})
    filled = [s for s in storages if s._room]
    starts = [0]
    for s in filled:
        starts.append(starts[-1] + -(-s._room // ALIGNMENT) * ALIGNMENT)
    memory = SharedMemory.of_size(starts[-1]) if filled else None
    for s in storages:
        s._shared = True
    for s, start in zip(filled, starts):
        assert memory is not None
        _C._storage_move(s, memory.block(start, s._room))
        memory.keep(s, start)


# -- what multiprocessing sends ---------------------------------------------------------------------------------------


def reduce_storage(s: Any) -> Any:
    """Where a storage lies in shared memory; its bytes, if it does not."""
    place = getattr(s, "_memory", None)
    return s.__reduce__() if place is None else (SharedMemory.storage, (*place, s.nbytes()))


def reduce_tensor(t: Tensor) -> Any:
    """A tensor on shared memory, or its values. RuntimeError for one with a history of gradients, which cannot be sent."""
    if t.requires_grad and not t.is_leaf:
        raise RuntimeError("a tensor that requires_grad and has a history of gradients cannot be sent to another process; detach() it first")
    s = None if t.is_meta else t.untyped_storage()
    if s is None or getattr(s, "_memory", None) is None:
        return t.__reduce_ex__(2)
    return rebuild_tensor, (type(t), s, t.dtype, t.storage_offset(), tuple(t.shape), t.stride(), t.requires_grad, dict(t.__dict__))


def rebuild_tensor(cls: Any, s: Any, dtype: Any, offset: int, shape: Any, stride: Any, requires_grad: bool, attributes: dict) -> Tensor:
    """The inverse of ``reduce_tensor`` for shared memory."""
    register_kinds(cls, type(s))
    return with_attributes(cls, _C._storage_tensor(s, dtype, offset, shape, stride), requires_grad, attributes)


def register_kinds(*kinds: Any) -> None:
    """Tells ``multiprocessing`` how tensors and storages of these classes are sent."""
    for kind in kinds:
        ForkingPickler.register(kind, reduce_tensor if issubclass(kind, Tensor) else reduce_storage)
