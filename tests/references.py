"""Numbers for samples, and NumPy references of operators that NumPy does not have."""

from __future__ import annotations

import itertools
import linecache
import math
import os
import random
import sys
import time
import zlib
from typing import Any, Callable, Dict, Sequence

import numpy as np

import ampc

SEED = int(os.environ.get("AMPC_TEST_SEED", "0"))
# For tests whose cases are drawn anew in every run. Left in the environment, so that all processes of the run draw the same.
DRAWN = int(os.environ.get("AMPC_TEST_SEED") or os.environ.setdefault("AMPC_DRAWN_SEED", str(time.time_ns() % 1_000_000)))


def part(cases: Sequence[Any], share: int) -> Sequence[Any]:
    """One in `share` of the cases, drawn anew in every run; all of them where AMPC_EXAMPLES asks for much."""
    if "AMPC_EXAMPLES" in os.environ or share == 1:
        return cases
    drawn = random.Random(DRAWN).sample(range(len(cases)), max(1, len(cases) // share))
    return [cases[i] for i in sorted(drawn)]


class _Streams:
    """A random stream for every line that asks for numbers, seeded by its text: a sample keeps its numbers whatever is added before it.
    AMPC_TEST_SEED gives others."""

    def __init__(self) -> None:
        self.restart("")

    def restart(self, test: str) -> None:
        """Streams of a test's own: what it draws does not hang on the tests that ran before it."""
        self._of: Dict[str, np.random.Generator] = {}
        self._test = zlib.crc32(test.encode())

    def __getattr__(self, name: str) -> Any:
        frame = sys._getframe(1)
        while frame.f_code.co_filename == __file__ and frame.f_back is not None:
            frame = frame.f_back
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if text not in self._of:
            self._of[text] = np.random.default_rng([SEED, self._test, zlib.crc32(text.encode())])
        return getattr(self._of[text], name)


R = _Streams()


def real(*shape: int) -> np.ndarray:
    """Normal numbers, away from 0 where many functions bend."""
    x = R.standard_normal(shape)
    return np.where(np.abs(x) < 0.1, x + np.copysign(0.2, x), x)


def between_poles(*shape: int) -> np.ndarray:
    """Numbers whose fraction is a fifth at least and four fifths at most, where the gamma function and its kin are far from their poles."""
    return R.integers(-6, 6, shape) + R.uniform(0.2, 0.8, shape)


def positive(*shape: int) -> np.ndarray:
    return R.uniform(0.3, 2.0, shape)


def spread(*shape: int) -> np.ndarray:
    """Numbers no two of which are close, so that largest and order are clear."""
    n = math.prod(shape)
    return (R.permutation(n).astype(float) * 0.37 - 0.1 * n).reshape(shape)


def ints(high: int, *shape: int) -> np.ndarray:
    return R.integers(0, high, shape)


def exact(values: Any) -> ampc.Tensor:
    """float64 in every test."""
    return ampc.tensor(values, dtype=ampc.float64)


def mask(*shape: int) -> np.ndarray:
    return R.random(shape) < 0.5


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


def hurwitz(s: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Sum of (q + k)^-s: the first thousand terms, and the rest by Euler and Maclaurin."""
    s, q = np.asarray(s, float), np.asarray(q, float)
    end = q + 1000
    return sum((q + k) ** -s for k in range(1000)) + end ** (1 - s) / (s - 1) + end ** -s / 2 + s / 12 * end ** (-s - 1)


def digamma(x: np.ndarray) -> np.ndarray:
    end = x + 100
    return np.log(end) - 0.5 / end - 1 / (12 * end**2) + 1 / (120 * end**4) - np.vectorize(lambda v: math.fsum(1 / (v + k) for k in range(100)))(x)


def polygamma(n: int, x: np.ndarray) -> np.ndarray:
    return (-1) ** (n + 1) * math.factorial(n) * hurwitz(n + 1, x) if n else digamma(x)


def lower_gamma(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The regularised incomplete gamma function by its series."""
    def one(a: float, x: float) -> float:
        term = total = 1.0
        for n in range(1, 5000):
            term *= x / (a + n)
            total += term
        return math.exp(a * math.log(x) - x - math.lgamma(a + 1)) * total
    return np.vectorize(one)(a, x)


def bessel(kind: str, order: int, x: np.ndarray) -> np.ndarray:
    """J by Bessel's integral, whose trapezoidal sum is exact; Y0 by Neumann's series; Y1 by the Wronskian."""
    angle = np.arange(256) * (2 * np.pi / 256)
    j = lambda n: np.cos(n * angle - np.multiply.outer(x, np.sin(angle))).mean(-1)  # noqa: E731
    if kind == "j":
        return j(order)
    y0 = 2 / np.pi * (np.log(x / 2) + np.euler_gamma) * j(0) - 4 / np.pi * sum((-1) ** k * j(2 * k) / k for k in range(1, 20))
    return y0 if order == 0 else (j(1) * y0 - 2 / (np.pi * x)) / j(0)


def erfinv(y: float) -> float:
    """By bisection, in float64."""
    if abs(y) >= 1:
        return math.copysign(math.inf, y)
    low, high = -6.0, 6.0
    for _ in range(200):
        mid = (low + high) / 2
        low, high = (mid, high) if math.erf(mid) < y else (low, mid)
    return (low + high) / 2


def softmax(x: np.ndarray, dim: int) -> np.ndarray:
    e = np.exp(x - x.max(dim, keepdims=True))
    return e / e.sum(dim, keepdims=True)


def logsumexp(x: np.ndarray, dim: Any, keepdim: bool = False) -> np.ndarray:
    return np.log(np.exp(x).sum(tuple(dim) if isinstance(dim, list) else dim, keepdims=keepdim))


def layer_norm(x: np.ndarray, shape: Any, w: Any = None, b: Any = None, eps: float = 1e-5) -> np.ndarray:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    y = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)
    return y * (1 if w is None else w) + (0 if b is None else b)


def batch_norm(x: np.ndarray, mean: Any, var: Any, w: Any = None, b: Any = None, training: bool = False, momentum: float = 0.1,
               eps: float = 1e-5) -> np.ndarray:
    axes = tuple(d for d in range(x.ndim) if d != 1)
    column = [1, -1] + [1] * (x.ndim - 2)
    m, v = (x.mean(axes), x.var(axes)) if training else (mean, var)
    y = (x - m.reshape(column)) / np.sqrt(v.reshape(column) + eps)
    return y * (1 if w is None else w.reshape(column)) + (0 if b is None else b.reshape(column))


def group_norm(x: np.ndarray, groups: int, w: Any = None, b: Any = None, eps: float = 1e-5) -> np.ndarray:
    rows, column = x.reshape(x.shape[0], groups, -1), [1, -1] + [1] * (x.ndim - 2)
    y = ((rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + eps)).reshape(x.shape)
    return y * (1 if w is None else w.reshape(column)) + (0 if b is None else b.reshape(column))


def scatter_add(x: np.ndarray, dim: int, index: np.ndarray, src: np.ndarray) -> np.ndarray:
    out = x.copy()
    for position in np.ndindex(*index.shape):
        to = list(position)
        to[dim] = index[position]
        out[tuple(to)] += src[position]
    return out


def nll(x: np.ndarray, t: np.ndarray, w: Any = None, ignore: int = -100, reduction: str = "mean") -> Any:
    keep = t != ignore
    weight = np.where(keep, 1.0 if w is None else w[np.where(keep, t, 0)], 0.0)
    each = -np.take_along_axis(x, np.where(keep, t, 0)[:, None], 1)[:, 0] * weight
    return {"none": each, "sum": each.sum(), "mean": each.sum() / weight.sum()}[reduction]


def solid(*shape: int) -> np.ndarray:
    """Square matrices that are far from singular; the last number is their size."""
    return R.uniform(-0.5, 0.5, (*shape, shape[-1])) + 2 * np.eye(shape[-1])


def symmetric(*shape: int) -> np.ndarray:
    x = solid(*shape)
    return x + np.swapaxes(x, -1, -2)


def solved(A: np.ndarray, B: np.ndarray, check: bool = True) -> Any:
    return np.linalg.solve(A, B), np.zeros(A.shape[:-2], dtype=np.int32)


def linear_scan(x: np.ndarray, a: np.ndarray, dim: int, reverse: bool = False) -> np.ndarray:
    x, a = np.moveaxis(x.copy(), dim, 0), np.moveaxis(a, dim, 0)
    for i in range(len(x) - 2, -1, -1) if reverse else range(1, len(x)):
        x[i] += a[i + 1] * x[i + 1] if reverse else a[i] * x[i - 1]
    return np.moveaxis(x, 0, dim)


def last_index(x: np.ndarray, dim: int, better: Callable) -> np.ndarray:
    x = np.moveaxis(x, dim, 0)
    at = np.zeros(x.shape, np.int64)
    for i in range(1, len(x)):
        best = np.take_along_axis(x, at[i - 1][None], 0)[0]
        at[i] = np.where(better(x[i], best), i, at[i - 1])
    return np.moveaxis(at, 0, dim)


def columns(x: np.ndarray, kernel: Any, dilation: Any, padding: Any, stride: Any) -> np.ndarray:
    """[N, C * taps, positions], by loops."""
    nd = x.ndim - 2
    kernel, dilation, padding, stride = ([*v] * nd if len(v) == 1 else v for v in (kernel, dilation, padding, stride))
    x = np.pad(x, [(0, 0), (0, 0)] + [(p, p) for p in padding])
    out = [(x.shape[d + 2] - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1 for d in range(nd)]
    y = np.zeros((*x.shape[:2], *kernel, *out))
    for tap in np.ndindex(*kernel):
        for o in np.ndindex(*out):
            y[(slice(None), slice(None), *tap, *o)] = x[(slice(None), slice(None), *(o[d] * stride[d] + tap[d] * dilation[d] for d in range(nd)))]
    return y.reshape(x.shape[0], -1, math.prod(out))


def convolve(x: np.ndarray, w: np.ndarray, b: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, more: Any, groups: int) -> np.ndarray:
    nd, parts = x.ndim - 2, []
    for part, weight in zip(np.split(x, groups, 1), np.split(w, groups)):
        parts.append(weight.reshape(len(weight), -1) @ columns(part, list(w.shape[2:]), dilation, padding, stride))
    y = np.concatenate(parts, 1) + (0 if b is None else b[:, None])
    each = lambda v, d: v[0] if len(v) == 1 else v[d]  # noqa: E731
    out = [(x.shape[d + 2] + 2 * each(padding, d) - each(dilation, d) * (w.shape[d + 2] - 1) - 1) // each(stride, d) + 1 for d in range(nd)]
    return y.reshape(len(x), len(w), *out)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm_cell(x: Any, h: Any, c: Any, w: Any, u: Any, b: Any, d: Any) -> tuple:
    i, f, g, o = np.split(x @ w.T + b + h @ u.T + d, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def lstm_cell_of_torch(x: Any, h: Any, c: Any, w: Any, u: Any, b: Any, d: Any) -> Any:
    import torch
    return torch.lstm_cell(x, (h, c), w, u, b, d)


def gru_cell(x: Any, h: Any, w: Any, u: Any, b: Any, d: Any) -> Any:
    (r, z, n), (s, y, m) = np.split(x @ w.T + b, 3, -1), np.split(h @ u.T + d, 3, -1)
    z = sigmoid(z + y)
    return (1 - z) * np.tanh(n + sigmoid(r + s) * m) + z * h


def recurrence(x: Any, state: Any, u: Any, d: Any, sizes: Any, cell: str, reverse: bool, *keep: bool) -> tuple:
    """Step by step over [steps, sequences, gates * units], or packed rows."""
    n, d, state = len(state[0]), 0 if d is None else d, state.copy()
    counts = [n] * len(x) if sizes is None else list(sizes)
    rows = list(x) if sizes is None else np.split(x, np.cumsum(counts)[:-1])
    y: list = [None] * len(rows)
    for t in range(len(rows))[::-1 if reverse else 1]:
        k = counts[t]
        h = state[0, :k]
        total = rows[t] + h @ u.T
        if cell == "lstm":
            i, f, g, o = np.split(total, 4, -1)
            state[1, :k] = sigmoid(f) * state[1, :k] + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(state[1, :k])
        elif cell == "gru":
            (r, z, m), (s, v, w) = np.split(rows[t], 3, -1), np.split(h @ u.T + d, 3, -1)
            z = sigmoid(z + v)
            h = (1 - z) * np.tanh(m + sigmoid(r + s) * w) + z * h
        else:
            h = np.tanh(total) if cell == "tanh" else np.maximum(total, 0)
        y[t] = h.copy()
        state[0, :k] = h
    return (np.stack(y) if sizes is None else np.concatenate(y)), state


def rnn_layer(x: Any, state: Any, w: Any, u: Any, b: Any, d: Any, sizes: Any, cell: str, reverse: bool) -> tuple:
    gru, b = cell == "gru", 0 if b is None else b
    return recurrence(x @ w.T + b + (0 if gru or d is None else d), state, u, d if gru else None, sizes, cell, reverse)


def linalg(name: str) -> Callable[..., Any]:
    import torch
    return getattr(torch.linalg, name)


def ctc(log_p: Any, states: Any, lengths: Any, labels: Any) -> Any:
    """-log of the sum over all paths of classes that collapse to the labels, one by one."""
    found = []
    for k, (steps, count) in enumerate(zip(lengths, labels)):
        wanted, total = [int(c) for c in states[k, 1:2 * count:2]], 0.0
        for path in itertools.product(range(log_p.shape[2]), repeat=int(steps)):
            kept = [c for i, c in enumerate(path) if c != states[k, 0] and (i == 0 or c != path[i - 1])]
            total += np.exp(sum(log_p[t, k, c] for t, c in enumerate(path))) if kept == wanted else 0.0
        found.append(-np.log(total))
    return np.array(found)
