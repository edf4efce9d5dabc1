"""Layers of networks at their real sizes: forward and every gradient, in each dtype, against float64.

Kernels run over all of a layer; float64 is computed for some channels, rows or heads of it, drawn anew each time, the first and the last among
them. A run takes an eighth of the layers, AMPC_ALL_LAYERS=1 all, and AMPC_TEST_SEED repeats what the header's seed has drawn."""

import math
import os

import float64 as exact
import numpy as np
import pytest
import real_layers
import references

import ampc

pytestmark = pytest.mark.cpu
F = ampc.nn.functional
DTYPES = [ampc.float32, ampc.bfloat16, ampc.float16, ampc.float64]
DRAW = np.random.default_rng(references.DRAWN)
SOME = 8  # channels, rows or heads that are compared


def drawn(layers):
    if os.environ.get("AMPC_ALL_LAYERS"):
        return layers
    return [layers[i] for i in sorted(DRAW.permutation(len(layers))[:-(-len(layers) // 8)])]


def some(n, most=SOME):
    """The first, the last and others between them."""
    return np.unique(np.r_[0, n - 1, DRAW.integers(0, n, most)[:max(0, min(most, n) - 2)]])


def numbers(*shape):
    """Normal numbers that every dtype holds: bfloat16 has the fewest digits, float16 the smallest range."""
    return held(ampc.randn(*shape))


def held(x):
    x = x.detach().bfloat16()
    return ampc.where(x.abs() < 2.0**-14, 0, x)


def leaves(dtype, *values):
    return [v.detach().to(dtype, copy=True).requires_grad_() for v in values]


def compare(dtype, pairs):
    """Of each (name, result, indices, value, room): those at the indices are near, and all are numbers."""
    for name, got, at, want, room in pairs:
        name = f"{name} in {dtype}"
        assert ampc.isfinite(got).all().item(), f"{name}: values that are not finite"
        exact.close(name, got if at is None else got[at], want, room)


def convolution(c):
    nd, first, second = len(c.size), *((c.channels, c.outs // c.groups) if c.transposed else (c.outs, c.channels // c.groups))
    how = {"stride": c.stride, "padding": c.padding, "groups": c.groups, **({"output_padding": c.more} if c.transposed else {})}
    f = getattr(F, f"conv{'_transpose' if c.transposed else ''}{nd}d")
    x, w, b = numbers(c.images, c.channels, *c.size), numbers(first, second, *[c.kernel] * nd) * 0.125, numbers(c.outs)
    g = None
    for dtype in DTYPES:
        x_, w_, b_ = leaves(dtype, x, w, b)
        y = f(x_, w_, b_, **how)
        if g is None:
            g = numbers(*y.shape)
            pairs, terms = _convolution_in_float64(c, *(exact.widened(t) for t in (x, w, b, g)))
        got = [y, *ampc.autograd.grad(y, [x_, w_, b_], g.to(dtype))]
        compare(dtype, [(name, t, at, want, exact.room_of_sum(want, dtype, n, largest))
                        for t, (name, at, want), (n, largest) in zip(got, pairs, terms)])


def _convolution_in_float64(c, x, w, b, g):
    """Some outs of the result and the weight's gradient, and some channels of the input's."""
    nd = len(c.size)
    window = ([c.stride] * nd, [c.padding] * nd, [1] * nd)
    outs, channels, groups = some(c.outs), some(c.channels), 1
    left, right = outs, channels  # of the weight
    if c.groups > 1:  # one channel to each out
        assert c.groups == c.channels == c.outs and not c.transposed
        channels, left, right, groups = outs, outs, slice(None), len(outs)
    gs, all_x, all_g = g[:, outs], x[:, channels] if groups > 1 else x, g[:, outs] if groups > 1 else g
    window = (*window, groups)
    if c.transposed:
        y = exact.convolved_input(x, w[:, outs], window, g.shape[2:])
        dx = exact.convolved(g, w[channels], window)
        dw, at = exact.convolved_weight(gs, x, window, w.shape[2:]), (slice(None), outs)
    else:
        y = exact.convolved(all_x, w[left], window)
        dx = exact.convolved_input(all_g, w[left] if groups > 1 else w[:, right], window, c.size)
        dw, at = exact.convolved_weight(all_x, gs, window, w.shape[2:]), (outs,)
    positions, taps = c.images * max(math.prod(c.size), math.prod(g.shape[2:])), c.kernel**nd
    top = {k: exact.top(v) for k, v in (("x", x), ("w", w), ("b", b), ("g", g))}
    pairs = [("y", (slice(None), outs), y + b[outs].reshape(-1, *[1] * nd)), ("dx", (slice(None), channels), dx), ("dweight", at, dw),
             ("dbias", (outs,), gs.sum((0, *range(2, nd + 2))))]
    inner, outer = c.channels // c.groups * taps, c.outs // c.groups * taps
    return pairs, [(inner + 1, top["x"] * top["w"] + top["b"]), (outer, top["g"] * top["w"]), (positions, top["x"] * top["g"]), (positions, top["g"])]


def linear(c):
    x, w, b, g = numbers(c.rows, c.inputs), numbers(c.outs, c.inputs) * 0.125, numbers(c.outs), numbers(c.rows, c.outs)
    X, W, B, G = (exact.widened(t) for t in (x, w, b, g))
    outs, inputs = some(c.outs), some(c.inputs)
    values = [("y", np.s_[:, outs], X @ W[outs].T + B[outs], c.inputs + 1, exact.top(X) * exact.top(W) + exact.top(B)),
              ("dx", np.s_[:, inputs], G @ W[:, inputs], c.outs, exact.top(G) * exact.top(W)),
              ("dweight", np.s_[outs], G[:, outs].T @ X, c.rows, exact.top(G) * exact.top(X)), ("dbias", None, G.sum(0), c.rows, exact.top(G))]
    for dtype in DTYPES:
        x_, w_, b_ = leaves(dtype, x, w, b)
        y = F.linear(x_, w_, b_)
        got = [y, *ampc.autograd.grad(y, [x_, w_, b_], g.to(dtype))]
        compare(dtype, [(name, t, at, want, exact.room_of_sum(want, dtype, n, largest)) for t, (name, at, want, n, largest) in zip(got, values)])


def batch_norm(c):
    x, w, b, g = numbers(c.images, c.channels, *c.size), numbers(c.channels), numbers(c.channels), numbers(c.images, c.channels, *c.size)
    at, over = some(c.channels), (0, *range(2, 2 + len(c.size)))
    X, G, W, B = (exact.widened(t) for t in (x[:, at], g[:, at], w[at].reshape(-1, *[1] * len(c.size)), b[at].reshape(-1, *[1] * len(c.size))))
    for dtype in DTYPES:
        x_, w_, b_ = leaves(dtype, x, w, b)
        y = F.batch_norm(x_, None, None, w_, b_, training=True)
        got = [y, *ampc.autograd.grad(y, [x_, w_, b_], g.to(dtype))]
        expected = exact.norm(X, G, W[None], B[None], over, over, 1e-5, True, dtype)
        compare(dtype, [(name, t, np.s_[:, at] if t.ndim > 1 else at, *(v.reshape(-1) if t.ndim == 1 else v for v in values))
                        for t, (name, *values) in zip(got, expected)])


def row_norm(c):
    x, w, b, g = numbers(c.rows, c.width), numbers(c.width), numbers(c.width), numbers(c.rows, c.width)
    X, W, B, G = (exact.widened(t) for t in (x, w, b, g))
    rms = c.kind == "rms"
    for dtype in DTYPES:
        x_, w_, b_ = leaves(dtype, x, w, b)
        y = F.rms_norm(x_, [c.width], w_, eps=1e-5) if rms else F.layer_norm(x_, [c.width], w_, b_, eps=1e-5)
        got = [y, *ampc.autograd.grad(y, [x_, w_] if rms else [x_, w_, b_], g.to(dtype))]
        expected = exact.norm(X, G, W[None], None if rms else B[None], (1,), (0,), 1e-5, not rms, dtype)
        compare(dtype, [(name, t, None, *(v.reshape(t.shape) for v in values)) for t, (name, *values) in zip(got, expected)])


def attention(c):
    shared = c.heads // c.shared
    q, g = (numbers(c.batch, c.heads, c.queries, c.width) for _ in range(2))
    k, v = (numbers(c.batch, shared, c.keys, c.width) for _ in range(2))
    seen = ampc.ones(c.batch, 1, 1, c.keys, dtype=ampc.bool)
    seen[0, ..., c.keys // 2:] = False  # a shorter sequence, padded
    added = {"none": None, "keys": np.where(exact.widened(seen), 0, -np.inf),
             "causal": np.where(np.tri(c.queries, c.keys, dtype=bool), 0, -np.inf)}[c.mask]
    at = DRAW.integers(0, shared, 1)  # a head of keys, and those of the queries that read it
    of_queries = (at[:, None] * c.shared + np.arange(c.shared)).reshape(-1)
    Q, G, K, V = (exact.widened(t[:, i]) for t, i in ((q, of_queries), (g, of_queries), (k, at), (v, at)))
    Q, G = (t.reshape(c.batch, len(at), c.shared, c.queries, c.width) for t in (Q, G))
    added = added[:, None] if c.mask == "keys" else added
    for dtype in DTYPES:
        q_, k_, v_ = leaves(dtype, q, k, v)
        mask = seen if c.mask == "keys" else None
        y = F.scaled_dot_product_attention(q_, k_, v_, mask, is_causal=c.mask == "causal", enable_gqa=c.shared > 1)
        got = [y, *ampc.autograd.grad(y, [q_, k_, v_], g.to(dtype))]
        expected = exact.attention(Q, K[:, :, None], V[:, :, None], G, added, c.width**-0.5, dtype)
        pairs = []
        for t, (name, want, room) in zip(got, expected):
            if name in ("dk", "dv"):  # sums over the heads that share keys, each rounded
                want, room = want.sum(2), room.sum(2) + c.shared * exact.rounded(np.abs(want).sum(2), dtype)
            pairs.append((name, t, np.s_[:, of_queries if name in ("y", "dq") else at], *(
                i.reshape(c.batch, -1, *i.shape[-2:]) for i in (want, np.broadcast_to(room, want.shape)))))
        compare(dtype, pairs)


def lstm(c):
    """The bound is that of test_shapes.test_recurrences."""
    net = ampc.nn.LSTM(c.inputs, c.units, c.layers)
    x, g = numbers(c.steps, c.sequences, c.inputs), numbers(c.steps, c.sequences, c.units)
    with ampc.no_grad():
        for p in net.parameters():
            p.copy_(held(p))
    X, *params = leaves(ampc.float64, x, *net.parameters())
    zeros = ampc.zeros(c.layers, c.sequences, c.units, dtype=ampc.float64)
    rows, *_ = exact.recurrent("LSTM", list(X.unbind(0)), zeros, zeros, lambda layer, way: params[layer * 4:][:4], c.layers, 1)
    Y = ampc.stack(rows)
    wanted = [Y, *ampc.autograd.grad(Y, [X, *params], g.double())]
    for dtype in DTYPES:
        x_, mine = leaves(dtype, x)[0], net.to(dtype)
        y, _ = mine(x_)
        got = [y, *ampc.autograd.grad(y, [x_, *mine.parameters()], g.to(dtype))]
        room = 4 * c.steps * c.layers * (exact.eps(dtype) + exact.eps_of_sums(dtype) * (c.inputs + c.units))
        compare(dtype, [(f"result {i}", t, None, exact.widened(want), room * (exact.top(exact.widened(want)) + (
            math.sqrt(c.steps * c.sequences) if i > 1 else 1))) for i, (t, want) in enumerate(zip(got, wanted))])


def rotary(c):
    """x cos + turned(x) sin: two products and a sum, each of which 16 bits round."""
    x, g = (numbers(c.batch, c.heads, c.steps, c.width) for _ in range(2))
    angle = np.arange(c.steps)[:, None] / 10000 ** (np.arange(c.width) % (c.width // 2) * 2 / c.width)
    turned = lambda t, sign: np.concatenate([-sign * t[..., c.width // 2:], sign * t[..., :c.width // 2]], -1)  # noqa: E731
    for dtype in DTYPES:
        (x_,), cos, sin = leaves(dtype, x), *(ampc.tensor(f(angle)).to(dtype) for f in (np.cos, np.sin))
        low, high = x_.chunk(2, -1)
        y = x_ * cos + ampc.cat([-high, low], -1) * sin
        got = [y, *ampc.autograd.grad(y, [x_], g.to(dtype))]
        C, S, X, G = (exact.widened(t) for t in (cos, sin, x, g))
        values = [("y", X, 1, X * C + turned(X, 1) * S), ("dx", G, -1, G * C + turned(G * S, -1))]
        compare(dtype, [(name, t, None, want, 2 * exact.rounded(np.abs(of * C) + np.abs(turned(of, 1)) + np.abs(of), dtype))
                        for t, (name, of, _, want) in zip(got, values)])


def swiglu(c):
    """down(silu(gate(x)) up(x)): 16 bits round the hidden values, each of which then has an error of some eps of itself."""
    x, g = numbers(c.rows, c.inputs), numbers(c.rows, c.inputs)
    gate, up, down = numbers(c.hidden, c.inputs) * 2.0**-6, numbers(c.hidden, c.inputs) * 2.0**-6, numbers(c.inputs, c.hidden) * 2.0**-6
    values = [exact.widened(t) for t in (x, gate, up, down, g)]
    (wanted, sizes), at = _swiglu_in_float64(*values), some(c.rows, 64)
    for dtype in DTYPES:
        args = leaves(dtype, x, gate, up, down)
        y = F.linear(F.silu(F.linear(args[0], args[1])) * F.linear(args[0], args[2]), args[3])
        got = [y, *ampc.autograd.grad(y, args, g.to(dtype))]
        # terms of a product have independent errors: so many standard deviations of sqrt(n) of the typical term
        e = 8 * (exact.eps(dtype) + c.inputs * exact.eps_of_sums(dtype))
        compare(dtype, [(name, t, at, want[at], exact.rounded(want[at], dtype) + e * size) for t, name, want, size in zip(
            got, ("y", "dx", "dgate", "dup", "ddown"), wanted, sizes)])


def _swiglu_in_float64(x, gate, up, down, g):
    """Result and gradients, and for each the largest term of its product times the root of their number."""
    a, b = x @ gate.T, x @ up.T
    s = 1 / (1 + np.exp(-a))
    h, dh = a * s * b, g @ down
    da, db = dh * b * (s + a * s * (1 - s)), dh * a * s
    dx = da @ gate + db @ up
    size = lambda p, q, n: exact.top(p) * exact.top(q) * math.sqrt(n)  # noqa: E731
    return ([h @ down.T, dx, da.T @ x, db.T @ x, g.T @ h],
            [size(h, down, h.shape[1]), size(da, gate, h.shape[1]) + size(db, up, h.shape[1]), size(da, x, len(x)), size(db, x, len(x)), size(g, h, len(x))])


def max_pool(c):
    """The first of the largest in a window passes the gradient on. Where windows overlap, gradients are added one by one in their own dtype."""
    x = numbers(c.images, c.channels, c.size, c.size)
    X = np.pad(exact.widened(x), [(0, 0), (0, 0), *[(c.padding, c.padding)] * 2], constant_values=-np.inf)
    out = (c.size + 2 * c.padding - c.kernel) // c.stride + 1
    parts = [np.s_[:, :, i:i + (out - 1) * c.stride + 1:c.stride, j:j + (out - 1) * c.stride + 1:c.stride]
             for i in range(c.kernel) for j in range(c.kernel)]
    windows = np.stack([X[p] for p in parts])
    Y, first, g = windows.max(0), windows.argmax(0), numbers(c.images, c.channels, out, out)
    dx, G = np.zeros_like(X), exact.widened(g)
    for i, p in enumerate(parts):
        dx[p] += np.where(first == i, G, 0)
    dx = dx[:, :, c.padding:c.padding + c.size, c.padding:c.padding + c.size]
    for dtype in DTYPES:
        x_, = leaves(dtype, x)
        y = F.max_pool2d(x_, c.kernel, c.stride, c.padding)
        got = [y, *ampc.autograd.grad(y, [x_], g.to(dtype))]
        overlap = math.ceil(c.kernel / c.stride) ** 2
        compare(dtype, [("y", got[0], None, Y, 0), ("dx", got[1], None, dx, exact.rounded(dx, dtype) + (overlap - 1) * overlap * exact.eps(dtype) * exact.top(G) / 2)])


CHECKS = {"Convolution": convolution, "Linear": linear, "BatchNorm": batch_norm, "RowNorm": row_norm, "Attention": attention, "LSTM": lstm, "Rotary": rotary,
          "SwiGLU": swiglu, "MaxPool": max_pool}


def named(layer):
    values = (f"{k}={'x'.join(map(str, v)) if isinstance(v, tuple) else v}" for k, v in layer._asdict().items())
    return f"{type(layer).__name__} {' '.join(values)}"


@pytest.mark.parametrize("layer", drawn(real_layers.LAYERS), ids=named)
def test_a_layer_of_a_network(layer):
    CHECKS[type(layer).__name__](layer)
