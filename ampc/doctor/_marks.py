"""Marks on tensors: what is known of their values beyond the values themselves, such as that they were rounded where it matters later."""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Iterable, List, NamedTuple, Optional, Tuple

from .. import _C
from ._finding import Location

MOST, LARGEST = 32, 2**24  # marked tensors, and elements of one


class Mark(NamedTuple):
    """A marked tensor."""

    tensor: Any  # kept, so that its memory is no other tensor's
    begin: int
    past: int  # behind the last byte
    location: Location  # of the line that a report names
    what: Any  # a rule's own
    version: int  # of the tensor, as it was marked


class Marks:
    """Those of one rule, the newest last. A view of a marked tensor is marked, too. ``followed``: see Values."""

    def __init__(self, followed: List[Any]) -> None:
        self._followed = followed
        self._kept: Deque[Mark] = deque(maxlen=MOST)

    def __bool__(self) -> bool:
        return bool(self._kept)

    def add(self, t: Any, location: Location, what: Any) -> None:
        """Marks a tensor."""
        if 0 < t.numel() <= LARGEST and t.is_contiguous() and not t.is_meta:
            begin = _C._address(t)
            self._followed[:] = self._followed or [self]
            self._kept.append(Mark(t.detach(), begin, begin + t.numel() * t.element_size(), location, what, t._version))

    def of(self, t: Any, writes: int = 0) -> Optional[Mark]:
        """A tensor's mark, unless its memory was written since, but for so many writes."""
        at = _C._address(t)
        found = next((m for m in reversed(self._kept) if m.begin <= at < m.past), None)
        return found if found is not None and found.tensor._version <= found.version + writes else None

    def among(self, inputs: Iterable[Any], onto: bool = False) -> Tuple[Mark, ...]:
        """The marks of an operator's inputs; ``onto``: it has written onto the first of them."""
        found = [self.of(t, int(onto and i == 0)) for i, t in enumerate(inputs) if t is not None]
        return tuple(m for m in found if m is not None)

    def take_off(self, t: Any) -> None:
        """The tensor was written over."""
        at = _C._address(t)
        self._kept = deque((m for m in self._kept if not m.begin <= at < m.past), maxlen=MOST)

    def clear(self) -> None:
        """Forgets all."""
        self._kept.clear()
