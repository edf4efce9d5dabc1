"""The classes and functions of other modules that ``load`` may use without ``weights_only=False``."""

from __future__ import annotations

import pickle
from typing import Any, Callable, Dict, List, Sequence, Tuple, Union

Global = Union[Callable[..., Any], Tuple[Callable[..., Any], str]]
_CONTAINERS = ("set", "frozenset", "complex", "bytearray")
_BUILTIN = {"collections.OrderedDict", "_codecs.encode", *(f"{m}.{n}" for m in ("builtins", "__builtin__") for n in _CONTAINERS)}
_allowed: List[Global] = []


def add_safe_globals(safe_globals: Sequence[Global]) -> None:
    """Lets ``load`` make objects of these classes and call these functions when a file asks for them: for classes whose files you trust. One
    may be a pair of it and the full name that the file has for it."""
    _allowed.extend(safe_globals)


def get_safe_globals() -> List[Global]:
    """What add_safe_globals was given so far."""
    return list(_allowed)


def clear_safe_globals() -> None:
    """Forgets all of them."""
    _allowed.clear()


class safe_globals:
    """add_safe_globals within a ``with`` block."""

    def __init__(self, safe_globals: Sequence[Global]) -> None:
        self.safe_globals = safe_globals

    def __enter__(self) -> None:
        self.before = get_safe_globals()
        add_safe_globals(self.safe_globals)

    def __exit__(self, *error: Any) -> None:
        _allowed[:] = self.before


def by_name() -> Dict[str, Any]:
    """Those that are allowed, under the names that pickles have for them: ampc's under torch's, too."""
    found = {}
    for entry in _allowed:
        target, name = entry if isinstance(entry, tuple) else (entry, f"{entry.__module__}.{entry.__qualname__}")
        found[name] = target
        if name.startswith("ampc."):
            found["torch" + name[len("ampc"):]] = target
    return found


class Restricted(pickle.Unpickler):
    """Unpickles what the allowed names make, and UnpicklingError for another."""

    file = ""

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        named = by_name()
        if full in named:
            return named[full]
        if full in _BUILTIN:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"load: {self.file} asks for {full}, which is not among the safe globals. If you trust it, name it with "
                                     f"serialization.add_safe_globals([{name}])")
