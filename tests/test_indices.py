"""Products, factorisations and indices beside torch: dtypes of integers, gradients of what is not of full rank, masks, views by strides."""

import collections
from typing import Any

import numpy as np
import pytest
from test_corners import same
from where import DEVICE, settled

import ampc
import ampc.nn.functional as F
from ampc.autograd import gradcheck, gradgradcheck

torch = pytest.importorskip("torch")


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def both(call: Any, *arrays: np.ndarray, room: float = 1e-9) -> None:
    """The same values, and the same gradients of the operands that hold floating point."""
    results = []
    for lib in (torch, ampc):
        given = [lib.tensor(a.copy()).requires_grad_(a.dtype == np.float64) for a in arrays]
        y = call(lib, *given)
        y.backward(lib.ones_like(y))
        results.append([y.detach().tolist(), *(t.grad.tolist() for t in given if t.requires_grad)])
    for theirs, ours in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=room, atol=room)


@pytest.mark.parametrize("factors", [{}, {"alpha": 2, "beta": 3}, {"alpha": 0.6, "beta": 2.5}])
@pytest.mark.parametrize("name", ["addmm", "addmv", "addbmm", "baddbmm", "addmm_"])
def test_products_of_integers_keep_their_dtype(name, factors):
    def run(lib: Any) -> Any:
        m = lib.arange(4, dtype=lib.int32).reshape(2, 2)
        operands = {"addmm": (m, m, m), "addmm_": (m.clone(), m, m), "addmv": (m[0], m, m[1]), "addbmm": (m, m[None], m[None]), "baddbmm": (m[None],) * 3}[name]
        return getattr(operands[0], name)(*operands[1:], **factors)
    same(run)


def test_addr_of_bool_and_of_fractions():
    same(lambda lib: lib.addr(lib.tensor([[True, False]]), lib.tensor([True]), lib.tensor([False, True]), alpha=2, beta=0))
    same(lambda lib: lib.addr(lib.tensor([[1, 2]]), lib.tensor([1]), lib.tensor([2, 3]), alpha=0.5))


@pytest.mark.parametrize("name", ["addmm", "addmm_"])
def test_a_product_is_not_added_to_another_dtype(name):
    same(lambda lib: getattr(lib.zeros(2, 2, dtype=lib.float16), name)(lib.ones(2, 2), lib.ones(2, 2)))


def test_tensordot_over_a_size_of_1():
    both(lambda lib, x, y: lib.tensordot(x, y, 1), drawn(2, 1), drawn(3, 4, seed=1))
    both(lambda lib, x, y: lib.tensordot(x, y, ([0], [1])), drawn(3, 2), drawn(4, 1, seed=1))


@pytest.mark.parametrize("shape", [(2, 4), (3, 2, 5), (3, 3)])
def test_gradient_of_qr(shape):
    both(lambda lib, x: (lib.linalg.qr(x).Q * lib.tensor(drawn(shape[-2]))).sum() + lib.linalg.qr(x).R.sin().sum(), drawn(*shape))


def test_gradient_of_the_inverse_of_a_matrix_without_full_rank():
    low, high = drawn(5, 2), drawn(2, 3, seed=1)
    both(lambda lib, x, y: lib.linalg.pinv(x @ y), low, high, room=1e-6)
    x = ampc.tensor(drawn(3, 5)).requires_grad_()
    assert gradcheck(ampc.linalg.pinv, (x,)) and gradgradcheck(ampc.linalg.pinv, (x,))


@pytest.mark.parametrize("upper", [False, True])
def test_gradient_of_a_factor_is_that_of_the_whole_matrix(upper):
    factor = np.linalg.cholesky(drawn(3, 3) @ drawn(3, 3).T + 3 * np.eye(3))
    factor = factor.T.copy() if upper else factor
    both(lambda lib, L: lib.cholesky_inverse(L, upper), factor)
    both(lambda lib, b, L: lib.cholesky_solve(b, L, upper), drawn(3, 2), factor)


@pytest.mark.parametrize("call", [lambda lib, m: lib.linalg.pinv(m, rtol=lib.tensor(0.1)), lambda lib, m: lib.linalg.pinv(m, 0.1),
                                  lambda lib, m: lib.linalg.matrix_rank(m, 3.0), lambda lib, m: lib.linalg.matrix_rank(m, atol=lib.tensor(3.0)),
                                  lambda lib, m: lib.linalg.matrix_rank(m, hermitian=True), lambda lib, m: lib.linalg.pinv(m, hermitian=True)])
def test_what_counts_as_zero(call):
    results = [call(lib, lib.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist() for lib in (torch, ampc)]
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)


def test_vander_of_integers_and_batches():
    same(lambda lib: lib.linalg.vander(lib.tensor([[1, 2, 3], [4, 5, 6]], dtype=lib.uint8)))
    same(lambda lib: lib.linalg.vander(lib.tensor([1, 2, 3]), N=2))


MASK = np.array([[True, False, True], [False, True, True]])


@pytest.mark.parametrize("name", ["clamp", "clamp_", "clamp_min", "clamp_max_"])
def test_limits_that_are_tensors(name):
    same(lambda lib: getattr(lib.tensor([-2.0, 0.5, 3.0]), name)(lib.tensor([0.0, 1.0, 2.0])))
    same(lambda lib: getattr(lib.tensor([-2.0, 0.5, 3.0]), name)(1))


def test_limits_into_a_given_tensor():
    for name in ("clamp_min", "clamp_max"):
        same(lambda lib, name=name: getattr(lib, name)(lib.tensor([-2.0, 3.0]), 1.0, out=lib.zeros(4)[::2]))


def test_in_place_compositions_keep_what_backward_needs():
    for mode in ("trunc", "floor"):
        both(lambda lib, x, y, mode=mode: x.clone().div_(y, rounding_mode=mode), drawn(3), drawn(3, seed=1))
    both(lambda lib, x, lo: x.clone().clamp_(lo), drawn(3), drawn(3, seed=1))
    both(lambda lib, x: x.clone().round_(decimals=2), drawn(3))


def test_index_add_times_a_factor():
    both(lambda lib, x, s: x.index_add(0, lib.tensor([1, 0]), s, alpha=3), drawn(2, 3), drawn(2, 3, seed=1))
    same(lambda lib: lib.tensor([1, 2]).index_add_(0, lib.tensor([1, 1]), lib.tensor([3, 4]), alpha=2))
    same(lambda lib: lib.tensor([1, 2]).index_add(0, lib.tensor([1, 1]), lib.tensor([3, 4]), alpha=0.5))


def test_masks_as_indices():
    both(lambda lib, x, v: x.index_put((lib.tensor(MASK),), v), drawn(2, 3), drawn(4, seed=1))
    both(lambda lib, x, v: x.clone().index_put_((lib.tensor([1]), lib.tensor([True, False, True])), v, accumulate=True), drawn(2, 3), drawn(2, seed=1))
    same(lambda lib: lib.zeros(2, 3).index_put((lib.tensor([True, False, True]),), lib.tensor(1.0)))


def test_masked_select_of_a_larger_mask():
    both(lambda lib, x: x.masked_select(lib.tensor(MASK)), drawn(3))
    same(lambda lib: lib.masked_select(lib.tensor([1.0, 2.0, 3.0]), lib.tensor([True, False, True]), out=lib.zeros(0)))
    same(lambda lib: lib.masked_select(lib.tensor([1.0, 2.0]), lib.tensor([1, 0])))


@pytest.mark.parametrize("call", [lambda lib, x, v: x.masked_fill(x == 0, v), lambda lib, x, v: x.masked_fill(x == 0, lib.tensor(v, device="cpu")), lambda lib, x, v: x.fill_(v),
                                  lambda lib, x, v: lib.full_like(x, v)])
@pytest.mark.parametrize("value", [-1e9, 65504.0, float("-inf")])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_number_that_the_dtype_cannot_hold(call, value, dtype):
    """-inf in place of -1e9 makes nan of a row that is masked as a whole."""
    same(lambda lib: call(lib, lib.zeros(2, dtype=getattr(lib, dtype)), value))


def test_a_parameter_as_value():
    x = ampc.zeros(2).masked_fill(ampc.tensor([True, False]), ampc.nn.Parameter(ampc.ones(())))
    assert x.tolist() == [1, 0] and x.requires_grad


def test_masked_scatter_needs_a_mask():
    same(lambda lib: lib.zeros(2).masked_scatter(lib.tensor([1, 0]), lib.ones(2)))


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
def test_scatter_reduce_of_bool(reduce):
    same(lambda lib: lib.tensor([True, False, True]).scatter_reduce(0, lib.tensor([0, 0, 2, 2]), lib.tensor([False, True, True, False]), reduce))


def test_index_fill_where_an_index_is_met_twice():
    both(lambda lib, x, v: x.index_fill(0, lib.tensor([0, 0, 1]), v.sum()), drawn(3, 2), drawn(1, seed=1))


def test_indices_of_numbers_and_empty_ones():
    same(lambda lib: lib.tensor(3.0).gather(0, lib.tensor([0])))
    same(lambda lib: lib.zeros(3).gather(0, lib.tensor([], dtype=lib.uint8)))
    both(lambda lib, x: x.reshape(()).gather(0, lib.tensor([0])), drawn(1))
    both(lambda lib, x: x.reshape(()).gather(0, lib.tensor([0, 0, 0])), drawn(1))
    both(lambda lib, x: x.gather(0, lib.tensor(1)), drawn(2))
    both(lambda lib, x, v: x.reshape(()).scatter_add(0, lib.tensor([0, 0, 0]), v), drawn(1), drawn(3, seed=1))
    same(lambda lib: lib.arange(6.0).view(2, 3)[1, 1].gather(0, lib.tensor([0] * 5)))


@pytest.mark.parametrize("call", [
    lambda x, at, v: x.scatter(1, at, v), lambda x, at, v: x.scatter(0, at, 2.0), lambda x, at, v: x.scatter(0, at, 2.0, reduce="add"),
    lambda x, at, v: x.scatter_add(0, at, v), lambda x, at, v: x.scatter_reduce(0, at, v, "sum"),
    lambda x, at, v: x.scatter_reduce(-1, at, v, "mean", include_self=False), lambda x, at, v: x.scatter_reduce(0, at, v, "amax"),
    lambda x, at, v: x.scatter_reduce(0, at, v, "prod", include_self=False), lambda x, at, v: x.scatter(7, at, v)])
def test_scatters_at_no_index_keep_the_tensor_whatever_the_shapes(call):
    for size, dtype in [((0,), "int64"), ((0, 5), "int64"), ((3, 0, 2), "int64"), ((0,), "float32")]:
        same(lambda lib: call(lib.arange(6.0).view(2, 3), lib.empty(*size, dtype=getattr(lib, dtype)), lib.ones(3, 4)))  # noqa: B023


def test_values_that_no_index_scatters_have_the_gradient_zero():
    x, v = ampc.ones(2, 3, requires_grad=True), ampc.ones(3, 4, requires_grad=True)
    for call in (ampc.scatter, ampc.scatter_add):
        x.grad = v.grad = None
        call(x, 0, ampc.empty(0, dtype=ampc.int64), v).sum().backward()
        assert x.grad.tolist() == [[1.0] * 3] * 2 and v.grad.tolist() == [[0.0] * 4] * 3


def test_views_by_strides_of_a_strided_tensor():
    both(lambda lib, x: x.t().as_strided((2, 2), (1, 2), 1) ** 2, drawn(3, 3))
    both(lambda lib, x: x[:, ::2].as_strided((2, 2), (1, 2)) ** 2, drawn(3, 4))
    x = ampc.arange(6.0)
    assert x.as_strided_((2, 2), (3, 1)) is x and x.tolist() == [[0, 1], [3, 4]]
    with pytest.raises(RuntimeError, match="memory of their own"):
        ampc.zeros(1).requires_grad_().expand(3).as_strided((1,), (1,))


def test_as_strided_scatter_keeps_the_layout():
    for offset in (None, 0, 2):
        same(lambda lib, offset=offset: lib.as_strided_scatter(lib.arange(6.0).reshape(2, 3).t(), lib.ones(2), (2,), (2,), offset))
    y = ampc.as_strided_scatter(ampc.arange(9.0)[3:6], ampc.ones(2), (2,), (2,))
    assert y.tolist() == [1, 4, 1]
    x, source = ampc.arange(6.0, dtype=ampc.float64).requires_grad_(), ampc.ones(2, dtype=ampc.float64, requires_grad=True)
    assert ampc.autograd.gradcheck(lambda x, source: ampc.as_strided_scatter(x, source, (2,), (2,), 1).square(), (x, source))


def test_copies_of_views():
    x = ampc.arange(6.0).reshape(2, 3)
    out = ampc.zeros(0)
    assert ampc.expand_copy(x, (2, 2, 3), out=out) is out and out.shape == (2, 2, 3)
    assert [t.tolist() for t in ampc.unbind_copy(x)] == x.tolist() and ampc.t_copy(x).is_contiguous()
    assert not ampc._C._same_storage(ampc.view_copy(x, (6,)), x)
    assert ampc.clone(x.t(), memory_format=ampc.contiguous_format).stride() == (2, 1)


def test_complex_is_told_of_in_words():
    for make in (lambda: ampc.zeros(2, dtype=ampc.complex64), lambda: ampc.full((2,), 1j)):
        with pytest.raises((TypeError, RuntimeError), match="ampc has no complex"):
            make()


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_parts_and_neighbours_of_numbers(dtype):
    numbers = [0.0, -0.0, 1.0, -3.0, float("inf"), float("-inf"), float("nan"), 1e-7, 0.1]
    for part in range(2):
        same(lambda lib, part=part: lib.frexp(lib.tensor(numbers, dtype=getattr(lib, dtype)))[part])
    for towards in (-1.0, 0.0, 2.0):
        same(lambda lib, towards=towards: lib.nextafter(lib.tensor(numbers, dtype=getattr(lib, dtype)), lib.tensor(towards, dtype=getattr(lib, dtype))))


def test_float_power_in_place_needs_float64():
    same(lambda lib: lib.ones(2).float_power_(2))
    same(lambda lib: lib.full((2,), 3.0, dtype=lib.float64).float_power_(2))


INDICES = ["[[0, 1], [1, 2]]", "[T.tensor(0), T.tensor(1)]", "[np.array([0, 1]), np.array([1, 2])]", "[T.tensor([0, 1]), T.tensor([1, 2])]", "[0, slice(None)]", "[None]",
           "[..., 0]", "[0, 1]", "[True, False, True]", "[[True, False, True]]", "[[0, 1]]", "[[[0, 1]]]", "[(0, 1)]", "[np.array(1)]", "[range(2)]", "[[0]] * 33",
           "[[], []]", "[[0, 1], [0]]", "[True, None]", "((0, 1), (1, 2))", "deque([[0, 1]])", "range(2)",  # a list of indices, or one index
           "(slice(None), (1,))", "(slice(None), ([0, 1],))", "(slice(None), (0, 2))", "(slice(None), ())", "(slice(None), T.Size([1, 2]))",  # tuples inside
           "([0, 1], T.tensor(0))", "(T.tensor(0), slice(None))", "(T.tensor(0), [1])", "(slice(1, 2), T.tensor(1, dtype=T.int8))",  # ints in all but name
           "False", "True", "(False,)", "T.tensor(False)", "(..., ...)", "(..., ..., 0)", "(0, ..., ..., 0)", "(..., ..., None)", "(..., ..., slice(None))", "(0, ..., ...)",
           "T.tensor([0, 1], dtype=T.int8)", "T.tensor([0, 1], dtype=T.int16)", "np.array([0, 1], dtype=np.int8)", "T.tensor([1, 0, 1], dtype=T.uint8)",
           "[0.0, 1.9]", "np.array([1.9])", "T.tensor([1.0])", "T.tensor(1.0)", "1.0", "'a'", "['a']", "{0}", "(0, 0, 0)", "(0, 0, slice(None))"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("index", INDICES)
def test_what_counts_as_one_index(index):
    def at(lib: Any) -> Any:
        return eval(index, {"T": lib, "np": np, "deque": collections.deque})

    def put(lib: Any, value: Any) -> Any:
        x = lib.arange(12.0).reshape(3, 4)
        x[at(lib)] = value(lib)
        return x
    same(lambda lib: lib.arange(12.0).reshape(3, 4)[at(lib)])
    if "uint8" not in index:  # torch does not fill where a mask is uint8
        same(lambda lib: put(lib, lambda lib: -1))
    for value in (lambda lib: lib.tensor([[-1.0]]), lambda lib: lib.tensor([7]), lambda lib: lib.zeros(0)):
        if "uint8" not in index:
            same(lambda lib, value=value: put(lib, value))


def test_ints_that_are_tensors():
    """They take their dimension away before lists and arrays are looked at, and leave a view."""
    x = ampc.arange(24.0).reshape(1, 2, 3, 4)
    assert x[:, [0, 1], :, ampc.tensor(0)].shape == (1, 2, 3)
    part = x[0, ampc.tensor(1)]
    part[ampc.tensor(0)] = -1.0
    assert x[0, 1, 0].tolist() == [-1] * 4
    both(lambda lib, x: x[:, [0, 1], :, lib.tensor(0)] * lib.arange(3.0), drawn(1, 2, 3, 4))


def test_values_of_another_dtype():
    """An index that holds tensors takes values of x's dtype alone, but one element under a mask, as masked_fill. All else is converted."""
    def put(lib: Any, index: Any, value: Any) -> Any:
        x = lib.arange(6.0).reshape(2, 3)
        x[index(lib, x)] = value(lib)
        return x
    for index in (lambda lib, x: [0], lambda lib, x: x > 2, lambda lib, x: (x[:, 0] > 2, 0), lambda lib, x: (x[:, 0] > 2, [0]), lambda lib, x: 0, lambda lib, x: True,
                  lambda lib, x: (True, slice(None)), lambda lib, x: None):
        for value in (lambda lib: lib.tensor(7), lambda lib: lib.tensor([7, 8, 9]), lambda lib: lib.tensor([7.0]).double(), lambda lib: True, lambda lib: np.float64(2)):
            same(lambda lib, index=index, value=value: put(lib, index, value))
    x = ampc.zeros(2)
    with ampc.autocast("cpu"):
        x[[0]] = ampc.ones(1).bfloat16()
    assert x.tolist() == [1, 0]


def test_lists_of_indices_and_bytes_are_told_of():
    x = ampc.arange(12.0).reshape(3, 4)
    with pytest.warns(UserWarning, match="tuple of indices"):
        x[[[0, 1], [1, 2]]]
    with pytest.warns(UserWarning, match="read as a mask"):
        x[ampc.tensor([1, 0, 1], dtype=ampc.uint8)]
    with pytest.raises(IndexError, match="only one ellipsis"):
        x[..., ..., 0]


@pytest.mark.parametrize("k", [1, 15, 64, 333, 2500, 6200])
def test_products_of_few_rows_by_every_layout(k):
    """Either operand the small one, each turned or not, with a bias, scales and gaps. On the CPU a row's result does not depend on the others."""
    for rows, n in ((1, 1), (1, 67), (2, 300), (5, 33), (7, 130), (16, 65), (17, 40)):
        x, w, bias = drawn(rows, k), drawn(n, k, seed=1), drawn(n, seed=2)
        a, b, c = (ampc.tensor(v.astype("float32")) for v in (x, w, bias))
        b_turned, a_turned, gaps = b.t().contiguous().t(), a.t().contiguous().t(), ampc.stack([a, a * 0], -1)[..., 0]
        truth = a.numpy(force=True).astype("float64") @ b.numpy(force=True).astype("float64").T
        room = {"rtol": 0, "atol": 3e-5 * (1 + k**0.5)}
        for left in (a, a_turned, gaps):
            for right in (b, b_turned):
                np.testing.assert_allclose((left @ right.t()).numpy(force=True), truth, **room)
                np.testing.assert_allclose((right @ left.t()).numpy(force=True), truth.T, **room)
                np.testing.assert_allclose(ampc.nn.functional.linear(left, right, c).numpy(force=True), truth + c.numpy(force=True), **room)
        np.testing.assert_allclose(ampc.addmm(c, a, b.t(), beta=0.5, alpha=2).numpy(force=True), 2 * truth + c.numpy(force=True) / 2, rtol=0, atol=2 * room["atol"])
        np.testing.assert_allclose((b @ a[0]).numpy(force=True), truth[0], **room)
        np.testing.assert_allclose((a[0] @ b_turned.t()).numpy(force=True), truth[0], **room)
        np.testing.assert_allclose(ampc.bmm(a.expand(3, rows, k), b.t().expand(3, k, n)).numpy(force=True), np.stack([truth] * 3), **room)
        if a.is_cpu and n >= 2 * rows and rows <= 16:
            assert (a @ b.t())[:1].tolist() == (a[:1] @ b.t()).tolist()


def test_products_of_few_rows_are_the_same_on_any_number_of_threads():
    a, b = ampc.tensor(drawn(3, 700).astype("float32")), ampc.tensor(drawn(1500, 700, seed=1).astype("float32"))
    before, found = ampc.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            ampc.set_num_threads(threads)
            found.append([(a @ b.t()).tolist(), (a @ b.t().contiguous()).tolist(), (b @ a[0]).tolist()])
    finally:
        ampc.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_products_of_few_rows_keep_what_is_not_finite():
    a = ampc.tensor([[1.0, float("inf"), 0.0], [float("nan"), 1.0, 2.0]])
    b = ampc.tensor([[1.0, 1.0, 1.0], [0.0, -1.0, 3.0], [1.0, 0.0, 1.0], [2.0, 2.0, 2.0]])
    want = [["inf", "-inf", "nan", "inf"], ["nan"] * 4]
    assert [[str(v) for v in row] for row in (a @ b.t()).tolist()] == want
    assert [[str(v) for v in row] for row in (a @ b.t().contiguous()).tolist()] == want


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "bool", "int64"])
@pytest.mark.parametrize("turned", [False, True])
def test_gather_scatter_and_indexing_over_long_and_short_runs(dtype, turned):
    """Runs of indices on both sides of the number that is read at a time, whole rows, single elements, negative indices, gaps."""
    for shape in ((1300,), (2, 600), (600, 3), (4, 5, 6)):
        def run(lib: Any, shape: Any = shape) -> Any:
            draw = np.random.default_rng(4)
            x = lib.tensor(draw.integers(-9, 9, shape)).to(getattr(lib, dtype))
            x = x.transpose(0, -1) if turned else x
            found = []
            for dim in range(x.ndim):
                index = lib.tensor(draw.integers(0, x.shape[dim], tuple(x.shape)))
                order = lib.tensor(np.argsort(draw.random(tuple(x.shape)), dim))
                found += [x.gather(dim, index), x.gather(dim, index[..., ::2]), x.scatter(dim, order, x), x.scatter(dim, index, 3)]
            places = [lib.tensor(draw.integers(-n, n, (2, 530))) for n in x.shape]
            found += [x[places[0]], x[tuple(places)], x[tuple(p[:, :1] for p in places)], x[..., places[-1]], x[..., places[-1][:, ::2]]]
            y = x.clone()
            y[tuple(places)] = 1
            y[places[0][:, :3]] = 0
            z = x.clone().index_put_(tuple(places), lib.ones(2, 530).to(x.dtype), accumulate=dtype not in ("bool", "bfloat16"))
            return [t.double().tolist() for t in (*found, y, z)]
        assert run(torch) == run(ampc)


@pytest.mark.parametrize("equation, left, right", [
    ("ij,jk->ik", (2, 1), (1, 2)), ("ij,jk->", (2, 1), (1, 2)), ("ij,jk->i", (2, 1), (1, 2)), ("bij,bjk->bik", (5, 2, 1), (5, 1, 2)), ("ij,jk->ik", (0, 1), (1, 2)),
    ("ij,jk->ik", (2, 1), (3, 2)), ("i,i->", (1,), (1,)), ("ii,i->", (1, 1), (1,)), ("ij,j->ij", (2, 3), (3,)), (",->", (), ())])
@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float16", "bfloat16"), ("bool", "int32"), ("float32", "float32")])
def test_einsum_over_sizes_of_1_sums_nothing(equation, left, right, dtypes):
    def run(lib):
        x, y = (lib.full(shape, 3.0).to(getattr(lib, dtype)) for shape, dtype in zip((left, right), dtypes))
        found = lib.einsum(equation, x, y)
        return found
    same(run)


# -- indices below 0 -------------------------------------------------------------------------------------

VECTOR, MATRIX, ENDS = ampc.arange(5.0, device=DEVICE), ampc.arange(12.0, device=DEVICE).reshape(3, 4), ampc.tensor([0, -1], device=DEVICE)
PLACES = ampc.tensor([[-1, 0, 1, 2]], device=DEVICE)


@pytest.mark.parametrize("call", [
    lambda: MATRIX.gather(0, PLACES), lambda: ampc.tensor(3.0, device=DEVICE).gather(0, ampc.tensor(-1, device=DEVICE)),
    lambda: MATRIX.clone().requires_grad_().gather(0, PLACES), lambda: ampc.take_along_dim(MATRIX, PLACES),
    lambda: MATRIX.scatter(0, PLACES, MATRIX), lambda: MATRIX.scatter(0, PLACES, 1.0), lambda: MATRIX.clone().scatter_(0, PLACES, MATRIX),
    lambda: MATRIX.scatter(0, PLACES, MATRIX, reduce="multiply"), lambda: MATRIX.scatter(0, PLACES, MATRIX, reduce="add"),
    lambda: MATRIX.scatter_add(0, PLACES, MATRIX), lambda: MATRIX.scatter_reduce(0, PLACES, MATRIX, "amax"), lambda: MATRIX.scatter_reduce(0, PLACES, MATRIX, "mean"),
    lambda: VECTOR.index_select(0, ENDS), lambda: MATRIX.index_select(1, ENDS), lambda: MATRIX.t().index_select(0, ENDS),
    lambda: VECTOR.index_add(0, ENDS, VECTOR[:2]), lambda: MATRIX.index_add(1, ENDS, MATRIX[:, :2]), lambda: MATRIX.index_add(1, ENDS, MATRIX[:, :2], alpha=2),
    lambda: VECTOR.index_copy(0, ENDS, VECTOR[:2]), lambda: VECTOR.index_reduce(0, ENDS, VECTOR[:2], "prod"),
    lambda: F.embedding(ENDS, MATRIX), lambda: F.cross_entropy(MATRIX[:2], ENDS), lambda: F.nll_loss(MATRIX[:2], ENDS),
    lambda: ampc.searchsorted(VECTOR[:2], VECTOR[:1], sorter=ENDS),
])
def test_what_takes_places_does_not_count_them_from_the_end(call):
    """As in torch, whose words would be lost where a missing place is marked by -1."""
    with pytest.raises(IndexError, match=r"-1"):
        call()
        settled()


def test_what_indexes_counts_from_the_end():
    for name, arguments in {"take": (ENDS,), "index_fill": (0, ENDS, 7.0), "put": (ENDS, VECTOR[:2]), "index_put": ((ENDS,), VECTOR[:2])}.items():
        theirs = [torch.tensor(a.tolist()) if isinstance(a, ampc.Tensor) else (torch.tensor(ENDS.tolist()),) if isinstance(a, tuple) else a for a in arguments]
        assert getattr(VECTOR, name)(*arguments).tolist() == getattr(torch.arange(5.0), name)(*theirs).tolist(), name
    theirs = torch.take_along_dim(torch.arange(12.0).reshape(3, 4), torch.tensor(PLACES.tolist()), 0)
    assert ampc.take_along_dim(MATRIX, PLACES, 0).tolist() == theirs.tolist()
    with pytest.raises(IndexError, match="-4"):  # torch takes it modulo the size
        ampc.take_along_dim(MATRIX, PLACES - 3, 0)
        settled()


def test_the_hint_about_indices_below_0():
    with pytest.raises(IndexError, match="indices below 0 do not count from the end: add the size"):
        MATRIX.gather(0, PLACES)
        settled()
    with pytest.raises(IndexError, match="index -9 .*out of range") as far:
        MATRIX.gather(0, PLACES - 8)
        settled()
    assert "count from the end" not in str(far.value)


# -- numbers that are searched for ------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_number_beyond_the_dtype_is_searched_for_as_an_infinity(dtype):
    def run(lib: Any) -> Any:
        rows = lib.tensor([-1.0, 0.5, 2.0, float("inf")]).to(getattr(lib, dtype))
        numbers = (1e300, -1e300, 7e4, 0.5, 3, float("inf"), float("-inf"), float("nan"))
        return [(lib.searchsorted(rows, n, right=r).item(), lib.bucketize(n, rows, right=r).item()) for n in numbers for r in (False, True)]
    assert run(torch) == run(ampc)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.filterwarnings("ignore")  # both say that masks should be bool
def test_a_mask_of_bytes_is_written_at(accumulate):
    seen = []
    for lib in (ampc, torch):
        x, mask = lib.ones(3, 2), lib.tensor([1, 0, 1], dtype=lib.uint8)
        seen.append(x.index_put_((mask,), x[mask] * 3, accumulate=accumulate).tolist())
    assert seen[0] == seen[1]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_without_anything_give_the_table_a_gradient_of_zeros(torch, mode):
    for lib in (ampc, torch):
        table = lib.ones(3, 2, requires_grad=True)
        y = lib.nn.functional.embedding_bag(lib.tensor([], dtype=lib.int64), table, lib.tensor([0, 0]), mode=mode)
        y.sum().backward()
        assert y.tolist() == [[0, 0], [0, 0]] and table.grad.tolist() == [[0, 0]] * 3


def test_weights_of_bags_have_the_tables_dtype(torch):
    for lib in (ampc, torch):
        with pytest.raises(RuntimeError):
            lib.nn.functional.embedding_bag(lib.tensor([[0, 1]]), lib.ones(3, 2), mode="sum", per_sample_weights=lib.ones(1, 2, dtype=lib.float64))
