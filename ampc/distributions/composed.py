"""Distributions of distributions: with batch dimensions taken as events, transformed, mixed."""

from __future__ import annotations

from typing import Any, Optional

from .._C import Tensor
from ..autograd import no_grad
from ..nn import functional as F
from . import constraints
from .classes import Categorical
from .constraints import is_dependent
from .distribution import Distribution
from .transforms import ComposeTransform, Transform
from .utils import sum_rightmost


class Independent(Distribution):
    """``base_distribution`` with its last ``reinterpreted_batch_ndims`` batch dimensions taken as part of the event: log_prob and entropy are
    added up over them. ValueError where it has fewer."""

    arg_constraints: Any = {}

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: Optional[bool] = None) -> None:
        shape, n = tuple(base_distribution.batch_shape), reinterpreted_batch_ndims
        if n > len(shape):
            raise ValueError(f"Independent: reinterpreted_batch_ndims is {n}, but there are {len(shape)} batch dimensions")
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, n
        super().__init__(shape[:len(shape) - n], (*shape[len(shape) - n:], *base_distribution.event_shape), validate_args=validate_args)

    has_rsample = property(lambda self: self.base_dist.has_rsample)
    has_enumerate_support = property(lambda self: self.base_dist.has_enumerate_support and self.reinterpreted_batch_ndims == 0)

    @constraints.dependent_property
    def support(self) -> Any:
        inner = self.base_dist.support
        return constraints.independent(inner, self.reinterpreted_batch_ndims) if self.reinterpreted_batch_ndims else inner

    mean = property(lambda self: self.base_dist.mean)
    mode = property(lambda self: self.base_dist.mode)
    variance = property(lambda self: self.base_dist.variance)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims:
            raise NotImplementedError("Independent: the support of a product of distributions is not enumerated")
        return self.base_dist.enumerate_support(expand)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist!r}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """The values of ``base_distribution`` after ``transforms``, one or a list, the first of the list first. The shapes are those after the
    transforms. ValueError where the base has too few dimensions for them, or for other types."""

    arg_constraints: Any = {}

    def __init__(self, base_distribution: Distribution, transforms: Any, validate_args: Optional[bool] = None) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(self.transforms, list) or not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError(f"{type(self).__name__}: `transforms` must be a Transform or a list of them, got {transforms!r}")
        base, whole = base_distribution, ComposeTransform(self.transforms)
        shape, event = (*base.batch_shape, *base.event_shape), len(base.event_shape)
        needed, given = whole.domain.event_dim, whole.codomain.event_dim
        if len(shape) < needed:
            raise ValueError(f"{type(self).__name__}: the base needs {needed} dimensions or more, got the shape {list(shape)}")
        out = tuple(whole.forward_shape(shape))
        wide = tuple(whole.inverse_shape(out))
        base = base if wide == shape else base.expand(wide[:len(wide) - event])
        self.base_dist = Independent(base, needed - event) if needed > event else base
        cut = len(out) - max(given, event + given - needed)
        super().__init__(out[:cut], out[cut:], validate_args=validate_args)

    has_rsample = property(lambda self: self.base_dist.has_rsample)

    @constraints.dependent_property
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        end, dims = self.transforms[-1].codomain, len(self._event_shape)
        return constraints.independent(end, dims - end.event_dim) if dims > end.event_dim else end

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return self._moved(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._moved(self.base_dist.rsample(sample_shape))

    def _moved(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def _log_density(self, value: Tensor) -> Tensor:
        dims, total = len(self._event_shape), value.new_zeros(())
        for t in reversed(self.transforms):
            x = t.inv(value)
            dims += t.domain.event_dim - t.codomain.event_dim
            total = total - sum_rightmost(t.log_abs_det_jacobian(x, value), dims - t.domain.event_dim)
            value = x
        return total + sum_rightmost(self.base_dist.log_prob(value), dims - len(self.base_dist.event_shape))

    def _flipped(self, p: Tensor) -> Tensor:
        """1 - p where the transforms fall."""
        sign: Any = 1
        for t in self.transforms:
            sign = sign * t.sign
        return p if isinstance(sign, int) and sign == 1 else sign * (p - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of ``value`` or less. Ends of the support that the base has are allowed: ValueError where the base has not the
        value's origin."""
        for t in reversed(self.transforms):
            value = t.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._flipped(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._moved(self.base_dist.icdf(self._flipped(value)))


class MixtureSameFamily(Distribution):
    """The last batch dimension of ``component_distribution`` mixed with the probabilities of ``mixture_distribution``, a Categorical.
    ValueError where their shapes do not fit."""

    arg_constraints: Any = {}

    def __init__(self, mixture_distribution: Categorical, component_distribution: Distribution, validate_args: Optional[bool] = None) -> None:
        mixture, parts = mixture_distribution, component_distribution
        if not isinstance(mixture, Categorical) or not isinstance(parts, Distribution):
            raise ValueError(f"MixtureSameFamily: expected a Categorical and a Distribution, got {type(mixture).__name__} and {type(parts).__name__}")
        if not parts.batch_shape or mixture.param_shape[-1] != parts.batch_shape[-1]:
            raise ValueError(f"MixtureSameFamily: {mixture.param_shape[-1]} probabilities do not fit components of {list(parts.batch_shape)}")
        if any(1 not in (a, b) and a != b for a, b in zip(reversed(mixture.batch_shape), reversed(parts.batch_shape[:-1]))):
            raise ValueError(f"MixtureSameFamily: {list(mixture.batch_shape)} does not broadcast with components of {list(parts.batch_shape)}")
        self._mixture_distribution = mixture.expand(parts.batch_shape[:-1])
        self._component_distribution = parts
        super().__init__(parts.batch_shape[:-1], parts.event_shape, validate_args=validate_args)

    mixture_distribution = property(lambda self: self._mixture_distribution)
    component_distribution = property(lambda self: self._component_distribution)

    @constraints.dependent_property
    def support(self) -> Any:
        inner = self._component_distribution.support
        return inner if is_dependent(inner) else constraints.MixtureSameFamilyConstraint(inner)

    def _weighted(self, values: Tensor) -> Tensor:
        probs = self._mixture_distribution.probs
        return (probs.reshape(*probs.shape, *([1] * len(self._event_shape))) * values).sum(-1 - len(self._event_shape))

    def _spread(self, value: Tensor) -> Tensor:
        """With a dimension for the components."""
        return value.unsqueeze(-1 - len(self._event_shape))

    mean = property(lambda self: self._weighted(self._component_distribution.mean))

    @property
    def variance(self) -> Tensor:
        parts = self._component_distribution
        return self._weighted(parts.variance) + self._weighted((parts.mean - self._spread(self.mean)).square())

    def _cdf(self, value: Tensor) -> Tensor:
        return (self._component_distribution.cdf(self._spread(value)) * self._mixture_distribution.probs).sum(-1)

    def _log_density(self, value: Tensor) -> Tensor:
        return (self._component_distribution.log_prob(self._spread(value)) + F.log_softmax(self._mixture_distribution.logits, -1)).logsumexp(-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            dim = -1 - len(self._event_shape)
            drawn, index = self._component_distribution.sample(sample_shape), self._mixture_distribution.sample(sample_shape)
            index = index.reshape(*index.shape, *([1] * (1 + len(self._event_shape))))
            return drawn.gather(dim % drawn.dim(), index.expand(*index.shape[:dim], 1, *self._event_shape)).squeeze(dim)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._mixture_distribution!r}, {self._component_distribution!r})"
