"""ampc.distributed in 2 and 4 processes, against NumPy and one process. ``ranks.py`` and ``distributed_training.py`` hold what the processes run,
all of it in one launch for each number of processes."""

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")
import distributed_training  # noqa: F401
import ranks

from ampc._messages import callers as _callers
from ampc._process import launcher as launch

pytestmark = pytest.mark.cpu
if launch.mpiexec() is None:
    pytest.skip("there is no mpiexec", allow_module_level=True)
HERE = os.path.dirname(os.path.abspath(__file__))
CASES = [(size, name) for name, (sizes, _) in ranks.PROGRAMS.items() for size in sizes]


def start(size, *args, cwd=HERE, timeout=60, **variables):
    """Runs Python in so many processes."""
    command = launch.command(size, [sys.executable, *map(str, args)])
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=timeout, env=launch.environment(size, {**os.environ, **variables}))


@pytest.fixture(scope="module")
def found(tmp_path_factory, drawn_names):
    """What each rank says of each program, by the number of processes; each number is started once."""
    kept = {}

    def get(size):
        if size not in kept:
            folder = tmp_path_factory.mktemp(f"ranks{size}")
            done = start(size, "ranks.py", folder, PROGRAMS=drawn_names("test_ranks", size=size))
            kept[size] = done, [json.loads((folder / f"{r}.json").read_text()) if (folder / f"{r}.json").exists() else {} for r in range(size)]
        return kept[size]

    return get


@pytest.mark.parametrize("size, name", CASES)
def test_ranks(found, size, name):
    done, said = found(size)
    for rank in range(size):
        assert name in said[rank], f"rank {rank} did not come to it: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        assert not said[rank][name][0], f"rank {rank}: {said[rank][name][0]}"


def test_all_end_well(found):
    for size in (2, 4):
        assert found(size)[0].returncode == 0, found(size)[0].stderr


# -- starting ------------------------------------------------------------------------------------------------------------

SCRIPT = """
import os, sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(2) * (dist.get_rank() + 1)
dist.all_reduce(x)
print(*(os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")), x.tolist(), sys.argv[1:])
dist.destroy_process_group()
"""


def ampc_run(folder, *args):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(os.path.dirname(ranks.ampc.__file__)), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([sys.executable, "-m", "ampc", "run", *args], capture_output=True, text=True, cwd=folder, env=env, timeout=60)


@pytest.mark.parametrize("before", [("--nproc", "2"), ("torchrun", "--nproc_per_node=2"), ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")],
                         ids=["nproc", "torchrun", "module"])
def test_a_script_for_torch_is_started(tmp_path, before):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = ampc_run(tmp_path, *before, "train.py", "--lr", "3")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.strip().split("\n")) == [f"[rank {r}] {r} 2 {r} 2 [3.0, 3.0] ['--lr', '3']" for r in range(2)]
    assert done.stderr.count("'gloo' means MPI here") == 1


ROOT = Path(__file__).resolve().parent.parent


def test_the_example_in_two_processes(tmp_path):
    done = ampc_run(tmp_path, "--nproc", "2", str(ROOT / "examples" / "distributed.py"))
    assert done.returncode == 0 and done.stdout.count("on 2 processes") == 4 and "[rank 0] epoch 3" in done.stdout, done.stderr


@pytest.mark.parametrize("number, block", [*enumerate(re.findall(r"^```py\n(.*?)^```$", (ROOT / "docs" / "distributed.md").read_text(), re.M | re.S))])
def test_blocks_of_the_page_run(tmp_path, number, block):
    (tmp_path / "train.py").write_text(block)
    done = ampc_run(tmp_path, "--nproc", "2", "train.py")
    assert done.returncode == 0, done.stderr
    assert number != 0 or (tmp_path / "model.safetensors").exists()


def test_what_cannot_be_started(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = ampc_run(tmp_path, "torchrun", "--nnodes", "2", "train.py")
    assert done.returncode == 2 and "--hostfile" in done.stderr
    done = ampc_run(tmp_path, "--nproc", "0", "train.py")
    assert done.returncode == 2 and "expected a number from 1 on" in done.stderr
    done = ampc_run(tmp_path, "--nproc", "2", "nothing.py")
    assert done.returncode == 2 and done.stderr == "ampc run: nothing.py: No such file or directory\n"  # said once, before MPI starts
    monkeypatch.setenv("WORLD_SIZE", "2")  # as by a launcher that is not MPI's
    done = ampc_run(tmp_path, "train.py")
    assert done.returncode == 1 and "2 processes are asked for, and MPI has started 1; start them with `ampc run --nproc 2" in done.stderr
    monkeypatch.setattr(launch, "mpiexec", lambda: None)
    with pytest.raises(launch.CannotStart, match=r"pip install 'ampc\[mpi\]'"):
        launch.command(2, ["x"])


def test_what_nobody_has_waited_for_is_done_before_the_end(tmp_path):
    (tmp_path / "train.py").write_text("import ampc\nimport ampc.distributed as dist\ndist.init_process_group()\n"
                                       "dist.all_reduce(ampc.ones(1000000), async_op=True)\n")
    done = ampc_run(tmp_path, "--nproc", "2", "train.py")
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_what_others_do_not_come_to_is_an_error_at_the_end(tmp_path):
    (tmp_path / "train.py").write_text("import ampc\nimport ampc.distributed as dist\ndist.init_process_group()\n"
                                       "if dist.get_rank() == 0:\n    dist.all_reduce(ampc.ones(10), async_op=True)\n")
    done = ampc_run(tmp_path, "--nproc", "2", "train.py")
    assert done.returncode != 0 and "rank 0 waits in all_reduce of 10 elements" in done.stderr and "rank 1 has ended without it" in done.stderr


# -- failure -------------------------------------------------------------------------------------------------------------

FAILS = """
import os, signal, sys, time
from datetime import timedelta
import ampc
import ampc.distributed as dist
dist.init_process_group(timeout=timedelta(seconds=2))
dist.barrier()
if dist.get_rank() == 1:
    {}
{}
"""
MEETS = {"all_reduce of 3 elements of float32": "dist.all_reduce(ampc.ones(3))", "new_group of ranks [0, 1, 2]": "dist.new_group([0, 1, 2])",
         "connecting gradients of DistributedDataParallel": "ampc.nn.parallel.DistributedDataParallel(ampc.nn.Linear(2, 2))"}


@pytest.mark.parametrize("what, text", [
    ("os.kill(os.getpid(), signal.SIGKILL)", "rank 1 (process "), ("time.sleep(60)", "rank 1 has not come to it (the last it began was barrier)"),
    ("raise ValueError('a bad batch')", "rank 1 has failed: ValueError: a bad batch"), ("sys.exit(3)", "rank 1 has ended with status 3 ("), ("sys.exit()", "rank 1 has ended without it"),
    ("dist.all_reduce(3)", "rank 1 has failed: TypeError: all_reduce: `tensor` must be a Tensor, got int ({file}:9)")],
    ids=["killed", "hung", "raised", "exited", "ended", "misused"])
def test_a_rank_that_fails(tmp_path, what, text):
    ends_in_time(tmp_path, FAILS.format(what, MEETS["all_reduce of 3 elements of float32"]), text, "all_reduce of 3 elements of float32")


@pytest.mark.parametrize("meets", list(MEETS)[1:], ids=["group", "model"])
@pytest.mark.parametrize("what, text", [("time.sleep(60)", "has not ended within 2 s"), ("raise ValueError('a bad batch')", "rank 1 has failed: ValueError")],
                         ids=["hung", "raised"])
def test_a_rank_that_does_not_come_to_a_new_group(tmp_path, meets, what, text):
    """Others do not wait for it in MPI, where no signal would reach them."""
    ends_in_time(tmp_path, FAILS.format(what, MEETS[meets]), text, meets)


def ends_in_time(folder, script, *texts):
    (folder / "train.py").write_text(script)
    done = start(3, folder / "train.py", timeout=30, PYTHONPATH=os.path.dirname(os.path.dirname(ranks.ampc.__file__)))
    assert done.returncode != 0 and done.stderr.count("Traceback") >= 2, done.stderr
    assert "DistBackendError" in done.stderr and all(text.format(file=folder / "train.py") in done.stderr for text in texts), done.stderr
    assert set(re.findall(r'^ +File "(.*?)"', done.stderr, re.M)) == {str(folder / "train.py")}, done.stderr  # no line of ours


EXITS = """
import sys
import torch
import torch.distributed as dist
dist.init_process_group()
dist.barrier()
try:
    sys.exit(7)  # which is no end
except SystemExit as end:
    assert end.code == 7
dist.barrier()
if dist.get_rank() == 1:
    {}
dist.all_reduce(torch.ones(3))
"""


GOES_ON = """
import os, time
import ampc.distributed as dist
dist.init_process_group()
open(f"{dist.get_rank()}.pid", "w").write(str(os.getpid()))
dist.barrier()
print("ready", flush=True)
time.sleep(60)
"""


def runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="SIGKILL to a parent is told on Linux alone")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ranks_end_with_their_launcher(tmp_path, number):
    """Which alone gets the signal."""
    (tmp_path / "train.py").write_text(GOES_ON)
    command = [sys.executable, "-m", "ampc", "run", "--nproc", "2", "train.py"]
    env = {**os.environ, "PYTHONPATH": str(Path(ranks.ampc.__file__).parent.parent)}
    handles = functools.partial(signal.signal, signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=handles) as running:
        assert "ready" in running.stdout.readline()
        pids = [int((tmp_path / f"{rank}.pid").read_text()) for rank in range(2)]
        running.send_signal(number)
        end = time.monotonic() + 30  # the ranks sleep longer
        while any(map(runs, pids)) and time.monotonic() < end:
            time.sleep(0.1)
        assert not any(map(runs, pids))


@pytest.mark.parametrize("before, how, status, text", [(("--nproc", "2"), "sys.exit(3)", 3, "3"), (("--nproc", "2"), "sys.exit('no data')", 1, "1: no data"),
                                                       (("torchrun", "--nproc_per_node=2"), "raise SystemExit(3)", 3, "3")], ids=["nproc", "text", "torchrun"])
def test_the_status_of_a_rank_is_the_launchers(tmp_path, before, how, status, text):
    (tmp_path / "train.py").write_text(EXITS.format(how))
    done = ampc_run(tmp_path, *before, "train.py")
    assert done.returncode == status and f"rank 1 has ended with status {text} (train.py:13)" in done.stderr, done.stderr


def test_the_status_of_all_ranks(tmp_path):
    (tmp_path / "train.py").write_text("import sys\nimport ampc.distributed as dist\ndist.init_process_group()\nsys.exit(4)\n")
    done = start(2, tmp_path / "train.py", PYTHONPATH=os.path.dirname(os.path.dirname(ranks.ampc.__file__)))
    assert done.returncode == 4 and "Traceback" not in done.stderr, done.stderr


def test_a_traceback_ends_at_the_scripts_line():
    """Where ampc raises an error. What it comes across, such as a defect of its own, keeps its frames."""
    for f, ends_here in ((lambda: ranks.dist.broadcast([1]), True), (lambda: ranks.dist.all_reduce(3, "sum"), True), (lambda: _callers.location_text(None), False)):
        with pytest.raises((TypeError, ValueError)) as found:
            f()
        _callers.end_at_script(found.value)
        files = [frame.filename for frame in traceback.extract_tb(found.value.__traceback__)]
        assert (files[-1] == __file__) == ends_here and __file__ in files, files


MEETS_LATE = """
import os, sys, time
from datetime import timedelta
import ampc.distributed as dist
from ampc.distributed import _arrival
_arrival.LEAST = {2}
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
print(os.environ["PMIX_SERVER_TMPDIR"], flush=True)
for time_of_call in range({1}):
    dist.init_process_group()
    dist.destroy_process_group()
if rank == 1:
    {0}
dist.init_process_group(timeout=timedelta(seconds=1))
"""


@pytest.mark.skipif(not launch.is_open_mpi(launch.mpiexec()), reason="needs a launcher that has a folder for its processes")
@pytest.mark.parametrize("what, calls, least, text", [
    ("time.sleep(30)", 0, 5, "rank 1 has not called it within 5 s"), ("time.sleep(30)", 1, 5, "rank 1 has not called it within 5 s"),
    ("sys.exit()", 0, 20, "rank 1 has ended without calling it")], ids=["late", "again", "ended"])
def test_a_rank_that_does_not_call_init_process_group(tmp_path, what, calls, least, text):
    (tmp_path / "train.py").write_text(MEETS_LATE.format(what, calls, least))
    done = start(3, tmp_path / "train.py", timeout=30, PYTHONPATH=os.path.dirname(os.path.dirname(ranks.ampc.__file__)))
    assert done.returncode != 0 and f"DistNetworkError: init_process_group: {text}" in done.stderr, done.stderr
    assert not os.path.exists(done.stdout.split()[0])  # the launcher's folder with the files


UNTOLD = """
import os, sys, time
from datetime import timedelta
import ampc.distributed as dist
from ampc.distributed import _arrival, _mpi
_arrival.LEAST = 8  # the other one may start later
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
os.environ.pop("PMIX_SERVER_TMPDIR", None)

def hang(*args):
    print("hangs", flush=True)
    time.sleep(50)

if rank == 1 and sys.argv[1] == "before":
    hang()
if rank == 1 and sys.argv[1] == "inside":
    _mpi._drop_names = hang
if sys.argv[1] == "again":
    dist.init_process_group()
    dist.destroy_process_group()
    rank == 1 and hang()
dist.init_process_group(timeout=timedelta(seconds=1))
"""


@pytest.mark.parametrize("where", ["before", "inside", "again"])
def test_a_rank_that_hangs_where_the_launcher_tells_of_nobody(tmp_path, where):
    """MPI's own start waits for it for ever, and keeps Python's lock meanwhile. Within, the one that hangs gives up, too."""
    (tmp_path / "train.py").write_text(UNTOLD)
    done = start(2, tmp_path / "train.py", where, timeout=60, PYTHONPATH=os.path.dirname(os.path.dirname(ranks.ampc.__file__)))
    assert done.returncode != 0 and "hangs" in done.stdout, done.stderr
    assert re.search(r"^ampc\S*DistNetworkError: init_process_group: rank [01] on \S+ has waited 8 s until all 2 processes are connected; ", done.stderr, re.M), done.stderr


UNEVEN = """
import sys, time
from datetime import timedelta
import ampc as torch
import ampc.distributed as dist
from ampc.nn.parallel import DistributedDataParallel

class Net(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4) if norm else torch.nn.ReLU()

    def forward(self, x):
        return self.norm(self.linear(x))

backend, more, norm, end = sys.argv[1:]
dist.init_process_group(None if backend == "mpi" else backend, timeout=timedelta(seconds=2))
if backend == "nccl":
    torch.cuda.set_device(dist.get_rank())
    torch.set_default_device(f"cuda:{dist.get_rank()}")
model = DistributedDataParallel(Net(norm == "norm"))
for batch in range(3 + (dist.get_rank() == int(more))):
    model(torch.randn(4, 2)).square().sum().backward()
if end == "destroys":
    dist.destroy_process_group()
if end != "ends":
    time.sleep(20)
"""
ADVICE = "all ranks must make as many passes: give each the same number of batches, or train within `with model.join():`"
OF_UNEVEN = [("0", "", "ends", "rank 0 waits in backward pass 4 of DistributedDataParallel(Net): rank 1 has ended without it; the last it began was backward pass 3 "
                               f"of DistributedDataParallel(Net); {ADVICE}"),
             ("1", "norm", "ends", "rank 1 waits in the forward pass before backward pass 4 of DistributedDataParallel(Net): rank 0 has ended without it; the last it "
                                   f"began was backward pass 3 of DistributedDataParallel(Net); {ADVICE}"),
             ("0", "", "destroys", "rank 0 waits in backward pass 4 of DistributedDataParallel(Net): rank 1 has destroyed its groups without it; the last it began was "
                                   f"backward pass 3 of DistributedDataParallel(Net); {ADVICE}"),
             ("0", "", "sleeps", "backward pass 4 of DistributedDataParallel(Net) has not ended within 2 s: rank 1 has not come to it (the last it began was backward "
                                 f"pass 3 of DistributedDataParallel(Net)); {ADVICE}")]


@pytest.mark.parametrize("more, norm, end, text", OF_UNEVEN, ids=["backward", "forward", "destroyed", "late"])
def test_ranks_with_different_numbers_of_batches(tmp_path, more, norm, end, text):
    (tmp_path / "train.py").write_text(UNEVEN)
    done = start(2, tmp_path / "train.py", "mpi", more, norm, end, PYTHONPATH=os.path.dirname(os.path.dirname(ranks.ampc.__file__)))
    assert done.returncode != 0 and text in done.stderr, done.stderr


def test_many_processes_on_few_cores_are_told(monkeypatch, capsys):
    from ampc.distributed import run

    monkeypatch.setattr(run, "_run_once", lambda line, variables: (0, False))
    monkeypatch.setattr(run._launcher, "command", lambda *args: ["true"])
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert run.start_all(9, ["train.py"]) == 0 and "9 processes share 2 cores" in capsys.readouterr().err
    assert run.start_all(8, ["train.py"]) == 0 and not capsys.readouterr().err
