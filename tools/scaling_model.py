"""A model of training on many ranks, from measured times of few: docs/scaling.md's tables and docs/scaling.png.

    python tools/scaling_model.py              # writes them from benchmarks/scaling.json
    python tools/scaling_model.py --check      # exits with 1 if the page is out of date
    python tools/scaling_model.py --measure    # measures first, on 1, 2 and 4 ranks of this host

The file of measured times is a JSON object: ``cpu`` (a text), ``cores``, ``load`` (the
mean number of processes that wanted a core in the minute before), and ``rounds``, a list of ``{"ranks": 2, "all_reduce": {"4096": seconds, ...}}``
with bytes of float32 as keys, and in the same object, where a training step was measured, ``"step": {"bytes", "forward", "backward", "update",
"whole"}``: the gradients' bytes, and seconds of the parts, without messages, and of the whole step, while all ranks do the same.

The links are an alpha-beta model: a message of n bytes takes alpha + n * beta. An all-reduce is a ring, 2 (p - 1) messages of n / p bytes, or a
binomial tree, 2 ceil(log2 p) messages of n bytes (Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005)."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

import numpy as np
from generated import write_or_check

ROOT = Path(__file__).resolve().parent.parent
MEASURED, PAGE, PICTURE = ROOT / "benchmarks" / "scaling.json", ROOT / "docs" / "scaling.md", ROOT / "docs" / "scaling.png"
BEGIN, END = "<!-- figures: written by tools/scaling_model.py -->\n", "<!-- end of figures -->\n"
SIZES = [2**k for k in range(12, 25, 2)]  # bytes of an all-reduce: 4 KiB to 16 MiB
RANKS = [2**k for k in range(1, 13)]
BUCKET = 25 * 2**20  # bytes, as DistributedDataParallel's; its first bucket has 1 MiB
FIRST = 2**20


class Link(NamedTuple):
    """Seconds of a message: ``alpha``, and ``beta`` for each byte."""

    name: str
    alpha: float
    beta: float


ASSUMED = [Link("10 Gbit/s Ethernet (assumed: 30 us, 1.1 GB/s)", 30e-6, 1 / 1.1e9), Link("200 Gbit/s InfiniBand (assumed: 2 us, 23 GB/s)", 2e-6, 1 / 23e9)]

# -- the model -----------------------------------------------------------------------------------------------------------


def ring(link: Link, ranks: int, size: float) -> float:
    """Seconds of an all-reduce of so many bytes by a ring."""
    return 2 * (ranks - 1) * (link.alpha + size / ranks * link.beta)


def tree(link: Link, ranks: int, size: float) -> float:
    """The same by a binomial tree: a reduction and a broadcast."""
    return 2 * math.ceil(math.log2(ranks)) * (link.alpha + size * link.beta)


def all_reduce(link: Link, ranks: int, size: float) -> float:
    """By the faster of the two; 0 of one rank."""
    return min(ring(link, ranks, size), tree(link, ranks, size)) if ranks > 1 else 0.0


def fitted(times: Dict[int, float]) -> Link:
    """The link whose ring of two ranks fits these seconds by bytes best, by the squares of relative errors."""
    rows = np.array([[2 / seconds, size / seconds] for size, seconds in times.items()])
    alpha, beta = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)[0]
    return Link("links as on this host (fitted)", max(float(alpha), 0.0), max(float(beta), 0.0))


def buckets(size: float) -> List[float]:
    """The messages that carry gradients of so many bytes."""
    sizes = [min(FIRST, size)]
    while sum(sizes) < size:
        sizes.append(min(BUCKET, size - sum(sizes)))
    return sizes


def shared(link: Link, ranks: int, cores: int) -> Link:
    """The link within a host: a message is work of the CPU, so it takes longer where there are more ranks than cores."""
    times = max(1.0, ranks / cores)
    return Link(link.name, link.alpha * times, link.beta * times)


def step(link: Link, ranks: int, parts: Dict[str, float]) -> float:
    """Seconds of a training step. A bucket leaves when backward has filled it, and the one before has arrived."""
    backward, arrived, filled = parts["backward"], 0.0, 0.0
    for size in buckets(parts["bytes"]):
        filled += size / parts["bytes"] * backward
        arrived = max(arrived, filled) + all_reduce(link, ranks, size)
    return parts["forward"] + max(backward, arrived) + parts["update"]


# -- measured times ------------------------------------------------------------------------------------------------------


def least(rounds: List[Dict[str, Any]], ranks: int) -> Dict[int, float]:
    """The least seconds of all rounds, by bytes."""
    found: Dict[int, float] = {}
    for each in rounds:
        if each["ranks"] == ranks:
            for size, seconds in each["all_reduce"].items():
                found[int(size)] = min(seconds, found.get(int(size), math.inf))
    return found


def least_step(rounds: List[Dict[str, Any]], ranks: int) -> Dict[str, float]:
    """The least seconds of a step and of its parts."""
    steps = [each["step"] for each in rounds if each["ranks"] == ranks and "step" in each]
    return {name: min(s[name] for s in steps) for name in steps[0]}


def _least_of(f: Any, times: int) -> float:
    found = math.inf
    for _ in range(times):
        begin = time.perf_counter()
        f()
        found = min(found, time.perf_counter() - begin)
    return found


def measure_ranks() -> None:
    """One round, in each of the processes that ``measure`` starts; rank 0 prints it. Of each time the slowest rank's counts."""
    import ampc as torch
    import ampc.distributed as dist
    from ampc.nn.parallel import DistributedDataParallel

    dist.init_process_group()
    times = {}
    for size in SIZES:
        x = torch.zeros(size // 4)
        times[str(size)] = _least_of(lambda x=x: dist.all_reduce(x), 20)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)])
    optimizer, x = torch.optim.SGD(model.parameters(), lr=1e-3), torch.randn(64, 1024)
    parts = {"bytes": 4.0 * sum(p.numel() for p in model.parameters())}
    outputs: List[Any] = []
    parts["forward"] = _least_of(lambda: outputs.append(model(x).square().mean()), 6)
    parts["backward"] = _least_of(lambda: outputs.pop().backward(), 6)
    parts["update"] = _least_of(optimizer.step, 6)
    parallel = DistributedDataParallel(model)

    def whole() -> None:
        parallel(x).square().mean().backward()
        optimizer.step()

    parts["whole"] = _least_of(whole, 8)
    found: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, (times, parts))
    if dist.get_rank() == 0:
        slowest = [{name: max(each[i][name] for each in found) for name in found[0][i]} for i in range(2)]
        print(json.dumps({"ranks": len(found), "all_reduce": slowest[0], "step": slowest[1]}))


def measure(rounds: int = 4) -> None:
    """Writes the file: interleaved rounds on 1, 2 and 4 ranks with one thread each."""
    from ampc._process import launcher as _launcher

    kept, load = [], os.getloadavg()[0]
    for _ in range(rounds):
        for ranks in (1, 2, 4):
            line = _launcher.command(ranks, [sys.executable, __file__, "--one-round"])
            env = _launcher.environment(ranks, {**os.environ, "OMP_NUM_THREADS": "1"})
            kept.append(json.loads(subprocess.run(line, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout))
    cpu = next((line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "unknown")
    MEASURED.write_text(json.dumps({"cpu": cpu, "cores": os.cpu_count(), "load": load, "rounds": kept}, indent=1) + "\n")


# -- the page ------------------------------------------------------------------------------------------------------------


def _bytes(size: int) -> str:
    return f"{size // 2**20} MiB" if size >= 2**20 else f"{size // 2**10} KiB"


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def figures(measured: Dict[str, Any]) -> str:
    """The tables, in Markdown."""
    rounds, cores = measured["rounds"], measured["cores"]
    two, four = least(rounds, 2), least(rounds, 4)
    link, alone = fitted(two), least_step(rounds, 1)
    lines = [f"Measured on {measured['cpu']} with {cores} cores, {len(rounds)} launches, with a load of {measured['load']:.0f} before them. "
             f"The link that fits two ranks best has a latency of "
             f"{_time(link.alpha)} and a bandwidth of {1e-9 / link.beta:.2f} GB/s.", "", "## The model beside measured times", "",
             "| All-reduce | 2 ranks, measured | computed (fitted) | 4 ranks, measured | computed | measured / computed |", "|---|---|---|---|---|---|"]
    for size in sorted(two):
        want = all_reduce(shared(link, 4, cores), 4, size)
        lines.append(f"| {_bytes(size)} | {_time(two[size])} | {_time(all_reduce(link, 2, size))} | {_time(four[size])} | {_time(want)} | {four[size] / want:.2f} |")
    lines += ["", f"| Training step, {alone['bytes'] / 2**20:.0f} MiB of gradients | measured | computed | measured / computed |", "|---|---|---|---|"]
    for ranks in (1, 2, 4):
        parts = least_step(rounds, ranks)
        got, want = parts["whole"], step(shared(link, ranks, cores), ranks, parts)
        lines.append(f"| {ranks} rank{'s' if ranks > 1 else ''} | {_time(got)} | {_time(want)} | {got / want:.2f} |")
    links = [link, *ASSUMED]
    lines += ["", "## Computed for more ranks", "", "Efficiency is the time of a step on one rank over the time on so many, each with a batch and a core of "
              "its own.", "", "| Ranks | " + " | ".join(f"{each.name}: all-reduce of 16 MiB, efficiency" for each in links) + " |", "|---" * (len(links) + 1) + "|"]
    for ranks in RANKS:
        cells = [f"{_time(all_reduce(each, ranks, 2**24))}, {100 * step(each, 1, alone) / step(each, ranks, alone):.0f} %" for each in links]
        lines.append(f"| {ranks} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(measured: Dict[str, Any]) -> None:
    """The picture: all-reduce over ranks, and efficiency."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rounds = measured["rounds"]
    link, alone = fitted(least(rounds, 2)), least_step(rounds, 1)
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for size, colour in ((2**12, "#2e7d4f"), (2**18, "#d98c00"), (2**24, "#30506e")):
        for f, style in ((ring, "-"), (tree, "--")):
            left.plot(RANKS, [f(link, p, size) for p in RANKS], style, color=colour, label=f"{_bytes(size)}, {f.__name__}")
        left.plot([2, 4], [least(rounds, p)[size] for p in (2, 4)], "o", color=colour)
    left.set(xscale="log", yscale="log", xlabel="ranks", ylabel="seconds of an all-reduce", title="lines: computed; dots: measured")
    left.legend(fontsize=7)
    for each in (link, *ASSUMED):
        right.plot(RANKS, [100 * step(each, 1, alone) / step(each, p, alone) for p in RANKS], label=each.name.partition(" (assumed")[0])
    right.set(xscale="log", ylim=(0, 105), xlabel="ranks", ylabel="efficiency of a step, %", title="computed")
    right.legend(fontsize=7)
    figure.savefig(PICTURE, dpi=90)


def page(measured: Dict[str, Any]) -> str:
    """The page with its figures."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + figures(measured) + END + rest.partition(END)[2]


def main() -> int:
    if "--one-round" in sys.argv[1:]:
        measure_ranks()
        return 0
    if "--measure" in sys.argv[1:]:
        measure()
    measured = json.loads(MEASURED.read_text())
    if "--check" not in sys.argv[1:]:
        draw(measured)
    return write_or_check({PAGE: page(measured)})


if __name__ == "__main__":
    sys.exit(main())
