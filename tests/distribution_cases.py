"""What the tests of ampc.distributions share: each family made of arrays, by ampc and by torch, and how results are compared."""

import numpy as np
import pytest
from references import R

import ampc


def real(*shape):
    return R.standard_normal(shape)


def positive(*shape):
    return np.exp(R.standard_normal(shape) * 0.7)


def shares(*shape):
    return R.dirichlet(np.ones(shape[-1]), shape[:-1])


def solid(n, *batch):
    a = R.standard_normal((*batch, n, n))
    return a @ np.swapaxes(a, -1, -2) + n * np.eye(n)


COV = solid(3, 2)
# What is made of which arrays; a list of a name's cases. Each case is compared in all that torch's distribution has.
CASES = {
    "Normal": (lambda d, a, b: d.Normal(a, b), [real(3, 2), positive(2)]), "Normal, loc 0": (lambda d, b: d.Normal(0.0, b), [positive(2)]),
    "Laplace": (lambda d, a, b: d.Laplace(a, b), [real(3, 2), positive(2)]), "Cauchy": (lambda d, a, b: d.Cauchy(a, b), [real(3, 2), positive(2)]),
    "Gumbel": (lambda d, a, b: d.Gumbel(a, b), [real(3, 2), positive(2)]),
    "StudentT": (lambda d, n, a, b: d.StudentT(n, a, b), [np.array([0.7, 1.5, 4.0]), real(2, 3), positive(3)]),
    "Uniform": (lambda d, a, b: d.Uniform(a, a + b), [real(3, 2), positive(2)]),
    "HalfNormal": (lambda d, a: d.HalfNormal(a), [positive(3)]), "HalfCauchy": (lambda d, a: d.HalfCauchy(a), [positive(3)]),
    "Exponential": (lambda d, a: d.Exponential(a), [positive(3, 2)]), "Gamma": (lambda d, a, b: d.Gamma(a, b), [positive(3, 2), positive(2)]),
    "Chi2": (lambda d, a: d.Chi2(a), [positive(3) * 3]), "FisherSnedecor": (lambda d, a, b: d.FisherSnedecor(a, b), [np.array([1.5, 3.0, 7.0]), np.array([1.5, 3.5, 9.0])]),
    "InverseGamma": (lambda d, a, b: d.InverseGamma(a, b), [np.array([0.7, 1.5, 3.5]), positive(3)]),
    "Beta": (lambda d, a, b: d.Beta(a, b), [positive(3, 2) + 0.2, positive(2)]), "Dirichlet": (lambda d, a: d.Dirichlet(a), [positive(3, 4)]),
    "Dirichlet with peaks in the corners": (lambda d, a: d.Dirichlet(a), [shares(3, 4)]),
    "LogNormal": (lambda d, a, b: d.LogNormal(a, b), [real(3, 2), positive(2)]), "LogisticNormal": (lambda d, a, b: d.LogisticNormal(a, b), [real(3, 2), positive(2)]),
    "Weibull": (lambda d, a, b: d.Weibull(a, b), [positive(3), np.array([1.2, 2.0, 4.0])]), "Pareto": (lambda d, a, b: d.Pareto(a, b), [positive(3), np.array([0.8, 1.5, 3.0])]),
    "GeneralizedPareto": (lambda d, a, b, c: d.GeneralizedPareto(a, b, c), [real(4), positive(4), np.array([-0.4, -0.1, 0.3, 0.45])]),
    "Kumaraswamy": (lambda d, a, b: d.Kumaraswamy(a, b), [positive(3) + 1, positive(3) + 1]),
    "Bernoulli": (lambda d, a: d.Bernoulli(a), [shares(3, 4)]), "Bernoulli, logits": (lambda d, a: d.Bernoulli(logits=a), [real(3, 2)]),
    "ContinuousBernoulli": (lambda d, a: d.ContinuousBernoulli(a), [np.array([0.1, 0.4995, 0.5, 0.8])]), "ContinuousBernoulli, logits": (lambda d, a: d.ContinuousBernoulli(logits=a), [real(3)]),
    "Geometric": (lambda d, a: d.Geometric(a), [shares(3, 4)]), "Geometric, logits": (lambda d, a: d.Geometric(logits=a), [real(3)]),
    "Binomial": (lambda d, a: d.Binomial(7, a), [shares(3, 4)]), "Binomial, logits": (lambda d, a: d.Binomial(30, logits=a), [real(3)]),
    "NegativeBinomial": (lambda d, n, a: d.NegativeBinomial(n, a), [positive(4) * 3, shares(3, 4)]), "NegativeBinomial, logits": (lambda d, a: d.NegativeBinomial(5, logits=a), [real(3)]),
    "Poisson": (lambda d, a: d.Poisson(a), [positive(3) * 4]),
    "Categorical": (lambda d, a: d.Categorical(3 * a), [shares(3, 4)]), "Categorical, logits": (lambda d, a: d.Categorical(logits=a), [real(3, 4)]),
    "OneHotCategorical": (lambda d, a: d.OneHotCategorical(a), [shares(3, 4)]), "OneHotCategoricalStraightThrough": (lambda d, a: d.OneHotCategoricalStraightThrough(logits=a), [real(3, 4)]),
    "Multinomial": (lambda d, a: d.Multinomial(6, a), [shares(3, 4)]), "Multinomial, logits": (lambda d, a: d.Multinomial(3, logits=a), [real(4)]),
    "RelaxedBernoulli": (lambda d, t, a: d.RelaxedBernoulli(t, a), [np.array(0.7), shares(3, 4)]),
    "RelaxedOneHotCategorical": (lambda d, t, a: d.RelaxedOneHotCategorical(t, logits=a), [np.array(0.7), real(3, 4)]),
    "MultivariateNormal": (lambda d, a, c: d.MultivariateNormal(a, c), [real(2, 3), COV]), "MultivariateNormal, precision": (lambda d, a, c: d.MultivariateNormal(a, precision_matrix=c), [real(3), COV]),
    "MultivariateNormal, factor": (lambda d, a, c: d.MultivariateNormal(a, scale_tril=c.tril()), [real(4, 1, 3), np.linalg.cholesky(COV)]),
    "LowRankMultivariateNormal": (lambda d, a, w, c: d.LowRankMultivariateNormal(a, w, c), [real(2, 4), real(4, 2), positive(2, 4)]),
    "Wishart": (lambda d, n, c: d.Wishart(n, c), [np.array([3.2, 6.0]), COV]), "Wishart, precision": (lambda d, n, c: d.Wishart(n, precision_matrix=c), [np.array([3.2, 6.0]), COV]),
    "LKJCholesky": (lambda d, a: d.LKJCholesky(4, a), [positive(3)]), "LKJCholesky of 2": (lambda d, a: d.LKJCholesky(2, a), [positive(3)]),
    "VonMises": (lambda d, a, b: d.VonMises(a, b), [real(3), positive(3) * 2]),
    "Independent": (lambda d, a, b: d.Independent(d.Normal(a, b), 1), [real(3, 2), positive(2)]),
    "Transformed": (lambda d, a, b: d.TransformedDistribution(d.Normal(a, b), [d.AffineTransform(1.0, -2.0), d.ExpTransform()]), [real(3, 2), positive(2)]),
    "Transformed vectors": (lambda d, a, b: d.TransformedDistribution(d.Independent(d.Normal(a, b), 1), [d.StickBreakingTransform(), d.AffineTransform(0.0, 2.0, event_dim=1)]), [real(3, 2), positive(2)]),
    "MixtureSameFamily": (lambda d, w, a, b: d.MixtureSameFamily(d.Categorical(w), d.Normal(a, b)), [shares(3, 4), real(3, 4), positive(4)]),
    "Mixture of vectors": (lambda d, w, a, b: d.MixtureSameFamily(d.Categorical(w), d.Independent(d.Normal(a, b), 1)), [shares(3, 4), real(3, 4, 2), positive(2)]),
}
ROUGH = {"VonMises": (1e-6, 1e-6)}  # torch's Bessel functions have 7 digits, their slopes 6
MOMENTS = ("mean", "mode", "variance", "stddev")
OTHER = {("Kumaraswamy", "mode")}  # torch's is nan where both parameters are above 1


@pytest.fixture(autouse=True)
def numbers_of_float64():
    """Some of torch's distributions mix the default dtype into those of their parameters."""
    torch = pytest.importorskip("torch")
    torch.set_default_dtype(torch.float64), ampc.set_default_dtype(ampc.float64)
    yield
    torch.set_default_dtype(torch.float32), ampc.set_default_dtype(ampc.float32)


def made(T, name, dtype="float64", grad=False):
    make, arrays = CASES[name]
    leaves = [T.tensor(a, dtype=getattr(T, dtype), requires_grad=grad) for a in arrays]
    return make(T.distributions, *leaves), leaves


def same(a, b, rtol=1e-9, atol=1e-11):
    assert tuple(a.shape) == tuple(b.shape)
    assert np.allclose(a.double().numpy(force=True), b.double().numpy(force=True), rtol=rtol, atol=atol, equal_nan=True), f"{a} {b}"


def outcome(f):
    """The value, or NotImplementedError."""
    try:
        return f()
    except (NotImplementedError, AttributeError):
        return NotImplementedError


def values(torch, theirs, count=5):
    torch.manual_seed(3)
    x = theirs.sample((count,))
    if x.dtype == torch.float64 and theirs.event_shape and isinstance(theirs.support, type(torch.distributions.constraints.simplex)):
        x = x / x.sum(-1, keepdim=True)
    return x
