"""ampc against torch, in one interleaved run.

    python benchmarks/compare.py            # runs, writes benchmarks/rounds/<date>.json, prints the table
    python benchmarks/compare.py --report   # writes benchmarks/RESULTS.md from the committed rounds

Each library has a process of its own, and they take turns: what one leaves spinning (torch's OpenMP
threads wait actively) has stopped before the other is timed. A round of a case times both, in an
order that alternates; the figure is the median of the rounds' ratios. Both use the same threads.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

# name, bound on time(ampc) / time(torch) that the project asks for, what it is
CASES = [
    ("import", 0.15, "`import` in a fresh interpreter, less the interpreter's own start"),
    ("add16", 0.2, "`a + b` on 16 float32 numbers"),
    ("mlp64", 0.60, "MLP 3x64, batch 512, float32: forward, backward, SGD step"),
    ("mlp256", None, "MLP 3x256, the same"),
    ("mlp1024", 1.10, "MLP 3x1024, the same"),
    ("mlp64-bf16", 0.25, "MLP 3x64, bfloat16 autocast"),
    ("mlp1024-bf16", 0.5, "MLP 3x1024, bfloat16 autocast"),
]
REPEATS = {"add16": 20000, "mlp64": 300, "mlp64-bf16": 300, "mlp256": 60, "mlp1024": 8, "mlp1024-bf16": 4}


# -- the measured side: a process that does what it is told ---------------------------------------------


def make_step(T, n: int, batch: int = 512, autocast=None):
    T.manual_seed(0)
    net = T.nn.Sequential(T.nn.Linear(n, n), T.nn.ReLU(), T.nn.Linear(n, n), T.nn.ReLU(), T.nn.Linear(n, n))
    opt = T.optim.SGD(net.parameters(), lr=1e-3)
    loss_fn, x, y = T.nn.MSELoss(), T.randn(batch, n), T.randn(batch, n)

    def step():
        opt.zero_grad()
        if autocast is None:
            loss = loss_fn(net(x), y)
        else:
            with T.autocast("cpu", dtype=autocast):
                loss = loss_fn(net(x), y)
        loss.backward()
        opt.step()

    return step


def make_case(T, name: str):
    if name == "add16":
        a, b = T.ones(16), T.ones(16)
        return lambda: a + b
    size, _, precision = name[3:].partition("-")
    return make_step(T, int(size), autocast=T.bfloat16 if precision else None)


def serve(library: str, threads: int) -> None:
    T = __import__(library)
    T.set_num_threads(threads)
    cases = {}
    for line in sys.stdin:
        name, repeats = line.split()
        if name not in cases:
            cases[name] = make_case(T, name)
            for _ in range(min(int(repeats), 50)):
                cases[name]()
        f = cases[name]
        begin = time.perf_counter()
        for _ in range(int(repeats)):
            f()
        print((time.perf_counter() - begin) / int(repeats), flush=True)


class Server:
    def __init__(self, library: str, threads: int) -> None:
        env = dict(os.environ, PYTHONPATH=str(ROOT), OMP_NUM_THREADS=str(threads))
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", library, "--threads", str(threads)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=env)

    def time(self, name: str) -> float:
        self.process.stdin.write(f"{name} {REPEATS[name]}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def time_import(library: str) -> float:
    env = dict(os.environ, PYTHONPATH=str(ROOT))
    code = f"import time; t = time.perf_counter(); import {library}; print(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True).stdout)


# -- the run --------------------------------------------------------------------------------------------


def load_average() -> float:
    return os.getloadavg()[0]


def bar(done: int, total: int, what: str) -> None:
    width = 30
    filled = width * done // total
    sys.stderr.write(f"\r[{'#' * filled}{'.' * (width - filled)}] {done}/{total} {what:<16}")
    sys.stderr.flush()


def run(rounds: int, threads: int, cases: list) -> dict:
    import torch

    import ampc

    servers = {"ampc": Server("ampc", threads), "torch": Server("torch", threads)}
    result: dict = {"rounds": {}, "load_before": load_average()}
    total, done = rounds * len(cases), 0
    for name, _, _ in cases:
        pairs = []
        for i in range(rounds):
            bar(done, total, name)
            pair = {}
            for library in ("ampc", "torch") if i % 2 else ("torch", "ampc"):
                time.sleep(0.3)  # whatever spins has stopped
                pair[library] = time_import(library) if name == "import" else servers[library].time(name)
            pairs.append(pair)
            done += 1
        result["rounds"][name] = pairs
    bar(total, total, "done")
    sys.stderr.write("\n")
    for s in servers.values():
        s.process.stdin.close()
        s.process.wait()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT).stdout.strip()
    dirty = bool(subprocess.run(["git", "status", "--porcelain", "-uno"], capture_output=True, text=True, cwd=ROOT).stdout.strip())
    result.update(commit=commit + ("+changes" if dirty else ""), machine=machine(), threads=threads, torch=torch.__version__,
                  ampc=ampc.__version__, blas=ampc._C._build_info()["blas"], load_after=load_average(), limits=limits(threads),
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
    """What the hardware gave in this run: copy bandwidth, and the best float32 product of either library."""
    import numpy as np

    a = np.ones(1 << 25, dtype=np.float32)
    b = np.empty_like(a)
    np.copyto(b, a)
    best = min(_timed(lambda: np.copyto(b, a)) for _ in range(5))
    x, y = np.ones((1024, 1024), np.float32), np.ones((1024, 1024), np.float32)
    x @ y
    product = min(_timed(lambda: x @ y) for _ in range(7))
    return {"copy_gb_s": 2 * a.nbytes / best / 1e9, "sgemm_1024_gflop_s": 2 * 1024**3 / product / 1e9}


def _timed(f) -> float:
    begin = time.perf_counter()
    f()
    return time.perf_counter() - begin


# -- tables -----------------------------------------------------------------------------------------------


def unit(seconds: float) -> str:
    for scale, name in ((1, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns")):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {name}"
    return f"{seconds:.3g} s"


def table(result: dict) -> str:
    lines = ["| work | ampc | torch | ampc / torch | rounds from to | asked |", "|---|---|---|---|---|---|"]
    for name, bound, what in CASES:
        pairs = result["rounds"].get(name)
        if not pairs:
            continue
        ratios = sorted(p["ampc"] / p["torch"] for p in pairs)
        mid = {k: statistics.median(p[k] for p in pairs) for k in ("ampc", "torch")}
        ratio = statistics.median(ratios)
        asked = "" if bound is None else f"at most {bound}" + ("" if ratio <= bound else " - **missed**")
        lines.append(f"| {what} | {unit(mid['ampc'])} | {unit(mid['torch'])} | {ratio:.3f} | {ratios[0]:.3f} to {ratios[-1]:.3f} | {asked} |")
    return "\n".join(lines)


def report() -> None:
    files = sorted((HERE / "rounds").glob("*.json"))
    text = ["# Results", "", "Generated by `python benchmarks/compare.py --report` from the raw rounds in `benchmarks/rounds/`. Ratios of times;",
            "absolute times are those of a shared machine and only show the order of size.", ""]
    for path in reversed(files):
        r = json.loads(path.read_text())
        text += [f"## {r['date']} UTC, commit {r['commit'][:12]}{'+changes' if r['commit'].endswith('+changes') else ''}", "",
                 f"{r['machine']}; {r['threads']} threads; torch {r['torch']}; {r['blas']}; load average {r['load_before']:.2f} before, "
                 f"{r['load_after']:.2f} after; copy {r['limits']['copy_gb_s']:.1f} GB/s, NumPy's float32 product of 1024 "
                 f"{r['limits']['sgemm_1024_gflop_s']:.0f} GFLOP/s in the same run.", "", table(r), ""]
    (HERE / "RESULTS.md").write_text("\n".join(text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="*", help="names of cases")
    parser.add_argument("--report", action="store_true", help="write RESULTS.md from the committed rounds")
    parser.add_argument("--save", action="store_true", help="keep the raw rounds in benchmarks/rounds/")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.threads)
    elif args.report:
        report()
    else:
        cases = [c for c in CASES if not args.only or c[0] in args.only]
        result = run(args.rounds, args.threads, cases)
        print(table(result))
        if args.save:
            (HERE / "rounds").mkdir(exist_ok=True)
            (HERE / "rounds" / (time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + ".json")).write_text(json.dumps(result, indent=1))
            report()


if __name__ == "__main__":
    main()
