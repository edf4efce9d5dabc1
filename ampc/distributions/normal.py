"""The normal distribution."""

from __future__ import annotations

import math
from typing import Any, Optional

from .._C import Tensor
from .distribution import Distribution, broadcast


class Normal(Distribution):
    """Normal with mean ``loc`` and standard deviation ``scale`` > 0, numbers or tensors that broadcast."""

    has_rsample = True
    arg_names = ("loc", "scale")

    def __init__(self, loc: Any, scale: Any, validate_args: Optional[bool] = None) -> None:
        self.loc, self.scale = broadcast(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)
        self._check(lambda: self.loc == self.loc, "loc", "a number", self.loc)
        self._check(lambda: self.scale > 0, "scale", "greater than 0", self.scale)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale * self.scale

    def expand(self, batch_shape: Any, _instance: Any = None) -> Normal:
        """The same for a larger batch."""
        return self._copy_to(Normal.__new__(type(self)), batch_shape, loc=self.loc.expand(batch_shape), scale=self.scale.expand(batch_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        noise = self.loc.new_empty(self._extended_shape(sample_shape)).normal_()
        return self.loc + noise * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._fits(value)
        self._check(lambda: value == value, "value", "a number", value)
        return -((value - self.loc) ** 2) / (2 * self.variance) - self.scale.log() - math.log(math.sqrt(2 * math.pi))

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of less than ``value``."""
        return 0.5 * (1 + ((value - self.loc) * self.scale.reciprocal() / math.sqrt(2)).erf())

    def icdf(self, value: Tensor) -> Tensor:
        """The value that less than comes with probability ``value``."""
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()
