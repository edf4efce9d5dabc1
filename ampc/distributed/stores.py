"""Stores: names and bytes that several processes see, by which scripts find each other and agree. Groups need none: MPI, or the variables of
a launcher, connect their processes.

``HashStore`` is of one process' threads, ``FileStore`` of a file, ``TCPStore`` of a server in one process (``_tcp_store.py``). Each runs the
operations of ``Table``, one at a time."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
import weakref
from collections import deque
from datetime import timedelta
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from .errors import DistStoreError, QueueEmptyError
from .work import seconds_of

Text = Union[str, bytes]
Answer = Optional[List[bytes]]  # None: not yet
PAUSE = 0.01  # seconds between two looks into a file


def as_bytes(what: str, name: str, value: Any) -> bytes:
    """A key or value. TypeError for what is neither str nor bytes."""
    if not isinstance(value, (str, bytes)):
        raise TypeError(f"{what}: `{name}` must be str or bytes, got {type(value).__name__}")
    return value.encode() if isinstance(value, str) else value


class Table:
    """Keys, values and queues, and what is done with them. Each operation takes and gives bytes."""

    def __init__(self) -> None:
        self.values: Dict[bytes, bytes] = {}
        self.queues: Dict[bytes, Deque[bytes]] = {}

    def run(self, operation: str, args: Sequence[bytes]) -> Answer:
        """What an operation answers; None where it waits for something. ValueError for what cannot be done."""
        return getattr(self, f"do_{operation}")(*args)

    def do_set(self, *pairs: bytes) -> Answer:
        """Keys and values by turns."""
        self.values.update(zip(pairs[::2], pairs[1::2]))
        return []

    def do_get(self, *keys: bytes) -> Answer:
        """The values, once all keys are there."""
        return [self.values[key] for key in keys] if all(key in self.values for key in keys) else None

    def do_wait(self, *keys: bytes) -> Answer:
        """Nothing, once all keys are there."""
        return None if self.do_get(*keys) is None else []

    def do_check(self, *keys: bytes) -> Answer:
        """Whether all keys are there."""
        return [b"1" if all(key in self.values for key in keys) else b""]

    def do_add(self, key: bytes, amount: bytes) -> Answer:
        """The value, a number, with more added to it."""
        try:
            number = int(self.values.get(key, b"0"))
        except ValueError:
            raise ValueError(f"add: the value of {key.decode()!r} must be a number, got {self.values[key]!r}") from None
        self.values[key] = str(number + int(amount)).encode()
        return [self.values[key]]

    def do_append(self, key: bytes, value: bytes) -> Answer:
        """The value becomes longer."""
        self.values[key] = self.values.get(key, b"") + value
        return []

    def do_compare_set(self, key: bytes, expected: bytes, wanted: bytes) -> Answer:
        """Sets the key where its value is the expected one, or where it has none and none is expected; the value then."""
        if self.values.get(key, b"") == expected:
            self.values[key] = wanted
        return [self.values.get(key, expected)]

    def do_delete(self, key: bytes) -> Answer:
        """Whether the key was there."""
        return [b"" if self.values.pop(key, None) is None else b"1"]

    def do_keys(self) -> Answer:
        """All of them."""
        return list(self.values)

    def do_push(self, key: bytes, value: bytes) -> Answer:
        """Adds to a queue's end."""
        self.queues.setdefault(key, deque()).append(value)
        return []

    def do_pop(self, key: bytes) -> Answer:
        """The first of a queue, once there is one."""
        return [self.queues[key].popleft()] if self.queues.get(key) else None

    def do_length(self, key: bytes) -> Answer:
        """Of a queue."""
        return [str(len(self.queues.get(key, ()))).encode()]


class Store:
    """Names and bytes that several processes see. ``HashStore``, ``FileStore``, ``TCPStore`` and ``PrefixStore`` are stores."""

    timeout = timedelta(seconds=300)

    def _do(self, operation: str, args: Sequence[bytes], seconds: float) -> Answer:
        """The answer of the operation; None where it would have had to wait for longer."""
        raise NotImplementedError("Store: make a HashStore, FileStore, TCPStore or PrefixStore")

    def _now(self, operation: str, *args: bytes) -> List[bytes]:
        return self._do(operation, args, self.timeout.total_seconds()) or []

    def _once_there(self, what: str, operation: str, keys: Sequence[Text], timeout: Optional[timedelta] = None) -> List[bytes]:
        """DistStoreError where a key does not come in time."""
        seconds = (self.timeout if timeout is None else timeout).total_seconds()
        answer = self._do(operation, [as_bytes(what, "key", key) for key in keys], seconds)
        if answer is None:
            raise DistStoreError(f"{what}: not all of the keys {[str(key) for key in keys]} were set within {seconds:g} s")
        return answer

    def set_timeout(self, timeout: timedelta) -> None:
        """How long ``get`` and ``wait`` wait for a key; 300 seconds at first."""
        seconds_of("set_timeout", timeout)
        self.timeout = timeout

    def set(self, key: str, value: Text) -> None:
        """Gives the key this value."""
        self._now("set", as_bytes("set", "key", key), as_bytes("set", "value", value))

    def get(self, key: str) -> bytes:
        """The key's value, as bytes. Waits until there is one: DistStoreError where it does not come within the timeout."""
        return self._once_there("get", "get", [key])[0]

    def multi_set(self, keys: Sequence[str], values: Sequence[Text]) -> None:
        """Gives several keys their values. ValueError where there are more of one."""
        if len(keys) != len(values):
            raise ValueError(f"multi_set: {len(keys)} keys and {len(values)} values; each key needs a value")
        self._now("set", *(as_bytes("multi_set", "keys", x) for pair in zip(keys, values) for x in pair))

    def multi_get(self, keys: Sequence[str]) -> List[bytes]:
        """The values of several keys, as ``get``."""
        return self._once_there("multi_get", "get", keys)

    def wait(self, keys: Sequence[str], timeout: Optional[timedelta] = None) -> None:
        """Waits until all keys have values. DistStoreError where they do not within ``timeout``, by default the store's."""
        self._once_there("wait", "wait", keys, timeout)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys have values."""
        return bool(self._now("check", *(as_bytes("check", "keys", key) for key in keys))[0])

    def add(self, key: str, amount: int) -> int:
        """Adds to the key's value, a number, which begins at 0, and returns it. ValueError for a value that is no number."""
        return int(self._now("add", as_bytes("add", "key", key), str(int(amount)).encode())[0])

    def append(self, key: str, value: Text) -> None:
        """Adds bytes to the end of the key's value."""
        self._now("append", as_bytes("append", "key", key), as_bytes("append", "value", value))

    def compare_set(self, key: str, expected_value: Text, desired_value: Text) -> bytes:
        """Sets the key where its value is the expected one, or where it has none and '' is expected, and returns the value that it has then;
        without one what was expected."""
        given = (as_bytes("compare_set", "value", value) for value in (key, expected_value, desired_value))
        return self._now("compare_set", *given)[0]

    def delete_key(self, key: str) -> bool:
        """Whether the key was there. It is there no more."""
        return bool(self._now("delete", as_bytes("delete_key", "key", key))[0])

    def list_keys(self) -> List[str]:
        """All keys."""
        return [key.decode() for key in self._now("keys")]

    def num_keys(self) -> int:
        """The number of keys."""
        return len(self._now("keys"))

    def has_extended_api(self) -> bool:
        """Whether ``append``, ``multi_get`` and ``multi_set`` are there."""
        return True

    def barrier(self, key: str, world_size: int, timeout: Optional[timedelta] = None) -> None:
        """Waits until so many have called it with this key."""
        if self.add(f"{key}/count", 1) == world_size:
            self.set(f"{key}/all", b"1")
        self._once_there("barrier", "wait", [f"{key}/all"], timeout)

    def queue_push(self, key: str, value: Text) -> None:
        """Adds a value to the end of a queue."""
        self._now("push", as_bytes("queue_push", "key", key), as_bytes("queue_push", "value", value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """The first value of a queue, for which it waits. QueueEmptyError, with ``block=False``, where there is none."""
        if block:
            return self._once_there("queue_pop", "pop", [key])[0]
        answer = self._do("pop", [as_bytes("queue_pop", "key", key)], 0)
        if answer is None:
            raise QueueEmptyError(f"queue_pop: the queue {key!r} is empty")
        return answer[0]

    def queue_len(self, key: str) -> int:
        """The number of values in a queue."""
        return int(self._now("length", as_bytes("queue_len", "key", key))[0])


class Shared:
    """A table that several threads use."""

    def __init__(self) -> None:
        self._table, self._changed = Table(), threading.Condition()

    def run(self, operation: str, args: Sequence[bytes], seconds: float) -> Answer:
        """The answer; None where it does not come in time."""
        end = time.monotonic() + seconds
        with self._changed:
            while (answer := self._table.run(operation, args)) is None and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            self._changed.notify_all()
        return answer


class HashStore(Store):
    """A store of this process, for its threads."""

    def __init__(self) -> None:
        self._shared = Shared()

    def _do(self, operation: str, args: Sequence[bytes], seconds: float) -> Answer:
        return self._shared.run(operation, args, seconds)


class FileStore(Store):
    """A store in a file, which all processes see. Where ``world_size`` is given, the file is removed once so many of its stores are
    gone, and all; one that was there before them is emptied, for whoever made it."""

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        self.path = os.fspath(file_name)
        is_new = b"%d" % _made(self.path)
        _in_file(self.path, lambda table: table.run("add", [HERE.encode(), b"1"]) and table.run("add", [MADE.encode(), is_new]))
        if world_size > 0:
            weakref.finalize(self, _leave, self.path, world_size)

    def _do(self, operation: str, args: Sequence[bytes], seconds: float) -> Answer:
        end = time.monotonic() + seconds
        while (answer := _in_file(self.path, lambda table: table.run(operation, args))) is None and time.monotonic() < end:
            time.sleep(PAUSE)
        return answer

    def list_keys(self) -> List[str]:
        """All keys."""
        return [key for key in super().list_keys() if key not in (LEFT, HERE, MADE)]

    def num_keys(self) -> int:
        """The number of keys."""
        return len(self.list_keys())


HERE, LEFT, MADE = "\0here", "\0left", "\0made"  # the keys of a file that count the stores which are there, are gone, and made the file
PLACE = struct.Struct("<QQ")  # the beginning of a file: where what holds begins, and its length


def _made(path: str) -> bool:
    """Whether there was no such file before."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
    except FileExistsError:
        return False
    return True


def _leave(path: str, world_size: int) -> None:
    def count(table: Table) -> Answer:
        here, left, made = (int((table.run("add", [key.encode(), n]) or [])[0]) for key, n in ((HERE, b"-1"), (LEFT, b"1"), (MADE, b"0")))
        is_last = here == 0 and left >= world_size
        if is_last:
            table.values.clear()
            table.queues.clear()
        return [b"%d" % (is_last and made)]

    with contextlib.suppress(OSError):
        if os.path.exists(path) and _in_file(path, count) == [b"1"]:
            os.unlink(path)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[Any]:
    """The file, open for this process alone."""
    import fcntl

    with os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR, 0o666), "r+b") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield f


def _read(file: Any) -> Tuple[int, bytes]:
    """What holds in a file, and where it begins there."""
    data = file.read()
    begin, length = PLACE.unpack_from(data) if len(data) >= PLACE.size else (0, 0)
    return (begin, data[begin:begin + length]) if PLACE.size <= begin <= len(data) - length else (PLACE.size, b"")


def _write(file: Any, begin: int, before: bytes, data: bytes) -> None:
    """What holds from now on. What held before stays until it is there: a process that is killed here leaves the one or the other."""
    at = PLACE.size if PLACE.size + len(data) <= begin else begin + len(before)
    for where, part in ((at, data), (0, PLACE.pack(at, len(data)))):
        file.seek(where)
        file.write(part)
        file.flush()
    file.truncate(at + len(data) if data else 0)


def _in_file(path: str, f: Callable[[Table], Answer]) -> Answer:
    """What ``f`` answers of the table in the file, which it may change."""
    with _locked(path) as file:
        table, (begin, data) = Table(), _read(file)
        for kind, key, value in zip(*[iter(fields(data))] * 3):
            if kind == b"v":
                table.values[key] = value
            else:
                table.do_push(key, value)
        answer = f(table)
        rows = [(b"v", *item) for item in table.values.items()] + [(b"q", key, value) for key, queue in table.queues.items() for value in queue]
        changed = joined([x for row in rows for x in row])
        if changed != data:
            _write(file, begin, data, changed)
    return answer


def joined(values: Sequence[bytes]) -> bytes:
    """Values in a row, each after its length."""
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def fields(data: bytes) -> List[bytes]:
    """The values of ``joined``."""
    found, at = [], 0
    while at + 4 <= len(data):
        length = struct.unpack_from("<I", data, at)[0]
        found.append(data[at + 4:at + 4 + length])
        at += 4 + length
    return found


class PrefixStore(Store):
    """Another store, with ``prefix`` and a slash before each key."""

    def __init__(self, prefix: str, store: Store) -> None:
        if not isinstance(store, Store):
            raise TypeError(f"PrefixStore: `store` must be a Store, got {type(store).__name__}")
        self._prefix, self.underlying_store = as_bytes("PrefixStore", "prefix", prefix) + b"/", store

    @property
    def timeout(self) -> timedelta:  # type: ignore[override]
        """The store's."""
        return self.underlying_store.timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Of the store."""
        self.underlying_store.set_timeout(timeout)

    def list_keys(self) -> List[str]:
        """The store's keys with this prefix, without it."""
        prefix = self._prefix.decode()
        return [key[len(prefix):] for key in self.underlying_store.list_keys() if key.startswith(prefix)]

    def num_keys(self) -> int:
        """The number of keys of the store, with any prefix."""
        return self.underlying_store.num_keys()

    def _do(self, operation: str, args: Sequence[bytes], seconds: float) -> Answer:
        keys = {"set": slice(0, None, 2), "get": slice(None), "wait": slice(None), "check": slice(None)}.get(operation, slice(0, 1))
        args = list(args)
        args[keys] = [self._prefix + key for key in args[keys]]
        return self.underlying_store._do(operation, args, seconds)
