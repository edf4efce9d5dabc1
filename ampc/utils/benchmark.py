"""Measuring statements: Timer, Measurement and Compare of torch.utils.benchmark, over the standard library's timeit."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
import statistics
import time
import timeit
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Dict, List, NamedTuple, NoReturn, Optional, Tuple

from .. import _C, cuda

__all__ = ["Compare", "Language", "Measurement", "TaskSpec", "Timer", "ordered_unique", "select_unit", "set_torch_threads", "timer", "trim_sigfig",
           "unit_to_english"]

_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


class Language(enum.Enum):
    """What statements are written in. Timer takes Python."""

    PYTHON = 0
    CPP = 1


def timer() -> float:
    """Seconds, once a GPU has done what it was given."""
    if cuda.is_available() and cuda.is_initialized():
        cuda.synchronize()
    return time.perf_counter()


@contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """A region in which operators run on that many threads."""
    before = _C.get_num_threads()
    _C.set_num_threads(n)
    try:
        yield
    finally:
        _C.set_num_threads(before)


def select_unit(t: float) -> Tuple[str, float]:
    """The unit that a time in seconds is shown in, and its size."""
    unit = next((u for u in ("s", "ms", "us") if t >= _UNITS[u]), "ns")
    return unit, _UNITS[unit]


def unit_to_english(u: str) -> str:
    """The unit's name."""
    return dict(zip(_UNITS, ("nano", "micro", "milli", "")))[u] + "second"


def trim_sigfig(x: float, n: int) -> float:
    """``x`` with ``n`` significant figures."""
    return float(f"{x:.{max(n, 1) - 1}e}")


def ordered_unique(elements: Iterable[Any]) -> List[Any]:
    """Each once, in the order of their first."""
    return list(dict.fromkeys(elements))


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """What was measured."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: Optional[str] = None
    sub_label: Optional[str] = None
    description: Optional[str] = None
    env: Optional[str] = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, and the label below it."""
        return (self.label or self.stmt) + (f": {self.sub_label}" if self.sub_label else "")

    def summarize(self) -> str:
        """A few lines of text."""
        setup = f"setup: {self.setup}\n" if self.setup not in ("", "pass") else ""
        return f"{self.title}\n" + (f"{self.description}\n" if self.description else "") + setup


@dataclasses.dataclass
class Measurement:
    """Times of a statement: ``raw_times`` are of ``number_per_run`` executions each. ``times``, ``median``, ``mean`` and ``iqr`` (the distance of the
    quartiles) are seconds of one execution."""

    number_per_run: int
    raw_times: List[float]
    task_spec: TaskSpec
    metadata: Optional[Dict[Any, Any]] = None

    @property
    def times(self) -> List[float]:
        """Seconds of one execution, of each run."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        """Their median."""
        return statistics.median(self.times)

    @property
    def mean(self) -> float:
        """Their mean."""
        return statistics.fmean(self.times)

    @property
    def iqr(self) -> float:
        """The distance of their quartiles; 0 of one run."""
        if len(self.raw_times) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return high - low

    @property
    def significant_figures(self) -> int:
        """How many figures of the median the spread of the times between their quartiles allows, 1 to 4."""
        n = len(self.raw_times)
        middle = sorted(self.times)[n // 4:-(-3 * n // 4)]
        spread = max(1.645 * statistics.pstdev(middle) / math.sqrt(len(middle)), 25e-9)
        return min(max(math.floor(math.log10(self.median / spread)), 1), 4)

    @property
    def has_warnings(self) -> bool:
        """Whether the times spread so much that they say little."""
        return not self.meets_confidence(0.25)

    def meets_confidence(self, threshold: float = 0.1) -> bool:
        """Whether the distance of the quartiles is below that part of the median."""
        return self.iqr / self.median < threshold

    @property
    def title(self) -> str:
        """What was measured."""
        return self.task_spec.title

    @property
    def env(self) -> str:
        """The environment's name."""
        return self.task_spec.env or "Unspecified env"

    @property
    def as_row_name(self) -> str:
        """The name of its row in a Compare."""
        return self.task_spec.sub_label or self.task_spec.label or self.task_spec.stmt

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> List[Measurement]:
        """One for each thing that was measured, with the times of all runs of one execution."""
        groups: Dict[TaskSpec, List[Measurement]] = {}
        for m in measurements:
            groups.setdefault(m.task_spec, []).append(m)
        return [Measurement(1, [t for m in found for t in m.times], spec) for spec, found in groups.items()]

    def __repr__(self) -> str:
        unit, size = select_unit(self.median)
        one, n = len(self.raw_times) == 1, self.number_per_run
        lines = [f"{'' if one else 'Median: '}{self.median / size:.2f} {unit}"]
        if len(self.raw_times) >= 4:
            low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
            lines.append(f"IQR:    {self.iqr / size:.2f} {unit} ({low / size:.2f} to {high / size:.2f})")
        threads = self.task_spec.num_threads
        lines.append(f"{len(self.raw_times)} measurement{'' if one else 's'}, {n} run{'s' if n > 1 else ''} {'' if one else 'per measurement'}, "
                     f"{threads} thread{'s' if threads > 1 else ''}")
        if self.has_warnings:
            lines.append(f"WARNING: the quartiles are {100 * self.iqr / self.median:.1f}% of the median apart")
        return f"<ampc.utils.benchmark.Measurement object>\n{self.task_spec.summarize()}" + "\n".join("  " + line for line in lines)


class Timer:
    """Measures a statement in Python, on ``num_threads`` threads; a GPU's work is waited for.

    Args:
        stmt, setup: the statement, and what runs once before it is timed.
        global_setup: for statements in C++ alone, which are refused.
        timer: gives the time in seconds.
        globals: the names that the statement knows.
        label, sub_label, description, env: words for the table of Compare."""

    def __init__(self, stmt: str = "pass", setup: str = "pass", global_setup: str = "", timer: Callable[[], float] = timer,
                 globals: Optional[Dict[str, Any]] = None, label: Optional[str] = None, sub_label: Optional[str] = None,
                 description: Optional[str] = None, env: Optional[str] = None, num_threads: int = 1, language: Any = Language.PYTHON) -> None:
        if language not in (Language.PYTHON, "py", "python") or global_setup:
            raise NotImplementedError("benchmark.Timer: statements in C++ are not supported; write the statement in Python")
        if not isinstance(stmt, str):
            raise ValueError(f"benchmark.Timer: `stmt` must be a str, got {type(stmt).__name__}")
        import textwrap

        stmt, setup = (textwrap.dedent(text).strip() for text in (stmt, setup))
        self._timer = timeit.Timer(stmt, setup, timer, {} if globals is None else globals)
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, num_threads)

    def _seconds(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)

    def timeit(self, number: int = 1000000) -> Measurement:
        """One run of ``number`` executions, after a hundredth of them to warm up."""
        with set_torch_threads(self._task_spec.num_threads):
            self._seconds(max(number // 100, 2))
            return Measurement(number, [self._seconds(number)], self._task_spec)

    def repeat(self, repeat: int = -1, number: int = -1) -> NoReturn:
        """NotImplementedError, as in torch: blocked_autorange repeats."""
        raise NotImplementedError("Timer.repeat: use blocked_autorange, which repeats the statement for min_run_time seconds")

    def autorange(self, callback: Optional[Callable[[int, float], Any]] = None) -> NoReturn:
        """NotImplementedError, as in torch: blocked_autorange finds the number of executions."""
        raise NotImplementedError("Timer.autorange: use blocked_autorange, which finds how often the statement is to run")

    def _block(self, min_run_time: float) -> int:
        """How many executions make a run long against the clock."""
        self._seconds(2)
        clock = statistics.median(timeit.Timer("pass", timer=timer).timeit(0) for _ in range(5))
        enough = min(max(1e4 * clock, min_run_time / 1000), min_run_time)
        return next(number for number in (10 ** k for k in itertools.count()) if self._seconds(number) >= enough)

    def _measure(self, number: int, callback: Optional[Callable[[int, float], Any]], done: Callable[[List[float]], bool], most: float) -> Measurement:
        times: List[float] = []
        while not times or sum(times) < most and not done(times):
            times.append(self._seconds(number))
            if callback is not None:
                callback(number, times[-1])
        return Measurement(number, times, self._task_spec)

    def blocked_autorange(self, callback: Optional[Callable[[int, float], Any]] = None, min_run_time: float = 0.2) -> Measurement:
        """Runs of as many executions as make the clock's share small, for ``min_run_time`` seconds in all."""
        with set_torch_threads(self._task_spec.num_threads):
            return self._measure(self._block(min_run_time), callback, lambda times: False, min_run_time)

    def adaptive_autorange(self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0,
                           callback: Optional[Callable[[int, float], Any]] = None) -> Measurement:
        """The same, until the quartiles are that part of the median apart, at least ``min_run_time`` and at most ``max_run_time`` seconds."""
        def done(times: List[float]) -> bool:
            enough = len(times) > 3 and sum(times) >= min_run_time
            return enough and Measurement(1, times, self._task_spec).meets_confidence(threshold)

        with set_torch_threads(self._task_spec.num_threads):
            return self._measure(self._block(min_run_time), callback, done, max_run_time)

    def collect_callgrind(self, number: int = 100, *, repeats: Optional[int] = None, collect_baseline: bool = True,
                          retain_out_file: bool = False) -> NoReturn:
        """NotImplementedError: counting instructions needs valgrind and torch's build."""
        raise NotImplementedError("Timer.collect_callgrind: run the script under `valgrind --tool=callgrind`, or use blocked_autorange")


class _Row(NamedTuple):
    threads: int
    name: str


class Compare:
    """A table of measurements: a row for each sub_label and number of threads, a column for each description, a table for each label."""

    def __init__(self, results: List[Measurement]) -> None:
        self._results: List[Measurement] = []
        self._trim = False
        self.extend_results(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Adds measurements. ValueError for anything else."""
        for r in results:
            if not isinstance(r, Measurement):
                raise ValueError(f"Compare: expected Measurements, got {type(r).__name__}")
            self._results.append(r)

    def trim_significant_figures(self) -> None:
        """Shows as many figures as the times allow."""
        self._trim = True

    def print(self) -> None:
        """Prints the tables."""
        print(self)

    def __str__(self) -> str:
        merged = Measurement.merge(self._results)
        return "\n\n".join(self._table(label, [m for m in merged if m.task_spec.label == label])
                           for label in ordered_unique(m.task_spec.label for m in merged))

    def _table(self, label: Optional[str], results: List[Measurement]) -> str:
        unit, size = select_unit(min(m.median for m in results))
        columns = ordered_unique(m.task_spec.description for m in results)
        cells = {(_Row(m.task_spec.num_threads, m.as_row_name), m.task_spec.description): self._cell(m, size) for m in results}
        rows = sorted(ordered_unique(row for row, _ in cells), key=lambda row: row.threads)
        lines = [["", *(c or "" for c in columns)], *([f"  {row.name}", *(cells.get((row, c), "") for c in columns)] for row in rows)]
        widths = [max(map(len, column)) for column in itertools.zip_longest(*lines, fillvalue="")]
        text = ["  |  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:]))]) for line in lines]
        shown = [f"[{f' {label} ' if label else '':-^{len(text[0]) - 2}}]", text[0]]
        for row, line, before in zip(rows, text[1:], [None, *rows]):
            if before is None or before.threads != row.threads:
                shown.append(f"{row.threads} threads: ".ljust(len(text[0]), "-"))
            shown.append(line)
        return "\n".join([*shown, "", f"Times are in {unit_to_english(unit)}s ({unit})."])

    def _cell(self, m: Measurement, size: float) -> str:
        value = trim_sigfig(m.median / size, m.significant_figures) if self._trim else m.median / size
        return f"{value:.1f}"
