"""The speed of CUDA kernels by design, without a GPU: launches and bytes are counted, and results are compared with float64 at sizes that
take several blocks and leave odd tails. Bytes are those of `--device ptx`."""

import os

import numpy as np
import pytest
from where import ON_GPU, SIMULATED, settled, simulator

import ampc

pytestmark = pytest.mark.skipif(not ON_GPU, reason="needs --device sim, ptx or cuda")
F = ampc.nn.functional
COUNTS_BYTES = SIMULATED and "cuda_ptx" in os.environ["AMPC_CUDA_LIBS"]


def launches(f):
    """The launches of one call, and its result; the first call may make copies that later ones keep."""
    f()
    if not SIMULATED:
        return None, settled(f())
    before = simulator("launches")
    result = f()
    return simulator("launches") - before, settled(result)


def bytes_of(f):
    """What a call reads and writes of the GPU's memory, in bytes."""
    from kernel_traffic import traffic
    return sum(read + written for _, read, written in traffic(f).values())


def same_bits_in_any_order(f):
    """The results of ``f``, a list of tensors, which are the same in every order of threads and blocks."""
    runs = []
    for order in (0, 1, 2, 5) if SIMULATED else (0, 0):
        if SIMULATED:
            simulator("order", order)
        runs.append([settled(t).numpy(force=True).tobytes() for t in f()])
    if SIMULATED:
        simulator("order", 0)
    assert all(run == runs[0] for run in runs)


def close(got, want, dtype, factor=8):
    want = np.asarray(want)
    bound = factor * ampc.finfo(dtype).eps * max(1, abs(want).max(initial=0))
    assert abs(got.double().numpy(force=True) - want).max(initial=0) <= bound


def drawn(*shape, dtype=ampc.float32, layout=None):
    t = ampc.randn(*shape).to(dtype)
    return t if layout is None else t.contiguous(memory_format=layout)


# -- batch norm, group norm ---------------------------------------------------------------------------------------


def norm_reference(x, g, w, b, axes, count_of, eps=1e-5):
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    hat, rstd = (x - mean) / np.sqrt(var + eps), 1 / np.sqrt(var + eps)
    gw = g * w
    dx = rstd * (gw - gw.mean(axes, keepdims=True) - hat * (gw * hat).mean(axes, keepdims=True))
    return hat * w + b, dx, (g * hat).sum(count_of), g.sum(count_of), mean, var


SHAPES = [(5, 3, 52, 44), (3, 5, 33, 31), (9, 70, 7, 7), (700, 37), (2, 1, 4099), (4, 2, 6, 10, 12)]


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
@pytest.mark.parametrize(("shape", "groups"), [((3, 6, 60, 52), 2), ((5, 8, 7, 7), 4), ((4, 12), 3), ((2, 4, 4099), 4)], ids=str)
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


# -- max pooling ------------------------------------------------------------------------------------------------------


def pooled_gradient(shape, indices, g, nd):
    """What windows took comes back, in float64."""
    dx = np.zeros((int(np.prod(shape[:len(shape) - nd])), int(np.prod(shape[len(shape) - nd:]))))
    rows = indices.reshape(len(dx), -1)
    np.add.at(dx, (np.arange(len(dx))[:, None], rows), g.reshape(rows.shape))
    return dx.reshape(shape)


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.bfloat16, ampc.float64], ids=str)
@pytest.mark.parametrize(("shape", "how"), [((2, 3, 33, 30), [3, 2, 1]), ((2, 3, 20, 21), [(2, 4), (3, 1)]),
                                            ((3, 4, 29), [3, 1, 0, 3]), ((2, 2, 7, 9, 8), [3, 2, 1, 1, True]),
                                            ((1, 2, 13, 17), 5), ((2, 2, 5, 4, 7), (3, 4, 2))], ids=str)
def test_max_pool_gradient(shape, how, dtype):
    """Windows that overlap, leave gaps, are dilated, and adaptive ones; equal values, where the first counts."""
    x, nd = (ampc.randint(0, 9, shape)).to(dtype).requires_grad_(), len(shape) - 2
    pool = getattr(F, f"max_pool{nd}d" if isinstance(how, list) else f"adaptive_max_pool{nd}d")
    y, indices = pool(x, *how, return_indices=True) if isinstance(how, list) else pool(x, how, return_indices=True)
    g = drawn(*y.shape, dtype=dtype)
    got = ampc.autograd.grad(y, x, g, retain_graph=True)[0]
    close(got, pooled_gradient(shape, indices.numpy(force=True), g.double().numpy(force=True), nd), dtype, 4)
    assert got.equal(ampc.autograd.grad(y, x, g, create_graph=True, retain_graph=True)[0]) or dtype is not ampc.float64
    turned = g.transpose(-1, -2).contiguous().transpose(-1, -2)  # a gradient of another layout
    assert ampc.autograd.grad(y, x, turned)[0].equal(got)


def pool_step(shape=(2, 4, 64, 64), dtype=ampc.float16):
    x = drawn(*shape, dtype=dtype).requires_grad_()
    y = F.max_pool2d(x, 3, 2, 1)
    g = drawn(*y.shape, dtype=dtype)
    return x, y, lambda: ampc.autograd.grad(y, x, g, retain_graph=True)[0]


def test_max_pool_gradient_is_one_launch():
    _, _, backward = pool_step()
    assert launches(backward)[0] in (1, None)
    same_bits_in_any_order(lambda: [backward()])


@pytest.mark.skipif(not COUNTS_BYTES, reason="--device ptx counts bytes")
def test_bytes_of_max_pool_gradient():
    """The gradient and the indices of windows are read, that of x is written. Two blocks read the windows that lie over both."""
    x, y, backward = pool_step()
    assert bytes_of(backward) <= 1.3 * (x.nbytes + y.nbytes + 8 * y.numel())
