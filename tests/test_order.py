"""Values by their order beside torch: sort, topk, argmax and their kin, of every dtype, layout and length, with nan, infinities, -0.0 and ties."""

import numpy as np
import pytest
from references import SEED

import ampc

torch = pytest.importorskip("torch")

DTYPES = ["float32", "float64", "float16", "bfloat16", "uint8", "int8", "int16", "int32", "int64", "bool"]
# Along the dimension that is in order: on both sides of the borders between ways of sorting.
LENGTHS = [1, 7, 33, 300, 1025, 2500]
SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, -np.nan]


def drawn(dtype: str, kind: str, *shape: int) -> np.ndarray:
    d = np.random.default_rng(SEED + sum(shape))
    if dtype == "bool":
        return d.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        facts = np.iinfo(dtype)
        low, high = (facts.min, facts.max) if kind == "spread" else (max(facts.min, -4), 5)
        return d.integers(low, high, shape, dtype, endpoint=True)
    x = d.normal(size=shape)
    if kind == "ties":
        return np.round(x * 2) / 2
    return np.where(d.random(shape) < 0.2, d.choice(SPECIAL, shape), x) if kind == "special" else x


def both(dtype: str, kind: str, layout: str, n: int) -> tuple:
    """A tensor of each library, with n values along its last dimension."""
    x = drawn(dtype, kind, n, 3) if layout == "turned" else drawn(dtype, kind, 2, n)
    pair = []
    for lib in (torch, ampc):
        t = lib.from_numpy(x.copy()).to(getattr(lib, dtype))
        if layout == "apart":
            t = lib.stack([t, t * 0 if dtype != "bool" else t], -1)[..., 0]
        pair.append(t.T if layout == "turned" else t)
    return tuple(pair)


def exact(t) -> np.ndarray:
    """The values in float64, and beside them their signs; nan has none."""
    x = t.to({"torch": torch, "ampc": ampc}[type(t).__module__.split(".")[0]].float64).numpy(force=True)
    return np.stack([x, np.where(np.isnan(x), 0, np.signbit(x))])


def assert_same(theirs, ours) -> None:
    for t, o in zip(theirs, ours):
        assert tuple(t.shape) == tuple(o.shape) and str(t.dtype).split(".")[1] == str(o.dtype).split(".")[1]
        np.testing.assert_array_equal(exact(o), exact(t))


CASES = [(dtype, kind, layout) for dtype in DTYPES for kind in ("spread", "ties", "special") for layout in ("rows", "turned", "apart")
         if kind != "special" or "float" in dtype]


@pytest.mark.parametrize("dtype, kind, layout", CASES)
def test_sort_is_stable_in_both_directions(dtype, kind, layout):
    for n in LENGTHS:
        theirs, ours = both(dtype, kind, layout, n)
        for down in (False, True):
            assert_same(torch.sort(theirs, dim=-1, descending=down, stable=True), ampc.sort(ours, dim=-1, descending=down, stable=True))


@pytest.mark.parametrize("dtype, kind, layout", [c for c in CASES if c[0] != "bool"])
def test_topk_is_the_beginning_of_what_is_sorted(dtype, kind, layout):
    for n in LENGTHS:
        theirs, ours = both(dtype, kind, layout, n)
        for k in sorted({0, 1, min(n, 5), min(n, 32), n // 9, n // 3, n}):
            for largest in (True, False):
                values, indices = torch.sort(theirs, dim=-1, descending=largest, stable=True)
                found = ampc.topk(ours, k, dim=-1, largest=largest)
                assert_same((values[..., :k], indices[..., :k]), found)
                there = torch.topk(theirs, k, dim=-1, largest=largest)[0].double()
                np.testing.assert_array_equal(there.numpy(force=True), found[0].double().numpy(force=True))


@pytest.mark.parametrize("dtype, kind, layout", [c for c in CASES if c[0] != "bool"])
def test_the_place_of_the_best(dtype, kind, layout):
    for n in LENGTHS:
        theirs, ours = both(dtype, kind, layout, n)
        for name in ("max", "min"):
            for dim in (0, 1):
                assert_same(getattr(theirs, name)(dim), getattr(ours, name)(dim))
                assert_same([getattr(theirs, "arg" + name)(dim)], [getattr(ours, "arg" + name)(dim)])
            assert_same([getattr(theirs, "arg" + name)()], [getattr(ours, "arg" + name)()])


@pytest.mark.parametrize("order", ["rising", "falling", "equal", "last"])
def test_rows_that_are_worst_for_topk(order):
    """Every value comes before those that are kept, or none does."""
    n = 20000
    x = {"rising": np.arange(n), "falling": -np.arange(n), "equal": np.zeros(n), "last": (np.arange(n) > n - 500).astype(float)}[order].astype("float32")
    for k in (1, 20, 700, 6000):
        for largest in (True, False):
            wanted = torch.sort(torch.from_numpy(x), descending=largest, stable=True)
            found = ampc.topk(ampc.from_numpy(x), k, largest=largest)
            assert_same([w[:k] for w in wanted], found)


def test_empty_rows_and_single_values():
    for shape in ((0,), (3, 0), (0, 3), (1,), (5, 1), ()):
        theirs, ours = torch.ones(shape), ampc.ones(shape)
        assert_same(theirs.sort(), ours.sort())
        if theirs.numel():
            assert_same(theirs.max(-1), ours.max(-1))
            assert_same(theirs.topk(1), ours.topk(1))


def test_the_same_order_at_any_number_of_threads():
    x, found = ampc.from_numpy(drawn("float32", "ties", 40, 3000)), []
    before = ampc.get_num_threads()
    try:
        for threads in (1, 2, 3):
            ampc.set_num_threads(threads)
            found.append([t.tolist() for pair in (x.sort(), x.topk(9), x.topk(300), x.max(1), x.max(0)) for t in pair])
    finally:
        ampc.set_num_threads(before)
    assert found[0] == found[1] == found[2]
