"""Families of classes, with probabilities ``probs`` [..., K], 0 or more (scaled to add up to 1), or their logarithms up to a constant, ``logits``:
ValueError unless one of them is given, or for one of 0 dimensions. Their formulas are in Johnson, Kotz and Balakrishnan, Discrete Multivariate
Distributions (1997)."""

from __future__ import annotations

import math
from typing import Any, Optional

from .._C import Tensor
from .._tensor import creation as make
from .._tensor.dims import broadcast_shapes
from .._tensor.finfo import finfo
from ..autograd import no_grad
from ..nn import functional as F
from . import constraints
from .chances import Binomial, ByProbabilities
from .distribution import Distribution
from .utils import broadcast_all


class Categorical(ByProbabilities):
    """Numbers 0 ... K - 1 with probabilities ``probs`` [..., K] (scaled to add up to 1), or softmax(``logits``): give one of them. Draws
    are int64; mean and variance are nan."""

    has_enumerate_support = True
    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        name = self._name_given(probs, logits)
        given = logits if probs is None else probs
        if given.dim() < 1:
            raise ValueError(f"{type(self).__name__}: `probs` and `logits` need a dimension of classes")
        self.__dict__[name] = given / given.sum(-1, keepdim=True) if name == "probs" else given - given.logsumexp(-1, keepdim=True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    mean = variance = property(lambda self: self._param.new_full(tuple(self._batch_shape), math.nan))
    mode = property(lambda self: self.probs.argmax(-1))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            shape, count = (*sample_shape, *self._batch_shape), math.prod(sample_shape)
            rows = self.probs.detach().reshape(-1, self._num_events)
            return rows.multinomial(count, True).t().reshape(shape) if rows.shape[0] and count else self.probs.new_empty(shape).long()

    def _log_density(self, value: Tensor) -> Tensor:
        index = value.long().unsqueeze(-1)
        shape = tuple(broadcast_shapes(tuple(index.shape[:-1]), tuple(self._batch_shape)))
        return self.logits.expand(*shape, self._num_events).gather(-1, index.expand(*shape, 1)).squeeze(-1)

    def entropy(self) -> Tensor:
        smallest = float(finfo(self.logits.dtype).min)
        return -(self.logits.clamp(min=smallest) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(make.arange(self._num_events, device=self._param.device), expand)


class OfClasses(Distribution):
    """What has vectors [K] for its values: a Categorical within, whose names it shows."""

    arg_constraints = Categorical.arg_constraints

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        self._categorical = Categorical(probs, logits, validate_args=validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    probs = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    _param = property(lambda self: self._categorical._param)
    param_shape = property(lambda self: self._categorical.param_shape)

    def _ones(self, index: Tensor) -> Tensor:
        return F.one_hot(index, self._event_shape[0]).to(self._param.dtype)


class OneHotCategorical(OfClasses):
    """A vector [K] with a single 1, at class k with the probability ``probs[..., k]``, or softmax(``logits``): give one of them."""

    has_enumerate_support = True
    support = constraints.one_hot

    mean = property(lambda self: self.probs)
    mode = property(lambda self: self._ones(self._categorical.mode))
    variance = property(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._ones(self._categorical.sample(sample_shape))

    def _log_density(self, value: Tensor) -> Tensor:
        return self._categorical._log_density(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(make.eye(self._event_shape[0], dtype=self._param.dtype, device=self._param.device), expand)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose draws by rsample pass their gradient on to ``probs`` (Bengio, Leonard and Courville 2013)."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(OfClasses):
    """How often each of K classes comes in ``total_count`` draws: one int for all, 1 by default. Support: counts [K] that add up to it.
    NotImplementedError for a ``total_count`` that is no int, ValueError for one below 0."""

    total_count: int

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError(f"Multinomial: `total_count` must be one int, got {type(total_count).__name__}")
        self.total_count = total_count
        super().__init__(probs, logits, validate_args=validate_args)
        if self._validate_args and total_count < 0:
            raise ValueError(f"Multinomial: `total_count` must be at least 0, got {total_count}")

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    mean = property(lambda self: self.probs * self.total_count)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        drawn = self._categorical.sample((self.total_count, *sample_shape)).movedim(0, -1)
        counts = self._param.new_zeros((*drawn.shape[:-1], self._event_shape[0]))
        return counts.scatter_add(-1, drawn, make.ones_like(drawn, dtype=counts.dtype))

    def _log_density(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        logits = logits.masked_fill((value == 0) & (logits == -math.inf), 0.0)
        return (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1) + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        counts = Binomial(self.total_count, probs=self.probs, validate_args=False)
        values = counts.enumerate_support(False)[1:]
        ways = (counts._log_density(values).exp() * (values + 1).lgamma()).sum((0, -1))
        return self.total_count * self._categorical.entropy() - math.lgamma(self.total_count + 1) + ways
