"""Transforms: functions with an inverse and the logarithm of the size of their derivative. ``t(x)`` maps ``t.domain`` to ``t.codomain``,
``t.inv`` is the inverse as a transform. The names and their meaning are torch.distributions.transforms'. Those of one number at a time
are here."""

from __future__ import annotations

import math
from typing import Any, Sequence

from .._C import Tensor
from .._tensor import creation as make
from .._tensor.device import Size
from .._tensor.dims import broadcast_shapes
from ..nn import functional as F
from . import constraints
from ._joint_transforms import (
    CatTransform,
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
)
from ._transform import ComposeTransform, IndependentTransform, ReshapeTransform, Transform, identity_transform
from ._transform import _InverseTransform as _InverseTransform
from .utils import inside_unit, sum_rightmost

__all__ = ["AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform", "CumulativeDistributionTransform",
           "ExpTransform", "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform",
           "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform",
           "identity_transform"]


class _Monotone(Transform):
    """An elementwise transform that grows, of real numbers unless it says otherwise."""

    bijective: Any = True
    sign: Any = 1
    domain: Any = constraints.real


class ExpTransform(_Monotone):
    """exp(x)."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


def _clipped_sigmoid(x: Tensor) -> Tensor:
    return inside_unit(x.sigmoid())


class SigmoidTransform(_Monotone):
    """1 / (1 + exp(-x)), kept away from 0 and 1."""

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        return _clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        y = inside_unit(y)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x) - F.softplus(x)


class SoftplusTransform(_Monotone):
    """log(1 + exp(x))."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return F.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x)


class TanhTransform(_Monotone):
    """tanh(x)."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2 * (math.log(2.0) - x - F.softplus(-2 * x))


class PowerTransform(_Monotone):
    """x ** exponent of positive x; the exponent is a number or a Tensor."""

    domain = codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent if isinstance(exponent, Tensor) else make.tensor(float(exponent))

    sign = property(lambda self: self.exponent.sign())

    def _facts(self) -> Sequence[Any]:
        return (self.exponent,)

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return Size(broadcast_shapes(tuple(shape), tuple(self.exponent.shape)))

    inverse_shape = forward_shape


class AffineTransform(_Monotone):
    """loc + scale * x; numbers or Tensors. ``event_dim`` dimensions make one event."""

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    event_dim = property(lambda self: self._event_dim)
    domain = property(lambda self: constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real)
    codomain = domain

    sign = property(lambda self: self.scale.sign() if isinstance(self.scale, Tensor) else (self.scale > 0) - (self.scale < 0))

    def _facts(self) -> Sequence[Any]:
        return self.loc, self.scale

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale if isinstance(self.scale, Tensor) else make.tensor(float(self.scale), dtype=x.dtype, device=x.device)
        size = scale.abs().log()
        return sum_rightmost(size.expand(broadcast_shapes(tuple(x.shape), tuple(size.shape))), self.event_dim)

    def forward_shape(self, shape: Any) -> Any:
        return Size(broadcast_shapes(tuple(shape), *(tuple(getattr(v, "shape", ())) for v in (self.loc, self.scale))))

    inverse_shape = forward_shape


class AbsTransform(Transform):
    """|x|, whose inverse takes the positive half."""

    domain, codomain = constraints.real, constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class CumulativeDistributionTransform(_Monotone):
    """The probability that ``distribution``, of one dimension, gives less than x."""

    codomain = constraints.unit_interval

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    domain = property(lambda self: self.distribution.support)

    def _facts(self) -> Sequence[Any]:
        return (self.distribution,)

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)
