"""Compares this machine's kernels with float64: the command ``ampc selftest``.

Sizes are those of networks, random ones, and those on both sides of each border at which a kernel changes its algorithm."""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import time
import warnings
from typing import Any, Dict, Iterator, List, Tuple

import ampc

from .._messages.progress import Progress
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


def check_arguments(device: str = "cpu", seconds: float = 0.0, seed: int = 0, draws: int = 200) -> None:
    """What ``selftest`` raises for arguments that it cannot take."""
    if device not in ("cpu", "cuda"):
        raise ValueError(f"selftest: device must be 'cpu' or 'cuda', got {device!r}")
    if not (seconds >= 0 and math.isfinite(seconds)):
        raise ValueError(f"selftest: seconds must be 0 or more, and finite, got {seconds:g}")
    for name, number in (("seed", seed), ("draws", draws)):
        if operator.index(number) < 0:
            raise ValueError(f"selftest: {name} must be 0 or more, got {number}")
    if device == "cuda" and not ampc.cuda.is_available():
        raise RuntimeError("selftest: no GPU can be used; `ampc info` says what is missing")


def _for(seconds: float, drawn: Iterator[Any]) -> Iterator[Any]:
    end = time.monotonic() + seconds  # the clock starts where the first is asked for
    while time.monotonic() < end:
        yield next(drawn)


def _name(trial: Tuple[Case, str, int]) -> str:
    case, dtype, seed = trial
    kernel = case.kernel.replace(", drawn", "")
    return f"{'random sizes, ' if kernel != case.kernel else ''}{kernel}, {dtype}, seed {seed}"


@contextlib.contextmanager
def _without_tf32() -> Iterator[None]:
    """The bounds are those of float32: a script may have allowed its products less."""
    before = ampc._C._cuda_allow_tf32(), ampc._C._cuda_convolution_tf32()
    ampc._C._cuda_allow_tf32(False)
    ampc._C._cuda_convolution_tf32(False)
    try:
        yield
    finally:
        ampc._C._cuda_allow_tf32(before[0])
        ampc._C._cuda_convolution_tf32(before[1])


def selftest(device: str = "cpu", seconds: float = 0.0, seed: int = 0, draws: int = 200, progress: bool = False) -> Report:
    """Runs every case that this machine's facts choose, then random sizes. Ctrl-C, or a lack of memory, ends it with what was found so far.

    Args:
        device: 'cpu' or 'cuda'.
        draws: how many random sizes.
        seconds: for how long random sizes go on after those.
        seed: of the numbers, and of the sizes that are drawn; the same one gives the same trials.
        progress: shows on standard error what is tested.

    ValueError for a device that is neither, and for numbers below 0; TypeError for what is no number; RuntimeError where no GPU can be used."""
    check_arguments(device, seconds, seed, draws)
    begin = time.monotonic()
    report = Report(device, seed, ampc._C._machine())
    fixed, drawn = _fixed(device, seed), _drawn(device, seed)
    trials = itertools.chain(fixed, itertools.islice(drawn, draws), _for(seconds, drawn))
    with _without_tf32(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of mixed precision that is of no use on this machine
        try:
            for case, dtype, own in Progress(trials, "selftest", None if seconds else len(fixed) + draws, progress, _name):
                report.results += run_case(case, dtype, own, device)
        except KeyboardInterrupt:
            report.interrupted = True
        except (MemoryError, ampc.OutOfMemoryError) as error:
            report.failure = f"memory ran out: {error}" if str(error) else "memory ran out"
    report.seconds = time.monotonic() - begin
    return report


__all__ = ["CASES", "Case", "Report", "Result", "check_arguments", "run_case", "selftest"]
