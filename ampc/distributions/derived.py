"""Families that are another one, transformed: draws, densities and distribution functions follow from the base and the transforms. The moments'
formulas are in Johnson, Kotz and Balakrishnan, Continuous Univariate Distributions (1994, 1995)."""

from __future__ import annotations

import math
from typing import Any, Optional

from .. import _ops, special
from .._C import Tensor
from .._tensor import creation as make
from .._tensor.finfo import finfo
from ..nn import functional as F
from . import constraints
from .chances import Chances
from .classes import Categorical, OfClasses
from .composed import TransformedDistribution
from .distribution import Distribution
from .gamma_family import Exponential, Gamma
from .location_scale import Cauchy, Normal, Uniform
from .transforms import AbsTransform, AffineTransform, ExpTransform, PowerTransform, SigmoidTransform, StickBreakingTransform
from .utils import broadcast_all, clamp_probs, euler_constant, moment_above


class _Half(TransformedDistribution):
    """The size of a value of a symmetric family around 0."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    _family: Any

    def __init__(self, scale: Any, validate_args: Optional[bool] = None) -> None:
        super().__init__(self._family(0.0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    scale = property(lambda self: self.base_dist.scale)
    mode = property(lambda self: self.scale.new_zeros(self.scale.shape))

    def _log_density(self, value: Tensor) -> Tensor:
        log_prob = self.base_dist._log_density(value) + math.log(2)
        return _ops.where(value >= 0, log_prob, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base_dist._cdf(self._checked(value)) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(_Half):
    """The size of a normal value around 0 of the standard deviation ``scale`` > 0. Support: 0 and more."""

    _family = Normal
    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    variance = property(lambda self: self.scale.square() * (1 - 2 / math.pi))


class HalfCauchy(_Half):
    """The size of a Cauchy value around 0 of ``scale`` > 0; its mean is infinite. Support: 0 and more."""

    _family = Cauchy
    mean = variance = property(lambda self: self.scale.new_full(self.scale.shape, math.inf))


class LogNormal(TransformedDistribution):
    """exp of a normal value of mean ``loc`` and standard deviation ``scale`` > 0. Support: above 0."""

    arg_constraints = Normal.arg_constraints
    support = constraints.positive

    def __init__(self, loc: Any, scale: Any, validate_args: Optional[bool] = None) -> None:
        super().__init__(Normal(loc, scale, validate_args=False), ExpTransform(), validate_args=validate_args)

    loc = property(lambda self: self.base_dist.loc)
    scale = property(lambda self: self.base_dist.scale)
    mean = property(lambda self: (self.loc + self.scale.square() / 2).exp())
    mode = property(lambda self: (self.loc - self.scale.square()).exp())
    variance = property(lambda self: self.scale.square().expm1() * (2 * self.loc + self.scale.square()).exp())

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class LogisticNormal(TransformedDistribution):
    """A normal vector of mean ``loc`` [..., K] and standard deviation ``scale`` [..., K] > 0 as a point of a simplex, by StickBreakingTransform.
    Support: vectors [K + 1] at least 0 with the sum 1 (Aitchison and Shen 1980)."""

    arg_constraints = Normal.arg_constraints
    support = constraints.simplex

    def __init__(self, loc: Any, scale: Any, validate_args: Optional[bool] = None) -> None:
        base = Normal(loc, scale, validate_args=False)
        super().__init__(base if base.batch_shape else base.expand([1]), StickBreakingTransform(), validate_args=validate_args)

    loc = property(lambda self: self.base_dist.base_dist.loc)
    scale = property(lambda self: self.base_dist.base_dist.scale)


class InverseGamma(TransformedDistribution):
    """1 / x of a gamma value x of the same ``concentration`` > 0 and ``rate`` > 0. Support: above 0. The mean is infinite for a concentration of 1
    or less, the variance for 2 or less."""

    arg_constraints = Gamma.arg_constraints
    support = constraints.positive

    def __init__(self, concentration: Any, rate: Any, validate_args: Optional[bool] = None) -> None:
        base = Gamma(concentration, rate, validate_args=False)
        super().__init__(base, PowerTransform(-base.rate.new_ones(())), validate_args=validate_args)

    concentration = property(lambda self: self.base_dist.concentration)
    rate = property(lambda self: self.base_dist.rate)
    mode = property(lambda self: self.rate / (self.concentration + 1))
    mean = property(lambda self: moment_above(1, self.concentration, lambda a: self.rate / (a - 1), math.inf))

    @property
    def variance(self) -> Tensor:
        return moment_above(2, self.concentration, lambda a: self.rate.square() / ((a - 1).square() * (a - 2)), math.inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()


class Weibull(TransformedDistribution):
    """Weibull's of ``scale`` > 0 and the shape ``concentration`` > 0: a power of an exponential value. Support: above 0 (Weibull 1951)."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: Optional[bool] = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(make.ones_like(self.scale), validate_args=False)
        super().__init__(base, [PowerTransform(self.concentration_reciprocal), AffineTransform(0, self.scale)], validate_args=validate_args)

    mean = property(lambda self: self.scale * (1 + self.concentration_reciprocal).lgamma().exp())
    mode = property(lambda self: self.scale * (1 - self.concentration_reciprocal).clamp(min=0).pow(self.concentration_reciprocal))

    @property
    def variance(self) -> Tensor:
        r = self.concentration_reciprocal
        return self.scale.square() * ((1 + 2 * r).lgamma().exp() - (2 * (1 + r).lgamma()).exp())

    def entropy(self) -> Tensor:
        r = self.concentration_reciprocal
        return euler_constant * (1 - r) + (self.scale * r).log() + 1


class Pareto(TransformedDistribution):
    """Pareto's: more than x comes with the probability (scale / x) ** alpha, ``scale`` > 0, ``alpha`` > 0. Support: ``scale`` and more. The mean is
    infinite for an alpha of 1 or less, the variance for 2 or less."""

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: Optional[bool] = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=False)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    mode = property(lambda self: self.scale)
    mean = property(lambda self: moment_above(1, self.alpha, lambda a: a * self.scale / (a - 1), math.inf))

    @property
    def variance(self) -> Tensor:
        return moment_above(2, self.alpha, lambda a: self.scale.square() * a / ((a - 1).square() * (a - 2)), math.inf)

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + 1 + self.alpha.reciprocal()


class GeneralizedPareto(Distribution):
    """What lies above a high threshold ``loc``: tails of ``scale`` > 0 and the shape ``concentration``, any number (Pickands 1975). The mean is
    infinite for a concentration of 1 or more, the variance for 1/2 or more. Support: ``loc`` and more, up to loc - scale / concentration where
    that is negative."""

    has_rsample = True
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: Optional[bool] = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        end = _ops.where(self.concentration < 0, self.loc - self.scale / self._shape(), math.inf)
        return constraints.interval(self.loc, end)

    def _shape(self) -> Tensor:
        """The concentration, 1 where it is 0: there the formulas of the exponential distribution hold."""
        return _ops.where(self.concentration == 0, 1.0, self.concentration)

    def _log_above(self, value: Tensor) -> Tensor:
        """log of the probability of more than ``value``: 0 below the support, -inf above it."""
        z, k = ((value - self.loc) / self.scale).clamp(min=0), self._shape()
        return _ops.where(self.concentration == 0, self._half_concentration_times_square(z) - z, -(k * z).clamp(min=-1).log1p() / k)

    def _half_concentration_times_square(self, z: Tensor) -> Tensor:
        """The second term of the series around the concentration 0, for the gradient there; 0 for an infinite ``z``, too."""
        return 0.5 * self.concentration * z.square().clamp(max=float(finfo(z.dtype).max))

    mode = property(lambda self: self.loc)
    mean = property(lambda self: moment_above(0, 1 - self.concentration, lambda below: self.loc + self.scale / below, math.inf))

    @property
    def variance(self) -> Tensor:
        return moment_above(0, 1 - 2 * self.concentration, lambda below: (2 * self.scale / (1 + below)).square() / below, math.inf)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(self.loc.new_empty(self._extended_shape(sample_shape)).uniform_())

    def _log_density(self, value: Tensor) -> Tensor:
        log_prob = (1 + self.concentration) * self._log_above(value) - self.scale.log()
        return _ops.where(value >= self.loc, log_prob, -math.inf)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """log of the probability of more than ``value``."""
        return self._log_above(self._checked(value))

    def log_cdf(self, value: Tensor) -> Tensor:
        """log(cdf(value))."""
        return (-self.log_survival_function(value).exp()).log1p()

    def _cdf(self, value: Tensor) -> Tensor:
        return -self._log_above(value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        waits, k = -(-value).log1p(), self._shape()
        near = waits + self._half_concentration_times_square(waits)
        return self.loc + self.scale * _ops.where(self.concentration == 0, near, (k * waits).expm1() / k)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1


class Kumaraswamy(TransformedDistribution):
    """Kumaraswamy's, like a beta distribution with a simple distribution function: 1 - (1 - x ** concentration1) ** concentration0,
    both above 0. Support: [0, 1] (Kumaraswamy 1980)."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: Optional[bool] = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(make.zeros_like(self.concentration0), make.ones_like(self.concentration0), validate_args=False)
        parts = [PowerTransform(self.concentration0.reciprocal()), AffineTransform(1.0, -1.0), PowerTransform(self.concentration1.reciprocal())]
        super().__init__(base, parts, validate_args=validate_args)

    def _moment(self, n: int) -> Tensor:
        a, b = 1 + n / self.concentration1, self.concentration0
        return b * (a.lgamma() + b.lgamma() - (a + b).lgamma()).exp()

    mean = property(lambda self: self._moment(1))
    variance = property(lambda self: self._moment(2) - self._moment(1).square())

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return ((a - 1) / (a * b - 1)).pow(a.reciprocal()).masked_fill((a < 1) | (b < 1), math.nan)

    def _log_density(self, value: Tensor) -> Tensor:
        a, b, within = self.concentration1, self.concentration0, value.clamp(0, 1)
        log_prob = a.log() + b.log() + (a - 1).xlogy(within) + special.xlog1py(b - 1, -within.pow(a))
        return _ops.where((value >= 0) & (value <= 1), log_prob, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        within = self._checked(value).clamp(0, 1)
        return -(self.concentration0 * (-within.pow(self.concentration1)).log1p()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return (-((-value).log1p() / self.concentration0).expm1()).pow(self.concentration1.reciprocal())

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return 1 - 1 / b + (1 - 1 / a) * ((b + 1).digamma() + euler_constant) - a.log() - b.log()


# -- relaxed choices --------------------------------------------------------------------------------------------------------


class LogitRelaxedBernoulli(Chances):
    """The log-odds of RelaxedBernoulli (Maddison, Mnih and Teh 2017). Support: the real numbers."""

    has_rsample = True
    support = constraints.real
    _unbatched = ("temperature",)

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        self.temperature = temperature
        self._take(probs, logits)
        super().__init__(self.param_shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = clamp_probs(self._param.new_empty(self._extended_shape(sample_shape)).uniform_())
        return (u.log() - (-u).log1p() + self.logits) / self.temperature

    def _log_density(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        odds = logits - value * self.temperature
        return _log(self.temperature) + odds - 2 * F.softplus(odds)


def _log(temperature: Any) -> Any:
    return temperature.log() if isinstance(temperature, Tensor) else math.log(temperature)


class ExpRelaxedCategorical(OfClasses):
    """The logarithms of RelaxedOneHotCategorical (Maddison, Mnih and Teh 2017). Support: vectors [K]."""

    has_rsample = True
    support = constraints.real_vector
    _unbatched = ("temperature",)

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        self.temperature = temperature
        super().__init__(probs, logits, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        waits = self.logits.new_empty(self._extended_shape(sample_shape)).exponential_()
        return F.log_softmax((self.logits - waits.log()) / self.temperature, -1)

    def _log_density(self, value: Tensor) -> Tensor:
        k = self._event_shape[0]
        score = self.logits - value * self.temperature
        return (score - score.logsumexp(-1, keepdim=True)).sum(-1) + math.lgamma(k) + (k - 1) * _log(self.temperature)


class _Relaxed(TransformedDistribution):
    temperature = property(lambda self: self.base_dist.temperature)
    probs = property(lambda self: self.base_dist.probs)
    logits = property(lambda self: self.base_dist.logits)


class RelaxedBernoulli(_Relaxed):
    """A value between 0 and 1, near them at a low ``temperature`` > 0, one for all; differentiable in ``probs`` or ``logits``, of which one is
    given. Support: [0, 1] (Maddison, Mnih and Teh 2017)."""

    arg_constraints = Chances.arg_constraints
    support = constraints.unit_interval

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits, validate_args), SigmoidTransform(), validate_args=validate_args)


class RelaxedOneHotCategorical(_Relaxed):
    """A vector [K] near a single 1 among zeros at a low ``temperature`` > 0, one for all; differentiable in ``probs`` or ``logits`` [..., K], of
    which one is given (Jang, Gu and Poole 2017).
    Support: vectors at least 0 with the sum 1."""

    arg_constraints = Categorical.arg_constraints
    support = constraints.simplex

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        super().__init__(ExpRelaxedCategorical(temperature, probs, logits, validate_args), ExpTransform(), validate_args=validate_args)
