"""Corners of single functions, beside torch: quotients that are nearly whole, infinities, nan as a limit, sums in another dtype, factors
of 0, dims and indices out of range, what autocast leaves alone."""

import inspect
import math
from typing import Any, Callable, List

import numpy as np
import pytest
from where import DEVICE

import ampc

INF, NAN = float("inf"), float("nan")
NUMBERS = [1.0, -7.0, 7.0, -1.0, 0.0, -0.0, INF, -INF, NAN, 5.5, -5.5, 0.1, 0.3, 3.0, 0.25, -65504.0]
FLOATS = ["float64", "float32", "float16", "bfloat16"]


def same(call: Callable[[Any], Any], rtol: float = 0.0) -> None:
    """Both libraries give the same values (up to ``rtol``), signs of 0 and nan too, in the same dtype, or raise the same type."""
    torch = pytest.importorskip("torch")

    def run(lib: Any) -> Any:
        try:
            y = call(lib)
            values = np.array(y.double().tolist() if hasattr(y, "double") else y)  # where a GPU tells of bad indices
        except Exception as error:
            return type(error)
        return values, str(getattr(y, "dtype", "")).split(".")[-1]

    theirs, ours = run(torch), run(ampc)
    if isinstance(theirs, type):
        assert ours is theirs
    else:
        assert not isinstance(ours, type), ours
        assert ours[1] == theirs[1]
        np.testing.assert_allclose(ours[0], theirs[0], rtol=rtol, atol=0)
        assert np.array_equal(np.signbit(ours[0][ours[0] == 0]), np.signbit(theirs[0][theirs[0] == 0]))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("operation", [lambda x, y: x // y, lambda x, y: x % y, lambda x, y: x.fmod(y), lambda x, y: x.div(y, rounding_mode="trunc"),
                                       lambda x, y: x.div(y, rounding_mode="floor")])
def test_quotients(operation, dtype):
    def pairs(lib: Any) -> Any:
        x = lib.tensor(NUMBERS, dtype=getattr(lib, dtype))
        return operation(x.unsqueeze(1), x)
    same(pairs)


def test_quotient_and_remainder_make_the_dividend():
    """x // y is the q of q y + r = x, so that 1 // 0.1 is 9: 0.1 in binary is a little more."""
    assert (ampc.tensor([1.0], dtype=ampc.float64) // 0.1).item() == 9 and (ampc.tensor(-7.0) // INF).item() == -1
    rng = np.random.default_rng(3)
    x = ampc.from_numpy(rng.integers(-10**6, 10**6, 4096) / 1000)
    y = ampc.from_numpy(rng.integers(1, 10**4, 4096) / 1000 * rng.choice([-1, 1], 4096))
    q, r = x // y, x % y
    assert ((r == 0) | ((r < 0) == (y < 0))).all() and (r.abs() < y.abs()).all()
    assert ((q * y + r - x).abs() <= x.abs() * 2**-52 + 2**-52).all()
    assert q.tolist() == [a // b for a, b in zip(x.tolist(), y.tolist())]  # as Python


@pytest.mark.parametrize("divisor", [0.1, -3, 2.5, 3])
def test_quotients_of_integers(divisor):
    for call in (lambda lib: lib.tensor([7, -7, 8]) // divisor, lambda lib: lib.tensor([7, -7, 8]) % divisor):
        same(call)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["sum", "prod", "nansum", "cumsum", "cumprod"])
def test_sums_in_another_dtype_cast_first(name, dtype):
    if name.startswith("cum") and dtype == "bool":
        pytest.skip("torch has none")
    values = [0.5, 0.75, 1.75, -0.5, 3.0]  # products are exact in every dtype, so only the order of casts matters
    same(lambda lib: getattr(lib.tensor(values), name)(*([0] if name.startswith("cum") else []), dtype=getattr(lib, dtype)))
    if "prod" not in name or "float" not in dtype:  # products of these are rounded step by step in torch's 16 bits
        same(lambda lib: getattr(lib.tensor([300, -1, 257]), name)(*([0] if name.startswith("cum") else []), dtype=getattr(lib, dtype)))


def test_a_sum_in_another_dtype_is_differentiated():
    x = ampc.tensor([1.0, 2.0], requires_grad=True)
    x.sum(dtype=ampc.float16).backward()
    assert x.grad is not None and x.grad.tolist() == [1, 1] and x.grad.dtype == ampc.float32


LOGITS = [[1e30, 1e30, 0.0], [1e30, -1e30], [3e38, -3e38], [-INF, 0.0], [-INF, -INF], [INF, 0.0], [NAN, 0.0]]


@pytest.mark.parametrize("values", LOGITS)
def test_softmax_of_huge_logits(values):
    def gradient(lib: Any) -> Any:
        x = lib.tensor([values], requires_grad=True)
        lib.nn.functional.cross_entropy(x, lib.tensor([0])).backward()
        return x.grad

    for call in (lambda lib: lib.nn.functional.cross_entropy(lib.tensor([values]), lib.tensor([0])),
                 lambda lib: lib.softmax(lib.tensor(values), 0), gradient):
        same(call)
    torch = pytest.importorskip("torch")
    ours, theirs = (lib.log_softmax(lib.tensor(values, dtype=lib.float64), 0).tolist() for lib in (ampc, torch))
    np.testing.assert_allclose(ours, theirs, rtol=4 * np.finfo(float).eps)


def test_log_softmax_keeps_the_logarithm_beside_a_huge_logit():
    """log 2, of two equal logits, is not lost in their size."""
    y = ampc.log_softmax(ampc.tensor([1e30, 1e30]), 0)
    np.testing.assert_allclose(y.tolist(), [-np.log(2)] * 2, rtol=2**-23)


@pytest.mark.parametrize("factors", [{"alpha": 0}, {"beta": 0}, {"alpha": 0, "beta": 0}])
@pytest.mark.parametrize("name", ["addmm", "addmv", "addbmm"])
def test_what_a_factor_of_0_multiplies_is_not_looked_at(name, factors):
    def product(lib: Any) -> Any:
        good, x = lib.eye(2), lib.full((2, 2), NAN) if "beta" in factors else lib.eye(2)
        first = lib.full((2, 2), NAN) if "alpha" in factors else good
        if name == "addmv":
            return lib.addmv(x[0], first, good[0], **factors)
        return lib.addmm(x, first, good, **factors) if name == "addmm" else lib.addbmm(x, first[None], good[None], **factors)
    same(product)


@pytest.mark.parametrize("limits", [(NAN, None), (None, NAN), (NAN, NAN), (0, NAN), (NAN, 0), (3, 1), (-INF, INF), (INF, None)])
def test_limits_that_are_nan(limits):
    for dtype in FLOATS:
        same(lambda lib, dtype=dtype: lib.tensor([1.0, NAN, -5.0, INF], dtype=getattr(lib, dtype)).clamp(*limits))
    if limits[1] is None and limits[0] is not None:
        same(lambda lib: lib.tensor([1, 2, 3]).clamp(min=limits[0]))

    def gradient(lib: Any) -> Any:
        x = lib.tensor([1.0, -5.0, 2.0], requires_grad=True)
        x.clamp(*limits).sum().backward()
        return x.grad
    same(gradient)


X = [[1.0, 2.0], [3.0, 4.0]]
PLACES: List[Any] = [(dim, index) for dim in (0, 1, -2, 2, -3) for index in ([0], [1, 0], [])] + [(0, [2]), (0, [-1]), (0, [-3]), (0, [1.0])]


@pytest.mark.parametrize(("dim", "index"), PLACES)
def test_dims_and_places_of_index_copy_and_fill(dim, index):
    dtype = "float32" if any(isinstance(i, float) for i in index) else "int64"

    def copied(lib: Any) -> Any:
        source = lib.ones(*((len(index), 2) if dim % 2 == 0 else (2, len(index))))
        return lib.tensor(X).index_copy(dim, lib.tensor(index, dtype=getattr(lib, dtype)), source)

    same(lambda lib: lib.tensor(X).index_fill(dim, lib.tensor(index, dtype=getattr(lib, dtype)), 9.0))
    if dtype == "int64":
        same(copied)


def test_sources_of_index_copy_have_a_slice_for_each_place():
    for places, slices in (([0, 1], 1), ([0], 2)):
        same(lambda lib, places=places, slices=slices: lib.tensor(X).index_copy(0, lib.tensor(places), lib.ones(slices, 2)))


@pytest.mark.parametrize("window", [(0, 1, 1), (-1, 2, 1), (2, 1, 1), (-3, 1, 1), (0, 3, 1), (0, 1, 0), (0, -1, 1), (0, 0, 1)])
def test_windows_of_unfold(window):
    same(lambda lib: lib.tensor(X).unfold(*window))


@pytest.mark.parametrize("call", ["x.movedim(2, 0)", "x.unflatten(2, (1, 2))", "lib.take_along_dim(x, lib.zeros(2, 2, dtype=lib.int64), 2)",
                                  "x.index_reduce(2, lib.tensor([0]), x, 'amax')", "x.roll(1, 2)", "x.quantile(0.5, 2)"])
def test_dims_out_of_range(call):
    """None is taken modulo the number of dimensions."""
    same(lambda lib: eval(call, {"lib": lib, "x": lib.tensor(X)}))


def gradients(lib: Any, function: Callable[..., Any]) -> Any:
    x, rows, number = lib.tensor(X, requires_grad=True), lib.ones(1, 2, requires_grad=True), lib.tensor(2.0, requires_grad=True)
    function(lib, x, rows, number).mul(3).sum().backward()
    return [0.0 if t.grad is None else t.grad.sum().item() for t in (x, rows, number)]


@pytest.mark.parametrize("function", [
    lambda lib, x, rows, number: x.index_copy(0, lib.tensor([1]), rows), lambda lib, x, rows, number: x.index_fill(0, lib.tensor([1]), number),
    lambda lib, x, rows, number: (x * 1).index_copy_(0, lib.tensor([1]), rows), lambda lib, x, rows, number: x.masked_fill(x > 2, number),
    lambda lib, x, rows, number: (x * 1).masked_fill_(x > 2, number), lambda lib, x, rows, number: x.unfold(0, 1, 1)])
def test_what_is_written_gets_its_gradient(function):
    same(lambda lib: gradients(lib, function))


EQUATIONS = [("ij->ji", 2), ("ij->", 2), ("ii->i", 2), ("ij->i", 2), ("ij,jk->ik", 2, 2), ("i,i->i", 1, 1), ("ij,ij->ij", 2, 2), ("ij,ij->i", 2, 2),
             ("i,j->ij", 1, 1), ("i,->i", 1, 0), ("ij,jk,kl->il", 2, 2, 2), ("i,i->", 1, 1), ("ij,k->i", 2, 1), ("bij,bj->bi", 3, 2), ("i,i,i->", 1, 1, 1)]


@pytest.mark.parametrize("equation", EQUATIONS, ids=lambda e: e[0])
def test_einsum_is_cast_where_it_multiplies_and_sums(equation):
    text, *dims = equation

    def under_autocast(lib: Any) -> Any:
        with lib.autocast(DEVICE if lib is ampc else "cpu", dtype=lib.bfloat16):
            return lib.einsum(text, *[lib.ones([2] * n) for n in dims])
    same(under_autocast)


# -- accuracy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_sinc_and_ndtri_keep_their_digits(torch, dtype):
    """Of pi x and of 2 p - 1, a narrow dtype keeps too few; the reference is float64."""
    x = torch.tensor([1.0, 2.0, 0.5, 3.0, 100.0, 1000.0]).to(getattr(torch, dtype))
    p = torch.tensor([0.5, 0.01, 1e-3, 1e-4, 0.99]).to(getattr(torch, dtype))
    for name, values in (("sinc", x), ("ndtri", p)):
        want = getattr(torch.special, name)(values.double())
        got = torch.tensor(getattr(ampc.special, name)(ampc.tensor(values.tolist(), dtype=getattr(ampc, dtype))).double().tolist(), dtype=torch.float64)
        beyond = 2.0**-22 if name == "sinc" else 0.0  # sin of float32's pi x, where it passes through 0
        assert ((got - want).abs() <= torch.finfo(values.dtype).eps * want.abs() + beyond).all()


NO_ROOM = ["tensor([300], dtype=uint8)", "tensor([-256], dtype=uint8)", "tensor([200], dtype=int8)", "tensor([2 ** 31], dtype=int32)", "tensor([inf], dtype=int32)",
           "tensor([nan], dtype=int64)", "full((2,), 300, dtype=uint8)", "full((2,), nan, dtype=int32)", "full_like(u, 300)",
           "u.new_full((2,), 300)", "u.fill_(300)", "i.fill_(nan)", "u.masked_fill(m, 300)", "u.masked_fill_(m, 300)", "i.masked_fill(m, inf)",
           "u.index_fill(0, tensor([0]), 300)", "u.scatter(0, tensor([0]), 300)", "nn.functional.pad(u, (1, 1), value=300)", "u.clamp(min=300)",
           "u.__setitem__(0, 300)", "u.__setitem__(m, 300)", "u.__setitem__(tensor([0]), 300)", "i.__setitem__(0, nan)", "i ** -1", "pow(i, -2)",
           "i.pow_(-1)", "add(i, i, alpha=1.5)", "i.sub(i, alpha=0.5)"]


@pytest.mark.parametrize("call", NO_ROOM)
def test_integers_take_no_number_that_they_cannot_hold(call):
    def names(lib):
        return {**vars(lib), "inf": math.inf, "nan": math.nan, "u": lib.tensor([1, 2], dtype=lib.uint8), "i": lib.tensor([1, 2]),
                "m": lib.tensor([True, False])}

    torch = pytest.importorskip("torch")
    for lib in (torch, ampc):
        own = names(lib)
        with pytest.raises(RuntimeError):
            eval(call, own)
        assert own["u"].tolist() == own["i"].tolist() == [1, 2]


def test_integers_take_what_they_hold():
    u, i = ampc.tensor([1, 2], dtype=ampc.uint8), ampc.tensor([1, 2])
    assert ampc.tensor([-1, 255, 1.7], dtype=ampc.uint8).tolist() == [255, 255, 1]
    assert ampc.tensor([-2 ** 63, 2 ** 63 - 1]).tolist() == [-2 ** 63, 2 ** 63 - 1] and ampc.tensor([-2.0 ** 63], dtype=ampc.int64).item() == -2 ** 63
    assert i.fill_(1.9).tolist() == [1, 1] and u.fill_(-1).tolist() == [255, 255] and u.clamp(-5, 300).tolist() == [255, 255]
    assert (ampc.tensor([2, -1]) ** ampc.tensor(-1)).tolist() == [0, -1] and (2 ** ampc.tensor([1, 3])).tolist() == [2, 8]
    assert ampc.tensor([1, 2]).clamp(min=1e30).tolist() == [pytest.approx(1e30)] * 2


@pytest.mark.parametrize("values", [[1.0, 1.0, 0.0], [2.0, 1.0, 1.0, 1.0], [3.0, 1.0, 2.0], [float("inf"), float("inf"), 1.0], [1.0, float("nan"), 2.0, 1.0]])
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_equal_values_in_the_middle_share_the_gradient(name, values):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (torch, ampc):
        x = lib.tensor(values, requires_grad=True)
        getattr(x, name)().backward()
        found.append(x.grad.tolist())
    assert found[0] == found[1]


def test_repeated_values_of_a_decomposition_have_a_derivative():
    for of in (lambda x: ampc.linalg.eigh(x)[0], ampc.linalg.eigvalsh, ampc.linalg.svdvals, lambda x: ampc.linalg.svd(x)[1]):
        x = (ampc.eye(3, dtype=ampc.float64) * 2).requires_grad_()
        of(x).sum().backward()
        assert np.allclose(x.grad.numpy(force=True), np.eye(3))
    x = ampc.zeros(3, 2, dtype=ampc.float64, requires_grad=True)
    ampc.linalg.svd(x, full_matrices=False)[1].sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("name", ["elu", "selu", "celu"])
def test_the_slope_of_elu_bends_below_0_alone(name):
    def slopes(lib):
        x = lib.tensor([0.0, -0.0, 1.0, -1.0], dtype=lib.float64, requires_grad=True)
        slope, = lib.autograd.grad(getattr(lib.nn.functional, name)(x).sum(), x, create_graph=True)
        return lib.autograd.grad(slope.sum(), x)[0].tolist()
    assert slopes(ampc)[:3] == [0, 0, 0] and slopes(ampc)[3] > 0
    np.testing.assert_allclose(slopes(ampc), slopes(pytest.importorskip("torch")))


def test_the_slope_of_mse_loss_takes_a_bool_target():
    x, target = ampc.tensor([0.25, 0.75], requires_grad=True), ampc.tensor([True, False])
    slope, = ampc.autograd.grad(ampc.nn.functional.mse_loss(x, target), x, create_graph=True)
    assert slope.tolist() == [-0.75, 0.75]
    assert ampc.autograd.grad(slope.sum(), x)[0].tolist() == [1, 1]


def test_bounds_of_clamp_promote_together():
    same(lambda lib: lib.tensor(1.5, dtype=lib.float64).clamp(min=lib.tensor([True, False]), max=lib.tensor([2.0, 1.0])))
    same(lambda lib: lib.tensor([1, 5], dtype=lib.int32).clamp(min=lib.tensor(2, dtype=lib.int64), max=lib.tensor([3, 3], dtype=lib.uint8)))


def test_a_query_whose_every_score_is_minus_infinity_looks_at_nothing():
    same(lambda lib: lib.nn.functional.scaled_dot_product_attention(lib.ones(1, 1), lib.full((1, 1), -INF), lib.ones(1, 1)))


def test_masked_scatter_of_nothing_is_differentiated():
    x, source = ampc.ones(3, requires_grad=True), ampc.ones(3, requires_grad=True)
    y = x.masked_scatter(ampc.tensor([False, False, False]), source)
    grads = ampc.autograd.grad(y.sum(), [x, source])
    assert [g.tolist() for g in grads] == [[1, 1, 1], [0, 0, 0]]


@pytest.mark.parametrize("dtype", FLOATS)
def test_lerp_far_outside(dtype):
    same(lambda lib: lib.lerp(lib.tensor([-INF, INF, 1.0, 0.0]).to(getattr(lib, dtype)), lib.tensor([INF, 2.0, INF, 0.0]).to(getattr(lib, dtype)),
                              lib.tensor([-INF, -0.75, -1.0, INF]).to(getattr(lib, dtype))))


@pytest.mark.parametrize("name", ["max", "min", "amax", "amin"])
def test_an_infinite_gradient_of_an_extremum_reaches_it_alone(name):
    x = ampc.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    getattr(ampc, name)(x).backward(ampc.tensor(float("inf")))
    best = x.numpy(force=True) == (4 if name.endswith("max") else 1)
    assert np.array_equal(x.grad.numpy(force=True), np.where(best, np.inf, 0.0))


def test_addr_of_bytes_and_a_fraction_does_not_wrap():
    v = ampc.tensor([12, 14], dtype=ampc.int8)
    assert ampc.addr(ampc.tensor(0.5), v, v).tolist() == [[144.5, 168.5], [168.5, 196.5]]


@pytest.mark.parametrize("shape", [(), (1,), (4,)])
def test_the_slope_of_a_tiny_norm_meets_a_huge_gradient(shape):
    """A gradient times x / norm, which is at most 1; the gradient over the norm would be infinite."""
    x = ampc.full(shape, 1e-30, requires_grad=True)
    (x.norm() * 1e30).backward()
    assert np.allclose(x.grad.numpy(force=True), 1e30 / np.sqrt(x.numel()), rtol=1e-6)


def test_a_quantile_made_without_gradients_is_written():
    with ampc.no_grad():
        quantile = ampc.tensor(1.0, requires_grad=True).quantile(0.5)
    quantile.T.add_(ampc.tensor(1.0, requires_grad=True))
    assert quantile.item() == 2 and quantile.requires_grad


def test_quantiles_have_torchs_shapes():
    for shape in [(), (3,), (3, 4, 5)]:
        for q in [0.5, [0.25, 0.5]]:
            for dim in [None, *range(len(shape))]:
                for keepdim in [False, True]:
                    same(lambda lib: lib.arange(math.prod(shape), dtype=lib.float64).reshape(shape).quantile(  # noqa: B023
                        lib.tensor(q, dtype=lib.float64), dim, keepdim))  # noqa: B023


@pytest.mark.parametrize("n", [1, 33])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("to", ["int8", "uint8", "int16", "int32", "int64", "bool"])
def test_casts_of_what_an_integer_cannot_hold(to, dtype, n):
    """What torch gives on x86: the smallest number of int32 or int64, of which narrower dtypes keep the last bytes."""
    for value in [NAN, INF, -INF, 3e9, -3e9, 2.0**31, -2.0**31, 6e4, 300.7, -1.5]:
        same(lambda lib: lib.full((n, 2), value).to(getattr(lib, dtype))[:, 1].to(getattr(lib, to)).tolist())  # noqa: B023


@pytest.mark.parametrize("dtype", ["int64", "uint8", "int8"])
@pytest.mark.parametrize("call", [
    lambda F, x, b: F.linear(x, x, b), lambda F, x, b: F.tanhshrink(x), lambda F, x, b: F.bilinear(x, x, x.reshape(1, 2, 3).repeat(4, 2, 1)[:, :3]),
    lambda F, x, b: F.pairwise_distance(x, x.flip(0), eps=1.0), lambda F, x, b: F.margin_ranking_loss(x, x.flip(0), x, reduction="none"),
    lambda F, x, b: F.margin_ranking_loss(x.flip(0), x, x * 0 + 1, margin=1.0, reduction="none"),  # a margin is floating point: nothing wraps
    lambda F, x, b: F.margin_ranking_loss(x.flip(0), x, x * 0 + 1, margin=2.5, reduction="none")])
def test_layers_of_integers(call, dtype):
    same(lambda lib: call(lib.nn.functional, lib.tensor([[5, 1, 6], [4, 2, 9]], dtype=getattr(lib, dtype)), lib.tensor([200, 3]).to(getattr(lib, dtype))),
         rtol=4 * np.finfo(np.float32).eps)  # tanh ends in another bit on a GPU


@pytest.mark.parametrize("left, right", [((2, 1), (1, 1)), ((3, 2, 1), (3, 1, 1)), ((3, 2, 1), (2, 1)), ((2, 1), (2, 1)), ((1,), (1,))])
def test_bilinear_does_not_broadcast(left, right):
    same(lambda lib: lib.nn.functional.bilinear(lib.ones(left), lib.ones(right), lib.ones(2, 1, 1)))


@pytest.mark.parametrize("more", [(3,), (3, 2, 1), (3, 2, 1, True, False), ((2, 3), (), (0,), False, True, -2), (3, [], 1, True, True)])
def test_means_of_integers(more):
    """They are rounded toward 0."""
    values = np.arange(-30, 66).reshape(1, 2, 4, 12)
    same(lambda lib: lib.nn.functional.avg_pool2d(lib.tensor(values), *more))
    same(lambda lib: lib.nn.functional.avg_pool2d(lib.tensor(values), 2, out=lib.zeros(1, 2, 2, 6, dtype=lib.int64)))


def test_unfold_takes_bool():
    same(lambda lib: lib.nn.functional.unfold(lib.tensor(np.arange(50).reshape(1, 2, 5, 5) % 3 == 0), 2, padding=1, stride=2))


@pytest.mark.parametrize("shape", [(0, 3), (0, 3, 4), (2, 3, 0)])
def test_norms_of_nothing(shape):
    """An empty batch trains nothing: statistics stay, gradients of parameters are 0."""
    F = ampc.nn.functional
    mean, var, weight = ampc.ones(3), ampc.full((3,), 2.0), ampc.ones(3, requires_grad=True)
    x = ampc.zeros(shape, requires_grad=True)
    F.batch_norm(x, mean, var, weight, None, True).sum().backward()
    assert mean.tolist() == [1.0] * 3 and var.tolist() == [2.0] * 3 and weight.grad.tolist() == [0.0] * 3 and x.grad.shape == x.shape
    last = shape[-1]
    weight = ampc.ones(last, requires_grad=True)
    x = ampc.zeros(shape, requires_grad=True)
    F.layer_norm(x, [last], weight, weight).sum().backward()
    assert weight.grad.tolist() == [0.0] * last and x.grad.shape == x.shape
    if len(shape) > 2:
        assert F.instance_norm(ampc.zeros(shape), ampc.ones(3), ampc.ones(3)).shape == shape


def test_pad_of_nothing_has_a_gradient():
    for shape, sides in (((0, 3), (1, 2)), ((3, 3), (-1, -2, 1, 1))):
        x = ampc.ones(shape, requires_grad=True)
        ampc.nn.functional.pad(x, sides, value=1.0).sum().backward()
        assert x.grad.tolist() == ampc.zeros(shape).tolist()


def test_nearest_samples_give_the_grid_zeros():
    x, grid = ampc.randn(1, 2, 4, 4, requires_grad=True), (ampc.rand(1, 3, 3, 2) * 2 - 1).requires_grad_()
    y = ampc.nn.functional.grid_sample(x, grid, mode="nearest", align_corners=False)
    y.sum().backward()
    assert grid.grad.tolist() == ampc.zeros(1, 3, 3, 2).tolist() and float(x.grad.sum()) == 18


def test_a_score_without_dimensions():
    same(lambda lib: lib.nn.functional.multi_margin_loss(lib.tensor(-3.7), lib.tensor(0)))
    same(lambda lib: lib.nn.functional.multilabel_margin_loss(lib.tensor(5.1), lib.tensor(0)))


@pytest.mark.parametrize("call", [
    lambda F, x: F.adaptive_avg_pool2d(x[0, 0], (2, 2)), lambda F, x: F.adaptive_max_pool3d(x[0], (2, 2, 2)), lambda F, x: F.adaptive_max_pool3d(x[0], 2), lambda F, x: F.max_pool2d(x[:, :0], 1),
    lambda F, x: F.multilabel_margin_loss(x[0, 0], x[0, 0].long(), reduction="abc"), lambda F, x: F.avg_pool1d(x[0], 2, padding=-1),
    lambda F, x: F.triplet_margin_with_distance_loss(x, x, x, reduction="abc"), lambda F, x: F.softshrink(x, -0.5),
    lambda F, x: F.linear_cross_entropy(x[0, 0], x[0, 0, :, :3], x[0, 0, 0].long())])
def test_errors_have_torchs_types(call):
    same(lambda lib: call(lib.nn.functional, lib.ones(1, 1, 4, 4)))


def test_messages_that_say_what_to_do():
    with pytest.raises(RuntimeError, match=r"\[2, 9, 9, 3\] has 9 channels, and the weight \[8, 3, 3, 3\] with groups=1 takes 3.*must be permuted"):
        ampc.nn.functional.conv2d(ampc.ones(2, 9, 9, 3), ampc.ones(8, 3, 3, 3))
    with pytest.raises(RuntimeError, match="groups=2 divides not both"):
        ampc.nn.functional.conv2d(ampc.ones(2, 4, 9, 9), ampc.ones(7, 2, 3, 3), groups=2)
    for module in (ampc, ampc.nn, ampc.nn.functional, ampc.nn.init, ampc.nn.utils, ampc.nn.utils.rnn, ampc.optim, ampc.optim.lr_scheduler, ampc.linalg, ampc.special, ampc.amp, ampc.distributions, ampc.func, ampc.random):
        with pytest.raises(AttributeError, match="has no attribute 'qqqqq'; docs/compatibility/names.md"):
            module.qqqqq


@pytest.mark.parametrize(("module", "name", "near"), [
    (ampc, "scatter_reduc", "torch.scatter_reduce"), (ampc.nn, "Conv2D", "torch.nn.Conv2d"), (ampc.nn.functional, "CrossEntropyLoss", "torch.nn.CrossEntropyLoss"), (ampc.linalg, "choleski", "torch.linalg.cholesky"),
    (ampc.optim.lr_scheduler, "StepLr", "torch.optim.lr_scheduler.StepLR"), (ampc.nn.utils, "clip_grad_norms_", "torch.nn.utils.clip_grad_norm_"), (ampc.ops.aten, "adddmm", "addmm")])
def test_a_missing_name_proposes_the_nearest(module, name, near):
    with pytest.raises(AttributeError, match=f"; the nearest that is: {near}(;|$)"):
        getattr(module, name)
    assert not hasattr(module, name) and "nearest" not in str(pytest.raises(AttributeError, getattr, module, "_" + name).value)


@pytest.mark.parametrize("call", [
    lambda lib: lib.nn.BatchNorm1d(3, eps=-1.0)(lib.ones(4, 3)), lambda lib: lib.nn.LSTM(3, 5, bias=0), lambda lib: lib.nn.CircularPad1d(3)(lib.ones(2, 3, 4, 5)),
    lambda lib: lib.nn.CrossEntropyLoss(ignore_index=1)(lib.ones(2, 3), lib.ones(2, 3)), lambda lib: lib.optim.SGD([lib.ones(2)], lr=lib.ones(2)),
    lambda lib: lib.optim.Adam([("w", lib.ones(2)), lib.ones(2)]), lambda lib: lib.nn.GaussianNLLLoss()(lib.ones(4, 3), lib.zeros(4, 3), lib.ones(4, 2))])
def test_errors_of_modules_and_optimizers(call):
    same(call)


def test_a_variance_for_each_column():
    same(lambda lib: lib.nn.GaussianNLLLoss()(lib.tensor([[1.0, 2.0], [3.0, 4.0]]), lib.zeros(2, 2), lib.tensor([[1.0, 0.25]])))


@pytest.mark.parametrize("call", [
    lambda lib, F, x, w: F.linear_cross_entropy(x, w, lib.tensor([0, 2])), lambda lib, F, x, w: F.linear_cross_entropy(x[0], w, lib.tensor(1), reduction="none"),
    lambda lib, F, x, w: F.linear_cross_entropy(x, w.reshape(3, 1, 4), lib.tensor([[0], [2]]), linear_bias=w[:, :1] * 2, reduction="sum", ignore_index=2),
    lambda lib, F, x, w: F.upsample_nearest(x.reshape(1, 1, 2, 4), scale_factor=2), lambda lib, F, x, w: F.upsample_bilinear(x.reshape(1, 1, 2, 4), (3, 5))])
def test_functions_made_of_others(call):
    torch = pytest.importorskip("torch")
    x, w = np.arange(8.0).reshape(2, 4) / 7, np.arange(12.0).reshape(3, 4) / 5
    theirs, ours = (np.array(call(lib, lib.nn.functional, lib.tensor(x), lib.tensor(w)).tolist()) for lib in (torch, ampc))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize("value", [0.5, -0.25, float("nan"), 0.0, 2, False])
def test_truth_values_are_filled_with_the_truth_of_a_number(value):
    same(lambda lib: lib.tensor([False, True, False]).masked_fill(lib.tensor([True, False, False]), value))
    same(lambda lib: lib.tensor([False, True, False]).masked_fill_(lib.tensor([True, True, False]), value))
    same(lambda lib: lib.tensor([[False], [True]]).index_fill(0, lib.tensor([0]), value))


def test_cross_looks_at_its_dimension_first():
    for other in ([[1.0, 1.0]], [[1.0, 1.0, 2.0]]):
        with pytest.raises(IndexError, match="dimension 3 is out of range"):
            ampc.cross(ampc.ones(1, 3), ampc.tensor(other), dim=3)


def test_the_mean_of_multilabel_soft_margin_is_over_the_scores_classes():
    same(lambda lib: lib.nn.functional.multilabel_soft_margin_loss(lib.tensor([1.0]), lib.tensor([1.0, 0.0])))
    same(lambda lib: lib.nn.functional.multilabel_soft_margin_loss(lib.tensor([1.0, 2.0]), lib.tensor([[1.0]])))
    same(lambda lib: lib.nn.functional.multilabel_soft_margin_loss(lib.tensor([[1.0, -2.0]]), lib.tensor([[1.0, 0.0]]), lib.tensor([1.0, 2.0])))
    with pytest.raises(IndexError, match="dimension of classes"):
        ampc.nn.functional.multilabel_soft_margin_loss(ampc.tensor(1.0), ampc.tensor(1.0))


def test_one_value_in_a_group_has_no_variance():
    import torch

    for lib in (torch, ampc):
        with pytest.raises(ValueError, match="more than 1 value"):
            lib.nn.functional.group_norm(lib.ones(1, 2), 2)
    same(lambda lib: lib.nn.functional.group_norm(lib.ones(2, 2), 2))


def test_matrix_exp_of_a_matrix_that_is_not_finite():
    import torch

    x = [[[1.0, 2.0], [3.0, 4.0]], [[float("inf"), 1.0], [0.0, 1.0]], [[float("nan"), 1.0], [0.0, 1.0]]]
    theirs, ours = torch.linalg.matrix_exp(torch.tensor(x)), ampc.linalg.matrix_exp(ampc.tensor(x))
    np.testing.assert_allclose(ours[0].numpy(force=True), theirs[0].numpy(), rtol=1e-5)
    assert not ours[1].isfinite().all() and ours[2].isnan().any()


def test_ldexp_of_powers_beyond_the_dtype():
    """2**n overflows where x * 2**n does not; and integers do not make 16 bits float32."""
    x = ampc.tensor([2.0**-100, -(2.0**-120)])
    assert ampc.ldexp(x, ampc.tensor([150, 140])).tolist() == [2.0**50, -(2.0**20)]
    half = ampc.ldexp(ampc.tensor([2.0**-10]).half(), ampc.tensor([20]))
    assert half.dtype == ampc.float16 and half.tolist() == [1024.0]


def test_steps_and_truth_in_place_have_no_slope():
    """What is written does not depend on the old value, so nothing of the old history is left."""
    for write in (lambda x: x.heaviside_(ampc.ones(3)), lambda x: x.eq_(2), lambda x: x.logical_not_(), lambda x: x.greater_(1)):
        w = ampc.ones(3, requires_grad=True)
        x = w * 2
        write(x)
        (x * w).sum().backward()
        assert w.grad.tolist() == x.tolist()


def test_negative_repetitions():
    for f in (ampc.tile, ampc.Tensor.repeat):
        with pytest.raises(RuntimeError, match="0 or more"):
            f(ampc.ones(2), (-1,))


def test_shapes_that_do_not_fit_are_told():
    x = ampc.ones(2, 2)
    for wrong in (ampc.ones(()), ampc.ones(2), ampc.ones(1, 3)):
        with pytest.raises(RuntimeError, match="source must have x's shape but in dimension 0"):
            x.index_reduce(0, ampc.tensor([1]), wrong, "amax")
    with pytest.raises(RuntimeError, match="the same dtype"):
        x.index_reduce(0, ampc.tensor([1]), ampc.ones(1, 2, dtype=ampc.int64), "amax")
    with pytest.raises(ValueError, match="does not fit"):
        ampc.nn.functional.gaussian_nll_loss(x, x, ampc.tensor(1.0))
    assert ampc.nn.functional.gaussian_nll_loss(x, x, 1.0).item() == 0


@pytest.mark.parametrize("call", [
    "x.scatter(0, i, x, reduce='mean')", "x.scatter_reduce(0, i, x, 'add')", "x.index_reduce(0, i, x, 'sum')", "x.quantile(0.5, interpolation='up')",
    "lib.searchsorted(x, 1.0, side='up')", "lib.div(x, x, rounding_mode='up')", "lib.nn.functional.gelu(x, approximate='up')",
    "lib.searchsorted(x, 1.0, side='left', right=True)", "lib.cdist(x[None], x[None], compute_mode='up')",
    "lib.einsum('i1,j->i', x, x)", "lib.block_diag([x])", "lib.cartesian_prod(x, i)", "lib.combinations(x[None])", "lib.fill(x, x)", "x.multinomial(3)", "x[0].repeat_interleave(2, 0)", "lib.repeat_interleave(i[1])",
    "x[0].unique(dim=0)"])
def test_words_and_shapes_that_do_not_fit(call):
    same(lambda lib: eval(call, {"lib": lib, "x": lib.tensor([1.0, 2.0]), "i": lib.tensor([0, 1])}))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("how", ["sum", "mean", "prod"])
def test_many_half_values_scattered_into_one(dtype, how):
    """Their number is beyond what the dtype counts."""
    same(lambda lib: lib.zeros(1, dtype=getattr(lib, dtype)).scatter_reduce(
        0, lib.zeros(3000, dtype=lib.int64), lib.ones(3000, dtype=getattr(lib, dtype)), how, include_self=False))


def test_numbers_are_looked_up_as_they_are():
    """Not rounded to the default dtype first."""
    same(lambda lib: lib.isin(lib.tensor([1.1, 2.0], dtype=lib.float64), 1.1))
    same(lambda lib: lib.isin(lib.tensor([1, 2]), 1.5, invert=True))
    same(lambda lib: lib.bucketize(1.1, lib.tensor([1.1, 2.0], dtype=lib.float64)))


def test_triangular_solves_copy_has_the_batch_of_the_result():
    same(lambda lib: lib.triangular_solve(lib.ones(2, 3, 1), lib.eye(3)).cloned_coefficient)


def test_lists_of_tensors_one_by_one():
    x = ampc.tensor([1.0, 2.0])
    assert ampc.block_diag().shape == (1, 0) and ampc.cartesian_prod(x) is x
    assert str(inspect.signature(ampc.block_diag)) == "(*tensors)"
    with pytest.raises(TypeError, match="must hold Tensors, got float at position 1"):
        ampc.cartesian_prod(x, 1.0)
    out = ampc.empty(0)
    assert ampc.block_diag(x, x, out=out) is out and out.shape == (2, 4)


def test_nonzero_into_a_tensor_of_the_results_shape():
    x, room = ampc.tensor([[7.0, 0.0], [4.0, 2.0]]), ampc.zeros(3, 4, dtype=ampc.int64)
    assert ampc.nonzero(x, out=room[:, ::2]).tolist() == [[0, 0], [1, 0], [1, 1]] and room[:, 1::2].tolist() == [[0, 0]] * 3
    assert ampc.nonzero(x, out=ampc.empty(0, dtype=ampc.int64)).shape == (3, 2)
    with pytest.warns(UserWarning, match="resized"):
        assert ampc.nonzero(x, out=room).shape == (3, 2)


@pytest.mark.parametrize("loss", ["multi_margin_loss", "multilabel_margin_loss"])
def test_a_margin_that_is_just_kept_has_no_slope(torch, loss):
    """A score exactly at the margin: torch's kernels of these two, unlike its other margins, count it as kept."""
    found = []
    for lib in (torch, ampc):
        x = lib.tensor([[0.25, -0.75, 0.25]], requires_grad=True)
        getattr(lib.nn.functional, loss)(x, lib.tensor([0]) if loss == "multi_margin_loss" else lib.tensor([[0, -1, 0]])).backward()
        found.append(x.grad.tolist())
    assert found[0] == found[1]
    np.testing.assert_allclose(found[1], [[-1 / 3, 0, 1 / 3]], rtol=1e-7)
