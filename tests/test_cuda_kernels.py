"""The speed of CUDA kernels by design, without a GPU: launches and bytes are counted, and results are compared with float64 at sizes that
take several blocks and leave odd tails. Bytes are those of `--device ptx`."""

import math

import numpy as np
import pytest
from gpu_measures import COUNTS_BYTES, as_float64, bytes_of, close, drawn, launches, multiplied, same_bits_in_any_order
from kernel_traffic import kept, rows
from where import ON_GPU, SIMULATED, simulator

import ampc

pytestmark = pytest.mark.skipif(not ON_GPU, reason="needs --device sim, ptx or cuda")
F = ampc.nn.functional


# -- batch norm, group norm ---------------------------------------------------------------------------------------


def norm_reference(x, g, w, b, axes, count_of, eps=1e-5):
    x, g = np.ascontiguousarray(x), np.ascontiguousarray(g)  # whose sums have the fewest roundings
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    hat, rstd = (x - mean) / np.sqrt(var + eps), 1 / np.sqrt(var + eps)
    gw = g * w
    dx = rstd * (gw - gw.mean(axes, keepdims=True) - hat * (gw * hat).mean(axes, keepdims=True))
    return hat * w + b, dx, (g * hat).sum(count_of), g.sum(count_of), mean, var


SHAPES = [(5, 3, 52, 44), (27, 3, 14, 14), (3, 5, 33, 31), (9, 70, 7, 7), (700, 37), (2, 1, 4099), (4, 2, 6, 10, 12)]


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.bfloat16, ampc.float64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batch_norm(shape, dtype, last):
    """Forward, backward and running statistics; values far from 0 beside how they vary."""
    x, g = (drawn(*shape, dtype=dtype) for _ in range(2))
    x = (x * 3 + 40).to(dtype)
    if last:
        x = x.contiguous(memory_format=ampc.channels_last) if len(shape) == 4 else x.transpose(0, -1).contiguous().transpose(0, -1)
    own = ampc.float64 if dtype is ampc.float64 else ampc.float32  # of parameters and statistics
    w, b = drawn(shape[1], dtype=own) + 2, drawn(shape[1], dtype=own)
    axes, wide = tuple(d for d in range(len(shape)) if d != 1), (1, -1) + (1,) * (len(shape) - 2)
    y, dx, dw, db, mean, var = norm_reference(x.double().numpy(force=True), g.double().numpy(force=True), w.double().numpy(force=True).reshape(wide),
                                              b.double().numpy(force=True).reshape(wide), axes, axes)
    running = [ampc.zeros(shape[1], dtype=own), ampc.ones(shape[1], dtype=own)]
    leaves = [t.detach().requires_grad_() for t in (x, w, b)]
    out = F.batch_norm(leaves[0], *running, *leaves[1:], True)
    out.backward(g)
    n = x.numel() // shape[1]
    close(out, y, dtype), close(leaves[0].grad, dx, dtype)
    close(leaves[1].grad, dw, ampc.float32, 64), close(leaves[2].grad, db, ampc.float32, 64)
    close(running[0], 0.1 * mean.reshape(-1), ampc.float32), close(running[1], 0.9 + 0.1 * var.reshape(-1) * n / (n - 1), ampc.float32)
    still = F.batch_norm(leaves[0], *running, *leaves[1:])
    here, there = (s.double().numpy(force=True).reshape(wide) for s in running)
    scale = w.double().numpy(force=True).reshape(wide) / np.sqrt(there + 1e-5)
    close(still, (x.double().numpy(force=True) - here) * scale + b.double().numpy(force=True).reshape(wide), dtype)
    close(ampc.autograd.grad(still, leaves[0], g)[0], g.double().numpy(force=True) * scale, dtype)


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16], ids=str)
@pytest.mark.parametrize(("shape", "groups"), [((3, 6, 60, 52), 2), ((3, 6, 14, 14), 2), ((5, 8, 7, 7), 4), ((4, 12), 3), ((2, 4, 4099), 4)], ids=str)
def test_group_norm(shape, groups, dtype):
    x, g, w, b = (drawn(*shape, dtype=dtype) * 3 + 9).to(dtype), drawn(*shape, dtype=dtype), drawn(shape[1], dtype=dtype), drawn(shape[1], dtype=dtype)
    wide = (1, groups, shape[1] // groups, 1)
    parts = [t.double().numpy(force=True) for t in (x, g)] + [np.repeat(t.double().numpy(force=True)[None], 1, 0) for t in (w, b)]
    xs, gs = (p.reshape(shape[0], groups, shape[1] // groups, -1) for p in parts[:2])
    y, dx, dw, db, _, _ = norm_reference(xs, gs, parts[2].reshape(wide), parts[3].reshape(wide), (2, 3), (0, 3))
    leaves = [t.detach().requires_grad_() for t in (x, w, b)]
    out = F.group_norm(leaves[0], groups, *leaves[1:])
    out.backward(g)
    close(out, y.reshape(shape), out.dtype), close(leaves[0].grad, dx.reshape(shape), dtype)
    close(leaves[1].grad, dw.reshape(-1), dtype, 64), close(leaves[2].grad, db.reshape(-1), dtype, 64)


def test_a_value_that_is_not_finite_spoils_its_channel_alone():
    x = drawn(4, 3, 50, 40)
    x[1, 1, 3, 3] = float("inf")
    mean, var = ampc.zeros(3), ampc.ones(3)
    y = F.batch_norm(x, mean, var, training=True, momentum=1.0)
    assert y.isnan().sum((0, 2, 3)).tolist() == [0, 4 * 50 * 40, 0]
    assert mean.isinf().tolist() == [False, True, False] and var.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("norm", [lambda x, w: F.batch_norm(x, None, None, w, w, True), lambda x, w: F.group_norm(x, 2, w, w)], ids=["batch_norm", "group_norm"])
@pytest.mark.parametrize("shape", [(2, 4, 0), (0, 4, 3), (0, 4)], ids=str)
def test_norms_of_no_values(norm, shape):
    x, w = ampc.zeros(shape, device="cuda", requires_grad=True), ampc.ones(4, device="cuda", requires_grad=True)
    y = norm(x, w)
    y.sum().backward()
    assert y.shape == x.grad.shape == shape and w.grad.tolist() == [0.0] * 4


def batch_norm_step(shape, dtype=ampc.float16, training=True, layout=None):
    x, g, w, b = drawn(*shape, dtype=dtype, layout=layout), drawn(*shape, dtype=dtype), drawn(shape[1]), drawn(shape[1])
    mean, var = ampc.zeros(shape[1]), ampc.ones(shape[1])
    leaves = [t.requires_grad_() for t in (x, w, b)]
    forward = lambda: F.batch_norm(leaves[0], mean, var, *leaves[1:], training)  # noqa: E731
    y = forward()
    return forward, lambda: ampc.autograd.grad(y, leaves, g, retain_graph=True), x.nbytes


@pytest.mark.parametrize(("shape", "training", "counts"), [((5, 3, 52, 44), True, (3, 3)), ((4, 3, 8, 8), True, (2, 2)), ((5, 3, 52, 44), False, (2, 3))], ids=str)
def test_launches_of_batch_norm(shape, training, counts):
    """The statistics, joining their parts where there are several, the result."""
    forward, backward, _ = batch_norm_step(shape, training=training)
    if SIMULATED:
        assert (launches(forward)[0], launches(backward)[0]) == counts


@pytest.mark.skipif(not COUNTS_BYTES, reason="--device ptx counts bytes")
@pytest.mark.parametrize(("layout", "more"), [(ampc.contiguous_format, 1.04), (ampc.channels_last, 1.1)], ids=str)
def test_bytes_of_batch_norm(layout, more):
    """x is read for the statistics and for the result; backward, x and g are read for the sums and for the result. The rest are sums of parts."""
    forward, backward, size = batch_norm_step((2, 32, 64, 64), layout=layout)
    assert bytes_of(forward) <= 3 * more * size and bytes_of(backward) <= 5 * more * size


def test_batch_norm_gives_the_same_bits():
    for layout in (ampc.contiguous_format, ampc.channels_last):
        forward, backward, _ = batch_norm_step((5, 3, 52, 44), layout=layout)
        same_bits_in_any_order(lambda f=forward, b=backward: [f(), *b()])


# -- sums of rows and columns, joins, the look over gradients -------------------------------------------------------------


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.bfloat16, ampc.float64], ids=str)
@pytest.mark.parametrize(("shape", "dim"), [((301, n), 1) for n in (1, 3, 8, 9, 64, 68, 700, 1024, 1025, 9001)] +
                         [((n, width), 0) for n, width in ((5, 4), (700, 36), (1301, 132), (259, 1003))] +
                         [((3, 5, 28, 26), (0, 2, 3)), ((9, 3, 7, 7), (0, 2, 3)), ((4, 6, 5, 8), (1, 3)), ((70001,), 0)], ids=str)
def test_sums(shape, dim, dtype):
    """Rows that share a block, long ones in parts, columns by runs and one by one, a convolution's bias."""
    x = drawn(*shape, dtype=dtype)
    wide, n = as_float64(x)[0], x.numel() // x.sum(dim).numel()
    got = x.sum(dim, dtype=ampc.float64 if dtype is ampc.float64 else ampc.float32)
    assert abs(got.double().numpy(force=True) - wide.sum(dim)).max() <= 8 * n**0.5 * ampc.finfo(got.dtype).eps * 4
    axes = dim if isinstance(dim, tuple) else (dim,)
    most = x.amax(axes)
    assert np.array_equal(as_float64(most)[0], wide.max(dim))
    same_bits_in_any_order(lambda: [x.sum(dim), x.var(dim), x.amax(axes)])


def test_launches_of_sums():
    """Short rows, and a whole that is joined from parts."""
    if SIMULATED:
        for shape, dim, count in (((4000, 12), 1, 1), ((700, 1000), 1, 1), ((2, 9000), 1, 2), ((1301, 132), 0, 2), ((100, 132), 0, 1)):
            x = drawn(*shape)
            assert launches(lambda t=x, d=dim: t.sum(d))[0] == count, shape


@pytest.mark.skipif(not COUNTS_BYTES, reason="--device ptx counts bytes")
@pytest.mark.parametrize(("shape", "dim"), [((512, 1024), 0), ((1024, 512), 1), ((4, 16, 64, 64), (0, 2, 3)), ((8192, 32), 1)], ids=str)
def test_bytes_of_sums(shape, dim):
    x = drawn(*shape, dtype=ampc.float16)
    assert bytes_of(lambda: x.sum(dim)) <= 1.15 * x.nbytes


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.int64, ampc.bool, ampc.float64], ids=str)
@pytest.mark.parametrize(("shapes", "dim"), [([(3, 8), (5, 8), (2, 8)], 0), ([(4, 8), (4, 16)], 1), ([(5, 3), (5, 7), (5, 1)], 1), ([(7,)] * 200, 0),
                                             ([(2, 300, 8), (2, 41, 8)], 1), ([(1,), (70001,), (2,)], 0)], ids=str)
def test_joins(shapes, dim, dtype):
    """By units of all sizes, from odd addresses, and of a part that has another dtype."""
    parts = [(ampc.rand(*shape) * 9).to(dtype) for shape in shapes]
    want = np.concatenate([p.numpy(force=True) for p in parts], dim)
    assert np.array_equal(ampc.cat(parts, dim).numpy(force=True), want)
    odd = [ampc.cat([p.reshape(-1)[:1], p.reshape(-1)])[1:].reshape(p.shape) for p in parts]  # one element off a boundary
    assert np.array_equal(ampc.cat(odd, dim).numpy(force=True), want)
    mixed = [parts[0].float(), *parts[1:]]
    assert np.array_equal(ampc.cat(mixed, dim).double().numpy(force=True), want.astype(np.float64))


def test_many_parts_are_one_launch():
    parts = [drawn(12) for _ in range(90)]
    assert launches(lambda: ampc.cat(parts))[0] in (1, None)


def gradients(dtype, sizes=(3, 70, 4096, 70001, 131072 + 9, 1)):
    return [drawn(n, dtype=dtype) for n in sizes]


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.bfloat16, ampc.float64], ids=str)
def test_the_look_over_gradients(dtype):
    """Squares, the largest, infinities, nans, what float16 loses, the first that is not finite: of tensors of one element and of several pieces."""
    grads = gradients(dtype)
    grads[2][4095], grads[3][70000], grads[3][9] = float("inf"), float("nan"), float("-inf")
    grads[1][:20] = 1e-5
    table = ampc._C._cuda_grad_stats(grads)[0].numpy(force=True)
    for row, wide in zip(table, as_float64(*grads)):
        bad, finite = np.flatnonzero(~np.isfinite(wide)), wide[np.isfinite(wide)]
        assert row[1] == np.float32(abs(finite).max()) and row[2] == np.isinf(wide).sum() and row[3] == np.isnan(wide).sum()
        assert row[4] == ((wide != 0) & (abs(wide) < 2.0**-14)).sum() and row[5] == (bad[0] + 1 if len(bad) else 0)
        assert len(bad) or abs(row[0] - (wide**2).sum()) <= 1e-6 * (wide**2).sum()
    same_bits_in_any_order(lambda: [ampc._C._cuda_grad_stats(grads)[0]])


@pytest.mark.parametrize("scale", [1e30, 1e-30, 1e19, 3e-13])
def test_norms_of_large_and_small_gradients(scale):
    """Squares that float32 does not hold."""
    grads = [drawn(5000) * scale, drawn(77) * scale]
    grads[0][8:16] *= 1e-6
    want = np.sqrt(sum((w**2).sum() for w in as_float64(*grads)))
    assert abs(ampc.nn.utils.get_total_norm(grads).item() - want) <= 1e-6 * want


def test_the_look_over_gradients_is_two_launches():
    grads = gradients(ampc.float16)
    assert launches(lambda: ampc._C._cuda_grad_stats(grads)[0])[0] in (2, None)


@pytest.mark.skipif(not COUNTS_BYTES, reason="--device ptx counts bytes")
def test_bytes_of_the_look_over_gradients():
    grads = gradients(ampc.float16)
    assert bytes_of(lambda: ampc._C._cuda_grad_stats(grads)[0]) <= 1.1 * sum(g.nbytes for g in grads)


# -- elementwise ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.bfloat16], ids=str)
def test_gelu(dtype):
    """Within a rounding or two of float32 everywhere; far from 0 it is 0 or the value itself."""
    x = ampc.cat([ampc.linspace(-8, 8, 2003), ampc.tensor([0.0, -1e-6, 3e4, -3e4])]).to(dtype).requires_grad_()
    wide, y, limits = as_float64(x)[0], F.gelu(x), ampc.finfo(dtype)
    normal = np.array([math.erfc(-v / math.sqrt(2)) / 2 for v in wide])
    room = limits.eps * (abs(wide * normal) + limits.smallest_normal) + 2 * ampc.finfo(ampc.float32).eps * np.minimum(abs(wide), 8)
    assert np.all(abs(as_float64(y)[0] - wide * normal) <= room) and y[-2:].tolist() == [x[-2].item(), 0]
    y.sum().backward()
    close(x.grad, normal + wide * np.exp(-wide * wide / 2) / math.sqrt(2 * math.pi), dtype, 2)
    inf = ampc.tensor([float("inf"), -float("inf"), float("nan")]).to(dtype)
    assert F.gelu(inf)[0].item() == float("inf") and F.gelu(inf)[1:].isnan().all().item()


# -- rows, losses, additions at one index ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16], ids=str)
@pytest.mark.parametrize(("rows", "n"), [(301, 40), (131, 96), (700, 260), (3, 1030), (1200, 7), (37, 1024), (9, 2040), (5, 8192), (3, 8200)], ids=str)
def test_layer_norm_and_its_gradients(rows, n, dtype):
    """Rows that registers of one warp or more hold, and those that they do not, in runs and one by one."""
    x, g, w = drawn(rows, n, dtype=dtype) + 5, drawn(rows, n, dtype=dtype), drawn(n, dtype=dtype)
    leaves = [t.detach().to(dtype).requires_grad_() for t in (x, w, drawn(n))]
    y = F.layer_norm(leaves[0], (n,), *leaves[1:])
    y.backward(g)
    wide, gs, ws, bs = as_float64(leaves[0], g, *leaves[1:])
    std = np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    hat, gw = (wide - wide.mean(1, keepdims=True)) / std, gs * ws
    close(y, hat * ws + bs, dtype, 16)
    close(leaves[0].grad, (gw - gw.mean(1, keepdims=True) - hat * (gw * hat).mean(1, keepdims=True)) / std, dtype, 16)
    close(leaves[1].grad, (gs * hat).sum(0), dtype, 64), close(leaves[2].grad, gs.sum(0), dtype, 64)
    same_bits_in_any_order(lambda: ampc.autograd.grad(F.layer_norm(leaves[0], (n,), *leaves[1:]), leaves, g))


def log_softmax_reference(x):
    above = x - x.max(1, keepdims=True)
    return above - np.log(np.exp(above).sum(1, keepdims=True))


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.float64], ids=str)
@pytest.mark.parametrize("n", [50, 104, 1024, 1960, 4096, 8184, 12280, 20003])
def test_softmax_of_rows(n, dtype):
    """Rows that registers hold, and those that they do not, in runs and one by one; rising and falling values, and what is not finite."""
    x = drawn(5, n, dtype=dtype) * 4
    x[1] = ampc.linspace(-9, 9, n).to(dtype)
    x[2] = ampc.linspace(9, -9, n).to(dtype)
    x[3, :n - 1] = float("-inf")
    x[4] -= 300
    wide, g = as_float64(x)[0], drawn(5, n, dtype=dtype)
    with np.errstate(invalid="ignore"):
        want = log_softmax_reference(wide)
        lse = wide[:, :1] - want[:, :1]
    lse[3] = wide[3, -1]
    x.requires_grad_()
    finite = [0, 1, 2, 4]
    for f, y, slope in ((ampc.softmax, np.exp(want), lambda g, y: y * (g - (g * y).sum(1, keepdims=True))),
                        (ampc.log_softmax, want, lambda g, y: g - np.exp(y) * g.sum(1, keepdims=True))):
        got = f(x, 1)
        close(got[finite], y[finite], dtype, 16)
        assert np.array_equal(as_float64(got[3])[0][-1:], y[3][-1:])
        dx = ampc.autograd.grad(got, x, g, retain_graph=True)[0]
        close(dx[finite], slope(as_float64(g)[0], as_float64(got)[0])[finite], dtype, 64)
    close(x.logsumexp(1), lse[:, 0], dtype, 8)
    for bad, expected in ((float("inf"), float("inf")), (float("nan"), float("nan"))):
        row = drawn(1, n, dtype=dtype)
        row[0, n // 2] = bad
        assert np.array_equal(as_float64(row.logsumexp(1))[0], [expected], equal_nan=True)
        assert row.softmax(1).isnan().all().item() and row.log_softmax(1).isnan().all().item()
    empty = ampc.full((1, n), float("-inf")).to(dtype)
    assert empty.logsumexp(1).item() == float("-inf") and empty.softmax(1).isnan().all().item() and empty.log_softmax(1).isnan().all().item()
    same_bits_in_any_order(lambda: [ampc.softmax(x, 1), ampc.log_softmax(x, 1), x.logsumexp(1)])


@pytest.mark.skipif(not COUNTS_BYTES, reason="--device ptx counts bytes")
def test_bytes_of_softmax_over_many_classes():
    """A row that registers do not hold is read twice; its gradient's pass for the sum reads the gradient alone."""
    x = drawn(6, 20000, dtype=ampc.float16).requires_grad_()
    y = ampc.log_softmax(x, 1)
    g = drawn(6, 20000, dtype=ampc.float16)
    assert bytes_of(lambda: ampc.log_softmax(x, 1)) <= 3.05 * x.nbytes and bytes_of(lambda: x.logsumexp(1)) <= 1.05 * x.nbytes
    assert bytes_of(lambda: ampc.autograd.grad(y, x, g, retain_graph=True)) <= 4.05 * x.nbytes


def entropy_reference(x, target, w, g, reduction, mix):
    """Loss and gradient of logits [N, C, ...], in float64; samples of class -100 do not count."""
    classes, order = x.shape[1], np.moveaxis(np.arange(x.size).reshape(x.shape), 1, -1).reshape(-1)
    wide, at = x.reshape(-1)[order].reshape(-1, classes), target.reshape(-1)
    log_p, counted = log_softmax_reference(wide), at != -100
    at = np.where(counted, at, 0)
    own = w[at] * counted
    q = (1 - mix) * own[:, None] * np.eye(classes)[at] + mix / classes * counted[:, None] * w  # the weighted target
    each, scale = -(q * log_p).sum(1), own.sum() if reduction == "mean" else 1
    slope = (np.exp(log_p) * q.sum(1, keepdims=True) - q) * (np.broadcast_to(g.reshape(-1), at.shape) / scale)[:, None]
    dx = np.zeros(x.size)
    dx[order] = slope.reshape(-1)
    return each.reshape(target.shape) if reduction == "none" else each.sum() / scale, dx.reshape(x.shape)


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.bfloat16, ampc.float64], ids=str)
@pytest.mark.parametrize(("reduction", "weighted", "mix"), [("mean", True, 0), ("sum", False, 0.1), ("none", True, 0.2)])
@pytest.mark.parametrize("shape", [(700, 33), (3, 5, 40, 9), (17, 20001), (9, 4096), (8300, 3), (2, 300, 11)], ids=str)
def test_cross_entropy(shape, reduction, weighted, mix, dtype):
    """Rows of a warp and of a block, in runs and one by one; classes that lie apart; samples that blocks join in parts."""
    x, target = (drawn(*shape) * 3).to(dtype).requires_grad_(), ampc.randint(0, shape[1], shape[:1] + shape[2:])
    target[0] = -100
    own = dtype if dtype is ampc.float64 else ampc.float32
    w = ampc.rand(shape[1]).to(own) + 0.5 if weighted else None
    call = lambda: F.cross_entropy(x, target, w, reduction=reduction, label_smoothing=mix)  # noqa: E731
    loss = call()
    g = drawn(*loss.shape, dtype=loss.dtype)
    got = ampc.autograd.grad(loss, x, g, retain_graph=True)[0]
    want, slope = entropy_reference(as_float64(x)[0], target.numpy(force=True), as_float64(w)[0] if weighted else np.ones(shape[1]), as_float64(g)[0], reduction, mix)
    assert loss.dtype is dtype and got.dtype is dtype
    close(loss, want, dtype, 8), close(got, slope, dtype, 16)
    same_bits_in_any_order(lambda: [call(), got])
    if x.numel() < 30000 and dtype in (ampc.float32, ampc.float64):  # what differentiates again
        close(ampc.autograd.grad(loss, x, g, create_graph=True)[0], slope, dtype, 16)


def test_cross_entropy_of_strided_logits():
    x, target = drawn(40, 2, 33), ampc.randint(0, 33, (40,))
    for part in (x[:, 1], x[:, 0].flip(1), drawn(33, 40).T, drawn(40, 66)[:, ::2]):
        leaf = part.detach().requires_grad_()
        loss = F.cross_entropy(leaf, target)
        want, slope = entropy_reference(as_float64(part)[0], target.numpy(force=True), np.ones(33), np.ones(()), "mean", 0)
        close(loss, want, ampc.float32), close(ampc.autograd.grad(loss, leaf)[0], slope, ampc.float32)


def test_cross_entropy_of_what_is_not_finite():
    """As the composition of log_softmax and nll_loss has it; large logits keep their differences."""
    inf = float("inf")
    rows = ampc.tensor([[inf, 0, 1], [0, inf, 1], [-inf, -inf, -inf], [0, -inf, 1], [-inf, 0, 1], [float("nan"), 0, 1], [1e5, 1e5 + 1, 1e5 - 1]])
    target = ampc.tensor([0, 0, 1, 1, 1, 1, 1])
    want = F.nll_loss(rows.double().log_softmax(1), target, reduction="none")
    for x in (rows, rows.double()):
        leaf = x.requires_grad_()
        loss = F.cross_entropy(leaf, target, reduction="none")
        assert np.allclose(*as_float64(loss, want), rtol=1e-6, equal_nan=True)
        dx = ampc.autograd.grad(loss.sum(), leaf)[0]
        assert dx[6].sum().abs().item() < 1e-6 and dx[[0, 1, 2, 5]].isnan().all().item()


def test_cross_entropy_under_autocast_reads_16_bits_in_place():
    """One read of the logits, one of them again for their gradient, no copy; the loss is float32."""
    x, target = drawn(300, 520, dtype=ampc.float16).requires_grad_(), ampc.randint(0, 520, (300,))
    with ampc.autocast("cuda", dtype=ampc.float16):
        count, loss = launches(lambda: F.cross_entropy(x, target))
    assert loss.dtype is ampc.float32 and count in (2, None)
    one = ampc.ones(())
    count, (dx,) = launches(lambda: ampc.autograd.grad(loss, x, one, retain_graph=True))
    assert dx.dtype is ampc.float16 and count in (1, None)
    want, slope = entropy_reference(as_float64(x)[0], target.numpy(force=True), np.ones(520), np.ones(()), "mean", 0)
    close(loss, want, ampc.float32), close(dx, slope, ampc.float16)


def test_a_class_that_there_is_none_of():
    x = drawn(5, 3)
    with pytest.raises(IndexError, match="3"):
        F.cross_entropy(x, ampc.tensor([0, 1, 3, 0, 0]))
        ampc.cuda.synchronize()


@pytest.mark.skipif(not COUNTS_BYTES, reason="--device ptx counts bytes")
@pytest.mark.parametrize("dtype", [ampc.float16, ampc.float32], ids=str)
def test_bytes_of_cross_entropy_over_many_classes(dtype):
    """Each logit is read once, and once more for its gradient."""
    x, target = drawn(6, 20000, dtype=dtype).requires_grad_(), ampc.randint(0, 20000, (6,))
    loss = F.cross_entropy(x, target)
    assert bytes_of(lambda: F.cross_entropy(x, target)) <= 1.05 * x.nbytes
    assert bytes_of(lambda: ampc.autograd.grad(loss, x, retain_graph=True)) <= 2.05 * x.nbytes


@pytest.mark.skipif(not COUNTS_BYTES, reason="--device ptx counts bytes")
def test_bytes_of_rows_that_lie_across():
    """Classes of an image lie apart, its pixels side by side: a thread takes a row."""
    x, target = drawn(2, 21, 32, 32, dtype=ampc.float16), ampc.randint(0, 21, (2, 32, 32))
    assert bytes_of(lambda: F.cross_entropy(x, target)) <= 1.1 * (x.nbytes + 8 * 6 * target.numel())  # the class; the logarithm, loss and weight, which are joined
    assert bytes_of(lambda: ampc.softmax(x, 1)) <= 3.1 * x.nbytes


def sum_at(index, g, shape):
    total = np.zeros(shape)
    np.add.at(total, index.numpy(force=True), as_float64(g)[0])
    return total


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.float64], ids=str)
@pytest.mark.parametrize("kind", ["frequent", "all the same", "mixed", "few", "padding"])
def test_embedding_gradient_of_frequent_tokens(kind, dtype):
    """Runs of one token that end within a chunk of items, at its border, and go over several."""
    n = 100 if kind == "few" else 1500
    index = {"frequent": ampc.randint(0, 3, (n,)), "all the same": ampc.full((n,), 7), "mixed": ampc.arange(n) // 128, "few": ampc.randint(0, 9, (n,)),
             "padding": ampc.randint(0, 2, (n,))}[kind].to(ampc.int64)
    table, g = drawn(13, 6, dtype=dtype).requires_grad_(), drawn(n, 6, dtype=dtype)
    padding = 1 if kind == "padding" else None
    backward = lambda: ampc.autograd.grad(F.embedding(index, table, padding), table, g)  # noqa: E731
    want = sum_at(index, g, (13, 6))
    start = drawn(13, 6, dtype=dtype)
    close(start.index_add(0, index, g), as_float64(start)[0] + want, dtype, 16)
    if padding is not None:
        want[padding] = 0
    close(backward()[0], want, dtype, 16)
    same_bits_in_any_order(backward)


# -- sorts --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.float64, ampc.int64, ampc.uint8], ids=str)
@pytest.mark.parametrize("shape", [(700, 5), (3, 1), (40, 129), (5, 512), (2, 4096), (2, 4097), (1, 3, 1000)], ids=str)
def test_sorts(shape, dtype):
    """Rows that share a block, have one, and take the radix passes; many equal values, whose places stay in order; nan goes last."""
    x = ampc.randint(0, 40, shape).to(dtype)
    if x.is_floating_point():
        x = (x - 20) / 8
        x[..., 0] = float("nan")
        x[..., -1] = float("-inf")
        x[0, shape[1] // 2] = -0.0
    wide = x.double().numpy(force=True)
    rising = np.argsort(wide, -1, kind="stable")
    falling = shape[-1] - 1 - np.argsort(np.flip(wide, -1), -1, kind="stable")[..., ::-1]
    nans = np.isnan(wide)
    for descending, want in ((False, rising), (True, np.where(nans.any(), np.argsort(np.where(nans, -np.inf, -wide), -1, kind="stable"), falling))):
        values, places = x.sort(-1, descending)
        assert np.array_equal(places.numpy(force=True), want)
        assert np.array_equal(values.double().numpy(force=True), np.take_along_axis(wide, want, -1), equal_nan=True)
        k = min(3, shape[-1])
        top, at = x.topk(k, -1, largest=descending)
        assert np.array_equal(at.numpy(force=True), want[..., :k]) and np.array_equal(top.double().numpy(force=True), values[..., :k].double().numpy(force=True), equal_nan=True)
    turned = x.transpose(0, -1).contiguous().transpose(0, -1)
    assert all(a.equal(b) for a, b in zip(turned.nan_to_num(9).sort(-1), x.nan_to_num(9).sort(-1)))
    same_bits_in_any_order(lambda: [*x.sort(-1)])


def test_launches_of_sorts():
    """One for rows that shared memory holds, and for the keys of few additions."""
    if SIMULATED:
        for shape in ((4, 2048), (900, 7), (1, 4096)):
            x = drawn(*shape)
            assert launches(lambda t=x: t.sort(1))[0] == launches(lambda t=x: t.topk(3, 1))[0] == 1
        start, index, g = drawn(13, 6), ampc.randint(0, 13, (2000,)), drawn(2000, 6)
        assert launches(lambda: start.index_add(0, index, g))[0] == 4  # keys, their order, runs, their pieces


@pytest.mark.skipif(not COUNTS_BYTES, reason="--device ptx counts bytes")
def test_bytes_of_sorts():
    """A value is read for its key and where it goes; the values and int64 places are written."""
    x = drawn(4, 2048, dtype=ampc.float16)
    assert bytes_of(lambda: x.sort(1)) <= 1.05 * (3 * x.nbytes + 8 * x.numel())


# -- recurrent layers -----------------------------------------------------------------------------------------------------------


def recurrent(kind, dtype=ampc.float32, inputs=12, units=20, **how):
    """A layer, the same one on the CPU, and the number of states that it has."""
    more = {"nonlinearity": kind.lower()} if kind in ("Tanh", "Relu") else {}
    here = getattr(ampc.nn, "RNN" if more else kind)(inputs, units, **more, **how).to(dtype)
    there = getattr(ampc.nn, "RNN" if more else kind)(inputs, units, device="cpu", **more, **how).to(dtype)
    there.load_state_dict(here.state_dict())
    return here, there, 2 if kind == "LSTM" else 1


def run_recurrent(m, x, states, slopes, lengths=None):
    """Results, last states, and the gradients of input, states and parameters."""
    leaves = [t.detach().requires_grad_() for t in (x, *states)]
    given = ampc.nn.utils.rnn.pack_padded_sequence(leaves[0], lengths) if lengths else leaves[0]
    y, last = m(given, tuple(leaves[1:]) if len(states) > 1 else leaves[1])
    y = y.data if lengths else y
    ends = [y, *(last if len(states) > 1 else [last])]
    slopes = [slopes[0].reshape(-1, y.shape[-1])[:y.shape[0]] if lengths else slopes[0], *slopes[1:]]
    return [*ends, *ampc.autograd.grad(ends, [*leaves, *m.parameters()], [g.to(e.dtype) for g, e in zip(slopes, ends)])]


KINDS = ["LSTM", "GRU", "Tanh", "Relu"]


@pytest.mark.parametrize(("dtype", "units"), [(ampc.float32, 24), (ampc.float64, 24), (ampc.float16, 24), (ampc.bfloat16, 24), (ampc.float16, 48), (ampc.bfloat16, 144)],
                         ids=str)
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("kind", KINDS)
def test_recurrent_layers_compute_as_on_the_cpu(kind, packed, dtype, units):
    """Both directions, from states of their own, more sequences than a block takes; step by step, and in 16 bits all steps in one launch, where a warp
    has no, one or several tiles of units. States stay float32, so errors of 16 bits are few roundings."""
    steps, batch = 4, 19
    here, there, count = recurrent(kind, dtype, 10, units, bidirectional=True)
    x, states = drawn(steps, batch, 10, dtype=dtype), [drawn(2, batch, units, dtype=dtype) / 2 for _ in range(count)]
    slopes = [drawn(steps, batch, 2 * units, dtype=dtype), *(drawn(2, batch, units, dtype=dtype) for _ in range(count))]
    lengths = [max(1, steps - i // 2) for i in range(batch)] if packed else None
    mine = run_recurrent(here, x, states, slopes, lengths)
    cpu = [t.cpu() for t in (x, *states)], [t.cpu() for t in slopes]
    with ampc.device("cpu"):
        theirs = run_recurrent(there, cpu[0][0], cpu[0][1:], cpu[1], lengths)
    for a, b in zip(mine, theirs):
        assert a.dtype is b.dtype
        close(a, as_float64(b)[0], dtype, 8)
    same_bits_in_any_order(lambda: run_recurrent(here, x, states, slopes, lengths))


@pytest.mark.skipif(not SIMULATED, reason="the simulator counts")
@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("kind", KINDS)
def test_launches_of_recurrent_layers(kind, autocast):
    """A launch and a product a step, either way; and what does not grow with the steps: the input's products, states, biases, casts, the weight's gradient."""
    m = recurrent(kind)[0]
    for steps in (3, 11):
        x = drawn(steps, 5, 12).requires_grad_()

        def forward(x=x):
            with ampc.autocast("cuda", dtype=ampc.float16, enabled=autocast):
                return m(x)[0]

        y = forward()
        g = ampc.ones_like(y)
        for f, more, products in ((forward, 10, 1), (lambda y=y, x=x, g=g: ampc.autograd.grad(y, [x, *m.parameters()], g, retain_graph=True), 6, 4)):
            f()
            before = simulator("launches"), multiplied()
            f()
            assert simulator("launches") - before[0] <= steps + more and multiplied() - before[1] == steps + products


@pytest.mark.skipif(not SIMULATED, reason="the simulator counts")
@pytest.mark.parametrize(("kind", "units", "once"), [("LSTM", 128, True), ("LSTM", 144, False), ("GRU", 144, True), ("GRU", 160, False), ("Tanh", 256, True), ("Tanh", 24, False)])
def test_small_recurrent_layers_are_one_launch(kind, units, once):
    """In 16 bits, where the weight has at most 128 KiB: backward turns it and computes all steps; the weight's gradient and the input's have two products each."""
    m, x = recurrent(kind, ampc.float16, 8, units)[0], drawn(3, 2, 8, dtype=ampc.float16).requires_grad_()
    y = m(x)[0]
    f = lambda: ampc.autograd.grad(y, [x, *m.parameters()], y.detach(), retain_graph=True)  # noqa: E731
    for call, products in ((lambda: m(x), 1), (f, 4)):
        call()
        before = multiplied()
        call()
        assert multiplied() - before == products + (0 if once else 3)


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_captured_recurrent_layer_gives_the_same_bits(kind, packed):
    """The sizes of a packed batch's steps are a part of the graph."""
    m, x = recurrent(kind, ampc.float16, units=32, bidirectional=True)[0], drawn(12, 12, dtype=ampc.float16)
    given = ampc.nn.utils.rnn.PackedSequence(x, ampc.tensor([4, 3, 3, 1, 1], device="cpu")) if packed else x.view(3, 4, 12)

    def work():
        y = m(given)[0]
        y = y.data if packed else y
        return [y, *ampc.autograd.grad(y, list(m.parameters()), y.detach())]

    work()
    graph = ampc.cuda.CUDAGraph()
    with ampc.cuda.graph(graph):
        results = work()
    for _ in range(2):
        x.copy_(drawn(12, 12))
        graph.replay()
        assert [t.numpy(force=True).tobytes() for t in results] == [t.numpy(force=True).tobytes() for t in work()]


@pytest.mark.skipif(not COUNTS_BYTES, reason="--device ptx counts bytes")
def test_the_table_is_up_to_date():
    """docs/gpu.md has the launches as they are, and bytes that differ by no more than where memory lies."""
    there, now = kept(), {(row.operator, row.sizes): (sum(row.kernels.values()), row.moved / row.least) for row in rows(ampc)}
    assert list(there) == list(now)
    assert [key for key in now if now[key][0] != there[key][0] or abs(now[key][1] - there[key][1]) > 0.02 * now[key][1]] == []
