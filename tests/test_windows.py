"""Windows and planes: convolution, pooling, resampling, normalisation over channels, attention, in any geometry and layout."""

import contextlib
import math
import subprocess
import sys

import numpy as np
import pytest
from references import R, part
from where import DEVICE, FEWER, ON_GPU

import ampc


def real(*shape):
    return R.standard_normal(shape)


DIRECT = [  # nd, channels, outs, sizes, kernel, stride, padding, dilation, groups
    (1, 16, 20, (37,), (3,), (1,), (1,), (1,), 1), (1, 20, 16, (41,), (4,), (3,), (2,), (2,), 1),
    (2, 32, 48, (9, 11), (3, 3), (1, 1), (1, 1), (1, 1), 1), (2, 64, 32, (8, 8), (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (2, 32, 64, (12, 10), (3, 2), (2, 2), (1, 1), (1, 1), 2), (2, 17, 19, (9, 13), (2, 3), (1, 2), (1, 0), (2, 2), 1),
    (2, 16, 16, (40, 33), (5, 5), (1, 1), (2, 2), (1, 1), 1), (3, 16, 32, (4, 5, 6), (2, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1), 1),
    (3, 32, 32, (5, 6, 5), (3, 2, 2), (2, 1, 2), (1, 0, 1), (1, 2, 1), 2),
    (2, 33, 40, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1), 1), (2, 32, 32, (14, 14), (3, 3), (2, 2), (1, 1), (1, 1), 1),
    (2, 48, 16, (6, 70), (3, 3), (3, 2), (2, 2), (2, 3), 1), (2, 16, 96, (20, 20), (7, 5), (2, 3), (3, 2), (1, 1), 1),
    (2, 64, 64, (36, 36), (3, 3), (1, 1), (1, 1), (1, 1), 2), (2, 160, 144, (10, 12), (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (1, 32, 32, (300,), (9,), (1,), (4,), (1,), 1), (2, 128, 32, (5, 33), (1, 1), (2, 2), (0, 0), (1, 1), 1),
    (3, 16, 16, (3, 20, 18), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 1),
    (2, 8, 8, (9, 20), (3, 3), (1, 1), (1, 1), (1, 1), 8), (2, 6, 12, (12, 35), (5, 3), (2, 3), (2, 1), (1, 2), 6),
    (1, 12, 8, (40,), (7,), (1,), (3,), (1,), 4), (3, 4, 4, (4, 6, 5), (3, 3, 2), (1, 2, 1), (1, 1, 1), (1, 1, 1), 4),
]


@pytest.fixture(params=["cudnn", "own"] if ON_GPU else ["cpu"])
def ways(request):
    """The ways that a convolution has on this device."""
    ampc.backends.cudnn.enabled = request.param == "cudnn"
    yield
    ampc.backends.cudnn.enabled = True


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("dtype", [ampc.float32, ampc.bfloat16, ampc.float16], ids=str)
@pytest.mark.parametrize("shape", part(DIRECT, 3) if ON_GPU else DIRECT, ids=str)
def test_convolutions_of_many_channels_or_few(shape, dtype):
    """They go ways of their own on the CPU; against the same numbers in float64."""
    nd, channels, outs, sizes, kernel, stride, padding, dilation, groups = shape
    x, w, b = real(3, channels, *sizes), real(outs, channels // groups, *kernel) * 0.2, real(outs)
    conv = getattr(ampc.nn.functional, f"conv{nd}d")
    results = []
    for dt in (dtype, ampc.float64):
        leaves_ = [ampc.tensor(a).to(dtype).to(dt).requires_grad_() for a in (x, w, b)]
        y = conv(*leaves_, stride=stride, padding=padding, dilation=dilation, groups=groups)
        weight = ampc.linspace(-1, 1, y.numel()).to(dtype).to(dt).reshape(y.shape)
        y.backward(weight)
        results.append([y.detach()] + [t.grad for t in leaves_])
    terms = [channels // groups * math.prod(kernel), outs // groups * math.prod(kernel), y.numel() // outs, y.numel() // outs]
    for got, want, n in zip(*results, terms):
        assert got.dtype == dtype
        # float32 sums of n terms, then one rounding to dtype
        room = want.abs().max().item() * (ampc.finfo(dtype).eps + n * ampc.finfo(ampc.float32).eps)
        assert (got.double() - want).abs().max().item() <= room


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("dtype", [ampc.float32, ampc.bfloat16, ampc.float16], ids=str)
@pytest.mark.parametrize("groups, outs", [(1, 24), (16, 2), (8, 3)])
@pytest.mark.parametrize("size, how", [((5, 6), {"stride": (2, 1), "padding": 1, "output_padding": (1, 0), "dilation": (1, 2)}), ((9, 40), {"padding": (1, 0)}),
                                       ((8, 17), {"stride": 2, "padding": 1, "output_padding": 1})], ids=str)
def test_a_transposed_convolution_of_many_channels_or_few(size, how, groups, outs, dtype):
    x, w, b = (ampc.tensor(a).to(dtype) for a in (real(2, 32, *size), real(32, outs, 3, 2) * 0.2, real(groups * outs)))
    results = []
    for dt in (dtype, ampc.float64):
        leaves_ = [t.detach().to(dt).requires_grad_() for t in (x, w, b)]
        y = ampc.nn.functional.conv_transpose2d(*leaves_, groups=groups, **how)
        y.backward(ampc.linspace(-1, 1, y.numel()).to(dtype).to(dt).reshape(y.shape))
        results.append([y.detach()] + [t.grad for t in leaves_])
    for got, want, n in zip(*results, (32 // groups * 6, outs * 6, 2 * math.prod(size), results[0][0].numel() // (groups * outs))):
        room = want.abs().max().item() * (ampc.finfo(dtype).eps + n * ampc.finfo(ampc.float32).eps)
        assert (got.double() - want).abs().max().item() <= room


@pytest.mark.parametrize("padding", part([0, 1, (1, 2)], FEWER), ids=str)
@pytest.mark.parametrize("stride, dilation, more", part([(1, 2, 1), (2, 5, 3), ((1, 2), (3, 2), (2, 1))], FEWER), ids=str)
def test_an_output_padding_above_the_stride(stride, dilation, more, padding):
    """A larger dilation allows it: what lies beyond the last window gets the bias and gives no gradient, nor any in turn. Padding takes as much away
    behind, so that the last windows reach these values after all."""
    x, w, b = (ampc.tensor(real(*shape), dtype=ampc.float64).requires_grad_() for shape in ((2, 3, 4, 3), (3, 2, 2, 3), (2,)))
    f = lambda *args: ampc.nn.functional.conv_transpose2d(*args, stride=stride, dilation=dilation, output_padding=more, padding=padding)  # noqa: E731
    assert ampc.autograd.gradcheck(f, (x, w, b)) and ampc.autograd.gradgradcheck(f, (x, w, b))


def test_an_output_padding_may_alone_leave_values():
    """Of -1 values that a wide padding leaves, two more behind make one: the last of them that a window reaches."""
    x, w = (ampc.tensor(real(*shape), dtype=ampc.float64).requires_grad_() for shape in ((1, 1, 5), (1, 1, 2)))
    f = lambda x, w: ampc.nn.functional.conv_transpose1d(x, w, padding=5, dilation=4, output_padding=2)  # noqa: E731
    assert f(x, w).tolist() == [[[(x[0, 0, 1] * w[0, 0, 1]).item()]]]
    assert ampc.autograd.gradcheck(f, (x, w)) and ampc.autograd.gradgradcheck(f, (x, w))


REAL = [  # images, channels, outs, size, kernel, stride, padding, dilation, groups: layers of networks that people train
    (2, 64, 64, 56, 3, 1, 1, 1, 1), (2, 64, 128, 56, 3, 2, 1, 1, 1), (1, 64, 64, 112, 3, 1, 1, 1, 1), (1, 16, 32, 224, 3, 1, 1, 1, 1),
    (3, 64, 64, 32, 3, 1, 1, 1, 1), (9, 48, 32, 14, 3, 1, 1, 1, 1), (1, 32, 32, 128, 3, 1, 1, 1, 1), (1, 32, 32, 33, 5, 1, 4, 2, 2),
    (2, 256, 64, 56, 1, 1, 0, 1, 1), (17, 64, 32, 7, 3, 1, 1, 1, 1)]


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.bfloat16, ampc.float16], ids=str)
@pytest.mark.parametrize("shape", part(REAL, FEWER), ids=str)
def test_gradients_of_weights_at_the_sizes_of_networks(shape, dtype):
    """An image's positions do not fit the second-level cache, or images together do: against the same numbers in float64."""
    images, channels, outs, size, kernel, stride, padding, dilation, groups = shape
    x, w = ampc.randn(images, channels, size, size).to(dtype), ampc.zeros(outs, channels // groups, kernel, kernel)
    grads = []
    for dt in (dtype, ampc.float64):
        weight = w.to(dt, copy=True).requires_grad_()
        y = ampc.nn.functional.conv2d(x.to(dt), weight, stride=stride, padding=padding, dilation=dilation, groups=groups)
        y.backward(ampc.linspace(-1, 1, y.numel()).to(dtype).to(dt).reshape(y.shape))
        grads.append(weight.grad.double())
    got, want = grads
    room = want.abs().max().item() * (ampc.finfo(dtype).eps + y.numel() // outs * ampc.finfo(ampc.float32).eps)
    assert (got - want).abs().max().item() <= room


def test_convolutions_read_any_layout():
    """Channels last, every other column, another order: the same numbers as from plain memory, under autocast too."""
    F_, w = ampc.nn.functional, ampc.tensor(real(32, 16, 3, 3)).float()
    x = ampc.tensor(real(2, 16, 9, 40)).float()
    for view in (x.to(memory_format=ampc.channels_last), x[..., ::2], x.transpose(2, 3), x[:, :, 1:, 3:]):
        for dtype in (None, ampc.bfloat16, ampc.float16):
            results = []
            for t in (view, view.contiguous()):
                t, v = t.detach().requires_grad_(), w.detach().requires_grad_()
                with ampc.autocast(DEVICE, dtype=dtype or ampc.bfloat16, enabled=dtype is not None):
                    y = F_.conv2d(t, v, padding=1)
                y.backward(ampc.ones_like(y))
                results.append((y.detach(), t.grad, v.grad))
            assert all(a.equal(b) for a, b in zip(*results))


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float64, ampc.bfloat16], ids=str)
@pytest.mark.parametrize("f", [
    lambda F, x: F.avg_pool2d(x, 3, 2, 1), lambda F, x: F.max_pool2d(x, 2), lambda F, x: F.adaptive_avg_pool2d(x, (3, 2)),
    lambda F, x: F.interpolate(x, scale_factor=2.0, mode="bicubic"), lambda F, x: F.interpolate(x, (5, 30), mode="bilinear", align_corners=True),
    lambda F, x: F.batch_norm(x, None, None, training=True), lambda F, x: F.group_norm(x, 2), lambda F, x: F.instance_norm(x),
], ids=["avg_pool", "max_pool", "adaptive", "bicubic", "bilinear", "batch_norm", "group_norm", "instance_norm"])
def test_windows_and_norms_read_any_layout(f, dtype):
    x = ampc.tensor(real(2, 6, 9, 14)).to(dtype)
    for view in (x.to(memory_format=ampc.channels_last), x[:, :, ::2], x.transpose(2, 3), x[:1].expand(3, 6, 9, 14), x.transpose(0, 1)):
        results = []
        for t in (view, view.contiguous()):
            t = t.detach().requires_grad_()
            y = f(ampc.nn.functional, t)
            y.backward(ampc.linspace(-1, 1, y.numel()).to(dtype).reshape(y.shape[1:] + y.shape[:1]).permute(3, 0, 1, 2))
            results.append((y.detach(), t.grad))
        (y, grad), (want, want_grad) = results
        room = 4 * ampc.finfo(dtype).eps * max(1.0, want.abs().max().item(), want_grad.abs().max().item())  # the order of sums may differ
        assert (y - want).abs().max().item() <= room and (grad - want_grad).abs().max().item() <= room


@pytest.mark.parametrize("dtype", [ampc.float64, ampc.float32, ampc.float16, ampc.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(300, 20), (5, 34, 3), (2, 4, 2100), (3, 18, 40, 33), (1, 32, 7, 7), (4, 16, 1)], ids=str)
@pytest.mark.parametrize("groups", [None, 2])
def test_norms_of_channels(groups, shape, dtype):
    """Many positions or few, whole pieces and parts of them; forward and all gradients against the same numbers in float64, where
    the mean is far from 0 too."""
    x, g, w, b = (ampc.tensor(a).to(dtype) for a in (real(*shape) + 3, real(*shape), real(shape[1]), real(shape[1])))
    column = (1, -1) + (1,) * (len(shape) - 2)

    def reference(t, v, c):
        rows = t.transpose(0, 1).reshape(shape[1], -1) if groups is None else t.reshape(shape[0], groups, -1)
        y = (rows - rows.mean(-1, True)) / (rows.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        y = y.reshape(shape[1], shape[0], *shape[2:]).transpose(0, 1) if groups is None else y.reshape(shape)
        return y * v.reshape(column) + c.reshape(column)

    def ours(t, v, c):
        norm = ampc.nn.functional
        return norm.batch_norm(t, None, None, v, c, True) if groups is None else norm.group_norm(t, groups, v, c)

    rows = x.double().transpose(0, 1).reshape(shape[1], -1) if groups is None else x.double().reshape(shape[0], groups, -1)
    spread = (x.abs().max().double() / (rows.var(-1, correction=0) + 1e-5).sqrt().min()).item()
    results = []
    for f, dt in ((ours, dtype), (reference, ampc.float64)):
        leaves_ = [t.detach().to(dt).requires_grad_() for t in (x, w, b)]
        y = f(*leaves_)
        y.backward(g.to(dt))
        results.append([y.detach()] + [t.grad for t in leaves_])
    n = x.numel() // shape[1] if groups is None else x.numel() // shape[0] // groups
    eps = ampc.finfo(dtype if dtype == ampc.float64 else ampc.float32).eps
    for got, want, terms in zip(*results, (n, n, 2 * x.numel() // shape[1], x.numel() // shape[1])):
        assert got.dtype == dtype
        # sums of `terms` in the opmath type, in 32 accumulators at least, of numbers that lie `spread` deviations from 0; then one rounding
        room = want.abs().max().item() * (ampc.finfo(dtype).eps + 2 * (1 + spread) * eps * (1 + terms / 32))
        assert (got.double() - want).abs().max().item() <= room


@pytest.mark.parametrize("dtype", [ampc.float16, ampc.bfloat16], ids=str)
@pytest.mark.parametrize("scale, mean", [(500, 0), (0.05, 5), (1, 1000)])
@pytest.mark.parametrize("norm", [lambda F, x, w: F.batch_norm(x, None, None, w, None, True), lambda F, x, w: F.group_norm(x, 4, w), lambda F, x, w: F.layer_norm(x, (16,), w),
                                  lambda F, x, w: F.batch_norm(x, x[0].detach(), x[1].detach().abs() + 1, w)], ids=["batch", "group", "layer", "fixed"])
def test_16_bit_norms_under_create_graph_are_rounded_once(norm, scale, mean, dtype):
    """Both derivatives against float64, where squares of values overflow float16, and where 16-bit means would lose what is normed."""
    x, w, g, v = (ampc.tensor(a).to(dtype) for a in (real(32, 16) * scale + mean, real(16), real(32, 16), real(32, 16)))
    results = []
    for dt in (dtype, ampc.float64):
        leaves_ = [t.to(dt).requires_grad_() for t in (x, w)]
        first = ampc.autograd.grad(norm(ampc.nn.functional, *leaves_), leaves_, g.to(dt), create_graph=True)
        second = ampc.autograd.grad((first[0].double() * v.double()).sum(), leaves_, allow_unused=True, materialize_grads=True)
        results.append([*first, *second])
    for got, want in zip(*results):
        assert got.dtype == dtype
        # one rounding, of a result that subnormal numbers may hold; of float32 some 16 sums lose as many digits as the mean has more than the values
        room = 2 * ampc.finfo(dtype).eps * want.abs().max().item() + 2 * ampc.finfo(dtype).smallest_normal * ampc.finfo(dtype).eps
        assert (got.double() - want).abs().max().item() <= room + 64 * (1 + abs(mean) / scale) * ampc.finfo(ampc.float32).eps * want.abs().max().item()


@pytest.mark.parametrize("call", [lambda F, p: F.unfold(ampc.ones(1, 1, 4, 4), 1, padding=p), lambda F, p: F.fold(ampc.ones(1, 1, 0), 4, 1, padding=p),
                                  lambda F, p: F.conv2d(ampc.ones(1, 1, 4, 4), ampc.ones(1, 1, 1, 1), padding=p)], ids=["unfold", "fold", "conv2d"])
def test_windows_whose_positions_cannot_be_counted_are_refused(call):
    """2^32 positions each way: their product is 0 in 64 bits."""
    with pytest.raises(RuntimeError, match="more elements than memory can hold"):
        call(ampc.nn.functional, 2**31 - 2)


def test_max_pooling_refuses_windows_that_lie_wholly_in_the_padding():
    """Taps further apart than the input is wide pass over it; what they would choose from is memory of others."""
    for nd in (1, 2, 3):
        pool = getattr(ampc.nn.functional, f"max_pool{nd}d")
        with pytest.raises(RuntimeError, match="window 0 of dimension .* lies wholly in the padding .* give less padding or dilation"):
            pool(ampc.randn(1, 1, *nd * (4,)), 2, stride=1, padding=1, dilation=5)
    assert ampc.nn.functional.max_pool1d(ampc.arange(4.0).reshape(1, 1, 4), 3, stride=1, padding=4, dilation=5).flatten().tolist() == [1, 2]


@pytest.mark.parametrize("nd", [1, 2, 3])
def test_ceil_mode_pools_an_input_that_is_smaller_than_the_window(nd):
    """A window that begins within the input counts, as in torch, if its stride reaches as far as it lacks."""
    F, x = ampc.nn.functional, ampc.tensor([3.0, -5.0, 1.0]).to(DEVICE).reshape(1, 3, *nd * (1,)).requires_grad_()
    most, mean = getattr(F, f"max_pool{nd}d"), getattr(F, f"avg_pool{nd}d")
    for kernel, stride in ((2, 2), (3, 3), (3, 4)):
        y = most(x, kernel, stride, ceil_mode=True) + mean(x, kernel, stride, ceil_mode=True)
        assert y.shape == x.shape and ampc.equal(y, 2 * x)
        assert ampc.equal(ampc.autograd.grad(y.sum(), x)[0], ampc.full_like(x, 2))
    for pool in (most, mean):
        for kernel, stride, padding, ceil in ((2, 2, 0, False), (3, 2, 0, True), (5, 2, 1, True)):
            with pytest.raises(RuntimeError, match="larger than"):
                pool(x, kernel, stride, padding, ceil_mode=ceil)


@pytest.mark.cpu
@pytest.mark.parametrize("call", ["F.group_norm(x, 4)", "F.instance_norm(x)", "F.avg_pool2d(x, 8)", "F.max_pool2d(x, 8)", "F.adaptive_avg_pool2d(x, 1)", "F.interpolate(x, (8, 8), mode='bilinear')",
                                  "F.conv2d(x, w, stride=8)", "F.batch_norm(x, None, None, training=True)"])
def test_channels_last_is_read_without_a_copy(call):
    """The most memory that was in use: the result, and room for rows, but no second x of 2 MiB."""
    code = f"""
import ampc
F = ampc.nn.functional
ampc.set_num_threads(2)
x, w = ampc.ones(4, 64, 64, 32).permute(0, 3, 1, 2), ampc.ones(16, 32, 3, 3)
before = ampc._C._memory()["current"]
y = {call}
print(ampc._C._memory()["peak"] - before - y.numel() * 4)
"""
    room = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(room) < 1 << 20


@pytest.mark.parametrize("special", [math.inf, math.nan])
@pytest.mark.parametrize("dtype", [ampc.float32, ampc.bfloat16, ampc.float16], ids=str)
def test_a_convolution_shows_what_is_not_finite(dtype, special):
    """In float16 too, whose products on some CPUs are sums of parts that hold finite numbers only."""
    x, w = ampc.tensor(real(2, 32, 8, 8)).to(dtype), ampc.tensor(real(16, 32, 3, 3)).to(dtype).requires_grad_()
    x[1, 3, 4, 5] = special
    x.requires_grad_()
    y = ampc.nn.functional.conv2d(x, w, padding=1)
    outside = ampc.ones(2, 1, 8, 8, dtype=ampc.bool)
    outside[1, 0, 3:6, 4:7] = False
    assert (y.isfinite() == outside).all()
    y.backward(ampc.ones_like(y))
    assert x.grad.isfinite().all() and w.grad[:, 4:].isfinite().all() and not w.grad[:, 3].isfinite().any()


@pytest.mark.parametrize("channels, groups", [(32, 1), (8, 8), (3, 1)], ids=["lines", "few channels", "columns"])
@pytest.mark.parametrize("at", [(..., 7, slice(None)), (..., 7)], ids=["row", "column"])
def test_what_no_window_of_a_convolution_reads_does_not_count(at, channels, groups):
    """A stride leaves the last row and column out: what they hold is in no result and in no gradient."""
    x, w = ampc.randn(2, channels, 8, 8), ampc.randn(16, channels // groups, 3, 3, requires_grad=True)
    x[at] = math.inf
    x.requires_grad_()
    y = ampc.nn.functional.conv2d(x, w, stride=2, groups=groups)
    y.sum().backward()
    assert y.isfinite().all() and w.grad.isfinite().all() and x.grad.isfinite().all()


@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolutions_bias_may_be_any_view(groups):
    x, bias = ampc.randn(2, 4, 5, 5), ampc.randn(6)
    wide = ampc.zeros(12)
    wide[::2] = bias
    for f, w in ((ampc.nn.functional.conv2d, ampc.randn(6, 4 // groups, 3, 3)), (ampc.nn.functional.conv_transpose2d, ampc.randn(4, 6 // groups, 3, 3))):
        assert f(x, w, wide[::2], groups=groups).equal(f(x, w, bias, groups=groups))


@pytest.mark.parametrize("width", [5, 23])
@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float64, ampc.bfloat16, ampc.int64], ids=str)
@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), [(2, 2, 0, 1), (3, 2, 1, 1), (3, 1, 1, 2), (4, 3, 2, 1)])
def test_max_pooling_of_equal_values_infinities_and_nans(dtype, width, kernel, stride, padding, dilation):
    """Short and long rows: the first of equal values, minus infinity rather than padding, and the last nan, with their indices and gradients."""
    size, real_dtype = (2, 3, 9, width), dtype.is_floating_point
    values = np.random.default_rng(width).integers(-2, 3, size).astype(float)
    if real_dtype:
        draws = np.random.default_rng(1).random(size)
        values[draws < 0.4], values[draws < 0.03] = -math.inf, math.nan
    x = ampc.tensor(values).to(dtype)
    got, index = ampc.nn.functional.max_pool2d(x.requires_grad_(real_dtype), kernel, stride, padding, dilation, return_indices=True)
    want, place = np.full(got.shape, -math.inf), np.full(got.shape, -1)
    for n, c, i, j in np.ndindex(*got.shape):
        for at in np.ndindex(kernel, kernel):
            row, col = i * stride - padding + at[0] * dilation, j * stride - padding + at[1] * dilation
            if not (0 <= row < 9 and 0 <= col < width):
                continue
            v = values[n, c, row, col]
            if place[n, c, i, j] < 0 or v > want[n, c, i, j] or v != v:
                want[n, c, i, j], place[n, c, i, j] = v, row * width + col
    np.testing.assert_array_equal(got.detach().double().cpu().numpy(), want)
    np.testing.assert_array_equal(index.cpu().numpy(), place)
    if real_dtype:
        got.backward(ampc.ones_like(got))
        counts = [np.bincount(p.ravel(), minlength=9 * width) for p in place.reshape(6, -1)]
        np.testing.assert_array_equal(x.grad.double().cpu().numpy(), np.reshape(counts, size))


@pytest.mark.cpu
def test_causal_attention_to_nothing_but_nan_is_nan_in_all_gradients():
    """Weights of keys beyond a query are not computed, but a score that is nan makes them nan, too."""
    q, k, v = (ampc.tensor(real(1, 40, 8)).float().requires_grad_() for _ in range(3))
    with ampc.no_grad():
        q[0, 3, 0] = math.nan
    y = ampc.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    y.sum().backward()
    assert y[0, 3].isnan().all() and not y[0, :3].isnan().any() and not y[0, 4:].isnan().any()
    assert k.grad.isnan().all() and v.grad.isnan().all()


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.bfloat16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_over_several_blocks(dtype, causal):
    """More queries than a block holds, heads interleaved in memory, against float64 from the same numbers."""
    q, k, v = (ampc.tensor(real(2, 300, 3, 16)).to(dtype) for _ in range(3))
    weight = ampc.tensor(real(2, 3, 300, 16)).to(dtype)
    results = []
    for dt in (dtype, ampc.float64):
        parts = [t.detach().to(dt).requires_grad_() for t in (q, k, v)]
        y = ampc.nn.functional.scaled_dot_product_attention(*(t.transpose(1, 2) for t in parts), is_causal=causal)
        y.backward(weight.to(dt))
        results.append([y.detach(), *(t.grad for t in parts)])
    for got, want in zip(*results):
        # scores, weights and results are rounded to dtype on the way into each product; sums of 300 terms to float32
        room = 6 * ampc.finfo(dtype).eps + 300 * ampc.finfo(ampc.float32).eps
        assert got.dtype == dtype and (got.double() - want).abs().max().item() <= room * want.abs().max().item()


@pytest.mark.parametrize("dtype", [ampc.bfloat16, ampc.float16], ids=str)
@pytest.mark.parametrize("autocast", [False, True])
def test_16_bit_attention_by_parts_keeps_float32_scores(dtype, autocast):
    """A mask with a gradient, or keys that are broadcast, take another way than the kernel that keeps no scores, and must not be worse:
    scores of 50, rounded to 16 bits, would make weights wrong by several of a hundred."""
    q, k, v = (ampc.tensor(real(*s) * by).to(dtype) for s, by in (((2, 3, 9, 16), 6), ((2, 1, 11, 16), 6), ((2, 3, 11, 16), 1)))
    mask, slope = ampc.tensor(real(9, 11)).to(dtype), ampc.tensor(np.sign(real(2, 3, 9, 16)))
    results = []
    for dt in (ampc.float32 if autocast else dtype, ampc.float64):
        leaves_ = [t.detach().to(dt).requires_grad_() for t in (q, k, v, mask)]
        with ampc.autocast(DEVICE, dtype=dtype, enabled=autocast and dt is ampc.float32):
            y = ampc.nn.functional.scaled_dot_product_attention(*leaves_[:3], attn_mask=leaves_[3])
        y.backward(slope.to(y.dtype))
        results.append([y.detach()] + [t.grad for t in leaves_])
    for got, want in zip(*results):
        assert (got.double() - want).abs().max().item() <= 8 * ampc.finfo(dtype).eps * want.abs().max().item()


@pytest.mark.parametrize("dtype", [ampc.float64, ampc.float32, ampc.bfloat16, ampc.float16], ids=str)
def test_power_pooling_of_zeros_and_of_numbers_whose_powers_16_bits_do_not_hold(dtype):
    x = ampc.tensor([[[0.0, 0.0, 3.0, -4.0, 3e-5, 4e-5, 300.0, 400.0]]], dtype=ampc.float64).to(dtype).requires_grad_()
    y = ampc.nn.functional.lp_pool1d(x, 2, 2)
    y.sum().backward()
    eps = ampc.finfo(dtype).eps
    assert np.allclose(y.detach().double().numpy(force=True), [[[0, 5, 5e-5, 500]]], rtol=4 * eps, atol=ampc.finfo(ampc.float16).smallest_normal * 2.0**-10)
    assert np.allclose(x.grad.double().numpy(force=True), [[[0, 0, 0.6, -0.8, 0.6, 0.8, 0.6, 0.8]]], rtol=max(4 * eps, 0.01 * (dtype is ampc.float16)))


@pytest.mark.parametrize("kind", ["added", "kept"])
@pytest.mark.parametrize("way", ["fused", "mask with a gradient", "keys of all heads"])
def test_a_query_that_looks_at_nothing_gets_zeros_and_gives_none(kind, way):
    """By any way, and in second derivatives."""
    q, k, v = (ampc.tensor(real(2, h, n, 8), dtype=ampc.float64).requires_grad_() for h, n in ((2, 3), (1 if way == "keys of all heads" else 2, 4), (2, 4)))
    kept = ampc.tensor(np.array([[False] * 4, [True, False, True, True], [True] * 4]))
    mask = kept if kind == "kept" else ampc.zeros(3, 4, dtype=ampc.float64).masked_fill(~kept, -float("inf"))
    if way == "mask with a gradient" and kind == "added":
        mask.requires_grad_()
    y = ampc.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert (y[:, :, 0] == 0).all() and ampc.isfinite(y).all()
    grads = ampc.autograd.grad(y.square().sum(), [q, k, v], create_graph=True)
    assert (grads[0][:, :, 0] == 0).all() and all(ampc.isfinite(g).all() for g in grads)
    again = ampc.autograd.grad(sum(g.square().sum() for g in grads), [q, k, v])
    assert (again[0][:, :, 0] == 0).all() and all(ampc.isfinite(g).all() for g in again)


INF = float("inf")


def scores_of_minus_infinity(lib, way, cause, dtype):
    """The result and the gradients of attention whose query 1 has no score but -inf, or, of ``keys``, no query has."""
    draw = np.random.default_rng(4)
    q, k, v = (lib.tensor(draw.standard_normal((2, 4, n, 8))).to(getattr(lib, dtype)) for n in (5, 5, 5))
    if cause == "a query":
        q[:, :, 1], k = -INF, k.abs()
    elif cause == "keys":
        q, k[...] = q.abs(), -INF
    mask = {"added": lambda: lib.zeros(5, 5).to(q.dtype), "kept": lambda: lib.ones(5, 5, dtype=lib.bool)}.get(way.split()[0], lambda: None)()
    if cause == "the mask":
        mask[1] = -INF if mask.is_floating_point() else False
    options = {"is_causal": "causal" in way, "dropout_p": 1e-9 * ("dropout" in way), "enable_gqa": "shared keys" in way}
    if options["enable_gqa"]:
        k, v = k[:, :2], v[:, :2]
    leaves = [t.requires_grad_() for t in (q, k, v, *([mask] if "trained" in way else []))]
    y = lib.nn.functional.scaled_dot_product_attention(*leaves[:3], attn_mask=mask, **options)
    return [y, *lib.autograd.grad(y.square().sum(), leaves)]


WAYS = ["alone", "dropout", "causal", "causal dropout", "shared keys", "shared keys dropout", "added", "added trained", "added dropout", "kept", "kept dropout"]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("cause", ["a query", "keys", "the mask"])
@pytest.mark.parametrize("way", WAYS)
def test_scores_of_minus_infinity_alone_weigh_nothing(torch, way, cause, dtype):
    """By every way, with or without a mask, as in torch; 0 times an infinite key or query is nan in a gradient."""
    if cause == "the mask" and not way.startswith(("added", "kept")):
        pytest.skip("has none")
    theirs, ours = (scores_of_minus_infinity(lib, way, cause, dtype) for lib in (torch, ampc))
    assert (ours[0][:, :, 1] == 0).all()
    eps = ampc.finfo(getattr(ampc, dtype)).eps
    for got, want in zip(ours, theirs):
        got, want = (t.detach().cpu().double().numpy() for t in (got, want))
        np.testing.assert_allclose(got, want, rtol=0, atol=32 * eps * max(1, np.nanmax(abs(want), initial=0)))


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16], ids=str)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("lead, queries, keys", [((0,), 3, 4), ((2, 0), 3, 4), ((2,), 0, 4), ((2,), 3, 0)])
def test_attention_of_nothing_has_gradients_of_nothing(lead, queries, keys, dropout, dtype):
    """Also where the result's gradient is one number for all of its values, as a sum's is, or every other column of a tensor."""
    for slope_of in (lambda y: ampc.ones_like(y)[..., :1].expand(y.shape), lambda y: ampc.ones(*y.shape[:-1], 2 * y.shape[-1], dtype=dtype)[..., ::2]):
        leaves = [ampc.ones(*lead, n, 8, dtype=dtype).requires_grad_() for n in (queries, keys, keys)]
        y = ampc.nn.functional.scaled_dot_product_attention(*leaves, dropout_p=dropout)
        assert y.shape == (*lead, queries, 8) and not y.any()
        for leaf, slope in zip(leaves, ampc.autograd.grad(y, leaves, slope_of(y))):
            assert slope.shape == leaf.shape and not slope.any()


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16], ids=str)
def test_second_derivatives_with_a_mask_of_a_wider_dtype(dtype):
    q, k, v = (ampc.tensor(real(2, n, 8)).to(dtype).requires_grad_() for n in (3, 4, 4))
    mask = ampc.tensor(real(3, 4))
    found = []
    for given in (mask, mask.to(ampc.float32)):
        first = ampc.autograd.grad(ampc.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=given).sum(), [q, k], create_graph=True)
        found.append([*first, *ampc.autograd.grad(sum(t.square().sum() for t in first), [q, k, v])])
    for got, want in zip(*found):
        assert got.dtype is dtype and (got - want).abs().max().item() <= 8 * ampc.finfo(dtype).eps * max(1.0, want.abs().max().item())


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("of_mask", ["uint8", "int64", "bool"])
def test_masks_of_integers_are_refused(torch, of_mask, dropout, dtype):
    """As in torch: they could mean numbers that are added, or truth."""
    for lib in (torch, ampc):
        x, mask = lib.ones(1, 2, 8, dtype=getattr(lib, dtype)), lib.ones(2, 2, dtype=getattr(lib, of_mask))
        with pytest.raises(RuntimeError, match="attn_mask.* bool") if of_mask != "bool" else contextlib.nullcontext():
            lib.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask, dropout_p=dropout)


@pytest.mark.parametrize("nd", [2, 3])
@pytest.mark.parametrize("how", [{"output_size": 3}, {"output_ratio": 0.6, "return_indices": True}, {"output_size": 1}])
def test_fractional_pooling(nd, how):
    """Of given numbers torch's windows, and its gradient."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    x, draws = rng.standard_normal((2, 3, 7, 8, 6)[:2 + nd]), rng.random((2, 3, nd))
    results = []
    for lib in (torch, ampc):
        layer = getattr(lib.nn, f"FractionalMaxPool{nd}d")(2, _random_samples=lib.tensor(draws), **how)
        leaf = lib.tensor(x, requires_grad=True)
        y = layer(leaf)
        y, where = y if isinstance(y, tuple) else (y, lib.zeros(1))
        (y * y).sum().backward()
        results.append([np.array(t.tolist()) for t in (y, where, leaf.grad)])
    for theirs, ours in zip(*results):
        np.testing.assert_array_equal(theirs, ours)


def test_fractional_pooling_draws():
    layer = ampc.nn.FractionalMaxPool2d(2, output_size=5)
    x = ampc.arange(400).reshape(1, 1, 20, 20).float()
    assert len({tuple(layer(x).flatten().tolist()) for _ in range(20)}) > 1
    for wrong in ({}, {"output_size": 2, "output_ratio": 0.5}, {"output_ratio": 1.5}):
        with pytest.raises(ValueError, match="output"):
            ampc.nn.FractionalMaxPool2d(2, **wrong)
    with pytest.raises(RuntimeError, match="do not fit"):
        ampc.nn.functional.fractional_max_pool2d(x, 2, 20)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("how", [{"size": (5, 11)}, {"size": (17, 9)}, {"scale_factor": 1.5}, {"size": (9, 14), "align_corners": True}, {"size": (4, 5), "antialias": True}])
def test_images_of_bytes(mode, how):
    torch = pytest.importorskip("torch")
    if mode.startswith("nearest") and ("align_corners" in how or "antialias" in how):
        pytest.skip("has neither")
    x = np.random.default_rng(1).integers(0, 256, (2, 3, 8, 13), dtype=np.uint8)
    theirs, ours = (lib.nn.functional.interpolate(lib.tensor(x), mode=mode, **how) for lib in (torch, ampc))
    assert ours.dtype is ampc.uint8
    np.testing.assert_array_equal(theirs.numpy(), ours.cpu().numpy())


# -- infinities and nan meet those windows that read them, and no other -------------------------------------------------------------


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.bfloat16, ampc.float16])
@pytest.mark.parametrize(("x_shape", "w_shape", "options"), [
    ((2, 16, 8, 8), (16, 16, 3, 3), {"padding": 1}), ((2, 16, 8, 8), (24, 16, 3, 3), {}), ((2, 16, 9, 11), (16, 16, 3, 2), {"stride": 2, "padding": 1}),
    ((2, 16, 9, 9), (16, 16, 3, 3), {"dilation": 2}), ((3, 16, 20), (16, 16, 5), {"padding": 2}), ((1, 16, 4, 5, 6), (16, 16, 2, 3, 2), {"stride": (1, 2, 1)}),
    ((2, 3, 9, 9), (16, 3, 5, 5), {}), ((2, 8, 9, 12), (8, 1, 3, 3), {"groups": 8, "padding": 1}), ((2, 32, 9, 12), (32, 16, 3, 3), {"groups": 2})], ids=str)
def test_a_value_that_is_not_finite_reaches_only_its_windows(dtype, x_shape, w_shape, options):
    f = getattr(ampc.nn.functional, f"conv{len(x_shape) - 2}d")
    for at in [(0,) * len(x_shape[2:]), tuple(n - 1 for n in x_shape[2:]), tuple(n // 2 for n in x_shape[2:]), (*(n // 2 for n in x_shape[2:-1]), x_shape[-1] - 1)]:
        for value, of_gradient in [(float("inf"), False), (float("nan"), False), (float("inf"), True)]:
            results = []
            for kind in (ampc.float64, dtype):  # products with columns, whose windows hold what they read, against the dtype's own way
                ampc.manual_seed(1)
                x, w = ampc.rand(x_shape).to(kind) + 1, ampc.rand(w_shape).to(kind) + 1
                y = f(x, w, **options)
                g = ampc.ones(y.shape, dtype=kind)
                target = g if of_gradient else x
                target[(0, 1, *(min(i, n - 1) for i, n in zip(at, target.shape[2:])))] = value
                x.requires_grad_(), w.requires_grad_()
                results.append([t.isfinite() for t in (f(x, w, **options), *ampc.autograd.grad(f(x, w, **options), (x, w), g))])
            for name, expected, got in zip(("result", "gradient of x", "gradient of w"), *results):
                assert ampc.equal(expected, got), (name, at, value, of_gradient)


@pytest.mark.parametrize("nd, stride, padding, dilation, groups", [(1, 3, 1, 1, 2), (2, (2, 1), (0, 2), 1, 1), (2, 1, 1, 2, 2), (3, 2, 1, 1, 1)])
def test_gradients_of_convolutions_as_functions(nd, stride, padding, dilation, groups):
    """torch.nn.grad's functions give what backward gives, and differentiate again."""
    size, kernel = (2, 4, *(7, 8, 6)[:nd]), (6, 4 // groups, *(3, 2, 1)[:nd])
    x, w = (ampc.tensor(real(*s), requires_grad=True) for s in (size, kernel))
    y = getattr(ampc.nn.functional, f"conv{nd}d")(x, w, None, stride, padding, dilation, groups)
    g = ampc.tensor(real(*y.shape))
    of_input, of_weight = (getattr(ampc.nn.grad, f"conv{nd}d_{name}") for name in ("input", "weight"))
    dx, dw = ampc.autograd.grad(y, (x, w), g)
    ampc.testing.assert_close(of_input(size, w, g, stride, padding, dilation, groups), dx)
    ampc.testing.assert_close(of_weight(x, kernel, g, stride, padding, dilation, groups), dw)
    assert ampc.autograd.gradcheck(lambda w: of_input(size, w, g, stride, padding, dilation, groups), (w,))
    assert ampc.nn.functional.grad is ampc.nn.grad


def test_gradients_of_convolutions_name_shapes_that_do_not_fit():
    g = ampc.zeros(2, 6, 5, 7)
    for size in ((2, 4, 9, 8), (2, 5, 7, 8), (2, 4, 7)):  # more positions than the gradient's, other channels, too few dimensions
        with pytest.raises(RuntimeError, match="expected 4 sizes|`grad_output` is"):
            ampc.nn.grad.conv2d_input(size, ampc.zeros(6, 4, 3, 2), g)
        with pytest.raises(RuntimeError, match="`grad_output` is"):
            ampc.nn.grad.conv2d_weight(ampc.zeros(size), (6, 4, 3, 2), g)
    with pytest.raises(RuntimeError, match="strides of at least 1"):
        ampc.nn.grad.conv2d_weight(ampc.zeros(2, 4, 7, 8), (6, 4, 3, 2), g, stride=0)
