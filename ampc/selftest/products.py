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


def parts(d: Draw, m: int, k: int, n: int) -> Trial:
    """a b in float32, of numbers whose first and last bits are set: a CPU that multiplies float16 in two parts needs all four products. Eight
    elements of each row of a are not 0, so that sums are exact."""
    a, b = d.full(m, k), d.full(k, n)
    a[d.random.random((m, k)).argsort(1) >= 8] = 0
    x, y = d.tensor(a), d.tensor(b)
    return Trial(lambda: {"result": ampc.mm(x, y, out_dtype=ampc.float32)}, lambda: {"result": d.exact(times(a, b), "float32")})


def _apart(d: Draw, a: np.ndarray) -> Any:
    """A tensor of these values, neither direction of which runs along memory."""
    wide = np.zeros((a.shape[0], 2, a.shape[1], 2))
    wide[:, 0, :, 0] = a
    return d.tensor(wide)[:, 0, :, 0]


def strided(d: Draw, m: int, k: int, n: int) -> Trial:
    """a b where neither direction of a runs along memory."""
    a, b = d.many(k, m, k), d.few(k, n)
    x, y = _apart(d, a), d.tensor(b)
    return Trial(lambda: {"result": x @ y}, lambda: {"result": d.exact(times(a, b))})


def expanded(d: Draw, m: int, k: int, n: int) -> Trial:
    """a b where all rows of a, or all columns of b, are the same memory."""
    a, b, g = d.many(k, 1, k), d.few(k, n), d.few(m, k)
    x, y, z = d.tensor(a).expand(m, k), d.tensor(b), d.tensor(g)
    return Trial(lambda: {"rows": x @ y, "columns": z @ x.t().expand(k, m)},
                 lambda: {"rows": d.exact(np.broadcast_to(a @ b, (m, n))), "columns": d.exact(np.broadcast_to(g @ a.T, (m, m)))})


def unbounded(d: Draw, m: int, k: int, n: int, apart: bool = False) -> Trial:
    """a b with an infinity and a nan among a's values; ``apart``: neither direction of a runs along memory."""
    a, b = d.many(k, m, k), d.few(k, n)
    a[m // 2, k // 2], a[0, k - 1] = np.inf, np.nan
    x, y = (_apart(d, a) if apart else d.tensor(a)), d.tensor(b)

    def expect() -> Dict[str, Bounded]:
        with np.errstate(invalid="ignore"):
            return {"result": d.exact(times(a, b))}

    return Trial(lambda: {"result": x @ y}, expect)


def unbounded_kept(d: Draw, rows: int, inputs: int, outputs: int) -> Trial:
    """A linear layer whose weight's packed copy is kept, of an infinity."""
    x, w, y = d.many(inputs, rows, inputs), d.few(outputs, inputs), np.zeros((rows, inputs))
    y[rows // 2, inputs - 1] = np.inf
    weight, one, other = d.tensor(w, True, "float32"), d.tensor(x, dtype="float32"), d.tensor(x + y, dtype="float32")

    def compute() -> Dict[str, Any]:
        with ampc.autocast(d.device, dtype=getattr(ampc, d.dtype)):
            return {"finite": F.linear(one, weight), "not finite": F.linear(other, weight)}

    def expect() -> Dict[str, Bounded]:
        with np.errstate(invalid="ignore"):
            return {"finite": d.exact(x @ w.T), "not finite": d.exact(times(x + y, w.T))}

    return Trial(compute, expect)


def wide(d: Draw, rows: int, inputs: int, outputs: int) -> Trial:
    """A linear layer with a bias, forward alone."""
    x, w, b = d.many(inputs + 1, rows, inputs), d.few(outputs, inputs), d.few(outputs)
    one, weight, bias = d.tensor(x), d.tensor(w), d.tensor(b)
    return Trial(lambda: {"result": F.linear(one, weight, bias)}, lambda: {"result": d.exact(times(x, w.T) + b)})


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
