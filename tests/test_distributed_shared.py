"""Collectives through memory that the processes of a host share: of one host, and of two as AMPC_RANKS_PER_HOST claims. ``shared_ranks.py`` holds
what the processes run."""

import ast
import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("mpi4py")
import shared_ranks
from test_distributed import ampc_run, start

pytestmark = pytest.mark.cpu
ROOT_OF_AMPC = os.path.dirname(os.path.dirname(shared_ranks.ampc.__file__))
SETS = [(2, ""), (3, ""), (4, ""), (2, "1"), (3, "1"), (3, "2"), (4, "2")]  # processes, and how many of them count as one host's
CASES = [(size, hosts, name) for size, hosts in SETS for name, (sizes, _) in shared_ranks.PROGRAMS.items() if size in sizes]


@pytest.fixture(scope="module")
def found(tmp_path_factory, drawn_names):
    """What each rank says of each program; each set is started once."""
    kept = {}

    def get(size, hosts):
        if (size, hosts) not in kept:
            folder = tmp_path_factory.mktemp("ranks")
            options = {"PROGRAMS": drawn_names("test_shared", size=size, hosts=hosts), **({"AMPC_RANKS_PER_HOST": hosts} if hosts else {})}
            done = start(size, "shared_ranks.py", folder, timeout=120, **options)
            kept[size, hosts] = done, [json.loads(path.read_text()) if path.exists() else {} for path in (folder / f"{r}.json" for r in range(size))]
        return kept[size, hosts]

    return get


@pytest.mark.parametrize("size, hosts, name", CASES)
def test_shared(found, size, hosts, name):
    done, said = found(size, hosts)
    for rank in range(size):
        assert name in said[rank], f"rank {rank} did not come to it: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        assert not said[rank][name][0], f"rank {rank}: {said[rank][name][0]}"
    assert done.returncode == 0 and not done.stderr, done.stderr


def shared_files():
    """Names of files for shared memory; of MPI's own the launcher takes care."""
    return {name for name in os.listdir("/dev/shm") if name.startswith("ampc_")} if os.path.isdir("/dev/shm") else set()


# -- failure -------------------------------------------------------------------------------------------------------------

FAILS = """
import os, signal, sys, threading, time
from datetime import timedelta
import ampc
import ampc.distributed as dist
dist.init_process_group(timeout=timedelta(seconds=2))
x = ampc.zeros(3_000_000)
dist.all_reduce(x)
if dist.get_rank() == 1:
    threading.Timer(float(sys.argv[2]), os.kill, (os.getpid(), getattr(signal, sys.argv[1]))).start()
for _ in range(100_000):
    work = dist.all_reduce(x, async_op=bool(int(sys.argv[3])))
    if work is not None:
        work.wait()
"""


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("elements", [100, 500_000])
def test_a_rank_of_another_host_that_hangs(tmp_path, elements, late):
    """Nothing is known of it but that it does not answer."""
    (tmp_path / "train.py").write_text(FAILS.replace("3_000_000", str(elements)))
    done = start(2, tmp_path / "train.py", "SIGSTOP", 0.05, late, timeout=30, PYTHONPATH=ROOT_OF_AMPC, AMPC_RANKS_PER_HOST="1")
    text = f"DistBackendError: all_reduce of {elements} elements of float32, SUM has not ended within 2 s: rank 1 is on another host"
    assert done.returncode != 0 and text in done.stderr, done.stderr


GOES = {"SIGKILL": "has died; the last it began was all_reduce of 3000000 elements", "SIGSTOP": "has not ended within 2 s"}


@pytest.mark.parametrize("number, seconds, late", [("SIGKILL", 0.05, 0), ("SIGKILL", 0.2, 1), ("SIGKILL", 0.0123, 1), ("SIGSTOP", 0.05, 0), ("SIGSTOP", 0.05, 1)])
def test_a_rank_that_goes_within_a_reduction(tmp_path, number, seconds, late):
    """Late: in the group's thread, else in its caller's."""
    (tmp_path / "train.py").write_text(FAILS)
    before = shared_files()
    done = start(3, tmp_path / "train.py", number, seconds, late, timeout=30, PYTHONPATH=ROOT_OF_AMPC)
    assert done.returncode != 0 and "DistBackendError" in done.stderr and GOES[number] in done.stderr, done.stderr
    assert shared_files() <= before


KILLED = """
import os, re, sys
import ampc
import ampc.distributed as dist
dist.init_process_group()
dist.all_reduce(ampc.ones(3))
names = sorted(set(re.findall(r"/dev/shm/(\\S+_segment\\S+)( \\(deleted\\))?$", open("/proc/self/maps").read(), re.M)))
with open(f"{dist.get_rank()}.pid", "w") as f:
    f.write(repr((os.getpid(), os.environ.get("PMIX_SERVER_TMPDIR"), names)))
dist.barrier()
if sys.argv[1] == "kill":
    os.kill(os.getppid(), 9)  # mpiexec
    os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="needs /dev/shm")
@pytest.mark.parametrize("how", ["end", "kill"])
def test_nothing_is_left_of_a_launcher_that_is_killed(tmp_path, how):
    """Nor does Open MPI, which removes its segments itself, say a word where they are gone already."""
    (tmp_path / "train.py").write_text(KILLED)
    done = ampc_run(tmp_path, "--nproc", "2", "train.py", how)
    assert (done.returncode == 0) == (how == "end") and (how == "kill" or not done.stderr), done.stderr
    for rank in range(2):
        pid, folder, names = ast.literal_eval((tmp_path / f"{rank}.pid").read_text())
        assert len(names) == 2 and all(deleted and not os.path.exists(f"/dev/shm/{name}") for name, deleted in names), names
        assert folder and not os.path.exists(folder)


INTERRUPTED = """
import os, signal, threading
import ampc
import ampc.distributed as dist
dist.init_process_group()
dist.barrier()
if dist.get_rank() == 0:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        dist.all_reduce(ampc.ones(3))
    except KeyboardInterrupt:
        print("interrupted")
else:
    threading.Event().wait(1)
    dist.all_reduce(ampc.ones(3))  # rank 0 has given its values before
dist.all_reduce(ampc.ones(3))
"""


def test_an_interrupted_wait_ends_the_group(tmp_path):
    (tmp_path / "train.py").write_text(INTERRUPTED)
    done = start(2, tmp_path / "train.py", timeout=30, PYTHONPATH=ROOT_OF_AMPC)
    assert done.returncode != 0 and "interrupted" in done.stdout
    assert "all_reduce: rank 0 has left all_reduce of 3 elements of float32, SUM half way: KeyboardInterrupt" in done.stderr, done.stderr
    assert "rank 1 waits in all_reduce of 3 elements of float32, SUM: rank 0 has failed" in done.stderr, done.stderr


def test_a_wrong_number_of_ranks_of_a_host(tmp_path):
    (tmp_path / "train.py").write_text("import ampc.distributed as dist\ndist.init_process_group()\n")
    done = start(2, tmp_path / "train.py", timeout=30, PYTHONPATH=ROOT_OF_AMPC, AMPC_RANKS_PER_HOST="two")
    assert done.returncode != 0 and "AMPC_RANKS_PER_HOST must be a number from 1 on, got 'two'" in done.stderr, done.stderr


# -- benchmarks/distributed.py ---------------------------------------------------------------------------------------------

BENCHMARKS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "benchmarks")


def test_the_benchmark_runs():
    pytest.importorskip("torch")
    env = {**os.environ, "PYTHONPATH": ROOT_OF_AMPC}
    done = subprocess.run([sys.executable, "distributed.py", "--tiny"], cwd=BENCHMARKS, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "| 4 KB |" in done.stdout and "| two ranks, DistributedDataParallel |" in done.stdout and "that backward hides: " in done.stdout


def test_the_benchmarks_report(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import distributed_report as report

    line = {"end": 10.0, "waits": [[8.0, 9.0]], "runs": [[2.0, 4.0], [6.0, 8.5]]}
    assert report.hidden_share(line) == pytest.approx(1 - 0.5 / 4.5) and report.hidden_share({**line, "runs": []}) == 1
    step = {"ampc": 1.0, "torch": 1.25, "ampc alone": 0.8, "torch alone": 1.0, "ampc apart": 0.9, "torch apart": 1.0}
    found = {"rounds": {"all_reduce 4096": [{"ampc": 3e-6, "mpi4py": 4e-6, "torch": 1e-4}] * 3, "step 32": [step]}, "timelines": [[line, line]],
             "date": "2000-01-01", "machine": "a CPU", "load_before": 0, "load_after": 0, "ampc": "1", "torch": "2", "mpi4py": "4", "commit": "c" * 40}
    text = report.text(found)
    assert "| 4 KB | 3.0 us | 4.0 us | 100.0 us | **0.75** (0.75 to 0.75) | 0.03 (0.03 to 0.03) | 3.0 us / 4.0 us: 0.75 |" in text
    assert "nothing exchanged | 0.89 (0.89 to 0.89) | 1.00 (1.00 to 1.00) |" in text
    assert "| **0.80** (0.80 to 0.80) | 0.80 (0.80 to 0.80) |" in text and "at most 0.8 | 0.80 (0.80 to 0.80) |" in text and "89%" in text
    assert "Not measured yet" in report.text(None)
    pytest.importorskip("matplotlib")
    assert report.draw(found, tmp_path / "x.png") and (tmp_path / "x.png").stat().st_size > 5000
