"""What looks at operators has in common."""

from __future__ import annotations

from typing import Any, TypeVar

from .. import _C

W = TypeVar("W", bound="Watcher")


class Watcher:
    """A context in which ``_saw`` is called with every operator of this thread that has run, forward and backward. Of several, one in the
    other, the inner one sees them."""

    _outer: Any = None

    def __enter__(self: W) -> W:
        self._outer = _C._watch(self._saw)
        return self

    def __exit__(self, *exc: object) -> None:
        _C._watch(self._outer)

    def _saw(self, op: str, inputs: tuple, outputs: tuple, low: Any, onto: bool, nanoseconds: int) -> None:
        raise NotImplementedError
