"""Trials of attention, recurrent layers, norms and softmax, whose references carry their errors along."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np

import ampc
from ampc import nn
from ampc.nn import functional as F

from .bounded import Bounded, joined, softmax, stacked
from .data import Draw, Trial


def attention(d: Draw, items: int, queries: int, keys: int, width: int, causal: bool = False, masked: str = "",
              shared: bool = False) -> Trial:
    """Scaled dot-product attention of ``items`` heads, and its gradients.

    ``shared``: all queries are the same memory. ``masked``: 'keeps' or 'added' is one boolean or additive mask for all heads, which masks
    every key of the first query. 'each' is one mask for each head."""
    arrays = [d.reals(items, n, width) for n in (1 if shared else queries, keys, keys)]
    g, scale = d.few(items, queries, width), width**-0.5
    kept = np.tril(np.ones((queries, keys), bool)) if causal else d.random.random((items if masked == "each" else 1, queries, keys)) < 0.7
    kept[..., 1:, 0] |= not causal  # every other query looks at something
    kept[..., 0, :] &= not masked
    added = np.where(kept, d.reals(*kept.shape), -np.inf) if masked == "added" else np.zeros(kept.shape)
    leaves, slope = [d.tensor(a, True) for a in arrays], d.tensor(g)
    mask = d.tensor(added) if masked == "added" else ampc.tensor(kept, device=d.device) if masked else None

    def compute() -> Dict[str, Any]:
        for leaf in leaves:
            leaf.grad = None
        query, key, value = leaves
        y = F.scaled_dot_product_attention(query.expand(items, queries, width), key, value, attn_mask=mask, is_causal=causal)
        y.backward(slope)
        return dict(zip(("result", "gradient of queries", "gradient of keys", "gradient of values"), (y, *(leaf.grad for leaf in leaves))))

    def expect() -> Dict[str, Bounded]:
        q, k, v = (d.given(a) for a in (np.broadcast_to(arrays[0], (items, queries, width)), *arrays[1:]))
        whole = np.broadcast_to(kept if masked or causal else True, (items, queries, keys))
        scores = d.part(d.part(q @ k.turned) * scale) + np.where(np.isfinite(added), added, 0.0)
        some = whole.any(-1, keepdims=True)
        weights = d.part(softmax(d.part(scores), whole | ~some)).where(np.broadcast_to(some, whole.shape))
        low, slopes = weights.rounded(d.dtype).where(whole), d.part(d.given(g) @ v.turned)
        result = low @ v
        on_gpu = d.device != "cpu"  # whose kernels take the mean slope of a row from the rounded result (Dao 2023)
        mean = (d.given(g) * result.rounded(d.dtype)).sum(-1, True) if on_gpu else (slopes * weights).sum(-1, True)
        slopes = (d.part((slopes - mean) * weights) * scale).rounded(d.dtype).where(whole)
        out = {"result": result, "gradient of queries": slopes @ k, "gradient of keys": slopes.turned @ q,
               "gradient of values": low.turned @ d.given(g)}
        out = {name: value.rounded(d.dtype) for name, value in out.items()}
        if shared:
            out["gradient of queries"] = out["gradient of queries"].sum(1, True).rounded(d.dtype)
        return out

    return Trial(compute, expect)


# -- recurrent layers: a step, and the way back through it -----------------------------------------------------------

Step = Tuple[Bounded, Any]


def _split(u: Bounded, gates: int) -> List[Bounded]:
    n = u.value.shape[1] // gates
    return [u[:, i * n:(i + 1) * n] for i in range(gates)]


def _tanh_step(x: Bounded, u: Bounded, state: Bounded, low: Callable[[Bounded], Bounded]) -> Tuple[Bounded, Callable]:
    h = (x + u).tanh()

    def back(dh: Bounded) -> Tuple[Bounded, Bounded, Bounded]:
        y = low(h)
        du = dh * (_one(y) - y * y)
        return du, du, du * 0.0

    return h, back


def _one(like: Bounded) -> Bounded:
    return Bounded(np.ones_like(like.value), 0.0, like.unit)


def _gru_step(x: Bounded, u: Bounded, state: Bounded, low: Callable[[Bounded], Bounded]) -> Tuple[Bounded, Callable]:
    (xr, xz, xn), (ur, uz, un) = _split(x, 3), _split(u, 3)
    r, z = (xr + ur).sigmoid(), (xz + uz).sigmoid()
    n = (xn + r * un).tanh()
    h = (_one(z) - z) * n + z * state

    def back(dh: Bounded) -> Tuple[Bounded, Bounded, Bounded]:
        kr, kz, kn, ku, before = (low(t) for t in (r, z, n, un, state))
        dn = dh * (_one(kz) - kz) * (_one(kn) - kn * kn)
        dz = dh * (before - kn) * kz * (_one(kz) - kz)
        dr = dn * ku * kr * (_one(kr) - kr)
        return joined([dr, dz, dn], 1), joined([dr, dz, dn * kr], 1), dh * kz

    return h, back


class _Lstm:
    """Keeps the cell state, forward, and its gradient, back; of sequences that do not run at a step, both stay."""

    def __init__(self, cell: Bounded, slope: Bounded) -> None:
        self.cell, self.slope, self.running = cell, slope, np.ones(1, bool)

    def __call__(self, x: Bounded, u: Bounded, state: Bounded, low: Callable[[Bounded], Bounded]) -> Tuple[Bounded, Callable]:
        i, f, g, o = _split(x + u, 4)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        before, running = self.cell, self.running
        cell = f * before + i * g
        self.cell = cell.or_else(running, before)

        def back(dh: Bounded) -> Tuple[Bounded, Bounded, Bounded]:
            ki, kf, kg, ko, old = (low(t) for t in (i, f, g, o, before))
            bent = low(cell).tanh()
            dc = dh * ko * (_one(bent) - bent * bent) + self.slope
            self.slope = (dc * kf).or_else(running, self.slope)
            gates = [dc * kg * ki * (_one(ki) - ki), dc * old * kf * (_one(kf) - kf), dc * ki * (_one(kg) - kg * kg),
                     dh * bent * ko * (_one(ko) - ko)]
            du = joined(gates, 1)
            return du, du, dh * 0.0

        return o * cell.tanh(), back


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
NAMES = ("input weight", "state weight", "input bias", "state bias")


def _direction(d: Draw, mode: str, x: np.ndarray, runs: np.ndarray, backwards: bool, weights: Sequence[np.ndarray], states: Sequence[np.ndarray],
               g: np.ndarray, ends: Sequence[np.ndarray]) -> Dict[str, Any]:
    """One direction over [steps, batch, inputs], of sequences that run at some of the steps; ``ends``: the gradients of the last states."""
    steps, batch, inputs = x.shape

    def low(b: Bounded) -> Bounded:
        return b.rounded(d.dtype)

    wi, wh, bi, bh = (d.given(w) for w in weights)
    if mode != "GRU":  # one bias, made and rounded first
        bi, bh = low(bi + bh), d.given(np.zeros_like(bh.value))
    h, order = d.given(states[0]), range(steps)[::-1] if backwards else range(steps)
    cell: Any = _Lstm(d.given(states[1]), d.given(ends[1])) if mode == "LSTM" else _gru_step if mode == "GRU" else _tanh_step
    nothing = d.given(np.zeros_like(states[0]))
    outs, befores, backs = [nothing] * steps, [nothing] * steps, {}
    for t in order:
        befores[t], cell_running = low(h).where(runs[t] & np.ones(h.value.shape, bool)), runs[t]
        if mode == "LSTM":
            cell.running = cell_running
        new, backs[t] = cell(low(d.given(x[t]) @ wi.turned + bi), low(h) @ wh.turned + bh, h, low)
        h = new.or_else(runs[t], h)
        outs[t] = low(new).or_else(runs[t], nothing)
    last = [low(h), low(cell.cell)] if mode == "LSTM" else [low(h)]
    dh, du_x, du_h = d.given(ends[0]), [nothing] * steps, [nothing] * steps
    for t in reversed(order):
        dx, du, straight = backs[t](dh + d.given(g[t]))
        dh = (low(du) @ wh + straight).or_else(runs[t], dh)
        du_x[t], du_h[t] = (low(s).where(runs[t] & np.ones(s.value.shape, bool)) for s in (dx, du))
    first = [low(dh), low(cell.slope)] if mode == "LSTM" else [low(dh)]
    flat = [stacked(s).reshape(steps * batch, -1) for s in (du_x, du_h, befores)]
    dwi, dwh = flat[0].turned @ d.given(x.reshape(steps * batch, inputs)), flat[1].turned @ flat[2]
    return {"result": stacked(outs), "input": low((flat[0] @ wi).reshape(steps, batch, inputs)), "last": last, "first": first,
            "weights": [low(b) for b in (dwi, dwh, flat[0].sum(0), flat[1].sum(0))]}


def recurrence(d: Draw, mode: str, steps: int, batch: int, inputs: int, units: int, both: bool = False, packed: bool = False) -> Trial:
    """One layer over sequences from some state, and its gradients. ``both``: in both directions; ``packed``: of different lengths."""
    ways = 1 + both
    x, g, gates = d.reals(steps, batch, inputs), d.few(steps, batch, ways * units), GATES[mode]
    lengths = np.sort(d.random.integers(1, steps + 1, batch))[::-1].copy() if packed else np.full(batch, steps)
    lengths[0] = steps
    runs = np.arange(steps)[:, None, None] < lengths[None, :, None]
    x, g = x * runs, g * runs
    states, ends = ([d.held(d.random.uniform(-1, 1, (ways, batch, units))) for _ in range(2)] for _ in range(2))
    shapes = ((gates * units, inputs), (gates * units, units), (gates * units,), (gates * units,))
    weights = [d.held(d.random.uniform(-0.5, 0.5, s) / units**0.5) for _ in range(ways) for s in shapes]
    layer = getattr(nn, mode)(inputs, units, bidirectional=both, device=d.device, dtype=getattr(ampc, d.dtype))
    with ampc.no_grad():
        for p, values in zip(layer.parameters(), weights):
            p.copy_(d.tensor(values))
    count = 2 if mode == "LSTM" else 1
    leaf, slope, firsts = d.tensor(x, True), d.tensor(g), [d.tensor(s, True) for s in states[:count]]
    last_slopes, sizes = [d.tensor(s) for s in ends[:count]], ampc.tensor(lengths)

    def compute() -> Dict[str, Any]:
        for t in (leaf, *firsts):
            t.grad = None
        layer.zero_grad()
        given = nn.utils.rnn.pack_padded_sequence(leaf, sizes) if packed else leaf
        y, last = layer(given, tuple(firsts) if mode == "LSTM" else firsts[0])
        last = last if mode == "LSTM" else (last,)
        y = nn.utils.rnn.pad_packed_sequence(y)[0] if packed else y
        ampc.autograd.backward([y, *last], [slope, *last_slopes])
        out = {"result": y, "gradient of the input": leaf.grad}
        out.update({f"last state {i}": t for i, t in enumerate(last)}, **{f"gradient of state {i}": t.grad for i, t in enumerate(firsts)})
        return {**out, **{f"gradient of {NAMES[i % 4]} {i // 4}": p.grad for i, p in enumerate(layer.parameters())}}

    def expect() -> Dict[str, Bounded]:
        each = [_direction(d, mode, x, runs, way == 1, weights[4 * way:4 * way + 4], [s[way] for s in states],
                           g[..., way * units:(way + 1) * units], [s[way] for s in ends]) for way in range(ways)]
        dx = each[0]["input"]
        out = {"result": joined([e["result"] for e in each], 2), "gradient of the input": (dx + each[1]["input"]).rounded(d.dtype) if both else dx}
        for i in range(count):
            out[f"last state {i}"] = stacked([e["last"][i] for e in each])
            out[f"gradient of state {i}"] = stacked([e["first"][i] for e in each])
        out.update({f"gradient of {NAMES[i]} {way}": each[way]["weights"][i] for way in range(ways) for i in range(4)})
        return out

    return Trial(compute, expect)


# -- norms -------------------------------------------------------------------------------------------------------------

def _normalised(x: Bounded, g: Bounded, w: Bounded, axes: Tuple[int, ...], eps: float) -> Tuple[Bounded, Bounded]:
    """(x - mean) / deviation over ``axes``, and the gradient of x by that of weight times it."""
    apart = x - x.mean(axes, True)
    rstd = ((apart * apart).mean(axes, True) + eps).sqrt().reciprocal()
    hat, slope = apart * rstd, g * w
    return hat, rstd * (slope - slope.mean(axes, True) - hat * (slope * hat).mean(axes, True))


Shape = Tuple[int, ...]


def _sets(kind: str, shape: Sequence[int], groups: int) -> Tuple[Shape, Shape, Shape, Shape]:
    """The input's shape as sets are seen in it, the weight's there, the dimensions of a set, and those that the weight lacks."""
    images, channels, spatial = shape[0], shape[1], tuple(shape[2:])
    last, ones = len(shape) - 1, (1,) * len(spatial)
    if kind == "layer":
        return tuple(shape), (1,) * last + (shape[-1],), (last,), tuple(range(last))
    if kind == "batch":
        others = (0, *range(2, last + 1))
        return tuple(shape), (1, channels, *ones), others, others
    return (images, groups, channels // groups, *spatial), (1, groups, channels // groups, *ones), tuple(range(2, last + 2)), (0, *range(3, last + 2))


def norm(d: Draw, kind: str, shape: Sequence[int], groups: int = 0, apart: bool = False) -> Trial:
    """``layer``, ``batch`` or ``group`` norm of [images, channels, spatial...], and its gradients. ``apart``: dimensions lie the other way round."""
    x, g, n = d.reals(*shape) + d.few(1, shape[1], *[1] * (len(shape) - 2)), d.few(*shape), shape[-1] if kind == "layer" else shape[1]
    x = d.held(x)
    w, b = d.few(n) + 0.5, d.few(n)
    other = tuple(reversed(range(len(shape))))
    leaf = d.tensor(x.transpose(other) if apart else x, True)
    weight, bias, slope = d.tensor(w, True), d.tensor(b, True), d.tensor(g)

    def compute() -> Dict[str, Any]:
        leaf.grad = weight.grad = bias.grad = None
        it = leaf.permute(*other) if apart else leaf
        if kind == "layer":
            y = F.layer_norm(it, [n], weight, bias)
        elif kind == "batch":
            y = F.batch_norm(it, None, None, weight, bias, training=True)
        else:
            y = F.group_norm(it, groups, weight, bias)
        y.backward(slope)
        dx = leaf.grad.permute(*other) if apart else leaf.grad
        return {"result": y, "gradient of the input": dx, "gradient of the weight": weight.grad, "gradient of the bias": bias.grad}

    def expect() -> Dict[str, Bounded]:
        cut, shaped, axes, rest = _sets(kind, shape, groups)
        it, slopes = d.given(x.reshape(cut)), d.given(g.reshape(cut))
        hat, dx = _normalised(it, slopes, d.given(w.reshape(shaped)), axes, 1e-5)
        y = hat * w.reshape(shaped) + b.reshape(shaped)
        out = {"result": y.reshape(*shape), "gradient of the input": dx.reshape(*shape),
               "gradient of the weight": (slopes * hat).sum(rest).reshape(n), "gradient of the bias": slopes.sum(rest).reshape(n)}
        return {name: value.rounded(d.dtype) for name, value in out.items()}

    return Trial(compute, expect)


def waiting(d: Draw, shape: Sequence[int], last: bool = False) -> Trial:
    """ReLU of batch norm in one pass each way, less the same of two passes: somebody looks at what is between. ``last``: channels-last."""
    x, g, n = d.reals(*shape), d.few(*shape), shape[1]
    leaf, weight, bias, slope = d.tensor(x, True), d.tensor(d.few(n) + 0.5, True), d.tensor(d.few(n), True), d.tensor(g)

    def look(t: ampc.Tensor) -> None:
        t.data_ptr()

    def once(seen: bool) -> List[ampc.Tensor]:
        leaf.grad = weight.grad = bias.grad = None
        it = leaf.contiguous(memory_format=ampc.channels_last) if last else leaf * 1
        y = F.batch_norm(it, None, None, weight, bias, training=True)
        if seen:
            look(y)
            y.register_hook(look)
        z = F.relu(y)
        z.backward(slope)
        return [z.detach(), leaf.grad, weight.grad, bias.grad]

    def compute() -> Dict[str, Any]:
        names = ("result", "gradient of the input", "gradient of the weight", "gradient of the bias")
        return {name: two - one for name, two, one in zip(names, once(True), once(False))}

    zeros = {"result": shape, "gradient of the input": shape, "gradient of the weight": [n], "gradient of the bias": [n]}
    return Trial(compute, lambda: {name: Bounded(np.zeros(tuple(size)), np.zeros(tuple(size))) for name, size in zeros.items()})


def evaluated(d: Draw, shape: Sequence[int], training: bool) -> Trial:
    """Batch norm with running statistics: those it takes, or those it leaves; of positions beyond a tile, without a bias."""
    x, g, n, others = d.reals(*shape), d.few(*shape), shape[1], (0, *range(2, len(shape)))
    w, mean, var = d.few(n) + 0.5, d.reals(n), d.held(d.random.uniform(0.5, 2, n))
    column, momentum = (n, *[1] * (len(shape) - 2)), 0.25
    leaf, weight, slope = d.tensor(x, True), d.tensor(w, True), d.tensor(g)
    count = x.size // n

    def compute() -> Dict[str, Any]:
        leaf.grad = weight.grad = None
        own = d.tensor(mean), d.tensor(var)
        y = F.batch_norm(leaf, *own, weight, None, training, momentum)
        if training:
            return {"running mean": own[0], "running variance": own[1]}
        y.backward(slope)
        return {"result": y, "gradient of the input": leaf.grad, "gradient of the weight": weight.grad}

    def expect() -> Dict[str, Bounded]:
        it, left, spread = d.given(x), d.given(mean.reshape(column)), d.given(var.reshape(column))
        if training:
            middle = it.mean(others, True)
            apart = it - middle
            found = (apart * apart).sum(others) * (1 / (count - 1))
            return {"running mean": (d.given(mean) * (1 - momentum) + middle.reshape(n) * momentum).rounded(d.dtype),
                    "running variance": (d.given(var) * (1 - momentum) + found * momentum).rounded(d.dtype)}
        hat = (it - left) * (spread + 1e-5).sqrt().reciprocal()
        dx = d.given(g) * w.reshape(column) * (spread + 1e-5).sqrt().reciprocal()
        out = {"result": hat * w.reshape(column), "gradient of the input": dx, "gradient of the weight": (d.given(g) * hat).sum(others)}
        return {name: value.rounded(d.dtype) for name, value in out.items()}

    return Trial(compute, expect)


def plain(d: Draw, count: int, n: int) -> Trial:
    """Layer norm without a bias, without both, and RMS norm."""
    x, w = d.reals(count, n), d.few(n) + 0.5
    a, b = d.tensor(x), d.tensor(w)

    def expect() -> Dict[str, Bounded]:
        hat, _ = _normalised(d.given(x), d.given(x), d.given(np.ones(n)), (1,), 1e-5)
        it = d.given(x)
        root = it * ((it * it).mean((1,), True) + 1e-5).sqrt().reciprocal()
        return {"without bias": (hat * w).rounded(d.dtype), "without both": hat.rounded(d.dtype),
                "of squares": (root.rounded(d.dtype) * w).rounded(d.dtype)}

    return Trial(lambda: {"without bias": F.layer_norm(a, [n], b), "without both": F.layer_norm(a, [n]), "of squares": F.rms_norm(a, [n], b, 1e-5)},
                 expect)


def rows(d: Draw, count: int, n: int, apart: bool = False) -> Trial:
    """softmax, log_softmax and logsumexp along rows, and their gradients; ``apart``: along columns of memory."""
    x, g = d.reals(count, n), d.few(count, n)
    leaf, slope = d.tensor(x.T if apart else x, True), d.tensor(g)

    def gradient(y: Any, slope: Any) -> Any:
        leaf.grad = None
        y.backward(slope)
        return leaf.grad.T if apart else leaf.grad

    def compute() -> Dict[str, Any]:
        it = leaf.T if apart else leaf
        soft, logs, total = F.softmax(it, 1), F.log_softmax(it, 1), it.logsumexp(1)
        out = {"result": soft, "logarithms": logs, "logarithm of the sum": total}
        out["gradient of the input"], out["gradient through logarithms"] = gradient(soft, slope), gradient(logs, slope)
        return {**out, "gradient through the sum": gradient(total, slope[:, 0])}

    def expect() -> Dict[str, Bounded]:
        y, g_ = softmax(d.given(x)), d.given(g)
        kept = y.rounded(d.dtype)
        top = x.max(1, keepdims=True)
        e = (d.given(x) - top).exp().sum(1, True)
        total = Bounded(np.log(e.value), e.error / (e.value - e.error) + 4 * e.unit * (1 + np.abs(np.log(e.value))), e.unit) + top
        logs = (d.given(x) - total).rounded(d.dtype)
        dx = kept * (g_ - (g_ * kept).sum(-1, True))
        out = {"result": kept, "logarithms": logs, "logarithm of the sum": total.reshape(count), "gradient of the input": dx,
               "gradient through logarithms": g_ - logs.exp() * g_.sum(-1, True),
               "gradient through the sum": (d.given(x) - total.rounded(d.dtype)).rounded(d.dtype).exp().rounded(d.dtype) * g[:, :1]}
        return {name: value.rounded(d.dtype) for name, value in out.items()}

    return Trial(compute, expect)
