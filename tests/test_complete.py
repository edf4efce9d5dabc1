"""Tensors complete: memory shared by every protocol, indexing by arrays, in-place forms, ``out=``, the array API, autograd.functional."""

import hashlib
import math

import numpy as np
import pytest
from where import ON_GPU, settled

import ampc

cpu_only = pytest.mark.skipif(ON_GPU, reason="about the CPU's memory")


# -- NumPy's arrays and numbers as arguments --------------------------------------------------------------------------------------


def test_indexing_by_arrays():
    x = ampc.arange(12.0).reshape(3, 4)
    a = x.numpy(force=True).copy()
    for index in (np.array([0, 2]), np.array([True, False, True]), (np.array([0, 2]), np.array([1, 3])), (slice(None), np.array([3, 0])),
                  (np.int64(1), np.array([0])), a > 4, (Ellipsis, np.array([1, 1]))):
        given = tuple(ampc.tensor(i) if isinstance(i, np.ndarray) else i for i in index) if isinstance(index, tuple) else index
        assert np.array_equal(x[index].numpy(force=True), a[index]) and x[index].equal(x[given if isinstance(index, tuple) else ampc.tensor(index)])
        y, b = x.clone(), a.copy()
        y[index] = 7.0
        b[index] = 7.0
        assert np.array_equal(y.numpy(force=True), b)
    assert x[ampc.tensor(1):ampc.tensor(3)].shape == (2, 4) and (x + np.float32(2)).dtype == ampc.float32
    with pytest.raises(IndexError):
        settled(x[np.array([5])])


# -- memory ---------------------------------------------------------------------------------------------------------------------------


@cpu_only
@pytest.mark.parametrize("dtype", [ampc.float64, ampc.float32, ampc.float16, ampc.int64, ampc.int32, ampc.int16, ampc.int8, ampc.uint8, ampc.bool], ids=str)
def test_buffers(dtype):
    x = ampc.tensor([[1, 0, 3], [4, 5, 6]]).to(dtype)
    view = memoryview(x)
    assert view.shape == (2, 3) and view.itemsize == x.element_size() and np.asarray(view).tolist() == x.tolist()
    assert np.asarray(memoryview(x.t())).tolist() == x.t().tolist() and bytes(view) == x.numpy().tobytes()
    content = x._content
    assert content is None  # others may write it from now on
    np.asarray(view)[1, 2] = 0
    assert x[1, 2].item() == 0
    a = np.asarray(memoryview(x))
    a[0, 0] = 0
    assert x[0, 0].item() == 0


@cpu_only
def test_buffers_are_refused():
    for t, why in ((ampc.ones(2, dtype=ampc.bfloat16), "bfloat16"), (ampc.ones(2, requires_grad=True), "gradients")):
        with pytest.raises(BufferError, match=why):
            memoryview(t)
    with pytest.raises(BufferError, match="contiguous"):
        hashlib.sha256(ampc.ones(2, 3).t())


@cpu_only
def test_array_interface():
    x = ampc.arange(6.0).reshape(2, 3)
    for t in (x, x.t(), x[:, 1]):
        facts = t.__array_interface__
        assert facts["shape"] == tuple(t.shape) and facts["data"] == (t.data_ptr(), False)
    assert not hasattr(ampc.ones(2, requires_grad=True), "__array_interface__")


@cpu_only
def test_read_only_arrays_are_never_written():
    a = np.arange(3.0)
    a.flags.writeable = False
    with pytest.warns(UserWarning, match="read-only"):
        t = ampc.from_numpy(a)
    t.fill_(7)
    ampc.as_tensor(a).fill_(8)
    assert a.tolist() == [0, 1, 2]
    with pytest.raises(BufferError, match="read-?only"):  # ours, or an older NumPy's
        ampc.from_dlpack(a)


# -- out=, in place ----------------------------------------------------------------------------------------------------------------------


def test_out_of_compositions():
    a, b = ampc.randn(2, 3), ampc.randn(3, 4)
    out = ampc.empty(2, 4)
    assert ampc.matmul(a, b, out=out) is out and out.equal(a @ b)
    assert ampc.outer(a[0], b[0], out=ampc.empty(3, 4)).equal(ampc.outer(a[0], b[0]))
    with pytest.warns(UserWarning, match="resized"):
        assert ampc.matmul(a, b, out=ampc.empty(3)).equal(a @ b)
    with pytest.raises(RuntimeError, match="int64"):
        ampc.matmul(a, b, out=ampc.empty(2, 4, dtype=ampc.int64))


@pytest.mark.parametrize("name, args", [("sort", ()), ("topk", (2,)), ("max", (1,)), ("min", (0,)), ("cummax", (1,)), ("cummin", (0,))])
def test_out_of_several_results(name, args):
    x, f = ampc.randn(4, 5), getattr(ampc, name)
    want, out = f(x, *args), (ampc.empty(0), ampc.empty(0, dtype=ampc.int64))
    for _ in range(2):  # of no elements, then of the right shape
        got = f(x, *args, out=out)
        assert got.values is out[0] and got.indices is out[1]
        assert out[0].equal(want.values) and out[1].equal(want.indices)


def test_out_without_elements_takes_the_shape():
    x, y = ampc.randn(4, 5), ampc.randn(4, 5)
    out = ampc.empty(0, dtype=ampc.float64)
    assert ampc.add(x, y, out=out) is out and out.dtype == ampc.float64 and out.equal((x + y).double())
    assert ampc.logaddexp(x, y, out=ampc.empty(0)).equal(ampc.logaddexp(x, y))
    view = ampc.empty(3, 5)[:0]
    assert ampc.add(x, y, out=view) is view and view.equal(x + y)


def test_out_that_does_not_fit_is_left_alone():
    x = ampc.randn(4, 5)
    values, indices = ampc.zeros(4, 4), ampc.ones(4, 4, dtype=ampc.bool)
    with pytest.raises(RuntimeError, match="sort: `out` must be int64"):
        ampc.sort(x, out=(values, indices))
    assert values.eq(0).all() and values.shape == indices.shape == (4, 4)
    with pytest.raises(TypeError, match="tuple of 2 Tensors"):
        ampc.sort(x, out=values)
    with pytest.raises(RuntimeError, match="gradients"):
        ampc.sort(x.requires_grad_(), out=(values, ampc.empty(0, dtype=ampc.int64)))


def test_div_takes_no_rounding_mode():
    x, y = ampc.randn(4, 5), ampc.rand(5) + 0.5
    assert ampc.div(x, y, rounding_mode=None).equal(x / y)
    assert x.clone().div_(y, rounding_mode="floor").equal(ampc.floor(x / y))


@pytest.mark.parametrize("name", ["absolute", "arcsin", "deg2rad", "sinc", "fix", "negative", "rad2deg", "sgn", "logit", "tril", "triu"])
def test_in_place_forms(name):
    x = ampc.rand(3, 3) * 0.8 + 0.1
    y = x.clone()
    assert getattr(y, name + "_")() is y and y.equal(getattr(x, name)())


def test_in_place_forms_with_arguments(torch):
    rng = np.random.default_rng(3)
    x, i = rng.standard_normal((3, 4)), np.array([[0, 2, 1, 0]])
    for name, args in (("scatter_", (0, i, 2.5)), ("index_fill_", (1, np.array([2, 0]), 1.5)), ("clamp_min_", (0.1,)), ("lt_", (0.3,)),
                       ("cumsum_", (1,)), ("renorm_", (2, 0, 0.5)), ("fill_diagonal_", (3.0,)), ("addmm_", (x[:, :2], x[:2]))):
        mine, theirs = ampc.tensor(x), torch.tensor(x)
        getattr(mine, name)(*(ampc.tensor(a) if isinstance(a, np.ndarray) else a for a in args))
        getattr(theirs, name)(*(torch.tensor(a) if isinstance(a, np.ndarray) else a for a in args))
        np.testing.assert_allclose(mine.numpy(force=True), theirs.numpy(), rtol=1e-12, err_msg=name)


def test_windows_of_a_tensor(torch):
    x = np.arange(24.0).reshape(4, 6)
    for args in ((1, 3, 2), (0, 2, 1), (-1, 6, 1)):
        mine, theirs = ampc.tensor(x).requires_grad_(), torch.tensor(x).requires_grad_()
        a, b = mine.unfold(*args), theirs.unfold(*args)
        assert np.array_equal(a.numpy(force=True), b.numpy(force=True))
        (a * a).sum().backward()
        (b * b).sum().backward()
        assert np.array_equal(mine.grad.numpy(force=True), theirs.grad.numpy(force=True))


def test_geometry_and_numbers(torch):
    x = ampc.arange(6.0)
    assert x.clone().resize_(2, 2).tolist() == [[0, 1], [2, 3]] and x.clone().resize_(8).shape == (8,)
    assert ampc.gcd(ampc.tensor([12, -18, 0]), ampc.tensor([8, 12, 5])).tolist() == [4, 6, 5]
    assert ampc.lcm(ampc.tensor([4, 0]), ampc.tensor([6, 3])).tolist() == [12, 0]
    assert ampc.logspace(0, 2, 3).tolist() == [1, 10, 100] and ampc.scalar_tensor(2).dtype == ampc.float32
    rng = np.random.default_rng(5)
    y = rng.standard_normal((4, 5))
    for order in (1, 2):
        for a, b in zip(ampc.gradient(ampc.tensor(y), spacing=0.5, edge_order=order), torch.gradient(torch.tensor(y), spacing=0.5, edge_order=order)):
            np.testing.assert_allclose(a.numpy(force=True), b.numpy(), rtol=1e-12)
    L = ampc.linalg.cholesky(ampc.tensor(y @ y.T + 3 * np.eye(4)))
    B = ampc.tensor(rng.standard_normal((4, 2)))
    assert (L @ L.T @ B.cholesky_solve(L) - B).abs().max().item() < 1e-12
    if not ON_GPU:
        assert ampc.tensor([1.0, 4.0]).apply_(math.sqrt).tolist() == [1, 2]


# -- the array API -----------------------------------------------------------------------------------------------------------------------


STANDARD = """abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan atan2 atanh bitwise_and bitwise_invert
bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor broadcast_arrays broadcast_to can_cast ceil clip concat conj copysign cos cosh count_nonzero
cumulative_prod cumulative_sum diff divide empty empty_like equal exp expand_dims expm1 eye finfo flip floor floor_divide from_dlpack full full_like
greater greater_equal hypot iinfo imag isdtype isfinite isinf isnan less less_equal linspace log log10 log1p log2 logaddexp logical_and logical_not
logical_or logical_xor matmul matrix_transpose max maximum mean meshgrid min minimum moveaxis multiply negative nextafter nonzero not_equal ones ones_like
permute_dims positive pow prod real reciprocal remainder repeat reshape result_type roll round searchsorted sign signbit sin sinh sort sqrt square squeeze
stack std subtract sum take take_along_axis tan tanh tensordot tile tril triu trunc unique_all unique_counts unique_inverse unique_values unstack var vecdot
where zeros zeros_like bool int8 int16 int32 int64 uint8 float32 float64 e inf nan newaxis pi linalg"""
LINALG = "cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm"


def test_array_namespace():
    xp = ampc.ones(2).__array_namespace__(api_version="2024.12")
    assert xp.__array_api_version__ == ampc.__array_api_version__ == "2024.12"
    assert [n for n in STANDARD.split() if not hasattr(xp, n)] == [] and [n for n in LINALG.split() if not hasattr(xp.linalg, n)] == []
    info = xp.__array_namespace_info__()
    assert info.default_dtypes()["integral"] is ampc.int64 and "float32" in info.dtypes(kind="real floating") and info.devices()
    with pytest.raises(ValueError):
        ampc.ones(2).__array_namespace__(api_version="1999.01")


def test_array_functions_where_torch_has_another_rule():
    xp = ampc.ones(2).__array_namespace__()
    small, wide = xp.asarray([1, 2], dtype=ampc.int8), xp.asarray(300, dtype=ampc.int16)
    assert xp.add(small, wide).tolist() == [301, 302] and (small + wide).dtype is ampc.int8  # a 0-d tensor promotes as any other does
    assert xp.matmul(xp.ones((2, 2), dtype=ampc.int8), xp.ones((2, 2), dtype=ampc.int32)).dtype is ampc.int32
    x = xp.reshape(xp.arange(6.0), (2, 3))
    assert xp.equal(xp.sum(x, axis=()), x).all() and xp.std(x, axis=()).tolist() == [[0] * 3] * 2 and xp.sum(x, axis=(0, 1)).item() == 15
    assert xp.std(x, correction=0.5).item() == pytest.approx((17.5 / 5.5) ** 0.5)
    assert str(xp.remainder(xp.asarray([-0.0, 0.0, 4.0]), xp.asarray([1.0, -1.0, -2.0])).tolist()) == "[0.0, -0.0, -0.0]"
    assert xp.arange(1, 0, 1).shape == (0,) and xp.arange(3).dtype is ampc.int64 and xp.arange(0, 1, 0.5).dtype is ampc.float32
    assert xp.finfo(x).dtype is ampc.float32 and xp.iinfo(ampc.int8).dtype is ampc.int8 and ampc.finfo(x).dtype == "float32"
    assert isinstance(xp.meshgrid(x[0], x[1]), list) and xp.meshgrid(x[0], x[1, :2])[0].shape == (2, 3)
    with pytest.raises(ValueError, match="axis"):
        xp.vecdot(x, xp.ones((2, 1)))


def test_array_functions_at_the_top():
    """The standard's names that torch has no function of, and its words where ampc's functions take them."""
    x = ampc.arange(6.0).reshape(2, 3)
    assert ampc.permute_dims(x, (1, 0)).shape == (3, 2) and ampc.astype(x, ampc.int8).dtype is ampc.int8 and ampc.isdtype(ampc.int8, "integral")
    assert ampc.unique_counts(ampc.tensor([2, 1, 2])).counts.tolist() == [1, 2] and ampc.linalg.trace(x, offset=1).item() == 6
    assert ampc.eye(2, 3, k=1).tolist() == [[0, 1, 0], [0, 0, 1]] and ampc.eye(2, k=-1).tolist() == [[0, 0], [1, 0]]
    assert ampc.eye(2, k=2**70).sum() == ampc.eye(2, k=-(2**70)).sum() == 0
    assert ampc.linspace(0, 1, 4, endpoint=False).tolist() == [0, 0.25, 0.5, 0.75] and ampc.linspace(0, 1, 0, endpoint=False).shape == (0,)
    assert ampc.linalg.vector_norm(x, axis=1, keepdims=True).shape == (2, 1) and ampc.finfo(x).eps == ampc.finfo(ampc.float32).eps
    assert ampc.nextafter(ampc.tensor([1.0]), 2).item() == 1 + 2**-23 and ampc.nextafter(1, ampc.tensor([2.0])).dtype is ampc.float32
    assert str(ampc.sign(ampc.tensor([-0.0, 0.0, -2.0])).tolist()) == "[0.0, 0.0, -1.0]"


def test_array_functions_equal_numpys():
    xp = ampc.ones(2).__array_namespace__()
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    x, y = xp.asarray(a), xp.asarray(b)

    def same(got, want):
        np.testing.assert_allclose(got.numpy(force=True), want, rtol=1e-12)

    same(xp.add(x, y), a + b)
    same(xp.equal(x, x), a == a)
    same(xp.sum(x, axis=(0, 1), keepdims=True), a.sum(keepdims=True))
    same(xp.std(x, axis=1), a.std(1))
    same(xp.max(x, axis=0), a.max(0))
    same(xp.concat([x, y], axis=None), np.concatenate([a, b], None))
    same(xp.expand_dims(x, axis=1), a[:, None])
    same(xp.flip(x), np.flip(a))
    same(xp.cumulative_sum(x, axis=1, include_initial=True), np.concatenate([np.zeros((3, 1)), a.cumsum(1)], 1))
    same(xp.take(x, xp.asarray([2, -1]), axis=1), a[:, [2, -1]])
    same(xp.argsort(x, axis=0, descending=True), np.argsort(-a, 0))
    same(xp.nonzero(xp.greater(x, 0))[1], np.nonzero(a > 0)[1])
    same(xp.linalg.trace(x), np.trace(a))
    same(xp.clip(x, -0.5, 0.5), a.clip(-0.5, 0.5))
    same(xp.nextafter(x, y), np.nextafter(a, b))
    same(xp.permute_dims(x, (1, 0)), a.T)
    same(xp.repeat(x, 2, axis=1), a.repeat(2, 1))
    values, first, inverse, counts = xp.unique_all(xp.asarray([3, 1, 3, 2]))
    assert values.tolist() == [1, 2, 3] and first.tolist() == [1, 3, 0] and inverse.tolist() == [2, 0, 2, 1] and counts.tolist() == [1, 1, 2]
    assert xp.isdtype(x.dtype, ("integral", "real floating")) and not xp.isdtype(x.dtype, "integral")
    assert xp.result_type(xp.float32, x) is xp.float64 and xp.can_cast(xp.int8, xp.int32) and not xp.can_cast(xp.float64, xp.float32)
    with pytest.raises(ValueError):
        xp.squeeze(x, 0)


# -- autograd.functional --------------------------------------------------------------------------------------------------------------------


def both(torch, call):
    """The same in both libraries, from the same numbers."""
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal(3), rng.standard_normal((2, 3))
    mine = call(ampc, ampc.tensor(x), ampc.tensor(y))
    theirs = call(torch, torch.tensor(x), torch.tensor(y))

    def compare(a, b):
        if isinstance(a, (tuple, list)):
            assert len(a) == len(b)
            for one, other in zip(a, b):
                compare(one, other)
        else:
            np.testing.assert_allclose(a.numpy(force=True), b.numpy(force=True), rtol=1e-10, atol=1e-12)
    compare(mine, theirs)


@pytest.mark.parametrize("call", [
    lambda lib, x, y: lib.autograd.functional.jacobian(lambda a: a * a.sum(), x),
    lambda lib, x, y: lib.autograd.functional.jacobian(lambda a, b: (b @ a, a.exp()), (x, y)),
    lambda lib, x, y: lib.autograd.functional.hessian(lambda a: (a**3).sum() * a[0], x),
    lambda lib, x, y: lib.autograd.functional.hessian(lambda a, b: ((b @ a) ** 2).sum(), (x, y)),
    lambda lib, x, y: lib.autograd.functional.vjp(lambda a: y @ a if a.ndim else a, x, y[:, 0]),
    lambda lib, x, y: lib.autograd.functional.jvp(lambda a, b: b @ a.sin(), (x, y), (x * 2, y + 1)),
    lambda lib, x, y: lib.autograd.functional.vhp(lambda a, b: ((b @ a) ** 2).sum(), (x, y), (x * 2, y + 1)),
    lambda lib, x, y: lib.autograd.functional.hvp(lambda a: (a**4).sum(), x, x + 1),
], ids=["jacobian", "jacobian of two", "hessian", "hessian of two", "vjp", "jvp", "vhp", "hvp"])
def test_functional_derivatives(torch, call):
    both(torch, call)


def test_functional_derivatives_differentiate_again():
    x = ampc.tensor([1.0, 2.0], dtype=ampc.float64, requires_grad=True)
    jac = ampc.autograd.functional.jacobian(lambda a: a**3, x, create_graph=True)
    jac.sum().backward()
    assert x.grad.tolist() == [6.0, 12.0]
    with pytest.raises(RuntimeError, match="strict"):
        ampc.autograd.functional.jacobian(lambda a, b: a * 2, (x, x.detach()), strict=True)
    with pytest.raises(RuntimeError, match="one element"):
        ampc.autograd.functional.hessian(lambda a: a * 2, x)


# -- layouts, and what autocast does with mixtures -----------------------------------------------------------------------------------------


def test_memory_formats():
    x = ampc.randn(2, 3, 4, 5)
    y = x.contiguous(memory_format=ampc.channels_last)
    assert y.equal(x) and y.stride() == (60, 1, 15, 3) and y.is_contiguous(memory_format=ampc.channels_last) and not y.is_contiguous()
    assert y.contiguous(memory_format=ampc.channels_last) is y and x.to(memory_format=ampc.channels_last).stride() == y.stride()
    assert x.clone(memory_format=ampc.channels_last).stride() == y.stride() and y.contiguous().stride() == x.stride()
    assert ampc.zeros_like(x, memory_format=ampc.channels_last).stride() == y.stride()
    assert x.double(memory_format=ampc.channels_last).stride() == y.stride()
    with pytest.raises(RuntimeError, match="4 dimensions"):
        ampc.ones(3).contiguous(memory_format=ampc.channels_last)
    F = ampc.nn.functional
    w, g = ampc.randn(8, 3, 3, 3), ampc.randn(2, 8, 4, 5)
    for f in (lambda t: F.conv2d(t, w, padding=1), lambda t: F.max_pool2d(t, 2), lambda t: F.batch_norm(t, None, None, training=True)):
        assert (f(x) - f(y)).abs().max().item() < 1e-5
    big = ampc.randn(2, 32, 4, 5)
    assert (F.conv2d(big, ampc.ones(16, 32, 3, 3)) - F.conv2d(big.to(memory_format=ampc.channels_last), ampc.ones(16, 32, 3, 3))).abs().max().item() < 1e-4
    assert g.shape == (2, 8, 4, 5)


def test_bytes_seen_as_another_dtype():
    x = ampc.tensor([1.0, -2.0, 0.5, 3.0])
    assert x.view(ampc.int32).tolist() == x.numpy(force=True).view(np.int32).tolist()
    assert x.view(ampc.uint8).shape == (16,) and x.view(ampc.uint8).view(ampc.float32).equal(x) and x.view(ampc.float64).shape == (2,)
    x.view(ampc.int32)[0] = 0
    assert x[0].item() == 0
    with pytest.raises(RuntimeError, match="divide"):
        ampc.ones(3).view(ampc.float64)


def test_mixtures_run_in_the_widest_under_autocast():
    from where import DEVICE
    x, h, at = ampc.ones(3, 4), ampc.ones(3, 4).half(), ampc.zeros(3, 4, dtype=ampc.int64)
    with ampc.autocast(DEVICE, dtype=ampc.float16):
        for f in (lambda: h.scatter(0, at, x), lambda: x.scatter_reduce(0, at, h, "sum"), lambda: h.index_copy(0, ampc.tensor([1]), x[:1]),
                  lambda: x.index_add(0, ampc.tensor([1]), h[:1]), lambda: h.masked_scatter(x > 0, x), lambda: ampc.nn.functional.grid_sample(
                      h.reshape(1, 1, 3, 4), ampc.zeros(1, 2, 2, 2)), lambda: 1 / h, lambda: 2.0 / h, lambda: h ** 0.5):
            assert f().dtype is ampc.float32
        assert (1 / x).dtype is ampc.float32 and (h / 2).dtype is ampc.float16
    assert (1 / h).dtype is ampc.float16
