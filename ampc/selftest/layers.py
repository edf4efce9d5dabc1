"""Trials of attention, recurrent layers, norms and softmax, whose references carry their errors along."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np

import ampc
from ampc import nn
from ampc.nn import functional as F

from .bounded import Bounded, joined, softmax, stacked
from .data import Draw, Trial


def attention(d: Draw, items: int, queries: int, keys: int, width: int, causal: bool = False, masked: bool = False) -> Trial:
    """Scaled dot-product attention of ``items`` heads, and its gradients."""
    arrays = [d.reals(items, n, width) for n in (queries, keys, keys)]
    g, scale = d.few(items, queries, width), width**-0.5
    kept = np.tril(np.ones((queries, keys), bool)) if causal else d.random.random((queries, keys)) < 0.7 if masked else None
    if masked and kept is not None:
        kept[:, 0] = True  # every query looks at something
    leaves, slope = [d.tensor(a, True) for a in arrays], d.tensor(g)
    mask = ampc.tensor(kept, device=d.device) if masked else None

    def compute() -> Dict[str, Any]:
        for leaf in leaves:
            leaf.grad = None
        y = F.scaled_dot_product_attention(*leaves, attn_mask=mask, is_causal=causal)
        y.backward(slope)
        return dict(zip(("result", "gradient of queries", "gradient of keys", "gradient of values"), (y, *(leaf.grad for leaf in leaves))))

    def expect() -> Dict[str, Bounded]:
        q, k, v = (d.given(a) for a in arrays)
        whole = None if kept is None else np.broadcast_to(kept, (items, queries, keys))
        weights = d.part(softmax(d.part(d.part(q @ k.turned) * scale), whole))
        low, slopes = weights.rounded(d.dtype), d.part(d.given(g) @ v.turned)
        slopes = (d.part((slopes - (slopes * weights).sum(-1, True)) * weights) * scale).rounded(d.dtype)
        out = {"result": low @ v, "gradient of queries": slopes @ k, "gradient of keys": slopes.turned @ q,
               "gradient of values": low.turned @ d.given(g)}
        return {name: value.rounded(d.dtype) for name, value in out.items()}

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
    """Keeps the cell state, forward, and its gradient, back."""

    def __init__(self) -> None:
        self.cell: Any = None
        self.slope: Any = 0.0

    def __call__(self, x: Bounded, u: Bounded, state: Bounded, low: Callable[[Bounded], Bounded]) -> Tuple[Bounded, Callable]:
        i, f, g, o = _split(x + u, 4)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        before = state * 0.0 if self.cell is None else self.cell
        cell = self.cell = f * before + i * g

        def back(dh: Bounded) -> Tuple[Bounded, Bounded, Bounded]:
            ki, kf, kg, ko, old = (low(t) for t in (i, f, g, o, before))
            bent = low(cell).tanh()
            dc = dh * ko * (_one(bent) - bent * bent) + self.slope
            self.slope = dc * kf
            gates = [dc * kg * ki * (_one(ki) - ki), dc * old * kf * (_one(kf) - kf), dc * ki * (_one(kg) - kg * kg),
                     dh * bent * ko * (_one(ko) - ko)]
            du = joined(gates, 1)
            return du, du, dh * 0.0

        return o * cell.tanh(), back


def recurrence(d: Draw, mode: str, steps: int, batch: int, inputs: int, units: int) -> Trial:
    """One layer over whole sequences from a state of zeros, and its gradients."""
    step: Callable = {"RNN": lambda: _tanh_step, "GRU": lambda: _gru_step, "LSTM": _Lstm}[mode]
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[mode]
    x, g = d.reals(steps, batch, inputs), d.few(steps, batch, units)
    shapes = ((gates * units, inputs), (gates * units, units), (gates * units,), (gates * units,))
    weights = [d.held(d.random.uniform(-0.5, 0.5, s) / units**0.5) for s in shapes]
    layer = getattr(nn, mode)(inputs, units, device=d.device, dtype=getattr(ampc, d.dtype))
    with ampc.no_grad():
        for p, values in zip(layer.parameters(), weights):
            p.copy_(d.tensor(values))
    leaf, slope, names = d.tensor(x, True), d.tensor(g), ("input weight", "state weight", "input bias", "state bias")

    def compute() -> Dict[str, Any]:
        leaf.grad = None
        layer.zero_grad()
        y, _ = layer(leaf)
        y.backward(slope)
        out = {"result": y, "gradient of the input": leaf.grad}
        return {**out, **{f"gradient of the {name}": p.grad for name, p in zip(names, layer.parameters())}}

    def low(b: Bounded) -> Bounded:
        return b.rounded(d.dtype)

    def expect() -> Dict[str, Bounded]:
        wi, wh, bi, bh = (d.given(w) for w in weights)
        if mode != "GRU":  # one bias, made and rounded first
            bi, bh = low(bi + bh), d.given(np.zeros_like(bh.value))
        h, cell, outs, befores, backs = d.given(np.zeros((batch, units))), step(), [], [], []
        for t in range(steps):
            befores.append(low(h))
            h, back = cell(low(d.given(x[t]) @ wi.turned + bi), low(h) @ wh.turned + bh, h, low)
            outs.append(low(h))
            backs.append(back)
        dh = d.given(np.zeros((batch, units)))
        du_x: List[Bounded] = []
        du_h: List[Bounded] = []
        for t in reversed(range(steps)):
            dx, du, straight = backs[t](dh + d.given(g[t]))
            dh = low(du) @ wh + straight
            du_x.insert(0, low(dx))
            du_h.insert(0, low(du))
        flat = [stacked(s).reshape(steps * batch, -1) for s in (du_x, du_h, befores)]
        dwi, dwh = flat[0].turned @ d.given(x.reshape(steps * batch, inputs)), flat[1].turned @ flat[2]
        out = {"result": stacked(outs), "gradient of the input": (flat[0] @ wi).reshape(steps, batch, inputs)}
        sums = {"input weight": dwi, "state weight": dwh, "input bias": flat[0].sum(0), "state bias": flat[1].sum(0)}
        return {**{k: low(v) for k, v in out.items()}, **{f"gradient of the {k}": low(v) for k, v in sums.items()}}

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
    images, channels, places = shape[0], shape[1], tuple(shape[2:])
    last, ones = len(shape) - 1, (1,) * len(places)
    if kind == "layer":
        return tuple(shape), (1,) * last + (shape[-1],), (last,), tuple(range(last))
    if kind == "batch":
        others = (0, *range(2, last + 1))
        return tuple(shape), (1, channels, *ones), others, others
    return (images, groups, channels // groups, *places), (1, groups, channels // groups, *ones), tuple(range(2, last + 2)), (0, *range(3, last + 2))


def norm(d: Draw, kind: str, shape: Sequence[int], groups: int = 0, apart: bool = False) -> Trial:
    """``layer``, ``batch`` or ``group`` norm of [images, channels, places...], and its gradients. ``apart``: dimensions lie the other way round."""
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


def rows(d: Draw, count: int, n: int, apart: bool = False) -> Trial:
    """softmax along rows, and its gradient; ``apart``: along columns of memory."""
    x, g = d.reals(count, n), d.few(count, n)
    leaf, slope = d.tensor(x.T if apart else x, True), d.tensor(g)

    def compute() -> Dict[str, Any]:
        leaf.grad = None
        y = F.softmax(leaf.T if apart else leaf, 1)
        y.backward(slope)
        return {"result": y, "gradient of the input": leaf.grad.T if apart else leaf.grad}

    def expect() -> Dict[str, Bounded]:
        y, g_ = softmax(d.given(x)), d.given(g)
        kept = y.rounded(d.dtype)
        dx = kept * (g_ - (g_ * kept).sum(-1, True))
        return {"result": kept, "gradient of the input": dx.rounded(d.dtype)}

    return Trial(compute, expect)
