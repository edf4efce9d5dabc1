"""Sharded training in 2 and 4 processes: ZeroRedundancyOptimizer, fully_shard, device meshes and Join, against one process and
DistributedDataParallel, and against torch's own on gloo. ``sharded_training.py`` and ``fully_sharded.py`` hold what
the processes run, all of it in one launch for each number of processes."""

import gc
import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("mpi4py")
import fully_sharded  # noqa: F401  adds its programs
import sharded_checkpoints  # noqa: F401
import sharded_judge
import sharded_offload  # noqa: F401
import sharded_training

import ampc
from ampc._process import launcher as launch
from ampc.autograd import engine
from ampc.distributed import checkpoint

pytestmark = pytest.mark.cpu
if launch.mpiexec() is None:
    pytest.skip("there is no mpiexec", allow_module_level=True)
HERE = os.path.dirname(os.path.abspath(__file__))
CASES = [(size, name) for name, (sizes, _) in sharded_training.PROGRAMS.items() for size in sizes]


def start(size, *args, timeout=120, **variables):
    """Runs Python in so many processes."""
    command = launch.command(size, [sys.executable, *map(str, args)])
    return subprocess.run(command, capture_output=True, text=True, cwd=HERE, timeout=timeout, env=launch.environment(size, {**os.environ, **variables}))


@pytest.fixture(scope="module")
def found(tmp_path_factory, drawn_names):
    """What each rank says of each program, by the number of processes; each number is started once."""
    kept = {}

    def get(size):
        if size not in kept:
            folder = tmp_path_factory.mktemp(f"sharded{size}")
            done = start(size, "sharded_training.py", folder, PROGRAMS=drawn_names("test_sharded", size=size))
            kept[size] = done, [json.loads((folder / f"{r}.json").read_text()) if (folder / f"{r}.json").exists() else {} for r in range(size)]
        return kept[size]

    return get


@pytest.mark.parametrize("size, name", CASES)
def test_sharded(found, size, name):
    done, said = found(size)
    for rank in range(size):
        assert name in said[rank], f"rank {rank} did not come to it: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        assert not said[rank][name][0], f"rank {rank}: {said[rank][name][0]}"


UNEVEN = """
import sys, time
from datetime import timedelta
import ampc as torch
import ampc.distributed as dist
from ampc.distributed.fsdp import fully_shard

class Net(torch.nn.Sequential):
    pass

dist.init_process_group(timeout=timedelta(seconds=2))
model = Net(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
fully_shard(model[0])
fully_shard(model)
for batch in range(3 + (dist.get_rank() == 0)):
    loss = model(torch.randn(2, 4)).sum()
    if batch < 3 or sys.argv[1] == "backward":
        loss.backward()
if dist.get_rank() == 1 and sys.argv[1] == "backward":
    model(torch.randn(2, 4)).sum()
    time.sleep(20)
"""


@pytest.mark.parametrize("which, text", [
    ("forward", "rank 0 waits in the forward pass before backward pass 4 of fully_shard(Net): rank 1 has ended without it; the last it began was backward pass 3 of "
                "fully_shard(Net); all ranks must make as many passes: give each the same number of batches"),
    ("backward", "backward pass 4 of fully_shard(Net) has not ended within 2 s: rank 1 has not come to it (the last it began was the forward pass before backward "
                 "pass 4 of fully_shard(Net))")])
def test_ranks_with_different_numbers_of_batches(tmp_path, which, text):
    (tmp_path / "train.py").write_text(UNEVEN)
    done = start(2, tmp_path / "train.py", which)
    assert done.returncode != 0 and text in done.stderr, done.stderr


@pytest.mark.parametrize("size", [2, 4])
def test_all_end_well(found, size):
    assert found(size)[0].returncode == 0, found(size)[0].stderr


def test_a_damaged_checkpoint_is_an_error(tmp_path):
    """Wherever a file is cut or changed, load names the file, or has the values of a file that still is one."""
    checkpoint.save({"w": ampc.ones(4, 3), "n": 3}, checkpoint_id=tmp_path)
    raised = 0
    for name in os.listdir(tmp_path):
        good = (tmp_path / name).read_bytes()
        for at in range(0, len(good), 5):
            for bad in (good[:at], good[:at] + b'"' + good[at + 1:], good[:at] + b"\xff" + good[at + 1:], good[:at] + b"7" + good[at + 1:]):
                (tmp_path / name).write_bytes(bad)
                try:
                    checkpoint.load({"w": ampc.zeros(4, 3), "n": 0}, checkpoint_id=tmp_path)
                except (RuntimeError, FileNotFoundError) as error:
                    raised += str(error).startswith("load: ")
        (tmp_path / name).write_bytes(good)
    for text in (b"[]", b'{"0": 3}', b'{"0": {"dtype": ["F32"], "shape": [4, 3], "data_offsets": [0, 48]}}', b"[" * 100_000):
        (tmp_path / next(n for n in os.listdir(tmp_path) if n != "index.json")).write_bytes(len(text).to_bytes(8, "little") + text + bytes(48))
        with pytest.raises(RuntimeError, match="is damaged|does not hold"):
            checkpoint.load({"w": ampc.zeros(4, 3)}, checkpoint_id=tmp_path)
    assert raised > 200


# -- torch as the judge --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """What each rank finds under ampc and under torch."""
    pytest.importorskip("torch")
    folder, script = tmp_path_factory.mktemp("judged"), os.path.join(HERE, "sharded_judge.py")
    ours = start(2, "-m", "ampc", "run", script, folder, "ampc")
    theirs = subprocess.run([sys.executable, script, str(folder), "torch"], capture_output=True, text=True, cwd=HERE, timeout=300)
    assert ours.returncode == 0 and theirs.returncode == 0, ours.stderr[-2000:] + theirs.stderr[-2000:]
    return [[json.loads((folder / f"{name}{rank}.json").read_text()) for name in ("ampc", "torch")] for rank in range(2)]


@pytest.mark.parametrize("what", sharded_judge.WHATS)
def test_the_losses_are_torchs(judged, what):
    """Ten steps in two processes, by torch's own and by ampc: losses, norms, bytes of the optimizer's state in each rank, and final values."""
    close = 1e-2 if what == "fully_shard_bfloat16" else 1e-5
    for rank in range(2):
        got, want = (found[what] for found in judged[rank])
        assert len(got["losses"]) == len(want["losses"]) >= 4 and got["losses"] == pytest.approx(want["losses"], rel=close, abs=close)
        assert got["bytes"] == want["bytes"] and got["norms"] == pytest.approx(want["norms"], rel=close, abs=close)
        assert got["values"] == pytest.approx(want["values"], rel=10 * close, abs=10 * close)


# -- checkpoints of several processes ------------------------------------------------------------------------------------

SAVES = """
import os, signal, sys, threading
from datetime import timedelta
import ampc
import ampc.distributed as dist
from ampc.distributed import checkpoint
from ampc.distributed.device_mesh import init_device_mesh
from ampc.distributed.tensor import Shard, distribute_tensor
dist.init_process_group(timeout=timedelta(seconds=5))
mesh = init_device_mesh("cpu", (2,))
for step in range(10_000):
    rows = distribute_tensor(ampc.full((200_000,), float(step)), mesh, [Shard(0)])
    checkpoint.save({"rows": rows, "step": step}, checkpoint_id=sys.argv[1])
    if step == 0 and dist.get_rank() == int(sys.argv[2]):
        threading.Timer(float(sys.argv[3]), os.kill, (os.getpid(), signal.SIGKILL)).start()
"""


@pytest.mark.parametrize("rank, seconds", [(0, 0.0537), (1, 0.0211), (0, 0.0123)])
def test_a_killed_save_leaves_the_checkpoint_before(tmp_path, rank, seconds):
    from ampc.distributed import checkpoint

    (tmp_path / "saves.py").write_text(SAVES)
    folder = tmp_path / "saved"
    command = launch.command(2, [sys.executable, str(tmp_path / "saves.py"), str(folder), str(rank), str(seconds)])
    env = {**launch.environment(2, dict(os.environ)), "PYTHONPATH": os.path.dirname(os.path.dirname(ampc.__file__))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode != 0
    found = {"rows": ampc.zeros(200_000), "step": -1}
    checkpoint.load(found, checkpoint_id=folder)  # in one process
    assert found["step"] >= 0 and float(found["rows"].min()) == float(found["rows"].max()) == found["step"]
    checkpoint.save({"rows": found["rows"]}, checkpoint_id=folder)  # clears away what was left
    assert len(list(folder.iterdir())) == 2


# -- what it stands on, in one process -----------------------------------------------------------------------------------


def held():
    """Bytes of the CPU's storages."""
    return ampc._C._memory()["current"]


def filled(values):
    """A tensor whose storage takes memory and gives it back; with that storage."""
    s = ampc._C._storage_new(ampc.UntypedStorage, 0, 0)
    ampc._C._storage_fill(s, values.clone().untyped_storage())
    return ampc._C._storage_tensor(s, values.dtype, 0, tuple(values.shape), values.stride()), s


def test_a_storage_gives_its_memory_back():
    size = 1 << 20
    t, s = filled(ampc.ones(size))
    version = t._version
    before = held()
    ampc._C._storage_drop(s, ampc.float32)
    assert before - held() == 4 * size and s.nbytes() == 0 and t.shape == (size,)
    for use in (lambda: t + 1, lambda: t.zero_(), t.sum, t.numpy, t.tolist, t.clone, t.data_ptr, lambda: t[:3], lambda: ampc.add(t, 1, out=t)):
        with pytest.raises(ValueError, match="its values are spread over the processes"):
            use() + 1
    ampc._C._storage_fill(s, ampc.full((size,), 2.0).untyped_storage())
    assert t.sum().item() == 2 * size and t._version == version  # graphs that keep it go on
    ampc._C._storage_fill(s, ampc.full((size,), 3.0).untyped_storage())  # without a drop between
    assert t[0].item() == 3 and held() == before
    with pytest.raises(RuntimeError, match="made with no bytes"):
        ampc._C._storage_drop(ampc.ones(2).untyped_storage(), ampc.float32)


def test_a_graph_goes_on_when_its_weight_is_there_again():
    w, s = filled(ampc.full((3, 3), 2.0))
    w.requires_grad_()
    x = ampc.ones(2, 3, requires_grad=True)
    loss = ((x @ w).relu() @ w).sum()
    ampc._C._storage_drop(s, ampc.float32)
    with pytest.raises(ValueError, match="spread over the processes"):
        loss.backward(retain_graph=True)
    ampc._C._storage_fill(s, ampc.full((3, 3), 2.0).untyped_storage())
    loss.backward()
    assert x.grad.tolist() == [[36.0] * 3] * 2


def test_parts_are_refused_and_counted():
    pending = ampc._C._pending()
    refused_but_trained(ampc.ones(3), pending)
    gc.collect()
    assert ampc._C._pending() == pending


def refused_but_trained(t, pending):
    ampc._C._make_part(t)
    alias = ampc._C._make_subclass(ampc.Tensor, t, False)
    assert ampc._C._pending() == pending + 1 and (alias + 1).tolist() == [2.0] * 3
    for use in (lambda: t + 1, lambda: ampc.ones(3) * t, t.sum, lambda: ampc.stack([t, t]), t.exp_, lambda: ampc.add(alias, 1, out=t), t.t):
        with pytest.raises(NotImplementedError, match=r"full_tensor\(\)"):
            use()
    assert alias.tolist() == [1.0] * 3
    optimizer = ampc.optim.SGD([t.requires_grad_()], lr=1.0)
    t.grad = ampc.ones(3)
    optimizer.step()
    assert alias.tolist() == [0.0] * 3


def test_calls_after_backward():
    said = []
    x = ampc.ones(2, requires_grad=True)
    y = x * 2

    def hook(grad):
        said.append("hook")
        engine.call_after_backward(lambda: said.append("after"))

    y.register_hook(hook)
    x.register_post_accumulate_grad_hook(lambda t: said.append("leaf"))
    y.sum().backward()
    assert said == ["hook", "leaf", "after"] and not engine.is_running()
    z = x * 3
    z.register_hook(lambda g: (engine.call_after_backward(lambda: said.append("never")), 1 / 0))
    with pytest.raises(ZeroDivisionError):
        z.sum().backward()
    (x * 1).sum().backward()
    assert "never" not in said
