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
    """Sum, mean, largest value, and the root of the sum of squares."""
    axes = tuple(axis)
    terms = int(np.prod([shape[a] for a in axes]))
    x, y = d.many(terms, *shape), d.few(*shape)
    a, b = d.tensor(x), d.tensor(y)

    def expect() -> Dict[str, Bounded]:
        return {"sum": d.exact(x.sum(axes)), "mean": (d.given(x.sum(axes)) * (1 / terms)).rounded(d.dtype), "amax": d.exact(x.max(axes)),
                "norm": d.given((y * y).sum(axes)).sqrt().rounded(d.dtype)}

    return Trial(lambda: {"sum": a.sum(axes), "mean": a.mean(axes), "amax": a.amax(axes), "norm": ampc.linalg.vector_norm(b, dim=axes)}, expect)


def scan(d: Draw, rows: int, n: int) -> Trial:
    """Running totals, and their gradient."""
    x, g = d.many(n, rows, n), d.few(rows, n)
    leaf, slope = d.tensor(x, True), d.tensor(g)

    def compute() -> Dict[str, Any]:
        leaf.grad = None
        y = leaf.cumsum(1)
        y.backward(slope)
        return {"result": y, "gradient": leaf.grad}

    return Trial(compute, lambda: {"result": d.exact(x.cumsum(1)), "gradient": d.exact(g[:, ::-1].cumsum(1)[:, ::-1])})


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


def sgd(d: Draw, shape: Sequence[int]) -> Trial:
    """A plain step by whole numbers."""
    p, g = d.many(4, *shape), d.few(*shape)

    def compute() -> Dict[str, Any]:
        param = d.tensor(p, True)
        param.grad = d.tensor(g)
        ampc.optim.SGD([param], lr=1.0).step()
        return {"parameter": param}

    return Trial(compute, lambda: {"parameter": d.exact(p - g)})


def memory(d: Draw, bytes: int) -> Trial:
    """A new block of memory that holds what is written."""
    def compute() -> Dict[str, Any]:
        ampc._C._memory_trim()
        x = ampc.full((bytes // 4,), 3.0, dtype=ampc.float32, device=d.device)
        return {"smallest": x.amin(), "largest": x.amax()}

    return Trial(compute, lambda: {"smallest": d.exact(np.array(3.0)), "largest": d.exact(np.array(3.0))})
