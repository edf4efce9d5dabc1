"""Limits on what a file may request when it is loaded: depth of nesting, total size, length of keys."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Dict, Iterable, List, Optional, Tuple

from .._C import Tensor

DEPTH = 100  # how deep containers may be nested, for `save` and `load`
SPARE = 1_000_000  # how many more values than bytes a file may have
ALIKE = 16  # how many keys of one container may have the same hash; only a hostile file has more


class EmptyFile(EOFError, RuntimeError):
    """A file without a byte: an EOFError, as torch has it, and the RuntimeError of all damaged files."""


class UnknownFormat(pickle.UnpicklingError, RuntimeError):
    """A file of another kind: as torch has it, and the RuntimeError of all files that cannot be read."""


def _told(name: str, error: Exception) -> str:
    """Python's messages may quote a whole file."""
    text = str(error)
    return f"load: {name} is damaged: {type(error).__name__}: {text if len(text) < 300 else text[:300] + '...'}"


@contextmanager
def damage(name: str, mapper: Any) -> Iterator[None]:
    """Turns any exception while a file is parsed into a RuntimeError, except one from the caller's ``map_location``."""
    try:
        yield
    except (RuntimeError, MemoryError, pickle.UnpicklingError) as error:
        if type(error) in (RuntimeError, MemoryError, pickle.UnpicklingError, EmptyFile, UnknownFormat) or error is mapper.failed:
            raise
        raise RuntimeError(_told(name, error)) from error
    except Exception as error:
        if error is mapper.failed:
            raise
        raise RuntimeError(_told(name, error)) from error


def brief(value: Any) -> str:
    """Text for a value from a file, for a message: never long, and never a structure, which could be endless."""
    if value is None or isinstance(value, (bool, float)):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if value.bit_length() <= 64 else f"an int of {value.bit_length()} bits"
    if isinstance(value, str):
        return repr(value if len(value) <= 80 else value[:80] + "...")
    return f"a {type(value).__name__}"


class Keys:
    """Counts the keys of one dict or set by their hashes, so that a hostile file cannot make many keys collide."""

    __slots__ = ("hashes",)

    def __init__(self) -> None:
        self.hashes: Dict[int, int] = {}

    def check(self, key: Any) -> Any:
        if isinstance(key, (str, bytes, Tensor)):  # hashed with a secret, or by address
            return key
        n = self.hashes[hash(key)] = self.hashes.get(hash(key), 0) + 1
        if n > ALIKE:
            raise ValueError(f"more than {ALIKE} keys of one container have the same hash")
        return key


def checked_keys(keys: Iterable[Any]) -> List[Any]:
    check = Keys().check
    return [check(k) for k in keys]


def checked_pairs(pairs: Any) -> List[Tuple[Any, Any]]:
    """Pairs of key and value for a dict."""
    if not isinstance(pairs, (list, tuple)) or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in pairs):
        raise TypeError(f"expected pairs of a key and a value, found {brief(pairs)}")
    check = Keys().check
    return [(check(k), v) for k, v in pairs]


class Name:
    """A name in a pickle. It is never imported."""

    def __init__(self, module: str, name: str) -> None:
        self.full = f"{module}.{name}"[:100]  # no name that is known is as long
        self.module, self.name = module, name

    def __repr__(self) -> str:
        return self.full


class Facts:
    """The depth of a container, the number of its values (shared parts count each time), and a pickle's name among them."""

    __slots__ = ("keys", "name", "nested", "placed", "value", "weight")

    def __init__(self, value: Any) -> None:
        self.value = value  # kept, so that its id is its own
        self.nested, self.weight, self.placed = 1, 1, False
        self.name: Optional[Name] = None
        self.keys: Optional[Keys] = None


class Ledger:
    """The containers that a pickle makes. Each is filled before it is put into another, so none contains itself. Its depth and size are
    known at that moment; shared parts count each time."""

    def __init__(self, limit: int) -> None:
        self.limit, self.work = limit, 0
        self.facts: Dict[int, Facts] = {}

    def new(self, value: Any, parts: Iterable[Any] = ()) -> Any:
        """``value``, a fresh container of ``parts``."""
        self.facts[id(value)] = Facts(value)
        self.add(value, parts)
        return value

    def add(self, target: Any, parts: Iterable[Any]) -> None:
        """Checks ``parts`` before they are added to ``target``."""
        into = self.facts[id(target)]
        for part in parts:
            facts = self.facts.get(id(part))
            if facts is None:
                into.weight += 1
                into.name = part if isinstance(part, Name) else into.name
                continue
            facts.placed = True
            into.weight += facts.weight
            into.nested = max(into.nested, facts.nested + 1)
            into.name = into.name or facts.name
        if into.placed:
            raise ValueError("a container is filled after it was put into another, or contains itself")
        if into.nested > DEPTH:
            raise ValueError(f"more than {DEPTH} containers within each other")
        if into.weight > self.limit:
            raise ValueError("its parts are shared so often that they are endless when written out")

    def name_in(self, value: Any) -> Optional[Name]:
        """The pickle's name that ``value`` is or contains, if any."""
        facts = self.facts.get(id(value))
        return value if isinstance(value, Name) else facts.name if facts is not None else None

    def charge(self, key: Any) -> None:
        """Counts the work of hashing ``key``, which grows with its size."""
        facts = self.facts.get(id(key))
        if facts is not None:
            self.work += facts.weight
            if self.work > self.limit:
                raise ValueError("its keys take too long")

    def key(self, target: Any, key: Any) -> None:
        """Checks ``key`` before it is added to ``target``."""
        self.charge(key)
        facts = self.facts[id(target)]
        facts.keys = facts.keys or Keys()
        facts.keys.check(key)
