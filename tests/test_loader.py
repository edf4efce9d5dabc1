"""The DataLoader beside torch's: how samples are joined, what is checked and what is warned of."""

import collections
import contextlib
import warnings

import numpy as np
import pytest

import ampc
from ampc.utils import data as D

pytestmark = pytest.mark.cpu


class Labelled(dict):
    pass


class Rows(list):
    pass


class Fixed(collections.abc.Mapping):
    def __init__(self, values):
        self.values_ = dict(values)

    def __getitem__(self, key):
        return self.values_[key]

    def __iter__(self):
        return iter(self.values_)

    def __len__(self):
        return len(self.values_)


class OfTwo(Fixed):  # cannot be made of one dict
    def __init__(self, a, b):
        super().__init__({"a": a, "b": b})


CONTAINERS = [
    collections.OrderedDict(a=1, b=2.0), collections.defaultdict(int, a=1), Labelled(a=1), collections.UserDict(a=np.ones(2)), Fixed({"a": 1}), OfTwo(1, 2), Rows([1, np.int64(2)]),
    collections.UserList([1, 2]), collections.deque([1, 2]), (1, 2), range(3), np.str_("q"), b"q", {"a": (Rows([Labelled(z=1)]), "s", True)}, 3, np.float16(2), None, {1}]


def described(value):
    if type(value).__name__ == "Tensor":
        return str(value.dtype).split(".")[1], value.tolist()
    if isinstance(value, collections.abc.Mapping):
        return type(value).__name__, {k: described(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, collections.UserList, collections.deque)):
        return type(value).__name__, [described(v) for v in value]
    return type(value).__name__, value.tolist() if isinstance(value, np.ndarray) else value


def told(f, *args, **kwargs):
    try:
        return described(f(*args, **kwargs))
    except Exception as e:
        return type(e)


@pytest.mark.parametrize("sample", CONTAINERS, ids=lambda s: type(s).__name__)
def test_containers_keep_their_types(torch, sample):
    theirs = torch.utils.data
    assert told(D.default_convert, sample) == told(theirs.default_convert, sample)
    for batch in ([sample], [sample, sample], (sample, sample)):
        assert told(D.default_collate, batch) == told(theirs.default_collate, batch)


def test_how_types_are_joined(torch):
    from ampc.utils.data._utils import collate as mine
    from torch.utils.data._utils import collate as theirs

    def keys(module, tensor):
        return [["Tensor"] if k is tensor else [c.__name__ for c in (k if isinstance(k, tuple) else (k,))] for k in module.default_collate_fn_map]

    assert keys(mine, ampc.Tensor) == keys(theirs, torch.Tensor)
    for module in (mine, theirs):
        assert module.collate([{"a": 1.5}, {"a": 2.0}], collate_fn_map={float: lambda batch, *, collate_fn_map: sum(batch)}) == {"a": 3.5}
        assert module.collate([Labelled(a=1)], collate_fn_map={dict: lambda b, *, collate_fn_map: 1, Labelled: lambda b, *, collate_fn_map: 2}) == 2
        assert module.collate([[1, 2.0], [3, 4.0]], collate_fn_map={(int, float): lambda batch, *, collate_fn_map: list(batch)}) == [[1, 3], [2.0, 4.0]]
        with pytest.raises(TypeError, match="float"):
            module.collate([1.5])
    assert D.default_collate([np.float32(1), 2.5, 3]).dtype is ampc.float32


@pytest.mark.parametrize("lengths", [[0.5, 0.5], [0.3, 0.3, 0.4], [1 / 3] * 3, [0.1] * 10, [1.0], [1], [0.0, 1.0], [1.1, -0.1], [0.5, 0.5000000000001], [5, 5], [-1, 6], [], [2.5, 2.5],
                                     [0.5, 0.4]], ids=str)
@pytest.mark.parametrize("n", [0, 1, 5, 10])
def test_random_split_beside_torch(torch, lengths, n):
    def outcome(module):
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            try:
                found = [len(part) for part in module.random_split(list(range(n)), lengths)]
            except Exception as e:
                found = type(e)
        return found, {w.category for w in given}

    assert outcome(D) == outcome(torch.utils.data)


class Threads(D.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return ampc.get_num_threads()


def test_a_worker_computes_with_one_thread():
    assert [b.item() for b in D.DataLoader(Threads(), num_workers=1)] == [1] * 8


class Long(D.IterableDataset):
    def __init__(self, n, said):
        self.n, self.said = n, said

    def __iter__(self):
        return iter(range(self.n))

    def __len__(self):
        return self.said


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("n", "said"), [(4, 4), (5, 3), (3, 9)])
@pytest.mark.parametrize("asks", [True, False])
def test_a_stream_that_is_longer_than_it_said(workers, n, said, asks):
    loader = D.DataLoader(Long(n, said), batch_size=1, num_workers=workers)
    if asks:
        assert len(loader) == said
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        count = len(list(loader))
    assert count == n * max(1, workers) and len([w for w in given if "said" in str(w.message)]) == (max(0, count - said) if asks else 0)
    assert all(w.filename == __file__ for w in given)


def test_warnings_of_the_loader(torch):
    for T in (ampc, torch):
        loaders = T.utils.data
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            next(iter(loaders.DataLoader([1, 2], pin_memory=True, pin_memory_device="cuda")))
            loaders.DataLoader([1, 2], num_workers=100_000)
        assert len(given) == (2 if T.accelerator.is_available() else 3), [str(w.message) for w in given]


def test_a_made_loader_stays_as_it_is(torch):
    for T in (ampc, torch):
        loader = T.utils.data.DataLoader([1, 2], num_workers=1)
        assert loader.prefetch_factor == 2 and loader.pin_memory_device == "" and loader.drop_last is False and loader._auto_collation
        for name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"):
            with pytest.raises(ValueError, match=name):
                setattr(loader, name, None)
        loader.num_workers, loader.collate_fn = 0, list
        it = iter(loader)
        assert len(it) == len(list(it)) == 2 and type(it) is T.utils.data.dataloader._SingleProcessDataLoaderIter
        assert isinstance(it, T.utils.data.dataloader._BaseDataLoaderIter) and it._num_yielded == 2
        assert T.utils.data.DataLoader[int] and loader._dataset_kind == T.utils.data._DatasetKind.Map


@pytest.mark.parametrize(("context", "workers", "error"), [("fork", 0, ValueError), ("nothing", 1, ValueError), (3, 1, TypeError), (None, 0, None), ("spawn", 1, None)])
def test_how_workers_are_started_is_checked(torch, context, workers, error):
    for T in (ampc, torch):
        with pytest.raises(error, match="multiprocessing_context") if error else contextlib.nullcontext():
            found = T.utils.data.DataLoader([1], num_workers=workers, multiprocessing_context=context).multiprocessing_context
            assert found is None if context is None else found.get_start_method() == context


def test_options_that_are_checked_when_it_begins(torch):
    for T in (ampc, torch):
        with pytest.raises(AssertionError):
            iter(T.utils.data.DataLoader([1], timeout=1))
        with pytest.raises(ValueError, match="prefetch_factor"):
            T.utils.data.DataLoader([1], num_workers=1, prefetch_factor=-1)
    with pytest.raises(AssertionError):
        iter(D.DataLoader([1], num_workers=1, prefetch_factor=0))
