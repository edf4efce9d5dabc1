"""Trials of what is done to values one by one: conversions, and functions."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Tuple

import numpy as np

import ampc
from ampc.nn import functional as F

from .bounded import UNITS, Bounded, nearest
from .data import Draw, Trial


def conversion(d: Draw, n: int) -> Trial:
    """Converts float32 numbers to a dtype and back: of all sizes, halfway between two of its numbers, subnormal, too large, infinite, nan."""
    bits = d.random.integers(0, 1 << 32, n, dtype=np.uint64).astype(np.uint32)
    bits[::3] &= 0xFFFF8000  # bfloat16's halves
    bits[1::3] &= 0xFFFFF000  # float16's
    x = bits.view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        x[1::2] = np.ldexp(np.sign(x[1::2]) * (1 + (bits[1::2] & 0x7FFFFF) * 2.0**-23), d.random.integers(-26, 18, len(x[1::2])))
    x[:9] = np.inf, -np.inf, np.nan, 0.0, -0.0, 65519.996, 65520.0, -65535.0, 3.3961e38
    x[-1] = np.nan
    for nan in (9, n // 2 + 1):  # one that has nothing but its low bits
        x.view(np.uint32)[nan] = 0x7F800001
    one = d.tensor(x, dtype="float32")

    def expect() -> Dict[str, Bounded]:
        return {"result": Bounded(nearest(x, d.dtype))}

    return Trial(lambda: {"result": one.to(getattr(ampc, d.dtype))}, expect)


_erf = np.vectorize(math.erf)


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + _erf(x / 2**0.5))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(x / 2)


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, x)


Real = Callable[[np.ndarray], np.ndarray]
UNITS_LOST = 8  # of the accumulators, of the result and, for functions near 0 that are made of larger numbers, of their argument

# Of numbers between -6 and 6.
ANYWHERE: Dict[str, Tuple[Callable[[Any], Any], Real]] = {
    "exp": (ampc.exp, np.exp), "expm1": (ampc.expm1, np.expm1), "exp2": (ampc.exp2, np.exp2), "tanh": (ampc.tanh, np.tanh),
    "sigmoid": (ampc.sigmoid, _sigmoid), "erf": (ampc.erf, _erf), "sin": (ampc.sin, np.sin), "cos": (ampc.cos, np.cos),
    "atan": (ampc.atan, np.arctan), "sinh": (ampc.sinh, np.sinh), "asinh": (ampc.asinh, np.arcsinh), "abs": (ampc.abs, np.abs),
    "floor": (ampc.floor, np.floor), "round": (ampc.round, np.rint), "square": (ampc.square, np.square), "gelu": (F.gelu, _gelu),
    "gelu of tanh": (lambda x: F.gelu(x, approximate="tanh"), lambda x: 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))),
    "silu": (F.silu, lambda x: x * _sigmoid(x)), "softplus": (F.softplus, _softplus), "mish": (F.mish, lambda x: x * np.tanh(_softplus(x))),
    "logsigmoid": (F.logsigmoid, lambda x: -_softplus(-x)), "elu": (F.elu, lambda x: np.where(x > 0, x, np.expm1(x))),
    "leaky_relu": (F.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)), "hardswish": (F.hardswish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "softsign": (F.softsign, lambda x: x / (1 + np.abs(x))),
}
# Of numbers between 2**-9 and 6.
POSITIVE: Dict[str, Tuple[Callable[[Any], Any], Real]] = {
    "log": (ampc.log, np.log), "log2": (ampc.log2, np.log2), "log1p": (ampc.log1p, np.log1p), "sqrt": (ampc.sqrt, np.sqrt),
    "rsqrt": (ampc.rsqrt, lambda x: 1 / np.sqrt(x)), "reciprocal": (ampc.reciprocal, lambda x: 1 / x), "power": (lambda x: x**1.5, lambda x: x**1.5),
}


def functions(d: Draw, n: int) -> Trial:
    """Every function that networks are made of, and the gradients of the activations among them by differences."""
    wide = d.held(d.random.uniform(-6, 6, n))
    high = d.held(np.abs(wide) + 2.0**-9)
    a, b = d.tensor(wide), d.tensor(high)

    def compute() -> Dict[str, Any]:
        return {**{name: f(a) for name, (f, _) in ANYWHERE.items()}, **{name: f(b) for name, (f, _) in POSITIVE.items()}}

    def bounded(f: Real, x: np.ndarray) -> Bounded:
        unit, y = d.given(x).unit, f(x)
        return Bounded(y, UNITS_LOST * unit * (np.abs(y) + np.minimum(np.abs(x), 1)), unit).rounded(d.dtype)

    def expect() -> Dict[str, Bounded]:
        return {**{name: bounded(f, wide) for name, (_, f) in ANYWHERE.items()}, **{name: bounded(f, high) for name, (_, f) in POSITIVE.items()}}

    return Trial(compute, expect)


def activations(d: Draw, n: int) -> Trial:
    """The gradients of activations, against those of the same formulas."""
    x, g = d.held(d.random.uniform(-6, 6, n)), d.few(n)
    s, t, density = _sigmoid(x), np.tanh(x), np.exp(-x * x / 2) / (2 * np.pi) ** 0.5
    slopes: Dict[str, Tuple[Callable[[Any], Any], np.ndarray]] = {
        "relu": (F.relu, (x > 0) * 1.0), "gelu": (F.gelu, 0.5 * (1 + _erf(x / 2**0.5)) + x * density), "silu": (F.silu, s * (1 + x * (1 - s))),
        "tanh": (ampc.tanh, 1 - t * t), "sigmoid": (ampc.sigmoid, s * (1 - s)), "softplus": (F.softplus, s),
        "leaky_relu": (F.leaky_relu, np.where(x > 0, 1, 0.01)), "elu": (F.elu, np.where(x > 0, 1, np.exp(np.minimum(x, 0))))}
    slope = d.tensor(g)

    def gradient(f: Callable[[Any], Any]) -> Any:
        leaf = d.tensor(x, True)
        f(leaf).backward(slope)
        return leaf.grad

    def expect() -> Dict[str, Bounded]:
        low = 4 * UNITS[d.dtype]  # results that backward reads are rounded
        return {name: Bounded(g * y, np.abs(g) * (low + 64 * d.given(x).unit)).rounded(d.dtype) for name, (_, y) in slopes.items()}

    return Trial(lambda: {name: gradient(f) for name, (f, _) in slopes.items()}, expect)
