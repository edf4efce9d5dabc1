"""Tables and the picture of benchmarks/distributed.py, from raw rounds."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any, Optional

HERE = Path(__file__).resolve().parent
ROUNDS = HERE / "rounds" / "distributed"
SIZES = tuple(n << 10 for n in (4, 16, 64, 256, 1024, 4096, 25 << 10, 100 << 10))  # bytes of the reduced float32
GOALS = {("all_reduce", "mpi4py"): 0.5, ("all_reduce", "torch"): 0.4, ("step", "torch"): 0.8}  # of their time, at most
ACROSS = 1.05  # of mpi4py's time on two hosts, at most
EFFICIENCY = 0.9  # at least, of two ranks against one
LIMIT = """What limits an all-reduce of two ranks is the way of cache lines from one core to the other: each core reads as many bytes as the
tensor has that the other one has just written, half of them values and half results. What is larger than the caches is limited by the
bandwidth of memory: each rank reads and writes the tensor once. Across hosts a call costs some 40 us more than MPI's: a thread of its own
waits in MPI, so that the caller can tell of a rank that does not come, and the ranks compare before it what they call."""
STEPS = tuple(library + what for what in ("", " alone", " apart") for library in ("ampc", "torch"))


def ratios(rows: list, one: str, other: str) -> list:
    return sorted(row[one] / row[other] for row in rows)


def ratio_text(found: list, goal: Optional[float] = None, least: bool = False) -> str:
    """The median, and the rounds from the lowest to the highest; bold where the goal is missed."""
    middle = statistics.median(found)
    missed = goal is not None and (middle < goal if least else middle > goal)
    text = f"{middle:.2f}"
    return f"{f'**{text}**' if missed else text} ({found[0]:.2f} to {found[-1]:.2f})"


def time_text(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


def size_text(nbytes: int) -> str:
    return f"{nbytes >> 20} MB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KB"


def all_reduce_table(found: dict) -> str:
    lines = ["| float32 | ampc | mpi4py | gloo | ampc / mpi4py, at most 0.5 | ampc / gloo, at most 0.4 | least times, ampc / mpi4py |",
             "|---|---|---|---|---|---|---|"]
    for key, rows in found["rounds"].items():
        kind, amount = key.split()
        if kind == "all_reduce":
            times = [time_text(statistics.median(row[name] for row in rows)) for name in ("ampc", "mpi4py", "torch")]
            cells = [ratio_text(ratios(rows, "ampc", other), GOALS[kind, other]) for other in ("mpi4py", "torch")]
            least = [min(row[name] for row in rows) for name in ("ampc", "mpi4py")]
            cells.append(f"{time_text(least[0])} / {time_text(least[1])}: {least[0] / least[1]:.2f}")
            lines.append(f"| {size_text(int(amount))} | {' | '.join(times + cells)} |")
    return "\n".join(lines)


def across_table(found: dict) -> str:
    """Two hosts, a process on each."""
    lines = ["| float32, two hosts | ampc | mpi4py | ampc / mpi4py, at most 1.05 | least times, ampc / mpi4py |", "|---|---|---|---|---|"]
    for key, rows in found["across"].items():
        one, other = names = [f"{name} across" for name in ("ampc", "mpi4py")]
        times = [time_text(statistics.median(row[name] for row in rows)) for name in names]
        least = [min(row[name] for row in rows) for name in names]
        cells = [ratio_text(ratios(rows, one, other), ACROSS), f"{time_text(least[0])} / {time_text(least[1])}: {least[0] / least[1]:.2f}"]
        lines.append(f"| {size_text(int(key.split()[1]))} | {' | '.join(times + cells)} |")
    return "\n".join(lines)


def step_table(found: dict) -> str:
    rows = next(rows for key, rows in found["rounds"].items() if key.startswith("step"))
    lines = ["| a step | ampc | torch |", "|---|---|---|"]
    of_two = (("two ranks, a model each, nothing exchanged", "{} apart"), ("two ranks, DistributedDataParallel", "{}"))
    for what, name in (("one rank, one core", "{} alone"), *of_two):
        times = [time_text(statistics.median(row[name.format(lib)] for row in rows)) for lib in ("ampc", "torch")]
        lines.append(f"| {what} | {' | '.join(times)} |")
    for what, name in of_two:
        goal = EFFICIENCY if name == "{}" else None
        found = [ratio_text(ratios(rows, f"{lib} alone", name.format(lib)), goal if lib == "ampc" else None, True) for lib in ("ampc", "torch")]
        lines.append(f"| efficiency, one rank's time over that of {what}{f': at least {goal}' if goal else ''} | {' | '.join(found)} |")
    lines.append(f"| ampc / torch at two ranks, at most 0.8 | {ratio_text(ratios(rows, 'ampc', 'torch'), GOALS['step', 'torch'])} | |")
    return "\n".join(lines)


def hidden_share(line: dict) -> float:
    """Of the time in which all-reduces ran, the share in which backward did not wait for them."""
    runs = sum(end - begin for begin, end in line["runs"])
    waited = sum(max(0.0, min(end, stop) - max(begin, start)) for begin, end in line["runs"] for start, stop in line["waits"])
    return 1 - waited / runs if runs else 1.0


def tables(found: dict) -> str:
    shares = sorted(hidden_share(line) for lines in found["timelines"] for line in lines)
    across = ["", across_table(found)] if "across" in found else []
    return "\n".join([all_reduce_table(found), *across, "", step_table(found), "",
                      f"Share of communication that backward hides: {statistics.median(shares):.0%} ({shares[0]:.0%} to {shares[-1]:.0%})."])


def newest() -> Optional[dict]:
    kept = sorted(ROUNDS.glob("*.json"))
    return json.loads(kept[-1].read_text()) if kept else None


def text(found: Optional[dict]) -> str:
    lines = ["# Several processes", "",
             "Generated by `python benchmarks/distributed.py --report` from the raw rounds in `benchmarks/rounds/distributed/`.", ""]
    if found is None:
        return "\n".join([*lines, "Not measured yet on a quiet machine.", ""])
    load = f"load {found['load_before']:.1f} before and {found['load_after']:.1f} after"
    versions = f"ampc {found['ampc']} at {found['commit'][:10]}, torch {found['torch']} (gloo), mpi4py {found['mpi4py']}"
    lines += [f"{found['date']}, {found['machine']}, {load}. {versions}.", "",
              "Two processes of one host with one thread each. In the second table each is on a host of its own: two network namespaces of this",
              "machine with a cable between them. Times are medians of the rounds, ratios medians of the rounds' ratios with the lowest and the",
              "highest; a bold one misses its goal. Where others use the cores, a rank waits for one that does not run: the least times are those",
              "of a round without them. The step is that of an MLP with 4 layers of 1024 and a batch of 64 in each process.", "",
              tables(found), "", LIMIT, "", "![When a step computes, communicates and waits](../docs/distributed.png)", ""]
    return "\n".join(lines)


BARS = {"waits": ("#b3411f", "waits for all-reduces"), "runs": ("#1f6f43", "all-reduces")}


def draw(found: dict, path: Path) -> bool:
    """A step of each process: computing and waiting above, its all-reduces below. False where there is no matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    lines = sorted(found["timelines"], key=lambda each: each[0]["end"])[len(found["timelines"]) // 2]  # the round with the median step
    figure = Figure(figsize=(9, 1.1 + 1.1 * len(lines)), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots()
    names = []
    for i, line in enumerate(lines):
        axes.broken_barh([(0, line["end"] * 1e3)], (2 * i - 0.35, 0.7), color="#9db4c8", label="" if i else "forward, backward, optimizer")
        for below, (key, (color, label)) in enumerate(BARS.items()):
            bars = [(begin * 1e3, (end - begin) * 1e3) for begin, end in line[key]]
            axes.broken_barh(bars, (2 * i + below - 0.35, 0.7), color=color, edgecolor="white", label="" if i else label)
        names += [f"rank {i}", f"its helper thread, {hidden_share(line):.0%} hidden"]
    axes.set_yticks(range(len(names)), names, fontsize=8.5)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds of one training step")
    figure.legend(loc="outside upper center", ncols=3, fontsize=8.5, frameon=False)
    figure.savefig(path, dpi=90)
    return True


def write() -> None:
    found = newest()
    (HERE / "DISTRIBUTED.md").write_text(text(found))
    if found is not None:
        draw(found, HERE.parent / "docs" / "distributed.png")
