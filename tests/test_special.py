"""Special functions against numbers of 120 digits, and where they end: at poles, infinities and nan."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import ampc

VALUES = json.loads((Path(__file__).parent / "special_values.json").read_text())
UNITS = 16  # of the last place


def as_array(t):
    return t.double().numpy(force=True)


def _function(name):
    return getattr(ampc.special, name, None) or getattr(ampc, name)


def _called(name, columns, dtype):
    if name == "polygamma":
        return np.array([_function(name)(int(n), ampc.tensor(x, dtype=dtype)).item() for n, x in zip(*columns)])
    return as_array(_function(name)(*(ampc.tensor(list(c), dtype=dtype) for c in columns)))


@pytest.mark.parametrize("name", VALUES)
def test_float64_is_within_units_of_the_truth(name):
    *columns, truth, size = np.array(VALUES[name]).T
    off = np.abs(_called(name, columns, ampc.float64) - truth) / np.spacing(size)
    worst = int(off.argmax())
    assert off[worst] <= UNITS, VALUES[name][worst]


@pytest.mark.parametrize("name", VALUES)
def test_float32_is_float64_rounded(name):
    *columns, truth, size = np.array(VALUES[name]).T
    columns = [c.astype(np.float32).astype(float) for c in columns]
    want = _called(name, columns, ampc.float64)
    got = _called(name, columns, ampc.float32)
    with np.errstate(over="ignore"):
        assert np.array_equal(got, want.astype(np.float32).astype(float), equal_nan=True)


INF, NAN = math.inf, math.nan
ENDS = [("lgamma", [(0.0, INF), (-1.0, INF), (INF, INF), (-INF, INF), (NAN, NAN), (1.0, 0.0), (2.0, 0.0)]),
        ("digamma", [(0.0, -INF), (-0.0, INF), (-3.0, NAN), (INF, INF), (NAN, NAN)]),
        ("erfcx", [(INF, 0.0), (-INF, INF), (-30.0, INF), (NAN, NAN)]),
        ("ndtr", [(INF, 1.0), (-INF, 0.0), (0.0, 0.5), (NAN, NAN)]),
        ("log_ndtr", [(INF, 0.0), (-INF, -INF), (NAN, NAN)]),
        ("ndtri", [(0.0, -INF), (1.0, INF), (0.5, 0.0), (1.5, NAN), (-0.5, NAN), (NAN, NAN)]),
        ("i0", [(0.0, 1.0), (INF, INF), (-INF, INF), (800.0, INF), (NAN, NAN)]),
        ("i1", [(0.0, 0.0), (INF, INF), (-INF, -INF), (-800.0, -INF), (NAN, NAN)]),
        ("i0e", [(0.0, 1.0), (INF, 0.0), (-INF, 0.0), (NAN, NAN)]),
        ("i1e", [(0.0, 0.0), (INF, 0.0), (-INF, 0.0), (NAN, NAN)]),
        *((f"{e}modified_bessel_k{n}", [(0.0, INF), (INF, 0.0), (-1.0, NAN), (NAN, NAN)]) for n in (0, 1) for e in ("", "scaled_")),
        *((f"bessel_y{n}", [(0.0, -INF), (INF, 0.0), (-1.0, NAN), (NAN, NAN)]) for n in (0, 1)),
        ("bessel_j0", [(0.0, 1.0), (INF, 0.0), (-INF, 0.0), (NAN, NAN)]),
        ("bessel_j1", [(0.0, 0.0), (INF, 0.0), (-INF, 0.0), (NAN, NAN)]),
        ("spherical_bessel_j0", [(0.0, 1.0), (INF, 0.0), (NAN, NAN)]),
        ("entr", [(0.0, 0.0), (-1.0, -INF), (INF, -INF), (NAN, NAN)]),
        ("zeta", [(1.0, 2.0, INF), (0.5, 2.0, NAN), (2.0, 0.0, INF), (2.0, -3.0, INF), (2.5, -0.5, NAN), (NAN, 1.0, NAN), (2.0, NAN, NAN), (3.0, INF, 0.0), (1e30, 2.0, 0.0), (INF, 2.0, 0.0), (1e30, 1.0, 1.0), (1e30, 0.5, INF)]),
        ("igamma", [(0.0, 0.0, NAN), (0.0, 1.0, 1.0), (1.0, 0.0, 0.0), (-1.0, 1.0, NAN), (1.0, -1.0, NAN), (1.0, INF, 1.0), (1.5, 1e300, 1.0), (INF, 1.0, 0.0),
                    (INF, INF, NAN), (NAN, 1.0, NAN)]),
        ("igammac", [(0.0, 0.0, NAN), (0.0, 1.0, 0.0), (1.0, 0.0, 1.0), (1.0, INF, 0.0), (1.5, 1e300, 0.0), (INF, 1.0, 1.0), (1.0, NAN, NAN)])]


@pytest.mark.parametrize(("name", "lines"), ENDS, ids=[name for name, _ in ENDS])
@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float64], ids=str)
def test_ends(name, lines, dtype):
    *columns, want = zip(*lines)
    assert np.array_equal(_called(name, columns, dtype), want, equal_nan=True)


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n in ("float16", "bfloat16", "float32", "float64") for d in (1, -1)])
def test_nextafter_steps_through_every_neighbour(name, dtype):
    kind, towards = getattr(ampc, name), dtype * INF
    x = ampc.tensor([0.0, 1.0, -1.0, 2.0, 1.5, -1e-3, ampc.finfo(kind).tiny, -ampc.finfo(kind).tiny, ampc.finfo(kind).max], dtype=kind)
    y = ampc.nextafter(x, ampc.full_like(x, towards))
    back = ampc.nextafter(y, x)
    assert ampc.equal(back, x) and bool((y != x).all())
    between = x.double() + (y.double() - x.double()) / 2
    assert bool(((between.to(kind) == x) | (between.to(kind) == y))[:-1].all())


@pytest.mark.parametrize(("name", "n", "x", "want"), [
    ("chebyshev_polynomial_t", 3, [INF, -INF, NAN, 1.0, -1.0], [INF, -INF, NAN, 1.0, -1.0]),
    ("chebyshev_polynomial_u", 10, [1.0, -1.0, 0.0], [11.0, 11.0, -1.0]),
    ("chebyshev_polynomial_v", 11, [1.0, -1.0], [1.0, -23.0]),
    ("chebyshev_polynomial_w", 11, [1.0, -1.0], [23.0, -1.0]),
    ("chebyshev_polynomial_t", 1e18, [1.0, -2.0, 1.0000001], [1.0, INF, INF]),
    ("legendre_polynomial_p", 7, [1.0, -1.0, 0.0, NAN], [1.0, -1.0, 0.0, NAN]),
    ("legendre_polynomial_p", 2e9, [0.3, 1.0], [NAN, 1.0]),
    ("laguerre_polynomial_l", 6, [0.0], [1.0]),
    ("hermite_polynomial_h", 2.9, [3.0], [34.0]),
    ("hermite_polynomial_he", -1, [3.0, NAN], [0.0, 0.0]),
    ("hermite_polynomial_he", 0, [NAN], [1.0]),
    ("hermite_polynomial_he", NAN, [3.0], [NAN]),
    ("hermite_polynomial_h", 3000, [1.0], [NAN])])
def test_polynomials_end_at_their_limits(name, n, x, want):
    got = getattr(ampc.special, name)(ampc.tensor(x, dtype=ampc.float64), n)
    assert np.array_equal(as_array(got), np.array(want), equal_nan=True)
    assert not getattr(ampc.special, name)(ampc.tensor(x, requires_grad=True), n).requires_grad  # torch has no derivative, either


def test_airy_far_out():
    got = ampc.special.airy_ai(ampc.tensor([INF, -INF, NAN, 1e3, 0.0], dtype=ampc.float64))
    assert np.array_equal(as_array(got)[:4], [0.0, 0.0, NAN, 0.0], equal_nan=True) and abs(got[4].item() - 3 ** (-2 / 3) / math.gamma(2 / 3)) < 1e-16


def test_what_has_no_derivative_says_so():
    a, x = ampc.tensor(2.0, requires_grad=True), ampc.tensor(3.0, requires_grad=True)
    for f in (ampc.igamma, ampc.igammac, ampc.special.zeta):
        with pytest.raises(NotImplementedError, match="first argument"):
            f(a, x).backward()
        f(a.detach(), x).backward()


def test_bad_orders_are_refused():
    x = ampc.tensor([1.5])
    for call in (lambda: ampc.polygamma(-1, x), lambda: x.polygamma(-1), lambda: ampc.mvlgamma(x, 0), lambda: ampc.mvlgamma(x, 2**40), lambda: ampc.frexp(x.long())):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(NotImplementedError):
        ampc.nextafter(x.long(), x.long())
