"""ampc.multiprocessing: processes that are started together, and what is said of the one that fails."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import time

import pytest

import ampc
import ampc.multiprocessing as mp

pytestmark = [pytest.mark.cpu, pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")]


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def start(fn, nprocs=2, args=(), join=True):
    return mp.start_processes(fn, args, nprocs, join, start_method="fork")


def fail(rank, kind, text):
    if rank == 1:
        raise kind(text)
    time.sleep(60)


def leave(rank, how):
    if rank == 1:
        how()
    time.sleep(60)


class Odd(Exception):
    def __init__(self, a, b):
        super().__init__(a)


def test_the_names_of_torch(torch):
    import torch.multiprocessing.spawn
    spawn = sys.modules["torch.multiprocessing.spawn"]
    mine = sys.modules["ampc.multiprocessing.spawn"]
    assert set(mine.__all__) == set(spawn.__all__)
    assert set(torch.multiprocessing.__all__) <= set(mp.__all__) and callable(mp.spawn)
    for name in spawn.__all__:
        ours, theirs = getattr(mine, name), getattr(spawn, name)
        assert not isinstance(theirs, type) or [c.__name__ for c in ours.__mro__] == [c.__name__ for c in theirs.__mro__]
        assert name not in dir(torch.multiprocessing) or getattr(mp, name) is ours


def test_sharing_strategies(torch):
    theirs = torch.multiprocessing
    assert mp.get_all_sharing_strategies() == theirs.get_all_sharing_strategies()
    assert mp.get_sharing_strategy() == theirs.get_sharing_strategy()
    before = mp.get_sharing_strategy()
    try:
        mp.set_sharing_strategy("file_system")
        assert mp.get_sharing_strategy() == "file_system"
        with pytest.raises(AssertionError, match="file_system"):
            mp.set_sharing_strategy("other")
    finally:
        mp.set_sharing_strategy(before)


@pytest.mark.parametrize(("kind", "text"), [(ValueError, "boom"), (KeyError, "x" * 200_000), (RuntimeError, "\ud800 and ü"), (AssertionError, "")])
def test_an_exception_is_told_with_its_traceback(kind, text):
    begin = time.monotonic()
    with pytest.raises(mp.ProcessRaisedException) as e:
        start(fail, args=(kind, text))
    assert time.monotonic() - begin < 45  # the other process was ended
    assert type(e.value) is mp.ProcessRaisedException and isinstance(e.value, mp.ProcessException) and not isinstance(e.value, RuntimeError)
    assert e.value.error_index == 1 and e.value.error_pid > 0 and e.value.msg == str(e.value)
    assert "in fail" in e.value.msg and kind.__name__ in e.value.msg and text.encode("utf-8", "backslashreplace").decode() in e.value.msg


def test_an_exception_that_is_not_made_of_one_text():
    def odd(rank):
        raise Odd("first", "second")

    with pytest.raises(mp.ProcessRaisedException, match="Odd: first"):
        start(odd, 1)


@pytest.mark.parametrize(("how", "code", "name"), [
    (lambda: os._exit(7), 7, None), (lambda: sys.exit(3), 3, None), (lambda: os.kill(os.getpid(), signal.SIGKILL), -9, "SIGKILL"),
    (lambda: os.kill(os.getpid(), signal.SIGTERM), -15, "SIGTERM")], ids=["_exit", "exit", "kill", "term"])
def test_an_end_without_an_exception(how, code, name):
    with pytest.raises(mp.ProcessExitedException) as e:
        start(leave, args=(how,))
    assert (e.value.error_index, e.value.exit_code, e.value.signal_name) == (1, code, name)
    again = pickle.loads(pickle.dumps(e.value))
    assert (type(again), again.msg, again.error_index, again.error_pid, again.exit_code, again.signal_name) == (
        type(e.value), e.value.msg, 1, e.value.error_pid, code, name)


def test_joining_with_a_timeout(tmp_path):
    def wait_for(rank):
        while not os.path.exists(tmp_path / str(rank)):
            time.sleep(0.01)

    processes = start(wait_for, join=False)
    assert type(processes) is mp.ProcessContext and processes.pids() == [p.pid for p in processes.processes]
    assert processes.join(timeout=0.05) is False
    (tmp_path / "0").touch()
    assert processes.join() is False and len(processes.sentinels) == 1
    (tmp_path / "1").touch()
    assert processes.join(30) is True and processes.join() is True
    with pytest.warns(UserWarning, match="older name"):
        assert isinstance(mp.SpawnContext([], []), mp.ProcessContext)


def test_a_process_that_does_not_listen_is_ended_by_force(tmp_path):
    def deaf(rank):
        if rank == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            (tmp_path / "deaf").touch()
            time.sleep(60)
        while not os.path.exists(tmp_path / "deaf"):
            time.sleep(0.01)
        raise ValueError("boom")

    processes = start(deaf, join=False)
    with pytest.raises(mp.ProcessRaisedException, match="boom"):
        while not processes.join(grace_period=0.2):
            pass
    assert processes.processes[0].exitcode == -signal.SIGKILL


def test_grace_for_the_others(tmp_path):
    def work(rank):
        if rank == 1:
            raise ValueError("boom")
        time.sleep(0.5)
        (tmp_path / "done").touch()

    with pytest.raises(mp.ProcessRaisedException):
        processes = start(work, join=False)
        while not processes.join(grace_period=30):
            pass
    assert (tmp_path / "done").exists()


def test_no_files_are_left(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(mp.ProcessRaisedException):
        start(fail, args=(ValueError, "boom"))
    start(lambda rank: None)
    with pytest.raises(Exception, match="pickle"):
        mp.start_processes(lambda rank: None, nprocs=1)
    assert [n for n in os.listdir(tmp_path) if n.startswith("ampc-errors")] == []


def test_a_wrong_way_of_starting():
    with pytest.raises(ValueError, match="nothing"):
        mp.start_processes(leave, start_method="nothing")


SPAWNS = """
import sys, warnings
import ampc
import ampc.multiprocessing as mp

def work(rank, queue):
    queue.put((rank, mp.get_start_method(), ampc.full((2,), float(rank)).tolist()))
    if rank == 1:
        raise ValueError("boom")

if __name__ == "__main__":
    queue = mp.get_context("spawn").SimpleQueue()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            mp.spawn(work, (queue,), 2, start_method="fork")
        except mp.ProcessRaisedException as e:
            print(e.error_index, "ValueError: boom" in str(e))
    print([(w.category.__name__, w.filename == __file__) for w in told])
"""


def test_spawn(tmp_path):
    path = tmp_path / "spawns.py"
    path.write_text(SPAWNS)
    home = os.path.dirname(os.path.dirname(ampc.__file__))
    out = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": home}, timeout=120)
    assert out.stdout == "1 True\n[('FutureWarning', True)]\n", out.stderr


ORPHANS = """
import os, signal, sys, time
import ampc.multiprocessing as mp

def work(rank, folder):
    open(os.path.join(folder, str(rank)), "w").close()
    time.sleep(60)

processes = mp.start_processes(work, (sys.argv[1],), 2, join=False, start_method="fork")
while len(os.listdir(sys.argv[1])) < 2:
    time.sleep(0.01)
print(*processes.pids(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="whether a process lives is read from /proc")
def test_processes_end_with_the_one_that_started_them(tmp_path):
    def lives(pid):
        try:
            with open(f"/proc/{pid}/stat") as f:
                return f.read().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    out = subprocess.run([sys.executable, "-c", ORPHANS, str(tmp_path)], stdout=subprocess.PIPE, text=True, timeout=50)
    pids, end = [int(p) for p in out.stdout.split()], time.monotonic() + 20
    assert len(pids) == 2
    while any(lives(p) for p in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(lives(p) for p in pids)


# -- tensors in shared memory ---------------------------------------------------------------------------------------------


def train(model, data, results):
    """In a process of its own: changes what it gets, and sends its own."""
    with ampc.no_grad():
        for p in model.parameters():
            p.add_(1)
    model.count.fill_(5)
    data[1].zero_()
    own = ampc.arange(3.0).share_memory_()
    results.put((own, data[0].untyped_storage() is data[1].untyped_storage(), [type(p).__name__ for p in model.parameters()], model.weight.requires_grad))
    results.get()


class Counted(ampc.nn.Linear):
    def __init__(self):
        super().__init__(3, 2)
        self.register_buffer("count", ampc.zeros((), dtype=ampc.int64))


@pytest.fixture
def no_helpers_left():
    """Ends the processes that Python keeps for those that it spawns."""
    yield
    from multiprocessing import forkserver, resource_tracker

    forkserver._forkserver._stop()
    resource_tracker._resource_tracker._stop()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_share_what_lies_in_shared_memory(method, no_helpers_left):
    context = mp.get_context(method)
    model, whole = Counted().share_memory(), ampc.ones(4, 2).share_memory_()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    results, answers = context.SimpleQueue(), context.Queue()
    process = context.Process(target=train, args=(model, [whole, whole[2]], Both(results, answers)))
    process.start()
    own, same_storage, kinds, requires_grad = results.get()
    own.mul_(2)
    answers.put(None)
    process.join()
    assert process.exitcode == 0 and same_storage and kinds == ["Parameter", "Parameter"] and requires_grad
    assert own.tolist() == [0, 2, 4] and own.is_shared()
    assert model.weight.tolist() == (before["weight"] + 1).tolist() and model.bias.tolist() == (before["bias"] + 1).tolist()
    assert model.count.item() == 5 and whole.tolist() == [[1, 1], [1, 1], [0, 0], [1, 1]]


class Both:
    """A queue to put into and another to get from."""

    def __init__(self, results, answers):
        self.put, self.results, self.answers = results.put, results, answers

    def __reduce__(self):
        return Both, (self.results, self.answers)

    def get(self):
        return self.answers.get()


def test_a_queue_gives_the_same_memory_back():
    whole = ampc.arange(6.0).view(2, 3).share_memory_()
    queue = mp.SimpleQueue()
    queue.put([whole, whole[1], whole.t(), whole.storage(), whole.untyped_storage(), ampc.nn.Parameter(whole)])
    back = queue.get()
    assert [t.tolist() for t in back[:3]] == [whole.tolist(), whole[1].tolist(), whole.t().tolist()] and back[2].stride() == (1, 3)
    assert all(t.untyped_storage() is whole.untyped_storage() for t in back[:3]) and back[4] is whole.untyped_storage()
    assert back[3]._cdata == whole.storage()._cdata and type(back[5]) is ampc.nn.Parameter
    back[1].fill_(7)
    assert whole.tolist() == [[0, 1, 2], [7, 7, 7]]


def test_a_queue_copies_what_is_not_shared():
    t = ampc.arange(3.0, requires_grad=True)
    queue = mp.SimpleQueue()
    queue.put((t, t.storage()))
    back, values = queue.get()
    with ampc.no_grad():
        t.zero_()
    assert back.tolist() == [0, 1, 2] and back.requires_grad and values.tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["ampc", "torch"])
def test_a_history_of_gradients_is_not_sent(name):
    lib = pytest.importorskip(name)
    queue = __import__(f"{name}.multiprocessing", fromlist=["x"]).SimpleQueue()
    with pytest.raises(RuntimeError, match="requires_grad"):
        queue.put(lib.ones(2, requires_grad=True) * 2)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are counted in /proc")
def test_shared_memory_is_given_back():
    count = lambda: len(os.listdir("/proc/self/fd"))  # noqa: E731
    ampc.zeros(3).share_memory_()
    gc.collect()
    before = count()
    kept = [ampc.nn.Sequential(*[ampc.nn.Linear(3, 3) for _ in range(50)]).share_memory()]
    assert count() <= before + 2  # one file for a whole model
    view = kept[0][7].weight.detach()[1]
    expected = view.tolist()
    kept.clear()
    gc.collect()
    assert view.tolist() == expected and count() > before
    del view
    gc.collect()
    assert count() == before
