"""What a module says of a name that it does not have: a name of torch that libraries touch is made from the table of ``table``, and
any other is an error that says where the names are listed."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Iterable, Optional, Tuple

_DUNDER = ("__config__",)  # all that the table is asked for of such names
WHERE = "docs/compatibility/names.md lists which of torch's names are here"


SPACES = ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.linalg")  # where a name may be that is looked for elsewhere


def closest(name: str, names: Iterable[str], likeness: float = 0.75) -> Optional[str]:
    """The one of the names that is most like ``name``; None where none is."""
    import difflib

    close = difflib.get_close_matches(name, [n for n in names if not n.startswith("_")], 1, likeness)
    return close[0] if close else None


def nearest(where: str, names: Iterable[str], name: str) -> Optional[str]:
    """Of a missing ``torch.where.name``: the name most like it among those that are there, else one of the same name elsewhere."""
    close = closest(name, names)
    if close is not None:
        return f"{where}.{close}"
    spaces = ((other, sys.modules.get("ampc" + other[len("torch"):])) for other in SPACES if other != where)
    return next((f"{other}.{name}" for other, module in spaces if module is not None and name in dir(module)), None)


def proposal(near: Optional[str]) -> str:
    """The end of a message about a missing name."""
    return f"; the nearest that is: {near}" if near else ""


@functools.lru_cache(1024)  # libraries ask `hasattr(torch, ...)` often
def _proposal_for(module: str, name: str) -> str:
    there: Tuple[str, ...] = tuple(dir(sys.modules[module])) if module in sys.modules else ()
    return proposal(nearest("torch" + module[len("ampc"):], there, name))


def absent_from(module: str) -> Callable[[str], Any]:
    """A module's ``__getattr__``."""
    def get(name: str) -> Any:
        if name in _DUNDER or not (name.startswith("__") and name.endswith("__")):
            from .modules import NOTHING, lookup  # not `from .`: that would ask here for the module

            found = lookup(module, name)
            if found is not NOTHING:
                return found
        more = "" if name.startswith("_") else f"{_proposal_for(module, name)}; {WHERE}"
        raise AttributeError(f"module {module!r} has no attribute {name!r}{more}")

    return get


class Finder:
    """Finds the modules of the table, after Python's own finders have found no file."""

    @staticmethod
    def find_spec(fullname: str, path: Any = None, target: Any = None) -> Any:
        """The spec of a module ``ampc.x`` that the table has; None for every other."""
        if not fullname.startswith("ampc."):
            return None
        from .modules import spec_of

        return spec_of(fullname, absent_from)


sys.meta_path.append(Finder)
