"""The Kullback-Leibler divergence KL(p || q) (1951): the cross entropy of q under p, minus the entropy of p.

Densities of numbers share one formula. The cross entropy of each family q takes a few means under p: of x, x^2, log x, log(1 - x), exp(-t x)
or |x - a|; each family p says those that it has. Where p has values outside of q's support the divergence is infinite. So a family joins all
pairs by a line in each of the tables. Pairs that are not of this kind follow with formulas of their own."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Tuple

from .. import _ops, linalg
from .._C import Tensor
from .._tensor.dims import broadcast_shapes
from ..nn import functional as F
from .chances import Bernoulli, Binomial, ContinuousBernoulli, Geometric, Poisson
from .classes import Categorical, OneHotCategorical
from .composed import Independent, TransformedDistribution
from .derived import HalfNormal, Pareto
from .distribution import Distribution, ExponentialFamily
from .gamma_family import Beta, Dirichlet, Exponential, Gamma, log_beta
from .gaussian import LowRankMultivariateNormal, MultivariateNormal, batch_mahalanobis, half_log_det
from .location_scale import Cauchy, Gumbel, Laplace, Normal, Uniform
from .utils import LOG_2PI, euler_constant, sum_rightmost

__all__ = ["kl_divergence", "register_kl"]

_FORMULAS: Dict[Tuple[type, type], Callable[[Any, Any], Tensor]] = {}
_KL_REGISTRY = _FORMULAS  # torch's name for it


def register_kl(type_p: type, type_q: type) -> Callable:
    """A decorator: the function is the divergence for these types and their subclasses, which need not be Distributions. TypeError for
    what is no class."""
    for t in (type_p, type_q):
        if not isinstance(t, type):
            raise TypeError(f"register_kl: expected classes, got {t!r}")

    def keep(formula: Callable[[Any, Any], Tensor]) -> Callable:
        _FORMULAS[type_p, type_q] = formula
        return formula

    return keep


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q) in nats, of the shape to which the two batches broadcast, differentiable in the parameters of both; infinite where p has values
    that q has not. NotImplementedError for a pair without a formula; the closest classes decide."""
    fits = [(type(p).__mro__.index(a) + type(q).__mro__.index(b), i, f) for i, ((a, b), f) in enumerate(_FORMULAS.items())
            if isinstance(p, a) and isinstance(q, b)]
    if not fits:
        raise _no_formula(p, q)
    return min(fits, key=lambda fit: fit[:2])[2](p, q)


def _no_formula(p: Distribution, q: Distribution) -> NotImplementedError:
    return NotImplementedError(f"kl_divergence: there is no formula for {type(p).__name__} and {type(q).__name__}; register_kl takes one")


# -- densities of numbers -----------------------------------------------------------------------------------------------------

Table = Dict[type, Callable[..., Any]]
_REAL, _ABOVE_0, _UNIT = (lambda d: (-math.inf, math.inf)), (lambda d: (0.0, math.inf)), (lambda d: (0.0, 1.0))
BOUNDS: Table = {Normal: _REAL, Laplace: _REAL, Gumbel: _REAL, Exponential: _ABOVE_0, Gamma: _ABOVE_0, Beta: _UNIT, ContinuousBernoulli: _UNIT,
                 Uniform: lambda d: (d.low, d.high), Pareto: lambda d: (d.scale, math.inf)}


def _x_log_x(x: Tensor) -> Tensor:
    return x.xlogy(x)


MEAN_LOG: Table = {
    Gamma: lambda p: p.concentration.digamma() - p.rate.log(), Exponential: lambda p: -euler_constant - p.rate.log(),
    Beta: lambda p: p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma(),
    Pareto: lambda p: p.scale.log() + 1 / p.alpha, Uniform: lambda p: (_x_log_x(p.high) - _x_log_x(p.low)) / (p.high - p.low) - 1,
}
MEAN_LOG_REST: Table = {  # of 1 - x
    Beta: lambda p: p.concentration0.digamma() - (p.concentration1 + p.concentration0).digamma(),
    Uniform: lambda p: (_x_log_x(1 - p.low) - _x_log_x(1 - p.high)) / (p.high - p.low) - 1,
}
MEAN_EXP: Table = {  # of exp(-t x)
    Normal: lambda p, t: (-t * p.loc + 0.5 * (t * p.scale).square()).exp(), Exponential: lambda p, t: p.rate / (p.rate + t),
    Gamma: lambda p, t: (-p.concentration * (t / p.rate).log1p()).exp(), Gumbel: lambda p, t: ((1 + t * p.scale).lgamma() - t * p.loc).exp(),
    Laplace: lambda p, t: _ops.where(t * p.scale < 1, (-t * p.loc).exp() / (1 - (t * p.scale).square()), math.inf),
    Uniform: lambda p, t: ((-t * p.low).exp() - (-t * p.high).exp()) / (t * (p.high - p.low)),
}
MEAN_DISTANCE: Table = {  # of |x - a|
    Laplace: lambda p, a: (p.loc - a).abs() + p.scale * (-(p.loc - a).abs() / p.scale).exp(),
    Normal: lambda p, a: _folded(p.loc - a, p.scale),
}


def _folded(far: Tensor, scale: Tensor) -> Tensor:
    z = far / (scale * math.sqrt(2))
    return scale * math.sqrt(2 / math.pi) * (-z.square()).exp() + far * z.erf()


def _entry(table: Table, d: Distribution) -> Any:
    return next((table[t] for t in type(d).__mro__ if t in table), None)


def _mean(table: Table, p: Distribution, q: Distribution, *more: Any) -> Tensor:
    found = _entry(table, p)
    if found is None:
        raise _no_formula(p, q)
    return found(p, *more)


CROSS_ENTROPY: Table = {
    Normal: lambda p, q: 0.5 * (p.variance + (p.mean - q.loc).square()) / q.scale.square() + q.scale.log() + 0.5 * LOG_2PI,
    Laplace: lambda p, q: _mean(MEAN_DISTANCE, p, q, q.loc) / q.scale + (2 * q.scale).log(),
    Gumbel: lambda p, q: q.scale.log() + (p.mean - q.loc) / q.scale + (q.loc / q.scale).exp() * _mean(MEAN_EXP, p, q, 1 / q.scale),
    Exponential: lambda p, q: q.rate * p.mean - q.rate.log(),
    Gamma: lambda p, q: (q.concentration.lgamma() - q.concentration * q.rate.log() + q.rate * p.mean
                         - (q.concentration - 1) * _mean(MEAN_LOG, p, q)),
    Beta: lambda p, q: (log_beta(q._dirichlet.concentration) - (q.concentration1 - 1) * _mean(MEAN_LOG, p, q)
                        - (q.concentration0 - 1) * _mean(MEAN_LOG_REST, p, q)),
    ContinuousBernoulli: lambda p, q: -p.mean * q.logits - (-q.probs).log1p() - q._log_constant(),
    Uniform: lambda p, q: (q.high - q.low).log(),
    Pareto: lambda p, q: (q.alpha + 1) * _mean(MEAN_LOG, p, q) - q.alpha.log() - q.alpha * q.scale.log(),
}


def _densities(p: Distribution, q: Distribution) -> Tensor:
    (low, high), (q_low, q_high) = _entry(BOUNDS, p)(p), _entry(BOUNDS, q)(q)
    entropy = p.entropy()
    like = entropy.new_zeros(broadcast_shapes(tuple(p.batch_shape), tuple(q.batch_shape)))
    outside = (like + low < like + q_low) | (like + high > like + q_high)
    if bool(outside.all()):  # the means under p may not exist; the parameters of both get gradients of 0
        return (entropy + q.entropy()).masked_fill(outside, math.inf)
    return (_entry(CROSS_ENTROPY, q)(p, q) - entropy).masked_fill(outside, math.inf)


for _p in BOUNDS:
    for _q in BOUNDS:
        register_kl(_p, _q)(_densities)


@register_kl(Normal, Normal)
def _normals(p: Normal, q: Normal) -> Tensor:
    ratio, shift = (p.scale / q.scale).square(), ((p.loc - q.loc) / q.scale).square()
    return 0.5 * (ratio + shift - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normals(p: HalfNormal, q: HalfNormal) -> Tensor:
    return _normals(p.base_dist, q.base_dist)


@register_kl(Cauchy, Cauchy)
def _cauchys(p: Cauchy, q: Cauchy) -> Tensor:
    """Chyzak and Nielsen 2019."""
    return ((p.scale + q.scale).square() + (p.loc - q.loc).square()).log() - (4 * p.scale * q.scale).log()


# -- counts and classes -----------------------------------------------------------------------------------------------------------


@register_kl(Bernoulli, Bernoulli)
def _bernoullis(p: Bernoulli, q: Bernoulli) -> Tensor:
    one = p.probs * (F.softplus(-q.logits) - F.softplus(-p.logits))
    none = (1 - p.probs) * (F.softplus(q.logits) - F.softplus(p.logits))
    one = one.masked_fill(q.probs == 0, math.inf).masked_fill(p.probs == 0, 0.0)
    return one + none.masked_fill(q.probs == 1, math.inf).masked_fill(p.probs == 1, 0.0)


@register_kl(Binomial, Binomial)
def _binomials(p: Binomial, q: Binomial) -> Tensor:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError("kl_divergence: there is no formula for Binomials of which the second has more trials")
    each = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return (p.total_count * each).masked_fill(p.total_count > q.total_count, math.inf)


@register_kl(Geometric, Geometric)
def _geometrics(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poissons(p: Poisson, q: Poisson) -> Tensor:
    return p.rate.xlogy(p.rate) - p.rate.xlogy(q.rate) - (p.rate - q.rate)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return q.rate - p.probs * q.rate.log() - p.entropy()


@register_kl(Poisson, Bernoulli)
@register_kl(Poisson, Binomial)
def _beyond(p: Poisson, q: Any) -> Tensor:
    return (p.rate + q.probs) * 0 + math.inf


@register_kl(Categorical, Categorical)
def _categoricals(p: Categorical, q: Categorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = terms.masked_fill((q.probs == 0).expand(terms.shape), math.inf).masked_fill((p.probs == 0).expand(terms.shape), 0.0)
    return terms.sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hots(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categoricals(p._categorical, q._categorical)


# -- vectors ----------------------------------------------------------------------------------------------------------------------


@register_kl(Dirichlet, Dirichlet)
def _dirichlets(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    mean_log = a.digamma() - a.sum(-1, True).digamma()
    return log_beta(b) - log_beta(a) + ((a - b) * mean_log).sum(-1)


def _lower(d: Any) -> Tensor:
    """The Cholesky factor of the covariance."""
    return d.scale_tril if isinstance(d, LowRankMultivariateNormal) else d._unbroadcasted_scale_tril


def _half_log_det(d: Any) -> Tensor:
    return d.half_log_det() if isinstance(d, LowRankMultivariateNormal) else half_log_det(_lower(d))


def _far(q: Any, x: Tensor) -> Tensor:
    """x^T C^-1 x of q's covariance C."""
    return q.mahalanobis(x) if isinstance(q, LowRankMultivariateNormal) else batch_mahalanobis(_lower(q), x)


def _normal_vectors(p: Any, q: Any) -> Tensor:
    if tuple(p.event_shape) != tuple(q.event_shape):
        raise ValueError(f"kl_divergence: vectors of {list(p.event_shape)} and of {list(q.event_shape)}")
    ratio = linalg.solve_triangular(_lower(q), _lower(p), upper=False)
    return _half_log_det(q) - _half_log_det(p) + 0.5 * (ratio.square().sum((-2, -1)) + _far(q, p.loc - q.loc) - p.event_shape[0])


for _p in (MultivariateNormal, LowRankMultivariateNormal):
    for _q in (MultivariateNormal, LowRankMultivariateNormal):
        register_kl(_p, _q)(_normal_vectors)


# -- distributions of distributions --------------------------------------------------------------------------------------------------


@register_kl(Independent, Independent)
def _independents(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("kl_divergence: the two Independent take different numbers of dimensions as events")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or tuple(p.event_shape) != tuple(q.event_shape):
        raise NotImplementedError("kl_divergence: there is a formula for distributions with the same transforms alone")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_families(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    """The Bregman divergence of the log normalizers (Nielsen and Nock 2010)."""
    if type(p) is not type(q):
        raise _no_formula(p, q)
    ours, normalizer, slopes = p._with_slopes()
    theirs = q._natural_params
    result = q._log_normalizer(*theirs) - normalizer
    for a, b, slope in zip(ours, theirs, slopes):
        result = result - sum_rightmost((b - a) * slope, a.dim() - len(p.batch_shape))
    return result
