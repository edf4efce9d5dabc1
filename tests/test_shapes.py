"""Layers of drawn shapes on drawn machines: forward and every gradient, in each dtype, against float64.

The second-level cache and the number of threads choose a layer's way through the core, so they are drawn with its sizes and layouts. AMPC_EXAMPLES sets
how many examples each kind gets, AMPC_TEST_SEED repeats what the header's seed has drawn."""

import math
import os

import float64 as exact
import hypothesis
import numpy as np
import pytest
import references
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import machine

import ampc

pytestmark = pytest.mark.cpu
F = ampc.nn.functional
WORK = st.sampled_from([1 << 18] * 5 + [1 << 21])  # multiplications in an example: mostly few, so that thousands of them take seconds

DTYPES = st.sampled_from([ampc.float32, ampc.bfloat16, ampc.float16, ampc.float64])
MACHINES = st.fixed_dictionaries({
    # mostly small: what does not fit 2 MiB in a network does not fit 64 KiB in an example
    "l2_bytes": st.sampled_from([n << 10 for n in (512, 64, 64, 64, 64, 96, 96, 128, 256, 1024, 1280, 2048, 4096, 16384, 65536)]),
    "threads": st.sampled_from([1, 2, 3, 4, 5, 8, 13, 64])})
BORDERS = [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 47, 48, 49, 63, 64, 65, 96, 127, 128, 129, 192, 255, 256, 257, 300]
COUNTS = st.one_of(st.integers(1, 20), st.sampled_from(BORDERS), st.integers(1, 300))
SEEDS = st.integers(0, 2**32 - 1)


def shapes(test):
    """So many examples as CI has time for, from the seed of the header."""
    test = settings(max_examples=int(os.environ.get("AMPC_EXAMPLES", "2000")), deadline=None, database=None, suppress_health_check=list(HealthCheck))(test)
    return hypothesis.seed(references.DRAWN)(test)


LAYOUTS = ["plain", "channels last", "turned", "slice", "every other"]


def laid(t, layout):
    """The same values in other memory."""
    if layout == "channels last" and t.ndim > 2:
        return t.movedim(1, -1).contiguous().movedim(-1, 1)
    if layout == "turned" and t.ndim > 1:
        return t.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout in ("slice", "every other") and t.ndim:  # with room on all sides; every other one of the first and the last dimension
        steps = [2 if layout == "every other" and d in (0, t.ndim - 1) else 1 for d in range(t.ndim)]
        room = ampc.full([n * step + 2 for n, step in zip(t.shape, steps)], math.nan, dtype=t.dtype)
        part = room[tuple(slice(1, 1 + n * step, step) for n, step in zip(t.shape, steps))]
        part.copy_(t)
        return part
    return t.clone()


class Operands:
    """Numbers from a seed, rounded to a dtype, in a drawn layout; leaves of the graph and, widened, what float64 starts from."""

    def __init__(self, draw, dtype):
        self.rng, self.dtype, self.draw = np.random.default_rng(draw(SEEDS)), dtype, draw

    def __call__(self, *shape, layouts=LAYOUTS, dtype=None):
        t = ampc.tensor(exact.numbers(self.rng, *shape)).to(dtype or self.dtype)
        t = laid(t, self.draw(st.sampled_from(layouts))).detach().requires_grad_()
        return t, exact.widened(t)


def check(y, g, expected, leaves):
    """`expected` has (name, value, room): of the result, then of the gradients of `leaves`."""
    grads = ampc.autograd.grad(y, leaves, g)
    for got, (name, want, room) in zip([y, *grads], expected):
        exact.close(name, got, want.reshape(got.shape), np.broadcast_to(room, want.shape).reshape(got.shape))
    assert len(expected) == 1 + len(leaves)


# -- convolutions ----------------------------------------------------------------------------------------------------


@st.composite
def convolutions(draw):
    nd = draw(st.sampled_from([2, 1, 3]))
    small = [draw(st.integers(1, 7 if nd == 1 else 5 if nd == 2 else 3)) for _ in range(nd)]
    c = {"kernel": small, "stride": [draw(st.integers(1, 3)) for _ in range(nd)], "dilation": [draw(st.integers(1, 3)) for _ in range(nd)]}
    c["padding"] = [draw(st.integers(0, k)) for k in small]
    c["transposed"], c["bias"], c["images"] = draw(st.booleans()), draw(st.booleans()), draw(st.integers(1, 10))
    c["channels"], c["outs"] = (draw(st.one_of(COUNTS, st.integers(16, 64))) for _ in range(2))
    kind = draw(st.sampled_from(["one group", "one group", "groups", "depthwise"]))
    c["groups"] = 1 if kind == "one group" else draw(st.integers(2, 5)) if kind == "groups" else c["channels"]
    if kind == "groups":
        c["channels"], c["outs"] = (-(-c[k] // c["groups"]) * c["groups"] for k in ("channels", "outs"))
    if kind == "depthwise":
        c["outs"] = c["channels"] * draw(st.integers(1, 3))
    work, each = draw(WORK), (c["channels"] * c["outs"] // c["groups"] + 8 * (c["channels"] + c["outs"])) * math.prod(small)
    c["images"] = max(1, min(c["images"], work // each))
    most = max(1, int((work / each / c["images"]) ** (1 / nd)))
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, d, p in zip(small, c["dilation"], c["padding"])]
    c["size"] = [n + min(draw(st.integers(0, 70)), most) for n in least]
    if c["transposed"]:
        c["more"] = [draw(st.integers(0, max(s, d) - 1)) for s, d in zip(c["stride"], c["dilation"])]
        out = [(n - 1) * s - 2 * p + d * (k - 1) + 1 + m % s
               for n, s, p, d, k, m in zip(c["size"], c["stride"], c["padding"], c["dilation"], small, c["more"])]
        c["size"] = [n + max(0, -(-(1 - o) // s)) for n, o, s in zip(c["size"], out, c["stride"])]  # something is left after padding
    return c


@shapes
@given(st.data(), convolutions(), DTYPES, MACHINES)
def test_convolutions(data, c, dtype, facts):
    w, nd = (c["stride"], c["padding"], c["dilation"], c["groups"]), len(c["kernel"])
    first, second = (c["channels"], c["outs"] // c["groups"]) if c["transposed"] else (c["outs"], c["channels"] // c["groups"])
    with machine(**facts):
        make = Operands(data.draw, dtype)
        (x, X), (weight, W), (bias, B) = make(c["images"], c["channels"], *c["size"]), make(first, second, *c["kernel"]), make(c["outs"], layouts=["plain"])
        how = {"stride": w[0], "padding": w[1], "dilation": w[2], "groups": w[3]}
        if c["transposed"]:
            how["output_padding"] = c["more"]
        f = getattr(F, f"conv{'_transpose' if c['transposed'] else ''}{nd}d")
        y = f(x, weight, bias if c["bias"] else None, **how)
        g, G = make(*y.shape)
        g = g.detach()
        taps, inner, outer = math.prod(c["kernel"]), c["channels"] // c["groups"], c["outs"] // c["groups"]
        if c["transposed"]:
            beyond = [m // s for m, s in zip(c["more"], w[0])]  # positions of windows that whole steps of output padding add behind those of x
            inside = (..., *(slice(n) for n in c["size"]))
            dX = exact.convolved(G, W, w)[inside]
            dW = exact.convolved_weight(G, np.pad(X, [(0, 0), (0, 0), *((0, n) for n in beyond)]), w, c["kernel"])
            Y = exact.convolved_input(X, W, w, y.shape[2:])
        else:
            Y, dX, dW = exact.convolved(X, W, w), exact.convolved_input(G, W, w, c["size"]), exact.convolved_weight(X, G, w, c["kernel"])
        Y = Y + B.reshape(-1, *[1] * nd) if c["bias"] else Y
        positions = c["images"] * max(math.prod(c["size"]), math.prod(y.shape[2:]))
        expected = [(name, want, exact.room_of_sum(want, dtype, terms, 1)) for name, want, terms in (
            ("y", Y, inner * taps + 1), ("dx", dX, outer * taps), ("dweight", dW, positions), ("dbias", G.sum((0, *range(2, nd + 2))), positions))]
        check(y, g, expected[:3 + c["bias"]], [x, weight, bias][:2 + c["bias"]])


# -- products --------------------------------------------------------------------------------------------------------


@st.composite
def products(draw):
    how = draw(st.sampled_from(["mm", "bmm", "addmm", "linear", "matmul", "mv"]))
    m, k, n = (draw(st.one_of(st.sampled_from([0, 1]), COUNTS, st.integers(1, 1200))) for _ in range(3))
    if how == "mv":
        n = 1
    work = 4 * draw(WORK)
    while m * k * n > work:
        m, k, n = (max(1, i // 2) if i == max(m, k, n) else i for i in (m, k, n))
    batch = min(draw(st.integers(0, 6)), work // max(1, m * k * n)) if how in ("bmm", "matmul") else 1
    return {"how": how, "m": m, "k": k, "n": n, "batch": batch, "bias": draw(st.booleans())}


@shapes
@given(st.data(), products(), DTYPES, MACHINES)
def test_products(data, c, dtype, facts):
    how, m, k, n = c["how"], c["m"], c["k"], c["n"]
    lead = [c["batch"]] if how in ("bmm", "matmul") else []
    with machine(**facts):
        make = Operands(data.draw, dtype)
        (a, A), (b, B), (add, C) = make(*lead, m, k), make(*(lead if how == "bmm" else []), k, n), make(n)
        left, right = [a, b], (A, B)
        if how == "linear":
            b, B = make(n, k)
            left, right = [a, b, add] if c["bias"] else [a, b], (A, B.T)
            y = F.linear(*left)
        elif how == "addmm":
            y = ampc.addmm(add, a, b, beta=0.5, alpha=-2)
            left = [a, b, add]
        elif how == "mv":
            b, B = make(k)
            left, right = [a, b], (A, B[:, None])
            y = ampc.mv(a, b)
        else:
            y = getattr(ampc, how)(a, b)
        g, G = make(*y.shape)
        G = G.reshape(*lead, m, n)
        scale, beta = (-2, 0.5) if how == "addmm" else (1, 1)
        Y = right[0] @ right[1] * scale + (C * beta if len(left) == 3 else 0)
        dA, dB = G @ right[1].swapaxes(-1, -2) * scale, right[0].swapaxes(-1, -2) @ G * scale
        dB = dB.sum(0) if how == "matmul" else dB.T if how == "linear" else dB
        rows = m * (c["batch"] if how == "matmul" else 1)
        expected = [(name, want, exact.room_of_sum(want, dtype, terms, 2)) for name, want, terms in (
            ("y", Y, k + 2), ("da", dA, n), ("db", dB, rows), ("dadd", G.sum(0) * beta, m))]
        check(y, g.detach(), expected[:1 + len(left)], left)


# -- attention -------------------------------------------------------------------------------------------------------


@st.composite
def attentions(draw):
    c = {"batch": draw(st.integers(1, 3)), "heads": draw(st.integers(1, 4)), "queries": draw(COUNTS), "keys": draw(COUNTS)}
    c["width"], c["values"] = (draw(st.sampled_from([1, 3, 8, 16, 17, 32, 40, 64, 80, 128])) for _ in range(2))
    c["mask"] = draw(st.sampled_from(["none", "bool", "float", "causal", "keys"]))
    c["scale"], work = draw(st.sampled_from([None, 0.3])), draw(WORK)
    while c["queries"] * c["keys"] * (c["width"] + c["values"]) > work:
        longer = "queries" if c["queries"] > c["keys"] else "keys"
        c[longer] = max(1, c[longer] // 2)
        if c["queries"] * c["keys"] == 1:
            break
    while c["batch"] * c["heads"] > 1 and c["batch"] * c["heads"] * c["queries"] * c["keys"] * (c["width"] + c["values"]) > work:
        c["batch"], c["heads"] = max(1, c["batch"] - 1), max(1, c["heads"] - 1)
    return c


@shapes
@given(st.data(), attentions(), DTYPES, MACHINES)
def test_attention(data, c, dtype, facts):
    lead, queries, keys = (c["batch"], c["heads"]), c["queries"], c["keys"]
    with machine(**facts):
        make = Operands(data.draw, dtype)
        (q, Q), (k, K), (v, V), (g, G) = (make(*lead, *s) for s in (
            (queries, c["width"]), (keys, c["width"]), (keys, c["values"]), (queries, c["values"])))
        mask, added = None, None
        if c["mask"] == "causal":
            added = np.where(np.tri(queries, keys, dtype=bool), 0, -np.inf)
        elif c["mask"] == "float":
            mask, added = make(c["heads"], queries, keys)
            mask = mask.detach()
        elif c["mask"] != "none":
            seen = make.rng.random((queries, keys) if c["mask"] == "bool" else (c["batch"], 1, 1, keys)) < 0.7
            mask, added = ampc.tensor(seen), np.where(seen, 0, -np.inf)
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=c["mask"] == "causal", scale=c["scale"])
        scale = c["scale"] or 1 / math.sqrt(c["width"])
        check(y, g.detach(), exact.attention(Q, K, V, G, added, scale, dtype), [q, k, v])


# -- norms -----------------------------------------------------------------------------------------------------------


@st.composite
def norms(draw):
    c = {"kind": draw(st.sampled_from(["batch", "batch in use", "layer", "group", "rms", "instance"])), "images": draw(st.integers(2, 10))}
    c["channels"], c["affine"], c["shift"] = draw(COUNTS), draw(st.booleans()), draw(st.sampled_from([0, 1]))
    positions = max(1, (draw(WORK) >> 4) // (c["images"] * c["channels"]))
    nd = draw(st.integers(1 if c["kind"] == "instance" else 0, 3))
    c["size"] = [draw(st.integers(2 if c["kind"] == "instance" else 1, 40)) for _ in range(nd)]
    while math.prod(c["size"]) > max(positions, 8):
        c["size"] = [max(2 if c["kind"] == "instance" else 1, n // 2) for n in c["size"]]
    c["last"] = draw(st.integers(1, 1 + nd))
    c["groups"] = draw(st.sampled_from([n for n in range(1, c["channels"] + 1) if c["channels"] % n == 0]))
    return c


@shapes
@given(st.data(), norms(), DTYPES, MACHINES)
def test_norms(data, c, dtype, facts):
    kind, channels, size, nd = c["kind"], c["channels"], c["size"], len(c["size"])
    with machine(**facts):
        make, tiny = Operands(data.draw, dtype), 1e-3
        x, X = make(c["images"], channels, *size)
        if c["shift"]:
            x = (x.detach() + c["shift"]).requires_grad_()
            X = exact.widened(x)
        g, G = make(c["images"], channels, *size)
        per_channel = [1, channels, *[1] * nd]
        shape = list(x.shape[x.ndim - c["last"]:]) if kind in ("layer", "rms") else [channels]
        (w, W), (b, B) = make(*shape, layouts=["plain"]), make(*shape, layouts=["plain"])
        over, kept, given_ = (0, *range(2, nd + 2)), (0, *range(2, nd + 2)), None
        args, leaves = ((w, b), [x, w, b]) if c["affine"] else ((None, None), [x])
        if kind == "layer":
            y = F.layer_norm(x, shape, *args, eps=tiny)
        elif kind == "rms":
            y, leaves = F.rms_norm(x, shape, args[0], eps=tiny), leaves[:2]
        elif kind == "group":
            y = F.group_norm(x, c["groups"], *args, eps=tiny)
        elif kind == "instance":
            y, over = F.instance_norm(x, None, None, *args, eps=tiny), tuple(range(2, nd + 2))
        else:
            stats = [make(channels, layouts=["plain"], dtype=ampc.float64 if dtype == ampc.float64 else ampc.float32)[0].detach() for _ in range(2)]
            stats[1] = stats[1].abs() + 0.5
            y = F.batch_norm(x, *(s.clone() for s in stats), *args, training=kind == "batch", eps=tiny)
            given_ = [exact.widened(s).reshape(per_channel) for s in stats] if kind != "batch" else None
        if kind in ("layer", "rms"):
            kept = tuple(range(x.ndim - c["last"]))
            over, per_channel = tuple(range(x.ndim - c["last"], x.ndim)), [1] * len(kept) + shape
        weights = (W.reshape(per_channel), B.reshape(per_channel) if kind != "rms" else None) if c["affine"] else (None, None)
        if kind == "group":  # channels of a group are a dimension of their own
            parts = (c["images"], c["groups"], channels // c["groups"], *size)
            per_channel = [1, *parts[1:3], *[1] * nd]
            X, G, weights = X.reshape(parts), G.reshape(parts), tuple(None if v is None else v.reshape(per_channel) for v in weights)
            over, kept = tuple(range(2, nd + 3)), (0, *range(3, nd + 3))
        check(y, g.detach(), exact.norm(X, G, *weights, over, kept, tiny, kind != "rms", dtype, given_), leaves)


# -- recurrent layers ------------------------------------------------------------------------------------------------


@st.composite
def recurrences(draw):
    c = {"cell": draw(st.sampled_from(["LSTM", "GRU", "tanh", "relu"])), "layers": draw(st.sampled_from([1, 1, 2])), "ways": draw(st.integers(1, 2))}
    c["inputs"], c["units"] = (draw(st.one_of(st.integers(1, 20), st.sampled_from([15, 16, 17, 31, 32, 33, 64, 65, 100]))) for _ in range(2))
    c["bias"], c["first"], c["packed"] = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    c["sequences"] = draw(st.one_of(st.integers(1, 8), st.sampled_from([15, 16, 17, 33, 40])))
    c["lengths"] = sorted((draw(st.lists(st.integers(1, 9), min_size=c["sequences"], max_size=c["sequences"]))), reverse=True)
    if not c["packed"]:
        c["lengths"] = [c["lengths"][0]] * c["sequences"]
    return c


def recurrent_layer(c, dtype):
    kind = ampc.nn.RNN if c["cell"] in ("tanh", "relu") else getattr(ampc.nn, c["cell"])
    more = {"nonlinearity": c["cell"]} if kind is ampc.nn.RNN else {}
    return kind(c["inputs"], c["units"], c["layers"], bias=c["bias"], bidirectional=c["ways"] == 2, batch_first=c["first"], **more).to(dtype)


def recurrent_in_float64(c, net, x, h, s):
    """The same, step by step; and the parameters in the order of the layer's."""
    params = [p.detach().double().requires_grad_() for p in net.parameters()]
    each, zero = 4 if c["bias"] else 2, ampc.zeros(1, dtype=ampc.float64)
    weights = lambda layer, way: [*params[(layer * c["ways"] + way) * each:][:each], zero, zero][:4]  # noqa: E731
    rows = [x[:sum(n > t for n in c["lengths"]), t] for t in range(c["lengths"][0])]
    rows, h, s, bend = exact.recurrent(c["cell"], rows, h, s, weights, c["layers"], c["ways"])
    return ampc.cat(rows), h, s, params, bend


@shapes
@given(st.data(), recurrences(), DTYPES, MACHINES)
def test_recurrences(data, c, dtype, facts):
    """A step rounds the state that its product reads and the weights' own products; gates bend at slopes of at most 1, and weights are so small
    that an error does not grow from step to step. So errors add up over steps and layers: each is a few eps of the largest value."""
    with machine(**facts):
        make = Operands(data.draw, dtype)
        ampc.manual_seed(int(make.rng.integers(2**31)))
        net, n, steps = recurrent_layer(c, dtype), c["sequences"], c["lengths"][0]
        x, _ = make(n, steps, c["inputs"])
        state = (c["layers"] * c["ways"], n, c["units"])
        (h, _), (s, _) = make(*state, layouts=["plain"]), make(*state, layouts=["plain"])
        given_ = x if c["first"] else x.transpose(0, 1)
        if c["packed"]:
            given_ = ampc.nn.utils.rnn.pack_padded_sequence(given_, c["lengths"], batch_first=c["first"])
        y, last = net(given_, (h, s) if c["cell"] == "LSTM" else h)
        y = y.data if c["packed"] else (y.transpose(0, 1) if c["first"] else y).reshape(n * steps, -1)
        X, H, S = (t.detach().double().requires_grad_() for t in (x, h, s))
        Y, Hn, Sn, params, bend = recurrent_in_float64(c, net, X, H, S)
        ends, Ends = [y, *(last if c["cell"] == "LSTM" else [last])], [Y, Hn, Sn][:3 if c["cell"] == "LSTM" else 2]
        gs = [make(*t.shape, layouts=["plain"])[0].detach() for t in ends]
        leaves, Leaves = [x, h, *net.parameters()], [X, H, *params]
        if c["cell"] == "LSTM":
            leaves, Leaves = [*leaves, s], [*Leaves, S]
        grads, Grads = ampc.autograd.grad(ends, leaves, gs), ampc.autograd.grad(Ends, Leaves, [g.double() for g in gs])
        depth, e = steps * c["layers"], exact.eps(dtype) + exact.eps_of_sums(dtype) * (c["inputs"] + c["units"])
        room = lambda want: 4 * depth * e * exact.top(exact.widened(want))  # noqa: E731
        for got, want, name in zip(ends, Ends, ("y", "last state", "last cell")):
            exact.close(name, got, exact.widened(want), room(want) + 4 * depth * e)
        if bend < 4 * depth * e * (1 + exact.top(exact.widened(Y))):
            return  # relu may fall on either side of its bend, and its gradient with it
        for i, (got, want) in enumerate(zip(grads, Grads)):
            terms = 1 if i < 2 else n * steps  # a parameter's gradient has a term for each step
            exact.close(f"gradient {i}", got, exact.widened(want), room(want) + 4 * depth * e * math.sqrt(terms))


def test_squeeze_of_no_dimensions():
    x = ampc.ones(1, 2, 1)
    assert x.squeeze(()).shape == (1, 2, 1) and ampc.squeeze(x, []).shape == (1, 2, 1) and x.squeeze().shape == (2,)
    assert ampc.sum(x, ()).shape == ()  # reductions take no dimensions for all, as torch's do


@pytest.mark.parametrize("dim", [0, 1, -3])
def test_dim_means_nothing_where_nothing_is_joined(torch, dim):
    seen = []
    for lib in (ampc, torch):
        x = lib.empty(0, requires_grad=True)
        y = lib.cat([x, lib.empty(0)], dim)
        y.sum().backward()
        seen.append((tuple(y.shape), tuple(x.grad.shape)))
    assert seen[0] == seen[1]
    with pytest.raises(IndexError):
        ampc.cat([ampc.empty(0), ampc.ones(2)], 1)
