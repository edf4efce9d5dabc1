"""Datasets, samplers, and the loader: what it gives, with and without worker processes, and what it leaves behind."""

import collections
import itertools
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import ampc
from ampc.utils import data as D

pytestmark = pytest.mark.cpu


class Squares(D.Dataset):
    def __init__(self, n=20):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return ampc.tensor(float(i)), i * i


class Stream(D.IterableDataset):
    def __init__(self, n=11, share=True):
        self.n, self.share = n, share

    def __iter__(self):
        info = D.get_worker_info()
        if info is None or not self.share:
            return iter(range(self.n))
        return iter(range(info.id, self.n, info.num_workers))


class Resets:
    """Its own iterator, which `__iter__` sets to the beginning."""

    def __init__(self, n):
        self.n, self.asked = n, 0

    def __iter__(self):
        self.i = 0
        return self

    def __next__(self):
        self.asked += 1
        if self.i == self.n:
            raise StopIteration
        self.i += 1
        return float(self.i)


class Resetting(Resets, D.IterableDataset):
    """A dataset of it."""


def flat(loader):
    return [int(v) for x, *_ in loader for v in x.reshape(-1).tolist()]


# -- datasets --------------------------------------------------------------------------------------------------


def test_datasets():
    x, y = ampc.arange(12.0).view(6, 2), ampc.arange(6)
    t = D.TensorDataset(x, y)
    assert len(t) == 6 and t[2][0].tolist() == [4, 5] and t[-1][1].item() == 5
    with pytest.raises(AssertionError, match=r"\[6, 5\]"):
        D.TensorDataset(x, y[:5])
    both = Squares(3) + Squares(4)
    assert isinstance(both, D.ConcatDataset) and len(both) == 7 and both[3][1] == 0 and both[-1][1] == 9 and both.cumulative_sizes == [3, 7]
    with pytest.raises(IndexError, match="index 7 of 7"):
        _ = both[7]
    with pytest.raises(ValueError, match="index -8 of 7"):
        _ = both[-8]
    with pytest.warns(FutureWarning, match="older spelling"):
        assert both.cummulative_sizes == D.ConcatDataset.cumsum(both.datasets) == [3, 7]
    with pytest.raises(AssertionError, match="ChainDataset"):
        D.ConcatDataset([Stream()])
    with pytest.raises(AssertionError, match="IterableDatasets"):
        len(D.ChainDataset([Squares()]))
    with pytest.raises(TypeError, match="__iter__"):
        D.IterableDataset()
    assert list(Stream(2) + Stream(3)) == [0, 1, 0, 1, 2]
    some = D.Subset(Squares(), [3, 1, 7])
    assert [s[1] for s in (some[i] for i in range(len(some)))] == [9, 1, 49]
    with pytest.raises(NotImplementedError, match="__getitem__"):
        _ = D.Dataset()[0]


def test_random_split():
    parts = D.random_split(Squares(10), [7, 3], generator=ampc.Generator().manual_seed(3))
    again = D.random_split(Squares(10), [7, 3], generator=ampc.Generator().manual_seed(3))
    assert [len(p) for p in parts] == [7, 3] and sorted(parts[0].indices + parts[1].indices) == list(range(10)) and parts[0].indices == again[0].indices
    assert [len(p) for p in D.random_split(Squares(10), [0.55, 0.25, 0.2])] == [6, 2, 2]
    with pytest.raises(ValueError, match="add up to 9"):
        D.random_split(Squares(10), [7, 2])


class Many(Squares):
    def __getitems__(self, indices):
        return [("many", i) for i in indices]


def test_a_subset_asks_for_many_samples_at_once():
    some = D.Subset(Many(), [3, 1, 7])
    assert some.__getitems__([2, 0]) == [("many", 7), ("many", 3)] and D.Subset([5, 6, 7], [2, 0]).__getitems__([0, 1]) == [7, 5]
    assert next(iter(D.DataLoader(some, 2)))[1].tolist() == [3, 1]


# -- samplers ------------------------------------------------------------------------------------------------------


def test_samplers():
    assert list(D.SequentialSampler(Squares(4))) == [0, 1, 2, 3]
    once = list(D.RandomSampler(Squares(50)))
    assert sorted(once) == list(range(50)) and once != list(range(50)) and list(D.RandomSampler(Squares(50))) != once
    assert sorted(collections.Counter(D.RandomSampler(Squares(5), num_samples=12)).values()) == [2, 2, 2, 3, 3]
    drawn = list(D.RandomSampler(Squares(5), replacement=True, num_samples=40))
    assert len(drawn) == 40 and set(drawn) <= set(range(5)) and max(collections.Counter(drawn).values()) > 8
    assert sorted(D.SubsetRandomSampler([5, 9, 2])) == [2, 5, 9]
    weighted = list(D.WeightedRandomSampler([0.0, 1.0, 3.0], 4000))
    assert 0 not in weighted and abs(weighted.count(2) / 4000 - 0.75) < 0.04
    assert list(D.BatchSampler(D.SequentialSampler(Squares(5)), 2, False)) == [[0, 1], [2, 3], [4]] and len(D.BatchSampler(range(5), 2, False)) == 3
    assert list(D.BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]] and len(D.BatchSampler(range(5), 2, True)) == 2
    for bad in (lambda: D.RandomSampler(Squares(), num_samples=0), lambda: D.DataLoader([], shuffle=True), lambda: D.BatchSampler(range(3), 0, False), lambda: D.WeightedRandomSampler([1.0], 0)):
        with pytest.raises(ValueError):
            bad()


# -- collating ----------------------------------------------------------------------------------------------------------


def test_collating(torch):
    P = collections.namedtuple("P", "x y")
    batches = [
        [(np.float32(1.5), 2, 3.0, "a"), (np.float32(2.5), 4, 5.0, "b")], [{"x": np.arange(3), "y": [1, 2]}, {"x": np.arange(3) + 1, "y": [3, 4]}],
        [P(np.zeros((2, 2), np.float32), True), P(np.ones((2, 2), np.float32), False)], [b"x", b"y"], [np.int16(3), np.int16(4)], [np.array(1.5), np.array(2.5)],
    ]

    def plain(value):
        if hasattr(value, "tolist"):
            return str(value.dtype).split(".")[1], value.tolist()
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value).__name__, [plain(v) for v in value]
        return value

    from torch.utils.data import default_collate
    for batch in batches:
        assert plain(D.default_collate(batch)) == plain(default_collate(batch))
    assert D.default_collate([ampc.ones(2), ampc.zeros(2)]).tolist() == [[1, 1], [0, 0]]
    for bad, kind, match in (([ampc.ones(2), ampc.ones(3)], RuntimeError, "shapes"), ([[1, 2], [3]], RuntimeError, "lengths"), ([object()], TypeError, "object")):
        with pytest.raises(kind, match=match):
            D.default_collate(bad)
    assert D.default_convert([np.arange(2), "t", {"a": 1}])[0].tolist() == [0, 1]


# -- the loader -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "workers"), [(249, 0), (256, 0), (256, 2), (5000, 0)])
def test_large_batches(size, workers):
    """Samples are joined however many there are, of Tensors, arrays and numbers."""
    n = 2 * size
    x, y = np.arange(3.0 * n).reshape(n, 3), np.arange(n)
    table = D.TensorDataset(ampc.tensor(x), ampc.tensor(y))
    for samples in (table, [(row, i, {"deep": [table[i][1]]}) for i, row in enumerate(x)]):
        first, last = D.DataLoader(samples, batch_size=size, num_workers=workers)
        assert np.array_equal(last[0].numpy(), x[size:]) and first[1].tolist() == y[:size].tolist()
    assert last[2]["deep"][0].tolist() == y[size:].tolist()


@pytest.mark.filterwarnings("ignore:.*more than the")  # of few cores
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches(workers):
    loader = D.DataLoader(Squares(), batch_size=6, num_workers=workers)
    batches = list(loader)
    assert len(loader) == len(batches) == 4 and [b[0].shape[0] for b in batches] == [6, 6, 6, 2] and flat(loader) == list(range(20))
    assert batches[1][1].tolist() == [i * i for i in range(6, 12)] and batches[0][1].dtype is ampc.int64
    assert [len(b[0]) for b in D.DataLoader(Squares(), 6, drop_last=True, num_workers=workers)] == [6, 6, 6]
    shuffled = D.DataLoader(Squares(), 6, shuffle=True, num_workers=workers)
    one, two = flat(shuffled), flat(shuffled)
    assert sorted(one) == sorted(two) == list(range(20)) and one != two != list(range(20))
    seeded = [flat(D.DataLoader(Squares(), 6, shuffle=True, num_workers=workers, generator=ampc.Generator().manual_seed(5))) for _ in range(2)]
    assert seeded[0] == seeded[1]
    assert [x.item() for x, _ in D.DataLoader(Squares(4), batch_size=None, num_workers=workers)] == [0, 1, 2, 3]
    assert flat(D.DataLoader(Squares(), batch_sampler=[[3, 1], [7]], num_workers=workers)) == [3, 1, 7]
    assert list(D.DataLoader(Squares(4), 2, collate_fn=lambda s: [i for _, i in s], num_workers=workers)) == [[0, 1], [4, 9]]
    assert list(D.DataLoader(Squares(0), 2, num_workers=workers)) == []
    if workers:
        ready = D.DataLoader(Squares(), 3, num_workers=workers, in_order=False)
        assert sorted(flat(ready)) == list(range(20))


@pytest.mark.filterwarnings("ignore:.*more than the")  # of few cores
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_streams(workers):
    loader = D.DataLoader(Stream(), batch_size=3, num_workers=workers)
    assert sorted(v for b in loader for v in b.tolist()) == list(range(11))
    assert sorted(D.DataLoader(Stream(), batch_size=None, num_workers=workers)) == list(range(11))
    every = [v for b in D.DataLoader(Stream(4, share=False), 2, num_workers=workers) for v in b.tolist()]
    assert collections.Counter(every) == collections.Counter(list(range(4)) * max(1, workers))


def test_persistent_workers_stay():
    loader = D.DataLoader(Pids(), 2, num_workers=2, persistent_workers=True)
    first, second = ({p for b in loader for p in b.tolist()} for _ in range(2))
    assert first == second and len(first) == 2 and os.getpid() not in first
    for _ in loader:
        break  # half way
    assert len([p for b in loader for p in b.tolist()]) == 8
    again = D.DataLoader(Stream(), 3, num_workers=2, persistent_workers=True)
    assert [sorted(v for b in again for v in b.tolist()) for _ in range(3)] == [list(range(11))] * 3


def test_workers_are_ended_by_the_name_that_libraries_call():
    loader = D.DataLoader(Pids(), 2, num_workers=2, persistent_workers=True)
    pids = {int(p) for batch in loader for p in batch}
    loader._iterator._shutdown_workers()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_persistent_workers_stay_when_a_pass_is_left_half_way():
    loader = D.DataLoader(Pids(), 1, num_workers=2, persistent_workers=True)
    it = iter(loader)
    pids = {next(it).item(), next(it).item()}
    assert iter(loader) is it and {b.item() for b in it} == pids and len(pids) == 2
    streams = D.DataLoader(Stream(), 3, num_workers=2, persistent_workers=True)
    for _ in streams:
        break
    assert sorted(v for b in streams for v in b.tolist()) == list(range(11))


class Pids(D.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return os.getpid()


class Random(D.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        import random

        info = D.get_worker_info()
        return ampc.rand(()).item(), np.random.rand(), random.random(), info.id, info.num_workers, info.seed


def test_workers_have_random_numbers_of_their_own():
    def draw():
        loader = D.DataLoader(Random(), None, num_workers=2, generator=ampc.Generator().manual_seed(1))
        return [tuple(float(v) for v in row) for row in loader]

    rows = draw()
    assert rows == draw() and len({r[0] for r in rows}) == len({r[1] for r in rows}) == len({r[2] for r in rows}) == 4
    assert {r[3] for r in rows} == {0, 1} and all(r[4] == 2 for r in rows) and rows[1][5] == rows[0][5] + 1 and D.get_worker_info() is None


class Bad(D.Dataset):
    def __init__(self, what):
        self.what = what

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 5:
            self.what()
        return i


class NeedsTwo(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


def refuse():
    raise KeyError("the fifth")


def refuse_oddly():
    raise NeedsTwo(1, 2)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_workers_exception_arrives_with_its_traceback(workers):
    loader = iter(D.DataLoader(Bad(refuse), 2, num_workers=workers))
    assert next(loader).tolist() == [0, 1] and next(loader).tolist() == [2, 3]
    with pytest.raises(KeyError) as e:
        next(loader)
    assert next(loader).tolist() == [6, 7] and next(loader, None) is None  # what else there is still comes
    assert "\n" in str(e.value)  # and not one line of repr
    assert "worker process" in str(e.value) and "in refuse" in str(e.value) and "the fifth" in str(e.value)
    with pytest.raises(RuntimeError, match="NeedsTwo"):
        list(D.DataLoader(Bad(refuse_oddly), 2, num_workers=workers))


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def sleep():
    time.sleep(30)


def test_a_worker_that_dies_or_takes_too_long():
    with pytest.raises(RuntimeError, match="killed by signal 9"):
        list(D.DataLoader(Bad(die), 2, num_workers=2))
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="timed out after 0.5"):
        list(D.DataLoader(Bad(sleep), 2, num_workers=1, timeout=0.5))
    assert time.monotonic() - begin < 20 and not children()


def fail_at_start(worker):
    raise OSError(f"no disk for {worker}")


def test_init_functions():
    with pytest.raises(OSError, match="no disk for 0"):
        list(D.DataLoader(Squares(), 2, num_workers=1, worker_init_fn=fail_at_start))


def children(pid=None):
    """Live child processes, by /proc."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as f:
                    fields = f.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == (pid or os.getpid()) and fields[0] != "Z":
                found.append(int(entry))
    return found


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@linux
def test_nobody_is_left_behind():
    before = set(children())
    it = iter(D.DataLoader(Squares(1000), 1, num_workers=2))
    next(it)
    assert len(set(children()) - before) == 2
    del it
    assert set(children()) == before
    for _ in D.DataLoader(Squares(1000), 1, num_workers=2):
        break
    assert set(children()) == before


SCRIPT = """
import sys, time
import ampc
from ampc.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self): return 1000
    def __getitem__(self, i):
        time.sleep(0.05)
        return i
it = iter(DataLoader(Slow(), 1, num_workers=2))
next(it)
try:
    print("ready", flush=True)
    for b in it: pass
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@linux
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_and_kill_leave_no_orphan(how):
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    workers = children(process.pid)
    assert len(workers) == 2
    process.send_signal(how)
    assert process.wait(20) == (0 if how == signal.SIGINT else -9)
    if how == signal.SIGINT:
        assert process.stdout.read() == "interrupted\n"
    end = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{w}") for w in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{w}") for w in workers)


@pytest.mark.parametrize(("options", "match"), [
    ({"num_workers": -1}, "num_workers"), ({"timeout": -1}, "timeout"), ({"prefetch_factor": 2}, "prefetch_factor"), ({"persistent_workers": True}, "persistent_workers"),
    ({"shuffle": True, "sampler": [1]}, "exclude"), ({"batch_sampler": [[1]], "batch_size": 2}, "batch_sampler"), ({"batch_size": None, "drop_last": True}, "drop_last"), ({"batch_size": 0}, "batch_size")], ids=str)
def test_options_that_exclude_each_other(options, match):
    with pytest.raises(ValueError, match=match):
        D.DataLoader(Squares(), **options)
    with pytest.raises(ValueError, match="IterableDataset"):
        D.DataLoader(Stream(), shuffle=True)


def test_another_way_of_starting(tmp_path):
    """Workers that do not share this process's memory get the dataset by pickling."""
    code = "\n".join([
        "import ampc", "from ampc.utils.data import DataLoader, TensorDataset", "if __name__ == '__main__':",
        "    loader = DataLoader(TensorDataset(ampc.arange(7)), 2, num_workers=2, multiprocessing_context='spawn')",
        "    print([x.tolist() for x, in loader])"])
    path = tmp_path / "spawns.py"
    path.write_text(code)
    out = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)
    assert out.stdout == "[[0, 1], [2, 3], [4, 5], [6]]\n", out.stderr


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_shares_of_several_processes(torch, shuffle, drop_last):
    data, shares = list(range(10)), []
    for rank in range(3):
        mine = ampc.utils.data.DistributedSampler(data, 3, rank, shuffle, seed=4, drop_last=drop_last)
        theirs = torch.utils.data.DistributedSampler(data, 3, rank, shuffle, seed=4, drop_last=drop_last)
        mine.set_epoch(2), theirs.set_epoch(2)
        assert len(mine) == len(theirs) == len(list(mine)) and list(mine) == list(mine)
        if not shuffle:
            assert list(mine) == list(theirs)
        shares += list(mine)
    assert set(shares) == set(data) if not drop_last else len(set(shares)) == 9
    with pytest.raises(ValueError, match="rank"):
        ampc.utils.data.DistributedSampler(data, 2, 2)
    with pytest.raises(ValueError, match="has not been initialized"):
        ampc.utils.data.DistributedSampler(data)  # or each process would serve all
    assert sorted(ampc.utils.data.DistributedSampler(data, 1, 0)) == data


class Computed(D.Dataset):
    def __init__(self, detach):
        self.layer, self.detach = ampc.nn.Linear(2, 2), detach

    def __len__(self):
        return 4

    def __getitem__(self, i):
        y = self.layer(ampc.ones(2))
        return y.detach() if self.detach else y


def test_history_is_not_lost_silently_between_processes():
    assert next(iter(D.DataLoader(Computed(False), batch_size=2))).grad_fn is not None
    assert next(iter(D.DataLoader(Computed(True), batch_size=2, num_workers=1))).shape == (2, 2)
    with pytest.raises(RuntimeError, match=r"cannot leave a worker process.*detach\(\) it"):
        next(iter(D.DataLoader(Computed(False), batch_size=2, num_workers=1)))


class Slow(D.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        time.sleep(0.0 if i == 0 else 0.8)
        return i


def test_ctrl_c_while_an_iterator_dies_is_not_lost():
    """Workers are waited for in __del__, in which Python swallows exceptions."""
    batches = iter(D.DataLoader(Slow(), num_workers=1))
    next(batches)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            del batches
            time.sleep(2)
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("options", [{"batch_size": 2}, {"batch_size": None}, {"batch_size": 3, "drop_last": True}, {"batch_size": 2, "num_workers": 1}],
                         ids=["batches", "samples", "whole batches", "worker"])
def test_a_dataset_that_is_its_own_iterator_is_begun_once_an_epoch(torch, options):
    dataset = Resetting(5)
    loader = D.DataLoader(dataset, **options)
    want = [[1, 2], [3, 4], [5]] if options["batch_size"] == 2 else [[1, 2, 3]] if options["batch_size"] == 3 else [[i] for i in (1, 2, 3, 4, 5)]
    for _ in range(2):
        assert [b.reshape(-1).tolist() if isinstance(b, ampc.Tensor) else [b] for b in itertools.islice(loader, 9)] == want

    class Theirs(Resets, torch.utils.data.IterableDataset):
        """The same of torch's."""

    if not options.get("num_workers"):
        theirs = Theirs(5)
        assert [b.reshape(-1).tolist() if isinstance(b, torch.Tensor) else [b] for b in torch.utils.data.DataLoader(theirs, **options)] == want
        assert dataset.asked == 2 * theirs.asked  # at the end, no further sample is asked for
