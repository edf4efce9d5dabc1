"""Trials of what moves, picks or joins values by their positions: indexing, embeddings, pooling, resampling, losses."""

from __future__ import annotations

import itertools
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

import ampc
from ampc.nn import functional as F

from .bounded import Bounded, softmax
from .data import Draw, Trial
from .running import HALVES


def _gradient(leaf: Any, y: Any, slope: Any) -> Any:
    leaf.grad = None
    y.backward(slope)
    return leaf.grad


def indexing(d: Draw, rows: int, width: int, picks: int) -> Trial:
    """Rows picked by indices of which many meet, negative ones among them, and the sums that their gradients are."""
    x, g = d.many(picks, rows, width), d.few(picks, width)
    at = d.random.integers(0, rows, picks) % (rows - 1)  # the last row has none
    at[: picks // 2] = at[0]
    signed = np.where(d.random.random(picks) < 0.5, at, at - rows)
    many = np.broadcast_to(at[:, None], (picks, width))
    table, slope, base = d.tensor(x, True), d.tensor(g), d.tensor(x)
    index, either, wide = (ampc.tensor(np.ascontiguousarray(i), device=d.device) for i in (at, signed, many))

    def compute() -> Dict[str, Any]:
        padding = int(at[0])
        return {"rows": F.embedding(index, table), "picked": base[either], "along": base.gather(0, wide), "some": base.index_select(0, index),
                "gradient of a table": _gradient(table, F.embedding(index, table), slope),
                "gradient without padding": _gradient(table, F.embedding(index, table, padding_idx=padding), slope),
                "gradient of rows": _gradient(table, table[either], slope), "added": base.index_add(0, index, slope),
                "scattered": base.scatter_add(0, wide, slope), "put": base.index_put((either,), slope, accumulate=True)}

    def expect() -> Dict[str, Bounded]:
        picked, total, without = d.exact(x[at]), np.zeros_like(x), np.zeros_like(x)
        np.add.at(total, at, g)
        np.add.at(without, at[at != at[0]], g[at != at[0]])
        out = dict.fromkeys(("rows", "picked", "along", "some"), picked)
        out.update({name: d.exact(x + total) for name in ("added", "scattered", "put")})
        return {**out, "gradient of a table": d.exact(total), "gradient of rows": d.exact(total), "gradient without padding": d.exact(without)}

    return Trial(compute, expect)


def _taps(kernel: int, dims: int, positions: Sequence[int], stride: int, apart: int) -> List[Tuple[Any, ...]]:
    """Where each tap of windows falls on what is padded."""
    taps = itertools.product(range(kernel), repeat=dims)
    return [(Ellipsis, *(slice(t * apart, t * apart + stride * (n - 1) + 1, stride) for t, n in zip(tap, positions))) for tap in taps]


def pooling(d: Draw, planes: int, size: Sequence[int], kernel: int, stride: int, padding: int, dilation: int) -> Trial:
    """The largest value of windows, of equal ones the first, means of windows of two, and their gradients."""
    x, dims = d.few(planes, *size), len(size)
    out = tuple((s + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1 for s in size)
    halved = tuple((s + 2 - 2) // stride + 1 for s in size)
    g, h = d.few(planes, *out), d.few(planes, *halved)
    leaf, slope, other = d.tensor(x[None], True), d.tensor(g[None]), d.tensor(h[None])
    largest, mean = getattr(F, f"max_pool{dims}d"), getattr(F, f"avg_pool{dims}d")

    def compute() -> Dict[str, Any]:
        y, z = largest(leaf, kernel, stride, padding, dilation), mean(leaf, 2, stride, 1)
        return {"largest": y, "gradient of the largest": _gradient(leaf, y, slope), "mean": z, "gradient of the mean": _gradient(leaf, z, other)}

    def padded(values: np.ndarray, by: int, fill: float) -> np.ndarray:
        return np.pad(values, [(0, 0)] + [(by, by)] * dims, constant_values=fill)

    def inside(values: np.ndarray, by: int) -> np.ndarray:
        positions: Tuple[Any, ...] = (slice(None), *(slice(by, by + s) for s in size))
        return values[positions]

    def expect() -> Dict[str, Bounded]:
        high, zero = padded(x, padding, -np.inf), padded(x, 1, 0.0)
        dx, dm, total = np.zeros_like(high), np.zeros_like(zero), np.zeros((planes, *halved))
        windows = _taps(kernel, dims, out, stride, dilation)
        values = np.stack([high[at] for at in windows])
        for i, at in enumerate(windows):
            dx[at] += np.where(values.argmax(0) == i, g, 0)
        for at in _taps(2, dims, halved, stride, 1):
            total += zero[at]
            dm[at] += h
        results = {"largest": values.max(0), "gradient of the largest": inside(dx, padding), "mean": total / 2**dims,
                   "gradient of the mean": inside(dm, 1) / 2**dims}
        return {name: d.exact(value[None]) for name, value in results.items()}

    return Trial(compute, expect)


def resampling(d: Draw, planes: int, size: Sequence[int], out: Sequence[int]) -> Trial:
    """Images made larger or smaller, linearly between corners and by the nearest, and the gradients."""
    x, g = d.few(planes, *size), d.few(planes, *out)
    leaf, slope = d.tensor(x[None], True), d.tensor(g[None])

    def compute() -> Dict[str, Any]:
        line = F.interpolate(leaf, size=list(out), mode="bilinear", align_corners=True)
        near = F.interpolate(leaf, size=list(out), mode="nearest")
        return {"linear": line, "gradient of the linear": _gradient(leaf, line, slope), "nearest": near,
                "gradient of the nearest": _gradient(leaf, near, slope)}

    def matrix(n: int, m: int, near: bool) -> np.ndarray:
        """What each of m values takes of n."""
        w, at = np.zeros((m, n)), np.arange(m) * n // m if near else np.arange(m) * (n - 1) / max(m - 1, 1)
        low = np.minimum(np.floor(at).astype(int), max(n - 2, 0))
        low = at if near else low
        w[np.arange(m), low] = 1 if near else 1 - (at - low)
        if not near and n > 1:
            w[np.arange(m), low + 1] = at - low
        return w

    def expect() -> Dict[str, Bounded]:
        result = {}
        for name, near in (("linear", False), ("nearest", True)):
            rows, cols = (d.given(matrix(n, m, near)) for n, m in zip(size, out))
            up = (d.given(x).turned @ rows.turned).turned.rounded(d.dtype)
            down = (d.given(g) @ cols).rounded(d.dtype)
            result[name] = (up @ cols.turned)[None].rounded(d.dtype)
            result[f"gradient of the {name}"] = (down.turned @ rows).turned[None].rounded(d.dtype)
        return result

    return Trial(compute, expect)


def losses(d: Draw, count: int, classes: int) -> Trial:
    """Cross entropy of classes, some of which are ignored, with weights; mean squares; and their gradients."""
    x, y, w = d.reals(count, classes), d.reals(count, classes), d.random.integers(1, 5, classes).astype(float)
    target = d.random.integers(0, classes, count)
    target[::5] = -100
    leaf, other, weight, truth = d.tensor(x, True), d.tensor(y), d.tensor(w), ampc.tensor(target, device=d.device)

    def compute() -> Dict[str, Any]:
        each, squares = F.cross_entropy(leaf, truth, weight), F.mse_loss(leaf, other, reduction="sum")
        sums = F.nll_loss(leaf, truth, weight, reduction="sum")
        return {"cross entropy": each, "gradient": _gradient(leaf, each, None), "picked": sums, "gradient of the picked": _gradient(leaf, sums, None),
                "squares": squares, "gradient of squares": _gradient(leaf, squares, None)}

    def expect() -> Dict[str, Bounded]:
        some = target >= 0
        own = np.where(some, w[np.maximum(target, 0)], 0.0)
        hot = np.zeros((count, classes))
        hot[some, target[some]] = 1
        p = softmax(d.given(x))
        e = (d.given(x) - x.max(1, keepdims=True)).exp().sum(1, True)
        total = Bounded(np.log(e.value), e.error / (e.value - e.error) + 4 * e.unit * (1 + np.log(e.value)), e.unit) + x.max(1, keepdims=True)
        logs = (d.given(x) - total).rounded(d.dtype)
        weights = hot * own[:, None]
        loss = (logs * (-weights / own.sum())).sum((0, 1))
        away = (d.given(x) - d.given(y)).rounded(d.dtype)
        share = d.exact(weights / own.sum())
        slope = (logs.exp() * share.sum(1, True) - share) if d.dtype in HALVES else (p * (own[:, None] / own.sum()) - weights / own.sum())
        out = {"cross entropy": loss, "gradient": slope, "picked": (d.given(x) * -weights).sum((0, 1)), "gradient of the picked": d.exact(-weights),
               "squares": (away * away).rounded(d.dtype).sum((0, 1)), "gradient of squares": away * 2.0}
        return {name: value.rounded(d.dtype) for name, value in out.items()}

    return Trial(compute, expect)
