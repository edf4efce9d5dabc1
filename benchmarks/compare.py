"""ampc against torch, in one interleaved run.

    python benchmarks/compare.py               # runs, prints the tables, draws build/benchmark.png
    python benchmarks/compare.py --cpu avx2    # the same with the instructions of a lower class: avx2, avx512, avx512bf16 or amx
    python benchmarks/compare.py --save        # the same, and keeps the raw rounds in benchmarks/rounds/
    python benchmarks/compare.py --report      # writes RESULTS.md and docs/results.png from the kept rounds

Each library has a process of its own, and they take turns: what one leaves spinning (torch's OpenMP
threads wait actively) has stopped before the other is timed. ampc is the one that is installed. A round of a case times both, in an
order that alternates; the figure is the median of the rounds' ratios. Both use the same threads, and the instructions of the same
class of CPUs (`classes.py`). `limits.c` measures what the machine gives at best with them, before and after.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

import report
from cases import BF16, BUSY, BY_NAME, MORE, Case
from classes import CLASSES, CpuClass, held_to, lower_or_same, own_class

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

# -- the measured side: a process that does what it is told ---------------------------------------------

SETTLE = 0.1  # seconds of rest before: what the other library left spinning has stopped
WARM = 0.1  # seconds of the same work before the clock starts: cores that slept come back to their speed
TIMED = 0.1  # seconds that are measured
LONG = 1.0  # a call of so many seconds warms itself


def seconds_a_call(f: Callable[[], Any]) -> float:
    """The mean of as many calls as fill the time that is measured."""
    calls, begin = 0, time.perf_counter()
    while (spent := time.perf_counter() - begin) < WARM:
        f()
        calls += 1
    if spent / calls > LONG:
        return spent / calls
    repeats = max(1, round(TIMED * calls / spent))
    begin = time.perf_counter()
    for _ in range(repeats):
        f()
    return (time.perf_counter() - begin) / repeats


def prepared(T: Any, case: Case, threads: int) -> Callable[[], Any]:
    """What a case does once, after the first call; says when it begins that."""
    T.set_num_threads(case.threads or threads)
    f = case.build(T)
    print("built", flush=True)
    f()
    return f


def serve(library: str, threads: int) -> None:
    """Reads names of cases. Answers each with `built` and `called`, where it is another than the last, and the seconds of a call."""
    T = __import__(library)
    name, f = None, None
    for line in sys.stdin:
        wanted = line.strip()
        try:
            if wanted != name:
                name = f = None  # the last case's tensors go first
                f = prepared(T, BY_NAME[wanted], threads)
                name = wanted
                print("called", flush=True)
            print(seconds_a_call(f), flush=True)
        except RuntimeError as error:
            print(f"{type(error).__name__}: {str(error).splitlines()[0]}", flush=True)


PATIENCE = 6.0  # seconds that torch's first call in 16 bits may take: it has no fast way for some products


class Stopped(Exception):
    """torch's first call in 16 bits took more than PATIENCE, and its process was ended."""


class Server:
    def __init__(self, library: str, threads: int, cpu: CpuClass) -> None:
        self.command = [sys.executable, "-W", "ignore", __file__, "--serve", library, "--threads", str(threads)]
        self.env = {**os.environ, **cpu.environment, "OMP_NUM_THREADS": str(threads)}
        self.patient = library == "ampc"
        self.start()

    def start(self) -> None:
        # Without buffers, so that `select` sees all that was not read.
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=self.env)
        self.name = ""

    def time(self, name: str) -> float:
        """Seconds of a call. Raises Stopped, or a RuntimeError with the library's own."""
        self.process.stdin.write(f"{name}\n".encode())
        if name != self.name:
            self.name = ""
            self.expect("built")
            if not select.select([self.process.stdout], [], [], None if self.patient or BY_NAME[name].limit != BF16 else PATIENCE)[0]:
                self.process.kill()
                self.close()
                self.start()
                raise Stopped
            self.expect("called")
            self.name = name
        return float(self.expect(""))

    def expect(self, said: str) -> str:
        line = self.process.stdout.readline().decode().strip()
        if said and line != said or ":" in line or not line:
            raise RuntimeError(line or f"{' '.join(self.command)} ended")
        return line

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def time_import(library: str) -> float:
    code = f"import time; t = time.perf_counter(); import {library}; print(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=HERE, check=True).stdout)


# -- the run --------------------------------------------------------------------------------------------

LEAST_ROUNDS, MOST_SECONDS = 3, 15.0  # a case that has taken so long gets no more rounds than the least


class Bar:
    """Progress on standard error."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0

    def step(self, what: str) -> None:
        width = 30
        filled = width * self.done // self.total
        sys.stderr.write(f"\r[{'#' * filled}{'.' * (width - filled)}] {self.done}/{self.total} {what:<40}")
        sys.stderr.flush()
        self.done += 1


def turns(i: int) -> tuple[str, str]:
    return ("ampc", "torch") if i % 2 else ("torch", "ampc")


def run_case(servers: dict, case: Case, rounds: int, bar: Bar) -> list[dict]:
    """The seconds of both libraries in each round. Where torch was stopped, PATIENCE, and "stopped" says so; of one that raised an
    error, None, and "error" has its text."""
    pairs: list[dict] = []
    lost: dict = {}
    begin = time.perf_counter()
    for i in range(rounds):
        bar.step(case.name)
        if i >= LEAST_ROUNDS and time.perf_counter() - begin > MOST_SECONDS:
            continue
        pair = {}
        for library in turns(i):
            if library not in lost:
                try:
                    pair[library] = time_once(servers, case, library)
                except Stopped:
                    lost[library] = {library: PATIENCE, "stopped": library}
                except RuntimeError as error:
                    lost[library] = {library: None, "error": str(error)}
            pair.update(lost.get(library, {}))
        pairs.append(pair)
    return pairs


def time_once(servers: dict, case: Case, library: str) -> float:
    time.sleep(SETTLE)
    return servers[library].time(case.name) if case.build else time_import(library)


def neighbours() -> list[int]:
    """How many busy processes: one, and one for each core."""
    return sorted({1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1})


def run_busy(servers: dict, rounds: int, bar: Bar) -> dict:
    """Each library against itself: quiet, then beside processes that keep cores busy."""
    result: dict = {}
    for name in BUSY:
        result[name] = []
        for processes in neighbours():
            row: dict = {"processes": processes, "ampc": {"quiet": [], "busy": []}, "torch": {"quiet": [], "busy": []}}
            for i in range(rounds):
                bar.step(f"{name} beside {processes}")
                for library in turns(i):
                    time.sleep(SETTLE)
                    row[library]["quiet"].append(servers[library].time(name))
                    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
                    time.sleep(0.2)
                    row[library]["busy"].append(servers[library].time(name))
                    for other in others:
                        other.kill()
                        other.wait()
            result[name].append(row)
    return result


def run(cpu: CpuClass, own: CpuClass, rounds: int, threads: int, cases: list[Case], busy: bool) -> dict:
    import torch

    import ampc

    result: dict = {"class": cpu.name, "own_class": own.name, "held": held_to(cpu), "load_before": os.getloadavg()[0]}
    before = both_limits(threads, cpu)
    servers = {library: Server(library, threads, cpu) for library in ("ampc", "torch")}
    bar = Bar(rounds * (len(cases) + (len(BUSY) * len(neighbours()) if busy else 0)))
    result["rounds"] = {case.name: run_case(servers, case, rounds, bar) for case in cases}
    if busy:
        result["busy"] = run_busy(servers, rounds, bar)
    bar.step("done")
    sys.stderr.write("\n")
    for s in servers.values():
        s.close()
    for key, after in both_limits(threads, cpu).items():
        result[key] = {name: max(value, before[key].get(name, value)) for name, value in after.items()}
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


def both_limits(threads: int, cpu: CpuClass) -> dict:
    """Those of the run's threads, and those of one thread, which some cases have."""
    return {"limits": limits(threads, cpu), "limits_of_one": limits(1, cpu)}


def limits(threads: int, cpu: CpuClass) -> dict:
    """limits.c, where there is a compiler for it; else nothing to compare rates with."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    with tempfile.TemporaryDirectory() as place:
        program = Path(place) / "limits"
        built = compiler and subprocess.run([compiler, "-O3", "-pthread", str(HERE / "limits.c"), "-o", str(program)], capture_output=True)
        if not built or built.returncode:
            return {}
        return json.loads(subprocess.run([str(program), str(threads), cpu.name], capture_output=True, text=True, check=True).stdout)


# -- the command ----------------------------------------------------------------------------------------


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", choices=list(CLASSES), help="the class of CPUs whose instructions both libraries may use (this CPU's own)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="*", help="names of cases; `busy` for the steps beside busy processes")
    parser.add_argument("--more", action="store_true", help="the cases that a usual run leaves out, and the steps beside busy processes, too")
    parser.add_argument("--report", action="store_true", help="write RESULTS.md and docs/results.png from the kept rounds")
    parser.add_argument("--save", action="store_true", help="keep the raw rounds in benchmarks/rounds/")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    known = {*BY_NAME, "busy"}
    unknown = set(args.only or ()) - known
    if unknown:
        parser.error(f"unknown case {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    if not args.report and not args.serve:
        choose_class(parser, args)
    return args


def choose_class(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Sets args.cpu and args.own to classes."""
    args.own = own_class()
    if args.own is None:
        parser.error("this CPU has no AVX2, so it is of no class")
    if args.cpu and args.cpu not in lower_or_same(args.own):
        parser.error(f"this CPU has {args.own.title}; it can be measured as {', '.join(lower_or_same(args.own))}, not as {args.cpu}")
    args.cpu = CLASSES[args.cpu] if args.cpu else args.own


def chosen_cases(args: argparse.Namespace) -> list[Case]:
    if args.only:
        return [case for case in BY_NAME.values() if case.name in args.only]
    return [*report.cases_of(args.cpu), *(MORE if args.more else [])]


def main() -> None:
    args = parse()
    if args.serve:
        serve(args.serve, args.threads)
    elif args.report:
        report.write()
    else:
        result = run(args.cpu, args.own, args.rounds, args.threads, chosen_cases(args), args.more or "busy" in (args.only or ()))
        print(report.table(result))
        if result.get("busy"):
            print("\n" + report.busy_table(result))
        picture = ROOT / "build" / "benchmark.png"
        picture.parent.mkdir(exist_ok=True)
        if result["rounds"] and report.draw([report.Newest(args.cpu, [result])], picture):
            print(f"\ndrawn: {picture}")
        if args.save:
            (HERE / "rounds").mkdir(exist_ok=True)
            (HERE / "rounds" / (time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + ".json")).write_text(json.dumps(result, indent=1))
            report.write()


if __name__ == "__main__":
    main()
