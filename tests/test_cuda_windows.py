"""Convolution and pooling on a GPU: against float64 at odd sizes, with launches and bytes counted, as in test_cuda_kernels.py."""

import numpy as np
import pytest
from gpu_measures import COUNTS_BYTES, as_float64, bytes_of, close, drawn, launches, same_bits_in_any_order
from where import ON_GPU

import ampc

pytestmark = pytest.mark.skipif(not ON_GPU, reason="needs --device sim, ptx or cuda")
F = ampc.nn.functional


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


# -- convolution by our own product ------------------------------------------------------------------------------------


@pytest.fixture
def no_cudnn():
    before, ampc.backends.cudnn.enabled = ampc.backends.cudnn.enabled, False
    yield
    ampc.backends.cudnn.enabled = before


def convolution_reference(x, w, g, padding, dilation):
    """The result and the gradients of the image and of the weight, of two dimensions and stride 1."""
    (n, m, oh, ow), (kh, kw) = g.shape, w.shape[2:]
    wide = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    y, dx, dw = np.zeros((n, m, oh, ow)), np.zeros_like(wide), np.zeros_like(w)
    for i, j in np.ndindex(kh, kw):
        at = (..., slice(i * dilation[0], i * dilation[0] + oh), slice(j * dilation[1], j * dilation[1] + ow))
        y += np.einsum("nchw,mc->nmhw", wide[at], w[:, :, i, j])
        dx[at] += np.einsum("nmhw,mc->nchw", g, w[:, :, i, j])
        dw[:, :, i, j] = np.einsum("nmhw,nchw->mc", g, wide[at])
    return y, dx[..., padding[0]:padding[0] + x.shape[2], padding[1]:padding[1] + x.shape[3]], dw


CONVOLVED = [((2, 5, 6, 16), (9, 5, 3, 3), (1, 1), (1, 1)), ((1, 16, 8, 8), (8, 16, 1, 1), (0, 0), (1, 1)), ((3, 8, 5, 24), (4, 8, 2, 9), (0, 4), (1, 1)),
             ((1, 3, 4, 40), (2, 3, 1, 5), (0, 10), (1, 5)), ((1, 2, 3, 8), (3, 2, 1, 17), (0, 8), (1, 1)), ((2, 16, 9, 7), (5, 16, 3, 2), (1, 0), (2, 1)),
             ((2, 24, 9, 7), (16, 24, 3, 3), (1, 1), (1, 1)), ((1, 16, 5, 6), (136, 16, 3, 3), (1, 2), (1, 2))]


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("dtype", [ampc.float16, ampc.bfloat16], ids=str)
@pytest.mark.parametrize(("shape", "weight", "padding", "dilation"), CONVOLVED, ids=str)
def test_convolution(shape, weight, padding, dilation, dtype, last, no_cudnn):
    """Runs that are copied, lines of pixels read from any pixel on, and elements one by one give the same bits."""
    x, w = drawn(*shape, dtype=dtype), drawn(*weight, dtype=dtype)
    layout = ampc.channels_last if last else ampc.contiguous_format
    g = drawn(*F.conv2d(x, w, padding=padding, dilation=dilation).shape, dtype=dtype)

    def results(x, w):
        leaves = [t.detach().requires_grad_() for t in (x, w)]
        y = F.conv2d(*leaves, padding=padding, dilation=dilation)
        return [y, *ampc.autograd.grad(y, leaves, g)]

    found = results(x.contiguous(memory_format=layout), w)
    for got, want in zip(found, convolution_reference(*as_float64(x, w, g), padding, dilation)):
        close(got, want, dtype, 2)
    odd = ampc.cat([x.reshape(-1)[:1], x.reshape(-1)])[1:].reshape(shape)  # off a boundary, so that nothing is a run
    if not last:
        assert all(one.equal(other) for one, other in zip(found, results(odd, w)))
    same_bits_in_any_order(lambda: results(x.contiguous(memory_format=layout), w))


# -- average pooling --------------------------------------------------------------------------------------------------


def means_reference(x, g, nd, how):
    """Means of windows and their gradient, of float64; `how` is kernel, stride, padding, ceil_mode, count_include_pad and divisor, or the result's size."""
    size, dx = x.shape[-nd:], np.zeros_like(x)
    spans = []  # of each dimension, the begin and end of its windows, and how many values each counts
    for d in range(nd):
        if not isinstance(how, dict):
            out = how[d]
            spans.append([(o * size[d] // out, -(-(o + 1) * size[d] // out)) for o in range(out)])
            spans[-1] = [(a, b, b - a) for a, b in spans[-1]]
            continue
        k, s, p = how["kernel_size"][d], how["stride"][d], how["padding"][d]
        ends = [(o * s - p, min(o * s - p + k, size[d] + p)) for o in range(g.shape[-nd + d])]
        spans.append([(max(a, 0), min(b, size[d]), b - a if how["count_include_pad"] else min(b, size[d]) - max(a, 0)) for a, b in ends])
    y = np.zeros(g.shape)
    for o in np.ndindex(*g.shape[-nd:]):
        at = (..., *(slice(*spans[d][o[d]][:2]) for d in range(nd)))
        count = (how.get("divisor_override") if isinstance(how, dict) else None) or np.prod([spans[d][o[d]][2] for d in range(nd)])
        y[(..., *o)] = x[at].sum(tuple(range(-nd, 0))) / count
        dx[at] += (g[(..., *o)] / count)[(..., *[None] * nd)]
    return y, dx


def windows_of(kernel, stride, padding, ceil=False, counts=True, **more):
    return {"kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil, "count_include_pad": counts, **more}


MEANS = [((2, 3, 33, 30), windows_of((2, 2), (2, 2), (0, 0))), ((2, 3, 17, 19), windows_of((3, 4), (2, 1), (1, 2), True, False)),
         ((2, 3, 17, 20), windows_of((3, 2), (2, 3), (1, 0), True)), ((1, 2, 9, 8), windows_of((5, 3), (4, 5), (2, 1), divisor_override=7)),
         ((3, 4, 29), windows_of((4,), (3,), (2,), True)), ((2, 2, 7, 9, 8), windows_of((3, 2, 2), (2, 2, 1), (1, 1, 0), True, False)),
         ((2, 2, 31, 37), windows_of((9, 8), (5, 8), (0, 0))), ((1, 2, 13, 17), (5, 4)), ((2, 2, 40, 30), (1, 1)), ((2, 2, 5, 4, 7), (3, 4, 2)), ((2, 3, 5), (9,))]


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.bfloat16, ampc.float64], ids=str)
@pytest.mark.parametrize(("shape", "how"), MEANS, ids=str)
def test_average_pooling(shape, how, dtype):
    """Windows that overlap, leave gaps and reach into the padding; small ones of a thread and large ones of a warp; adaptive ones."""
    x, nd = drawn(*shape, dtype=dtype).requires_grad_(), len(shape) - 2
    call = (lambda x: getattr(F, f"avg_pool{nd}d")(x, **how)) if isinstance(how, dict) else (lambda x: getattr(F, f"adaptive_avg_pool{nd}d")(x, how))
    count, y = launches(lambda: call(x))
    g = drawn(*y.shape, dtype=dtype)
    back, (dx,) = launches(lambda: ampc.autograd.grad(y, x, g, retain_graph=True))
    assert (count, back) in ((1, 1), (None, None))
    want = means_reference(*as_float64(x, g), nd, how)
    close(y, want[0], dtype, 4), close(dx, want[1], dtype, 8)
    same_bits_in_any_order(lambda: [call(x), *ampc.autograd.grad(call(x), x, g)])
    turned = x.detach().transpose(-1, -2).contiguous().transpose(-1, -2).requires_grad_()  # of another layout, and so is the gradient
    assert call(turned).equal(y)
    assert ampc.autograd.grad(call(turned), turned, g.transpose(-1, -2).contiguous().transpose(-1, -2))[0].equal(dx)


@pytest.mark.skipif(not COUNTS_BYTES, reason="--device ptx counts bytes")
@pytest.mark.parametrize(("call", "more"), [(lambda x: F.avg_pool2d(x, 2), 1.02), (lambda x: F.avg_pool2d(x, 3, 2, 1), 1.15), (lambda x: F.adaptive_avg_pool2d(x, 1), 1.07)],
                         ids=["2", "3 by steps of 2", "all"])
def test_bytes_of_average_pooling(call, more):
    x = drawn(2, 4, 64, 64, dtype=ampc.float16).requires_grad_()
    y = call(x)
    g = drawn(*y.shape, dtype=ampc.float16)
    assert bytes_of(lambda: call(x)) <= more * (x.nbytes + y.nbytes)
    assert bytes_of(lambda: ampc.autograd.grad(y, x, g, retain_graph=True)) <= more * (x.nbytes + max(y.nbytes, 32 * 8))


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("enabled", [True, False], ids=["cuDNN", "own kernels"])
def test_float16_convolutions_show_what_is_beyond_the_largest_number(enabled, bias, last):
    x, w, b = ampc.ones(2, 3, 5, 5), ampc.ones(4, 3, 3, 3), ampc.zeros(4)
    x[1, 2, 3, 3] = -65504.0
    w[:, 2] = 2.0
    x, w, b = x.half(), w.half(), b.half() if bias else None
    x = x.to(memory_format=ampc.channels_last) if last else x
    with ampc.backends.cudnn.flags(enabled=enabled):
        y, back = F.conv2d(x, w, b, padding=1), F.conv_transpose2d(x, w.transpose(0, 1).contiguous(), b, padding=1)
    for got in (y, back):
        assert got[1, :, 2:, 2:].eq(float("-inf")).all() and got.isinf().sum() == 4 * 9, "where a window met the pixel, and nowhere else"
        assert got[0, :, 2, 2].tolist() == [36.0] * 4


@pytest.mark.filterwarnings("ignore::ampc.doctor.PerformanceNote")
@pytest.mark.parametrize("enabled", [True, False], ids=["cuDNN", "own kernels"])
def test_a_scaler_sees_the_overflow_of_a_convolutions_gradient(enabled):
    model = ampc.nn.Sequential(ampc.nn.Conv2d(2, 8, 3), ampc.nn.Tanh(), ampc.nn.Conv2d(8, 4, 3))
    optimizer, scaler = ampc.optim.SGD(model.parameters(), lr=0.1), ampc.amp.GradScaler("cuda", init_scale=2.0**15)
    with ampc.no_grad():
        model[2].weight.fill_(1.0)
    before = [p.tolist() for p in model.parameters()]
    with ampc.backends.cudnn.flags(enabled=enabled):
        with ampc.autocast("cuda", dtype=ampc.float16):
            loss = model(ampc.ones(1, 2, 9, 9)).sum()
        scaler.scale(loss).backward()  # 2^15 times 4 channels and 9 taps is beyond 65504
    scaler.step(optimizer)
    scaler.update()
    assert scaler.last_step.skipped and scaler.get_scale() == 2.0**14 and [p.tolist() for p in model.parameters()] == before


def test_a_transposed_convolution_with_steps_far_beyond_its_result_takes_no_time():
    """Its phases are counted by what there is of the result, not by the steps, of which a trillion would take hours."""
    x, one = ampc.full((1, 1, 1, 1, 1), 3.0, dtype=ampc.float16), ampc.ones(1, dtype=ampc.float16)
    assert F.conv_transpose3d(x, one.view(1, 1, 1, 1, 1), one, stride=10**4).tolist() == [[[[[4.0]]]]]
