"""Processes on two hosts: two network namespaces of this machine with a cable between them, over Open MPI's TCP. Which ranks share a host follows from
what the launcher says. Only the namespaces' own addresses are used."""

import json
import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("mpi4py")
import shared_ranks
from test_distributed import HERE

from ampc._process import launcher as launch
from ampc.distributed._hostfile import hosts_of

pytestmark = pytest.mark.cpu
ROOT_OF_AMPC = os.path.dirname(os.path.dirname(shared_ranks.ampc.__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "benchmarks"))
from two_hosts import TwoHosts, why_not  # noqa: E402


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Runs ``ampc run`` on two hosts: ``run(size, *args, **variables)`` with half of the processes on each; with ``by_hand`` a script by mpiexec."""
    why = why_not()
    if why is not None:
        pytest.skip(why)
    with TwoHosts(tmp_path_factory.mktemp("hosts")) as two:
        def run(size, *args, timeout=120, by_hand=False, **variables):
            env = two.environment({**launch.environment(2, dict(os.environ)), "PYTHONPATH": ROOT_OF_AMPC}) | variables
            options = ["--hostfile", two.hostfile(size)]
            command = ([launch.mpiexec(), *options, "-n", size, "-x", "PYTHONPATH", sys.executable, *args] if by_hand else
                       [sys.executable, "-m", "ampc", "run", "--nproc", size, *options, *args])
            with subprocess.Popen(two.on_the_first(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=HERE, env=env,
                                  start_new_session=True) as running:
                try:
                    out, err = running.communicate(timeout=timeout)
                except subprocess.TimeoutExpired:
                    os.killpg(running.pid, signal.SIGKILL)  # mpiexec with it
                    raise
            return subprocess.CompletedProcess(command, running.returncode, out, err)

        yield run


PROGRAM = """
import os, socket, sys
import ranks, shared_ranks
import ampc.distributed as dist

programs = {name: shared_ranks.PROGRAMS[name] for name in ("nan_is_in_every_rank", "many_at_once", "what_does_not_agree", "parts_are_near")}

@ranks.ranks(2, 4, programs=programs)
def two_hosts(rank, size):
    assert "AMPC_RANKS_PER_HOST" not in os.environ
    world, names = dist.group.WORLD, [None] * size
    dist.all_gather_object(names, socket.gethostname())
    assert len(set(names)) == 2 and names[:size // 2] == [names[0]] * (size // 2)
    assert world.hosts == 2 and not world.on_one_host and (world.shared is not None) == (size > 2)
    low = dist.new_group(list(range(size // 2)))
    assert size == 2 or rank >= size // 2 or low.on_one_host

ranks.run(sys.argv[1], programs)
"""


@pytest.mark.parametrize("size", [2, 4])
def test_two_hosts(hosts, tmp_path, size):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = hosts(size, tmp_path / "program.py", tmp_path, PYTHONPATH=os.pathsep.join([ROOT_OF_AMPC, HERE]))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    for rank in range(size):
        said = json.loads((tmp_path / f"{rank}.json").read_text())
        assert len(said) == 5 and not any(text for text, _ in said.values()), said


FAILS = """
import os, signal
from datetime import timedelta
import ampc
import ampc.distributed as dist
dist.init_process_group(timeout=timedelta(seconds=3))
dist.all_reduce(ampc.ones(3))
if dist.get_rank() == 1:
    raise ValueError("a bad batch")
dist.all_reduce(ampc.ones(3))
"""


def test_a_rank_on_another_host_that_fails(hosts, tmp_path):
    (tmp_path / "train.py").write_text(FAILS)
    done = hosts(2, tmp_path / "train.py")
    assert done.returncode != 0 and "ValueError: a bad batch" in done.stderr, done.stderr


LATE = """
import os, sys, time
from datetime import timedelta
import ampc.distributed as dist
from ampc.distributed import _arrival
_arrival.LEAST = 3
for _ in range(int(sys.argv[1])):
    dist.init_process_group()
    dist.destroy_process_group()
if os.environ["RANK"] == "1":
    time.sleep(30)
dist.init_process_group(timeout=timedelta(seconds=3))
"""


@pytest.mark.parametrize("size, before, text", [(2, 0, "rank 1 has not called it within 3 s; those that have are on ampc"),
                                                (2, 1, "rank 1 has not called it within 3 s; those that have are on ampc"),
                                                (4, 0, "local rank 1 has not called it within 3 s")])
def test_a_rank_of_another_host_that_does_not_come(hosts, tmp_path, size, before, text):
    """Each time that the processes connect. MPI's own start would wait for it without a word. Who is on its host names it first."""
    (tmp_path / "train.py").write_text(LATE)
    done = hosts(size, tmp_path / "train.py", before, timeout=25)
    assert done.returncode != 0 and f"DistNetworkError: init_process_group: {text}" in done.stderr, done.stderr


@pytest.mark.parametrize("before", [0, 1])
def test_a_rank_of_another_host_that_does_not_come_under_mpiexec(hosts, tmp_path, before):
    """Which tells nobody of it: the rank that waits is named."""
    (tmp_path / "train.py").write_text(LATE.replace('"RANK"', '"OMPI_COMM_WORLD_RANK"'))
    done = hosts(2, tmp_path / "train.py", before, timeout=25, by_hand=True)
    assert done.returncode != 0 and "DistNetworkError: init_process_group: rank 0 on ampc" in done.stderr, done.stderr
    assert "has waited 3 s until all 2 processes are connected; one of them has not called it" in done.stderr, done.stderr


def test_a_launcher_that_cannot_be_reached(hosts, tmp_path):
    """The processes come together without it."""
    (tmp_path / "train.py").write_text("import os\nos.environ['AMPC_MEETING'] = '127.0.0.1:1'\n"
                                       "from ampc.distributed import _arrival\n_arrival.CONNECT = 0.1\n" + FAILS)
    done = hosts(2, tmp_path / "train.py")
    assert done.returncode != 0 and "ValueError: a bad batch" in done.stderr, done.stderr


RESTARTED = """
import os, signal, socket
from datetime import timedelta
import ampc.distributed as dist
dist.init_process_group(timeout=timedelta(seconds=10))
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
print(socket.gethostname()[-1], os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["OMP_NUM_THREADS"])
dist.destroy_process_group()
"""


def test_all_hosts_are_started_again(hosts, tmp_path):
    (tmp_path / "train.py").write_text(RESTARTED)
    done = hosts(2, "--max-restarts", "1", tmp_path / "train.py", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.split("\n") if line.startswith("[rank")) == ["[rank 0] a 1 1", "[rank 1] b 1 1"] and "restart 1 of 1" in done.stderr


def test_a_list_of_hosts_that_is_none(tmp_path):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "empty").write_text("# nobody\n\n")
    (tmp_path / "wrong").write_text("# all\nnode1 slots=2\nnode2 slot=4\n")
    for args, text in ((("--nproc", 2, "--hostfile", tmp_path / "missing"), "the list of hosts cannot be read"),
                       (("--nproc", 2, "--hostfile", tmp_path / "empty"), "names no host"), (("--hostfile", tmp_path / "empty"), "give it with --nproc"),
                       (("--nproc", 2, "--hostfile", tmp_path / "wrong"), "wrong, line 3: expected slots=, max_slots=, port= or username=, each with a value, "
                                                                          "got 'slot=4' in 'node2 slot=4'")):
        command = [sys.executable, "-m", "ampc", "run", *map(str, args), str(tmp_path / "train.py")]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ROOT_OF_AMPC})
        assert done.returncode == 2 and text in done.stderr, done.stderr


@pytest.mark.parametrize("text, wrong", [
    ("a slots=two", "line 1: expected a number from 1 on after slots=, got 'two'"), ("a\nb slots=0", "line 2: expected a number from 1 on after slots=, got '0'"),
    ("a 4", "line 1: expected slots=, max_slots="), ("a:4", "line 1: expected a host first, as in `node1 slots=4`, got 'a:4'"), ("slots=4", "expected a host first"),
    ("a,b slots=2", "expected a host first"), ("a slots=2 slots=3", "expected slots= once"), ("a slots=4 max_slots=2", "expected max_slots= from 4 on"),
    ("a slots=", "each with a value, got 'slots='"), ("a slots=2\n\na slots=2", "line 3: expected a host once"),
    ("a slots=2\nb slots=1", "its 2 hosts take 3 processes in all, and 8 are asked for"), ("a slots=3", "its host takes 3 processes")])
def test_mistakes_in_a_list_of_hosts(tmp_path, text, wrong):
    """Those at which Open MPI's mpiexec stops."""
    (tmp_path / "hosts").write_text(text + "\n")
    with pytest.raises(launch.CannotStart) as found:
        hosts_of(str(tmp_path / "hosts"), 8, True)
    assert wrong in str(found.value) and str(tmp_path / "hosts") in str(found.value), found.value


@pytest.mark.parametrize("text, open_mpi, count", [
    ("a slots=4\nb slots=4", True, 2), ("# all\na\na\n\n  b   # and b\n", True, 2), ("root@a slots = 8 max_slots=8 port=22", True, 1),
    ("10.0.0.1 cpu=4 max-slots=9\nn2 count=4 username=x", True, 2), ("a:4\nb:2 ifname=eth0\nc", False, 3)])
def test_lists_of_hosts(tmp_path, text, open_mpi, count):
    (tmp_path / "hosts").write_text(text)
    assert hosts_of(str(tmp_path / "hosts"), 8, open_mpi) == count


def test_a_mistake_in_a_list_for_mpich(tmp_path):
    (tmp_path / "hosts").write_text("a:2\nb:many\n")
    with pytest.raises(launch.CannotStart, match="line 2: expected a number from 1 on after b:, got 'many'"):
        hosts_of(str(tmp_path / "hosts"), 8, False)
