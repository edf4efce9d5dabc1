"""What the test of this machine's kernels found, as a table, a text to send and an exit code."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Dict, Iterator, List, Tuple

from .. import _C
from .._progress import Progress
from .._table import text_lines
from .cases import CASES
from .running import Case, Result, run_case

ON_GPU = ("product", "linear", "convolution", "depthwise", "attention", "norm", "softmax", "elementwise", "reduction", "running totals")


@dataclass
class Report:
    """Every result, and what draws the same numbers again."""

    results: List[Result]
    seed: int
    seconds: float
    device: str
    finished: bool = True

    @property
    def wrong(self) -> List[Result]:
        """Results that lie outside their bounds."""
        return [r for r in self.results if not r.ok]

    def __str__(self) -> str:
        kernels: Dict[Tuple[str, str], List[Result]] = {}
        for r in self.results:
            kernels.setdefault((r.kernel, r.dtype), []).append(r)
        rows = [["kernel", "dtype", "sizes", "ways", "worst error / bound", "seconds", ""]]
        for (kernel, dtype), some in kernels.items():
            ways = {w for r in some for w in r.ways}
            rows.append([kernel, dtype, str(len(some)), str(len(ways)), f"{max(r.units for r in some):.2f}", f"{sum(r.seconds for r in some):.2f}",
                         "ok" if all(r.ok for r in some) else "WRONG"])
        return "\n".join([*text_lines(rows, {0, 1, 6}), *self._verdict()])

    def _verdict(self) -> List[str]:
        end = "" if self.finished else ", interrupted"
        lines = [f"{len(self.results)} calls on the {self.device} in {self.seconds:.1f} s, seed {self.seed}{end}"]
        for r in self.wrong:
            lines.append(f"WRONG: {r.kernel}, {r.dtype}, {r.sizes}: {r.wrong}")
            lines.append(f"       ways: {', '.join(r.ways) or 'none of the table'}")
        if not self.wrong:
            return [*lines, "Every result lies within its bound."]
        variables = {w["variable"] for w in _C._ways() if w["variable"] and any(w["name"] in r.ways for r in self.wrong)}
        avoid = f"Setting {' or '.join(sorted(variables))} takes another way until it is mended; `ampc info` shows the values." if variables else ""
        return [*lines, "Please send this text and that of `ampc info` with a bug report.", *([avoid] if avoid else [])]

    def to_json(self) -> str:
        """All results, and the facts of the machine."""
        return json.dumps({"machine": _C._machine(), "seed": self.seed, "device": self.device, "finished": self.finished,
                           "results": [{**asdict(r), "units": r.units if r.units < float("inf") else None} for r in self.results]}, default=str)


def _rounds(seconds: float, device: str, seed: int) -> Iterator[Tuple[Case, str, int]]:
    """Every case in each of its dtypes once; then again with other numbers until the time is over."""
    begin, cases = time.monotonic(), [c for c in CASES if device == "cpu" or c.kernel.split(",")[0] in ON_GPU]
    while True:
        for case in cases:
            for dtype in case.dtypes:
                yield case, dtype, seed
        if time.monotonic() - begin >= seconds:
            return
        seed += 1


def selftest(seconds: float = 0.0, seed: int = 0, device: str = "cpu", progress: bool = False) -> Report:
    """Runs the kernels that this machine's facts choose, on both sides of each border between two ways, against float64.

    Args:
        seconds: goes on with other numbers until they are over; every case runs once at least.
        seed: of the first round's numbers.
        device: 'cpu' or 'cuda'.
        progress: a bar in a terminal.

    Ctrl-C ends it with what was found so far."""
    report, begin = Report([], seed, 0.0, device), time.monotonic()
    total = sum(len(c.dtypes) for c in CASES) if device == "cpu" and not seconds else None
    try:
        for case, dtype, drawn in Progress(_rounds(seconds, device, seed), "kernels", total, shown=progress):
            report.results += run_case(case, dtype, drawn, device)
    except KeyboardInterrupt:
        report.finished = False
    report.seconds = time.monotonic() - begin
    return report
