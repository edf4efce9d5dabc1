"""Draws of ampc.distributions against the distribution functions, and their gradients. Bounds follow from the number of draws."""

import math

import numpy as np
import pytest
from distribution_cases import CASES, made, numbers_of_float64, positive, same  # noqa: F401

import ampc
from ampc import distributions as D

COUNT = 20_000
# P(sqrt(n) D > x) is about 2 exp(-2 x^2) (Kolmogorov 1933): 1e-6 for this x.
FARTHEST = math.sqrt(0.5 * math.log(2e6))


def kolmogorov(below):
    """sqrt(n) times the largest distance between values of a distribution function at draws, and uniform ones."""
    below = np.sort(below)
    n, k = len(below), np.arange(len(below))
    return math.sqrt(n) * max((below - k / n).max(), ((k + 1) / n - below).max())


def continuous(name):
    d = made(ampc, name)[0]
    return not d.event_shape and not d.support.is_discrete


def grid_cdf(d, x):
    """Of a density without a cdf, from 4,000 trapezoids a draw's range, in the middle of which most lies."""
    low, high = x.min(0), x.max(0)
    at = low + (high - low) * np.linspace(0, 1, 4001).reshape(-1, *([1] * (x.ndim - 1))) ** 3
    density = np.exp(d.log_prob(ampc.tensor(at)).numpy(force=True))
    areas = np.concatenate([np.zeros_like(low)[None], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(at, axis=0), 0)])
    return at, areas


@pytest.mark.parametrize("name", [n for n in CASES if continuous(n) and n not in ("FisherSnedecor", "StudentT", "VonMises", "Beta", "RelaxedBernoulli")])
def test_draws_follow_the_cdf(name):
    ampc.manual_seed(11)
    d = made(ampc, name)[0]
    x = d.sample((COUNT,))
    assert not x.requires_grad and bool(d.support.check(x).all())
    below = d.cdf(x).numpy(force=True).reshape(COUNT, -1)
    assert max(kolmogorov(below[:, i]) for i in range(below.shape[1])) < FARTHEST


def beta_cdf(a, b, x):
    t = (np.arange(4000) + 0.5) / 4000 * np.asarray(x)[..., None]
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return np.exp(log + (a - 1) * np.log(t) + (b - 1) * np.log1p(-t)).mean(-1) * x


def test_draws_without_a_cdf():
    """By what they are made of: t and F through a beta variate, whose distribution function is integrated; angles by theirs."""
    ampc.manual_seed(12)
    df, a, b, n = 4.0, 2.0, 3.0, 2000
    t = D.StudentT(ampc.tensor(df)).sample((n,)).numpy(force=True)
    assert kolmogorov(0.5 + 0.5 * np.sign(t) * (1 - beta_cdf(df / 2, 0.5 + 1e-12, df / (df + t**2)))) < FARTHEST
    f = D.FisherSnedecor(ampc.tensor(2 * a), ampc.tensor(2 * b)).sample((n,)).numpy(force=True)
    assert kolmogorov(beta_cdf(a, b, a * f / (a * f + b))) < FARTHEST
    assert kolmogorov(beta_cdf(a, b, D.Beta(ampc.tensor(a), ampc.tensor(b)).sample((n,)).numpy(force=True))) < FARTHEST
    for k in (0.01, 2.0, 50.0):
        x = D.VonMises(ampc.tensor(0.0), ampc.tensor(k)).sample((COUNT,)).numpy(force=True)
        at = np.linspace(-math.pi, math.pi, 20_001)
        area = np.cumsum(np.exp(k * (np.cos(at) - 1)))
        assert kolmogorov(np.interp(x, at, area / area[-1])) < FARTHEST and np.abs(x).max() <= math.pi


@pytest.mark.parametrize("name", [n for n in CASES if not continuous(n) and made(ampc, n)[0].support.is_discrete])
def test_counts_follow_the_probabilities(name):
    """Pearson's chi-squared over the values that come 5 times or more, of each of the batch; its deviation grows as sqrt(2 degrees)."""
    ampc.manual_seed(13)
    d = made(ampc, name)[0]
    if d.has_rsample and name.startswith("OneHot"):
        assert d.rsample().requires_grad == d.probs.requires_grad
    x = d.sample((COUNT,)).numpy(force=True)
    x = x.reshape(COUNT, *d.batch_shape, -1) if d.event_shape else x[..., None]
    for at in np.ndindex(tuple(d.batch_shape)):
        seen, counts = np.unique(x[(slice(None), *at)], axis=0, return_counts=True)
        value = ampc.tensor(seen).reshape(len(seen), *([1] * len(d.batch_shape)), *d.event_shape).expand(len(seen), *d.batch_shape, *d.event_shape)
        expected = COUNT * np.exp(d.log_prob(value).numpy(force=True)[(slice(None), *at)])
        often = expected >= 5
        chi2, degrees = ((counts - expected)[often] ** 2 / expected[often]).sum(), often.sum()
        assert chi2 < degrees + 6 * math.sqrt(2 * degrees) + 12


@pytest.mark.parametrize("name", [n for n in CASES if made(ampc, n)[0].event_shape and "LKJ" not in n and "Logistic" not in n and "Relaxed" not in n and "Transformed" not in n])
def test_means_of_vectors(name):
    """Each mean within 5 of its deviations, each variance within 5 of that of a variance, estimated from the draws."""
    ampc.manual_seed(14)
    d = made(ampc, name)[0]
    x = d.sample((COUNT,)).double().numpy(force=True)
    off = x - d.mean.numpy(force=True)
    assert (np.abs(off.mean(0)) <= 5 * x.std(0) / math.sqrt(COUNT) + 1e-12).all()
    squares = off**2
    assert (np.abs(squares.mean(0) - d.variance.numpy(force=True)) <= 5 * squares.std(0) / math.sqrt(COUNT) + 1e-12).all()


def test_correlations_are_drawn_uniformly():
    """Of LKJ(1) over 2 dimensions the correlation is uniform; over n each is a beta variate on [-1, 1]."""
    ampc.manual_seed(15)
    r = D.LKJCholesky(2, 1.0).sample((COUNT,))[..., 1, 0].numpy(force=True)
    assert kolmogorov((r + 1) / 2) < FARTHEST
    factors = D.LKJCholesky(4, ampc.tensor(1.5)).sample((2000,))
    assert bool(D.constraints.corr_cholesky.check(factors).all())
    whole = (factors @ factors.mT).numpy(force=True)
    a = 1.5 - 1 + 4 / 2
    for i, j in ((1, 0), (3, 1), (3, 2)):
        assert kolmogorov(beta_cdf(a, a, (whole[:, i, j] + 1) / 2)) < FARTHEST


# -- gradients of draws ---------------------------------------------------------------------------------------------------------


def gamma_slope(a, x):
    """minus dP/da over the density: the integral of (digamma(a) - log t) p(t) below x, over p(x), by the middle of 200,000 slices of log t, finer near x."""
    digamma = float(ampc.digamma(ampc.tensor(a, dtype=ampc.float64)))
    reach = max(60 / a, 60 / math.sqrt(a))
    s = (np.arange(200_000) + 0.5) / 200_000
    u = s**3 * reach
    return x * (3 * s**2 * (digamma - math.log(x) + u) * np.exp(-a * u - x * np.expm1(-u))).mean() * reach


@pytest.mark.parametrize("a", [0.05, 0.7, 1.0, 3.0, 40.0, 150.0, 3000.0])
def test_slopes_of_gamma(torch, a):
    for z in (-2.0, -0.5, 0.3, 1.0, 3.0):
        x = a * math.exp(z / math.sqrt(max(a, 1)))
        got = float(ampc._standard_gamma_grad(ampc.tensor(a, dtype=ampc.float64), ampc.tensor(x, dtype=ampc.float64)))
        assert abs(got / gamma_slope(a, x) - 1) < 1e-5 * max(1, abs(z))
        assert abs(got / float(torch._standard_gamma_grad(torch.tensor(a), torch.tensor(x))) - 1) < 5e-3  # torch's has 3 digits


def test_slopes_are_exact():
    """Of shape 1 and 1/2, and of beta(a, 1) = u ** (1 / a), where x is known as a function of uniform numbers."""
    a, x = 0.7, np.array([0.01, 0.3, 0.9, 0.999])
    got = ampc._dirichlet_grad(*(ampc.tensor(v) for v in (x, np.full(4, a), np.full(4, a + 1)))).numpy(force=True)
    assert np.allclose(got * (1 - x), -x * np.log(x) / a, rtol=1e-12)
    got = ampc._dirichlet_grad(*(ampc.tensor(v) for v in (1 - x, np.ones(4), np.full(4, 1 + a)))).numpy(force=True)  # 1 - x of beta(1, a): F = 1 - x^a
    step = 1e-5  # F(a, b; x) by its series for a near 1, both sides
    u = np.linspace(0, 1, 400_001)[1:] - 0.5 / 400_000
    def cdf(first, at):
        t = at * u**3  # more slices near 0
        return (np.exp((first - 1) * np.log(t) + (a - 1) * np.log1p(-t)) * 3 * u**2 * at).mean() * math.exp(math.lgamma(first + a) - math.lgamma(first) - math.lgamma(a))
    for k in range(3):
        at = 1 - x[k]
        slope = -(cdf(1 + step, at) - cdf(1 - step, at)) / (2 * step) / (a * (1 - at) ** (a - 1))
        assert abs(got[k] * (1 - at) / slope - 1) < 1e-5


def test_draws_pass_gradients_on(torch):
    """Gamma and Dirichlet through torch's own formula at the same draws; the others against finite differences of the inverse cdf."""
    from torch.distributions.dirichlet import _Dirichlet_backward

    ampc.manual_seed(16)
    a = ampc.tensor(positive(6, 3), requires_grad=True)
    x = D.Gamma(a, ampc.tensor(2.0)).rsample((4,))
    x.sum().backward()
    want = torch._standard_gamma_grad(torch.tensor(a.numpy(force=True)).expand(4, 6, 3), torch.tensor(2 * x.numpy(force=True))) / 2
    same(a.grad, want.sum(0), 5e-3)
    a.grad = None
    x, weight = D.Dirichlet(a).rsample(), positive(6, 3)
    (x * ampc.tensor(weight)).sum().backward()
    same(a.grad, _Dirichlet_backward(torch.tensor(x.numpy(force=True)), torch.tensor(a.numpy(force=True)), torch.tensor(weight)), 2e-2, 1e-3)
    with pytest.raises(NotImplementedError, match="gradient of a draw"):
        y = ampc._standard_gamma(a).sum()
        (g,) = ampc.autograd.grad(y, a, create_graph=True)
        g.sum().backward()


@pytest.mark.parametrize("name", [n for n in CASES if made(ampc, n)[0].has_rsample and not made(ampc, n)[0].event_shape and n not in
                                  ("Beta", "Gamma", "Chi2", "InverseGamma", "FisherSnedecor", "StudentT", "RelaxedBernoulli")])
def test_gradients_of_draws(name):
    """dx / dparameter = -(dF / dparameter) / density, by finite differences of the cdf."""
    ampc.manual_seed(17)
    d, leaves = made(ampc, name, grad=True)
    x = d.rsample()
    x.sum().backward()
    at, density = x.detach(), d.log_prob(x.detach()).detach().exp().numpy(force=True)
    arrays, step = CASES[name][1], 1e-6
    for i, leaf in enumerate(leaves):
        for k in np.ndindex(arrays[i].shape):
            ends = []
            for sign in (1, -1):
                moved = [v.copy() for v in arrays]
                moved[i][k] += sign * step
                ends.append(CASES[name][0](D, *(ampc.tensor(v) for v in moved)).cdf(at).numpy(force=True))
            want = (-(ends[0] - ends[1]) / (2 * step) / density).sum()
            assert abs(float(leaf.grad[k]) - want) < 1e-4 * (1 + abs(want)), (i, k)
