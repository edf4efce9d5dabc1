"""Where ampc differs from torch on purpose, by torch's own samples; and what is still open."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Callable, List, NamedTuple, Optional, Set

from .running import Difference


class Known(NamedTuple):
    reason: str
    holds: Callable[[Difference], bool]


def told(pattern: str) -> Callable[[Difference], bool]:
    """ampc's message fits."""
    return lambda d: re.search(pattern, d.ampc) is not None


KNOWN: List[Known] = [
    Known("has a derivative where torch has none", lambda d: "gradient" in d.way and re.search("derivative for .* is not implemented", d.torch) is not None and d.ampc == "no exception"),
]


def explained(d: Difference) -> Optional[str]:
    return next((k.reason for k in KNOWN if k.holds(d)), None)


def still_open() -> Set[str]:
    """Entries of the database that differ without a reason: to be mended. Each line of open.txt is one."""
    return set((Path(__file__).parent / "open.txt").read_text().split("\n")) - {""}
