"""Whether this machine's kernels are right: each against float64, at sizes on either side of every border between two ways through it,
at those of networks, and at random ones. The command is ``ampc selftest``."""

from __future__ import annotations

import itertools
import time
import warnings
from typing import Dict, Iterator, List, Tuple

import ampc

from .._progress import Progress
from .cases import CASES, GPU_CASES
from .drawing import draw_case
from .report import Report
from .running import Case, Result, run_case


def _fixed(device: str, seed: int) -> List[Tuple[Case, str, int]]:
    cases = CASES if device == "cpu" else GPU_CASES
    return [(case, dtype, seed) for case in cases for dtype in case.dtypes]


def _drawn(device: str, seed: int) -> Iterator[Tuple[Case, str, int]]:
    """Cases of random sizes, without end."""
    known: Dict[str, Tuple[str, ...]] = {}
    for case in CASES if device == "cpu" else ():
        kernel = case.kernel.split(",")[0]
        known[kernel] = tuple(dict.fromkeys((*known.get(kernel, ()), *case.ways)))
    while True:
        seed += 1
        yield (*draw_case(seed, known, device), seed)


def selftest(device: str = "cpu", seconds: float = 0.0, seed: int = 0, draws: int = 200, progress: bool = False) -> Report:
    """Runs every case that this machine's facts choose, then random sizes; Ctrl-C ends it with what was found so far.

    Args:
        device: 'cpu' or 'cuda'.
        draws: how many random sizes; ``seconds``, where it is not 0, says for how long instead.
        seed: of the numbers, and of the sizes that are drawn; the same one gives the same trials.
        progress: shows a bar to those who watch."""
    begin = time.monotonic()
    report = Report(device, seed, ampc._C._machine())
    fixed, drawn = _fixed(device, seed), _drawn(device, seed)
    some = itertools.takewhile(lambda _: time.monotonic() - begin < seconds, drawn) if seconds else itertools.islice(drawn, draws)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of mixed precision that is of no use on this machine
        try:
            for case, dtype, own in Progress(itertools.chain(fixed, some), "selftest", None if seconds else len(fixed) + draws, progress):
                report.results += run_case(case, dtype, own, device)
        except KeyboardInterrupt:
            report.interrupted = True
    report.seconds = time.monotonic() - begin
    return report


__all__ = ["CASES", "Case", "Report", "Result", "run_case", "selftest"]
