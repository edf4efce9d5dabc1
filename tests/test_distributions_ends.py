"""ampc.distributions at the ends of their supports and parameters: values, gradients, and what is refused."""

import math
import subprocess
import sys

import numpy as np
import pytest
from distribution_cases import numbers_of_float64, same  # noqa: F401

import ampc
from ampc import distributions as D

inf = math.inf


def both(torch, call):
    """What ``call(library, distributions)`` gives, by ampc and by torch; the type of a ValueError instead."""
    found = []
    for lib in (ampc, torch):
        try:
            found.append(call(lib, lib.distributions))
        except ValueError:
            found.append(ValueError)
    return found


@pytest.mark.parametrize("validate", [None, True, False])
@pytest.mark.parametrize("make", [
    lambda d, v: d.LogNormal(0.3, 1.5, validate_args=v), lambda d, v: d.Weibull(1.5, 2.0, validate_args=v), lambda d, v: d.InverseGamma(1.5, 2.0, validate_args=v),
    lambda d, v: d.Pareto(1.0, 2.5, validate_args=v), lambda d, v: d.HalfNormal(1.5, validate_args=v), lambda d, v: d.HalfCauchy(1.5, validate_args=v), lambda d, v: d.Kumaraswamy(1.5, 2.5, validate_args=v),
    lambda d, v: d.Exponential(1.5, validate_args=v), lambda d, v: d.Gamma(1.5, 1.0, validate_args=v), lambda d, v: d.Uniform(0.0, 1.0, validate_args=v),
    lambda d, v: d.TransformedDistribution(d.Uniform(0.0, 1.0, validate_args=v), [d.AffineTransform(1.0, -2.0)], validate_args=v),
])
def test_cdf_at_and_beyond_the_ends(torch, make, validate):
    """The end of an open support has a probability; a value that the base cannot take is refused where arguments are checked."""
    for x in (0.0, 1.0, -1.0, 1e-300, 0.5, -0.5, 3.0):
        got, want = both(torch, lambda T, d: make(d, validate).cdf(T.tensor(x)))  # noqa: B023
        assert (got is ValueError) == (want is ValueError), x
        if want is not ValueError and not math.isnan(want):
            same(got, want)


def test_densities_outside_of_unchecked_supports():
    k = D.Kumaraswamy(ampc.tensor([0.5, 1.0, 2.0]), ampc.tensor([0.5, 1.0, 2.0]), validate_args=False)
    assert k.log_prob(ampc.tensor(1.5)).tolist() == k.log_prob(ampc.tensor(-0.5)).tolist() == [-inf] * 3
    assert k.cdf(ampc.tensor(1.5)).tolist() == [1] * 3 and k.cdf(ampc.tensor(-0.5)).tolist() == [0] * 3
    assert k.log_prob(ampc.tensor(1.0)).tolist() == [inf, 0, -inf] and k.log_prob(ampc.tensor(0.0)).tolist() == [inf, 0, -inf]
    g = D.GeneralizedPareto(1.0, 2.0, ampc.tensor([-0.5, 0.0, 0.5]), validate_args=False)
    assert g.log_prob(ampc.tensor(0.5)).tolist() == [-inf] * 3 and g.cdf(ampc.tensor(-9.0)).tolist() == [0] * 3
    assert g.log_prob(ampc.tensor(6.0)).tolist()[0] == -inf and g.cdf(ampc.tensor(6.0)).tolist()[0] == 1
    assert g.cdf(ampc.tensor(inf)).tolist() == [1] * 3 and g.log_prob(ampc.tensor(inf)).tolist() == [-inf] * 3
    assert g.icdf(ampc.tensor(1.0)).tolist() == [5, inf, inf] and g.icdf(ampc.tensor(0.0)).tolist() == [1] * 3


def moments_and_gradients(lib, make, arrays):
    leaves = [lib.tensor(a, dtype=lib.float64, requires_grad=True) for a in arrays]
    d, found = make(lib.distributions, *leaves), []
    for what in ("mean", "variance"):
        moment = getattr(d, what)
        found += [moment, *(lib.autograd.grad(moment.sum(), leaves, allow_unused=True) if moment.requires_grad else [None] * len(leaves))]
    return found


@pytest.mark.parametrize(("make", "arrays"), [
    (lambda d, a: d.StudentT(a), [[0.5, 1.0, 1.5, 2.0, 3.0]]), (lambda d, a, b: d.FisherSnedecor(a, b), [[3.0] * 5, [1.0, 2.0, 3.0, 4.0, 5.0]]),
    (lambda d, a, b: d.InverseGamma(a, b), [[0.5, 1.0, 1.5, 2.0, 3.0], [2.0] * 5]), (lambda d, s, a: d.Pareto(s, a), [[2.0] * 5, [0.5, 1.0, 1.5, 2.0, 3.0]]),
])
def test_moments_that_do_not_exist_have_gradients_of_0(torch, make, arrays):
    """Values beside torch's; gradients, too, where the moment exists. Elsewhere some of torch's are nan."""
    mine, theirs = (moments_and_gradients(lib, make, arrays) for lib in (ampc, torch))
    half = len(mine) // 2
    for i, (got, want) in enumerate(zip(mine, theirs)):
        if want is None:
            assert got is None or not got.any()
        elif i in (0, half):
            same(got, want)
        else:
            exists = theirs[0 if i < half else half].isfinite().numpy(force=True)
            assert not got.numpy(force=True)[~exists].any() and np.allclose(got.numpy(force=True)[exists], want.numpy(force=True)[exists])


def test_moments_that_no_parameter_gives(torch):
    """Cauchy's are constants: they take no gradient from their parameters."""
    for make in (lambda d, a: d.Cauchy(a, a), lambda d, a: d.HalfCauchy(a)):
        mine, theirs = (make(T.distributions, T.tensor([1.0, 2.0], requires_grad=True)) for T in (ampc, torch))
        for what in ("mean", "variance", "stddev"):
            same(getattr(mine, what), getattr(theirs, what))
            assert getattr(mine, what).requires_grad == getattr(theirs, what).requires_grad


def test_moments_of_heavy_tails():
    """By the closed forms of mean, 3 / (1 - k), and variance, 9 / ((1 - k) ** 2 (1 - 2 k)), and their derivatives."""
    k = np.array([-1.5, 0.0, 0.25, 0.5, 1.0, 2.0])
    mean, by_k, variance, variance_by_k = moments_and_gradients(ampc, lambda d, k: d.GeneralizedPareto(0.0, 3.0, k), [k])
    assert mean.tolist()[4:] == [inf] * 2 and variance.tolist()[3:] == [inf] * 3 and not by_k[4:].any() and not variance_by_k[3:].any()
    n, m = k[:4], k[:3]
    assert np.allclose(mean.numpy(force=True)[:4], 3 / (1 - n)) and np.allclose(by_k.numpy(force=True)[:4], 3 / (1 - n) ** 2)
    assert np.allclose(variance.numpy(force=True)[:3], 9 / ((1 - m) ** 2 * (1 - 2 * m)))
    assert np.allclose(variance_by_k.numpy(force=True)[:3], 9 * (2 / ((1 - m) ** 3 * (1 - 2 * m)) + 2 / ((1 - m) * (1 - 2 * m)) ** 2))


def test_gradient_of_a_certain_success(torch):
    found = []
    for lib in (ampc, torch):
        p = lib.tensor([1.0, 0.5], requires_grad=True)
        lib.distributions.Geometric(p).log_prob(lib.zeros(2)).sum().backward()
        found.append(p.grad)
    same(*found)


def test_whole_numbers_as_shares(torch):
    """An integer vector with a single 1 lies in a simplex."""
    for d, lib in ((D, ampc), (torch.distributions, torch)):
        assert d.constraints.simplex.check(lib.tensor([[0, 1, 0], [1, 1, 0]])).tolist() == [True, False]
        assert float(d.Dirichlet(lib.ones(3)).log_prob(lib.tensor([0, 1, 0]))) == pytest.approx(math.log(2))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_shares_are_neither_0_nor_1(torch, dtype):
    """A density takes the logarithms of a share and of what is left, so draws end where the dtype does, as in torch."""
    def ends(lib):
        lib.manual_seed(0)
        few = lib.full((4000, 2), 0.01, dtype=getattr(lib, dtype))
        beta = lib.distributions.Beta(few[:, 0], few[:, 1])
        draws = lib._sample_dirichlet(few / 10)
        assert lib.isfinite(beta.log_prob(beta.sample())).all()
        return float(draws.min()), float(draws.max()), float(lib._sample_dirichlet(few[:1, :1]))

    limits = np.finfo(dtype)
    assert ends(ampc) == ends(torch) == (limits.tiny, 1 - limits.epsneg, 1 - limits.epsneg)


def test_counts_of_multinomial(torch):
    for d, lib in ((D, ampc), (torch.distributions, torch)):
        with pytest.raises(ValueError):
            d.Multinomial(-1, lib.tensor([0.5, 0.5]))
        wide = d.Multinomial(2, lib.tensor([[0.5, 0.5]] * 3), validate_args=False)
        assert wide.log_prob(lib.tensor(1.0)).tolist() == pytest.approx([math.log(0.5)] * 3)


@pytest.mark.cpu
def test_representations(torch):
    """One number is printed as a number, more as a shape."""
    for make in (lambda d, t: d.Normal(0.0, 2.0), lambda d, t: d.Gamma(t([1.5]), t(2.5)), lambda d, t: d.Normal(t([0.0, 1.0]), 2.0), lambda d, t: d.Bernoulli(0.25)):
        assert repr(make(D, ampc.tensor)) == repr(make(torch.distributions, torch.tensor)).replace("torch.", "ampc.")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_continuous_bernoulli_of_saturated_logits(torch, dtype):
    """Where the sigmoid is 0 or 1: finite densities and moments, and gradients without nan."""
    found = []
    for lib in (ampc, torch):
        logits = lib.tensor([-800.0, -50.0, -20.0, 0.0, 20.0, 50.0, 800.0], dtype=getattr(lib, dtype), requires_grad=True)
        d = lib.distributions.ContinuousBernoulli(logits=logits)
        values = [d.log_prob(lib.tensor(v, dtype=getattr(lib, dtype))) for v in (0.0, 0.3, 1.0)] + [d.mean, d.variance, d.entropy(), d.cdf(lib.tensor(0.3, dtype=getattr(lib, dtype)))]
        found.append([*values, *(lib.autograd.grad(v.sum(), logits, retain_graph=True)[0] for v in values)])
    for got, want in zip(*found):
        same(got, want, 1e-4 if dtype == "float32" else 1e-7, 1e-5)


def test_whole_parameters_are_not_drawn_from(torch):
    """A continuous draw has no place in an integer tensor."""
    for lib in (ampc, torch):
        for fill in ("exponential_", "cauchy_", "log_normal_", "normal_", "uniform_"):
            with pytest.raises(RuntimeError):
                getattr(lib.zeros(3, dtype=lib.int64), fill)()
        with pytest.raises((RuntimeError, TypeError)):
            lib.distributions.Laplace(lib.tensor(0), lib.tensor(1)).sample()


def test_python_without_assertions_checks_nothing(tmp_path):
    code = "import ampc.distributions as d; d.Normal(0.0, -1.0); print('made'); d.Distribution.set_default_validate_args(True); d.Normal(0.0, -1.0)"
    ran = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert ran.stdout == "made\n" and "ValueError: Normal" in ran.stderr


def test_student_of_many_degrees_of_freedom():
    """Beside 40 digits; the limit is the normal distribution. In float32 as in float64, but for rounding."""
    mp = pytest.importorskip("mpmath").mp.clone()
    mp.dps = 40
    df, x = [0.5, 3.0, 59.0, 61.0, 500.0, 1e4, 1e6, 1e10], 1.5
    a = [mp.mpf(n) / 2 for n in df]
    top = [mp.loggamma(b + 0.5) - mp.loggamma(b) - mp.log(2 * b * mp.pi) / 2 for b in a]
    density = [float(t - (b + 0.5) * mp.log1p(x**2 / (2 * b))) for t, b in zip(top, a)]
    entropy = [float((b + 0.5) * (mp.digamma(b + 0.5) - mp.digamma(b)) - t) for t, b in zip(top, a)]
    slope = [float(mp.diff(lambda n: mp.loggamma((n + 1) / 2) - mp.loggamma(n / 2) - mp.log(n) / 2 - (n + 1) / 2 * mp.log1p(x**2 / n), 2 * b)) for b in a]
    for dtype, digits in ((ampc.float64, 1e-12), (ampc.float32, 3e-6)):
        n = ampc.tensor(df, dtype=dtype, requires_grad=True)
        d = D.StudentT(n)
        got = d.log_prob(ampc.tensor(x, dtype=dtype))
        (by_df,) = ampc.autograd.grad(got.sum(), n)
        assert np.allclose(got.numpy(force=True), density, rtol=digits, atol=0) and np.allclose(d.entropy().numpy(force=True), entropy, rtol=digits, atol=0)
        assert np.allclose(by_df.numpy(force=True), slope, rtol=10 * digits, atol=digits)
