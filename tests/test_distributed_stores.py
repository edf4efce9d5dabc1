"""Stores of ampc.distributed beside torch's: the same operations give the same answers, in one process, in threads and in several processes."""

import multiprocessing
import os
import resource
import socket
import subprocess
import sys
import threading
from datetime import timedelta

import pytest

import ampc
import ampc.distributed as dist

pytestmark = pytest.mark.cpu
ROOT_OF_AMPC = os.path.dirname(os.path.dirname(ampc.__file__))
SHORT = timedelta(seconds=0.2)
MAKE = {"HashStore": lambda d, path: d.HashStore(), "FileStore": lambda d, path: d.FileStore(str(path), 1),
        "TCPStore": lambda d, path: d.TCPStore("127.0.0.1", 0, 1, True, timedelta(seconds=5)),
        "PrefixStore": lambda d, path: d.PrefixStore("a", d.PrefixStore("b", d.HashStore()))}


def answers(d, store):
    """What a store answers. The number of keys, and what torch's classes differ in among themselves, is left out."""
    store.set_timeout(SHORT)
    yield store.timeout
    yield store.set("a", "x"), store.get("a"), store.set("a", b"\0\xff"), store.get("a")
    yield store.add("n", 3), store.add("n", -5), store.get("n"), store.add("none", 0)
    yield store.check(["a"]), store.check(["a", "zz"]), store.check([])
    yield store.wait(["a", "n"]), store.wait(["a"], SHORT)
    for call in (lambda: store.get("zz"), lambda: store.wait(["a", "zz"]), lambda: store.wait(["zz"], SHORT), lambda: store.set("a", 3)):
        try:
            yield call()
        except (RuntimeError, TypeError) as error:
            yield RuntimeError in type(error).__mro__
    yield store.compare_set("c", "", "1"), store.compare_set("c", "0", "2"), store.compare_set("c", "1", "3"), store.get("c")
    yield store.compare_set("q", "w", "2"), store.check(["q"])
    yield store.delete_key("a"), store.check(["a"]), store.append("l", "a"), store.append("l", b"b"), store.get("l")
    yield store.multi_set(["m1", "m2"], ["1", b"2"]), store.multi_get(["m2", "m1"])
    yield store.barrier("all", 1), sorted(key for key in store.list_keys() if key in ("c", "l", "n", "a"))


@pytest.mark.parametrize("kind", MAKE)
def test_answers_are_torchs(tmp_path, kind):
    torch_dist = pytest.importorskip("torch.distributed")
    ours = list(answers(dist, MAKE[kind](dist, tmp_path / "ours")))
    assert ours == list(answers(torch_dist, MAKE[kind](torch_dist, tmp_path / "torchs")))


@pytest.mark.parametrize("kind", MAKE)
def test_queues_and_counts(tmp_path, kind):
    store = MAKE[kind](dist, tmp_path / "store")
    store.set_timeout(SHORT)
    before = store.num_keys()
    store.set("a", "1")
    assert store.num_keys() == before + 1 and store.has_extended_api()
    store.queue_push("k", "1")
    store.queue_push("k", b"\0")
    assert store.queue_len("k") == 2 and store.queue_pop("k") == b"1" and store.queue_pop("k", False) == b"\0" and store.queue_len("k") == 0
    with pytest.raises(dist.QueueEmptyError, match="the queue 'k' is empty"):
        store.queue_pop("k", False)
    with pytest.raises(dist.DistStoreError, match=r"queue_pop: not all of the keys \['k'\] were set within 0.2 s"):
        store.queue_pop("k")
    assert not store.delete_key("zz")
    store.set("a", "x")
    with pytest.raises(ValueError, match="must be a number, got b'x'"):
        store.add("a", 1)
    assert store.get("a") == b"x"  # the store goes on
    with pytest.raises(ValueError, match="2 keys and 1 values"):
        store.multi_set(["a", "b"], ["1"])


@pytest.mark.parametrize("kind", MAKE)
def test_a_wait_ends_when_the_key_comes(tmp_path, kind):
    store = MAKE[kind](dist, tmp_path / "store")
    other = dist.TCPStore("127.0.0.1", store.port) if kind == "TCPStore" else store
    threading.Timer(0.1, store.set, ("late", "x")).start()
    assert other.get("late") == b"x"
    threads = [threading.Thread(target=lambda: [store.add("n", 1) for _ in range(50)]) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert store.get("n") == b"200"


def test_prefixes_are_apart():
    whole = dist.HashStore()
    first, second = dist.PrefixStore("one", whole), dist.PrefixStore("two", whole)
    first.multi_set(["a", "b"], ["1", "2"])
    second.set("a", "3")
    assert first.multi_get(["b", "a"]) == [b"2", b"1"] and second.get("a") == b"3" and whole.get("one/a") == b"1" and not second.check(["b"])
    second.set_timeout(SHORT)
    assert whole.timeout == SHORT == first.timeout and first.underlying_store is whole
    with pytest.raises(TypeError, match="`store` must be a Store, got dict"):
        dist.PrefixStore("a", {})


def test_a_file_is_removed_after_the_last(tmp_path):
    path = tmp_path / "store"
    first, second = dist.FileStore(str(path), 2), dist.FileStore(str(path), 2)
    first.set("a", "1")
    assert second.get("a") == b"1"
    del first
    assert path.exists() and second.list_keys() == ["a"] and second.num_keys() == 1
    del second
    assert not path.exists()


def test_a_file_that_was_there_is_emptied_and_used_again(tmp_path):
    path = tmp_path / "store"
    path.touch()
    for _ in range(2):
        first, second = dist.FileStore(str(path), 2), dist.FileStore(str(path), 2)
        assert first.num_keys() == 0
        first.set("a", "1")
        del first, second
        assert path.read_bytes() == b""


def test_a_file_keeps_its_values_when_a_write_ends_half_way(tmp_path):
    path = tmp_path / "store"
    store = dist.FileStore(str(path), 1)
    store.set("a", "1")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, hard))
    try:
        with pytest.raises(OSError):
            store.set("big", "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.get("a") == b"1" and store.list_keys() == ["a"]
    for i in range(5):
        store.set("big", "x" * 100 * i)
        store.set("a", str(i))
    assert store.get("a") == b"4" and store.get("big") == b"x" * 400 and path.stat().st_size < 2000


OTHER = """
import sys
from datetime import timedelta
import ampc.distributed as dist
kind, where = sys.argv[1:]
store = dist.TCPStore("127.0.0.1", int(where), 2, timeout=timedelta(seconds=10)) if kind == "TCPStore" else dist.FileStore(where, 2)
assert store.get("from one") == b"\\0one"
store.set("from two", b"two")
store.barrier("end", 2)
"""


@pytest.mark.parametrize("kind", ["TCPStore", "FileStore"])
def test_two_processes(tmp_path, kind):
    ten = timedelta(seconds=10)
    where = str(tmp_path / "store")
    store = dist.FileStore(where, 2) if kind == "FileStore" else dist.TCPStore("127.0.0.1", 0, 2, True, ten, wait_for_workers=False)
    store.set_timeout(ten)
    other = subprocess.Popen([sys.executable, "-c", OTHER, kind, str(getattr(store, "port", where))], env={**os.environ, "PYTHONPATH": ROOT_OF_AMPC})
    store.set("from one", b"\0one")
    assert store.get("from two") == b"two"
    store.barrier("end", 2)
    assert other.wait(10) == 0


def _in_a_fork(store, told):
    store.set("child", "1")
    told.send(store.get("parent"))


def test_a_forked_process_has_a_connection_of_its_own():
    store = dist.TCPStore("127.0.0.1", 0, 1, True, timedelta(seconds=10))
    store.set("parent", "2")
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_in_a_fork, args=(store, there))
    child.start()
    assert store.get("child") == b"1" and here.recv() == b"2"
    child.join(10)
    assert child.exitcode == 0


def test_servers():
    """A master shares the server of another one, and takes a socket that listens."""
    first = dist.TCPStore("127.0.0.1", 0, 1, True, SHORT)
    again = dist.TCPStore("127.0.0.1", first.port, 1, True, SHORT, multi_tenant=True)
    again.set("a", "1")
    assert first.get("a") == b"1"
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
        master = dist.TCPStore("127.0.0.1", port, 1, True, SHORT, master_listen_fd=os.dup(listener.fileno()))
    assert master.port == port
    dist.TCPStore("127.0.0.1", port).set("b", "2")
    assert master.get("b") == b"2"


def test_what_is_refused():
    store = dist.TCPStore("127.0.0.1", 0, None, True)
    with pytest.raises(dist.DistNetworkError, match=f"cannot listen at port {store.port}"):
        dist.TCPStore("127.0.0.1", store.port, None, True)
    with pytest.raises(dist.DistStoreError, match="1 of 2 stores have connected within 0.2 s"):
        dist.TCPStore("127.0.0.1", 0, 2, True, SHORT)
    with pytest.raises(dist.DistNetworkError, match="no server has been found at 127.0.0.1:1 within 0.2 s"):
        dist.TCPStore("127.0.0.1", 1, 2, False, SHORT)
    with pytest.raises(NotImplementedError, match="make a HashStore"):
        dist.Store().set("a", "1")
    with pytest.raises(TypeError, match="`value` must be str or bytes, got int"):
        store.set("a", 1)
    for given in ({"store": {}}, {"store": store}, {"store": store, "rank": 0, "world_size": 1, "init_method": "env://"}):
        with pytest.raises(ValueError, match="`store` must be a Store, with `world_size` and `rank` and without `init_method`"):
            dist.init_process_group(**given)
    with pytest.raises(ValueError, match="`init_method` must be 'env://'"):
        dist.init_process_group(init_method="smoke://")


def test_a_group_takes_a_store():
    pytest.importorskip("mpi4py")
    code = ("import ampc.distributed as dist\nstore = dist.TCPStore('127.0.0.1', 0, 1, True)\ndist.init_process_group('gloo', store=store, rank=0, world_size=1)\n"
            "assert dist.get_pg_count() == 1\ndist.destroy_process_group()\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, env={**os.environ, "PYTHONPATH": ROOT_OF_AMPC})
    assert done.returncode == 0, done.stderr


def test_a_server_that_does_not_answer(monkeypatch):
    """An operation ends although the server says nothing, and what it says later is no answer to the next one."""
    from ampc.distributed import _sockets, _tcp_store

    monkeypatch.setattr(_tcp_store, "ANSWER", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = []
        threading.Thread(target=lambda: made.append(dist.TCPStore("127.0.0.1", listener.getsockname()[1], timeout=SHORT)), daemon=True).start()
        end, _ = listener.accept()
        _sockets.receive_bytes(end)
        _sockets.send_bytes(end, dist.stores.joined([b"g", b"1"]))
        while not made:
            threading.Event().wait(0.01)
        with pytest.raises(dist.DistNetworkError, match="the server at 127.0.0.1:[0-9]+ has not answered within 0.4 s"):
            made[0].get("a")
        _sockets.send_bytes(end, dist.stores.joined([b"g", b"late"]))

        def answer():
            other, _ = listener.accept()
            _sockets.receive_bytes(other)
            _sockets.send_bytes(other, dist.stores.joined([b"g", b"new"]))

        threading.Thread(target=answer, daemon=True).start()
        assert made[0].get("a") == b"new"


ENDS_FIRST = """
import threading
from datetime import timedelta
import ampc.distributed as dist
dist.init_process_group("gloo")
rank, port = dist.get_rank(), [0]
if rank == 0:
    store = dist.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=5))
    port = [store.port]
dist.broadcast_object_list(port, 0)
if rank == 1:
    store = dist.TCPStore("127.0.0.1", port[0], None, False, timedelta(seconds=5))
dist.barrier()
if rank == 1:
    threading.Event().wait(0.5)
    store.set("a", "b")
    assert store.get("a") == b"b"
dist.destroy_process_group()
"""


def test_the_master_ends_first(tmp_path):
    """A process that has come to its end waits for the others, and its store answers them meanwhile."""
    pytest.importorskip("mpi4py")
    from test_distributed import start

    (tmp_path / "train.py").write_text(ENDS_FIRST)
    done = start(2, tmp_path / "train.py", timeout=20, PYTHONPATH=ROOT_OF_AMPC)
    assert done.returncode == 0, done.stderr
