"""A handle to take a hook off again."""

from __future__ import annotations

from typing import Any


class RemovableHandle:
    """Returned by every ``register_*hook``; ``remove()`` takes the hook off. Also a context manager."""

    def __init__(self, hooks: Any, entry: Any) -> None:
        self._hooks, self._entry = hooks, entry
        if isinstance(hooks, dict):
            hooks[id(self)] = entry
        else:
            hooks.append(entry)

    def remove(self) -> None:
        """Takes the hook off; a second call does nothing."""
        if isinstance(self._hooks, dict):
            self._hooks.pop(id(self), None)
            return
        for i, entry in enumerate(self._hooks):
            if entry is self._entry:
                del self._hooks[i]
                return

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()
