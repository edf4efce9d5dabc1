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
            self._kept.append(Mark(t.detach(), begin, begin + t.numel() * t.element_size(), location, what))

    def of(self, t: Any) -> Optional[Mark]:
        """A tensor's mark."""
        at = _C._address(t)
        return next((m for m in reversed(self._kept) if m.begin <= at < m.past), None)

    def among(self, inputs: Iterable[Any]) -> Tuple[Mark, ...]:
        """The marks of an operator's inputs."""
        found = [self.of(t) for t in inputs if t is not None]
        return tuple(m for m in found if m is not None)

    def take_off(self, t: Any) -> None:
        """The tensor was written over."""
        at = _C._address(t)
        self._kept = deque((m for m in self._kept if not m.begin <= at < m.past), maxlen=MOST)

    def clear(self) -> None:
        """Forgets all."""
        self._kept.clear()
