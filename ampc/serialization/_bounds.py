"""Limits on what a file may request when it is loaded: depth of nesting, total size, length of keys."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Dict, Iterable, List, Optional, Tuple

from .._C import Tensor

DEPTH = 100  # containers within containers; what `save` writes and what `load` reads
SPARE = 1_000_000  # values that a file may name again and again beyond those that it holds
ALIKE = 16  # keys of one container that have one hash: honest ones differ


def _told(name: str, error: Exception) -> str:
    """Python's messages may quote a whole file."""
    text = str(error)
    return f"load: {name} is damaged: {type(error).__name__}: {text if len(text) < 300 else text[:300] + '...'}"


@contextmanager
def damage(name: str, mapper: Any) -> Iterator[None]:
    """Whatever goes wrong while a file is taken apart is a RuntimeError, but for what the caller's own ``map_location`` raises."""
    try:
        yield
    except (RuntimeError, MemoryError, pickle.UnpicklingError) as error:
        if type(error) in (RuntimeError, MemoryError, pickle.UnpicklingError) or error is mapper.failed:
            raise
        raise RuntimeError(_told(name, error)) from error
    except Exception as error:
        if error is mapper.failed:
            raise
        raise RuntimeError(_told(name, error)) from error


def brief(value: Any) -> str:
    """A value from a file as a message may show it: never long, and never a structure, which could be endless."""
    if value is None or isinstance(value, (bool, float)):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if value.bit_length() <= 64 else f"an int of {value.bit_length()} bits"
    if isinstance(value, str):
        return repr(value if len(value) <= 80 else value[:80] + "...")
    return f"a {type(value).__name__}"


class Keys:
    """The keys of one dict or set, counted by their hashes, so that no file can make them collide on purpose."""

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
    """A name that a pickle mentions; no more than that."""

    def __init__(self, module: str, name: str) -> None:
        self.full = f"{module}.{name}"[:100]  # no name that is known is as long
        self.module, self.name = module, name

    def __repr__(self) -> str:
        return self.full


class Facts:
    """How deep a container is nested, how many values it has, written out, and a name among them, if there is one."""

    __slots__ = ("keys", "name", "nested", "placed", "value", "weight")

    def __init__(self, value: Any) -> None:
        self.value = value  # kept, so that its id is its own
        self.nested, self.weight, self.placed = 1, 1, False
        self.name: Optional[Name] = None
        self.keys: Optional[Keys] = None


class Ledger:
    """The containers that a pickle makes. Each is filled before it is put into another, so nothing contains itself, and both its depth
    and its size, shared parts counted each time, are known when it is."""

    def __init__(self, limit: int) -> None:
        self.limit, self.work = limit, 0
        self.facts: Dict[int, Facts] = {}

    def new(self, value: Any, parts: Iterable[Any] = ()) -> Any:
        """``value``, a fresh container of ``parts``."""
        self.facts[id(value)] = Facts(value)
        self.add(value, parts)
        return value

    def add(self, target: Any, parts: Iterable[Any]) -> None:
        """``parts`` are about to become parts of ``target``."""
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
        """A name that ``value`` is or holds."""
        facts = self.facts.get(id(value))
        return value if isinstance(value, Name) else facts.name if facts is not None else None

    def charge(self, key: Any) -> None:
        """``key`` is about to be hashed, which takes as long as it is large."""
        facts = self.facts.get(id(key))
        if facts is not None:
            self.work += facts.weight
            if self.work > self.limit:
                raise ValueError("its keys take too long")

    def key(self, target: Any, key: Any) -> None:
        """``key`` is about to become one of ``target``."""
        self.charge(key)
        facts = self.facts[id(target)]
        facts.keys = facts.keys or Keys()
        facts.keys.check(key)
