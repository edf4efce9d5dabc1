"""Attention's kernels on a GPU, in 16 bits, forward and backward: against float64, against the composition, and the bytes that they move."""

import gc
from typing import NamedTuple, Optional

import numpy as np
import pytest
from gpu_measures import COUNTS_BYTES, as_float64, bytes_of, close, drawn, launches, same_bits_in_any_order
from where import ON_GPU, settled, simulated

import ampc

pytestmark = pytest.mark.skipif(not ON_GPU, reason="needs --device sim, ptx or cuda")
F = ampc.nn.functional
HALVES = pytest.mark.parametrize("dtype", [ampc.float16, ampc.bfloat16], ids=str)
INF = float("inf")


def turned(x):
    return np.swapaxes(x, -1, -2)


def weights_of(scores):
    """Softmax; a row that attends to nothing has zeros."""
    top = scores.max(-1, keepdims=True)
    p = np.exp(scores - np.where(np.isfinite(top), top, 0))
    return p / np.maximum(p.sum(-1, keepdims=True), 1e-300)


def scores_of(q, k, mask=None, causal=False, scale=None):
    scores = q @ turned(k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -INF)
    if mask is not None:
        scores = np.where(mask, scores, -INF) if mask.dtype == bool else scores + mask
    return scores


def reference(q, k, v, g, mask=None, causal=False, kept=1.0, scale=None):
    """The result and the gradients of q, k, v and the scores; weights are multiplied by ``kept`` (dropout)."""
    return gradients(weights_of(scores_of(q, k, mask, causal, scale)), q, k, v, g, kept, scale)


def gradients(p, q, k, v, g, kept=1.0, scale=None):
    """The same of weights p."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    dp = (g @ turned(v)) * kept
    ds = p * (dp - (dp * p).sum(-1, keepdims=True))
    return (p * kept) @ v, scale * ds @ k, scale * turned(ds) @ q, turned(p * kept) @ g, ds


def test_the_reference_against_finite_differences():
    draw = np.random.default_rng(0)
    q, k, v, g = (draw.standard_normal((3, n, 8)) for n in (4, 5, 5, 4))
    mask, kept = draw.standard_normal((3, 4, 5)), (draw.random((3, 4, 5)) < 0.7) / 0.7
    mask[1, 2] = -INF

    def total(*operands):
        return (reference(*operands[:3], g, operands[3], kept=kept)[0] * g).sum()

    operands = [q, k, v, mask]
    for i, slope in enumerate(reference(q, k, v, g, mask, kept=kept)[1:]):
        step = draw.standard_normal(operands[i].shape)
        moved = [[*operands[:i], operands[i] + h * step, *operands[i + 1:]] for h in (1e-6, -1e-6)]
        assert (total(*moved[0]) - total(*moved[1])) / 2e-6 == pytest.approx((slope * step).sum(), rel=1e-7)


class Case(NamedTuple):
    shape: tuple  # of the queries
    keys: int
    mask: Optional[str] = None
    causal: bool = False
    dropout: float = 0.0


CASES = [Case((2, 2, 150, 64), 150, causal=True), Case((1, 3, 40, 32), 77), Case((2, 1, 130, 128), 33, "keeps"), Case((1, 2, 17, 96), 65, "adds"), Case((3, 50, 72), 50, causal=True),
         Case((1, 2, 260, 8), 100, "a row of it"), Case((33, 40), 1), Case((2, 70, 16), 130, "adds float32", dropout=0.3), Case((1, 1, 40, 104), 90, causal=True, dropout=0.5),
         Case((2, 66, 64), 35, "keeps", dropout=0.1), Case((1, 2, 100, 120), 20, causal=True), Case((2, 3, 33, 24), 40, "a head's")]


def mask_for(c, dtype):
    scores = (*c.shape[:-1], c.keys)
    if c.mask == "keeps":
        mask = ampc.rand(*scores) < 0.7
        mask[..., 5, :] = False
        return mask
    if c.mask == "adds":
        mask = drawn(*scores, dtype=dtype)
        mask[..., 3:9] = -INF
        mask[..., 7, :] = -INF
        return mask
    return {None: lambda: None, "a row of it": lambda: ampc.rand(c.keys) < 0.5, "adds float32": lambda: drawn(*scores[-2:]),
            "a head's": lambda: drawn(c.shape[1], 1, c.keys, dtype=dtype)}[c.mask]()


def kept_by(seed, scores, p):
    """What dropout of that seed multiplies weights by."""
    ampc.manual_seed(seed)
    return F.dropout(ampc.ones(*scores, dtype=ampc.float64), p).numpy(force=True)


def as_numpy(mask):
    return None if mask is None else mask.numpy(force=True) if mask.dtype is ampc.bool else mask.double().numpy(force=True)


@HALVES
@pytest.mark.parametrize("c", CASES, ids=str)
def test_attention(c, dtype):
    """Several blocks of queries and keys, tails of queries, keys and widths; causal, with masks, dropout, and rows that attend to nothing."""
    q, k, v, g = (drawn(*c.shape[:-2], n, c.shape[-1], dtype=dtype) for n in (c.shape[-2], c.keys, c.keys, c.shape[-2]))
    mask, leaves = mask_for(c, dtype), [t.requires_grad_() for t in (q, k, v)]

    def forward():
        ampc.manual_seed(5)
        return F.scaled_dot_product_attention(*leaves, attn_mask=mask, is_causal=c.causal, dropout_p=c.dropout)

    count, y = launches(forward)
    count_back, slopes = launches(lambda: ampc.autograd.grad(y, leaves, g, retain_graph=True))
    assert (count, count_back) in ((1, 2), (None, None))
    want = reference(*as_float64(q, k, v, g), as_numpy(mask), c.causal, kept_by(5, (*c.shape[:-1], c.keys), c.dropout))
    assert all(t.dtype is dtype for t in (y, *slopes))
    close(y, want[0], dtype, 8)
    for got, slope in zip(slopes, want[1:]):
        close(got, slope, dtype, 16)
    same_bits_in_any_order(lambda: (y := forward(), *ampc.autograd.grad(y, leaves, g)))


def test_attention_of_heads_side_by_side_and_under_autocast():
    """Views of one projection are read in place, and so is the result's gradient; float32 operands are rounded first."""
    qkv, wide = (drawn(2, 70, *n, dtype=ampc.float16) for n in ((3, 4, 32), (4, 32)))
    q, k, v = (t.transpose(1, 2).detach().requires_grad_() for t in qkv.unbind(2))
    g = wide.transpose(1, 2)
    count, y = launches(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    count_back, slopes = launches(lambda: ampc.autograd.grad(y, (q, k, v), g, retain_graph=True))
    want = reference(*as_float64(q, k, v, g), causal=True)
    close(y, want[0], ampc.float16, 8)
    for got, slope in zip(slopes, want[1:]):
        close(got, slope, ampc.float16, 16)
    assert (count, count_back) in ((1, 2), (None, None))
    leaves = [t.float().detach().requires_grad_() for t in (q, k, v)]
    with ampc.autocast("cuda", dtype=ampc.float16):
        z = F.scaled_dot_product_attention(*leaves, is_causal=True)
    assert z.dtype is ampc.float16 and z.equal(y)
    z.backward(g)
    assert all(t.grad.dtype is ampc.float32 and t.grad.half().equal(slope) for t, slope in zip(leaves, slopes))


@HALVES
def test_queries_that_share_keys(dtype):
    q, k, v = drawn(2, 4, 20, 16, dtype=dtype), drawn(2, 2, 30, 16, dtype=dtype), drawn(2, 2, 30, 16, dtype=dtype)
    leaves = [t.requires_grad_() for t in (q, k, v)]
    y = F.scaled_dot_product_attention(*leaves, enable_gqa=True)
    want = reference(*(np.repeat(t, 4 // t.shape[1], 1) for t in as_float64(q, k, v)), np.ones((2, 4, 20, 16)))
    y.backward(ampc.ones_like(y))
    close(y, want[0], dtype, 8), close(q.grad, want[1], dtype, 16)
    for t, slope in ((k, want[2]), (v, want[3])):
        close(t.grad, slope.reshape(2, 2, 2, 30, 16).sum(2), dtype, 32)


@pytest.mark.parametrize("kind", ["bool", "float16", "float32"])
def test_rows_that_attend_to_nothing_are_0_as_in_torch(torch, kind):
    results = []
    for lib in (torch, ampc):
        on = {"device": "cuda"} if lib is ampc else {}
        lib.manual_seed(0)
        q, k, v = (lib.full((1, 5, 16), x, dtype=lib.float16, **on).requires_grad_() for x in (0.5, -1.0, 2.0))
        mask = lib.ones(5, 5, dtype=lib.bool, **on)
        mask[1], mask[3, 2] = False, False
        if kind != "bool":
            mask = lib.zeros(5, 5, dtype=getattr(lib, kind), **on).masked_fill(~mask, -INF)
        y = lib.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask if kind != "float32" or lib is ampc else mask.half())
        y.sum().backward()
        results.append([t.detach().cpu().tolist() for t in (y, q.grad, k.grad, v.grad)])
    assert results[1][0][0][1] == results[1][1][0][1] == [0.0] * 16
    for theirs, ours in zip(*results):
        np.testing.assert_allclose(ours, theirs, atol=8 * ampc.finfo(ampc.float16).eps)


@pytest.mark.parametrize("dtype, of_mask", [(ampc.bfloat16, ampc.bfloat16), (ampc.float16, ampc.float32)], ids=str)
def test_rows_whose_mask_is_low_everywhere_take_the_mean(dtype, of_mask):
    """Rows of padding, of which masks often have large negative numbers instead of -inf: all their scores are rounded to the same, so they take the
    mean of the values, as in torch, and their gradients are those of equal weights."""
    lowest = ampc.finfo(of_mask).min
    low = np.append(-np.geomspace(1e9, 1e38, 30), [lowest, lowest])
    q, k, v, g = (drawn(1, 64, 32, dtype=dtype) for _ in range(4))
    q, k, v = (t.requires_grad_() for t in (q, k, v))
    rows = np.stack([low, np.zeros(32)], -1).reshape(64)  # every other one is padding
    mask = ampc.tensor(rows, dtype=ampc.float32).to(of_mask).reshape(64, 1).expand(64, 64).clone().requires_grad_()
    y = F.scaled_dot_product_attention(q, k, v, mask)
    *grads, of_it = ampc.autograd.grad(y, (q, k, v, mask), g)
    of_q, of_k, of_v, of_g = as_float64(q, k, v, g)
    scores = scores_of(of_q, of_k)
    scores[:, ::2] = 0
    result, dq, dk, dv, ds = gradients(weights_of(scores), of_q, of_k, of_v, of_g)
    close(y, result, dtype, 8), close(grads[0], dq, dtype, 16), close(grads[1], dk, dtype, 32), close(grads[2], dv, dtype, 32)
    close(of_it, ds[0], dtype, 16)


@pytest.mark.parametrize("of_mask", [ampc.float16, ampc.bfloat16, ampc.float32, ampc.float64], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 40, 50), (3, 1, 50), (40, 50), (2, 1, 1, 1)], ids=str)
def test_a_mask_that_is_trained(shape, of_mask):
    """Its gradient is the scores', summed over what was broadcast; the others are as without."""
    q, k, v, g = (drawn(2, 3, n, 24, dtype=ampc.float16) for n in (40, 50, 50, 40))
    mask, leaves = drawn(*shape).to(of_mask).requires_grad_(), [t.requires_grad_() for t in (q, k, v)]
    y = F.scaled_dot_product_attention(*leaves, attn_mask=mask)
    *slopes, of_scores = reference(*as_float64(q, k, v, g), as_numpy(mask.detach()))[1:]
    *got, of_it = ampc.autograd.grad(y, (*leaves, mask), g)
    for one, want in zip(got, slopes):
        close(one, want, ampc.float16, 16)
    assert of_it.dtype is of_mask and of_it.shape == mask.shape
    axes = tuple(d for d, (n, one) in enumerate(zip((2, 3, 40, 50), (1,) * (4 - len(shape)) + shape)) if n != one)
    want = of_scores.sum(axes).reshape(shape)
    terms = np.sqrt(of_scores.size / want.size)  # each is off by a rounding of its products' operands
    close(of_it, want, ampc.float16, 8 * terms)


# -- dropout -----------------------------------------------------------------------------------------------------------------


@HALVES
def test_dropout_draws_the_compositions_numbers(dtype):
    """And leaves the generator where that does. All weights may go."""
    q, k, v, g = (drawn(2, n, 16, dtype=dtype) for n in (37, 45, 45, 37))
    leaves = [t.requires_grad_() for t in (q, k, v)]
    found = []
    for create_graph, p in ((False, 0.4), (True, 0.4), (False, 1.0)):
        ampc.manual_seed(11)
        y = F.scaled_dot_product_attention(*leaves, dropout_p=p)
        found.append([y, *ampc.autograd.grad(y, leaves, g, create_graph=create_graph), ampc.rand(3)])
    wide = [t.detach().float().requires_grad_() for t in leaves]
    ampc.manual_seed(11)
    y = F.scaled_dot_product_attention(*wide, dropout_p=0.4)
    composed = [y, *ampc.autograd.grad(y, wide, g.float()), ampc.rand(3)]
    for run in found[:2]:
        assert run[-1].equal(composed[-1])
        for got, want in zip(run[:-1], composed):
            close(got, want.double().numpy(force=True), dtype, 16)
    assert all((t == 0).all() for t in found[2][:-1])
    with pytest.raises(ValueError, match="`p` must be between 0 and 1"):
        F.scaled_dot_product_attention(*leaves, dropout_p=1.5)


def test_dropout_in_a_graph():
    """Each replay draws the numbers that an eager call would, forward and backward alike."""
    q, k, v = (drawn(2, 40, 16, dtype=ampc.float16).requires_grad_() for _ in range(3))

    def step():
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
        return [y, *ampc.autograd.grad(y, (q, k, v), ampc.ones_like(y))]

    step()
    ampc.manual_seed(3)
    eager = [[t.tolist() for t in step()] for _ in range(2)]
    graph = ampc.cuda.CUDAGraph()
    with ampc.cuda.graph(graph):
        results = step()
    ampc.manual_seed(3)
    for want in eager:
        graph.replay()
        assert [t.tolist() for t in results] == want
    assert eager[0] != eager[1]


# -- range, memory, other ways --------------------------------------------------------------------------------------------------


def test_large_gradients_overflow_no_earlier_than_their_results():
    """Gradients of weights lie beyond float16 where those of scores do not; under a GradScaler both are large. What overflows itself is inf or nan."""
    ampc.manual_seed(4)
    q, k, v, g = (drawn(1, 40, 32, dtype=ampc.float16) * by for by in (1, 1, 16, 600))
    leaves = [t.requires_grad_() for t in (q, k, v)]
    y = F.scaled_dot_product_attention(*leaves)
    want = reference(*as_float64(*leaves, g))
    assert abs(as_float64(g)[0] @ turned(as_float64(v)[0])).max() > 65504 > max(abs(w).max() for w in want) > 10000
    for got, slope in zip(ampc.autograd.grad(y, leaves, g, retain_graph=True), want[1:]):
        close(got, slope, ampc.float16, 16)
    assert (g * 20).isfinite().all()
    assert 20 * abs(want[4]).max() > 65504 and not any(t.isfinite().all() for t in ampc.autograd.grad(y, (q, k), g * 20, retain_graph=True))
    close(ampc.autograd.grad(y, v, g * 20)[0], 20 * want[3], ampc.float16, 16)


@simulated
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_no_scores_are_kept(dropout):
    """At its highest, memory grows by what tensors of the operands' size take, not the scores."""
    q, k, v = (drawn(1, 512, 8, dtype=ampc.float16).requires_grad_() for _ in range(3))
    gc.collect(), settled()
    ampc.cuda.reset_peak_memory_stats()
    before = ampc.cuda.memory_allocated()
    F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout).sum().backward()
    assert ampc.cuda.max_memory_allocated() - before < 12 * q.nbytes < 512 * 512 * 2 / 4


@HALVES
def test_second_derivatives_are_the_compositions(dtype):
    """Also with dropout and a mask that is trained."""
    operands = [drawn(*shape, dtype=dtype) for shape in ((2, 9, 16), (2, 11, 16), (2, 11, 16), (9, 11))]
    g, by = (drawn(2, 9, 16, dtype=dtype) for _ in range(2))
    found = []
    for wide in (False, True):
        leaves = [(t.float() if wide else t).detach().requires_grad_() for t in operands]
        ampc.manual_seed(2)
        y = F.scaled_dot_product_attention(*leaves[:3], attn_mask=leaves[3], dropout_p=0.3)
        first = ampc.autograd.grad(y, leaves, g.to(y.dtype), create_graph=True)
        second = ampc.autograd.grad((first[0] * by.to(y.dtype)).sum(), leaves)
        found.append([*first, *second])
    for got, want in zip(*found):
        close(got, want.detach().double().numpy(force=True), dtype, 32)


def test_other_operands_go_by_parts():
    """Heads of 132 and of 12 values, values wider than keys, a batch that is broadcast: the numbers are right, with scores in memory."""
    for shapes in ([(2, 9, 132)] * 3, [(2, 9, 12)] * 3, [(2, 9, 16), (2, 9, 16), (2, 9, 24)], [(2, 9, 16), (1, 9, 16), (1, 9, 16)]):
        leaves = [drawn(*shape, dtype=ampc.float16).requires_grad_() for shape in shapes]
        count, y = launches(lambda leaves=leaves: F.scaled_dot_product_attention(*leaves))
        g = drawn(*y.shape, dtype=ampc.float16)
        slopes = ampc.autograd.grad(y, leaves, g)
        want = reference(*as_float64(*leaves, g))
        assert count is None or count > 1
        close(y, want[0], ampc.float16, 8)
        for got, slope, leaf in zip(slopes, want[1:], leaves):
            close(got, slope.sum(0, keepdims=True) if leaf.shape[0] < slope.shape[0] else slope, ampc.float16, 32)


def test_rows_of_the_other_device_say_so():
    rows, x = ampc._C._functions, ampc.ones(1, 2, 8, dtype=ampc.float16)
    there = x.cpu()
    with pytest.raises(RuntimeError, match="this row is the GPU's"):
        rows["_flash_attention"](there, there, there, None, 1.0, False, 0.0, 0, 0)
    with pytest.raises(RuntimeError, match="this row is the CPU's"):
        rows["_attention"](x, x, x, None, 1.0, False)
    with pytest.raises(RuntimeError, match="takes float16 or bfloat16 in rows of 8 to 128"):
        rows["_flash_attention"](x.float(), x.float(), x.float(), None, 1.0, False, 0.0, 0, 0)
    with pytest.raises(RuntimeError, match="`log_sums` must be float32, got"):
        rows["_flash_attention_backward"](x, x, x, x, None, x, x[..., :2], 1.0, False, 0.0, 0, 0, False)


@simulated
def test_out_of_memory():
    """Whichever allocation fails, the call fails as a whole, nothing leaks, and the next one works."""
    q, k, v = (drawn(2, 3, 40, 24, dtype=ampc.float16).requires_grad_() for _ in range(3))
    gradient = drawn(2, 40, 3, 24, dtype=ampc.float16).transpose(1, 2)[..., ::2].repeat_interleave(2, -1)

    def step():
        ampc.manual_seed(1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.5)
        return [t.tolist() for t in ampc.autograd.grad(y, (q, k, v, mask), gradient)]

    mask, fillers, failures, size = drawn(40, 40).requires_grad_(), [], 0, 1 << 20
    want = step()
    gc.collect(), settled(), ampc.cuda.empty_cache()
    ampc.cuda.set_per_process_memory_fraction(ampc.cuda.memory_reserved() / ampc.cuda.get_device_properties(0).total_memory)
    try:
        while size >= 512:  # until nothing is left
            try:
                fillers.append(ampc.empty(size, dtype=ampc.uint8))
            except ampc.cuda.OutOfMemoryError:
                size //= 2
        while fillers:
            held = ampc.cuda.memory_allocated()
            try:
                assert step() == want and failures > 5
                break
            except ampc.cuda.OutOfMemoryError:
                failures += 1
            assert ampc.cuda.memory_allocated() == held
            fillers.pop()
    finally:
        ampc.cuda.set_per_process_memory_fraction(1.0)
    assert fillers and step() == want


# -- bytes -------------------------------------------------------------------------------------------------------------------

counts_bytes = pytest.mark.skipif(not COUNTS_BYTES, reason="--device ptx counts bytes")


@counts_bytes
def test_bytes_forward():
    """Queries are read and results written once, keys and values once for every 128 queries: no scores. A mask is read once."""
    q, k, v = (drawn(2, 256, 64, dtype=ampc.float16) for _ in range(3))
    most = 2 * q.nbytes + 2 * (k.nbytes + v.nbytes)
    assert bytes_of(lambda: F.scaled_dot_product_attention(q, k, v)) <= 1.05 * most
    assert bytes_of(lambda: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)) <= 1.05 * most
    for mask in (ampc.rand(2, 256, 256) < 0.5, drawn(2, 256, 256, dtype=ampc.float16)):
        assert bytes_of(lambda mask=mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)) <= 1.05 * (most + mask.nbytes)


@counts_bytes
@pytest.mark.parametrize("kind", [None, "causal", "keeps", "trained"])
def test_bytes_backward(kind):
    """As FlashAttention-2 counts them, with blocks of 64: what a block owns is read once, the other side once for every block; gradients are written once."""
    q, k, v, g = (drawn(2, 256, 64, dtype=ampc.float16).requires_grad_() for _ in range(4))
    mask = {"keeps": lambda: ampc.rand(2, 256, 256) < 0.5, "trained": lambda: drawn(2, 256, 256).requires_grad_()}.get(kind, lambda: None)()
    y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=kind == "causal")
    leaves = [q, k, v, mask] if kind == "trained" else [q, k, v]
    passes = 2.5 if kind == "causal" else 4  # of 256 rows by blocks of 64; on and below the diagonal
    most = (3 + 2 * passes + 1) * q.nbytes + (2 + 2 * passes + 2) * q.nbytes
    most += 0 if mask is None else 2 * mask.nbytes + (mask.nbytes if kind == "trained" else 0)
    assert bytes_of(lambda: ampc.autograd.grad(y, leaves, g, retain_graph=True)) <= 1.05 * most


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("at", [0, 70, 150])
def test_a_nan_reaches_all_that_depends_on_it(dtype, at):
    """Under a causal mask. Tiles that the mask hides are skipped, so what does not depend on the nan may stay finite, as in flash attention elsewhere."""
    def run(which):
        q, k, v = (ampc.randn(1, 1, 200, 32).to(getattr(ampc, dtype)) for _ in range(3))
        (q, k, v)["qkv".index(which)][0, 0, at, 3] = float("nan")
        q, k, v = (t.requires_grad_() for t in (q, k, v))
        y = ampc.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y.float().sum().backward()
        return [t[0, 0].isnan().any(-1).tolist() for t in (y, q.grad, k.grad, v.grad)]

    y, q, k, v = run("q")
    assert y == [i == at for i in range(200)] and q[at] and all(k[: at + 1]) and all(v[: at + 1])
    y, q, k, v = run("k")
    assert y == [i >= at for i in range(200)] and all(q[at:]) and all(k[at:]) and all(v[at:])
    y, q, k, v = run("v")
    assert all(y[at:]) and all(q[at:]) and k[at]
