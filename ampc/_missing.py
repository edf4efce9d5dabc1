"""What a module says of a name that it does not have."""

from __future__ import annotations

from typing import Any, Callable

WHERE = "docs/compatibility.md lists which of torch's names are here"


def absent_from(module: str) -> Callable[[str], Any]:
    """A module's ``__getattr__``, whose error says where the names are listed."""
    def get(name: str) -> Any:
        raise AttributeError(f"module {module!r} has no attribute {name!r}" + ("" if name.startswith("_") else f"; {WHERE}"))

    return get
