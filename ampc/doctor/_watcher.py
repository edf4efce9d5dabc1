"""The common base of classes that observe operators as they run."""

from __future__ import annotations

from typing import Any

from .. import _C


class Watcher(_C.Scope):
    """A context in which ``_saw`` is called with every operator of this thread that has run, forward and backward. Of nested contexts, the
    innermost one is called."""

    def _changes(self) -> tuple:
        return (self._begins, (), self._ends, ()), (_C._watch, (self._callback(),), _C._watch, (_C._watcher(),))

    def _callback(self) -> Any:
        """What _C._watch is given."""
        return self._saw

    def _begins(self) -> None:
        """Called before observation begins."""

    def _ends(self) -> None:
        """Called when observation has ended."""

    def _saw(self, op: str, inputs: tuple, outputs: tuple, low: Any, onto: bool, nanoseconds: int) -> None:
        raise NotImplementedError
