"""Max pooling by windows of two by two that lie side by side, which takes a way of its own."""

import numpy as np
import pytest
from where import DEVICE

import ampc
import ampc.nn.functional as F


def largest_of_fours(x):
    """By the rule for max pooling: a nan, once met, stays, the last of them; of equal values the first wins."""
    *lead, height, width = x.shape
    rows, columns = height // 2, width // 2
    values, places = np.zeros((*lead, rows, columns), x.dtype), np.zeros((*lead, rows, columns), np.int64)
    for at in np.ndindex(*values.shape):
        *plane, i, j = at
        best = None
        for k, m in ((2 * i, 2 * j), (2 * i, 2 * j + 1), (2 * i + 1, 2 * j), (2 * i + 1, 2 * j + 1)):
            value = x[(*plane, k, m)]
            if best is None or value > best or value != value:
                best, values[at], places[at] = value, value, k * width + m
    return values, places


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int64", "uint8"])
@pytest.mark.parametrize("size", [(2, 16), (7, 19), (8, 150), (33, 35)], ids=str)
def test_max_pooling_of_two_by_two(size, dtype):
    x = np.random.default_rng(0).integers(0, 4, (2, 3, *size)).astype(np.float64)
    if "float" in dtype:
        x[np.random.default_rng(1).random(x.shape) < 0.1] = np.nan
        x[0, 0, 0, :2] = -np.inf
    t = ampc.tensor(x).to(getattr(ampc, dtype)).to(DEVICE)
    values, places = largest_of_fours(x)
    for given in (t, t.transpose(2, 3).contiguous().transpose(2, 3), ampc.stack([t, t])[1]):
        got, at = F.max_pool2d(given, 2, return_indices=True)
        assert np.array_equal(got.double().numpy(force=True), values, equal_nan=True) and np.array_equal(at.numpy(force=True), places)
        deep, deep_at = F.max_pool3d(given, (1, 2, 2), return_indices=True)
        within = np.arange(3)[:, None, None] * size[0] * size[1] + places
        assert np.array_equal(deep.double().numpy(force=True), values, equal_nan=True) and np.array_equal(deep_at.numpy(force=True), within)


def test_sizes_of_a_module_that_undoes_a_pooling(torch):
    """One for each dimension, as torch has them."""
    for n in (1, 2, 3):
        for options in ({"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": (2,) * n, "stride": (1,) * n}):
            ours, theirs = (getattr(lib.nn, f"MaxUnpool{n}d")(**options) for lib in (ampc, torch))
            assert repr(ours) == repr(theirs)
            assert (ours.kernel_size, ours.stride, ours.padding) == (theirs.kernel_size, theirs.stride, theirs.padding)


@pytest.mark.cpu  # a GPU tells of an index out of range late
def test_an_unpooled_size_must_be_one_that_pools_to_the_input(torch):
    values, places = F.max_pool2d(ampc.randn(1, 1, 6, 6), 2, return_indices=True)
    for size in range(3, 10):
        outcomes = []
        for lib in (ampc, torch):
            x, at = lib.tensor(values.tolist()), lib.tensor(places.tolist())
            try:
                outcomes.append(tuple(lib.nn.functional.max_unpool2d(x, at, 2, output_size=(size, 6)).shape))
            except (ValueError, RuntimeError) as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1], size


def test_nothing_to_unpool_still_has_a_history():
    x = ampc.empty(0, 2, 2, 2, requires_grad=True)
    y = F.max_unpool2d(x, ampc.empty(0, 2, 2, 2, dtype=ampc.int64), 2)
    assert y.shape == (0, 2, 4, 4)
    y.sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("nd", [1, 2, 3])
def test_only_samples_may_be_none(torch, nd):
    """torch's rules for inputs without elements and results without positions."""
    lead = [(2, 0), (0, 2), (0, 0), (0,), (3,), (2, 3)]
    for shape in [(*first, *(4,) * nd) for first in lead] + [(2, 3, *(4,) * (nd - 1), 0)]:
        for name, size in [("max_pool", 2), ("avg_pool", 2), ("adaptive_max_pool", 2), ("adaptive_max_pool", 0)]:
            outcomes = []
            for lib in (ampc, torch):
                try:
                    outcomes.append(tuple(getattr(lib.nn.functional, f"{name}{nd}d")(lib.zeros(shape), size).shape))
                except RuntimeError as error:
                    outcomes.append(type(error))
            assert outcomes[0] == outcomes[1], (shape, name, size)


def test_no_result_of_a_pool_gives_a_gradient_of_zeros():
    x = ampc.ones(2, 3, 4, 4, device=DEVICE, requires_grad=True)
    values, places = F.adaptive_max_pool2d(x, (0, 2), return_indices=True)
    assert values.shape == places.shape == (2, 3, 0, 2)
    values.sum().backward()
    assert x.grad.shape == x.shape and not x.grad.any()
