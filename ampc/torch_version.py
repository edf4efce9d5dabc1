"""A version that compares by its numbers, as torch's ``__version__`` does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Optional, Tuple

__all__ = ["TorchVersion"]

_FORM = re.compile(r"""\s* v? (?P<release>\d+(\.\d+)*)
    ([-_.]? (?P<pre>a|b|c|rc|alpha|beta|pre|preview) [-_.]? (?P<pre_n>\d*))?
    ([-_.]? (?P<post>post|rev|r) [-_.]? (?P<post_n>\d*))?
    ([-_.]? (?P<dev>dev) [-_.]? (?P<dev_n>\d*))?
    (\+ (?P<local>[a-z0-9]+([-_.][a-z0-9]+)*))? \s*""", re.IGNORECASE | re.VERBOSE)
_FINAL = float("inf")  # above every number of a development or pre-release


def _place(version: Any) -> Optional[Tuple[Any, ...]]:
    """Where a version stands among all, by the order of Python's packages (PEP 440). None for what is no version."""
    if not isinstance(version, str) and isinstance(version, Iterable):
        version = ".".join(map(str, version))
    found = _FORM.fullmatch(str(version)) if isinstance(version, str) or hasattr(version, "release") else None
    if found is None:
        return None
    numbers = [int(n) for n in found["release"].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    pre, post, dev = (int(found[part + "_n"] or 0) if found[part] else None for part in ("pre", "post", "dev"))
    if found["pre"]:
        stage: float = {"a": 0, "b": 1}.get(found["pre"][0].lower(), 2)
    else:
        stage = -1 if dev is not None and post is None else _FINAL
    local = [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split("[-_.]", (found["local"] or "").lower()) if part]
    return numbers, stage, pre or 0, -1 if post is None else post, _FINAL if dev is None else dev, local


def _compared(name: str) -> Callable[[Any, Any], Any]:
    def compare(self: str, other: Any) -> Any:
        mine, theirs = _place(self), _place(other)
        if mine is None or theirs is None:
            return getattr(str, name)(self, other)
        return getattr(tuple, name)(mine, theirs)

    compare.__name__ = name
    return compare


class TorchVersion(str):
    """A version as text that compares with texts, tuples of numbers and ``packaging``'s versions, number by number: '2.13.0' is above '2.4' and
    (2, 4). Beside what is no version it compares as text."""

    __slots__ = ()
    __hash__ = str.__hash__
    __lt__, __le__, __gt__, __ge__, __eq__, __ne__ = (_compared(name) for name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"))
