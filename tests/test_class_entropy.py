"""Cross entropy whose target is classes, by rows and by tiles of samples, on the CPU and on a GPU, compared with float64."""

import math

import numpy as np
import pytest
from gpu_measures import as_float64, close, drawn

import ampc

F = ampc.nn.functional
DTYPES = [ampc.float32, ampc.float16, ampc.bfloat16, ampc.float64]
# few samples and many; classes few, at the tiles' limit, beyond it; images, whose classes lie apart
SHAPES = [(7, 10), (16, 10), (700, 33), (64, 64), (130, 65), (200, 1), (3, 5, 40, 9), (2, 300, 11), (2, 512, 6, 8), (2, 513, 20), (9, 4096)]


def reference(x, c, w, g, reduction, mix, ignored):
    """Loss and the logits' gradient of logits, classes and weights [C], in float64."""
    low = x - x.max(1, keepdims=True)
    log_p = low - np.log(np.exp(low).sum(1, keepdims=True))
    column = tuple(-1 if d == 1 else 1 for d in range(x.ndim))
    named = np.moveaxis(np.eye(x.shape[1])[np.where(c == ignored, 0, c)], -1, 1)
    q = ((1 - mix) * named + mix / x.shape[1]) * w.reshape(column) * np.expand_dims(c != ignored, 1)
    each = -np.where(q == 0, 0, q * log_p).sum(1)
    scale = (w[c[c != ignored]]).sum() if reduction == "mean" else 1
    slope = np.exp(log_p) * q.sum(1, keepdims=True) - q
    return (each if reduction == "none" else each.sum() / scale), slope * (np.expand_dims(g, 1) if reduction == "none" else g) / scale


def made(shape, dtype, ignored):
    """Logits, classes of which some are ignored, and weights."""
    x = (drawn(*shape) * 3).to(dtype).requires_grad_()
    c = ampc.randint(0, shape[1], (shape[0], *shape[2:]))
    c.view(-1)[::5] = ignored
    return x, c, ampc.rand(shape[1]).to(dtype if dtype is ampc.float64 else ampc.float32) + 0.5


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("reduction", "weighted", "mix"), [("mean", True, 0), ("sum", False, 0.1), ("none", True, 0.2), ("mean", False, 0)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients(shape, reduction, weighted, mix, dtype):
    x, c, w = made(shape, dtype, -100)
    if len(shape) == 2:  # rows that lie apart
        x = x.detach().t().contiguous().t().requires_grad_()
    for leaf in (x, x.detach().contiguous().requires_grad_()):
        loss = F.cross_entropy(leaf, c, w if weighted else None, reduction=reduction, label_smoothing=mix)
        g = drawn(*loss.shape, dtype=loss.dtype)
        dx, = ampc.autograd.grad(loss, leaf, g)
        want, slope = reference(as_float64(x)[0], c.cpu().numpy(), as_float64(w)[0] if weighted else np.ones(shape[1]), as_float64(g)[0], reduction, mix, -100)
        assert loss.dtype is dx.dtype is dtype
        close(loss, want, dtype, 16), close(dx, slope, dtype, 16)
        assert (dx.movedim(1, -1)[c == -100] == 0).all()


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float64, ampc.bfloat16], ids=str)
def test_logits_that_are_not_finite_stay_in_their_samples(dtype):
    """In a tile, too: masked classes count nothing, and what is ignored has the gradient 0 whatever it holds."""
    x, c = ampc.zeros(40, 10, dtype=dtype), ampc.zeros(40, dtype=ampc.int64)
    x[:, 7:] = -math.inf
    x[3, 5], x[4, 5], c[4], x[5, 0], x[6] = math.nan, math.nan, -100, -math.inf, -math.inf
    x.requires_grad_()
    each = F.cross_entropy(x, c, reduction="none")
    each.sum().backward()
    plain = [i for i in range(40) if i not in (3, 4, 5, 6)]
    close(each[plain], np.full(36, math.log(7)), dtype, 16)
    close(x.grad[plain], np.tile([1 / 7 - 1, *[1 / 7] * 6, 0, 0, 0], (36, 1)), dtype, 16)
    assert each[3].isnan() and each[4] == 0 and each[5] == math.inf and each[6].isnan()
    assert x.grad[3].isnan().all() and (x.grad[4] == 0).all() and (x.grad[5, 7:] == 0).all() and x.grad[6].isnan().all()


def test_a_class_out_of_range_is_refused():
    x = ampc.zeros(40, 10)
    for wrong in (10, -1):
        c = ampc.zeros(40, dtype=ampc.int64)
        c[33] = wrong
        with pytest.raises(IndexError, match="out of range for (10 classes|a size of 10)"):
            F.cross_entropy(x, c).item()
