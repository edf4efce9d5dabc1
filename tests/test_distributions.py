"""ampc.distributions beside torch's: densities, moments, shapes, gradients, arguments."""

import math

import numpy as np
import pytest
from distribution_cases import CASES, MOMENTS, OTHER, ROUGH, R, made, numbers_of_float64, outcome, same, values  # noqa: F401

import ampc
from ampc import distributions as D


@pytest.mark.parametrize("name", CASES)
def test_as_torch(torch, name):
    mine, theirs = made(ampc, name)[0], made(torch, name)[0]
    assert tuple(mine.batch_shape) == tuple(theirs.batch_shape) and tuple(mine.event_shape) == tuple(theirs.event_shape)
    assert mine.has_rsample == theirs.has_rsample and mine.has_enumerate_support == theirs.has_enumerate_support
    for what in MOMENTS:
        want, got = outcome(lambda: getattr(theirs, what)), outcome(lambda: getattr(mine, what))  # noqa: B023
        if want is not NotImplementedError and (name, what) not in OTHER:
            same(got, want, *ROUGH.get(name, ()))
    x = values(torch, theirs)
    y = ampc.tensor(x.numpy(force=True))
    assert bool(mine.support.check(y).all())
    same(mine.log_prob(y), theirs.log_prob(x), *ROUGH.get(name, ()))
    for what in ("cdf", "entropy"):
        args = (lambda v: (v,)) if what == "cdf" else (lambda v: ())  # noqa: E731
        want, got = outcome(lambda: getattr(theirs, what)(*args(x))), outcome(lambda: getattr(mine, what)(*args(y)))  # noqa: B023
        if want is not NotImplementedError:
            same(got, want)
    p = R.random((5, *theirs.batch_shape))
    want = outcome(lambda: theirs.icdf(torch.tensor(p)))
    if want is not NotImplementedError:
        same(mine.icdf(ampc.tensor(p)), want, 1e-7)
    if theirs.has_enumerate_support:
        same(mine.enumerate_support(), theirs.enumerate_support())
        same(mine.enumerate_support(False), theirs.enumerate_support(False))


@pytest.mark.parametrize("name", CASES)
def test_gradients(torch, name):
    """Of log_prob by value and parameters, of entropy, mean and variance by the parameters."""
    (mine, leaves), (theirs, others) = made(ampc, name, grad=True), made(torch, name, grad=True)
    x = values(torch, theirs)
    given = []
    for T, d, at in ((ampc, mine, leaves), (torch, theirs, others)):
        v = T.tensor(x.numpy(force=True))
        if v.dtype == T.float64 and not d.support.is_discrete:
            v.requires_grad_()
        total = d.log_prob(v).sum()
        has = [outcome(lambda w=w: getattr(theirs, w)() if w == "entropy" else getattr(theirs, w)) is not NotImplementedError for w in ("entropy", "mean", "variance")]
        for ok, what in zip(has, ("entropy", "mean", "variance")):
            if ok and name not in ("Cauchy", "HalfCauchy", "StudentT", "FisherSnedecor", "InverseGamma", "Pareto", "GeneralizedPareto", "OneHotCategoricalStraightThrough"):
                got = getattr(d, what)() if what == "entropy" else getattr(d, what)
                total = total + (1 / (1 + got.square())).sum()
        total.backward()
        given.append([v.grad if v.requires_grad else None, *(p.grad for p in at)])
    for g, w in zip(*given):
        assert (g is None) == (w is None)
        if g is not None:
            same(g, w, *ROUGH.get(name, (1e-6, 1e-8)))


@pytest.mark.parametrize("name", CASES)
def test_expand(torch, name):
    mine, theirs = made(ampc, name)[0], made(torch, name)[0]
    shape = (2, *theirs.batch_shape)
    wide, wide_theirs = mine.expand(shape), theirs.expand(shape)
    assert type(wide) is type(mine) and tuple(wide.batch_shape) == shape and tuple(wide.event_shape) == tuple(theirs.event_shape)
    x = values(torch, wide_theirs)
    same(wide.log_prob(ampc.tensor(x.numpy(force=True))), wide_theirs.log_prob(x), *ROUGH.get(name, ()))
    assert tuple(wide.sample((3,)).shape) == tuple(wide_theirs.sample((3,)).shape) and tuple(mine.batch_shape) == shape[1:]
    assert tuple(mine.expand(shape).expand((4, *shape)).sample().shape) == (4, *shape, *theirs.event_shape)


# -- arguments ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [
    lambda d, t: d.Normal(t([1.0]), t([-1.0])), lambda d, t: d.Normal(t([math.nan]), t([1.0])), lambda d, t: d.Beta(t([-1.0]), t([1.0])), lambda d, t: d.Gamma(t([0.0]), t([1.0])),
    lambda d, t: d.Dirichlet(t([1.0, -1.0])), lambda d, t: d.Uniform(t([1.0]), t([1.0])), lambda d, t: d.Poisson(t([-1.0])), lambda d, t: d.Geometric(t([0.0])),
    lambda d, t: d.Geometric(t([1.5])), lambda d, t: d.Binomial(-1, t([0.5])), lambda d, t: d.Binomial(2.5, t([0.5])), lambda d, t: d.NegativeBinomial(1, t([1.0])),
    lambda d, t: d.Categorical(t([[-1.0, 2.0]])), lambda d, t: d.OneHotCategorical(), lambda d, t: d.Multinomial(2, t([1.0]), t([1.0])), lambda d, t: d.Bernoulli(t([1.5])),
    lambda d, t: d.MultivariateNormal(t([0.0, 0.0]), t([[1.0, 2.0], [2.0, 1.0]])), lambda d, t: d.MultivariateNormal(t([0.0])), lambda d, t: d.MultivariateNormal(t(0.0), t([[1.0]])),
    lambda d, t: d.MultivariateNormal(t([0.0, 0.0]), scale_tril=t([[1.0, 1.0], [0.0, 1.0]])), lambda d, t: d.LowRankMultivariateNormal(t([0.0, 0.0]), t([[1.0], [1.0]]), t([1.0, 0.0])),
    lambda d, t: d.LowRankMultivariateNormal(t([0.0, 0.0]), t([[1.0]]), t([1.0, 1.0])), lambda d, t: d.Wishart(t(0.5), t([[1.0, 0.0], [0.0, 1.0]])), lambda d, t: d.LKJCholesky(1, t(1.0)),
    lambda d, t: d.StudentT(t([0.0])), lambda d, t: d.VonMises(t([0.0]), t([0.0])), lambda d, t: d.Independent(d.Normal(t([0.0]), t([1.0])), 2), lambda d, t: d.Weibull(t([1.0]), t([-1.0])),
    lambda d, t: d.TransformedDistribution(d.Normal(t([0.0]), t([1.0])), [5]), lambda d, t: d.TransformedDistribution(d.Normal(t(0.0), t(1.0)), d.StickBreakingTransform()),
    lambda d, t: d.MixtureSameFamily(d.Normal(t([0.0]), t([1.0])), d.Normal(t([0.0]), t([1.0]))), lambda d, t: d.MixtureSameFamily(d.Categorical(t([0.5, 0.5])), d.Normal(t([0.0] * 3), t([1.0] * 3))),
    lambda d, t: d.Normal(t([0.0]), t([1.0])).log_prob(5.0), lambda d, t: d.Normal(t([0.0, 1.0]), t([1.0, 1.0])).log_prob(t([0.0, 0.0, 0.0])), lambda d, t: d.Gamma(t([1.0]), t([1.0])).log_prob(t([-1.0])),
    lambda d, t: d.Dirichlet(t([1.0, 1.0])).log_prob(t([0.5, 0.6])), lambda d, t: d.Dirichlet(t([1.0, 1.0])).log_prob(t([0.5, 0.25, 0.25])), lambda d, t: d.Poisson(t([1.0])).log_prob(t([1.5])),
    lambda d, t: d.Binomial(3, t([0.5])).log_prob(t([4.0])), lambda d, t: d.OneHotCategorical(t([0.5, 0.5])).log_prob(t([1.0, 1.0])), lambda d, t: d.Multinomial(2, t([0.5, 0.5])).log_prob(t([3.0, 1.0])),
    lambda d, t: d.Pareto(t([1.0]), t([1.0])).log_prob(t([0.5])), lambda d, t: d.Uniform(t([0.0]), t([1.0])).cdf(t([2.0])), lambda d, t: d.Normal(0.0, "1"), lambda d, t: d.HalfNormal(t([1.0])).log_prob(t([-1.0])),
    lambda d, t: d.RelaxedBernoulli(t(1.0), t([1.5])), lambda d, t: d.ExpTransform(cache_size=2), lambda d, t: d.ReshapeTransform((2, 3), (5,)),
    lambda d, t: d.constraints.dependent.check(t([1.0])), lambda d, t: d.Distribution.set_default_validate_args(5),
])
def test_wrong_arguments(torch, call):
    for T in (torch, ampc):
        with pytest.raises(ValueError):
            call(T.distributions, T.tensor)


def test_unchecked_arguments():
    assert math.isnan(float(D.Gamma(1.0, math.nan, validate_args=False).rate))
    assert math.isinf(float(D.Uniform(0.0, 1.0, validate_args=False).log_prob(ampc.tensor(2.0)))) and float(D.HalfNormal(1.0, validate_args=False).log_prob(ampc.tensor(-1.0))) == -math.inf
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0), D.Gamma(-1.0, 1.0)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(NotImplementedError, match="no rsample"):
        D.Poisson(1.0).rsample()
    for what in ("mean", "mode", "variance", "stddev", "support"):
        with pytest.raises(NotImplementedError):
            getattr(D.Distribution(), what)
    for call in (lambda d: d.entropy(), lambda d: d.cdf(ampc.ones(())), lambda d: d.icdf(ampc.ones(())), lambda d: d.enumerate_support(), lambda d: d.log_prob(ampc.ones(()))):
        with pytest.raises(NotImplementedError):
            call(D.Distribution())


def test_infinite_and_absent_moments():
    k = ampc.tensor([0.3, 1.0, 2.0], dtype=ampc.float64)
    d = D.GeneralizedPareto(0.0, 1.0, k)
    assert d.mean.tolist()[1:] == [math.inf] * 2 and d.variance.tolist()[1:] == [math.inf] * 2
    assert D.Weibull(1.0, ampc.tensor(0.5)).mode == 0 and D.Kumaraswamy(2.0, 3.0).mode > 0.3
    z = ampc.zeros(1, dtype=ampc.float64, requires_grad=True)  # the exponential's limit, gradient included
    x = ampc.tensor([0.7], dtype=ampc.float64)
    D.GeneralizedPareto(0.0, 1.0, z).log_prob(x).backward()
    near = [float(D.GeneralizedPareto(0.0, 1.0, ampc.tensor(e, dtype=ampc.float64)).log_prob(x)) for e in (1e-5, -1e-5)]
    assert abs(float(z.grad) - (near[0] - near[1]) / 2e-5) < 1e-6


def test_subclasses_of_users(torch):
    """As scripts write them for torch: constraints as class attributes, super().__init__ at the end, ``expand`` by hand."""
    def own(T):
        d = T.distributions

        class Triangle(d.Distribution):
            arg_constraints = {"width": d.constraints.positive}
            has_rsample = True

            def __init__(self, width, validate_args=None):
                self.width = width
                super().__init__(width.shape, validate_args=validate_args)

            @d.constraints.dependent_property(is_discrete=False, event_dim=0)
            def support(self):
                return d.constraints.interval(-self.width, self.width)

            def expand(self, batch_shape, _instance=None):
                new = self._get_checked_instance(Triangle, _instance)
                new.width = self.width.expand(batch_shape)
                super(Triangle, new).__init__(batch_shape, validate_args=False)
                new._validate_args = self._validate_args
                return new

            def rsample(self, sample_shape=()):
                shape = self._extended_shape(sample_shape)
                return self.width * (T.rand(shape) - T.rand(shape))

            def log_prob(self, value):
                if self._validate_args:
                    self._validate_sample(value)
                return (1 - value.abs() / self.width).log() - self.width.log()

        return Triangle(T.tensor([1.0, 2.0]))

    mine, theirs = own(ampc), own(torch)
    same(mine.log_prob(ampc.tensor([0.3, 0.3])), theirs.log_prob(torch.tensor([0.3, 0.3])), 1e-6)
    assert tuple(mine.expand((3, 2)).sample((4,)).shape) == (4, 3, 2) and repr(mine) == repr(theirs).replace("torch.", "ampc.")
    for d, t in ((mine, ampc), (theirs, torch)):
        with pytest.raises(ValueError):
            d.log_prob(t.tensor([3.0, 0.3]))
        with pytest.raises(NotImplementedError):
            type("Other", (type(d),), {"__init__": lambda self: type(d).__init__(self, d.width)})().expand((3, 2))  # noqa: B023


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", [n for n in CASES if not n.startswith(("Multivariate", "LowRank", "Wishart", "LKJ"))])
def test_narrow_dtypes(name, dtype):
    """Results are in the parameters' dtype, near those of float64; so under autocast, where some are float32."""
    d, wide = made(ampc, name, dtype)[0], made(ampc, name)[0]
    x = wide.sample((5,))
    narrow = getattr(ampc, dtype)
    y = x if x.dtype == ampc.int64 else x.to(narrow)
    if name.startswith(("ContinuousBernoulli", "Geometric", "Relaxed", "Transformed vectors", "LogisticNormal", "Dirichlet")) and dtype != "float32":
        y = x.float()
    d = d.expand(d.batch_shape)
    d._validate_args = False
    eps = float(ampc.finfo(narrow).eps)
    want = wide.expand(wide.batch_shape)
    want._validate_args = False
    got = d.log_prob(y)
    if dtype == "float32":
        assert got.dtype == narrow and np.allclose(got.double().numpy(force=True), want.log_prob(y if y.dtype == ampc.int64 else y.double()).numpy(force=True), rtol=300 * eps, atol=300 * eps)
    drawn = d.sample((3,))
    assert drawn.dtype in (narrow, ampc.int64) and not bool(drawn.isnan().any())
    with ampc.autocast("cpu", dtype=ampc.bfloat16):
        assert bool(made(ampc, name, "float32")[0].sample((3,)).isfinite().all()) and d.log_prob(y).dtype in (narrow, ampc.float32)


def test_what_wraps_others(torch):
    for d, t in ((D, ampc.tensor), (torch.distributions, torch.tensor)):
        inner = d.Normal(t([[0.0, 1.0]]), t([1.0, 2.0]))
        assert repr(d.Independent(inner, 1)) == f"Independent({inner!r}, 1)" and d.Independent(inner, 1).rsample((3,)).shape == (3, 1, 2)
        coin = d.Bernoulli(t([0.2, 0.7]))
        assert d.Independent(coin, 0).enumerate_support().shape == (2, 2)
        with pytest.raises(NotImplementedError):
            d.Independent(coin, 1).enumerate_support()
        plain = d.TransformedDistribution(inner, [])
        assert plain.support.event_dim == 0 and plain.log_prob(t([[0.0, 1.0]])).shape == (1, 2)
        assert "MixtureSameFamily(" in repr(d.MixtureSameFamily(d.Categorical(t([0.5, 0.5])), d.Normal(t([0.0, 1.0]), t([1.0, 1.0]))))
        with pytest.raises(ValueError):
            d.MixtureSameFamily(d.Categorical(t([[0.5, 0.5]] * 3)), d.Normal(t([[0.0, 1.0]] * 2), t([1.0, 1.0])))
        with pytest.warns(FutureWarning):
            assert inner.sample_n(3).shape == (3, 1, 2)
        with pytest.raises(ValueError):
            d.Dirichlet(t(1.0))
        for wrong in (lambda: d.MultivariateNormal(t([0.0]), t([1.0])), lambda: d.LowRankMultivariateNormal(t(0.0), t([[1.0]]), t([1.0])),  # noqa: B023
                      lambda: d.kl_divergence(d.MultivariateNormal(t([0.0]), t([[1.0]])), d.MultivariateNormal(t([0.0] * 2), t([[1.0, 0.0], [0.0, 1.0]])))):  # noqa: B023
            with pytest.raises(ValueError):
                wrong()
    same(D.Gamma(2.0, 3.0).perplexity(), torch.distributions.Gamma(torch.tensor(2.0), torch.tensor(3.0)).perplexity())
    low, low_torch = made(ampc, "LowRankMultivariateNormal")[0], made(torch, "LowRankMultivariateNormal")[0]
    for what in ("scale_tril", "covariance_matrix", "precision_matrix"):
        same(getattr(low, what), getattr(low_torch, what))
    g, g_torch = (made(T, "GeneralizedPareto")[0] for T in (ampc, torch))
    x = values(torch, g_torch)
    same(g.log_survival_function(ampc.tensor(x.numpy(force=True))), g_torch.log_survival_function(x))
    same(g.log_cdf(ampc.tensor(x.numpy(force=True))), g_torch.log_cdf(x))
    with pytest.raises(NotImplementedError, match="Beta and Gumbel"):
        D.kl_divergence(D.Beta(1.0, 2.0), D.Gumbel(0.0, 1.0))


def test_a_seed_repeats_draws():
    for make in (lambda: D.Gamma(ampc.full((9,), 0.3), 1.0), lambda: D.Poisson(ampc.full((9,), 30.0)), lambda: D.Binomial(50, ampc.full((9,), 0.4)), lambda: D.VonMises(0.0, ampc.full((9,), 2.0))):
        drawn = []
        for _ in range(2):
            ampc.manual_seed(5)
            drawn.append(make().sample((100,)))
        assert ampc.equal(*drawn) and not ampc.equal(drawn[0], make().sample((100,)))


def test_small_shapes_do_not_underflow():
    """Shares of a tiny concentration are computed from logarithms: they are positive, and add up to 1."""
    ampc.manual_seed(6)
    for dtype in (ampc.float32, ampc.float64):
        x = D.Dirichlet(ampc.full((500, 3), 1e-3, dtype=dtype)).sample()
        assert bool((x > 0).all()) and np.allclose(x.sum(-1).numpy(force=True), 1, atol=1e-6)
        a = ampc.full((500,), 1e-3, dtype=dtype, requires_grad=True)
        D.Gamma(a, 1.0).rsample().sum().backward()
        assert bool(a.grad.isfinite().all())


@pytest.mark.parametrize(("batch", "shape"), [((), (5, 2)), ((), ()), ((4,), (5, 1)), ((4,), (1,)), ((4,), (0, 4)), ((3, 4), (4,)), ((4,), (2, 5, 4))])
def test_vectors_of_all_batches(torch, batch, shape):
    """Values with dimensions in front of the distribution's batch, as many, or fewer; batches of 1 broadcast."""
    a, x = R.standard_normal((*batch, 3, 3)), R.standard_normal((*shape, 3))
    cov = a @ np.swapaxes(a, -1, -2) + np.eye(3)
    mine, theirs = (T.distributions.MultivariateNormal(T.zeros(3), T.tensor(cov)) for T in (ampc, torch))
    mine._validate_args = theirs._validate_args = False  # values of fewer dimensions than the batch are let through
    same(mine.log_prob(ampc.tensor(x)), theirs.log_prob(torch.tensor(x)))


def results_of_normal(T, d, x):
    """All that a distribution of vectors gives; the gradients of the sum of squares are left in the parameters."""
    wider, other = d.expand((2, *d.batch_shape)), T.distributions.MultivariateNormal(T.zeros(3), T.eye(3) * 2)
    values = [d.log_prob(T.tensor(x)), d.entropy(), d.variance, d.covariance_matrix, d.precision_matrix, d.scale_tril, wider.log_prob(T.tensor(x[:, None])), wider.variance,
              wider.scale_tril, wider.entropy(), T.distributions.kl_divergence(d, other), T.distributions.kl_divergence(other, d), d.rsample((7,)) * 0, wider.rsample() * 0]
    sum((v * v).sum() for v in values).backward()
    return values


@pytest.mark.parametrize("name", ["covariance_matrix", "precision_matrix", "scale_tril"])
@pytest.mark.parametrize(("batch", "wide"), [((), (4,)), ((1,), (3, 4)), ((4,), (2, 4)), ((3, 1), (3, 4))])
def test_a_matrix_for_many_means(torch, name, batch, wide):
    """A covariance that a batch shares, in whole or in part, has the values, shapes and gradients of copies."""
    rng = np.random.default_rng(5)
    a, mean, x = rng.standard_normal((*batch, 3, 3)), rng.standard_normal((*wide, 3)), rng.standard_normal((5, *wide, 3))
    matrix, found = np.linalg.cholesky(a @ np.swapaxes(a, -1, -2) + np.eye(3)), []
    matrix = matrix if name == "scale_tril" else matrix @ np.swapaxes(matrix, -1, -2)
    for T in (ampc, torch):
        loc, m = T.tensor(mean, requires_grad=True), T.tensor(matrix, requires_grad=True)
        d = T.distributions.MultivariateNormal(loc, **{name: m})
        found.append([*results_of_normal(T, d, x), loc.grad, m.grad])
    for got, want in zip(*found):
        same(got, want)


@pytest.mark.parametrize(("of_factor", "of_diagonal", "wide"), [((), (), (4,)), ((4,), (), (2, 4)), ((3, 4), (4,), (3, 4)), ((1,), (), (3, 4))])
def test_a_low_rank_for_many_means(torch, of_factor, of_diagonal, wide):
    """The like of a covariance that is given by a factor and a diagonal."""
    rng, found = np.random.default_rng(6), []
    arrays = [rng.standard_normal((*wide, 3)), rng.standard_normal((*of_factor, 3, 2)), np.exp(rng.standard_normal((*of_diagonal, 3)))]
    x = rng.standard_normal((5, *wide, 3))
    for T in (ampc, torch):
        leaves = [T.tensor(a, requires_grad=True) for a in arrays]
        d = T.distributions.LowRankMultivariateNormal(*leaves)
        found.append([*results_of_normal(T, d, x), *(leaf.grad for leaf in leaves)])
    for got, want in zip(*found):
        same(got, want)


def test_sizes_of_vectors_and_matrices(torch):
    for d in (D, torch.distributions):
        assert d.Gamma(2.0, 1.0).log_prob(1.0).shape == ()
    for n in (0, 1, 3):
        with pytest.raises(ValueError, match="does not fit"):
            D.MultivariateNormal(ampc.zeros(2), ampc.eye(n))


@pytest.mark.parametrize("name", ["ampc", "torch"])
def test_what_a_subclass_does_not_define_is_not_checked(name):
    lib = pytest.importorskip(name)

    class Point(lib.distributions.Distribution):
        def log_prob(self, value):
            self._validate_sample(value)
            return value

    with pytest.warns(UserWarning, match="arg_constraints"):
        point = Point(validate_args=True)
    with pytest.warns(UserWarning, match="support"):
        assert point.log_prob(lib.zeros(())).item() == 0
    Point(validate_args=False)


def test_whole_degrees_of_freedom_of_wishart(torch):
    mine, theirs = (lib.distributions.Wishart(lib.tensor(3), lib.eye(2)) for lib in (ampc, torch))
    draw = mine.sample((4,))
    assert draw.shape == (4, 2, 2) and draw.dtype is mine.scale_tril.dtype
    same(mine.log_prob(draw), theirs.log_prob(torch.tensor(draw.tolist())), 1e-5)
