"""Training on 2 and 4 ranks: the configuration's fields, checkpoints, restarts, spawned ranks, and the guard's rules about ranks."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("mpi4py")
import references
import trainer_ranks

import ampc
from ampc._process import launcher as launch

pytestmark = pytest.mark.cpu
if launch.mpiexec() is None:
    pytest.skip("there is no mpiexec", allow_module_level=True)
HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(ampc.__file__))
CASES = [(size, name) for name, (sizes, _) in trainer_ranks.PROGRAMS.items() for size in sizes]


@pytest.fixture(scope="module")
def found(tmp_path_factory, drawn_names):
    """What each rank says of each program, by the number of processes; each number is started once."""
    kept = {}

    def get(size):
        if size not in kept:
            folder = tmp_path_factory.mktemp(f"ranks{size}")
            command = launch.command(size, [sys.executable, "trainer_ranks.py", str(folder)])
            env = launch.environment(size, {**os.environ, "PROGRAMS": drawn_names("test_ranks", size=size)})
            done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, timeout=300, env=env)
            kept[size] = done, [json.loads((folder / f"{r}.json").read_text()) if (folder / f"{r}.json").exists() else {} for r in range(size)]
        return kept[size]

    return get


@pytest.mark.parametrize("size, name", CASES)
def test_ranks(found, size, name):
    done, said = found(size)
    for rank in range(size):
        assert name in said[rank], f"rank {rank} did not come to it: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        assert not said[rank][name][0], f"rank {rank}: {said[rank][name][0]}"


# -- restarts ------------------------------------------------------------------------------------------------------------


def ampc_run(*args, cwd=HERE, **variables):
    """The command line and its options for subprocess."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([PACKAGE, os.environ.get("PYTHONPATH", "")]), **variables}
    return [sys.executable, "-m", "ampc", "run", *map(str, args)], {"cwd": cwd, "env": env, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def finished(*args, **options):
    command, options = ampc_run(*args, **options)
    return subprocess.run(command, timeout=200, **options)


def pid_of(folder, count, rank, running, timeout=200):
    """The process that was started with this number of restarts; None where the run has ended instead."""
    end = time.monotonic() + timeout
    while not (folder / f"{count}.{rank}").exists():
        if running.poll() is not None:
            return None
        assert time.monotonic() < end, f"restart {count} has not come"
        time.sleep(0.005)
    return int((folder / f"{count}.{rank}").read_text())


def killed_run(folder, draw, size, kills):
    """A run of restarted.py whose ranks are killed at drawn moments. How often they were, and the checkpoint at the end."""
    folder.mkdir()
    command, options = ampc_run("--nproc", size, "--max-restarts", kills, "restarted.py", folder)
    with subprocess.Popen(command, **options) as running:
        done = 0
        for count in range(kills):
            rank, seconds = draw.randrange(size), draw.uniform(0, 1.5)
            pids = [pid_of(folder, count, r, running) for r in range(size)]
            if None in pids:
                break
            try:
                running.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                pass
            try:
                os.kill(pids[rank], signal.SIGKILL)
                done += 1
            except ProcessLookupError:
                break
        out, err = running.communicate(timeout=300)
    assert running.returncode == 0, err[-4000:]
    return done, ampc.load(folder / "run.safetensors"), err


def flat(value):
    """All that a checkpoint holds, comparable, but the memory that steps were measured to save: a process' first step takes other memory."""
    if isinstance(value, dict):
        return {k: flat(v) for k, v in value.items() if k != "memory_savings"}
    if isinstance(value, (list, tuple)):
        return [flat(v) for v in value]
    return [str(value.dtype), value.tolist()] if isinstance(value, ampc.Tensor) else value


def test_a_killed_run_goes_on_bit_for_bit(tmp_path):
    soak = "AMPC_EXAMPLES" in os.environ
    draw, want, left, runs = random.Random(references.DRAWN), {}, 100 if soak else 3, 0
    print(f"drawn by AMPC_TEST_SEED={references.DRAWN}")
    while left > 0:
        size = draw.choice((2, 4)) if soak else 2
        if size not in want:
            want[size] = flat(killed_run(tmp_path / f"whole{size}", draw, size, 0)[1])
        done, got, err = killed_run(tmp_path / f"killed{runs}", draw, size, min(left, 8))
        assert flat(got) == want[size] and err.count("; restart ") >= done
        left, runs = left - done, runs + 1
        assert runs < 200, "the runs end before they can be killed"


def test_restarts_are_counted(tmp_path):
    (tmp_path / "train.py").write_text("import os, sys\ncount = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
                                       "print(count, os.environ['TORCHELASTIC_MAX_RESTARTS'], flush=True)\nsys.exit(3 if count < 2 else 0)\n")
    done = finished("--nproc", 2, "--max-restarts", 5, "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted({line.split("] ")[1] for line in done.stdout.split("\n") if line}) == ["0 5", "1 5", "2 5"]
    assert "status 3; restart 1 of 5" in done.stderr and "restart 2 of 5" in done.stderr and "restart 3 of 5" not in done.stderr
    done = finished("torchrun", "--nproc-per-node=2", "--max-restarts=1", "train.py", cwd=tmp_path)
    assert done.returncode == 3 and done.stderr.count("restart 1 of 1") == 1 and "restart 2" not in done.stderr
    done = finished("--nproc", 2, "train.py", cwd=tmp_path)
    assert done.returncode == 3 and "; restart" not in done.stderr


def test_restarts_that_are_none(tmp_path):
    (tmp_path / "train.py").write_text("")
    for args, text in ((("--max-restarts", 2), "give it with --nproc"), (("--nproc", 2, "--max-restarts", -1), "a number from 0 on, got -1"),
                       (("torchrun", "--max-restarts", "-1"), "a number from 0 on, got -1")):
        done = finished(*args, "train.py", cwd=tmp_path)
        assert done.returncode == 2 and text in done.stderr, done.stderr


def test_sigterm_is_no_failure(tmp_path):
    (tmp_path / "train.py").write_text("import pathlib, time\npathlib.Path('up').touch()\ntime.sleep(60)\n")
    command, options = ampc_run("--nproc", 2, "--max-restarts", 3, "train.py", cwd=tmp_path)
    with subprocess.Popen(command, **options) as running:
        while not (tmp_path / "up").exists():
            time.sleep(0.01)
        running.terminate()
        _, err = running.communicate(timeout=100)
    assert running.returncode != 0 and "; restart" not in err, err


# -- spawned ranks -------------------------------------------------------------------------------------------------------


def spawn(case):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([PACKAGE, os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([sys.executable, "spawned.py", case], capture_output=True, text=True, cwd=HERE, env=env, timeout=300)


def test_spawned_processes_are_ranks():
    done = spawn("sums")
    assert done.returncode == 0 and "all is well" in done.stdout, done.stderr
    assert done.stderr.count("'gloo' means MPI here") == 3  # for three groups, by rank 0


@pytest.mark.parametrize("case, kind, text", [
    ("raise", "ProcessRaisedException: process 1 raised an exception", "in fails\n    raise ValueError(\"a bad batch\")\nValueError: a bad batch"),
    ("kill", "ProcessExitedException", "process 1 was ended by the signal SIGKILL"),
    ("exit", "ProcessExitedException", "process 1 ended with exit code 3"),
    ("late", "DistNetworkError", "init_process_group: rank 1 has not called it within 3 s"),
    ("nobody", "ProcessRaisedException", "ValueError: init_process_group: a process of multiprocessing.spawn must say which it is: give `rank`"),
    ("others", "ProcessRaisedException", "of `world_size` 3, and multiprocessing.spawn has started 2 processes; on several hosts"),
    ("no program", "ProcessRaisedException", "mpiexec is not there"), ("no program", "DistNetworkError", "start the script with `ampc run --nproc 2`"),
    ("broken program", "DistNetworkError", "there are not enough slots; start the script with `ampc run --nproc 2`")])
def test_a_spawned_rank_that_fails(case, kind, text):
    done = spawn(case)
    assert done.returncode == 1 and kind in done.stderr and text in done.stderr, done.stderr
    assert "in _wrap" not in done.stderr, done.stderr


def test_a_script_for_torch_spawns_ranks(tmp_path):
    (tmp_path / "train.py").write_text("import torch\nimport torch.distributed as dist\nimport torch.multiprocessing as mp\n\n\ndef main(rank, size):\n"
                                       "    dist.init_process_group('gloo', rank=rank, world_size=size)\n    x = torch.ones(2)\n    dist.all_reduce(x)\n"
                                       "    print(f\"{rank} {x.tolist()}\\n\", end=\"\")\n\n\nif __name__ == '__main__':\n    mp.spawn(main, args=(2,), nprocs=2)\n")
    done = finished("train.py", cwd=tmp_path)
    assert done.returncode == 0 and sorted(done.stdout.split("\n")[:-1]) == ["0 [2.0, 2.0]", "1 [2.0, 2.0]"], (done.returncode, done.stdout, done.stderr)


# -- the model of many ranks ---------------------------------------------------------------------------------------------


def test_the_scaling_model(monkeypatch):
    monkeypatch.syspath_prepend(os.path.join(os.path.dirname(HERE), "tools"))
    import scaling_model as model

    link = model.Link("", 1e-5, 1e-9)
    assert model.ring(link, 2, 1e6) == pytest.approx(2 * (1e-5 + 0.5e6 * 1e-9)) and model.ring(link, 4, 1e6) == pytest.approx(6 * (1e-5 + 0.25e6 * 1e-9))
    assert model.tree(link, 4, 1e6) == pytest.approx(4 * (1e-5 + 1e6 * 1e-9)) == model.tree(link, 3, 1e6)
    assert model.all_reduce(link, 1, 1e6) == 0 and model.all_reduce(link, 4096, 8) == model.tree(link, 4096, 8)
    assert model.all_reduce(link, 8, 1e9) == model.ring(link, 8, 1e9)
    found = model.fitted({2**k: model.ring(link, 2, 2**k) for k in range(8, 24)})
    assert (found.alpha, found.beta) == pytest.approx((1e-5, 1e-9))
    assert model.shared(link, 4, 2) == model.Link("", 2e-5, 2e-9) and model.shared(link, 2, 4) == link
    parts = {"bytes": 2.0**20, "forward": 1.0, "backward": 2.0, "update": 0.5}  # one bucket, which leaves when backward is over
    assert model.step(link, 1, parts) == 3.5 and model.step(link, 2, parts) == pytest.approx(3.5 + model.ring(link, 2, 2**20))
    parts["bytes"] = 2.0**20 + 50 * 2.0**20  # the last bucket alone is seen
    assert model.buckets(parts["bytes"]) == [2**20, 25 * 2**20, 25 * 2**20]
    assert model.step(link, 2, parts) == pytest.approx(3.5 + model.ring(link, 2, 25 * 2**20))
    assert model.step(model.Link("", 0, 1e-6), 2, parts) > 3.5 + 25  # nothing more is hidden than backward


# -- launchers -----------------------------------------------------------------------------------------------------------

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@pytest.mark.parametrize("given, want", [
    ({"SLURM_PROCID": "9", "SLURM_STEP_NUM_TASKS": "11", "SLURM_LOCALID": "1", "SLURM_NODEID": "2", "SLURM_STEP_TASKS_PER_NODE": "4(x2),3",
      "SLURM_STEP_NODELIST": "node[03-05]"}, ("9", "11", "1", "3", "node03", "29500")),
    ({"SLURM_PROCID": "5", "PMIX_RANK": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
      "SLURM_STEP_NODELIST": "a7,b[1,3]"}, ("5", "8", "1", "4", "a7", "29500")),
    ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0", "SLURM_NTASKS_PER_NODE": "1", "SLURM_STEP_NODELIST": "n[9,12]-ib,z",
      "MASTER_PORT": "1234"}, ("0", "2", "0", "1", "n9-ib", "1234")),
    ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
      "SLURM_PROCID": "0", "SLURM_STEP_TASKS_PER_NODE": "1"}, ("1", "2", "1", "2", "127.0.0.1", "29500")),  # mpiexec in the script of a job
    ({"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, ("3", "4", "1", "2", "127.0.0.1", "29500")),
    ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NODELIST": "node[01-03,7]", "SLURM_JOB_ID": "1234", "SLURM_STEP_ID": "2"},
     ("0", "4", "0", "4", "node01", "24636")),
    ({"SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}, (None,) * 6)], ids=["three hosts", "pmix", "names", "mpiexec", "mpich", "a step", "a job's script"])
def test_who_is_who(monkeypatch, given, want):
    for name in {*NAMES, *launch.RANK_VARIABLES, *launch.SIZE_VARIABLES, *launch.LOCAL_VARIABLES, *launch.LOCAL_SIZE_VARIABLES, "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID",
                 "SLURM_STEP_ID"}:
        monkeypatch.setenv(name, "")  # so that what is set below is taken away again
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert launch.set_variables() == int(want[1] or 1) and tuple(os.environ.get(name) for name in NAMES) == want


def test_srun_that_tells_mpi_nothing(tmp_path):
    """Each process would train a model of its own. Without ``ampc run`` nothing sets WORLD_SIZE."""
    (tmp_path / "train.py").write_text("import ampc.distributed as dist\ndist.init_process_group()\n")
    of_slurm = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "7", "PMI_RANK": "1", "PMI_SIZE": "2", "PMI_FD": ""}  # as by --mpi=pmi2
    done = subprocess.run([sys.executable, tmp_path / "train.py"], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **of_slurm, "PYTHONPATH": os.path.dirname(os.path.dirname(ampc.__file__))})
    assert done.returncode == 1 and "2 processes are asked for, and MPI has started 1" in done.stderr and "`srun --mpi=pmix`" in done.stderr, done.stderr


@pytest.mark.parametrize("given", [{"SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}, {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_JOB_ID": "7"}],
                         ids=["script", "step"])
def test_one_process_of_slurm_starts_others(tmp_path, given):
    """In a job's script, or as the only one of ``srun``: on this host, whatever nodes the job has."""
    (tmp_path / "train.py").write_text("import ampc.distributed as dist\ndist.init_process_group()\nprint(dist.get_world_size(), dist.get_node_local_rank())\n")
    nodes = {"SLURM_NODELIST": "n[1-2]", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "2"}
    done = finished("--nproc", 2, "train.py", cwd=tmp_path, **given, **nodes)
    assert done.returncode == 0 and sorted(done.stdout.split("\n"))[1:] == ["[rank 0] 2 0", "[rank 1] 2 1"], done.stderr + done.stdout


def test_processes_of_srun_start_no_others(tmp_path):
    (tmp_path / "train.py").write_text("")
    done = finished("--nproc", 2, "train.py", cwd=tmp_path, SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="2")
    assert done.returncode == 2 and "a process that a launcher has started" in done.stderr, done.stderr


def test_notes_are_told_once_and_logs_carry_the_rank(tmp_path):
    (tmp_path / "train.py").write_text("import logging\nimport ampc as torch\nfrom ampc.doctor import guard\nlogging.basicConfig(level=logging.INFO)\n"
                                       "logging.info('begins')\nguard.note('step-waits', 'it waits', 'do not')\n")
    done = finished("--nproc", 2, "train.py", cwd=tmp_path)
    assert done.returncode == 0 and all(f"[rank {r}] INFO:root:begins" in done.stderr for r in range(2)), done.stderr
    assert done.stderr.count("PerformanceNote") == 1 and "[rank 0]" in next(line for line in done.stderr.split("\n") if "PerformanceNote" in line)
