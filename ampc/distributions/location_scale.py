"""Families that are moved by ``loc`` and stretched by ``scale``: a member says only what its standard form is. Their formulas are in Johnson,
Kotz and Balakrishnan, Continuous Univariate Distributions (1994, 1995)."""

from __future__ import annotations

import math
from typing import Any, Callable, Optional, Tuple

from .. import _ops, special
from .._C import Tensor
from . import constraints
from .distribution import Distribution, ExponentialFamily
from .utils import LOG_2PI, broadcast_all, euler_constant, moment_above


class LocationScale(Distribution):
    """loc + scale * z, for z of a standard form. A subclass gives its draws, log density, distribution function and inverse, and the numbers
    ``_standard``: mean, variance and entropy. The mode is ``loc``."""

    has_rsample = True
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    _standard: Tuple[float, float, float]

    def __init__(self, loc: Any, scale: Any, validate_args: Optional[bool] = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def _draw(self, shape: Any) -> Tensor:
        raise NotImplementedError

    def _log_density_of(self, z: Tensor) -> Tensor:
        raise NotImplementedError

    def _cdf_of(self, z: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no cdf")

    def _icdf_of(self, p: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no icdf")

    mean = property(lambda self: self.loc + self.scale * self._standard[0] if self._standard[0] else self.loc)
    mode = property(lambda self: self.loc)
    variance = property(lambda self: self.scale.square() * self._standard[1])
    stddev = property(lambda self: self.scale * math.sqrt(self._standard[1]))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc + self._draw(self._extended_shape(sample_shape)) * self.scale

    def _log_density(self, value: Tensor) -> Tensor:
        return self._log_density_of((value - self.loc) / self.scale) - self.scale.log()

    def _cdf(self, value: Tensor) -> Tensor:
        return self._cdf_of((value - self.loc) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * self._icdf_of(value)

    def entropy(self) -> Tensor:
        return self.scale.log() + self._standard[2]


class Normal(LocationScale, ExponentialFamily):
    """Normal with mean ``loc`` and standard deviation ``scale`` > 0, numbers or tensors that broadcast. Support: the real numbers."""

    _standard = 0.0, 1.0, 0.5 + 0.5 * LOG_2PI

    def _draw(self, shape: Any) -> Tensor:
        return self.loc.new_empty(shape).normal_()

    def _log_density_of(self, z: Tensor) -> Tensor:
        return -0.5 * z.square() - 0.5 * LOG_2PI

    def _cdf_of(self, z: Tensor) -> Tensor:
        return special.ndtr(z)

    def _icdf_of(self, p: Tensor) -> Tensor:
        return special.ndtri(p)

    @property
    def _natural_params(self) -> Tuple[Tensor, ...]:
        return self.loc / self.scale.square(), -0.5 / self.scale.square()

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return -0.25 * x.square() / y + 0.5 * (-math.pi / y).log()


class Laplace(LocationScale):
    """Laplace's: the density exp(-|x - loc| / scale) / (2 scale), ``scale`` > 0. Support: the real numbers."""

    _standard = 0.0, 2.0, 1 + math.log(2)

    def _draw(self, shape: Any) -> Tensor:
        first, second = self.loc.new_empty((2, *shape)).exponential_()
        return first - second

    def _log_density_of(self, z: Tensor) -> Tensor:
        return -z.abs() - math.log(2)

    def _cdf_of(self, z: Tensor) -> Tensor:
        return 0.5 - 0.5 * z.sign() * (-z.abs()).expm1()

    def _icdf_of(self, p: Tensor) -> Tensor:
        far = p - 0.5
        return -far.sign() * (-2 * far.abs()).log1p()


class Cauchy(LocationScale):
    """Cauchy's around ``loc``, without a mean; ``scale`` > 0 is half of the width at half height. Support: the real numbers."""

    _standard = math.nan, math.inf, math.log(4 * math.pi)
    mean = property(lambda self: self.loc.new_full(self.loc.shape, math.nan))
    variance = stddev = property(lambda self: self.loc.new_full(self.loc.shape, math.inf))

    def _draw(self, shape: Any) -> Tensor:
        return self.loc.new_empty(shape).cauchy_()

    def _log_density_of(self, z: Tensor) -> Tensor:
        return -z.square().log1p() - math.log(math.pi)

    def _cdf_of(self, z: Tensor) -> Tensor:
        return z.atan() / math.pi + 0.5

    def _icdf_of(self, p: Tensor) -> Tensor:
        return (math.pi * (p - 0.5)).tan()


class Gumbel(LocationScale):
    """Gumbel's, of the largest of many values: the distribution function exp(-exp(-(x - loc) / scale)), ``scale`` > 0. Support: the real numbers."""

    _standard = euler_constant, math.pi**2 / 6, 1 + euler_constant

    def _draw(self, shape: Any) -> Tensor:
        return -self.loc.new_empty(shape).exponential_().log()

    def _log_density_of(self, z: Tensor) -> Tensor:
        return -z - (-z).exp()

    def _cdf_of(self, z: Tensor) -> Tensor:
        return (-(-z).exp()).exp()

    def _icdf_of(self, p: Tensor) -> Tensor:
        return -(-p.log()).log()


def _half_step(f: Callable[[Tensor], Tensor], a: Tensor, series: Callable[[Tensor], Tensor]) -> Tensor:
    """f(a + 1/2) - f(a), of large a by its series in 1 / a, where the difference would have few digits."""
    return _ops.where(a > 30, series(a.clamp(min=30).reciprocal()), f(a + 0.5) - f(a))


class StudentT(LocationScale):
    """loc + scale t of Student's t with ``df`` > 0 degrees of freedom; ``loc`` is 0 and ``scale`` > 0 is 1 by default. Support: the real numbers
    (Student 1908). The mean exists above 1 degree of freedom, the variance above 2."""

    arg_constraints = {"df": constraints.positive, **LocationScale.arg_constraints}

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: Optional[bool] = None) -> None:
        self.df, loc, scale = broadcast_all(df, loc, scale)
        super().__init__(loc, scale, validate_args=validate_args)

    mean = property(lambda self: self.loc.masked_fill(self.df <= 1, math.nan))

    @property
    def variance(self) -> Tensor:
        finite = moment_above(2, self.df, lambda df: self.scale.square() * df / (df - 2), math.inf)
        return finite.masked_fill(self.df <= 1, math.nan)

    stddev = property(lambda self: self.variance.sqrt())

    def _draw(self, shape: Any) -> Tensor:
        half = 0.5 * self.df
        gamma = _ops._standard_gamma(half.expand(shape))
        return self.loc.new_empty(shape).normal_() * (gamma / half).rsqrt()

    def _log_top(self) -> Tensor:
        """log of the density at the middle, for scale 1; the series is Stirling's, DLMF 5.11.1."""
        step = _half_step(Tensor.lgamma, 0.5 * self.df, lambda r: -0.5 * r.log() - r / 8 + r.pow(3) / 192 - r.pow(5) / 640)
        return step - 0.5 * (math.pi * self.df).log()

    def _log_density_of(self, z: Tensor) -> Tensor:
        return self._log_top() - 0.5 * (self.df + 1) * (z.square() / self.df).log1p()

    def entropy(self) -> Tensor:
        """The mean of -log_prob: [*batch_shape]; the series is the derivative of that in _log_top."""
        step = _half_step(Tensor.digamma, 0.5 * self.df, lambda r: r / 2 + r.square() / 8 - r.pow(4) / 64 + r.pow(6) / 128)
        return self.scale.log() + 0.5 * (self.df + 1) * step - self._log_top()


class Uniform(Distribution):
    """Uniform on [``low``, ``high``). ValueError unless low < high. Support: [low, high]."""

    has_rsample = True
    arg_constraints = {"low": constraints.dependent(is_discrete=False, event_dim=0), "high": constraints.dependent(is_discrete=False, event_dim=0)}

    def __init__(self, low: Any, high: Any, validate_args: Optional[bool] = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args and not bool((self.low < self.high).all()):
            raise ValueError(f"Uniform: `low` must be below `high`, got {self.low.detach()} and {self.high.detach()}")

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    mean = property(lambda self: (self.high + self.low) / 2)
    mode = property(lambda self: math.nan * self.high)
    stddev = property(lambda self: (self.high - self.low) / math.sqrt(12))
    variance = property(lambda self: (self.high - self.low).square() / 12)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.low + self.low.new_empty(self._extended_shape(sample_shape)).uniform_() * (self.high - self.low)

    def _log_density(self, value: Tensor) -> Tensor:
        inside = (self.low <= value) & (value < self.high)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def _cdf(self, value: Tensor) -> Tensor:
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()
