"""NCCL between GPUs of 2 and 4 processes, each with a simulated GPU and the stand-in of NCCL of tests/cuda_sim. ``nccl_ranks.py`` holds what the
processes run."""

import json
import os
import re
import socket
import subprocess
import sys

import pytest

pytest.importorskip("mpi4py")
import nccl_ranks
from conftest import build_simulator
from test_distributed import HERE, OF_UNEVEN, UNEVEN, start

from ampc._process import launcher as launch

pytestmark = pytest.mark.cpu  # its processes have GPUs of their own
if launch.mpiexec() is None:
    pytest.skip("there is no mpiexec", allow_module_level=True)
ROOT = os.path.dirname(os.path.dirname(nccl_ranks.ampc.__file__))
SETS = [(2, "None"), (4, "None"), (2, "nccl"), (2, "env")]
OF_PAIRS = set(nccl_ranks.SHARED["sharded_training"].split()) - {"neighbours_keep_the_whole_together", "replicas_of_shards"}
CASES = [(size, how, name) for size, how in SETS for name, (sizes, _) in nccl_ranks.PROGRAMS.items()
         if size in sizes and (name not in OF_PAIRS or (size == 2 and how != "nccl"))]


@pytest.fixture(scope="module")
def simulator():
    return {"AMPC_CUDA_LIBS": str(build_simulator()), "AMPC_SIM_GPUS": "4", "PYTHONPATH": os.pathsep.join([ROOT, HERE])}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_by_variables(size, *args, timeout=60, ranks=None, **variables):
    """Runs Python in so many processes that know each other by MASTER_ADDR alone; the status of each, and what it has said."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size), "OMP_NUM_THREADS": "1"}
    meeting = {**meeting, **variables}
    started = [subprocess.Popen([sys.executable, *map(str, args)], cwd=HERE, env={**os.environ, **meeting, "RANK": str(r), "LOCAL_RANK": str(r)},
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for r in (range(size) if ranks is None else ranks)]
    try:
        said = [p.communicate(timeout=timeout)[0] for p in started]
    finally:
        for p in started:
            p.kill()
    return [p.returncode for p in started], said


@pytest.fixture(scope="module")
def found(tmp_path_factory, simulator, drawn_names):
    """What each rank says of each program, and all output; each set is started once."""
    kept = {}

    def get(size, how):
        if (size, how) not in kept:
            folder = tmp_path_factory.mktemp("ranks")
            options = {**simulator, "PROGRAMS": drawn_names("test_ranks", size=size, how=how)}
            if how == "env":
                statuses, said = start_by_variables(size, "nccl_ranks.py", folder, "nccl", timeout=240, **options)
                output = "".join(said)
            else:
                done = start(size, "nccl_ranks.py", folder, how, timeout=240, **options)
                statuses, output = [done.returncode], done.stdout + done.stderr
            files = (folder / f"{r}.json" for r in range(size))
            kept[size, how] = [json.loads(f.read_text()) if f.exists() else {} for f in files], output, statuses
        return kept[size, how]

    return get


@pytest.mark.parametrize("size, how, name", CASES)
def test_ranks(found, size, how, name):
    said, output, statuses = found(size, how)
    for rank in range(size):
        assert name in said[rank], f"rank {rank} did not come to it: {output[-3000:]}"
        assert not said[rank][name][0], f"rank {rank}: {said[rank][name][0]}"
    assert not any(statuses), output


# -- beside MPI ----------------------------------------------------------------------------------------------------------

SAME_BITS = """
import numpy as np
import ampc
import ampc.distributed as dist
from ampc.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group()
rank = dist.get_rank()
ampc.cuda.set_device(rank)
ampc.set_default_device(f"cuda:{rank}")
found = []
for backend in ("mpi", "nccl"):
    ampc.manual_seed(0)
    model = DDP(ampc.nn.Sequential(ampc.nn.Linear(6, 16), ampc.nn.GELU(), ampc.nn.Linear(16, 3)), process_group=dist.new_group(backend=backend))
    optimizer, scaler = ampc.optim.AdamW(model.parameters(), lr=0.05), ampc.amp.GradScaler()
    for step in range(4):
        ampc.manual_seed(10 * step + rank)
        x = ampc.randn(8, 6)
        optimizer.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    found.append([p.detach().cpu().numpy() for p in model.parameters()])
assert all(np.array_equal(a, b) for a, b in zip(*found))
assert {dist.get_backend(g) for g in dist.distributed_c10d._pg_map} == {"cpu:mpi,cuda:nccl", "mpi", "nccl"}
print("same")
"""


def test_training_gives_the_bits_of_mpi(tmp_path, simulator):
    """Of two ranks: a sum of two has one order."""
    (tmp_path / "train.py").write_text(SAME_BITS)
    done = start(2, tmp_path / "train.py", **simulator)
    assert done.returncode == 0 and done.stdout.count("same") == 2, done.stderr


ONE_GPU = """
import sys
import ampc
import ampc.distributed as dist
dist.init_process_group(None if sys.argv[1] == "None" else sys.argv[1])
x = ampc.ones(3, device="cuda:0")
dist.all_reduce(x)
print(x.tolist())
"""


def test_two_ranks_on_one_gpu(tmp_path, simulator):
    (tmp_path / "train.py").write_text(ONE_GPU)
    done = start(2, tmp_path / "train.py", "None", **simulator)
    assert done.returncode == 0 and done.stdout.count("[2.0, 2.0, 2.0]") == 2, done.stderr
    done = start(2, tmp_path / "train.py", "nccl", **simulator)
    assert done.returncode != 0 and "ranks 0 and 1 have one GPU, and NCCL takes one of each; call cuda.set_device(LOCAL_RANK)" in done.stderr


def test_without_nccl(tmp_path, simulator):
    """Tensors of a GPU go by MPI where nothing else is asked for."""
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    for name in os.listdir(simulator["AMPC_CUDA_LIBS"]):
        if ".so" in name and "nccl" not in name:
            (libraries / name).symlink_to(os.path.join(simulator["AMPC_CUDA_LIBS"], name))
    (tmp_path / "train.py").write_text(ONE_GPU)
    simulator = {**simulator, "AMPC_CUDA_LIBS": str(libraries)}
    done = start(2, tmp_path / "train.py", "None", **simulator)
    assert done.returncode == 0 and done.stdout.count("[2.0, 2.0, 2.0]") == 2, done.stderr
    done = start(2, tmp_path / "train.py", "nccl", **simulator)
    assert done.returncode != 0 and "backend='nccl': NCCL (libnccl.so.2) was not found; `pip install nvidia-nccl-cu13`" in done.stderr, done.stderr


# -- failure ---------------------------------------------------------------------------------------------------------------

FAILS = """
import ctypes, os, signal, sys, time
from datetime import timedelta
import ampc
import ampc.distributed as dist
dist.init_process_group("nccl", timeout=timedelta(seconds=2))
rank = dist.get_rank()
ampc.cuda.set_device(rank)
stand_in = ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libnccl.so.2"))
group = dist.new_group()
x = ampc.ones(3, device="cuda")
dist.all_reduce(x, group=group)
group.checks = False  # as a DistributedDataParallel's: the GPU alone waits for the others
x.tolist()
if rank == 1:
    {}
dist.all_reduce(x, group=group)
begin = time.monotonic()
try:
    x.tolist()
finally:
    print(f"waited {{time.monotonic() - begin:.1f}} s", flush=True)
dist.all_reduce(x, group=group)
x.tolist()
print("no error", flush=True)
"""
WAYS = {"killed": ("os.kill(os.getpid(), signal.SIGKILL)", "rank 1"),
        "raised": ("raise ValueError('a bad batch')", "rank 1 has failed: ValueError: a bad batch"),
        "exited": ("sys.exit(3)", "rank 1 has ended with status 3 ("),
        "hung": ("time.sleep(6)", "all_reduce of 3 elements of float32, SUM has not ended within 2 s"),
        "hung on the GPU": ("stand_in.ampc_simulate_nccl(0, 0, 1, 0)", "all_reduce of 3 elements of float32, SUM has not ended within 2 s"),
        "lost": ("stand_in.ampc_simulate_nccl(0, 0, 0, 1)", "rank 1 in all_reduce of 3 elements of float32, SUM: an operation between GPUs: NCCL: "
                                                            "remote process exited or there was a network error (6)"),
        "refused": ("stand_in.ampc_simulate_nccl(1, 3, 0, 0)", "rank 1 in all_reduce of 3 elements of float32, SUM: an operation between GPUs: "
                                                               "NCCL: internal error (3): a failure that was asked for")}


LOCKED = """
import ctypes, os, sys, time
from datetime import timedelta
import ampc
import ampc.distributed as dist
dist.init_process_group("nccl", timeout=timedelta(seconds=2))
rank = dist.get_rank()
ampc.cuda.set_device(rank)
folder = os.environ["AMPC_CUDA_LIBS"]
driver = ctypes.PyDLL(os.path.join(folder, "libcuda.so.1"))  # whose calls keep Python's lock
group = dist.new_group()
x = ampc.ones(3, device="cuda")
dist.all_reduce(x, group=group)
group.checks = False
if rank == 1:
    ctypes.CDLL(os.path.join(folder, "libnccl.so.2")).ampc_simulate_nccl(0, 0, 1, 0)
work = dist.all_reduce(x, group=group, async_op=True)
begin = time.monotonic()
if rank == 1:
    context = ctypes.c_void_p()
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1)
    driver.cuCtxSetCurrent(context)
    driver.cuCtxSynchronize()
    print(f"returned after {time.monotonic() - begin:.1f} s", flush=True)
work.wait(timedelta(seconds=20))
"""


def test_a_rank_that_waits_with_pythons_lock_ends(tmp_path, simulator):
    (tmp_path / "train.py").write_text(LOCKED)
    statuses, said = start_by_variables(2, tmp_path / "train.py", timeout=60, **simulator)
    assert all(statuses) and "all_reduce of 3 elements of float32, SUM has not ended within 2 s" in said[0], said
    assert 3 < float(said[1].split("returned after ")[1].split()[0]) < 10 and "DistBackendError" in said[1], said


HANGS = """
import sys, time
from datetime import timedelta
import ampc
import ampc.distributed as dist
dist.init_process_group("nccl", timeout=timedelta(seconds=3))
ampc.cuda.set_device(dist.get_rank())
x = ampc.ones(3, device="cuda")
dist.all_reduce(x)
if dist.get_rank() == 1:
    time.sleep(15)
begin = time.monotonic()
try:
    dist.broadcast(x, 0)
finally:
    print(f"after {time.monotonic() - begin:.0f} s", flush=True)
"""


def test_a_rank_that_hangs_is_named_without_mpi(tmp_path, simulator):
    """By all others, with what they wait in, and what it has begun last."""
    (tmp_path / "train.py").write_text(HANGS)
    statuses, said = start_by_variables(3, tmp_path / "train.py", timeout=60, **simulator)
    assert all(statuses), said
    for rank in (0, 2):
        assert "broadcast of 3 elements of float32, from 0" in said[rank] and "rank 1" in said[rank], said[rank]
        assert int(said[rank].split("after ")[1].split()[0]) <= 8, said[rank]
    assert any("the last it began was all_reduce of 3 elements" in text
               for text in said), said
    assert "DistBackendError: rank 1 waits in broadcast" in said[1], said[1]
    assert re.search(r"rank [02] has failed: .*broadcast of 3 elements of float32", said[1]), said[1]
    assert "has failed: rank" not in "".join(said), said  # the first failure is told, and not that others failed by it


@pytest.mark.parametrize("way, how", [*((way, "mpi") for way in WAYS), ("killed", "env"), ("exited", "env"), ("hung", "env"), ("lost", "env")])
def test_a_rank_that_fails(tmp_path, simulator, way, how):
    what, text = WAYS[way]
    (tmp_path / "train.py").write_text(FAILS.format(what))
    if how == "mpi":
        done = start(2, tmp_path / "train.py", timeout=40, **simulator)
        statuses, output = [done.returncode], done.stdout + done.stderr
    else:
        statuses, said = start_by_variables(2, tmp_path / "train.py", timeout=40, **simulator)
        output = "".join(said)
    assert any(statuses) and "no error" not in output and "DistBackendError" in output and text in output, output
    assert how == "mpi" or all(statuses), output
    assert way != "exited" or statuses[-1] == 3, output  # of mpiexec, or of rank 1
    assert (how, way) != ("env", "hung") or "rank 1 has not come to it (the last it began was all_reduce of 3 elements" in output, output


@pytest.mark.parametrize("more, norm, end, text", [OF_UNEVEN[0], *OF_UNEVEN[2:]], ids=["ends", "destroyed", "late"])
def test_ranks_with_different_numbers_of_batches(tmp_path, simulator, more, norm, end, text):
    (tmp_path / "train.py").write_text(UNEVEN)
    statuses, said = start_by_variables(2, tmp_path / "train.py", "nccl", more, norm, end, **simulator)
    assert statuses[0] and text in said[0], said


DESTROYS = """
import ctypes, os, sys
from datetime import timedelta
import ampc
import ampc.distributed as dist
dist.init_process_group("nccl", timeout=timedelta(seconds=2))
ampc.cuda.set_device(dist.get_rank())
group = dist.new_group()
x = ampc.ones(3, device="cuda")
dist.all_reduce(x, group=group)
group.checks = False
stand_in = ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libnccl.so.2"))
stand_in.ampc_simulate_nccl(0, 0, 1, 0)
dist.all_reduce(x, group=group, async_op=True)  # never waited for, and it never ends
try:
    dist.destroy_process_group()
except dist.DistBackendError as error:
    print("told:", error)
assert not dist.is_initialized()
for group in (None, group):
    try:
        dist.destroy_process_group(group)
    except ValueError as error:
        print("again:", error)
"""


def test_groups_are_gone_after_destroy_though_an_operation_has_failed(tmp_path, simulator):
    (tmp_path / "train.py").write_text(DESTROYS)
    statuses, said = start_by_variables(2, tmp_path / "train.py", timeout=60, **simulator)
    for text in said:
        assert "told: all_reduce of 3 elements of float32, SUM has not ended within 2 s" in text or "told: rank" in text, said
        assert "again: destroy_process_group: expected a group" in text and "AssertionError" not in text, said


# -- the start without MPI ---------------------------------------------------------------------------------------------------

MEETS = """
import sys
from datetime import timedelta
import ampc
import ampc.distributed as dist
dist.init_process_group({}, timeout=timedelta(seconds=float(sys.argv[1])))
assert "mpi4py" not in sys.modules
rank = dist.get_rank()
ampc.cuda.set_device(rank)
x = ampc.ones(3, device="cuda") * (rank + 1)
dist.all_reduce(x)
sys.stdout.write(f"{{x.tolist()}} {{dist.get_backend()}}\\n")  # at once: all write to one pipe
"""


@pytest.mark.parametrize("arguments", ["'nccl'", "'nccl', init_method='env://'", "'cuda:nccl'", "None"])
def test_processes_meet_by_variables(tmp_path, simulator, arguments):
    (tmp_path / "train.py").write_text(MEETS.format(arguments))
    statuses, said = start_by_variables(3, tmp_path / "train.py", 20, **simulator)
    assert statuses == [0, 0, 0] and all("[6.0, 6.0, 6.0] nccl" in text for text in said), said


def test_the_place_can_be_an_argument(tmp_path, simulator):
    (tmp_path / "train.py").write_text(MEETS.format(f"'nccl', init_method='tcp://127.0.0.1:{free_port()}'"))
    statuses, said = start_by_variables(2, tmp_path / "train.py", 20, MASTER_PORT="1", **simulator)
    assert statuses == [0, 0], said


def test_torchrun_itself_may_listen_at_the_port(tmp_path, simulator):
    (tmp_path / "train.py").write_text(MEETS.format("'nccl'"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        statuses, said = start_by_variables(2, tmp_path / "train.py", 20, MASTER_PORT=port, TORCHELASTIC_USE_AGENT_STORE="True", **simulator)
        assert statuses == [0, 0], said
        statuses, said = start_by_variables(2, tmp_path / "train.py", 1, MASTER_PORT=port, ranks=[0], **simulator)
        assert statuses == [1] and f"rank 0 cannot listen at port {port}" in said[0] and "set MASTER_PORT to a free one" in said[0], said


SRUN = """
import os, subprocess, sys
layout = [int(n) for n in sys.argv[1].split(",")]
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
    os.environ.pop(name, None)
shared = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_NTASKS": str(sum(layout)), "SLURM_STEP_NUM_TASKS": str(sum(layout)),
          "SLURM_STEP_NODELIST": "127.0.0.[1-2,7]", "SLURM_JOB_NODELIST": "127.0.0.[1-9]", "SLURM_LAUNCH_NODE_IPADDR": "10.9.8.7",
          "SLURM_STEP_TASKS_PER_NODE": sys.argv[1]}
places = [(node, local) for node, count in enumerate(layout) for local in range(count)]
started = [subprocess.Popen(sys.argv[2:], env={**os.environ, **shared, "SLURM_PROCID": str(rank), "SLURM_NODEID": str(node), "SLURM_LOCALID": str(local)})
           for rank, (node, local) in enumerate(places)]
sys.exit(max(p.wait() for p in started))
"""


@pytest.mark.parametrize("program", [("train.py",), ("-m", "ampc", "run", "train.py")], ids=["python", "ampc run"])
def test_srun_starts_them(tmp_path, simulator, program):
    """A stand-in for srun: two tasks on the first host of its list, one on the second, and no PMI that mpi4py would know."""
    (tmp_path / "srun.py").write_text(SRUN)
    (tmp_path / "train.py").write_text(MEETS.format("'nccl'") + "import os\nsys.stdout.write(f\"{os.environ['LOCAL_RANK']} {os.environ['LOCAL_WORLD_SIZE']}\\n\")\n")
    done = subprocess.run([sys.executable, "srun.py", "2,1", sys.executable, *program, "20"], cwd=tmp_path, env={**os.environ, **simulator,
                          "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0 and done.stdout.count("[6.0, 6.0, 6.0] nccl") == 3, done.stderr
    assert all(text in done.stdout for text in ("0 2", "1 2", "0 1")), done.stdout


def test_torchs_own_launcher_starts_them(tmp_path, simulator):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(MEETS.format("'nccl'"))
    line = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}", "-m", "ampc", "run", "train.py", "20"]
    done = subprocess.run(line, cwd=tmp_path, env={**os.environ, **simulator, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0 and done.stdout.count("[3.0, 3.0, 3.0] nccl") == 2, done.stderr


def test_ranks_that_do_not_come(tmp_path, simulator):
    (tmp_path / "train.py").write_text(MEETS.format("'nccl'"))
    statuses, said = start_by_variables(4, tmp_path / "train.py", 8, ranks=[0, 2], **simulator)
    assert statuses == [1, 1] and all("4 processes shall meet at 127.0.0.1:" in text and "ranks 1, 3 have not come" in text for text in said), said
    statuses, said = start_by_variables(2, tmp_path / "train.py", 1, ranks=[1], **simulator)
    assert statuses == [1] and "rank 1 has not found rank 0 at 127.0.0.1:" in said[0], said


def test_processes_that_do_not_fit(tmp_path, simulator):
    (tmp_path / "train.py").write_text(MEETS.format("'nccl', rank=0, world_size=2"))
    statuses, said = start_by_variables(2, tmp_path / "train.py", 8, **simulator)
    assert statuses == [1, 1] and any("cannot listen" in text for text in said), said
    (tmp_path / "train.py").write_text(MEETS.format("'nccl', rank=5, world_size=2"))
    statuses, said = start_by_variables(2, tmp_path / "train.py", 3, ranks=[0], **simulator)
    assert statuses == [1] and "the rank must be from 0 to 1, got 5" in said[0], said


def test_one_process_needs_no_variables(tmp_path, simulator):
    (tmp_path / "train.py").write_text(MEETS.format("'nccl'"))
    done = subprocess.run([sys.executable, str(tmp_path / "train.py"), "5"], env={**os.environ, **simulator}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "[1.0, 1.0, 1.0] nccl" in done.stdout, done.stderr


AGAIN = """
import time
from datetime import timedelta
import ampc
import ampc.distributed as dist
for times in range(3):
    dist.init_process_group("nccl", timeout=timedelta(seconds=10))
    rank = dist.get_rank()
    ampc.cuda.set_device(rank)
    x = ampc.ones(3, device="cuda") * (rank + 1)
    time.sleep(0.5 * (rank == times))  # the others wait for this one
    for _ in range(times + 1):
        dist.all_reduce(x)
    print(x.tolist(), flush=True)
    dist.destroy_process_group()
"""


def test_groups_are_made_again_without_mpi(tmp_path, simulator):
    """A rank that has destroyed its groups comes back."""
    (tmp_path / "train.py").write_text(AGAIN)
    statuses, said = start_by_variables(3, tmp_path / "train.py", **simulator)
    assert statuses == [0, 0, 0] and all(f"{[2.0 * 3**(t + 1)] * 3}" in text for text in said for t in range(3)), said
