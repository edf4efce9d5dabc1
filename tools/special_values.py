"""Writes tests/special_values.json: special functions at numbers of all sizes, computed in 120 digits and rounded to float64. Needs mpmath.

Each line has the arguments, the value, and how large an error of one unit in the last place is: that of the value itself, of what it is the
difference of (near the zeros of waves and of gamma functions left of 0), or as many times that as the arguments' own last place moves it."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpmath import mp

mp.dps = 120
R = random.Random(25)
Line = tuple[Any, ...]


def sizes(low: float, high: float, n: int = 24) -> list[float]:
    return [10 ** R.uniform(low, high) for _ in range(n)]


def between(low: float, high: float, n: int = 24) -> list[float]:
    return [R.uniform(low, high) for _ in range(n)]


def both(x: list[float]) -> list[float]:
    return x + [-v for v in x]


def ndtr(x: Any) -> Any:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def ndtri(p: Any) -> Any:
    if p > 0.5:
        return -ndtri(1 - p)
    mp.dps = 60
    low, high = mp.mpf(-40), mp.mpf(0)
    for _ in range(150):
        middle = (low + high) / 2
        low, high = (middle, high) if ndtr(middle) < p else (low, middle)
    mp.dps = 120
    return low


def wave(x: Any) -> float:
    return min(0.5, math.sqrt(2 / (math.pi * max(abs(x), 1e-300))))


def poles(n: int) -> Callable[..., float]:
    """The size of what gamma functions left of 0 add up."""
    return lambda *a: 0.0 if a[-1] > 0 else math.factorial(n) * abs(a[-1] - round(a[-1])) ** -(n + 1.0)


def of_parts(f: Callable[..., Any]) -> Callable[..., float]:
    """The size of what a polynomial adds up around x, within the last places of x and of n additions."""
    return lambda x, n: n * max(abs(float(f(n, x + step))) for step in (-0.1, 0.0, 0.1))


def chebyshev_v(n: Any, x: Any) -> Any:
    return mp.chebyu(n, x) - mp.chebyu(n - 1, x)


def chebyshev_w(n: Any, x: Any) -> Any:
    return mp.chebyu(n, x) + mp.chebyu(n - 1, x)


def shifted(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda n, x: f(n, 2 * x - 1)


CHEBYSHEV = {"t": mp.chebyt, "u": mp.chebyu, "v": chebyshev_v, "w": chebyshev_w}
POLYNOMIALS = {**{("chebyshev", kind): f for kind, f in CHEBYSHEV.items()}, **{("shifted_chebyshev", kind): shifted(f) for kind, f in CHEBYSHEV.items()},
               ("hermite", "h"): mp.hermite, ("hermite", "he"): lambda n, x: 2 ** (-n / 2) * mp.hermite(n, x / mp.sqrt(2)),
               ("laguerre", "l"): lambda n, x: mp.laguerre(n, 0, x), ("legendre", "p"): mp.legendre}


def lines(f: Callable[..., Any], arguments: list, size: Callable[..., float] = lambda *a: 0.0, condition: Callable[..., float] = lambda *a: 0.0, least: float = 1e-290) -> list[Line]:
    out = []
    for a in arguments:
        a = a if isinstance(a, tuple) else (a,)
        value = float(mp.re(f(*(mp.mpf(v) for v in a))))
        if math.isfinite(value) and abs(value) > least:
            out.append((*a, value, max(abs(value), size(*a)) * (1 + condition(*a))))
    return out


def pairs(low: float, high: float, spread: float) -> list[tuple[float, float]]:
    return [(a, a * 10 ** R.uniform(-spread, spread)) for a in sizes(low, high)]


GAMMA_PAIRS = pairs(-4, 0, 2) + pairs(0, 2.3, 0.7) + pairs(2.3, 3, 0.1) + [(a, a + R.gauss(0, 3) * math.sqrt(a)) for a in sizes(1.5, 3.5)]


def values() -> dict[str, list[Line]]:
    b, gap = between, lambda a, x: abs(a - x)
    scaled = {f"{k}{n}": getattr(mp, f"bessel{k}") for k in "ik" for n in (0, 1)}
    of = lambda name, sign: lambda x: mp.exp(sign * abs(x)) * scaled[name](int(name[1]), x)  # noqa: E731
    return {
        "erfcx": lines(lambda x: mp.exp(x * x) * mp.erfc(x), b(-26, 4) + sizes(-20, 1.4)),
        "ndtr": lines(ndtr, b(-37, 8) + b(-2, 2)),
        "log_ndtr": lines(lambda x: mp.log1p(-ndtr(-x)) if x > 0 else mp.log(ndtr(x)), b(-37, 37) + b(-2, 2)),
        "ndtri": lines(ndtri, b(0, 1) + sizes(-300, 0) + b(0.49, 0.51)),
        "lgamma": lines(mp.loggamma, b(0, 20) + sizes(-10, 20)),
        "digamma": lines(mp.digamma, b(0, 20) + sizes(-10, 20) + b(1.4, 1.5) + b(-20, 0), size=poles(0)),
        "polygamma": [line for n in (1, 2, 5, 20) for line in lines(lambda n, x: mp.polygamma(int(n), x), [(n, x) for x in b(0.05, 30) + b(-9, 0)], size=poles(n))],
        "zeta": lines(mp.zeta, [(1 + s, q) for s, q in zip(sizes(-4, 1.5), sizes(-3, 4))], least=1e-80),
        "igamma": lines(lambda a, x: mp.gammainc(a, 0, x, regularized=True), GAMMA_PAIRS, condition=gap, least=1e-80),
        "igammac": lines(lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True), GAMMA_PAIRS, condition=gap, least=1e-80),
        **{f"i{n}{e}": lines(of(f"i{n}", -1 if e else 0), both(b(0, 30, 12) + sizes(-10, 2.8, 12))) for n in (0, 1) for e in ("", "e")},
        **{f"{e}modified_bessel_k{n}": lines(of(f"k{n}", 1 if e else 0), b(0, 30) + sizes(-10, 2.8)) for n in (0, 1) for e in ("", "scaled_")},
        **{f"bessel_j{n}": lines(lambda x, n=n: mp.besselj(n, x), both(b(0, 30, 12) + sizes(0, 4, 12)), size=wave) for n in (0, 1)},
        **{f"bessel_y{n}": lines(lambda x, n=n: mp.bessely(n, x), b(0, 30) + sizes(-5, 4), size=wave) for n in (0, 1)},
        **{f"{name}_polynomial_{kind}": lines(lambda x, n, f=f: f(n, x), [(x, float(n)) for n in (1, 2, 5, 9, 30) for x in b(-3, 3, 12) + b(-1, 1, 12)], size=of_parts(f))
           for (name, kind), f in POLYNOMIALS.items()},
        "airy_ai": lines(mp.airyai, b(-30, 30) + b(-2, 3), size=lambda x: 0.5 if x < 0 else 0.0, condition=lambda x: abs(x) ** 1.5),
    }


if __name__ == "__main__":
    target = Path(__file__).resolve().parent.parent / "tests" / "special_values.json"
    rows = [f'"{name}": [\n' + ",\n".join(json.dumps(line) for line in found) + "\n]" for name, found in values().items()]
    target.write_text("{\n" + ",\n".join(rows) + "\n}\n")
