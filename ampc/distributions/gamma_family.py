"""The gamma family: positive waiting times and their parts. Their formulas are in Johnson, Kotz and Balakrishnan, Continuous Univariate
Distributions (1994, 1995). Their draws are the core's, differentiable in the shapes (Figurnov, Mohamed and Mnih 2018)."""

from __future__ import annotations

import math
from typing import Any, Optional

from .. import _ops, special
from .._C import Tensor
from .._tensor import creation as make
from .._tensor.finfo import finfo
from ..nn import functional as F
from . import constraints
from .distribution import Distribution, ExponentialFamily
from .utils import broadcast_all, moment_above


class Exponential(ExponentialFamily):
    """Waiting times where ``rate`` > 0 events come per unit. Support: 0 and more."""

    has_rsample = True
    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, rate: Any, validate_args: Optional[bool] = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    mean = property(lambda self: self.rate.reciprocal())
    stddev = mean
    mode = property(lambda self: self.rate.new_zeros(self.rate.shape))
    variance = property(lambda self: self.rate.pow(-2))
    _natural_params = property(lambda self: (-self.rate,))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.rate.new_empty(self._extended_shape(sample_shape)).exponential_() / self.rate

    def _log_density(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * value

    def _cdf(self, value: Tensor) -> Tensor:
        return -(-self.rate * value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - self.rate.log()

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return -(-x).log()


class Gamma(ExponentialFamily):
    """Gamma of the shape ``concentration`` > 0 and ``rate`` > 0. Support: 0 and more."""

    has_rsample = True
    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, concentration: Any, rate: Any, validate_args: Optional[bool] = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = property(lambda self: self.concentration / self.rate.square())
    _natural_params = property(lambda self: (self.concentration - 1, -self.rate))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        value = _ops._standard_gamma(self.concentration.expand(self._extended_shape(sample_shape))) / self.rate
        return _ops._stands_for(value.detach().clamp(min=float(finfo(value.dtype).tiny)), value)

    def log_prob(self, value: Any) -> Tensor:
        """Logarithm of the density at ``value``, which may be a number."""
        return super().log_prob(make.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device))

    def _log_density(self, value: Tensor) -> Tensor:
        a, b = self.concentration, self.rate
        return a.xlogy(b) + (a - 1).xlogy(value) - b * value - a.lgamma()

    def _cdf(self, value: Tensor) -> Tensor:
        return special.gammainc(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1.0 - a) * a.digamma()

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return (x + 1).lgamma() - (x + 1) * (-y).log()


class Chi2(Gamma):
    """Chi-squared of ``df`` > 0 degrees of freedom: the sum of so many squares of standard normal values. Support: 0 and more."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: Optional[bool] = None) -> None:
        (df,) = broadcast_all(df)
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    df = property(lambda self: self.concentration * 2)


class FisherSnedecor(Distribution):
    """F of ``df1`` > 0 and ``df2`` > 0 degrees of freedom: the ratio of two mean squares. Support: above 0. The mean exists for df2 > 2, the
    variance for df2 > 4."""

    has_rsample = True
    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive

    def __init__(self, df1: Any, df2: Any, validate_args: Optional[bool] = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    mean = property(lambda self: moment_above(2, self.df2, lambda b: b / (b - 2), math.nan))
    mode = property(lambda self: ((self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)).masked_fill(self.df1 <= 2, math.nan))

    @property
    def variance(self) -> Tensor:
        a = self.df1
        return moment_above(4, self.df2, lambda b: 2 * b.square() * (a + b - 2) / (a * (b - 2).square() * (b - 4)), math.nan)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        above, below = (Gamma(0.5 * df, 0.5 * df, validate_args=False).rsample(sample_shape) for df in (self.df1, self.df2))
        return above / below

    def _log_density(self, value: Tensor) -> Tensor:
        a, b, ratio = 0.5 * self.df1, 0.5 * self.df2, self.df1 / self.df2
        return (a + b).lgamma() - a.lgamma() - b.lgamma() + a * ratio.log() + (a - 1) * value.log() - (a + b) * (ratio * value).log1p()


def log_beta(concentration: Tensor) -> Tensor:
    """The logarithm of the multivariate beta function of [..., K]."""
    return concentration.lgamma().sum(-1) - concentration.sum(-1).lgamma()


class Dirichlet(ExponentialFamily):
    """Dirichlet's of ``concentration`` [..., K] > 0: shares of a whole. Support: vectors [K] at least 0 with the sum 1. ValueError for a
    concentration of 0 dimensions."""

    has_rsample = True
    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex

    def __init__(self, concentration: Tensor, validate_args: Optional[bool] = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("Dirichlet: `concentration` needs a dimension of shares")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    mean = property(lambda self: self.concentration / self.concentration.sum(-1, True))
    _natural_params = property(lambda self: (self.concentration - 1,))

    @property
    def mode(self) -> Tensor:
        """Where all concentrations are below 1 the density is infinite at each corner; of these it is the first, as in torch."""
        above = (self.concentration - 1).clamp(min=0)
        corner = F.pad(above.new_ones(1), (0, above.shape[-1] - 1))
        return _ops.where((self.concentration < 1).all(-1, keepdim=True), corner, above / above.sum(-1, True))

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return _ops._sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def _log_density(self, value: Tensor) -> Tensor:
        return (self.concentration - 1).xlogy(value).sum(-1) - log_beta(self.concentration)

    def entropy(self) -> Tensor:
        c, total = self.concentration, self.concentration.sum(-1)
        return log_beta(c) - (c.shape[-1] - total) * total.digamma() - ((c - 1) * c.digamma()).sum(-1)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return log_beta(x + 1)


class Beta(ExponentialFamily):
    """Beta of ``concentration1`` > 0 and ``concentration0`` > 0: the first share of a Dirichlet of the two. Support: [0, 1]."""

    has_rsample = True
    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: Optional[bool] = None) -> None:
        self._dirichlet = Dirichlet(_ops.stack(list(broadcast_all(concentration1, concentration0)), -1), validate_args=False)
        super().__init__(self._dirichlet.batch_shape, validate_args=validate_args)

    concentration1 = property(lambda self: self._dirichlet.concentration[..., 0])
    concentration0 = property(lambda self: self._dirichlet.concentration[..., 1])
    mean = property(lambda self: self._dirichlet.mean[..., 0])
    mode = property(lambda self: self._dirichlet.mode[..., 0])
    variance = property(lambda self: self._dirichlet.variance[..., 0])
    _natural_params = property(lambda self: (self.concentration1 - 1, self.concentration0 - 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def _log_density(self, value: Tensor) -> Tensor:
        return self._dirichlet._log_density(_ops.stack([value, 1.0 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return (x + 1).lgamma() + (y + 1).lgamma() - (x + y + 2).lgamma()
