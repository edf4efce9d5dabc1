"""The classes and functions of other modules that ``load`` may use without ``weights_only=False``."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

Global = Any  # a class or function, or a pair of it and its name
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
        package, dot, rest = name.partition(".")
        if package in ("ampc", "torch"):
            found["ampc" + dot + rest] = found["torch" + dot + rest] = target
    return found
