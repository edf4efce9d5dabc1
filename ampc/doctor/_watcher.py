"""The common base of classes that observe operators as they run."""

from __future__ import annotations

from typing import Any

from .. import _C


class Watcher(_C.Scope):
    """A context in which ``_saw`` is called with every operator of this thread that has run, forward and backward. Of several, one in the
    other, the inner one sees them."""

    def _changes(self) -> tuple:
        self._begins()
        return (None, (), self._ends, ()), (_C._watch, (self._saw,), _C._watch, (_C._watcher(),))

    def _begins(self) -> None:
        """Before it looks."""

    def _ends(self) -> None:
        """When it has stopped looking."""

    def _saw(self, op: str, inputs: tuple, outputs: tuple, low: Any, onto: bool, nanoseconds: int) -> None:
        raise NotImplementedError
