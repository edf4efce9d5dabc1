"""Families of trials with a chance of success, ``probs``, or its log-odds ``logits``: ValueError unless one of them is given. Their formulas are
in Johnson, Kemp and Kotz, Univariate Discrete Distributions (2005)."""

from __future__ import annotations

import math
from typing import Any, Optional, Tuple

from .. import _ops
from .._C import Tensor
from .._composed.random import binomial, poisson
from .._tensor import creation as make
from ..autograd import no_grad
from ..nn import functional as F
from . import constraints
from .distribution import Distribution, ExponentialFamily
from .utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs, probs_to_logits


class ByProbabilities(Distribution):
    """What is given by ``probs`` or by ``logits``, each computed from the other when it is asked for."""

    _is_binary = False

    def _name_given(self, probs: Any, logits: Any) -> str:
        """Which of the two is given. ValueError for both or none."""
        if (probs is None) == (logits is None):
            raise ValueError(f"{type(self).__name__}: give `probs` or `logits`, one of them")
        return "logits" if probs is None else "probs"

    @lazy_property
    def logits(self) -> Tensor:
        """The log-odds of ``probs``, one chance each; of classes the logarithms."""
        return probs_to_logits(self.probs, self._is_binary)

    @lazy_property
    def probs(self) -> Tensor:
        """The sigmoid of ``logits``, one chance each; of classes the softmax."""
        return logits_to_probs(self.logits, self._is_binary)

    _param = property(lambda self: self.__dict__["logits" if "logits" in self.__dict__ else "probs"])
    param_shape = property(lambda self: self._param.shape)


class Chances(ByProbabilities):
    """What has one chance of success."""

    _is_binary = True
    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}

    def _take(self, probs: Any, logits: Any, *others: Any) -> Tuple[Tensor, ...]:
        """Keeps the one that is given; the others, broadcast with it."""
        name = self._name_given(probs, logits)
        self.__dict__[name], *rest = broadcast_all(logits if probs is None else probs, *others)
        return tuple(rest)


class Bernoulli(Chances, ExponentialFamily):
    """1 with probability ``probs`` in [0, 1], or sigmoid(``logits``), else 0: give one of them. Support: 0 and 1."""

    has_enumerate_support = True
    support = constraints.boolean

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        self._take(probs, logits)
        super().__init__(self.param_shape, validate_args=validate_args)

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))
    _natural_params = property(lambda self: (self.logits,))
    mode = property(lambda self: (self.probs >= 0.5).to(self.probs.dtype).masked_fill(self.probs == 0.5, math.nan))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return self.probs.expand(self._extended_shape(sample_shape)).bernoulli()

    def _log_density(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(make.arange(2, dtype=self._param.dtype, device=self._param.device), expand)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return F.softplus(x)


class Geometric(Chances):
    """How many trials of the chance ``probs`` in (0, 1], or sigmoid(``logits``), fail before the first success. Support: 0, 1, 2 and so on."""

    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        self._take(probs, logits)
        super().__init__(self.param_shape, validate_args=validate_args)
        if self._validate_args and probs is not None:
            self._check(constraints.positive, "probs", self.probs)

    mean = property(lambda self: 1.0 / self.probs - 1.0)
    mode = property(lambda self: self.probs.new_zeros(self.probs.shape))
    variance = property(lambda self: (1.0 / self.probs - 1.0) / self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            waits = self.probs.new_empty(self._extended_shape(sample_shape)).exponential_()
            certain = self.probs == 1  # of which the logarithm is infinite
            return (waits / -(-self.probs.masked_fill(certain, 0.5)).log1p()).floor().masked_fill(certain, 0.0)

    def _log_density(self, value: Tensor) -> Tensor:
        value, probs = broadcast_all(value, self.probs)
        others = probs.masked_fill((value == 0) & (probs == 1), 0.0)  # a chance of 0 for what does not come, without a gradient
        return value * (-others).log1p() + probs.log()

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class Binomial(Chances):
    """How many of ``total_count`` trials, whole numbers, 1 by default, succeed with the chance ``probs`` in [0, 1], or sigmoid(``logits``). Support:
    0 ... total_count."""

    has_enumerate_support = True
    arg_constraints = {"total_count": constraints.nonnegative_integer, **Chances.arg_constraints}

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        (total,) = self._take(probs, logits, total_count)
        self.total_count = total.to(self._param.dtype)
        super().__init__(self.param_shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    mean = property(lambda self: self.total_count * self.probs)
    mode = property(lambda self: ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count))
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def _log_density(self, value: Tensor) -> Tensor:
        n = self.total_count
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return ways + value * self.logits - n * F.softplus(self.logits)

    def entropy(self) -> Tensor:
        log_prob = self._log_density(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        most = int(self.total_count.max())
        if int(self.total_count.min()) != most:
            raise NotImplementedError("Binomial: only equal total_count have a support that can be enumerated")
        return self._enumerated(make.arange(1 + most, dtype=self._param.dtype, device=self._param.device), expand)


class NegativeBinomial(Chances):
    """How many trials of the chance ``probs`` in [0, 1), or sigmoid(``logits``), succeed before ``total_count`` fail, any number of 0 or more.
    Support: 0, 1, 2 and so on."""

    arg_constraints = {"total_count": constraints.nonnegative, "probs": constraints.half_open_interval(0.0, 1.0), "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        (total,) = self._take(probs, logits, total_count)
        self.total_count = total.to(self._param.dtype)
        super().__init__(self.param_shape, validate_args=validate_args)

    mean = property(lambda self: self.total_count * self.logits.exp())
    mode = property(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0))
    variance = property(lambda self: self.mean / (-self.logits).sigmoid())

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            rate = _ops._standard_gamma(self.total_count.expand(self._extended_shape(sample_shape))) * self.logits.exp()
            return poisson(rate)

    def _log_density(self, value: Tensor) -> Tensor:
        n = self.total_count
        ways = (n + value).lgamma() - (1 + value).lgamma() - n.lgamma()
        ways = ways.masked_fill(n + value == 0, 0.0)
        return ways + n * F.logsigmoid(-self.logits) + value * F.logsigmoid(self.logits)


class ContinuousBernoulli(Chances, ExponentialFamily):
    """Density proportional to probs ** x * (1 - probs) ** (1 - x), ``probs`` in [0, 1], or sigmoid(``logits``), both kept away from 0 and 1 by the
    rounding of 1 (Loaiza-Ganem and Cunningham 2019). Support: [0, 1]. Where ``probs`` lies
    within ``lims``, the series around 1/2 are used."""

    has_rsample = True
    support = constraints.unit_interval
    _unbatched = ("_lims",)

    def __init__(self, probs: Any = None, logits: Any = None, lims: Tuple[float, float] = (0.499, 0.501),
                 validate_args: Optional[bool] = None) -> None:
        self._lims = lims
        self._take(probs, logits)
        super().__init__(self.param_shape, validate_args=validate_args)
        if probs is not None:
            self.probs = clamp_probs(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """The sigmoid of ``logits``, kept away from 0 and 1, where the closed forms end."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _outside(self) -> Tensor:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _far(self) -> Tensor:
        """``probs`` away from 1/2, where the closed forms hold."""
        return _ops.where(self._outside(), self.probs, self._lims[0])

    def _either(self, closed: Tensor, series: Any) -> Tensor:
        return _ops.where(self._outside(), closed, series(self.probs - 0.5))

    def _log_constant(self) -> Tensor:
        p = self._far()
        closed = ((-p).log1p() - p.log()).abs().log() - (1 - 2 * p).abs().log()
        return self._either(closed, lambda d: math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * d.square()) * d.square())

    @property
    def mean(self) -> Tensor:
        p = self._far()
        closed = p / (2 * p - 1) + 1 / ((-p).log1p() - p.log())
        return self._either(closed, lambda d: 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * d.square()) * d)

    @property
    def variance(self) -> Tensor:
        p = self._far()
        closed = p * (p - 1) / (1 - 2 * p).square() + 1 / ((-p).log1p() - p.log()).square()
        return self._either(closed, lambda d: 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * d.square()) * d.square())

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(self.probs.new_empty(self._extended_shape(sample_shape)).uniform_())

    def _log_density(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        return self._log_constant() - F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def _cdf(self, value: Tensor) -> Tensor:
        p = self._far()
        closed = (p.pow(value) * (1 - p).pow(1 - value) + p - 1) / (2 * p - 1)
        inside = _ops.where(self._outside(), closed, value)
        return _ops.where(value <= 0, 0.0, _ops.where(value >= 1, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        p = self._far()
        closed = ((value * (2 * p - 1) - p).log1p() - (-p).log1p()) / (p.log() - (-p).log1p())
        return _ops.where(self._outside(), closed, value)

    def entropy(self) -> Tensor:
        return self.mean * ((-self.probs).log1p() - self.probs.log()) - self._log_constant() - (-self.probs).log1p()

    _natural_params = property(lambda self: (self.logits,))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        near = x.abs() < math.log(self._lims[1] / self._lims[0])
        far = _ops.where(near, 1.0, x)
        return _ops.where(near, 0.5 * x + x.square() / 24 - x.pow(4) / 2880, (far.expm1() / far).log())


class Poisson(ExponentialFamily):
    """Counts of independent events, of which ``rate``, 0 or more, are expected. Support: 0, 1, 2 and so on."""

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: Optional[bool] = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    mean = variance = property(lambda self: self.rate)
    mode = property(lambda self: self.rate.floor())
    _natural_params = property(lambda self: (self.rate.log(),))

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError("Poisson has no entropy: the mean of log(x!) has no closed form")

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def _log_density(self, value: Tensor) -> Tensor:
        rate, value = broadcast_all(self.rate, value)
        return value.xlogy(rate) - rate - (value + 1).lgamma()

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return x.exp()
