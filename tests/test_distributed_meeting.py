"""Processes that no launcher of MPI has started find each other: by an address, a file, a store, or the variables of torchrun and Slurm."""

import os
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

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(ampc.__file__))
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
    assert found == [str([r, 2, [3.0] * 3, "gloo", r, 2, [3.0] * 3, "mpi"]) for r in range(2)], (found, said)
    assert said.count("'gloo' means MPI here") == 1, said


def test_a_rank_that_does_not_come_is_named(folder):
    found, _ = lines_of("late", free_port(), folder)
    assert found == ["0 DistNetworkError: init_process_group: of 2 processes rank 1 has not called it within 2 s"]


def test_processes_of_several_hosts_learn_what_starts_them(folder):
    found, _ = lines_of("hosts", free_port(), folder)
    assert len(found) == 2 and all("RuntimeError" in line and "on the hosts node0, node1" in line and "mpiexec -n 2 --hostfile" in line and "srun --mpi=pmix -n 2" in line for line in found)


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
    from ampc.distributed import _stand_in

    script = f"import os, subprocess, sys; subprocess.Popen([sys.executable, {_stand_in.__file__!r}, {str(tmp_path / 'ranks')!r}, str(os.getpid())])"
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
