"""Corners of ranges, variances, covariances and differences, each beside torch."""

import warnings

import numpy as np
import pytest
from references import R

import ampc


def same(mine, theirs, tolerance=1e-6):
    assert str(mine.dtype)[5:] == str(theirs.dtype)[6:] and list(mine.shape) == list(theirs.shape)
    np.testing.assert_allclose(mine.numpy(force=True), theirs.numpy(force=True), rtol=tolerance, atol=tolerance)


RANGES = [("arange", -0.9, 2.1, 2.0), ("arange", 0.0, -8.000001, -4.0), ("arange", 0, 5, 0.5), ("arange", 1, 4, 2),
          ("linspace", 4.3, 0, 50), ("linspace", 0, 1, 1), ("linspace", -3, 7, 4), ("logspace", 4.3, 0, 2, 2.0), ("logspace", 0, 6, 5, 2.0),
          ("logspace", 4.3, 0, 1, 2.0)]


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32", "float64"])
@pytest.mark.parametrize("name,args", [(name, args) for name, *args in RANGES])
def test_ranges_of_a_dtype(torch, name, args, dtype):
    if dtype == "uint8" and min(args[:2]) < -1 or dtype == "int64" and args[-1] == 0.5:
        return
    theirs = getattr(torch, name)(*args, dtype=getattr(torch, dtype))
    same(getattr(ampc, name)(*args, dtype=getattr(ampc, dtype)), theirs)
    out = ampc.zeros(2 * theirs.numel(), dtype=getattr(ampc, dtype))[::2]
    assert getattr(ampc, name)(*args, out=out) is out
    same(out, theirs)


def test_ranges_between_tensors():
    start, end = ampc.tensor(1.0), ampc.tensor(3)
    assert ampc.linspace(start, end, 3).tolist() == [1, 2, 3] and ampc.logspace(start, end, 3).tolist() == [10, 100, 1000]
    assert ampc.arange(start, end).dtype == ampc.float32 and ampc.arange(end).dtype == ampc.int64
    assert ampc.arange(np.float32(2.5)).dtype == ampc.float32 and ampc.arange(np.int32(2)).dtype == ampc.int64
    assert ampc.linspace(0, 1, ampc.tensor(3)).tolist() == [0, 0.5, 1] and ampc.logspace(0, 1, ampc.tensor(2)).tolist() == [1, 10]
    for spaced in (ampc.linspace, ampc.logspace):
        for steps in (3.0, ampc.tensor(3.0), None):
            with pytest.raises(TypeError, match="`steps` must be int"):
                spaced(0, 1, steps)
    with pytest.raises(RuntimeError, match="0-d tensors"):
        ampc.linspace(ampc.ones(2), 3, 4)
    with pytest.raises(ValueError, match="0 as an integer"):
        ampc.arange(0, 64, 0.5, dtype=ampc.int64)


def test_eye_writes_into_out():
    out = ampc.zeros(2, 3, dtype=ampc.int32)
    assert ampc.eye(2, 3, out=out) is out and out.tolist() == [[1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("args,kwargs", [((False,), {}), ((True,), {}), ((), {"correction": 1.5}), ((1,), {"correction": None}), ((0, False), {}),
                                         ((), {"unbiased": False}), ((1, False, True), {})])
@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_corrections_of_variances(torch, name, args, kwargs):
    x = R.standard_normal((4, 5))
    a, t = ampc.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    mine, theirs = getattr(ampc, name)(a, *args, **kwargs), getattr(torch, name)(t, *args, **kwargs)
    pairs = list(zip(mine, theirs)) if "mean" in name else [(mine, theirs)]
    for y, z in pairs:
        same(y, z, 1e-12)
    sum(y.sum() for y, _ in pairs).backward()
    sum(z.sum() for _, z in pairs).backward()
    same(a.grad, t.grad, 1e-12)


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_one_word_for_the_correction_is_enough(name):
    with pytest.raises(TypeError, match="none of its signatures"):
        getattr(ampc, name)(ampc.ones(3), unbiased=True, correction=1)


@pytest.mark.parametrize("x", [R.integers(0, 9, (3, 6)), R.integers(0, 9, (1, 6)), R.integers(0, 9, 6), R.standard_normal((2, 6)).astype(np.float32)])
@pytest.mark.parametrize("fweights", [None, R.integers(1, 4, 6)])
@pytest.mark.parametrize("aweights", [None, R.uniform(0.2, 1, 6)])
@pytest.mark.parametrize("correction", [0, 1])
def test_covariances(torch, x, fweights, aweights, correction):
    def of(module):
        weights = {k: None if w is None else module.tensor(w) for k, w in (("fweights", fweights), ("aweights", aweights))}
        return module.cov(module.tensor(x), correction=correction, **weights), module.corrcoef(module.tensor(x))
    for y, z in zip(of(ampc), of(torch)):
        same(y, z, 1e-5)


@pytest.mark.parametrize("weights", [{"fweights": ampc.ones(6)}, {"aweights": ampc.ones(6, dtype=ampc.int64)}, {"aweights": -ampc.ones(6)},
                                     {"aweights": ampc.ones(5)}, {"fweights": ampc.zeros(6, dtype=ampc.int64)}])
def test_weights_that_no_covariance_takes(weights):
    with pytest.raises(RuntimeError, match="weights"):
        ampc.cov(ampc.ones(2, 6), **weights)


def test_no_differences_join_nothing():
    x = ampc.tensor([1, 4, 9])
    y = ampc.diff(x, 0, prepend=x, append=x)
    assert y.tolist() == [1, 4, 9] and y.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("order", [1, 2])
def test_gradients_at_coordinates(torch, order):
    x, at = R.standard_normal((4, 5)), [R.standard_normal(4).cumsum(), R.uniform(0.5, 2, 5).cumsum()]
    mine = ampc.gradient(ampc.tensor(x), spacing=tuple(map(ampc.tensor, at)), edge_order=order)
    theirs = torch.gradient(torch.tensor(x), spacing=tuple(map(torch.tensor, at)), edge_order=order)
    for y, z in zip(mine, theirs):
        same(y, z, 1e-10)
    same(ampc.gradient(ampc.tensor(x), spacing=None, dim=1)[0], torch.gradient(torch.tensor(x), spacing=None, dim=1)[0])


@pytest.mark.parametrize("call", [lambda x: ampc.gradient(x, spacing=[0.1], dim=(1, 0)), lambda x: ampc.gradient(x, dim=(1, 1)),
                                  lambda x: ampc.gradient(x, edge_order=3), lambda x: ampc.gradient(x, spacing=(ampc.ones(2),), dim=1)])
def test_gradients_that_are_refused(call):
    with pytest.raises(RuntimeError, match="gradient"):
        call(ampc.ones(3, 3))


def test_nothing_to_choose_keeps_the_graph():
    x = ampc.ones(1, requires_grad=True)
    y = ampc.combinations(x)
    assert y.shape == (0, 2) and y.requires_grad


def test_truth_of_bytes_is_a_byte(torch):
    x = np.array([[0, 1], [2, 1]], dtype=np.uint8)
    for name in ("all", "any"):
        same(getattr(ampc.tensor(x), name)(1), getattr(torch.tensor(x), name)(1))


def test_small_shapes_of_statistics(torch):
    assert ampc.tensor(True).sum_to_size(()).dtype == ampc.int64
    same(ampc.linalg.vander(ampc.tensor([[2, 3, 4], [5, 6, 7]], dtype=ampc.uint8)), torch.linalg.vander(torch.tensor([[2, 3, 4], [5, 6, 7]], dtype=torch.uint8)))
    assert ampc.vander(ampc.tensor([2, 40], dtype=ampc.uint8), 3).tolist() == [[4, 2, 1], [1600, 40, 1]]
    with pytest.raises(RuntimeError, match="flipud"):
        ampc.flipud(ampc.tensor(1.0))


@pytest.mark.parametrize("dtype", ["int64", "int32", "float64", "float32"])
@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod"])
def test_out_decides_what_a_sum_computes_in(torch, name, dtype):
    x, asked = [0.6, 1.7, 2.9, 1e8, 3.3], [{}, {"dtype": "int64"}]
    for kwargs in asked[:1 if dtype == "float32" else 2]:
        if name in ("prod", "cumprod") and dtype == "int32" or kwargs and dtype != "int64":
            continue
        out = []
        for m in (ampc, torch):
            room = m.zeros(() if name in ("sum", "prod") else (5,), dtype=getattr(m, dtype))
            getattr(m, name)(m.tensor(x, dtype=m.float32), 0, out=room, **{k: getattr(m, v) for k, v in kwargs.items()})
            out.append(room)
        same(*out, 1e-12 if dtype == "float64" else 1e-6)


@pytest.mark.parametrize("shape,dim", [((5, 0, 5), 1), ((0, 3), 0), ((0,), 0)])
@pytest.mark.parametrize("name", ["unique", "unique_consecutive"])
def test_no_slices_are_unique(name, shape, dim):
    found = getattr(ampc, name)(ampc.zeros(shape), return_inverse=True, return_counts=True, dim=dim)
    assert [list(t.shape) for t in found] == [list(shape), [0], [0]]
    with pytest.raises(RuntimeError, match="are empty"):
        getattr(ampc, name)(ampc.zeros(3, 0), dim=0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_slope_of_large_running_logarithms(dtype):
    def slope(dtype):
        x = ampc.full((5,), 9984.0, dtype=getattr(ampc, dtype), requires_grad=True)
        ampc.logcumsumexp(x, 0).backward(ampc.tensor([0.5, -1, 2, 0.25, -3], dtype=getattr(ampc, dtype)))
        return x.grad.double().numpy(force=True)
    np.testing.assert_allclose(slope(dtype), slope("float64"), rtol=0.02)


@pytest.mark.parametrize("name", ["all", "any"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (1, 1), (0, 2)])
def test_over_no_dimension_every_truth_value_is_kept(torch, name, shape):
    x = R.integers(0, 2, shape)
    for keepdim in (False, True):
        same(getattr(ampc.tensor(x), name)((), keepdim), getattr(torch.tensor(x), name)((), keepdim))


def test_over_no_dimension_a_sum_is_over_all():
    assert ampc.ones(2, 3).sum(()).item() == 6 and ampc.linalg.vector_norm(ampc.ones(2, 3), 0, ()).item() == 6


def test_trapezoids_of_bytes_do_not_wrap():
    y, x = ampc.tensor([3, 200, 200], dtype=ampc.uint8), ampc.tensor([200, 100, 0], dtype=ampc.uint8)
    assert ampc.trapezoid(y).item() == 301.5 and ampc.cumulative_trapezoid(y).tolist() == [101.5, 301.5]
    assert ampc.trapezoid(y, x).item() == -30150


def test_choices_and_positions_that_are_refused():
    assert ampc.combinations(ampc.arange(3), 0).shape == (0,)
    with pytest.raises(RuntimeError, match="`r` must be 0 or more"):
        ampc.combinations(ampc.arange(3), -1)
    with pytest.raises(RuntimeError, match="2 positions"):
        ampc.trapezoid(ampc.ones(2, 3), ampc.ones(2))


def test_a_step_may_be_a_tensor():
    x = ampc.tensor([[1.0, 4, 9], [2, 3, 5]])
    for y, z in zip(ampc.gradient(x, spacing=ampc.tensor(2.0)), ampc.gradient(x, spacing=2.0)):
        assert y.tolist() == z.tolist()


@pytest.mark.parametrize("call", [
    lambda: ampc.searchsorted(ampc.tensor([5, 3, 1]), ampc.tensor([3]), sorter=ampc.tensor([2, 1])), lambda: ampc.searchsorted(ampc.tensor(5), ampc.tensor([3])),
    lambda: ampc.vander(ampc.ones(2, 2)), lambda: ampc.linalg.vector_norm(ampc.ones(0), float("inf")), lambda: ampc.norm(ampc.ones(2, 0), -1, 1)])
def test_what_has_no_answer(call):
    with pytest.raises(RuntimeError, match="searchsorted|vander|norm"):
        call()


def test_no_rows_have_no_norms():
    assert ampc.linalg.vector_norm(ampc.ones(0, 3), float("inf"), 1).shape == (0,)


def test_places_and_choices_write_into_out():
    x = ampc.tensor([0, 3, 4])
    for call, result in ((lambda **k: ampc.nonzero(x, **k), [[1], [2]]), (lambda **k: ampc.masked_select(x, x > 3, **k), [4])):
        out = ampc.zeros(0, dtype=ampc.int64)
        assert call(out=out) is out and out.tolist() == result
    with pytest.raises(RuntimeError, match="as_tuple"):
        ampc.nonzero(x, as_tuple=True, out=ampc.zeros(2, dtype=ampc.int64))


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kwargs", [{"bins": 4}, {"bins": 3, "range": (-0.5, 1)}, {"bins": [-1.0, 0, 0.5, 2]}, {"bins": 2, "range": (1, 1)}], ids=str)
def test_histograms(torch, kwargs, weighted, density):
    x, w = R.standard_normal((4, 5)), R.uniform(0.5, 2, (4, 5))
    found = []
    for m in (ampc, torch):
        bins = kwargs["bins"] if isinstance(kwargs["bins"], int) else m.tensor(kwargs["bins"], dtype=m.float64)
        span = {"range": kwargs["range"]} if "range" in kwargs else {}
        found.append(m.histogram(m.tensor(x), bins, **span, weight=m.tensor(w) if weighted else None, density=density))
    for y, z in zip(*found):
        same(y, z, 1e-12)


def test_edges_have_no_range():
    with pytest.raises(TypeError, match="not both"):
        ampc.histogram(ampc.ones(3), ampc.tensor([0.0, 1.0]), range=(0, 1))


def test_histograms_of_points(torch):
    x = R.standard_normal((3, 8, 2))
    mine, theirs = (m.histogramdd(m.tensor(x), [2, 3], range=[-1.0, 1.0, -2.0, 2.0], density=True) for m in (ampc, torch))
    same(mine.hist, theirs.hist, 1e-12)
    for y, z in zip(mine.bin_edges, theirs.bin_edges):
        same(y, z, 1e-12)


@pytest.mark.parametrize("call", [lambda x: ampc.histogram(x, 0), lambda x: ampc.histogram(x, 2, range=(2, 1)), lambda x: ampc.histogram(x, 2, weight=ampc.ones(1)),
                                  lambda x: ampc.histogram(x.long(), 2), lambda x: ampc.histogramdd(x, 2), lambda x: ampc.histogram(x * float("inf"), 2),
                                  lambda x: ampc.histogramdd(x.reshape(2, 2), [1, 2, 3]), lambda x: ampc.histogram(x, ampc.tensor([1, 2]))])
def test_histograms_that_are_refused(call):
    with pytest.raises(RuntimeError, match="histogram"):
        call(ampc.arange(1.0, 5))


def test_histograms_are_named_as_torchs(torch):
    for name, make in (("histogram", lambda lib: lib.histogram(lib.ones(3), 2)), ("histogramdd", lambda lib: lib.histogramdd(lib.ones(3, 2), [2, 2]))):
        assert type(make(ampc)).__name__ == type(make(torch)).__name__ == name


@pytest.mark.parametrize("q", [0.5, [0.0, 0.25, 1.0]])
@pytest.mark.parametrize("values", [[1.0, np.nan, 3.0], [[2.0, 1.0, 4.0], [np.nan, 1.0, np.nan]], [np.nan, np.nan]], ids=str)
def test_the_gradient_of_a_quantile_that_is_nan_is_nans(torch, values, q):
    for name in ("quantile", "nanquantile"):
        seen = []
        for lib in (ampc, torch):
            x = lib.tensor(values, requires_grad=True)
            y = getattr(lib, name)(x, lib.tensor(q), -1)
            y.backward(lib.ones_like(y))
            seen.append((y.detach().cpu().numpy(), x.grad.cpu().numpy()))
        for got, want in zip(*seen):
            np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_the_gradient_of_an_extreme_that_is_nan_is_nans(torch, reduce):
    got, want = (lib.tensor([1.0, np.nan, 3.0, 2.0, 2.0], requires_grad=True) for lib in (ampc, torch))
    for lib, x in ((ampc, got), (torch, want)):
        y = lib.segment_reduce(x, reduce, lengths=lib.tensor([1, 2, 2]))
        y.backward(lib.ones_like(y))
    assert got.grad.tolist() == want.grad.tolist() == [1, 1, 0, 0.5, 0.5]
    x = ampc.tensor([np.nan, 1.0, np.nan], requires_grad=True)
    y = x[:1].scatter_reduce(0, ampc.tensor([0, 0]), x[1:], "a" + reduce)
    y.backward(ampc.ones(1))
    assert x.grad.tolist() == [0.5, 0.0, 0.5]


STATISTICS = ["x.std()", "x.var(0)", "lib.ones(2).var(0, correction=2)", "lib.ones(2).var(0, correction=1.5)", "x.var(unbiased=False)", "lib.var_mean(x)", "lib.std_mean(lib.ones(3, 1), 1)",
              "lib.ones(0).var()", "lib.ones(0, 3).var(0)", "lib.tensor(1.0).std()", "lib.cov(lib.ones(2, 1))", "lib.cov(lib.ones(2, 3), correction=5)", "lib.corrcoef(lib.ones(2, 1))",
              "lib.cov(lib.ones(2, 3), aweights=lib.tensor([1.0, 0.0, 0.0]))", "lib.cov(lib.ones(2, 3))", "x.std().backward()", "lib.ones(1, device='meta').var()"]


@pytest.mark.parametrize("call", STATISTICS)
def test_a_variance_of_too_few_values_is_warned_of_as_in_torch(call):
    torch, told = pytest.importorskip("torch"), []
    for lib in (ampc, torch):
        with warnings.catch_warnings(record=True) as met:
            warnings.simplefilter("always")
            eval(call, {"lib": lib, "x": lib.ones(1, requires_grad=True)})
        told.append([str(w.message).split(". ")[0] for w in met if "degrees" in str(w.message)])
    assert told[0] == told[1]
