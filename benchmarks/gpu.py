"""ampc against torch on a GPU, in one interleaved run of one process.

    python benchmarks/gpu.py            # runs and prints the table
    python benchmarks/gpu.py --save     # the same, keeps the raw rounds in benchmarks/rounds-gpu/ and writes RESULTS-gpu.md
    python benchmarks/gpu.py --report   # writes RESULTS-gpu.md from the kept rounds

A round of a case times both libraries, in an order that alternates, between two waits for the GPU; the figure is the
median of the rounds' ratios. What the device gives at best is measured in the same run: a copy of 1 GiB within its
memory, by torch, for the rows that memory holds back; for products the rate stands alone.
``--small`` divides all sizes, to try the program; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from gpu_cases import CASES, Case
from report import Goal, ratios_of, unit

HERE = Path(__file__).resolve().parent
ROUNDS, RESULTS = HERE / "rounds-gpu", HERE / "RESULTS-gpu.md"


# -- the run ---------------------------------------------------------------------------------------------------------


def timed(T: Any, case: Case, f: Callable[[], Any]) -> float:
    """Seconds a call: of the device's work, or (launch) of the host's alone."""
    T.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(case.repeats):
        f()
    if case.name == "launch":
        seconds = time.perf_counter() - begin
        T.cuda.synchronize()
        return seconds / case.repeats
    T.cuda.synchronize()
    return (time.perf_counter() - begin) / case.repeats


def copy_bandwidth(T: Any, small: int) -> float:
    """Bytes a second of a copy within the device: read and written."""
    a = T.ones((1 << 28) // small, device="cuda")
    b = T.empty_like(a)
    best = float("inf")
    for _ in range(5):
        T.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(5):
            b.copy_(a)
        T.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / 5)
    return 2 * 4 * a.numel() / best


def rounds_of(case: Case, libraries: dict, rounds: int, small: int) -> list:
    """The seconds of each library, by rounds."""
    calls = {name: case.make(T, small) for name, T in libraries.items()}
    for name, f in calls.items():  # what is made once is made before the clock starts
        for _ in range(3):
            f()
        libraries[name].cuda.synchronize()
    found = []
    for i in range(rounds):
        order = list(calls) if i % 2 else list(calls)[::-1]
        found.append({name: timed(libraries[name], case, calls[name]) for name in order})
    return found


def run(rounds: int, small: int, cases: list) -> dict:
    import ampc

    libraries = {"ampc": ampc}
    try:
        import torch

        if torch.cuda.is_available():
            libraries["torch"] = torch
    except ImportError:
        pass
    if not ampc.cuda.is_available():
        sys.exit("no usable GPU: `ampc info` says what is missing")
    yardstick = libraries.get("torch", ampc)
    result: dict = {"rounds": {}, "copy_bytes_s": copy_bandwidth(yardstick, small)}
    for case in cases:
        try:
            result["rounds"][case.name] = rounds_of(case, libraries, rounds, small)
            print(f"{case.name}: done", file=sys.stderr)
        except Exception as error:  # a library's own errors, too; the other cases are measured all the same
            print(f"{case.name}: {type(error).__name__}: {error}", file=sys.stderr)
        for T in libraries.values():
            T.cuda.empty_cache()
    result.update(gpu=ampc.cuda.get_device_name(), small=small, ampc=ampc.__version__,
                  torch=getattr(libraries.get("torch"), "__version__", None), driver=ampc._C._cuda_note("driver"),
                  cublaslt=ampc._C._cuda_note("cublasLt"), date=time.strftime("%Y-%m-%d %H:%M", time.gmtime()))
    return result


@dataclass(frozen=True)
class Figures:
    """A case's seconds in either library (torch's 0 where it was not there), and the ratios of the rounds, in order."""

    ampc: float
    torch: float
    ratios: list


def figures_of(result: dict, case: Case) -> Figures | None:
    """Of a case that was measured. A run whose rounds are lost has what it printed."""
    pairs, printed = result["rounds"].get(case.name), result.get("printed", {}).get(case.name)
    if printed:
        return Figures(**printed)
    if not pairs:
        return None
    mid = {k: statistics.median(p[k] for p in pairs) for k in pairs[0]}
    return Figures(mid["ampc"], mid.get("torch", 0), ratios_of(result, case) if "torch" in mid else [])


def rate_of(result: dict, case: Case, seconds: float) -> str:
    """Operations or bytes a second, and the share of a copy."""
    if not case.bytes:
        return f"{case.flop / seconds / 1e12:.0f} TFLOP/s" if case.flop else ""
    share = case.bytes / seconds / result["copy_bytes_s"]
    missed = "" if share >= case.share else " - **missed**"
    return f"{case.bytes / seconds / 1e9:.0f} GB/s, {100 * share:.0f} % of a copy (goal: {100 * case.share:.0f} %{missed})"


def row(result: dict, case: Case, f: Figures) -> str:
    begin, rate = f"| {case.what} | {unit(f.ampc)} | ", rate_of(result, case, f.ampc)
    if not f.ratios:
        return f"{begin}- | - | - | at most {case.bound} | {rate} |"
    ratio = statistics.median(f.ratios)
    return (f"{begin}{unit(f.torch)} | {ratio:.3f} | {f.ratios[0]:.3f} to {f.ratios[-1]:.3f} | "
            f"{Goal(f'at most {case.bound:g}', ratio <= case.bound)} | {rate} |")


def table(result: dict) -> str:
    lines = ["| work | ampc | torch | ampc / torch | lowest to highest round | goal | ampc's rate |", "|---|---|---|---|---|---|---|"]
    return "\n".join([*lines, *(row(result, case, f) for case in CASES if (f := figures_of(result, case)))])


KERNELS_HEAD = """
Kernels in these cases, by Nsight Compute. At most 4 warp instructions a cycle leave a multiprocessor; near 3, instructions bound a kernel.

| kernel | blocks | us | DRAM, MB | GB/s | warp instructions a cycle | registers | occupancy |
|---|---:|---:|---:|---:|---:|---:|---:|"""


def kernel_table(result: dict) -> str:
    """What Nsight Compute measured of each kernel of 10 microseconds or more in the cases of operators and the optimizer."""
    rows = (f"| `{k['name']}` | {k['blocks']} | {k['seconds'] * 1e6:.0f} | {k['bytes'] / 1e6:.0f} | {k['bytes'] / k['seconds'] / 1e9:.0f} | "
            f"{k['per_cycle']:.2f} | {k['registers']} | {k['occupancy']:.0f} % |" for k in result["kernels"])
    return "\n".join([KERNELS_HEAD, *rows])


def read_rounds() -> list:
    """Every kept run, the newest first."""
    return [json.loads(path.read_text()) for path in sorted(ROUNDS.glob("*.json"), reverse=True)]


HEAD = """\
# On a GPU

Generated by `python benchmarks/gpu.py --report` from the raw rounds in `rounds-gpu/`; nothing is typed by hand. Both libraries ran in one
process, in interleaved rounds. A time is the median of the rounds, and the ratio the median of the rounds' ratios.
"""


def results_text() -> str:
    """RESULTS-gpu.md, from every kept run."""
    parts = [HEAD]
    for r in read_rounds():
        parts += [f"## {r['gpu']}, {r['date']} UTC", "",
                  f"Commit {r['commit'][:12]}, ampc {r['ampc']}, torch {r['torch']}, driver {r['driver']}, cuBLASLt {r['cublaslt']}. "
                  f"A copy within the device moves {r['copy_bytes_s'] / 1e9:.0f} GB/s. "
                  + r.get("note", ""), "", table(r), *([kernel_table(r)] if r.get("kernels") else []), ""]
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", nargs="*", help="names of cases")
    parser.add_argument("--small", type=int, default=1, help="divides all sizes, to try the program")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--commit", help="the commit that is measured, where the tree has no git")
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    if args.report:
        RESULTS.write_text(results_text())
        return
    unknown = set(args.only or ()) - {c.name for c in CASES}
    if unknown:
        parser.error(f"unknown case {', '.join(sorted(unknown))}; there are {', '.join(c.name for c in CASES)}")
    commit = args.commit or subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=HERE).stdout.strip()
    result = run(args.rounds, args.small, [c for c in CASES if not args.only or c.name in args.only])
    result["commit"] = commit
    print(f"{result['gpu']}; a copy within the device moves {result['copy_bytes_s'] / 1e9:.0f} GB/s\n\n{table(result)}")
    if args.save and args.small == 1:
        ROUNDS.mkdir(exist_ok=True)
        (ROUNDS / (time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + ".json")).write_text(json.dumps(result, indent=1))
        RESULTS.write_text(results_text())


if __name__ == "__main__":
    main()
