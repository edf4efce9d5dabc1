"""Numbers at the ends of their dtypes, beside torch: integers beyond 2^53, NumPy's scalars, negative numbers for unsigned dtypes, infinite
settings of functions; and how tensors are printed, copied and loaded."""

import copy
import math
import pickle
import traceback

import numpy as np
import pytest
from test_corners import NAN, same
from where import FEWER, ON_GPU

import ampc

INF = math.inf


@pytest.mark.parametrize("bounds", [(2**62, 2**62 + 5), (-2**63, -2**63 + 3), (2**63 - 4, 2**63 - 1), (2**60, 2**60 + 2000, 500), (2**60 + 2000, 2**60, -500),
                                    (2**62, 2**62), (0, 1, 2**62), (2**62 + 5, 2**62), (3, 7, 0), (0, 10, -3), (5,), (np.int64(2**62), np.int64(2**62 + 3))])
def test_ranges_of_large_integers(bounds):
    same(lambda lib: lib.arange(*bounds))


def test_ranges_over_all_integers():
    """torch's count wraps there."""
    assert ampc.arange(-2**63, 2**63 - 1, 2**62).tolist() == [-2**63, -2**62, 0, 2**62]


@pytest.mark.parametrize("low, high", [(2**62, 2**62 + 1), (2**63 - 2, 2**63 - 1), (-2**63, -2**63 + 1), (5, 5), (-1, -2)])
def test_large_integers_are_drawn(low, high):
    same(lambda lib: lib.randint(low, high, (3,)))
    same(lambda lib: lib.zeros(3, dtype=lib.int64).random_(low, high))
    same(lambda lib: lib.randint_like(lib.zeros(3, dtype=lib.int64), low, high))


@pytest.mark.parametrize("dtype, low, high", [("uint8", 0, 257), ("uint8", -1, 1), ("int8", 0, 129), ("int8", -129, 0), ("bool", 0, 3), ("bool", -1, 1), ("float16", 0, 70000),
                                              ("int32", 2**31 - 1, 2**31), ("int32", 2**31 - 1, 2**31 + 1)])
def test_draws_stay_in_their_dtype(dtype, low, high):
    """An error, or as many numbers as asked for."""
    same(lambda lib: lib.zeros(3, dtype=getattr(lib, dtype)).random_(low, high).numel())
    same(lambda lib: lib.randint(low, high, (3,), dtype=getattr(lib, dtype)).numel())


@pytest.mark.parametrize("dtype, most", [("bool", 1), ("uint8", 255), ("int8", 127), ("int16", 2**15 - 1), ("int32", 2**31 - 1), ("int64", 2**63 - 1), ("float16", 2**11),
                                         ("bfloat16", 2**8), ("float32", 2**24), ("float64", 2**53)])
def test_draws_reach_over_the_whole_dtype(dtype, most):
    for lib in (pytest.importorskip("torch"), ampc):
        drawn = lib.empty(20000, dtype=getattr(lib, dtype)).random_().tolist()
        assert min(drawn) >= 0 and 0.99 * most < max(drawn) <= most
    same(lambda lib: lib.zeros(3).random_(0))
    same(lambda lib: lib.zeros(3).random_(1))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_ldexp_is_exact(dtype):
    """Whatever the power: 0 and infinities stay, and a number is rounded once."""
    x = [0.0, -0.0, 1.0, -3.0, 1.7, INF, math.nan, 2.0**-14, 2.0**10]
    n = [0, 1, -1, 9, -30, 140, -140, 1000, -1000, 1030, 2000, -2000, 2**31 - 1, -2**31]
    x, n = np.repeat(x, len(n)).tolist(), n * len(x)  # torch's does not broadcast x
    same(lambda lib: lib.ldexp(lib.tensor(x, dtype=getattr(lib, dtype)), lib.tensor(n)))
    ends = ampc.ldexp(ampc.tensor([0.0, 1.0, 1.0, INF], dtype=getattr(ampc, dtype)), ampc.tensor([2**62, 2**62, -2**63, -2**63]))
    assert ends.tolist() == [0, INF, 0, INF]  # torch cuts n to 32 bits
    if dtype == "float64":
        x = np.array([5e-324, 1.7e308, 2.0**-500 * 1.3, 1.1e300, 3e-310])
        n = np.array([2090, -2080, -560, -2060, 1100])
        assert ampc.ldexp(ampc.tensor(x), ampc.tensor(n)).tolist() == np.ldexp(x, n).tolist()


def test_ldexp_is_differentiated():
    x = ampc.tensor([0.0, 2.0, 1.0], requires_grad=True)
    ampc.ldexp(x, ampc.tensor([1000, 3, -1])).sum().backward()
    assert x.grad.tolist() == [INF, 8.0, 0.5]  # 2^n; torch's is made with integers: 0, 8, 0


@pytest.mark.parametrize("number", [np.int64(1), np.int32(1), np.uint8(1), np.bool_(True), np.float16(1), np.float32(1), np.float64(1)], ids=lambda n: type(n).__name__)
def test_numpy_scalars(number):
    for call in (lambda lib: lib.full((1,), number), lambda lib: lib.tensor(number), lambda lib: lib.tensor([number]), lambda lib: lib.tensor([True, number]),
                 lambda lib: lib.tensor([[2.5], [number]]), lambda lib: lib.as_tensor([number]), lambda lib: lib.full_like(lib.zeros(1), number),
                 lambda lib: lib.zeros(1).new_tensor([number]), lambda lib: lib.zeros(1, dtype=lib.int64) + number, lambda lib: lib.tensor([number, lib.tensor(True)])):
        same(call)
    if not isinstance(number, np.bool_):  # torch refuses these
        same(lambda lib: lib.tensor([number, 2]))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64"])
@pytest.mark.parametrize("number", [-2.7, -0.5, -2, -255, -256, 255.5, 127.5, -128.5, math.nan, INF])
def test_numbers_that_a_dtype_cannot_hold(dtype, number):
    def into(lib, write):
        x = lib.zeros(2, dtype=getattr(lib, dtype))
        write(x)
        return x

    for write in (lambda x: x.fill_(number), lambda x: x.__setitem__(0, number), lambda x: x.__setitem__(x == 0, number), lambda x: x.masked_fill_(x == 0, number)):
        same(lambda lib, write=write: into(lib, write))
    same(lambda lib: lib.full((1,), number, dtype=getattr(lib, dtype)))


@pytest.mark.parametrize("number", [-1, -3, 7, 9, 257, 300, 2**31, 256, 2**40 + 3, -2**63])
@pytest.mark.parametrize("name", ["floor_divide", "remainder", "maximum", "minimum", "gcd", "lcm", "bitwise_left_shift", "bitwise_right_shift", "bitwise_and", "add", "mul"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32"])
def test_a_number_wraps_into_a_small_dtype(dtype, name, number):
    """What divides by a number that wraps to 0 raises."""
    def tensors(lib, **where):
        return lib.tensor([7, 100, 0, 12], dtype=getattr(lib, dtype)), lib.tensor(number, **where)
    same(lambda lib: getattr(lib, name)(*tensors(lib, device="cpu")))
    if not ON_GPU or number % 2**8 or name not in ("floor_divide", "remainder"):  # a GPU's own divisor is not looked at
        same(lambda lib: getattr(lib, name)(*tensors(lib)))
    if name.endswith("shift"):
        same(lambda lib: getattr(lib, name)(number % 1000 - 500, tensors(lib)[0] % 5))


def test_bounds_below_an_unsigned_dtype():
    x = ampc.tensor([0, 5, 200], dtype=ampc.uint8)
    assert x.clamp(-1).tolist() == x.clamp(-1, 255).tolist() == x.clamp(-300, 300).tolist() == [0, 5, 200]  # torch: 255 of -1
    with pytest.raises(RuntimeError, match="no numbers up to the `max` of -1"):
        x.clamp(max=-1)
    with pytest.raises(RuntimeError, match="no numbers up to"):
        x.clamp_(-3, -1)


def with_slope(call):
    """The values of ``call`` at a few numbers, and its derivatives there."""
    def run(lib):
        x = lib.tensor([-1.0, -1e-3, -0.0, 0.0, 1.0, 30.0], requires_grad=True)
        y = call(lib.nn.functional, x, lib.ones(6))
        slope, = lib.autograd.grad(y.sum(), x)
        return lib.stack([y.detach().expand(6), slope])
    return run


@pytest.mark.parametrize("call", [lambda F, x, t: F.elu(x, INF), lambda F, x, t: F.elu(x, -INF), lambda F, x, t: F.huber_loss(x, t, delta=INF), lambda F, x, t: F.huber_loss(x, t, delta=1e38),
                                  lambda F, x, t: F.huber_loss(x, t, reduction="none"), lambda F, x, t: F.smooth_l1_loss(x, t, beta=INF), lambda F, x, t: F.smooth_l1_loss(x, t, reduction="none"),
                                  lambda F, x, t: F.leaky_relu(x, INF), lambda F, x, t: F.hardtanh(x, -INF, INF), lambda F, x, t: F.softplus(x, INF), lambda F, x, t: F.hardshrink(x, INF),
                                  lambda F, x, t: F.threshold(x, 0, INF)])
def test_infinite_settings(call):
    same(with_slope(call))


def test_losses_of_shapes_that_do_not_fit():
    same(lambda lib: lib.nn.functional.huber_loss(lib.ones(3), lib.ones(2), delta=INF))


@pytest.mark.parametrize("loss", ["huber_loss", "smooth_l1_loss"])
def test_an_infinite_difference_has_a_finite_slope(loss):
    def slope(lib):
        x = lib.tensor([INF, -INF, 0.5], requires_grad=True)
        getattr(lib.nn.functional, loss)(x, lib.zeros(3), reduction="sum").backward()
        return x.grad
    same(slope)


PRINTED = [lambda lib: lib.empty(0, dtype=lib.int64), lambda lib: lib.empty(0, dtype=lib.bool), lambda lib: lib.empty(2, 0, dtype=lib.int64), lambda lib: lib.empty(0),
           lambda lib: lib.tensor([65504.0, 0.1]), lambda lib: lib.arange(2000.0).reshape(20, 100), lambda lib: lib.tensor([1e8]), lambda lib: lib.tensor([1.1e8]),
           lambda lib: lib.tensor([1000.0, 1.0]), lambda lib: lib.tensor([1001.0, 1.0]), lambda lib: lib.tensor([1e-4, 1e-3]), lambda lib: lib.tensor([0.0, 1e9, INF]),
           lambda lib: lib.tensor([math.nan, -INF, 0.0]), lambda lib: lib.cat([lib.ones(600) * 0.5, lib.ones(600) * 1e9, lib.ones(3)]), lambda lib: lib.zeros(40),
           lambda lib: lib.zeros(2, 30), lambda lib: lib.zeros(12, dtype=lib.float64), lambda lib: lib.zeros(16, dtype=lib.float64, requires_grad=True),
           lambda lib: lib.nn.Parameter(lib.zeros(18))]


@pytest.mark.skipif(ON_GPU, reason="torch's tensors are on the CPU")
@pytest.mark.parametrize("make", PRINTED)
@pytest.mark.parametrize("options", [{}, {"sci_mode": True}, {"sci_mode": False}, {"linewidth": 30}, {"precision": 2}])
def test_tensors_are_printed_as_torch_prints_them(make, options):
    torch = pytest.importorskip("torch")
    shown = []
    for lib in (torch, ampc):
        lib.set_printoptions(**options)
        try:
            shown.append(repr(make(lib)).replace("ampc.", "torch."))
        finally:
            lib.set_printoptions(profile="default")
    assert shown[1] == shown[0]


def test_a_profile_sets_the_width_again():
    ampc.set_printoptions(linewidth=20)
    ampc.set_printoptions(profile="default")
    assert "\n" not in repr(ampc.zeros(12))


def test_old_checkpoints_of_batch_norm():
    """Those from before torch counted batches have no num_batches_tracked, and no version."""
    names = ("weight", "bias", "running_mean", "running_var")
    for lib in (pytest.importorskip("torch"), ampc):
        model = lib.nn.Sequential(lib.nn.BatchNorm1d(2))
        model[0].num_batches_tracked.fill_(7)
        old = {f"0.{n}": lib.ones(2) for n in names}
        assert repr(model.load_state_dict(old)) == "<All keys matched successfully>" and model[0].num_batches_tracked == 7
        state = model.state_dict()
        assert state._metadata == {"": {"version": 1}, "0": {"version": 2}}
        del state["0.num_batches_tracked"]  # of a new version: an error
        with pytest.raises(RuntimeError, match="num_batches_tracked"):
            model.load_state_dict(state)
        with pytest.raises(RuntimeError, match="running_mean"):
            model.load_state_dict({k: v for k, v in old.items() if "mean" not in k})


def test_modules_nested_too_deeply():
    """The traceback of Python, and nothing more."""
    model = ampc.nn.Identity()
    for _ in range(400):
        model = ampc.nn.Sequential(model)
    with pytest.raises(RecursionError) as caught:
        model(ampc.ones(1))
    assert caught.value.__context__ is None and len(traceback.format_tb(caught.value.__traceback__)) < 3000


def test_an_error_is_not_hidden_by_a_module_that_cannot_be_printed():
    class Part(ampc.nn.Module):
        def extra_repr(self):
            raise KeyError("unset")

        def forward(self, x):
            raise ValueError("the first error")

    with pytest.raises(ValueError, match="the first error"):
        ampc.nn.Sequential(Part())(ampc.ones(1))


@pytest.mark.parametrize("make", [lambda lib: lib.arange(6.0).reshape(2, 3).T, lambda lib: lib.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=lib.channels_last),
                                  lambda lib: lib.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1), lambda lib: lib.zeros(3, 2), lambda lib: lib.tensor(3.0),
                                  lambda lib: lib.nn.Parameter(lib.arange(6.0).reshape(2, 3).T)])
def test_copies_keep_strides(make):
    torch = pytest.importorskip("torch")
    want, mine = make(torch).stride(), make(ampc)
    for twin in (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine)), copy.copy(mine)):
        assert twin.stride() == want and twin.tolist() == mine.tolist() and type(twin) is type(mine)
        assert twin.is_leaf and twin.requires_grad == mine.requires_grad and twin._base is None


def test_copies_of_parts():
    """A deep copy has all of the memory, as in torch; what is pickled lies without gaps."""
    def copies(lib):
        parts = [lib.arange(24.0).reshape(4, 6)[:, ::2], lib.ones(1, 3).expand(2, 3), lib.arange(4.0)[2:]]
        return [(c.stride(), c.storage_offset(), c.untyped_storage().nbytes(), c.tolist()) for c in map(copy.deepcopy, parts)]

    assert copies(ampc) == copies(pytest.importorskip("torch"))
    part = pickle.loads(pickle.dumps(ampc.arange(24.0).reshape(4, 6)[:, ::2]))
    assert part.stride() == (3, 1) and part[1].tolist() == [6, 8, 10]


@pytest.mark.parametrize("make", [
    lambda lib, x: x * 2**63, lambda lib, x: 2**63 / x, lambda lib, x: x - (2**64 - 1), lambda lib, x: x < 2**63, lambda lib, x: lib.mul(x, 2**63), lambda lib, x: x.clamp(2**63),
    lambda lib, x: x.masked_fill(x > 0, 2**63), lambda lib, x: x.fill_(2**63), lambda lib, x: lib.add(x, 1, alpha=2**63), lambda lib, x: x * 2**64, lambda lib, x: x * -(2**63 + 1)])
def test_integers_without_room_for_a_sign(make):
    """Beside floating point they are floats, as in torch."""
    same(lambda lib: make(lib, lib.ones(2)))


def test_large_integers_are_assigned_to_floating_point():
    x = ampc.zeros(2)
    x[0] = 2**63
    assert x.tolist() == [2.0**63, 0.0]


@pytest.mark.parametrize("threshold, value", [(-2.7, 7), (2.7, 7.9), (2, -2.7), (2, -1), (2, 2.9), (300.0, 7), (254.5, 7)])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64"])
def test_thresholds_of_integers(dtype, threshold, value):
    """Their whole part, which the dtype must hold."""
    if dtype != "int8":
        same(lambda lib: lib.nn.functional.threshold(lib.tensor([-4, -2, -1, 0, 2, 3, 254, 255]).to(getattr(lib, dtype)), threshold, value))
    elif abs(threshold) < 128:
        same(lambda lib: lib.nn.functional.threshold(lib.tensor([-4, -2, 0, 3], dtype=lib.int8), threshold, value))


@pytest.mark.parametrize("number", [-4, -100, 100])
@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "maximum", "minimum", "gcd", "bitwise_right_shift"])
@pytest.mark.parametrize("small, other", [("int8", "uint8"), ("int16", "int8"), ("int32", "uint8"), ("uint8", "int8")])
def test_a_0d_tensor_wraps_into_a_small_dtype(small, other, name, number):
    def call(lib):
        return getattr(lib, name)(lib.tensor(number, dtype=lib.int64).to(getattr(lib, small)), lib.tensor([4, 3, 7], dtype=getattr(lib, other)))
    same(call)


def test_nan_is_not_lost_in_a_matrix():
    """By elimination with an infinite pivot it was."""
    A = ampc.tensor([[INF, 1.0], [math.nan, 1.0]])
    for result in (ampc.linalg.inv(A), ampc.linalg.solve(A, ampc.ones(2)), ampc.linalg.det(A), *ampc.linalg.slogdet(A)):
        assert result.isnan().all()


def test_derivatives_of_sinc_at_0():
    x = ampc.tensor([0.0, 1e-4, 0.3], dtype=ampc.float64, requires_grad=True)
    first, = ampc.autograd.grad(ampc.sinc(x).sum(), x, create_graph=True)
    second, = ampc.autograd.grad(first.sum(), x)
    assert first[0] == 0 and second.tolist() == pytest.approx([-math.pi**2 / 3, -math.pi**2 / 3, -2.458485282], rel=1e-6)


def test_the_exponential_of_a_matrix_of_one_number():
    assert ampc.linalg.matrix_exp(ampc.tensor([[-INF]])).item() == 0 and ampc.linalg.matrix_exp(ampc.tensor([[[1.0]], [[INF]]])).flatten().tolist() == pytest.approx([math.e, INF])


@pytest.mark.parametrize("bounds", [(2.0, 2.0), (1.0, 2.0), (2.0, 1.0), (1.5, 1.5), (None, 1.5), (1.5, None), (NAN, 3.0), (1.0, NAN)])
def test_of_bounds_that_are_equal_or_crossed_the_upper_one_has_the_gradient(bounds):
    def gradients(lib):
        x, *ends = (None if v is None else lib.tensor(v, requires_grad=True) for v in ([1.0, 1.5, 3.0], *([v] * 3 if v is not None else None for v in bounds)))
        lib.clamp(x, *ends).sum().backward()
        return lib.cat([v.grad for v in (x, *ends) if v is not None])

    same(gradients)


def test_one_sample_has_no_statistics_and_the_error_says_what_to_do():
    import torch

    for lib in (torch, ampc):
        for layer, shape, says in ((lib.nn.BatchNorm1d(4), (1, 4), r"drop_last=True.*eval\(\)"), (lib.nn.BatchNorm2d(4), (1, 4, 1, 1), "2 samples"),
                                   (lib.nn.InstanceNorm1d(4), (1, 4, 1), "leave it out")):
            with pytest.raises(ValueError, match=says if lib is ampc else "more than 1"):
                layer(lib.ones(shape))


def test_bounds_of_another_integer_dtype_wrap_as_their_tensor_does():
    same(lambda lib: lib.cat([lib.clamp(lib.tensor(256), max=lib.tensor([1], dtype=lib.int8)), lib.clamp(lib.tensor([1, 200], dtype=lib.uint8), min=lib.tensor(300))]))


def test_a_variance_below_eps_has_the_gradient_of_eps():
    def gradient(lib):
        var = lib.tensor([1e-8, 1e-6, 0.5], requires_grad=True)
        lib.nn.functional.gaussian_nll_loss(lib.ones(3), lib.zeros(3), var).backward()
        return var.grad

    same(gradient)


def test_the_gradient_of_a_product_overflows_only_where_it_is_infinite():
    x = ampc.tensor([1e30, 2.0], requires_grad=True)
    (x.prod() * 1e5).backward()
    assert x.grad.tolist() == pytest.approx([2e5, 1e35])


@pytest.mark.parametrize("smoothing", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("graph", [False, True])
def test_the_mean_of_losses_without_weight_is_nan(torch, smoothing, graph):
    """As in torch: the classes that the samples name weigh 0, others do not, so that smoothing leaves a loss."""
    found = []
    for lib in (torch, ampc):
        x = lib.tensor([[0.5, 1.0, -1.0], [2.0, 0.0, 1.0]], requires_grad=True)
        loss = lib.nn.functional.cross_entropy(x, lib.tensor([1, 1]), lib.tensor([1.0, 0.0, 2.0]), label_smoothing=smoothing)
        found.append([loss.item(), lib.autograd.grad(loss, x, create_graph=graph)[0].tolist()])
    assert repr(found[0]) == repr(found[1]) == repr([math.nan, [[math.nan] * 3] * 2])


def test_the_slope_of_many_16_bit_losses_that_differentiates_again():
    """Their number is beyond float16, and so is the product of a gradient with one of the loss."""
    n = 70000
    x = (ampc.arange(2.0 * n).reshape(n, 2) % 7 / 4).half().requires_grad_()
    loss = ampc.nn.functional.cross_entropy(x, ampc.arange(n) % 2)
    plain, again = (ampc.autograd.grad(loss, x, ampc.tensor(4096.0).half(), create_graph=graph, retain_graph=True)[0] for graph in (False, True))
    assert plain.any() and (plain - again).abs().max().item() <= ampc.finfo(ampc.float16).eps * plain.abs().max().item()
    leaf = ampc.tensor([[3.0, -3.0]]).half().requires_grad_()
    slope, = ampc.autograd.grad(ampc.nn.functional.cross_entropy(leaf, ampc.tensor([0])), leaf, ampc.tensor(1024.0).half(), create_graph=True)
    got, = ampc.autograd.grad(slope, leaf, ampc.tensor([[1024.0, 0.0]]).half())
    want = 1024 * 1024 * math.exp(-6) / (1 + math.exp(-6)) ** 2
    assert got.tolist()[0] == pytest.approx([want, -want], rel=4 * ampc.finfo(ampc.float16).eps)


@pytest.mark.parametrize(("dtype", "value"), [("uint8", 300), ("int8", -129), ("int32", 2**40), ("float16", 65520.0), ("bfloat16", 3.4e38), ("float16", 10**6),
                                              ("int64", math.inf), ("uint8", -1), ("float16", math.inf), ("float16", math.nan), ("bool", 7), ("int16", -(2**15))])
def test_a_masked_value_that_the_dtype_cannot_hold(torch, dtype, value):
    """A value on the CPU is looked at, as torch does. One on a GPU is converted, because nobody waits for it."""
    def calls(lib, value):
        x, mask = lib.zeros(2, dtype=getattr(lib, dtype)), lib.tensor([True, False])

        def assigned():
            y = x.clone()
            y[mask] = value
            return y

        return [lambda: x.masked_fill(mask, value), lambda: x.clone().masked_fill_(mask, value), lambda: x.index_fill(0, lib.tensor([0]), value), assigned]

    wide = "float64" if isinstance(value, float) else "int64"
    here = ampc.tensor(value, dtype=getattr(ampc, wide), device="cpu")
    for mine, there, theirs in zip(calls(ampc, here), calls(ampc, here.to(ampc.zeros(0).device)), calls(torch, torch.tensor(value, dtype=getattr(torch, wide)))):
        try:
            want = theirs()
        except RuntimeError:
            with pytest.raises(RuntimeError, match=f"{dtype} cannot hold"):
                mine()
            if ampc.zeros(0).is_cuda and dtype != "int64":  # of an infinity no whole number is meant
                assert there()[0].item() == torch.tensor(value, dtype=getattr(torch, wide)).to(getattr(torch, dtype)).item()
        else:
            for got in (mine(), there()):
                assert np.array_equal(got.numpy(force=True), ampc.tensor(want.tolist(), dtype=getattr(ampc, dtype)).numpy(force=True), equal_nan=True)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "nll_loss", "cross_entropy"])
def test_a_loss_over_many_numbers_is_exact_to_a_few_units(name):
    """In float64: numbers are summed in blocks. One by one, nll_loss would be some 60 units off."""
    x = np.random.default_rng(0).random((500_000 // FEWER, 2))
    rows, classes = ampc.tensor(x), ampc.zeros(len(x), dtype=ampc.int64)
    logs = x - np.log(np.exp(x).sum(1, keepdims=True))
    values = {"mse_loss": (x * x).ravel(), "l1_loss": x.ravel(), "nll_loss": -x[:, 0], "cross_entropy": -logs[:, 0]}[name]
    other = ampc.zeros_like(rows) if name in ("mse_loss", "l1_loss") else classes
    got = getattr(ampc.nn.functional, name)(rows, other).item()
    assert got == pytest.approx(math.fsum(values.tolist()) / len(values), rel=8 * np.finfo(np.float64).eps, abs=0)


@pytest.mark.parametrize("shape", [(3, 2), (2, 1, 2), (3, 2, 4)])
def test_elements_that_stand_at_several_places_are_filled_once(torch, shape):
    seen = []
    for lib in (ampc, torch):
        x = lib.ones(3, 2, 1) if shape == (3, 2, 4) else lib.ones(1, 2)
        wide = x.expand(shape)
        assert wide.fill_(7.0) is wide
        seen.append((x.tolist(), wide.tolist(), wide.zero_().tolist(), x._version))
    assert seen[0] == seen[1]


def test_a_filled_expanded_tensor_has_a_gradient_of_zeros():
    x = ampc.ones(2, 1, requires_grad=True)
    y = x * 2
    y.expand(2, 3)[0].fill_(3.0)
    (y * y).sum().backward()
    assert y.tolist() == [[3.0], [2.0]] and x.grad.tolist() == [[0.0], [8.0]]
    with pytest.raises(RuntimeError, match="leaf"):
        x.expand(2, 3).fill_(1.0)


REFUSED = {
    "a bool factor": lambda lib, f, i: lib.add(f, f, alpha=True), "of integers": lambda lib, f, i: lib.sub(i, i, alpha=True),
    "from the other side": lambda lib, f, i: lib.rsub(i, i, alpha=True), "in place": lambda lib, f, i: i.add_(i, alpha=True),
    "a quotient of integers": lambda lib, f, i: lib.addcdiv(f, i, i), "in place of it": lambda lib, f, i: f.addcdiv_(i, i),
    "a mean of integers": lambda lib, f, i: lib.nanmean(i),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_of_dtypes(torch, name):
    raised = []
    for lib in (ampc, torch):
        with pytest.raises(RuntimeError) as error:
            REFUSED[name](lib, lib.ones(2), lib.ones(2, dtype=lib.int64))
        raised.append(error.type)
    assert issubclass(*raised)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "float32", "float64"])
def test_a_histogram_has_whole_numbers_on_its_edges(dtype):
    """Of integers, too, which torch counts on a GPU alone: so a mixture of experts counts its tokens."""
    for bins, high in ((2, 98), (8, 8), (3, 103), (37, 111)):
        x = np.arange(high + 1)
        got = ampc.histc(ampc.tensor(x, dtype=getattr(ampc, dtype)), bins, 0, high)
        want = np.bincount(np.minimum(x * bins // high, bins - 1), minlength=bins)
        assert got.tolist() == want.tolist() and got.dtype == getattr(ampc, dtype)
    with pytest.raises(NotImplementedError, match="histc: needs numbers"):
        ampc.histc(ampc.ones(2, dtype=ampc.bool))


def test_a_bool_factor_of_bools_and_a_quotient_with_a_fraction():
    yes, two = ampc.tensor([True]), ampc.tensor([2])
    assert ampc.add(yes, yes, alpha=True).tolist() == [True]
    assert ampc.addcdiv(ampc.ones(1), two, ampc.tensor([4.0])).tolist() == [1.5]


def test_a_sort_without_a_word_about_its_stability():
    assert ampc.sort(ampc.tensor([2.0, 1.0]), stable=None).indices.tolist() == ampc.tensor([2.0, 1.0]).sort(stable=None).indices.tolist() == [1, 0]


@pytest.mark.parametrize("dtype, pairs", [("int8", [(127, -128), (-128, 127), (5, 7)]), ("uint8", [(255, 1), (1, 255), (0, 2)]),
                                          ("int64", [(2**62, -(2**62)), (2**63 - 1, -(2**63))]), ("bool", [(True, False), (False, True)])])
@pytest.mark.parametrize("rtol, atol", [(0, 2.5), (0.5, 0.5), (0.0, 0.0), (0, 1)])
def test_whole_numbers_far_apart_are_not_close(torch, dtype, pairs, rtol, atol):
    got, want = (lib.isclose(*(lib.tensor(side, dtype=getattr(lib, dtype)) for side in zip(*pairs)), rtol=rtol, atol=atol) for lib in (ampc, torch))
    assert got.tolist() == want.tolist() == [abs(a - b) <= atol + rtol * abs(b) for a, b in pairs]
