"""The Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any, Optional

from .._C import Tensor
from ..autograd import no_grad
from ..nn import functional as F
from .distribution import Distribution, broadcast, inside


class Bernoulli(Distribution):
    """1 with probability ``probs``, or sigmoid(``logits``): give one of them."""

    has_enumerate_support = True
    arg_names = ("probs", "logits")

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Bernoulli: give `probs` or `logits`, one of them")
        (given,) = broadcast(logits if probs is None else probs)
        self.__dict__["logits" if probs is None else "probs"] = given
        super().__init__(given.shape, validate_args=validate_args)
        if probs is not None:
            self._check(lambda: (given >= 0) & (given <= 1), "probs", "in [0, 1]", given)

    def __getattr__(self, name: str) -> Tensor:
        if name == "probs" and "logits" in self.__dict__:
            return self.__dict__.setdefault(name, self.logits.sigmoid())
        if name == "logits" and "probs" in self.__dict__:
            p = inside(self.probs)
            return self.__dict__.setdefault(name, p.log() - (-p).log1p())
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        mode = (self.probs >= 0.5).to(self.probs.dtype)
        return mode.masked_fill(self.probs == 0.5, math.nan)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    @property
    def param_shape(self) -> Any:
        return next(self.__dict__[n] for n in ("logits", "probs") if n in self.__dict__).shape

    def expand(self, batch_shape: Any, _instance: Any = None) -> Bernoulli:
        """The same for a larger batch."""
        given = {n: self.__dict__[n].expand(batch_shape) for n in ("probs", "logits") if n in self.__dict__}
        return self._copy_to(Bernoulli.__new__(type(self)), batch_shape, **given)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return self.probs.expand(self._extended_shape(sample_shape)).bernoulli()

    def log_prob(self, value: Tensor) -> Tensor:
        self._fits(value)
        self._check(lambda: (value == 0) | (value == 1), "value", "0 or 1", value)
        logits, value = broadcast(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0 and 1, along a new first dimension."""
        values = self.probs.detach().new_tensor([0.0, 1.0]).view(2, *([1] * len(self._batch_shape)))
        return values.expand(2, *self._batch_shape) if expand else values
