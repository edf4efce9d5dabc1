"""ampc against torch, in one interleaved run.

    python benchmarks/compare.py            # runs, prints the tables, draws build/benchmark.png
    python benchmarks/compare.py --save     # the same, and keeps the raw rounds in benchmarks/rounds/
    python benchmarks/compare.py --report   # writes RESULTS.md and docs/results.png from the kept rounds

Each library has a process of its own, and they take turns: what one leaves spinning (torch's OpenMP
threads wait actively) has stopped before the other is timed. ampc is the one that is installed. A round of a case times both, in an
order that alternates; the figure is the median of the rounds' ratios. Both use the same threads.
`limits.c` measures what the machine gives at best, in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report
from cases import BUSY, CASES, make

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

# -- the measured side: a process that does what it is told ---------------------------------------------

WARM = 0.3  # seconds of the same work before the clock starts: cores that slept come back to their speed


def serve(library: str, threads: int) -> None:
    T = __import__(library)
    T.set_num_threads(threads)
    name, f = None, None
    for line in sys.stdin:
        wanted, repeats = line.split()
        if wanted != name:
            name, f = wanted, None  # the last case's tensors go first
            f = make(T, name)
            f()
        warm = time.perf_counter() + WARM
        while time.perf_counter() < warm:
            f()
        begin = time.perf_counter()
        for _ in range(int(repeats)):
            f()
        print((time.perf_counter() - begin) / int(repeats), flush=True)


class Server:
    def __init__(self, library: str, threads: int) -> None:
        env = dict(os.environ, OMP_NUM_THREADS=str(threads))
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", library, "--threads", str(threads)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=env)

    def time(self, name: str, repeats: int) -> float:
        self.process.stdin.write(f"{name} {repeats}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def time_import(library: str) -> float:
    code = f"import time; t = time.perf_counter(); import {library}; print(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=HERE, check=True).stdout)


# -- the run --------------------------------------------------------------------------------------------


class Bar:
    """Progress on standard error."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0

    def step(self, what: str) -> None:
        width = 30
        filled = width * self.done // self.total
        sys.stderr.write(f"\r[{'#' * filled}{'.' * (width - filled)}] {self.done}/{self.total} {what:<24}")
        sys.stderr.flush()
        self.done += 1


def turns(i: int) -> tuple[str, str]:
    return ("ampc", "torch") if i % 2 else ("torch", "ampc")


def run_rounds(servers: dict, cases: list, rounds: int, bar: Bar) -> dict:
    result: dict = {}
    for case in cases:
        result[case.name] = []
        for i in range(rounds):
            bar.step(case.name)
            pair = {}
            for library in turns(i):
                time.sleep(0.3)  # whatever spins has stopped
                pair[library] = time_import(library) if case.name == "import" else servers[library].time(case.name, case.repeats)
            result[case.name].append(pair)
    return result


def neighbours() -> list[int]:
    """How many busy processes: one, and one for each core."""
    return sorted({1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1})


def run_busy(servers: dict, rounds: int, bar: Bar) -> dict:
    """Each library against itself: quiet, then beside processes that keep cores busy."""
    result: dict = {}
    for case in BUSY:
        result[case.name] = []
        for processes in neighbours():
            row: dict = {"processes": processes, "ampc": {"quiet": [], "busy": []}, "torch": {"quiet": [], "busy": []}}
            for i in range(rounds):
                bar.step(f"{case.name} beside {processes}")
                for library in turns(i):
                    time.sleep(0.3)
                    row[library]["quiet"].append(servers[library].time(case.name, case.repeats))
                    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
                    time.sleep(0.2)
                    row[library]["busy"].append(servers[library].time(case.name, case.repeats))
                    for other in others:
                        other.kill()
                        other.wait()
            result[case.name].append(row)
    return result


def run(rounds: int, threads: int, cases: list, busy: bool) -> dict:
    import torch

    import ampc

    result: dict = {"load_before": os.getloadavg()[0], "limits": limits(threads)}
    servers = {library: Server(library, threads) for library in ("ampc", "torch")}
    pairs = len(BUSY) * len(neighbours()) if busy else 0
    bar = Bar(rounds * (len(cases) + pairs))
    result["rounds"] = run_rounds(servers, cases, rounds, bar)
    if busy:
        result["busy"] = run_busy(servers, rounds, bar)
    bar.step("done")
    sys.stderr.write("\n")
    for s in servers.values():
        s.close()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT).stdout.strip()
    dirty = bool(subprocess.run(["git", "status", "--porcelain", "-uno"], capture_output=True, text=True, cwd=ROOT).stdout.strip())
    result.update(commit=commit + ("+changes" if dirty else ""), machine=machine(), threads=threads, torch=torch.__version__,
                  ampc=ampc.__version__, blas=ampc._C._build_info()["blas"], load_after=os.getloadavg()[0],
                  date=time.strftime("%Y-%m-%d %H:%M", time.gmtime()))
    return result


def machine() -> str:
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return f"{name}, {os.cpu_count()} cores"


def limits(threads: int) -> dict:
    """limits.c, where there is a compiler for it; else nothing to compare rates with."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    with tempfile.TemporaryDirectory() as place:
        program = Path(place) / "limits"
        built = compiler and subprocess.run([compiler, "-O3", "-pthread", str(HERE / "limits.c"), "-o", str(program)], capture_output=True)
        if not built or built.returncode:
            return {}
        return json.loads(subprocess.run([str(program), str(threads)], capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="*", help="names of cases; `busy` for the steps beside busy processes")
    parser.add_argument("--report", action="store_true", help="write RESULTS.md and docs/results.png from the kept rounds")
    parser.add_argument("--save", action="store_true", help="keep the raw rounds in benchmarks/rounds/")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.threads)
    elif args.report:
        report.write()
    else:
        known = {c.name for c in CASES} | {"busy"}
        unknown = set(args.only or ()) - known
        if unknown:
            parser.error(f"unknown case {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
        result = run(args.rounds, args.threads, [c for c in CASES if not args.only or c.name in args.only], not args.only or "busy" in args.only)
        print(report.table(result))
        if result.get("busy"):
            print("\n" + report.busy_table(result))
        picture = ROOT / "build" / "benchmark.png"
        picture.parent.mkdir(exist_ok=True)
        if result["rounds"] and report.draw(result, picture):
            print(f"\ndrawn: {picture}")
        if args.save:
            (HERE / "rounds").mkdir(exist_ok=True)
            (HERE / "rounds" / (time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + ".json")).write_text(json.dumps(result, indent=1))
            report.write()


if __name__ == "__main__":
    main()
