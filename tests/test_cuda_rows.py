"""Copies that turn, sums, positions, running sums and sorts of a GPU, at sizes that take several tiles and leave odd tails. See test_cuda_kernels.py."""

import itertools

import numpy as np
import pytest
from gpu_measures import COUNTS_BYTES, as_float64, bytes_of, drawn, launches, same_bits_in_any_order
from where import ON_GPU

import ampc

pytestmark = pytest.mark.skipif(not ON_GPU, reason="needs --device sim, ptx or cuda")
BYTES = pytest.mark.skipif(not COUNTS_BYTES, reason="--device ptx counts bytes")


# -- copies that turn -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [ampc.float16, ampc.float32, ampc.int64, ampc.bool, ampc.float64, ampc.int16], ids=str)
@pytest.mark.parametrize("shape", [(130, 66), (67, 129), (3, 70, 72), (2, 3, 65, 33), (8, 3, 9, 10), (7, 200), (8, 8)], ids=str)
def test_copies_in_every_order(shape, dtype):
    """Of whole tiles and their edges, of even and odd sizes; from and to addresses that are not those of two elements."""
    x = (ampc.randn(*shape) * 9).to(dtype)
    odd = ampc.cat([x.reshape(-1)[:1], x.reshape(-1)])[1:].reshape(x.shape)
    for order in itertools.permutations(range(len(shape))):
        want = x.numpy(force=True).transpose(order)
        turned = x.permute(order)
        assert np.array_equal(turned.contiguous().numpy(force=True), want)
        assert np.array_equal(odd.permute(order).contiguous().numpy(force=True), want)
        into = ampc.zeros((2, *turned.shape[:-1], turned.shape[-1] + 1), dtype=dtype)
        into[1, ..., 1:].copy_(turned)
        assert np.array_equal(into[1, ..., 1:].numpy(force=True), want) and not into[0].any().item() and not into[1, ..., 0].any().item()


def test_copies_that_turn_keep_every_bit():
    for whole, part in ((ampc.int16, ampc.float16), (ampc.int16, ampc.bfloat16), (ampc.int32, ampc.float32)):
        bits = ampc.randint(-2**15, 2**15, (90, 70)).to(whole)
        assert np.array_equal(bits.view(part).t().contiguous().view(whole).numpy(force=True), bits.numpy(force=True).T)


@BYTES
@pytest.mark.parametrize(("shape", "order"), [((256, 192), (1, 0)), ((2, 64, 3, 64), (0, 3, 1, 2)), ((4, 8, 16, 64), (3, 1, 0, 2))], ids=str)
def test_bytes_of_copies_that_turn(shape, order):
    x = drawn(*shape, dtype=ampc.float16)
    assert launches(lambda: x.permute(order).contiguous())[0] == 1
    assert bytes_of(lambda: x.permute(order).contiguous()) <= 2.01 * x.nbytes


# -- sums, variances, positions, truth values ------------------------------------------------------------------------

ROWS = [(5, 7), (301, 64), (300, 68), (40, 1000), (5, 1003), (3, 4104), (2, 9000), (1, 70001), (4100, 1032)]


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.bfloat16], ids=str)
@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_sums_of_rows(shape, dtype):
    """Rows of a thread, a warp, a block and of several; whole packs of 16 bytes and their rests; values that are not finite stay in their row."""
    x = drawn(*shape, dtype=dtype)
    wide, n = as_float64(x)[0], shape[1]
    got = x.sum(1, dtype=ampc.float32)
    assert abs(got.double().numpy(force=True) - wide.sum(1)).max() <= 8 * n**0.5 * ampc.finfo(ampc.float32).eps * 4
    assert np.array_equal(as_float64(x.amax(1))[0], wide.max(1)) and np.array_equal(as_float64(x.amin(1))[0], wide.min(1))
    x[0, n - 1], x[shape[0] // 2, n // 2] = float("nan"), float("inf")
    assert np.array_equal(x.amax(1).isfinite().numpy(force=True), np.isfinite(as_float64(x)[0]).all(1))
    assert np.array_equal(x.sum(1, dtype=ampc.float32).isfinite().numpy(force=True), np.isfinite(as_float64(x)[0]).all(1))


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.bfloat16], ids=str)
@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_variances_of_rows(shape, dtype):
    """Also far from 0, and where the first value lies far from all others; the bound is that of two passes in float32."""
    for offset, first in ((0, 0), (300, 0), (0, 3000)):
        x = (drawn(*shape) + offset).to(dtype)
        x[:, 0] += first
        wide, n = as_float64(x)[0], shape[1]
        want, eps = wide.var(1, ddof=1), ampc.finfo(ampc.float32).eps
        got = x.float().var(1).double().numpy(force=True)
        assert (abs(got - want) <= 16 * eps * want).all(), (offset, first)
        assert (abs(as_float64(x.std(1, correction=0))[0] - wide.std(1)) <= max(16 * eps, ampc.finfo(dtype).eps) * wide.std(1)).all()
    x = drawn(*shape, dtype=dtype)
    assert x[:, :1].var(1).isnan().all().item() and (x[:, :1].expand(shape).contiguous().var(1) == 0).all().item()
    x[0, n // 2] = float("inf")
    assert x.var(1).isnan().tolist() == [True] + [False] * (shape[0] - 1)
    assert drawn(3, 0, dtype=dtype).var(1).isnan().all().item()
    same_bits_in_any_order(lambda: [x.var(1), x.sum(1)])


def test_variances_of_what_is_strided():
    x = drawn(6, 40, 50)
    for part, dim in ((x.permute(1, 0, 2), (1, 2)), (x[:, ::3], (0, 2)), (x[:, :, 1:], (1, 2)), (x[..., ::2], 2), (x, 0), (x, (0, 1, 2))):
        want = as_float64(part)[0].var(dim, ddof=1)
        assert (abs(as_float64(part.var(dim))[0] - want) <= 1e-6 * want).all(), dim


@pytest.mark.parametrize("scale", [1e30, 1e19, 1e-15, 1e-30])
@pytest.mark.parametrize("shape", [(7, 5), (3, 7000), (70, 64), (2, 300000), (300, 40)], ids=str)
def test_variances_of_large_and_small_values(shape, scale):
    """Squares that float32 does not hold, in every other row: of rows, and of columns."""
    x = drawn(*shape)
    x[::2] *= scale
    wide, bound = as_float64(x)[0], 16 * ampc.finfo(ampc.float32).eps
    for part, dim in ((x, 1), (x[:, ::2], 1), (x.T.contiguous(), 0)):
        want = as_float64(part)[0].std(dim, ddof=1)
        assert (abs(as_float64(part.std(dim))[0] - want) <= bound * want).all(), dim
    var, want = as_float64(x.var(1))[0], wide.var(1, ddof=1)
    kept = (want > ampc.finfo(ampc.float32).tiny) & (want < ampc.finfo(ampc.float32).max)
    assert (abs(var - want)[kept] <= bound * want[kept]).all() and np.isinf(var[want > ampc.finfo(ampc.float32).max]).all()
    same_bits_in_any_order(lambda: [x.var(1)])


@BYTES
@pytest.mark.parametrize("shape", [(64, 2048), (2, 65536)], ids=str)
def test_bytes_of_variances(shape):
    x = drawn(*shape, dtype=ampc.float16)
    assert bytes_of(lambda: x.var(1)) <= 1.05 * x.nbytes


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.bfloat16, ampc.float64, ampc.int64, ampc.int8], ids=str)
@pytest.mark.parametrize(("shape", "dim"), [*((shape, 1) for shape in ROWS), ((9, 5), 0), ((21, 5000), 0), ((2, 21, 70, 40), 1), ((300, 10), 0), ((40, 77), None)], ids=str)
def test_positions(shape, dim, dtype):
    """Of the largest and the smallest: ties, of which the first counts, everywhere; the first nan before all others; rows of infinities alone."""
    real = dtype.is_floating_point
    x = (drawn(*shape) * 3).round().clamp(-3, 3).to(dtype)
    if real and x.numel() > 40:
        flat = x.view(-1)
        flat[:x.numel() // 9:7] = float("inf")
        flat[x.numel() // 9:x.numel() // 5:5] = float("-inf")
        flat[x.numel() // 2::23 * 17] = float("nan")
    wide = as_float64(x)[0]
    for sign in (1, -1):
        arg, pair, values = (x.argmax, x.max, np.max) if sign > 0 else (x.argmin, x.min, np.min)
        want = np.argmax(sign * wide, axis=dim)  # numpy: ties go to the first, and nans win, too
        assert np.array_equal(arg(dim).numpy(force=True), want)
        if dim is not None:
            found, at = pair(dim)
            assert np.array_equal(at.numpy(force=True), want) and np.array_equal(as_float64(found)[0], values(wide, dim), equal_nan=real)
    if real:
        for value in (float("-inf"), float("inf"), float("nan")):
            assert not ampc.full(shape, value, dtype=dtype).argmax(dim).any().item()
    lowest = ampc.full(shape, -128 if dtype is ampc.int8 else -2**63 if dtype is ampc.int64 else 0, dtype=dtype)
    assert not lowest.argmax(dim).any().item() and not lowest.argmin(dim).any().item()


@pytest.mark.parametrize("shape", [*ROWS, (3, 100, 7)], ids=str)
def test_truth_values(shape):
    for dtype in (ampc.bool, ampc.uint8, ampc.int8):
        for share in (0.0005, 0.5, 0.9995, 0, 1):
            x = (ampc.rand(*shape) < share).to(dtype)
            x = x if dtype is ampc.bool else x * 64
            there = x.numpy(force=True) != 0
            assert np.array_equal(x.any(1).numpy(force=True) != 0, there.any(1)) and np.array_equal(x.all(1).numpy(force=True) != 0, there.all(1))
            assert x.all().item() == there.all() and x.any().item() == there.any()
            assert x.count_nonzero().item() == there.sum() and np.array_equal(x.count_nonzero(1).numpy(force=True), there.sum(1))
    assert (x.view(-1)[1:] != 0).all().item() and x.view(ampc.uint8).view(ampc.bool).all().item()


@BYTES
def test_bytes_of_positions_and_truth_values():
    x = drawn(32, 4096, dtype=ampc.float16)
    assert bytes_of(lambda: x.argmax(1)) <= 1.01 * x.nbytes
    finite = x.isfinite()
    assert bytes_of(lambda: finite.all()) <= 1.02 * finite.nbytes


# -- running sums, products and extremes -----------------------------------------------------------------------------

RUNNING = [((5, 7), 1), ((301, 16), 1), ((300, 68), 1), ((40, 1000), 1), ((5, 1025), 1), ((3, 4104), 1), ((2, 9001), 1), ((4100, 40), 1), ((37, 4100), 0),
           ((300, 10), 0), ((3, 70, 40), 1)]


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.bfloat16, ampc.float64, ampc.int64, ampc.int32], ids=str)
@pytest.mark.parametrize(("shape", "dim"), RUNNING, ids=str)
def test_running_sums(shape, dim, dtype):
    """Rows of a thread, a warp and a block, of one tile and of several; sums in float64 are rounded once."""
    x = (drawn(*shape) * 9).to(dtype)
    wide, into = as_float64(x)[0].cumsum(dim), ampc.zeros((*shape[:-1], shape[-1] + 1), dtype=dtype)[..., 1:]
    own = dtype if dtype.is_floating_point else ampc.int64
    bound = ampc.finfo(own).eps * (abs(wide) * (64 if dtype is ampc.float64 else 0.75) + (dtype is ampc.float64) * 99) if dtype.is_floating_point else 0 * wide
    assert x.cumsum(dim).dtype is own and (abs(as_float64(x.cumsum(dim))[0] - wide) <= bound + 1e-12).all()
    ampc.cumsum(x, dim, dtype=dtype, out=into)
    assert np.array_equal(into.numpy(force=True), x.cumsum(dim, dtype=dtype).numpy(force=True))
    same_bits_in_any_order(lambda: [x.cumsum(dim)])


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.bfloat16, ampc.float64, ampc.int32], ids=str)
@pytest.mark.parametrize(("shape", "dim"), RUNNING, ids=str)
def test_running_products_extremes_and_logarithms_of_sums(shape, dim, dtype):
    """The last of equal ones is named, and a nan stays from where it is."""
    x = (drawn(*shape) * 9).round().to(dtype)
    if dtype.is_floating_point:
        x.view(-1)[x.numel() // 3] = float("nan")
        x.view(-1)[x.numel() // 2] = float("-inf")
    wide = as_float64(x)[0]
    places = np.broadcast_to(np.expand_dims(np.arange(shape[dim]), [d for d in range(len(shape)) if d != dim]), shape)
    for f, running in ((x.cummax, np.maximum.accumulate), (x.cummin, np.minimum.accumulate)):
        values, at = f(dim)
        want = running(wide, dim)
        news = (wide == want) | np.isnan(wide)
        assert np.array_equal(as_float64(values)[0], want, equal_nan=True)
        assert np.array_equal(at.numpy(force=True), np.maximum.accumulate(np.where(news, places, -1), dim))
    if not dtype.is_floating_point:
        signs = ampc.where(x > 0, 1, -1)
        assert np.array_equal(signs.cumprod(dim).numpy(force=True), np.cumprod(signs.numpy(force=True), dim))
        return
    eps, signs = ampc.finfo(dtype).eps, (drawn(*shape, dtype=dtype) * 0.01 + 1).to(dtype)
    want = np.cumprod(as_float64(signs)[0], dim)
    assert (abs(as_float64(signs.cumprod(dim))[0] - want) <= (1e-12 + eps) * abs(want)).all()
    with np.errstate(invalid="ignore"):
        want = np.logaddexp.accumulate(wide, dim)
    got, there = as_float64(x.logcumsumexp(dim))[0], np.isfinite(want)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert (abs(got[there] - want[there]) <= (1e-12 + eps) * np.maximum(1, abs(want[there]))).all()


@pytest.mark.parametrize("n", [7, 70, 1500])
def test_linear_scans_of_rows(n):
    """y[i] = decay[i] y[i - 1] + x[i], and its gradients, which go backward through the rows."""
    x, decay = drawn(5, n, dtype=ampc.float64), ampc.rand(5, n, dtype=ampc.float64)
    want, so_far = np.zeros((5, n)), np.zeros(5)
    for i in range(n):
        so_far = so_far * as_float64(decay)[0][:, i] + as_float64(x)[0][:, i]
        want[:, i] = so_far
    leaf = x.requires_grad_()
    y = ampc._C._functions["_linear_scan"](leaf, decay, 1)
    assert abs(as_float64(y)[0] - want).max() <= 1e-12
    g = ampc.autograd.grad(y.sum(), leaf)[0]
    back, so_far = np.zeros((5, n)), np.zeros(5)
    for i in reversed(range(n)):
        so_far = 1 + (so_far * as_float64(decay)[0][:, i + 1] if i + 1 < n else 0)
        back[:, i] = so_far
    assert abs(as_float64(g)[0] - back).max() <= 1e-12


@BYTES
def test_bytes_of_running_sums():
    for shape in ((64, 1024), (2, 8192)):
        x = drawn(*shape)
        assert bytes_of(lambda x=x: x.cumsum(1)) <= 2.01 * x.nbytes


# -- sorts of long rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.bfloat16, ampc.float64, ampc.int64, ampc.int32], ids=str)
@pytest.mark.parametrize("shape", [(1, 20001), (2, 6144), (3, 4100)], ids=str)
def test_sorts_of_long_rows(shape, dtype):
    """By digits: all values of one row, few different ones, all digits of wide integers; places stay in order."""
    x = ampc.randint(-2**62, 2**62, shape) if dtype is ampc.int64 else (drawn(*shape) * 2**20).to(dtype)
    few = (drawn(*shape) * 2).round().to(dtype)
    for values in (x, few, x[:1] * 0):
        wide = values.numpy(force=True) if dtype is not ampc.bfloat16 else as_float64(values)[0]
        rising = np.argsort(wide, -1, kind="stable")
        falling = shape[-1] - 1 - np.argsort(np.flip(wide, -1), -1, kind="stable")[..., ::-1]
        for descending, want in ((False, rising), (True, falling)):
            ordered, places = values.sort(-1, descending)
            assert np.array_equal(places.numpy(force=True), want)
            assert ordered.equal(values.gather(-1, places))
    assert np.array_equal(few.topk(5)[1].numpy(force=True), few.sort(-1, True)[1][:, :5].numpy(force=True))
    same_bits_in_any_order(lambda: [*few.sort(-1)])


@pytest.mark.parametrize("share", [0.001, 0.6])
@pytest.mark.parametrize("n", [5, 4097, 2_200_000])
def test_places_of_what_is_not_zero(n, share):
    x = ampc.rand(n) < share
    assert np.array_equal(x.nonzero().numpy(force=True)[:, 0], np.flatnonzero(x.numpy(force=True)))


def test_sums_at_many_indices():
    """More than a block sorts; indices of all sizes."""
    index, g = ampc.randint(0, 70000, (9000,)), drawn(9000, 3, dtype=ampc.float64)
    want = np.zeros((70000, 3))
    np.add.at(want, index.numpy(force=True), as_float64(g)[0])
    assert abs(as_float64(ampc.zeros(70000, 3, dtype=ampc.float64).index_add(0, index, g))[0] - want).max() <= 1e-12


@BYTES
def test_bytes_of_sorts_of_long_rows():
    """Four passes: keys and places are read and written, and keys are read for the counts. What a digit has of a tile begins anywhere."""
    x = drawn(2, 16384)
    assert bytes_of(lambda: x.sort(1)) <= x.numel() * (4 + 8 + 4 * (16 + 16 + 8) - 8 + 8 + 32 + 12) * 1.3
    assert launches(lambda: x.sort(1))[0] == 14
