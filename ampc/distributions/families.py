"""The distributions."""

from __future__ import annotations

import math
from typing import Any, Optional

from .._C import Tensor
from ..autograd import no_grad
from ..nn import functional as F
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
            p = _inside(self.probs)
            return self.__dict__.setdefault(name, p.log() - (-p).log1p())
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __repr__(self) -> str:
        return super().__repr__()

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
        self._check(lambda: (value == 0) | (value == 1), "value", "0 or 1", value)
        logits, value = broadcast(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0 and 1, along a new first dimension."""
        values = self.probs.detach().new_tensor([0.0, 1.0]).view(2, *([1] * len(self._batch_shape)))
        return values.expand(2, *self._batch_shape) if expand else values


class Categorical(Distribution):
    """Numbers 0 ... K - 1 with probabilities ``probs`` [..., K] (scaled to add up to 1), or softmax(``logits``): give one of them."""

    has_enumerate_support = True
    arg_names = ("probs", "logits")

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Categorical: give `probs` or `logits`, one of them")
        given = logits if probs is None else probs
        if given.dim() < 1:
            raise ValueError("Categorical: `probs` and `logits` need a dimension of classes")
        super().__init__(given.shape[:-1], validate_args=validate_args)
        self._num_events = given.shape[-1]
        if probs is not None:
            self._check(lambda: (given >= 0) & (given.sum(-1, keepdim=True) > 0), "probs", "at least 0 with a positive sum", given)
            self.__dict__["probs"] = given / given.sum(-1, keepdim=True)
        else:
            self._check(lambda: given == given, "logits", "numbers", given)
            self.__dict__["logits"] = given - given.logsumexp(-1, keepdim=True)

    def __getattr__(self, name: str) -> Tensor:
        if name == "probs" and "logits" in self.__dict__:
            return self.__dict__.setdefault(name, self.logits.softmax(-1))
        if name == "logits" and "probs" in self.__dict__:
            return self.__dict__.setdefault(name, _inside(self.probs).log())
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    @property
    def param_shape(self) -> Any:
        return (*self._batch_shape, self._num_events)

    @property
    def mean(self) -> Tensor:
        return self.probs.new_full(tuple(self._batch_shape), math.nan)

    variance = mean

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Categorical:
        """The same for a larger batch."""
        given = {n: self.__dict__[n].expand(*batch_shape, self._num_events) for n in ("probs", "logits") if n in self.__dict__}
        new = self._copy_to(Categorical.__new__(type(self)), batch_shape, **given)
        new._num_events = self._num_events
        return new

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            shape = self._extended_shape(sample_shape)
            count = math.prod(sample_shape)
            rows = self.probs.detach().reshape(-1, self._num_events)
            return rows.multinomial(count, True).t().reshape(shape) if rows.shape[0] and count else self.probs.new_empty(shape).long()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(lambda: (value >= 0) & (value < self._num_events) & (value == value.floor() if value.dtype.is_floating_point else value == value),
                    "value", f"a whole number in [0, {self._num_events})", value)
        index = value.long().unsqueeze(-1)
        shape = _joint(index.shape[:-1], tuple(self._batch_shape))
        return self.logits.expand(*shape, self._num_events).gather(-1, index.expand(*shape, 1)).squeeze(-1)

    def entropy(self) -> Tensor:
        smallest = float(_finfo(self.logits).min)
        return -(self.logits.clamp(min=smallest) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0 ... K - 1, along a new first dimension."""
        from .. import _creation as make

        values = make.arange(self._num_events, device=self.probs.device).view(-1, *([1] * len(self._batch_shape)))
        return values.expand(self._num_events, *self._batch_shape) if expand else values


def _finfo(t: Tensor) -> Any:
    from .. import _creation as make

    return make.finfo(t.dtype)


def _inside(probs: Tensor) -> Tensor:
    """Away from 0 and 1, where logarithms end."""
    eps = float(_finfo(probs).eps)
    return probs.clamp(eps, 1 - eps)


def _joint(a: Any, b: Any) -> Any:
    from .._composed.arrange import broadcast_shapes

    return tuple(broadcast_shapes(tuple(a), tuple(b)))
