"""The categorical distribution."""

from __future__ import annotations

import math
from typing import Any, Optional

from .. import _creation as make
from .._C import Tensor
from .._dims import broadcast_shapes
from .._finfo import finfo
from ..autograd import no_grad
from .distribution import Distribution, inside


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
            return self.__dict__.setdefault(name, inside(self.probs).log())
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
        self._fits(value)
        self._check(lambda: (value >= 0) & (value < self._num_events) & (value == value.floor() if value.dtype.is_floating_point else value == value),
                    "value", f"a whole number in [0, {self._num_events})", value)
        index = value.long().unsqueeze(-1)
        shape = tuple(broadcast_shapes(tuple(index.shape[:-1]), tuple(self._batch_shape)))
        return self.logits.expand(*shape, self._num_events).gather(-1, index.expand(*shape, 1)).squeeze(-1)

    def entropy(self) -> Tensor:
        smallest = float(finfo(self.logits.dtype).min)
        return -(self.logits.clamp(min=smallest) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0 ... K - 1, along a new first dimension."""
        values = make.arange(self._num_events, device=self.probs.device).view(-1, *([1] * len(self._batch_shape)))
        return values.expand(self._num_events, *self._batch_shape) if expand else values
