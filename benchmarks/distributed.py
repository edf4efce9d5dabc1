"""Processes of one host: ampc.distributed against mpi4py and torch's gloo, in one interleaved run.

    python benchmarks/distributed.py             # runs, prints the tables, draws build/distributed.png
    python benchmarks/distributed.py --save      # the same, and keeps the raw rounds in benchmarks/rounds/distributed/
    python benchmarks/distributed.py --report    # writes DISTRIBUTED.md and docs/distributed.png from the newest kept rounds
    python benchmarks/distributed.py --tiny      # the smallest cases, for tests

Each side has two processes of its own, one thread each, and the sides take turns; who is not asked sleeps. In a round every side is timed, in an
order that rotates; the figure is the median of the rounds' ratios. A collective's time is the mean over calls after a barrier, a step is
forward, loss, backward and SGD, and of two processes the slower counts. Two processes are also timed apart: at the same time, each with a model of
its own, so that they share the machine and exchange nothing. ampc and torch are those that are installed, mpi4py runs on the MPI
that ampc runs on. Where network namespaces can be made, all-reduces are also timed with each process on a host of its own, over TCP.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import distributed_report as report
from two_hosts import TwoHosts, why_not

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RANKS = 2
SIDES = {"ampc": RANKS, "ampc alone": 1, "mpi4py": RANKS, "torch": RANKS, "torch alone": 1}  # and how many processes each has
ACROSS = {"ampc across": RANKS, "mpi4py across": RANKS}  # with a process on each of two hosts
TIMED = 0.2  # seconds of calls that are measured
WIDTH, LAYERS, BATCH = 1024, 4, 64  # of the trained MLP, 16 MB of gradients

# -- the measured side: processes that do what files tell them -------------------------------------------


def rank() -> int:
    return int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK") or 0)


class WithMpi4py:
    """numpy arrays and mpi4py."""

    def __init__(self, size: int) -> None:
        import mpi4py

        mpi4py.rc.thread_level = "multiple"  # as ampc's
        from mpi4py import MPI

        self.MPI, self.barrier = MPI, MPI.COMM_WORLD.Barrier

    def all_reduce(self, nbytes: int) -> Callable[[], Any]:
        import numpy as np

        x, comm, place = np.zeros(nbytes // 4, np.float32), self.MPI.COMM_WORLD, self.MPI.IN_PLACE
        return lambda: comm.Allreduce(place, x)


class WithTorch:
    """A library with torch's names: ampc, or torch on gloo."""

    def __init__(self, library: str, size: int, meeting: Path) -> None:
        self.T, self.size = __import__(library), size
        self.dist = __import__(f"{library}.distributed", fromlist=["distributed"])
        self.T.set_num_threads(1)
        if library == "torch":
            self.dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank(), world_size=size)
        else:
            self.dist.init_process_group()
        self.barrier = self.dist.barrier

    def all_reduce(self, nbytes: int) -> Callable[[], Any]:
        x = self.T.zeros(nbytes // 4)
        return lambda: self.dist.all_reduce(x)

    def step_apart(self, width: int) -> Callable[[], Any]:
        """A step of training of an MLP of this process's own."""
        return self.step(width, apart=True)

    def step(self, width: int, apart: bool = False) -> Callable[[], Any]:
        """A step of training of an MLP, by DistributedDataParallel where there are several processes."""
        T = self.T
        T.manual_seed(0)
        model = T.nn.Sequential(*(layer for _ in range(LAYERS) for layer in (T.nn.Linear(width, width), T.nn.ReLU())))
        if self.size > 1 and not apart:
            from importlib import import_module

            model = import_module(f"{T.__name__ if T.__name__ == 'torch' else 'ampc'}.nn.parallel").DistributedDataParallel(model, bucket_cap_mb=4)
        optimizer, x, y = T.optim.SGD(model.parameters(), lr=1e-3), T.randn(BATCH, width), T.randn(BATCH, width)

        def f() -> None:
            optimizer.zero_grad()
            T.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()

        return f


def timeline(side: WithTorch, width: int) -> dict:
    """When a step of this process began and ended, when its backward began to wait, and when each all-reduce ran, in seconds."""
    from ampc.distributed import work
    from ampc.nn.parallel._reducer import Reducer

    step, runs, waits = side.step(width), [], []
    run, agree = work.Work.run, Reducer._agree

    def timed_run(self: Any, f: Callable[[], Any]) -> None:
        begin = time.perf_counter()
        run(self, f)
        runs.append((begin, time.perf_counter()))

    def timed_agree(self: Any) -> Any:
        begin = time.perf_counter()
        found = agree(self)
        waits.append((begin, time.perf_counter()))
        return found

    for _ in range(5):
        step()
    work.Work.run, Reducer._agree = timed_run, timed_agree
    try:
        side.barrier()
        runs.clear()
        begin = time.perf_counter()
        step()
        end = time.perf_counter()
    finally:
        work.Work.run, Reducer._agree = run, agree
    return {"end": end - begin, "waits": [[a - begin, b - begin] for a, b in waits], "runs": [[a - begin, b - begin] for a, b in runs]}


def seconds_a_call(f: Callable[[], Any], barrier: Callable[[], Any], calls: int) -> float:
    barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        f()
    return (time.perf_counter() - begin) / calls


def serve(name: str, folder: Path) -> None:
    """Does what `<n>.ask` says, and writes `<n>.<rank>`, until it says nothing. Processes sleep between two commands."""
    size = {**SIDES, **ACROSS}[name]
    side: Any = WithMpi4py(size) if name.startswith("mpi4py") else WithTorch(name.split()[0], size, folder / "meeting")
    cases: dict = {}
    (folder / f"ready.{rank()}").touch()
    for n in range(1 << 30):
        while not (folder / f"{n}.ask").exists():
            time.sleep(0.002)
        asked = json.loads((folder / f"{n}.ask").read_text())
        if not asked:
            return
        kind, amount, calls = asked
        if kind == "timeline":
            answer: Any = timeline(side, amount)
        else:
            if (kind, amount) not in cases:
                if len(cases) == 2:
                    cases.clear()
                cases[kind, amount] = getattr(side, kind)(amount)
                seconds_a_call(cases[kind, amount], side.barrier, 2)
            answer = seconds_a_call(cases[kind, amount], side.barrier, calls)
        hidden = folder / f".{n}.{rank()}"
        hidden.write_text(json.dumps(answer))
        hidden.rename(folder / f"{n}.{rank()}")


# -- the run -----------------------------------------------------------------------------------------------


class Side:
    """The processes of a side."""

    def __init__(self, name: str, folder: Path, hosts: Optional[TwoHosts] = None) -> None:
        from ampc._process import launcher as _launcher

        self.size, self.folder, self.asked = {**SIDES, **ACROSS}[name], folder, 0
        folder.mkdir()
        command = [sys.executable, str(Path(__file__).resolve()), "--serve", name, "--folder", str(folder)]
        env = {**_launcher.environment(self.size, os.environ), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        started = _launcher.command(self.size, command, hosts.hostfile(self.size) if hosts else None)
        if hosts is not None:
            env, started = hosts.environment(env), hosts.on_the_first(started)
        self.process = subprocess.Popen(started, env=env, start_new_session=True)

    def is_ready(self) -> None:
        """Waits for its processes."""
        self._wait_for("ready")

    def _wait_for(self, name: str) -> list:
        files = [self.folder / f"{name}.{r}" for r in range(self.size)]
        while not all(f.exists() for f in files):
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.folder.name}: the processes ended with {self.process.returncode}")
            time.sleep(0.002)
        return [f.read_text() for f in files]

    def _tell(self, what: Any) -> str:
        hidden = self.folder / ".ask"
        hidden.write_text(json.dumps(what))
        hidden.rename(self.folder / f"{self.asked}.ask")
        self.asked += 1
        return str(self.asked - 1)

    def ask(self, kind: str, amount: int, calls: int = 1) -> list:
        """What each process answers."""
        return [json.loads(text) for text in self._wait_for(self._tell([kind, amount, calls]))]

    def close(self) -> None:
        self._tell([])
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


APART = " apart"


def timed(sides: dict, name: str, kind: str, amount: int, calls: int) -> float:
    """Seconds of a call, of the slowest process."""
    side, kind = (sides[name[: -len(APART)]], f"{kind}_apart") if name.endswith(APART) else (sides[name], kind)
    return max(side.ask(kind, amount, calls))


def calls_for(seconds_a_call: float, seconds: float) -> int:
    return max(2, min(5000, round(seconds / seconds_a_call)))


def run(rounds: int, sizes: tuple, width: int, seconds: float) -> dict:
    """Seconds of a call for each side in each round, by case."""
    cases = [("all_reduce", n, ("ampc", "mpi4py", "torch")) for n in sizes] + [("step", width, report.STEPS)]
    found: dict = {"rounds": {}, "load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as place, closing({name: Side(name, Path(place) / name.replace(" ", "_")) for name in SIDES}) as sides:
        for kind, amount, names in cases:
            found["rounds"][f"{kind} {amount}"] = rounds_of(sides, names, kind, amount, rounds, seconds)
        found["timelines"] = [sides["ampc"].ask("timeline", width) for _ in range(rounds)]
    if why_not() is None:
        with tempfile.TemporaryDirectory() as place, TwoHosts(Path(place)) as hosts, \
                closing({name: Side(name, Path(place) / name.replace(" ", "_"), hosts) for name in ACROSS}) as sides:
            found["across"] = {f"all_reduce {n}": rounds_of(sides, tuple(ACROSS), "all_reduce", n, rounds, seconds) for n in sizes}
    return found


@contextmanager
def closing(sides: dict) -> Iterator[dict]:
    """The sides when all are ready; they end in the end."""
    try:
        for side in sides.values():
            side.is_ready()
        yield sides
    finally:
        for side in sides.values():
            side.close()


def rounds_of(sides: dict, names: tuple, kind: str, amount: int, rounds: int, seconds: float) -> list:
    """Seconds of a call of each side in each round, whose order rotates."""
    calls = {name: calls_for(timed(sides, name, kind, amount, 3), seconds) for name in names}
    rows = []
    for i in range(rounds):
        turn = [names[(i + k) % len(names)] for k in range(len(names))]
        taken = {name: timed(sides, name, kind, amount, calls[name]) for name in turn}
        rows.append({name: taken[name] for name in names})
    print(f"{kind} {amount}", file=sys.stderr)
    return rows


def described(found: dict) -> dict:
    """The rounds with what they were taken with."""
    import mpi4py
    import torch
    from compare import machine

    import ampc

    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT).stdout.strip()
    dirty = bool(subprocess.run(["git", "status", "--porcelain", "-uno"], capture_output=True, text=True, cwd=ROOT).stdout.strip())
    return {**found, "commit": commit + ("+changes" if dirty else ""), "machine": machine(), "torch": torch.__version__, "ampc": ampc.__version__,
            "mpi4py": mpi4py.__version__, "load_after": os.getloadavg()[0], "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tiny", action="store_true", help="one round of the smallest cases")
    parser.add_argument("--save", action="store_true", help="keep the raw rounds, and write the report")
    parser.add_argument("--report", action="store_true", help="write the report from the newest kept rounds")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.folder)
        return
    if args.report:
        report.write()
        return
    found = described(run(1, (4096,), 32, 0.01) if args.tiny else run(args.rounds, report.SIZES, WIDTH, TIMED))
    print(report.tables(found))
    (ROOT / "build").mkdir(exist_ok=True)
    report.draw(found, ROOT / "build" / "distributed.png")
    if args.save:
        report.ROUNDS.mkdir(parents=True, exist_ok=True)
        (report.ROUNDS / (time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + ".json")).write_text(json.dumps(found, indent=1))
        report.write()


if __name__ == "__main__":
    main()
