"""The handle that removes a hook."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, Dict

_numbers = itertools.count()


class RemovableHandle:
    """Returned by every ``register_*hook``; ``remove()`` takes the hook off. Also a context manager. Hooks live on without their handle,
    so each has a number of its own as its key."""

    def __init__(self, hooks: Dict[int, Any], entry: Any, marks: Iterable[Dict[int, bool]] = ()) -> None:
        """``marks``: where the hook's number is noted, too: those that are called in another way."""
        self._hooks, self._marks, self.id = hooks, tuple(marks), next(_numbers)
        while self.id in hooks:  # of a module that came from another process
            self.id = next(_numbers)
        hooks[self.id] = entry
        for mark in self._marks:
            mark[self.id] = True

    def remove(self) -> None:
        """Takes the hook off; a second call does nothing."""
        for hooks in (self._hooks, *self._marks):
            hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()
