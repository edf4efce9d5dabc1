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
    Known("two numbers make a 0-d tensor, where torch wants a tensor among them", lambda d: d.way == "error" and "(int, int)" in d.torch and d.ampc == "no exception"),
    Known("torch's Bessel functions have 7 digits in float64; ampc's have 15 (tests/test_special.py)",
          lambda d: d.operator in ("special.bessel_j0", "special.bessel_j1", "special.bessel_y0", "special.bessel_y1") and d.kind == "value"),
    Known("torch's trigamma, which is digamma's derivative, has 9 digits in float64 and 5 in float32; ampc's has all (tests/test_special.py)",
          lambda d: (d.operator == "digamma" and "gradient" in d.way or "polygamma" in d.operator) and d.dtype in ("float32", "float64") and d.kind == "value"),
    Known("trigamma is infinite at 0, -1, -2 ...; torch gives what rounding leaves of it", lambda d: "polygamma" in d.operator and d.kind == "value" and re.search(r"e\+|\d{9}", d.torch) is not None and d.ampc.endswith(" inf")),
    Known("ndtr keeps its digits far below 0, where torch's is rounded to 0", lambda d: d.operator == "special.ndtr" and d.kind == "value"),
]


def explained(d: Difference) -> Optional[str]:
    return next((k.reason for k in KNOWN if k.holds(d)), None)


def still_open() -> Set[str]:
    """Entries of the database that differ without a reason: to be mended. Each line of open.txt is one."""
    return set((Path(__file__).parent / "open.txt").read_text().split("\n")) - {""}
