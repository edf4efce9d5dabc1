"""Cross entropy whose target is probabilities: one kernel each way, on the CPU and on a GPU, compared with float64 and with torch."""

import itertools

import numpy as np
import pytest
from gpu_measures import COUNTS_BYTES, as_float64, bytes_of, close, drawn, launches, same_bits_in_any_order
from where import ON_GPU, SIMULATED

import ampc

F = ampc.nn.functional
DTYPES = [ampc.float32, ampc.float16, ampc.bfloat16, ampc.float64]
SHAPES = [(700, 33), (3, 5, 40, 9), (17, 20001), (9, 4096), (3, 16384), (8300, 3), (2, 300, 11), (65,), (6, 1, 3), (1, 8, 1, 1)]


def reference(x, t, w, g, reduction, mix):
    """Loss and gradients of logits, target and weights [C], in float64."""
    axis = int(x.ndim > 1)
    classes, samples = x.shape[axis], x.size // x.shape[axis]
    others, column = tuple(d for d in range(x.ndim) if d != axis), tuple(-1 if d == axis else 1 for d in range(x.ndim))
    low = x - x.max(axis, keepdims=True)
    log_p = low - np.log(np.exp(low).sum(axis, keepdims=True))
    mixed, w = (1 - mix) * t + mix / classes, w.reshape(column)
    q = w * mixed
    each = -(q * log_p).sum(axis)
    scale = samples if reduction == "mean" else 1
    g = (np.expand_dims(g, axis) if reduction == "none" else g) / scale
    slopes = (np.exp(log_p) * q.sum(axis, keepdims=True) - q) * g, -g * (1 - mix) * w * log_p, (-g * mixed * log_p).sum(others)
    return (each if reduction == "none" else each.sum() / scale, *slopes)


def made(shape, dtype, target_dtype=None):
    """Logits, probabilities and weights, as leaves."""
    own = dtype if dtype is ampc.float64 else ampc.float32
    x, t = (drawn(*shape) * 3).to(dtype), ampc.softmax(drawn(*shape, dtype=ampc.float64), int(len(shape) > 1)).to(target_dtype or own)
    w = ampc.rand(shape[int(len(shape) > 1)]).to(own) + 0.5
    return [v.requires_grad_() for v in (x, t, w)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("reduction", "weighted", "mix"), [("mean", True, 0), ("sum", False, 0.1), ("none", True, 0.2)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients(shape, reduction, weighted, mix, dtype):
    """Rows of a thread, a warp and a block, in runs and one by one; samples that blocks join in parts; of the target and the weights, too."""
    x, t, w = made(shape, dtype)
    call = lambda: F.cross_entropy(x, t, w if weighted else None, reduction=reduction, label_smoothing=mix)  # noqa: E731
    loss = call()
    assert loss.dtype is t.dtype  # the widest of the three
    g = drawn(*loss.shape, dtype=loss.dtype)
    leaves = [x, t, w] if weighted else [x, t]
    dx, = ampc.autograd.grad(loss, x, g, retain_graph=True)
    want, *slopes = reference(*as_float64(x, t), as_float64(w)[0] if weighted else np.ones(w.shape), as_float64(g)[0], reduction, mix)
    assert dx.dtype is dtype
    close(loss, want, loss.dtype, 16), close(dx, slopes[0], dtype, 16)
    if ON_GPU:
        same_bits_in_any_order(lambda: [call(), ampc.autograd.grad(loss, x, g, retain_graph=True)[0]])
    if x.numel() < 30000:  # what is made of operators, and differentiates again
        for slope, want in zip(ampc.autograd.grad(loss, leaves, g, create_graph=True), slopes):
            close(slope, want, slope.dtype, 64)


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float16", "float16"), ("bfloat16", "float16"), ("float64", "float32"), ("float16", "float32")], ids=str)
def test_dtypes_that_differ(dtypes):
    """The loss has the widest dtype; that of the gradient is the logits'; both are rounded once."""
    x, t, _ = made((40, 72), *(getattr(ampc, name) for name in dtypes))
    loss = F.cross_entropy(x, t)
    dx, dt = ampc.autograd.grad(loss, (x, t))
    want, slope, of_target, _ = reference(*as_float64(x, t), np.ones(72), 1.0, "mean", 0)
    assert loss.dtype is ampc.promote_types(x.dtype, t.dtype) and dx.dtype is x.dtype and dt.dtype is t.dtype
    close(loss, want, loss.dtype, 4)
    for got, it in ((dx, slope), (dt, of_target)):
        close(got * 40, it * 40, ampc.float32 if got.dtype is ampc.float64 and loss.dtype is not ampc.float64 else got.dtype, 8)


@pytest.mark.parametrize("shape", [(5, 3), (7,), (2, 3, 4), (2, 5, 3, 2), (6, 130), (0, 3), (3, 0), (1, 1)], ids=str)
def test_beside_torch(shape):
    """Values, gradients and their gradients, with every reduction, smoothing and weight; of no samples and of no classes, too."""
    torch = pytest.importorskip("torch")
    x, t, w = (v.detach().double().numpy(force=True) for v in made(shape, ampc.float64)) if 0 not in shape else (np.zeros(shape), np.zeros(shape), np.ones(shape[1]))

    def run(lib, reduction, mix, weighted):
        leaves = [lib.tensor(v, requires_grad=True) for v in ((x, t, w) if weighted else (x, t))]
        loss = lib.nn.functional.cross_entropy(*leaves, reduction=reduction, label_smoothing=mix)
        slopes = lib.autograd.grad((loss * 1.3).sum(), leaves, create_graph=True)
        again = lib.autograd.grad(sum((s * s).sum() for s in slopes), leaves)
        return [v.detach().cpu().numpy() for v in (loss, *slopes, *again)]

    for case in itertools.product(("none", "mean", "sum"), (0, 0.1, 1.0), (False, True)):
        for ours, theirs in zip(run(ampc, *case), run(torch, *case)):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12, err_msg=str(case))


@pytest.mark.parametrize("n", [9, 520, 40000])
def test_what_is_not_finite_and_what_is_large(n):
    """As torch's log_softmax times the target has it; a class masked by the least number beside a target of 0 costs no digits."""
    inf, nan, low = float("inf"), float("nan"), ampc.finfo(ampc.float32).min
    first = ampc.tensor([[inf, 0, 1], [-inf, -inf, -inf], [-inf, 0, 1], [nan, 0, 1], [low, 0, 1], [1e5, 1e5 + 1, 1e5 - 1], [-1e30, 3, 5]])
    x = ampc.cat([first, first[:, 1:2].expand(7, n - 3)], 1)
    t = ampc.zeros_like(x)
    t[:, 1], t[:, 2] = 0.25, 0.75
    leaf = x.clone().requires_grad_()
    loss = F.cross_entropy(leaf, t, reduction="none")
    want = -(x.double().log_softmax(1) * t.double()).sum(1)
    np.testing.assert_allclose(*as_float64(loss, want), rtol=2e-6, equal_nan=True)
    assert loss.isnan().tolist() == [True, True, True, True, False, False, False]
    dx, = ampc.autograd.grad(loss.sum(), leaf)
    share = x.double().softmax(1) - t.double()
    np.testing.assert_allclose(*as_float64(dx[4:], share[4:]), atol=1e-6)
    assert dx[:2].isnan().all().item() and dx[3].isnan().all().item()


def test_strided_logits_and_targets():
    x, t = drawn(40, 2, 32), ampc.softmax(drawn(40, 2, 32), 2)
    for lay in (lambda v: v[:, 1], lambda v: v[:, 0].flip(1), lambda v: v.reshape(64, 40).T[:, :32], lambda v: v.reshape(40, 64)[:, ::2], lambda v: v.transpose(1, 2)):
        for pair in ((lay(x), lay(t)), (lay(x).contiguous(), lay(t)), (lay(x), lay(t).contiguous())):
            leaf = pair[0].detach().requires_grad_()
            loss = F.cross_entropy(leaf, pair[1], label_smoothing=0.1)
            want, slope, *_ = reference(*as_float64(*pair), np.ones(leaf.shape[1]), 1.0, "mean", 0.1)
            close(loss, want, ampc.float32), close(ampc.autograd.grad(loss, leaf)[0], slope, ampc.float32)


def test_under_autocast_16_bits_are_read_in_place():
    """One read of the logits and the target, one of both again for the gradient, no copy; the loss is float32."""
    x, t = drawn(300, 520, dtype=ampc.bfloat16).requires_grad_(), ampc.softmax(drawn(300, 520), 1)
    with ampc.autocast("cuda" if ON_GPU else "cpu", dtype=ampc.bfloat16):
        count, loss = launches(lambda: F.cross_entropy(x, t, label_smoothing=0.1))
    assert loss.dtype is ampc.float32 and (count == 2 or not SIMULATED)
    one = ampc.ones(())
    count, (dx,) = launches(lambda: ampc.autograd.grad(loss, x, one, retain_graph=True))
    assert dx.dtype is ampc.bfloat16 and (count == 1 or not SIMULATED)
    want, slope, *_ = reference(*as_float64(x, t), np.ones(520), 1.0, "mean", 0.1)
    close(loss, want, ampc.float32), close(dx, slope, ampc.bfloat16)


@pytest.mark.skipif(not COUNTS_BYTES, reason="--device ptx counts bytes")
@pytest.mark.parametrize("dtype", [ampc.float16, ampc.float32], ids=str)
def test_bytes(dtype):
    """Each logit and each probability is read once, and once more for the gradient."""
    x, t = drawn(6, 20000, dtype=dtype).requires_grad_(), ampc.softmax(drawn(6, 20000), 1)
    loss = F.cross_entropy(x, t)
    assert bytes_of(lambda: F.cross_entropy(x, t)) <= 1.05 * (x.nbytes + t.nbytes)
    assert bytes_of(lambda: ampc.autograd.grad(loss, x, retain_graph=True)) <= 1.05 * (2 * x.nbytes + t.nbytes)


def test_what_is_refused():
    x = ampc.zeros(2, 3)
    with pytest.raises(RuntimeError, match=r"`weight` must hold one floating point number for each of the 3 classes, got float32 \[4\]"):
        F.cross_entropy(x, x, ampc.ones(4))
    with pytest.raises(RuntimeError, match="must have a dimension of classes"):
        F.cross_entropy(x[0, 0], x[0, 0])
