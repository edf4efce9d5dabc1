"""The handle that removes a hook."""

from __future__ import annotations

import itertools
from typing import Any, Callable, List, MutableMapping, Optional, Tuple, Union

_numbers = itertools.count()
_NOTHING = object()


class RemovableHandle:
    """Returned by every ``register_*hook``; ``remove()`` takes the hook off. Also a context manager. Hooks live on without their handle,
    so each has a number of its own as its key, ``id``.

    Args:
        hooks_dict: where the hook is kept by its number.
        entry: what is put there; without it the caller puts the hook there.
        prepend: whether it comes before the others there.
        extra_dict: further dicts, one or a list, that ``remove()`` takes the number from; with ``entry``, True is put into each.
    """

    def __init__(self, hooks_dict: Any, entry: Any = _NOTHING, *, prepend: bool = False,
                 extra_dict: Optional[Union[MutableMapping[int, Any], List[Any]]] = None) -> None:
        self._hooks, self.id = hooks_dict, next(_numbers)
        self._further = extra_dict if isinstance(extra_dict, list) else [] if extra_dict is None else [extra_dict]
        while self.id in hooks_dict:  # of a module that came from another process
            self.id = next(_numbers)
        if entry is _NOTHING:
            return
        hooks_dict[self.id] = entry
        if prepend:
            hooks_dict.move_to_end(self.id, last=False)
        for further in self._further:
            further[self.id] = True

    @property
    def hooks_dict_ref(self) -> Callable[[], Any]:
        """A function that gives the dict where the hook is kept, as torch's weak reference does."""
        return lambda: self._hooks

    @property
    def extra_dict_ref(self) -> Tuple[Callable[[], Any], ...]:
        """hooks_dict_ref for each of the further dicts."""
        return tuple(lambda further=further: further for further in self._further)

    def remove(self) -> None:
        """Takes the hook off; a second call does nothing."""
        for hooks in (self._hooks, *self._further):
            hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()
