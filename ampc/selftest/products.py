"""Trials of matrix products, of linear layers, and of weights' packed copies."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np

import ampc
from ampc.nn import functional as F

from .bounded import Bounded, nearest, times
from .data import Draw, Trial


def _laid(d: Draw, values: np.ndarray, turned: bool, grad: bool) -> Any:
    """A leaf of these values, and what has them in the product: the leaf, or its transposed view."""
    leaf = d.tensor(values.swapaxes(-1, -2) if turned else values, grad)
    return leaf, (leaf.transpose(-1, -2) if turned else leaf)


def product(d: Draw, m: int, k: int, n: int, batch: int = 0, a_turned: bool = False, b_turned: bool = False, backward: bool = True) -> Trial:
    """a b, and the gradients of both."""
    lead, terms = ((batch,) if batch else ()), max(m, k, n, 1)
    a, b, g = d.many(terms, *lead, m, k), d.few(*lead, k, n), d.few(*lead, m, n)
    backward, reference = backward and d.dtype != "int64", np.matmul if d.dtype == "float64" else times  # not by the kernel under test
    left, x = _laid(d, a, a_turned, backward)
    right, y = _laid(d, b, b_turned, backward)

    def compute() -> Dict[str, Any]:
        left.grad = right.grad = None
        out = {"result": x @ y}
        if backward:
            out["result"].backward(d.tensor(g))
            out["gradient of the left"] = left.grad.transpose(-1, -2) if a_turned else left.grad
            out["gradient of the right"] = right.grad.transpose(-1, -2) if b_turned else right.grad
        return out

    def expect() -> Dict[str, Bounded]:
        out = {"result": d.exact(reference(a, b))}
        if backward:
            out["gradient of the left"] = d.exact(reference(g, b.swapaxes(-1, -2)))
            out["gradient of the right"] = d.exact(reference(a.swapaxes(-1, -2), g))
        return out

    return Trial(compute, expect)


def strided(d: Draw, m: int, k: int, n: int) -> Trial:
    """a b where neither direction of a runs along memory."""
    a, b = d.many(k, m, k), d.few(k, n)
    wide = np.zeros((m, 2, k, 2))
    wide[:, 0, :, 0] = a
    x, y = d.tensor(wide)[:, 0, :, 0], d.tensor(b)
    return Trial(lambda: {"result": x @ y}, lambda: {"result": d.exact(times(a, b))})


def unbounded(d: Draw, m: int, k: int, n: int) -> Trial:
    """a b with an infinity and a nan among a's values."""
    a, b = d.many(k, m, k), d.few(k, n)
    a[m // 2, k // 2], a[0, k - 1] = np.inf, np.nan
    x, y = d.tensor(a), d.tensor(b)

    def expect() -> Dict[str, Bounded]:
        with np.errstate(invalid="ignore"):
            return {"result": d.exact(times(a, b))}

    return Trial(lambda: {"result": x @ y}, expect)


def linear(d: Draw, rows: int, inputs: int, outputs: int, apart: bool = False) -> Trial:
    """A linear layer with a bias, and its gradients; ``apart``: of an input whose leading dimensions do not merge."""
    terms = max(rows, inputs + 1, outputs)
    x, w, b, g = d.many(terms, rows, inputs), d.few(outputs, inputs), d.few(outputs), d.few(rows, outputs)
    lead = (rows // 2, 2) if apart else (rows,)
    leaf = d.tensor(x.reshape(*lead, inputs).swapaxes(0, 1) if apart else x, True)
    weight, bias, slope = d.tensor(w, True), d.tensor(b, True), d.tensor(g.reshape(*lead, outputs))

    def compute() -> Dict[str, Any]:
        leaf.grad = weight.grad = bias.grad = None
        y = F.linear(leaf.transpose(0, 1) if apart else leaf, weight, bias)
        y.backward(slope)
        dx = leaf.grad.transpose(0, 1) if apart else leaf.grad
        return {"result": y.reshape(rows, outputs), "gradient of the input": dx.reshape(rows, inputs),
                "gradient of the weight": weight.grad, "gradient of the bias": bias.grad}

    def expect() -> Dict[str, Bounded]:
        return {"result": d.exact(x @ w.T + b), "gradient of the input": d.exact(g @ w), "gradient of the weight": d.exact(g.T @ x),
                "gradient of the bias": d.exact(g.sum(0))}

    return Trial(compute, expect)


def autocast(d: Draw, rows: int, inputs: int, outputs: int) -> Trial:
    """A linear layer of float32 numbers, which its product rounds while it packs them."""
    x, w = (d.random.standard_normal(s).astype(np.float32) for s in ((rows, inputs), (outputs, inputs)))
    one, weight = d.tensor(x, dtype="float32"), d.tensor(w, dtype="float32")

    def compute() -> Dict[str, Any]:
        with ampc.autocast(d.device, dtype=getattr(ampc, d.dtype)):
            return {"result": F.linear(one, weight)}

    def expect() -> Dict[str, Bounded]:
        return {"result": (d.given(nearest(x, d.dtype)) @ d.given(nearest(w.T, d.dtype))).rounded(d.dtype)}

    return Trial(compute, expect)


def trained(d: Draw, rows: int, inputs: int, outputs: int, kept: bool = True) -> Trial:
    """A float32 weight under autocast: used twice, stepped by the optimizer, used again. ``kept``: its packed copies may be kept."""
    x, w, g = d.many(2 * inputs, rows, inputs), d.few(outputs, inputs), d.few(outputs, inputs)

    def used(one: Any, weight: Any) -> Any:
        with ampc.autocast(d.device, dtype=getattr(ampc, d.dtype)):
            return F.linear(one, weight)

    def compute() -> Dict[str, Any]:
        weight, one = d.tensor(w, True, "float32"), d.tensor(x, True, "float32")
        limit = ampc.amp.weight_copy_stats()["limit"]
        if not kept:
            ampc.amp.set_weight_copy_limit(0)
        try:
            first, second = used(one, weight), used(one, weight)
            second.sum().backward()
            weight.grad = d.tensor(g, dtype="float32")
            ampc.optim.SGD([weight], lr=1.0).step()
            return {"before": first, "again": second, "gradient of the input": one.grad, "after the step": used(one, weight)}
        finally:
            ampc.amp.set_weight_copy_limit(limit)

    def expect() -> Dict[str, Bounded]:
        before = d.exact(x @ w.T)
        dx = np.broadcast_to(w.sum(0), x.shape)
        return {"before": before, "again": before, "gradient of the input": d.exact(dx), "after the step": d.exact(x @ (w - g).T)}

    return Trial(compute, expect)
