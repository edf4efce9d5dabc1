"""The handle that removes a hook."""

from __future__ import annotations

import itertools
from typing import Any, Dict

_numbers = itertools.count()


class RemovableHandle:
    """Returned by every ``register_*hook``; ``remove()`` takes the hook off. Also a context manager. Hooks live on without their handle,
    so each has a number of its own as its key."""

    def __init__(self, hooks: Dict[int, Any], entry: Any) -> None:
        self._hooks, self.id = hooks, next(_numbers)
        while self.id in hooks:  # of a module that came from another process
            self.id = next(_numbers)
        hooks[self.id] = entry

    def remove(self) -> None:
        """Takes the hook off; a second call does nothing."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()
