"""What layers compute, in float64, with their gradients, and how far a result in a narrower dtype may lie from that.

Nothing here runs on a kernel that is under test: convolutions, products, attention and norms are NumPy; recurrent layers are written step by
step in elementary operators of float64, whose products are OpenBLAS's.

Bounds. A sum of n terms, each of at most `largest`, adds up n roundings of partial sums that grow as sqrt(n). Both are random, so the error's
standard deviation is below 0.2 n eps largest for terms spread evenly over their range, and n eps largest is five of them; for the first few
terms it is the strict bound. To that comes the one rounding of the result to its dtype, and the spacing of its smallest numbers."""

from __future__ import annotations

import math
from typing import Any, Callable, Optional, Sequence, Tuple

import numpy as np

import ampc

Array = np.ndarray
Window = Tuple[Sequence[int], Sequence[int], Sequence[int], int]  # stride, padding, dilation, groups


def widened(t: ampc.Tensor) -> Array:
    return t.detach().double().numpy()


def eps(dtype: Any) -> float:
    return ampc.finfo(dtype).eps


def eps_of_sums(dtype: Any) -> float:
    """Sums are float32 where operands are, or have 16 bits."""
    return eps(ampc.float64 if dtype is ampc.float64 else ampc.float32)


def rounded(want: Array, dtype: Any) -> Array:
    """Room for the rounding of a result."""
    return eps(dtype) * np.abs(want) + float(ampc.finfo(dtype).smallest_normal) * eps(dtype)


def room_of_sum(want: Array, dtype: Any, terms: int, largest: float) -> Array:
    return rounded(want, dtype) + terms * eps_of_sums(dtype) * largest


def top(x: Array) -> float:
    return float(np.abs(x).max()) if x.size else 0.0


def close(name: str, got: ampc.Tensor, want: Array, room: Any) -> None:
    """Every value of `got` lies within `room` of `want`; what is not a number does not."""
    assert tuple(got.shape) == want.shape, f"{name}: shape {tuple(got.shape)}, expected {want.shape}"
    off = np.abs(widened(got) - want)
    good = off <= room
    if not good.all():
        at = np.unravel_index(np.argmax(np.where(good, -1, np.where(np.isnan(off), np.inf, off / (room + 1e-300)))), want.shape)
        allowed = np.broadcast_to(room, want.shape)[at]
        raise AssertionError(f"{name}: {int((~good).sum())} of {good.size} values are off; the worst at {[int(i) for i in at]} is {widened(got)[at]}, "
                             f"expected {want[at]} within {allowed}")


# -- convolution -----------------------------------------------------------------------------------------------------


def _positions(k: Sequence[int], w: Window, out: Sequence[int]) -> Tuple[slice, ...]:
    """The positions of a padded image that tap k of every window reads."""
    stride, _, dilation, _ = w
    return tuple(slice(k[d] * dilation[d], k[d] * dilation[d] + (out[d] - 1) * stride[d] + 1, stride[d]) for d in range(len(out)))


def _by_group(x: Array, groups: int) -> Array:
    return x.reshape(len(x), groups, x.shape[1] // groups, -1)


def _padded(x: Array, w: Window) -> Array:
    return np.pad(x, [(0, 0), (0, 0), *((p, p) for p in w[1])])


def convolved(x: Array, weight: Array, w: Window) -> Array:
    groups, kernel, x = w[3], weight.shape[2:], _padded(x, w)
    out = [(x.shape[d + 2] - w[2][d] * (kernel[d] - 1) - 1) // w[0][d] + 1 for d in range(len(kernel))]
    y = np.zeros((len(x), groups, len(weight) // groups, math.prod(out)))
    for k in np.ndindex(*kernel):
        tap = weight[(slice(None), slice(None), *k)].reshape(groups, -1, weight.shape[1])
        y += tap @ _by_group(x[(slice(None), slice(None), *_positions(k, w, out))], groups)
    return y.reshape(len(x), len(weight), *out)


def convolved_input(g: Array, weight: Array, w: Window, size: Sequence[int]) -> Array:
    """The gradient of the input, which is the transposed convolution of g."""
    groups, out = w[3], g.shape[2:]
    x = np.zeros((len(g), weight.shape[1] * groups, *(n + 2 * p for n, p in zip(size, w[1]))))
    for k in np.ndindex(*weight.shape[2:]):
        tap = weight[(slice(None), slice(None), *k)].reshape(groups, -1, weight.shape[1])
        x[(slice(None), slice(None), *_positions(k, w, out))] += (tap.swapaxes(1, 2) @ _by_group(g, groups)).reshape(len(g), -1, *out)
    return x[(slice(None), slice(None), *(slice(p, p + n) for n, p in zip(size, w[1])))]


def convolved_weight(x: Array, g: Array, w: Window, kernel: Sequence[int]) -> Array:
    groups, out, x = w[3], g.shape[2:], _padded(x, w)
    dw = np.zeros((g.shape[1], x.shape[1] // groups, *kernel))
    beside = lambda t: np.moveaxis(_by_group(t, groups), 0, 2).reshape(groups, t.shape[1] // groups, -1)  # noqa: E731  images side by side
    slopes = beside(g)
    for k in np.ndindex(*kernel):
        part = beside(x[(slice(None), slice(None), *_positions(k, w, out))])
        dw[(slice(None), slice(None), *k)] = (slopes @ part.swapaxes(1, 2)).reshape(dw.shape[:2])
    return dw


# -- attention -------------------------------------------------------------------------------------------------------


def attention(q: Array, k: Array, v: Array, g: Array, mask: Optional[Array], scale: float, dtype: Any) -> list:
    """(name, value, room) of the result and of the gradients of q, k and v; mask is what is added to the scores."""
    t = lambda x: x.swapaxes(-1, -2)  # noqa: E731
    with np.errstate(invalid="ignore"):
        scores = q @ t(k) * scale + (0 if mask is None else mask)
        p = np.exp(scores - scores.max(-1, keepdims=True))
    p = np.where(np.isnan(p), 0.0, p)  # rows of which all is masked
    p /= np.maximum(p.sum(-1, keepdims=True), 1e-300)
    y, dp = p @ v, g @ t(v)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * scale
    # weights have an error relative to them, from the scores; both are rounded to 16 bits for their products
    e, low = eps_of_sums(dtype), eps(dtype)
    finite = np.where(np.isfinite(scores), scores, 0.0)
    of_weights = e * (8 + q.shape[-1] * top(q) * top(k) * abs(scale) + top(finite) + k.shape[-2])
    of_slopes = 2 * of_weights * top(g @ t(v)) + v.shape[-1] * e * top(g) * top(v)
    tiny = float(ampc.finfo(dtype).smallest_normal) * low
    weights, slopes = (low + of_weights) * p + tiny, (low + of_weights) * np.abs(ds) + p * of_slopes * abs(scale) + tiny
    more = (q.shape[-2] + k.shape[-2]) * e
    return [("y", y, rounded(y, dtype) + weights @ np.abs(v) + more * top(v)),
            ("dq", ds @ k, rounded(ds @ k, dtype) + slopes @ np.abs(k) + more * top(ds) * top(k)),
            ("dk", t(ds) @ q, rounded(t(ds) @ q, dtype) + t(slopes) @ np.abs(q) + more * top(ds) * top(q)),
            ("dv", t(p) @ g, rounded(t(p) @ g, dtype) + t(weights) @ np.abs(g) + more * top(g))]


# -- norms -----------------------------------------------------------------------------------------------------------


def norm(x: Array, g: Array, weight: Optional[Array], bias: Optional[Array], over: Tuple[int, ...], kept: Tuple[int, ...], tiny: float, centred: bool,
         dtype: Any, given: Optional[Tuple[Array, Array]] = None) -> list:
    """(name, value, room) of the result and the gradients of x, weight and bias. Statistics over the dimensions `over`, or `given`; weight and
    bias, shaped to go with x, have their sums over `kept`."""
    mean = given[0] if given else x.mean(over, keepdims=True) if centred else np.zeros_like(x.mean(over, keepdims=True))
    scale = 1 / np.sqrt((given[1] if given else ((x - mean) ** 2).mean(over, keepdims=True)) + tiny)
    hat, w = (x - mean) * scale, 1.0 if weight is None else weight
    y, gw = hat * w + (0 if bias is None else bias), g * w
    dx = gw * scale
    if not given:
        dx = scale * (gw - hat * (gw * hat).mean(over, keepdims=True) - (gw.mean(over, keepdims=True) if centred else 0))
    # mean and scale are sums; an error of the mean counts as many times as x is scaled up
    e = eps_of_sums(dtype) * (8 + math.sqrt(math.prod(x.shape[d] for d in over)))
    of_hat = e * (1 + np.abs(hat) + (np.abs(x) + np.abs(mean) + 1).max(over, keepdims=True) * scale)
    reach = 1 + np.abs(hat).max(over, keepdims=True) + (np.abs(x) + np.abs(mean)).max(over, keepdims=True) * scale
    n = math.prod(x.shape[d] for d in kept)
    result = [("y", y, rounded(y, dtype) + of_hat * np.abs(w) + e * np.abs(y)),
              ("dx", dx, rounded(dx, dtype) + e * scale * np.abs(gw).max(over, keepdims=True) * reach**2)]
    if weight is not None:
        dw = (g * hat).sum(kept, keepdims=True)
        result.append(("dw", dw, rounded(dw, dtype) + n * (eps_of_sums(dtype) * top(g * hat) + (of_hat * np.abs(g)).max(kept, keepdims=True))))
    if bias is not None:
        db = g.sum(kept, keepdims=True)
        result.append(("db", db, room_of_sum(db, dtype, n, top(g))))
    return result


# -- recurrent layers ------------------------------------------------------------------------------------------------


def _step(cell: str, x: Any, h: Any, c: Any, u: Any, b: Any, bends: list) -> tuple:
    """The next state: x is the input's product with its bias. `bends` notes how near relu's argument comes to its bend."""
    y = h @ u.t() + b
    if cell == "LSTM":
        i, f, g, o = (x + y).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
    if cell == "GRU":
        (r, z, n), (s, a, m) = x.chunk(3, -1), y.chunk(3, -1)
        z = (z + a).sigmoid()
        return (1 - z) * (n + (r + s).sigmoid() * m).tanh() + z * h, c
    if cell == "relu":
        bends.append((x + y).abs().min().item())
        return (x + y).relu(), c
    return (x + y).tanh(), c


def _one_way(cell: str, rows: list, h: Any, c: Any, weights: Sequence[Any], back: bool, bends: list) -> tuple:
    w, u, b, d = weights
    result = [None] * len(rows)
    for t in range(len(rows))[::-1 if back else 1]:
        n = len(rows[t])
        new, cell_new = _step(cell, rows[t] @ w.t() + b, h[:n], c[:n], u, d, bends)
        result[t] = new
        h, c = (ampc.cat([a, old[n:]]) if n < len(old) else a for a, old in ((new, h), (cell_new, c)))
    return result, h, c


def recurrent(cell: str, rows: list, h: Any, c: Any, weights: Callable[[int, int], Sequence[Any]], layers: int, ways: int) -> tuple:
    """`rows` has the inputs of every step, of ever fewer sequences; weights(layer, way) the two weights and biases of one. Results, last states,
    and how near an argument of relu came to 0."""
    hs, cs, bends = [], [], [math.inf]
    for layer in range(layers):
        each = [_one_way(cell, rows, h[layer * ways + i], c[layer * ways + i], weights(layer, i), i == 1, bends) for i in range(ways)]
        rows = [ampc.cat(list(parts), -1) for parts in zip(*(e[0] for e in each))]
        hs += [e[1] for e in each]
        cs += [e[2] for e in each]
    return rows, ampc.stack(hs), ampc.stack(cs), min(bends)


def numbers(rng: np.random.Generator, *shape: int) -> Array:
    """Evenly from -1 to 1."""
    return rng.uniform(-1, 1, shape)

