"""Tells whether a training diverges, by numbers that grow from step to step."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import List, Optional, Tuple

TENFOLD = 10.0


def growth(values: List[float], rising: bool = True) -> Optional[Tuple[float, float, int]]:
    """From what to what the last values have grown, at least tenfold, and within how many steps; None where they have not.

    ``rising`` also takes few values for growth: three in a row that rise, two if there are no others, or one that is a hundredfold of all
    before. Losses are equal after a skipped step, which counts as one."""
    finite = [v for v in values if math.isfinite(v)]
    if len(finite) >= 6:
        early, late = statistics.median(finite[:-3]), statistics.median(finite[-3:])
        if early > 0 and late > TENFOLD * early:
            return early, late, len(finite)
    return _rise([v for v, _ in itertools.groupby(finite)]) if rising else None


def _rise(values: List[float]) -> Optional[Tuple[float, float, int]]:
    if len(values) < 2 or values[-1] <= TENFOLD * max(statistics.median(values[:-1]), 0):
        return None
    tail = len(values) - 1
    while tail and values[tail - 1] < values[tail]:
        tail -= 1
    many = len(values) - tail
    long = many >= 3 or many == len(values) or values[-1] > TENFOLD**2 * max(values[:-1])
    return (values[tail], values[-1], many) if long and values[-1] == max(values) and values[-1] > TENFOLD * values[tail] > 0 else None
