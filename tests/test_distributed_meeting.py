"""Processes that no launcher of MPI has started find each other: by an address, a file, a store, or the variables of torchrun and Slurm."""

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta

import pytest

import ampc
import ampc.distributed as dist
from ampc._process import launcher, owners, stand_in

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(ampc.__file__))
SUMS = [str([r, 2, [3.0] * 3, "gloo", r, 2, [3.0] * 3, "mpi"]) for r in range(2)]
pytest.importorskip("mpi4py")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def lines_of(case, address, folder):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "SLURM_"))}
    env.update(PYTHONPATH=os.pathsep.join([PACKAGE, os.environ.get("PYTHONPATH", "")]), TMPDIR=str(folder))
    done = subprocess.run([sys.executable, "meeting_ranks.py", case, address], capture_output=True, text=True, cwd=HERE, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines()), done.stderr


@pytest.fixture
def folder():
    """A short path: Open MPI has sockets there."""
    with tempfile.TemporaryDirectory(prefix="m", ignore_cleanup_errors=True) as path:
        yield path


@pytest.mark.parametrize("case", ["tcp", "query", "file", "env", "store", "slurm"])
def test_plain_processes_meet(folder, case):
    found, said = lines_of(case, os.path.join(folder, "place") if case == "file" else free_port(), folder)
    assert found == SUMS, (found, said)
    assert said.count("'gloo' means MPI here") == 1, said


def test_a_rank_that_does_not_come_is_named(folder):
    found, _ = lines_of("late", free_port(), folder)
    assert found == ["0 DistNetworkError: init_process_group: of 2 processes rank 1 has not called it within 2 s"]


def test_processes_of_several_hosts_learn_what_starts_them(folder):
    found, _ = lines_of("hosts", free_port(), folder)
    assert len(found) == 2 and all("RuntimeError" in line and "on the hosts node0, node1" in line and "mpiexec -n 2 --hostfile" in line and "srun --mpi=pmix -n 2" in line for line in found)




def test_the_file_of_a_job_that_was_killed(folder):
    """The processes that come next do not take its ranks for theirs."""
    found, said = lines_of("stale", os.path.join(folder, "place"), folder)
    assert found == SUMS, (found, said)


def test_two_processes_of_one_rank_are_told(folder):
    """As those of two jobs at one place."""
    found, _ = lines_of("twice", os.path.join(folder, "place"), folder)
    assert re.fullmatch(r"0 DistNetworkError: init_process_group: of 2 processes rank 1 has not called it within 3 s", found[0]), found
    assert re.fullmatch(r"0 RuntimeError: init_process_group: process \d+ on \S+ has come here as rank 0, too; two jobs need two places: .*", found[1]), found


def in_shared_memory():
    return {name for name in os.listdir("/dev/shm") if "segment" in name} if os.path.isdir("/dev/shm") else set()


@pytest.mark.skipif(sys.platform != "linux", reason="which processes live is read from /proc")
def test_a_rank_that_is_killed_while_mpi_starts(folder):
    before = in_shared_memory()
    found, said = lines_of("dies", free_port(), folder)
    assert found == ["0 DistNetworkError: init_process_group: rank 1 has ended while the processes were connected"], (found, said)
    left = in_shared_memory() - before
    assert all(name.startswith("ampc-segments-") for name in left)
    if os.path.isdir("/dev/shm"):
        os.rmdir(owners.new_folder("segments", "/dev/shm"))  # as the next job does
        assert not in_shared_memory() & left
    end = time.monotonic() + 30
    while os.listdir(folder) and time.monotonic() < end:  # Open MPI's launcher ends after its processes
        time.sleep(0.05)
    assert not os.listdir(folder)


# -- what killed processes leave -------------------------------------------------------------------------------------------


def test_folders_of_killed_processes_are_removed_by_the_next_one(tmp_path):
    make = f"import os, signal; from ampc._process import owners; print(owners.new_folder('ranks', {str(tmp_path)!r}), flush=True); "
    env = {**os.environ, "PYTHONPATH": PACKAGE}
    killed = subprocess.run([sys.executable, "-c", make + "os.kill(os.getpid(), signal.SIGKILL)"], capture_output=True, text=True, env=env, timeout=60)
    assert os.path.isdir(killed.stdout.strip())
    with subprocess.Popen([sys.executable, "-c", make + "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as living:
        kept = [living.stdout.readline().strip(), str(tmp_path / "ampc-ranks-0123456789ab-1-1-far"), str(tmp_path / "ampc-own")]
        for path in kept[1:]:
            os.mkdir(path)
        later = f"{owners.machine()}-{os.getpid()}-1"  # this process' number, and it began at another time
        os.mkdir(tmp_path / f"ampc-errors-{later}-x")
        kept.append(owners.new_folder("errors", str(tmp_path)))
        assert sorted(os.listdir(tmp_path)) == sorted(map(os.path.basename, kept))
        living.communicate("\n")
    assert os.stat(kept[-1]).st_mode & 0o777 == 0o700


@pytest.mark.skipif(not launcher.mpiexec() or not launcher.is_open_mpi(launcher.mpiexec()), reason="the folder is Open MPI's")
def test_mpiexec_starts_though_a_killed_one_of_its_number_has_left_a_folder(folder):
    env = {**launcher.environment(1, os.environ), "TMPDIR": folder}
    killed = subprocess.Popen(launcher.command(1, [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(60)"]), env=env, stdout=subprocess.PIPE)
    assert killed.stdout.readline() == b"here\n"
    killed.kill()
    killed.communicate()
    left = os.path.join(folder, f"ompi.{killed.pid}")
    names = [name for name in os.listdir(left) if str(killed.pid) in name and name.startswith("pmix")]
    number = 'cd "$1"; mv ompi.$2 ompi.$$; cd ompi.$$; shift 2; for old in pmix.*.tool.*; do cp $old ${old%.tool.*}.tool.$$; cp $old ${old%.tool.*}.tool.prterun-$(hostname)-$$@0; done; cd /'
    line = launcher.started(launcher.command(1, ["/bin/echo", "started"]))
    done = subprocess.run(["sh", "-c", number + '; exec "$@"', "sh", folder, str(killed.pid), *line], env=env, capture_output=True, text=True, timeout=60)
    assert names and done.returncode == 0 and done.stdout == "started\n", (done.stdout, done.stderr)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="Linux says which processes have ended")
def test_a_stand_in_ends_with_a_process_that_nobody_waits_for(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    while stand_in.read(f"/proc/{ended.pid}/stat").rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    (tmp_path / "rank0.pid").write_text(str(ended.pid))
    done = subprocess.run([sys.executable, stand_in.__file__, str(tmp_path)], env={**os.environ, "OMPI_COMM_WORLD_RANK": "0"}, timeout=30)
    assert done.returncode == 0 and not stand_in.lives(str(ended.pid)) and stand_in.lives(str(os.getpid()))
    ended.wait()


def test_a_stand_in_that_mpiexec_ends_removes_the_folder(tmp_path):
    (tmp_path / "ranks").mkdir()
    command = [sys.executable, stand_in.__file__, str(tmp_path / "ranks"), stand_in.process_of(os.getpid())]
    with subprocess.Popen(command, env={**os.environ, "OMPI_COMM_WORLD_RANK": "0"}) as running:
        while not (tmp_path / "ranks" / "rank0.json").exists():
            time.sleep(0.01)
        running.terminate()
    assert not (tmp_path / "ranks").exists()


# -- the store by itself -------------------------------------------------------------------------------------------------


def test_rendezvous_by_a_file(tmp_path):
    url = f"file://{tmp_path}/place?world_size=2"
    (a, *first), (b, *second) = next(dist.rendezvous(url + "&rank=0")), next(dist.rendezvous(url + "&rank=1"))
    assert first == [0, 2] and second == [1, 2]
    a.set("x", "1")
    assert b.get("x") == b"1"
    with pytest.raises(AssertionError, match="leave one out"):
        dist.rendezvous(url, world_size=2)


def test_rendezvous_by_an_address(monkeypatch):
    port = free_port()
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    meetings = dist.rendezvous("env://")
    store, *own = next(meetings)
    other = next(dist.rendezvous(f"tcp://127.0.0.1:{port}", 1, 2, timeout=timedelta(seconds=20)))
    store.set("x", "1")
    assert own == [0, 1] and other[1:] == (1, 2) and other[0].get("x") == b"1"
    with pytest.raises(RuntimeError, match="the processes meet once"):
        next(meetings)


@pytest.mark.parametrize("url, kind, text", [
    ("far://away", RuntimeError, "must begin with 'env://', 'tcp://' or 'file://'"), ("tcp://127.0.0.1?rank=0&world_size=1", ValueError, "must say the host and port"),
    ("tcp://127.0.0.1:23456?world_size=1", ValueError, "got the rank -1 of 1"), ("file:///tmp/place?rank=0", ValueError, "got the rank 0 of -1"),
    ("file://?rank=0&world_size=1", ValueError, "must say the host and port of rank 0 or a path")])
def test_rendezvous_refuses(url, kind, text):
    with pytest.raises(kind, match=text):
        next(dist.rendezvous(url))


def test_a_store_of_no_process_is_refused():
    with pytest.raises(ValueError, match="`world_size` must be how many"):
        dist.TCPStore("127.0.0.1", 0, 0)


def test_a_store_listens_at_a_socket_that_is_there():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
    found = []
    thread = threading.Thread(target=lambda: found.append(dist.TCPStore("127.0.0.1", port, 1, True, master_listen_fd=s.detach(), timeout=timedelta(seconds=20))))
    thread.start()
    thread.join(30)
    assert not thread.is_alive() and found[0].port == port
    found[0].set("x", "1")
    assert dist.TCPStore("127.0.0.1", port).get("x") == b"1"


def test_a_file_is_there_as_long_as_a_store_is(tmp_path):
    path = str(tmp_path / "store")
    first, second = dist.FileStore(path, 1), dist.FileStore(path, 1)
    first.set("x", "1")
    del first
    assert second.get("x") == b"1" and second.list_keys() == ["x"]
    del second
    assert not os.path.exists(path)


def test_nothing_is_left_of_a_rank_that_is_killed_early(tmp_path):
    """It has had the stand-ins started, and has taken none."""
    script = f"import os, subprocess, sys; subprocess.Popen([sys.executable, {stand_in.__file__!r}, {str(tmp_path / 'ranks')!r}, str(os.getpid())])"
    (tmp_path / "ranks").mkdir()
    done = subprocess.run([sys.executable, "-c", script], timeout=60, env={**os.environ, "OMPI_COMM_WORLD_RANK": "0"})
    end = time.monotonic() + 30
    while (tmp_path / "ranks").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert done.returncode == 0 and not (tmp_path / "ranks").exists()


@pytest.mark.parametrize("name, text, expected", [("RANK", "a", "the variable RANK must be a number, got 'a'"),
                                                  ("WORLD_SIZE", "two", "the variable WORLD_SIZE must be a number, got 'two'"),
                                                  ("MASTER_PORT", "abc", "must be from 0 to 65535, got 'abc'"),
                                                  ("MASTER_PORT", "99999", "must be from 0 to 65535, got '99999'")])
def test_variables_that_are_no_numbers_are_named(monkeypatch, name, text, expected):
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    for variable, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", name: text}.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=expected):
        next(dist.rendezvous("env://"))
