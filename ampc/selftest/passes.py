"""Trials of what goes over memory: elementwise operators, reductions, running totals, optimizer steps, blocks of memory."""

from __future__ import annotations

from typing import Any, Dict, Sequence

import numpy as np

import ampc

from .bounded import Bounded
from .data import Draw, Trial


def elementwise(d: Draw, n: int) -> Trial:
    """Exact arithmetic, and functions."""
    x, y, z = d.many(4, n), d.few(n), d.reals(n)
    a, b, c = (d.tensor(t) for t in (x, y, z))

    def expect() -> Dict[str, Bounded]:
        r = d.given(z)
        return {"arithmetic": d.exact(np.maximum(x, 0) * y + x), "exp": r.exp().rounded(d.dtype), "tanh": r.tanh().rounded(d.dtype)}

    return Trial(lambda: {"arithmetic": ampc.addcmul(a, a.relu(), b), "exp": c.exp(), "tanh": c.tanh()}, expect)


def reduction(d: Draw, shape: Sequence[int], axis: Sequence[int]) -> Trial:
    """Sum, mean, variance, least and largest value, the largest magnitude, counts, and the root of the sum of squares."""
    axes = tuple(axis)
    terms = int(np.prod([shape[a] for a in axes]))
    x, y, z = d.many(terms, *shape), d.few(*shape), d.reals(*shape)
    y[d.random.random(shape) > 16000 / terms] = 0  # float16 holds its sums
    a, b, c = d.tensor(x), d.tensor(y), d.tensor(z)

    def compute() -> Dict[str, Any]:
        return {"sum": a.sum(axes), "mean": a.mean(axes), "amax": a.amax(axes), "amin": a.amin(axes), "norm": ampc.linalg.vector_norm(b, dim=axes),
                "largest magnitude": ampc.linalg.vector_norm(b, float("inf"), dim=axes), "magnitudes": ampc.linalg.vector_norm(b, 1, dim=axes),
                "count": (b != 0).sum(axes), "variance": c.var(axes, correction=0)}

    def expect() -> Dict[str, Bounded]:
        it = d.given(z)
        apart = it - it.mean(axes, True)
        return {"sum": d.exact(x.sum(axes)), "mean": (d.given(x.sum(axes)) * (1 / terms)).rounded(d.dtype), "amax": d.exact(x.max(axes)),
                "amin": d.exact(x.min(axes)), "norm": d.given((y * y).sum(axes)).sqrt().rounded(d.dtype),
                "largest magnitude": d.exact(np.abs(y).max(axes)), "magnitudes": d.exact(np.abs(y).sum(axes)),
                "count": d.exact((y != 0).sum(axes), "int64"), "variance": (apart * apart).mean(axes).rounded(d.dtype)}

    return Trial(compute, expect)


def positions(d: Draw, count: int, n: int, picks: int = 0) -> Trial:
    """Where the largest, the least, the median of rows are, rows in order; of equal ones the first, and a nan above all. ``picks`` (n // 2
    when 0) are taken from the top."""
    k = picks or n // 2
    x = d.few(count, n)
    x[-1, n // 2] = np.nan
    a = d.tensor(x)

    def compute() -> Dict[str, Any]:
        largest, least, order = a.max(1), a.min(1), ampc.sort(a, dim=1, stable=True)
        top, across = ampc.topk(a, k, dim=1), a.t().contiguous().max(0)
        return {"largest": largest[0], "where": largest[1], "least": least[0], "where the least": least[1], "in order": order[0],
                "order": order[1], "top": top[0], "of the top": a.gather(1, top[1]), "largest alone": a.amax(1), "across": across[0],
                "where across": across[1]}

    def expect() -> Dict[str, Bounded]:
        order, top = np.argsort(x, 1, kind="stable"), np.sort(np.where(np.isnan(x), np.inf, x), 1)[:, ::-1][:, :k]
        top = np.where(np.isinf(top), np.nan, top)
        return {"largest": Bounded(x.max(1)), "where": Bounded(x.argmax(1)), "least": Bounded(x.min(1)), "where the least": Bounded(x.argmin(1)),
                "in order": Bounded(np.take_along_axis(x, order, 1)), "order": Bounded(order), "top": Bounded(top), "of the top": Bounded(top),
                "largest alone": Bounded(x.max(1)), "across": Bounded(x.max(1)), "where across": Bounded(x.argmax(1))}

    return Trial(compute, expect)


def scan(d: Draw, rows: int, n: int) -> Trial:
    """Running totals and their gradient; running products, and logarithms of running sums of exponentials."""
    x, g, signs, z = d.many(n, rows, n), d.few(rows, n), d.random.choice([-1.0, 1.0, 2.0, 0.5], (rows, n)), d.reals(rows, n)
    signs[:, 8:] = np.sign(signs[:, 8:])
    leaf, slope, factors, logs = d.tensor(x, True), d.tensor(g), d.tensor(signs), d.tensor(z)

    def compute() -> Dict[str, Any]:
        leaf.grad = None
        y = leaf.cumsum(1)
        y.backward(slope)
        return {"result": y, "gradient": leaf.grad, "products": factors.cumprod(1), "logarithms": logs.logcumsumexp(1)}

    def expect() -> Dict[str, Bounded]:
        return {"result": d.exact(x.cumsum(1)), "gradient": d.exact(g[:, ::-1].cumsum(1)[:, ::-1]), "products": d.exact(signs.cumprod(1)),
                "logarithms": Bounded(np.logaddexp.accumulate(z, 1), 4 * n * 2.0**-52).rounded(d.dtype)}

    return Trial(compute, expect)


def adamw(d: Draw, shape: Sequence[int], steps: int = 2) -> Trial:
    """AdamW steps with the same gradient each."""
    lr, first, second, eps, decay = 0.01, 0.9, 0.999, 1e-8, 0.1
    p, g = d.reals(*shape), d.reals(*shape)

    def compute() -> Dict[str, Any]:
        param = d.tensor(p, True)
        param.grad = d.tensor(g)
        opt = ampc.optim.AdamW([param], lr=lr, betas=(first, second), eps=eps, weight_decay=decay)
        for _ in range(steps):
            opt.step()
        return {"parameter": param}

    def expect() -> Dict[str, Bounded]:
        value, slope, m, v = d.given(p), d.given(g), d.given(p * 0), d.given(p * 0)
        for t in range(1, steps + 1):
            m, v = m * first + slope * (1 - first), v * second + slope * slope * (1 - second)
            m, v = m.rounded(d.dtype), v.rounded(d.dtype)
            root = (v * (1 / (1 - second**t))).sqrt() + eps
            value = value * (1 - lr * decay) - m * (lr / (1 - first**t)) * root.reciprocal()
            value = value.rounded(d.dtype)
        return {"parameter": value}

    return Trial(compute, expect)


def sgd(d: Draw, shape: Sequence[int], apart: bool = False) -> Trial:
    """Steps by whole numbers with momentum; ``apart``: the gradient lies the other way round in memory."""
    p, g = d.many(16, *shape), d.few(*shape)

    def compute() -> Dict[str, Any]:
        param = d.tensor(p, True)
        param.grad = d.tensor(g.T).t() if apart else d.tensor(g)
        opt = ampc.optim.SGD([param], lr=1.0, momentum=0.5)
        for _ in range(2):
            opt.step()
        return {"parameter": param, "momentum": opt.state[param]["momentum_buffer"]}

    def expect() -> Dict[str, Bounded]:
        return {"parameter": (d.exact(p - g) - 1.5 * g).rounded(d.dtype), "momentum": d.exact(1.5 * g)}

    return Trial(compute, expect)


def memory(d: Draw, bytes: int) -> Trial:
    """A new block of memory that holds what is written."""
    def compute() -> Dict[str, Any]:
        ampc._C._memory_trim()
        x = ampc.full((bytes // 4,), 3.0, dtype=ampc.float32, device=d.device)
        return {"smallest": x.amin(), "largest": x.amax()}

    return Trial(compute, lambda: {"smallest": d.exact(np.array(3.0)), "largest": d.exact(np.array(3.0))})
