"""Writes csrc/shared/special_tables.h: the coefficients of the special functions, computed from their definitions in 60 digits.

Needs mpmath. Chebyshev coefficients are those of the interpolant at Chebyshev's points (Clenshaw and Curtis 1960), cut where they no longer
count in float64. The coefficients of Temme's expansion follow from DLMF 8.12 (Temme 1979) in rational arithmetic."""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from mpmath import mp, mpf

mp.dps = 60
POINTS = 64
TEMME_ORDERS, TEMME_TERMS = 7, 20
LEGENDRE = 40
Function = Callable[[Any], Any]


def chebyshev(f: Function, terms: int = POINTS) -> list:
    """c of f(t) = c[0] / 2 + sum of c[k] T_k(t) on [-1, 1], as far as they count."""
    angles = [mp.pi * (2 * j + 1) / (2 * terms) for j in range(terms)]
    values = [f(mp.cos(angle)) for angle in angles]
    c = [2 * sum(v * mp.cos(k * angle) for v, angle in zip(values, angles)) / terms for k in range(terms)]
    largest = max(abs(x) for x in c)
    while abs(c[-1]) < largest * mpf(2) ** -58:
        c.pop()
    return c


def of_square(f: Function) -> Function:
    """t in [-1, 1] stands for x^2 in [0, 64]."""
    return lambda t: f(mp.sqrt(32 * (t + 1)))


def beyond_8(f: Function) -> Function:
    """t in [-1, 1] stands for (8 / x)^2 in [0, 1]."""
    return lambda t: f(8 / mp.sqrt((t + 1) / 2))


def phase(order: int, quarter: int) -> Function:
    """P (quarter 0) or Q x / 8 (quarter 1) of J = sqrt(2 / (pi x)) (P cos u - Q sin u), Y = ... (P sin u + Q cos u) (DLMF 10.17)."""
    def f(x: Any) -> Any:
        scale, u = mp.sqrt(mp.pi * x / 2), x - (2 * order + 1) * mp.pi / 4
        j, y = mp.besselj(order, x), mp.bessely(order, x)
        return scale * (j * mp.cos(u) + y * mp.sin(u)) if quarter == 0 else scale * (y * mp.cos(u) - j * mp.sin(u)) * x / 8
    return f


def y_rest(order: int) -> Function:
    """What Y has besides the logarithm (and 1 / x), divided by x for the odd one."""
    def f(x: Any) -> Any:
        rest = mp.bessely(order, x) - 2 / mp.pi * mp.log(x) * mp.besselj(order, x)
        return rest if order == 0 else (rest + 2 / (mp.pi * x)) / x
    return f


def k_rest(order: int) -> Function:
    """What K has besides the logarithm (and 1 / x), divided by x for the odd one; x = sqrt(2 (t + 1)), in [0, 2]."""
    def f(t: Any) -> Any:
        x = mp.sqrt(2 * (t + 1))
        log = mp.log(x / 2) * mp.besseli(order, x)
        return mp.besselk(order, x) + log if order == 0 else (mp.besselk(order, x) - log - 1 / x) / x
    return f


def digamma_ratio(t: Any) -> Any:
    root = mp.findroot(mp.digamma, mpf("1.46163"))
    x = (t + 3) / 2
    return mp.digamma(x) / (x - root)


def erfcx_part(t: Any) -> Any:
    x = mpf("3.75") * (1 + t) / (1 - t)
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x) if x < 1000 else (1 + 2 * x) / (x * mp.sqrt(mp.pi)) * (1 - 1 / (2 * x * x) + 3 / (4 * x**4) - 15 / (8 * x**6))


def airy_far(t: Any) -> Any:
    """Of u = (t + 1) / 2 = z(2) / z, z = 2 / 3 x^(3/2), right of 2."""
    x = 2 / ((t + 1) / 2) ** (mpf(2) / 3)
    return 2 * mp.sqrt(mp.pi) * mp.root(x, 4) * mp.exp(2 * mp.sqrt(x) ** 3 / 3) * mp.airyai(x)


def airy_phase(quarter: int) -> Function:
    """P (quarter 0) or Q z (quarter 1) of Ai(-x) = (P sin u - Q cos u) / (sqrt(pi) x^(1/4)), Bi(-x) = (P cos u + Q sin u) / ...,
    u = z + pi / 4 (DLMF 9.7), x beyond 6; t in [-1, 1] stands for (z(6) / z)^2."""
    def f(t: Any) -> Any:
        x = 6 / ((t + 1) / 2) ** (mpf(1) / 3)
        z = 2 * mp.sqrt(x) ** 3 / 3
        scale, u = mp.sqrt(mp.pi) * mp.root(x, 4), z + mp.pi / 4
        a, b = scale * mp.airyai(-x), scale * mp.airybi(-x)
        return a * mp.sin(u) + b * mp.cos(u) if quarter == 0 else (b * mp.sin(u) - a * mp.cos(u)) * z
    return f


TABLES: dict[str, tuple[str, Function]] = {
    "digamma": ("digamma(x) / (x - its root), x in [1, 2]", digamma_ratio),
    "lgamma1p": ("lgamma(1 + x) / x, x in [0, 1]", lambda t: mp.loggamma(1 + (t + 1) / 2) / ((t + 1) / 2)),
    "erfcx": ("(1 + 2 x) erfcx(x), t = (x - 3.75) / (x + 3.75) (Shepherd and Laframboise 1981)", erfcx_part),
    "i0e": ("exp(-x) I0(x), x in [0, 8]", lambda t: mp.exp(-4 * (t + 1)) * mp.besseli(0, 4 * (t + 1))),
    "i0e_far": ("sqrt(x) exp(-x) I0(x), 8 / x in [0, 1]", lambda t: scaled(mp.besseli, 0, -1, 16 / (t + 1))),
    "i1e": ("exp(-x) I1(x) / x, x in [0, 8]", lambda t: mp.exp(-4 * (t + 1)) * mp.besseli(1, 4 * (t + 1)) / (4 * (t + 1))),
    "i1e_far": ("sqrt(x) exp(-x) I1(x), 8 / x in [0, 1]", lambda t: scaled(mp.besseli, 1, -1, 16 / (t + 1))),
    "k0": ("K0(x) + log(x / 2) I0(x), x^2 in [0, 4]", k_rest(0)),
    "k0e_far": ("sqrt(x) exp(x) K0(x), 2 / x in [0, 1]", lambda t: scaled(mp.besselk, 0, 1, 4 / (t + 1))),
    "k1": ("(K1(x) - log(x / 2) I1(x) - 1 / x) / x, x^2 in [0, 4]", k_rest(1)),
    "k1e_far": ("sqrt(x) exp(x) K1(x), 2 / x in [0, 1]", lambda t: scaled(mp.besselk, 1, 1, 4 / (t + 1))),
    "j0": ("J0(x), x^2 in [0, 64]", of_square(lambda x: mp.besselj(0, x))),
    "j1": ("J1(x) / x, x^2 in [0, 64]", of_square(lambda x: mp.besselj(1, x) / x)),
    "y0": ("Y0(x) - 2 / pi log(x) J0(x), x^2 in [0, 64]", of_square(y_rest(0))),
    "y1": ("(Y1(x) - 2 / pi (log(x) J1(x) - 1 / x)) / x, x^2 in [0, 64]", of_square(y_rest(1))),
    **{f"{'pq'[q]}{order}": (f"{'PQ'[q]} of order {order}{', times x / 8' if q else ''}, (8 / x)^2 in [0, 1]", beyond_8(phase(order, q)))
       for order in (0, 1) for q in (0, 1)},
    "airy_far": ("2 sqrt(pi) x^(1/4) exp(z) Ai(x), z = 2 / 3 x^(3/2), z(2) / z in [0, 1]", airy_far),
    "airy_right": ("exp(x) Ai(x), x in [0, 2]", lambda t: mp.exp(t + 1) * mp.airyai(t + 1)),
    "airy_left": ("Ai(x), x in [-6, 0]", lambda t: mp.airyai(3 * (t - 1))),
    "airy_p": ("P of Ai, (z(6) / z)^2 in [0, 1]", airy_phase(0)),
    "airy_q": ("Q of Ai times z, (z(6) / z)^2 in [0, 1]", airy_phase(1)),
}


def scaled(bessel: Function, order: int, sign: int, x: Any) -> Any:
    return mp.sqrt(x) * mp.exp(sign * x) * bessel(order, x)  # type: ignore[call-arg]


def stirling(n: int) -> list[Fraction]:
    """g of Gamma(a) sqrt(a / (2 pi)) (e / a)^a ~ sum of g[k] a^-k (DLMF 5.11), from the same series as below."""
    alpha = lambdas(2 * n + 2)
    odd, g = 1, []
    for k in range(n):  # g_k = 1 3 5 ... (2 k + 1) alpha_(2k+1)
        odd *= 2 * k + 1
        g.append(odd * alpha[2 * k + 1])
    return g


def lambdas(n: int) -> list[Fraction]:
    """alpha of lambda - 1 = sum of alpha[k] eta^k, where eta^2 / 2 = lambda - 1 - log(lambda): (lambda - 1) lambda' ... = eta lambda."""
    alpha = [Fraction(0), Fraction(1)]
    for k in range(2, n):  # mu mu' = eta (1 + mu), the coefficient of eta^k
        known = alpha[k - 1] - sum(alpha[i] * (k + 1 - i) * alpha[k + 1 - i] for i in range(2, k))
        alpha.append(known / (k + 1))
    return alpha


def temme() -> list[list[Fraction]]:
    """d of c_k(eta) = sum of d[k][n] eta^n (DLMF 8.12.12)."""
    size = TEMME_TERMS + 2 * TEMME_ORDERS + 2
    alpha, g = lambdas(size + 3), stirling(TEMME_ORDERS)
    inverse = [Fraction(1)]  # eta / mu
    for n in range(1, size + 1):
        inverse.append(-sum(alpha[i + 1] * inverse[n - i] for i in range(1, n + 1)))
    d = [inverse[1:]]  # 1 / mu - 1 / eta
    for k in range(1, TEMME_ORDERS):
        last = d[-1]
        d.append([(-1) ** k * g[k] * d[0][n] + (n + 2) * last[n + 2] for n in range(len(last) - 2)])
        # (1 / eta) d/d eta c_(k-1) has the coefficient (n + 2) of the next; its pole goes with that of g_k / mu
    return [row[:TEMME_TERMS] for row in d]


def legendre(n: int) -> tuple[list, list]:
    """Nodes below 1/2 and weights of Gauss and Legendre's rule of n, an even number, on [0, 1] (DLMF 3.5.15 and 3.5.24), by Newton's steps."""
    nodes, weights = [], []
    for k in range(n // 2):
        x = mp.cos(mp.pi * (k + mpf("0.75")) / (n + mpf("0.5")))
        for _ in range(8):
            here, before = mp.legendre(n, x), mp.legendre(n - 1, x)
            slope = n * (before - x * here) / (1 - x * x)
            x -= here / slope
        nodes.append((1 - x) / 2)
        weights.append(1 / ((1 - x * x) * slope**2))
    return nodes, weights


def number(x: Any) -> str:
    return repr(float(x))


def lines(values: list, indent: str = "    ") -> str:
    words = [number(v) for v in values]
    return "\n".join(indent + ", ".join(words[i:i + 5]) + "," for i in range(0, len(words), 5))


def text() -> str:
    parts = ["// clang-format off\n/* Coefficients of the special functions, by tools/special_tables.py. Chebyshev's c of c[0] / 2 + sum of c[k] T_k(t), "
             "t from -1 to 1\n * over the range named. As macros, for kernels keep them inside their functions. */\n"
             "#ifndef AC_SHARED_SPECIAL_TABLES_H\n#define AC_SHARED_SPECIAL_TABLES_H\n"]
    for name, (what, f) in TABLES.items():
        body = " \\\n".join(lines(chebyshev(f)).split("\n"))
        parts.append(f"/* {what} */\n#define AC_TABLE_{name} \\\n{body}\n")
    parts.append(f"/* Temme's d: eta's coefficients for a^-k */\nenum {{ AC_TEMME_ORDERS = {TEMME_ORDERS}, AC_TEMME_TERMS = {TEMME_TERMS} }};")
    for k, row in enumerate(temme()):
        body = " \\\n".join(lines(row).split("\n"))
        parts.append(f"#define AC_TABLE_temme{k} \\\n{body}\n")
    for what, values in zip(("nodes", "weights"), legendre(LEGENDRE)):
        body = " \\\n".join(lines(values).split("\n"))
        parts.append(f"/* {what} of Gauss and Legendre's rule on [0, 1], below 1/2; the others mirror them */\n#define AC_TABLE_legendre_{what} \\\n{body}\n")
    return "\n".join([*parts, "#endif\n"])


if __name__ == "__main__":
    target = Path(__file__).resolve().parent.parent / "csrc" / "shared" / "special_tables.h"
    sys.exit(target.write_text(text()) and 0)
