"""What a selftest found, as text and as JSON."""

from __future__ import annotations

import json
import os
import shlex
import sys
import textwrap
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, Iterable, List, Tuple

import ampc

from .._messages.table import text_lines
from .running import ALL, Result

WIDTH = 64  # of the column of ways
LEGEND = [
    "ways: which alternatives of a kernel ran, if sizes or the machine select one (-: the kernel has no alternatives)",
    "error/bound: the largest error divided by the largest error allowed; up to 1 is right. 16-bit results are rounded to the nearest, so",
    "    most of them reach 1",
    "drawn: at random sizes",
]
DTYPES = ("int64", *ALL)


@dataclass
class Report:
    """Facts about the machine, a result for each trial, and why the run ended early if it did."""

    device: str
    seed: int
    facts: Dict[str, Any]
    results: List[Result] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False
    failure: str = ""

    @property
    def wrong(self) -> List[Result]:
        return [r for r in self.results if not r.ok]

    @property
    def complete(self) -> bool:
        """Whether everything was run."""
        return not self.interrupted and not self.failure

    @property
    def ok(self) -> bool:
        """Whether everything was run, and was right."""
        return self.complete and not self.wrong

    def _rows(self) -> Iterable[Tuple[str, str, List[str], float, float, bool]]:
        """Kernel, dtype, ways, worst error in units of its bound, seconds, whether all was right."""
        groups: Dict[Tuple[str, str], List[Result]] = {}
        for r in self.results:
            groups.setdefault((r.kernel, r.dtype), []).append(r)
        kernels = list(dict.fromkeys(kernel for kernel, _ in groups))
        for (kernel, dtype), some in sorted(groups.items(), key=lambda item: (kernels.index(item[0][0]), DTYPES.index(item[0][1]))):
            ways = list(dict.fromkeys(w for r in some for w in r.ways))
            yield kernel, dtype, ways, max(r.units for r in some), sum(r.seconds for r in some), all(r.ok for r in some)

    def table(self) -> List[str]:
        """Its lines. Ways that are those of the row above, of the same kernel, are not told again."""
        cells, before = [("kernel", "dtype", "ways", "error/bound", "seconds", "")], ("", [""])
        for kernel, dtype, ways, units, seconds, ok in self._rows():
            same = before == (kernel, ways) and bool(ways)
            lines = ["those above"] if same else textwrap.wrap(", ".join(ways), WIDTH) or ["-"]
            cells.append((kernel if kernel != before[0] else "", dtype, lines[0], f"{units:.3g}", f"{seconds:.2f}", "ok" if ok else "WRONG"))
            cells += [("", "", line, "", "", "") for line in lines[1:]]
            before = (kernel, ways)
        return text_lines(cells if self.device == "cpu" else [c[:2] + c[3:] for c in cells], {0, 1, 2, 5} if self.device == "cpu" else {0, 1, 4})

    def missed(self) -> List[str]:
        """Ways that this instruction set has and that no trial took, with what chooses them."""
        found = {way for r in self.results for way in r.ways}
        return [f"{w['name']} ({w['fact']})" for w in ampc._C._ways() if w["reachable"] and w["name"] not in found]

    def advice(self) -> List[str]:
        """Variables of the environment that may avoid a wrong way."""
        rows = {w["name"]: w for w in ampc._C._ways()}
        ways = [rows[name] for r in self.wrong for name in r.ways if name in rows]
        levels = self.facts["lower_levels"]
        needs = {w["needs"] for w in ways} & {*levels, self.facts["isa"]} - {"baseline"}
        below = [levels[levels.index(need) - 1 if need in levels else -1] for need in needs]
        out = [f"AMPC_CPU={level} takes the kernels of another instruction set" for level in levels if level in (*below, "baseline")]
        for variable in dict.fromkeys(w["variable"] for w in ways if w["variable"] and w["variable"] != "AMPC_CPU"):
            names = ", ".join(dict.fromkeys(w["name"] for w in ways if w["variable"] == variable))
            value = {"OMP_NUM_THREADS": "1", "AMPC_HUGE_PAGES": "0"}.get(variable)
            out.append(f"{variable}={value} avoids {names}" if value else f"{variable}, set to another number of bytes, moves the border of {names}")
        return out

    def _verdict(self) -> List[str]:
        count = len(self.results)
        head = f"{count - len(self.wrong)} of {count} trials {'' if self.complete else 'so far '}right; took {self.seconds:.1f} s; seed {self.seed}"
        if not self.complete:
            head += f". Not everything has run: {self.failure or 'stopped by hand'}."
        if not self.wrong:
            return [head + (". Every kernel is right." if self.complete and count else "")]
        lines = [head, "", "WRONG:"]
        for r in self.wrong:
            lines += [f"  {r.kernel}, {r.dtype}, {r.sizes}", f"    {r.wrong}", f"    ways: {', '.join(r.ways) or 'none of its own'}; seed {r.seed}"]
        if self.device == "cpu":
            lines += ["", "Until it is mended, one of these may avoid it; `ampc selftest` says whether it does:", *(f"  {a}" for a in self.advice())]
        return lines

    def verdict(self) -> str:
        """The end of the report: whether all is right, else what is wrong."""
        return "\n".join(self._verdict())

    def __str__(self) -> str:
        missed = self.missed() if self.device == "cpu" and self.complete else []
        text = "No trial took these ways, which other caches, threads, values or settings choose: " + ", ".join(missed) + "."
        return "\n".join([*self.table(), *(LEGEND if self.device == "cpu" else LEGEND[1:]), "", *(textwrap.wrap(text, 120) if missed else []),
                          self.verdict()])

    def whole(self) -> str:
        """With `ampc info` in front, for a bug report."""
        from .._process.installation import info

        command = shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]])
        return f"{command}, {time.strftime('%Y-%m-%d %H:%M:%S %z')}\n\n{info()}\n\n{self}\n"

    def to_json(self) -> str:
        from .._process.installation import info

        results = [{**asdict(r), "ok": r.ok, "units": r.units if r.units < float("inf") else None} for r in self.results]
        return json.dumps({"ok": self.ok, "device": self.device, "seed": self.seed, "seconds": self.seconds, "interrupted": self.interrupted,
                           "failure": self.failure, "facts": self.facts, "info": info(), "results": results}, indent=1)
