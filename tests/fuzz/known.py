"""Differences that stay, each with its reason. A difference that none of these describes is an error."""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional

from .running import Difference


class Known(NamedTuple):
    reason: str
    fits: Callable[[Difference], bool]


KNOWN: List[Known] = []


def explanation(d: Difference) -> Optional[str]:
    return next((k.reason for k in KNOWN if k.fits(d)), None)
