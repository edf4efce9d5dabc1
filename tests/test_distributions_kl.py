"""Divergences of ampc.distributions beside torch's, and as means over draws."""

import math

import numpy as np
import pytest
from distribution_cases import COV, numbers_of_float64, outcome, same  # noqa: F401

import ampc
from ampc import distributions as D

PAIRS = {  # of each family two, the second for q
    "Bernoulli": [lambda d, t: d.Bernoulli(t([0.2, 0.7])), lambda d, t: d.Bernoulli(t([0.6, 0.1]))],
    "Beta": [lambda d, t: d.Beta(t([0.7, 3.0]), t([2.0, 1.5])), lambda d, t: d.Beta(t([1.7, 0.4]), t([2.5, 1.1]))],
    "Binomial": [lambda d, t: d.Binomial(7, t([0.2, 0.7])), lambda d, t: d.Binomial(7, t([0.6, 0.1]))],
    "Categorical": [lambda d, t: d.Categorical(t([[0.2, 0.8], [0.5, 0.5]])), lambda d, t: d.Categorical(t([[0.6, 0.4], [0.1, 0.9]]))],
    "Cauchy": [lambda d, t: d.Cauchy(t([0.2, 0.7]), t([1.0, 2.0])), lambda d, t: d.Cauchy(t([-1.0, 3.0]), t([0.5, 1.0]))],
    "ContinuousBernoulli": [lambda d, t: d.ContinuousBernoulli(t([0.2, 0.7])), lambda d, t: d.ContinuousBernoulli(t([0.6, 0.1]))],
    "Dirichlet": [lambda d, t: d.Dirichlet(t([[0.7, 3.0, 1.0], [1.0, 2.0, 0.5]])), lambda d, t: d.Dirichlet(t([[1.7, 0.4, 2.0], [1.0, 1.0, 1.0]]))],
    "Exponential": [lambda d, t: d.Exponential(t([0.7, 3.0])), lambda d, t: d.Exponential(t([1.5, 0.6]))],
    "Gamma": [lambda d, t: d.Gamma(t([0.7, 3.0]), t([2.0, 1.5])), lambda d, t: d.Gamma(t([1.7, 0.4]), t([2.5, 1.1]))],
    "Geometric": [lambda d, t: d.Geometric(t([0.2, 0.7])), lambda d, t: d.Geometric(t([0.6, 0.1]))],
    "Gumbel": [lambda d, t: d.Gumbel(t([0.2, 0.7]), t([1.0, 2.0])), lambda d, t: d.Gumbel(t([-1.0, 3.0]), t([0.5, 1.0]))],
    "HalfNormal": [lambda d, t: d.HalfNormal(t([0.2, 0.7])), lambda d, t: d.HalfNormal(t([0.6, 0.1]))],
    "Independent": [lambda d, t: d.Independent(d.Normal(t([[0.2, 0.7]]), t([1.0, 2.0])), 1), lambda d, t: d.Independent(d.Normal(t([[-1.0, 3.0]]), t([0.5, 1.0])), 1)],
    "Laplace": [lambda d, t: d.Laplace(t([0.2, 0.7]), t([1.0, 2.0])), lambda d, t: d.Laplace(t([-1.0, 3.0]), t([0.5, 1.0]))],
    "LogNormal": [lambda d, t: d.LogNormal(t([0.2, 0.7]), t([1.0, 2.0])), lambda d, t: d.LogNormal(t([-1.0, 3.0]), t([0.5, 1.0]))],
    "LowRankMultivariateNormal": [lambda d, t: d.LowRankMultivariateNormal(t([0.2, 0.7, 1.0]), t([[1.0], [2.0], [0.5]]), t([1.0, 0.5, 2.0])),
                                  lambda d, t: d.LowRankMultivariateNormal(t([1.2, 0.1, 1.0]), t([[1.5], [-2.0], [0.5]]), t([1.0, 1.5, 0.3]))],
    "MultivariateNormal": [lambda d, t: d.MultivariateNormal(t([0.2, 0.7, 1.0]), t(COV[0].tolist())), lambda d, t: d.MultivariateNormal(t([1.2, 0.1, 1.0]), t(COV[1].tolist()))],
    "Normal": [lambda d, t: d.Normal(t([0.2, 0.7]), t([1.0, 2.0])), lambda d, t: d.Normal(t([-1.0, 3.0]), t([0.5, 1.0]))],
    "OneHotCategorical": [lambda d, t: d.OneHotCategorical(t([[0.2, 0.8], [0.5, 0.5]])), lambda d, t: d.OneHotCategorical(t([[0.6, 0.4], [0.1, 0.9]]))],
    "Pareto": [lambda d, t: d.Pareto(t([1.2, 2.7]), t([2.5, 3.0])), lambda d, t: d.Pareto(t([0.7, 3.0]), t([0.5, 1.0]))],
    "Poisson": [lambda d, t: d.Poisson(t([0.2, 2.7])), lambda d, t: d.Poisson(t([0.6, 1.1]))],
    "Uniform": [lambda d, t: d.Uniform(t([0.2, -1.0]), t([0.7, 3.0])), lambda d, t: d.Uniform(t([-0.5, 0.0]), t([1.0, 1.0]))],
    "Uniform within": [lambda d, t: d.Uniform(t([0.2, 0.1]), t([0.7, 0.9])), lambda d, t: d.Uniform(t([0.0, -0.1]), t([1.0, 1.5]))],
    "Laplace within": [lambda d, t: d.Laplace(t([0.2, 0.7]), t([0.1, 0.3])), lambda d, t: d.Laplace(t([-1.0, 3.0]), t([0.5, 1.0]))],
    "Gamma of others": [lambda d, t: d.Chi2(t([0.7, 3.0])), lambda d, t: d.Chi2(t([1.7, 0.4]))],
}


@pytest.mark.parametrize("first", PAIRS)
def test_divergences(torch, first):
    """Every pair that torch has, and no number where it has another."""
    found = 0
    for second in PAIRS:
        (pt, p), (qt, q) = [[PAIRS[n][i](T.distributions, lambda v, T=T: T.tensor(v, dtype=T.float64)) for T in (torch, ampc)] for i, n in enumerate((first, second))]
        want = outcome(lambda: torch.distributions.kl_divergence(pt, qt))  # noqa: B023
        if want is not NotImplementedError and tuple(pt.event_shape) == tuple(qt.event_shape):
            found += 1
            got = D.kl_divergence(p, q)
            if first == "ContinuousBernoulli" and second.startswith("Uniform"):  # within [0, 1] itself torch's is infinite
                fine = (qt.low < 0) & (qt.high > 1)
                got, want = got.where(ampc.tensor(fine.numpy(force=True)), 0.0), want.where(fine, 0.0)
            same(got, want, 1e-9)
    assert found


@pytest.mark.parametrize(("p", "q"), [("Normal", "Laplace"), ("Laplace within", "Gumbel"), ("Gumbel", "Gumbel"), ("Exponential", "Gumbel"), ("Gamma", "Exponential"),
                                      ("Beta", "Beta"), ("Pareto", "Gamma"), ("Uniform within", "ContinuousBernoulli"), ("Uniform within", "Beta"), ("Laplace", "Laplace")])
def test_divergences_are_means(p, q):
    """Of log p - log q over draws of p, within 5 deviations."""
    ampc.manual_seed(18)
    make = lambda v: ampc.tensor(v, dtype=ampc.float64)  # noqa: E731
    p, q = PAIRS[p][0](D, make), PAIRS[q][1](D, make)
    x = p.sample((20_000,))
    terms = (p.log_prob(x) - q.log_prob(x)).numpy(force=True)
    want = D.kl_divergence(p, q).numpy(force=True)
    fine = np.isfinite(want)
    assert fine.any() and (np.abs(terms.mean(0) - want) <= 5 * terms.std(0) / math.sqrt(20_000))[fine].all()


def test_divergences_of_families(torch):
    """By the formula of exponential families alone."""
    from ampc.distributions.kl import _exponential_families
    for name in ("Normal", "Gamma", "Beta", "Dirichlet", "Exponential", "Bernoulli", "Poisson", "ContinuousBernoulli"):
        p, q = (PAIRS[name][i](D, lambda v: ampc.tensor(v, dtype=ampc.float64)) for i in (0, 1))
        assert np.allclose(_exponential_families(p, q).numpy(force=True), D.kl_divergence(p, q).numpy(force=True), rtol=1e-9), name
        if name != "Poisson":
            assert np.allclose(D.ExponentialFamily.entropy(p).numpy(force=True), p.entropy().numpy(force=True), rtol=1e-8), name
    with pytest.raises(NotImplementedError, match="Gamma and Dirichlet"):
        D.kl_divergence(D.Gamma(ampc.ones(2), ampc.ones(2)), D.Dirichlet(ampc.ones(2)))
    with pytest.raises(NotImplementedError, match="mean of log"):
        D.Poisson(2.0).entropy()


def test_divergences_of_wishart():
    """Of 1 dimension it is a gamma distribution; of more, the divergence is the mean of log p - log q over draws, within 5 deviations."""
    t = lambda v: ampc.tensor(v, dtype=ampc.float64)  # noqa: E731
    df, v = t([2.5, 7.0]), t([1.5, 0.3])
    p, q = D.Wishart(df, v.reshape(2, 1, 1)), D.Wishart(df.flip(0), (2 * v).reshape(2, 1, 1))
    same(D.kl_divergence(p, q), D.kl_divergence(D.Gamma(df / 2, 0.5 / v), D.Gamma(df.flip(0) / 2, 0.25 / v)), 1e-10)
    same(D.ExponentialFamily.entropy(p), p.entropy(), 1e-10)
    ampc.manual_seed(19)
    p, q = D.Wishart(t([3.5, 6.0]), t(COV[0].tolist())), D.Wishart(t([5.0, 4.2]), t(COV[1].tolist()))
    x = p.sample((20_000,))
    terms = (p.log_prob(x) - q.log_prob(x)).numpy(force=True)
    assert (np.abs(terms.mean(0) - D.kl_divergence(p, q).numpy(force=True)) <= 5 * terms.std(0) / math.sqrt(20_000)).all()
    same(D.ExponentialFamily.entropy(p), p.entropy(), 1e-10)


@pytest.mark.parametrize(("first", "second"), [("Uniform", "Pareto"), ("Wide", "Uniform"), ("Normal", "Beta"), ("Pareto", "Beta"), ("Gamma", "Uniform")])
def test_infinite_divergences_have_gradients_of_0(first, second):
    """Where p has values that q has not, the divergence does not change with the parameters."""
    def leaf(v):
        leaves.append(ampc.tensor(v, dtype=ampc.float64, requires_grad=True))
        return leaves[-1]

    leaves = []
    p = D.Uniform(leaf([-9.0, -9.0]), leaf([9.0, 9.0])) if first == "Wide" else PAIRS[first][0](D, leaf)
    kl = D.kl_divergence(p, PAIRS[second][1](D, leaf))
    assert bool(kl.isposinf().all())
    for g in ampc.autograd.grad(kl.sum(), leaves, allow_unused=True):
        assert g is None or not g.any()


def test_divergence_reads_the_lower_triangle_alone(torch):
    """The gradient by ``scale_tril`` is 0 above the diagonal."""
    grads = []
    for T in (ampc, torch):
        factors = [T.tensor(np.linalg.cholesky(c), requires_grad=True) for c in COV]
        p, q = (T.distributions.MultivariateNormal(T.zeros(3, dtype=T.float64), scale_tril=f) for f in factors)
        T.distributions.kl_divergence(p, q).backward()
        grads.append([f.grad for f in factors])
    for g, w in zip(*grads):
        same(g, w)


def test_the_formula_of_pairs_is_chosen_by_class():
    class Special(D.Gamma):
        pass

    @D.register_kl(Special, D.Gamma)
    def special(p, q):
        return p.rate * 0 + 7

    n = D.Gamma(1.0, 1.0)
    assert float(D.kl_divergence(Special(1.0, 1.0), n)) == 7 and abs(float(D.kl_divergence(n, n))) < 1e-6
    with pytest.raises(TypeError, match="expected classes"):
        D.register_kl(1, D.Gamma)


def test_a_formula_for_classes_of_another_base():
    class Other:
        loc = 3.0

    @D.register_kl(Other, Other)
    def other(p, q):
        return ampc.tensor(p.loc - q.loc)

    assert float(D.kl_divergence(Other(), Other())) == 0


@pytest.mark.parametrize("first", [n for n in PAIRS if n not in ("Uniform", "Binomial")])
def test_gradients_of_divergences(torch, first):
    """By the parameters of p and of q, of every pair that torch has and that is finite."""
    for second in PAIRS:
        leaves = {ampc: [], torch: []}

        def leaf(v, T):
            leaves[T].append(T.tensor(v, dtype=T.float64, requires_grad=True))  # noqa: B023
            return leaves[T][-1]  # noqa: B023

        (pt, p), (qt, q) = [[PAIRS[n][i](T.distributions, lambda v, T=T: leaf(v, T)) for T in (torch, ampc)] for i, n in enumerate((first, second))]  # noqa: B023
        want = outcome(lambda: torch.distributions.kl_divergence(pt, qt))  # noqa: B023
        if want is NotImplementedError or tuple(pt.event_shape) != tuple(qt.event_shape) or not bool(want.isfinite().all()) or not want.requires_grad:
            continue
        want.sum().backward(), D.kl_divergence(p, q).sum().backward()
        for g, w in zip(leaves[ampc], leaves[torch]):
            assert (g.grad is None) <= (w.grad is None or not w.grad.any()), second
            if g.grad is not None and w.grad is not None:
                same(g.grad, w.grad, 1e-7)
