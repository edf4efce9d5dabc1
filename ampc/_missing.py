"""What a module says of a name that it does not have: a name of torch that libraries touch is made from the table of ``_library_names``, and
any other is an error that says where the names are listed."""

from __future__ import annotations

import sys
from typing import Any, Callable

_DUNDER = ("__config__",)  # all that the table is asked for of such names
WHERE = "docs/compatibility/names.md lists which of torch's names are here"


def absent_from(module: str) -> Callable[[str], Any]:
    """A module's ``__getattr__``."""
    def get(name: str) -> Any:
        if name in _DUNDER or not (name.startswith("__") and name.endswith("__")):
            from ._library_modules import NOTHING, lookup  # not `from .`: that would ask here for the module

            found = lookup(module, name)
            if found is not NOTHING:
                return found
        raise AttributeError(f"module {module!r} has no attribute {name!r}" + ("" if name.startswith("_") else f"; {WHERE}"))

    return get


class Finder:
    """Finds the modules of the table, after Python's own finders have found no file."""

    @staticmethod
    def find_spec(fullname: str, path: Any = None, target: Any = None) -> Any:
        """The spec of a module ``ampc.x`` that the table has; None for every other."""
        if not fullname.startswith("ampc."):
            return None
        from ._library_modules import spec_of

        return spec_of(fullname, absent_from)


sys.meta_path.append(Finder)
