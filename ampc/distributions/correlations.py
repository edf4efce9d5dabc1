"""Angles, and correlation matrices."""

from __future__ import annotations

import math
from typing import Any, Optional

from .. import _ops, special
from .._C import Tensor
from .._composed.random import keys
from .._tensor import creation as make
from .._tensor.finfo import finfo
from ..autograd import no_grad
from ..nn import functional as F
from . import constraints
from .distribution import Distribution
from .gamma_family import Beta
from .utils import LOG_2PI, broadcast_all


class VonMises(Distribution):
    """Von Mises's angles around ``loc``, the normal distribution of a circle, with ``concentration`` (1 / variance where it is large).
    Support: the real numbers; draws lie in [-pi, pi)."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: Optional[bool] = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    mean = mode = property(lambda self: self.loc)

    @property
    def variance(self) -> Tensor:
        """Of the circle: 1 - the mean length of the resultant."""
        return 1 - special.i1e(self.concentration) / special.i0e(self.concentration)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            shape = self._extended_shape(sample_shape)
            angle = _ops.von_mises_draw(self.concentration.double().expand(shape), keys(shape, self.loc.device))
            return ((angle + self.loc.double() + math.pi) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    def _log_density(self, value: Tensor) -> Tensor:
        from_top = -2 * (0.5 * (value - self.loc)).sin().square()  # cos - 1
        return self.concentration * from_top - LOG_2PI - special.i0e(self.concentration).log()


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices [dim, dim], whose density is det ** (concentration - 1): uniform at 1, near the identity where
    it is large. Support: lower triangles with rows of length 1. Drawn row by row (Lewandowski, Kurowicka and Joe 2009)."""

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: Optional[bool] = None) -> None:
        if not isinstance(dim, int) or dim < 2:
            raise ValueError(f"LKJCholesky: `dim` must be an int, at least 2, got {dim!r}")
        (self.concentration,) = broadcast_all(concentration)
        self.dim = dim
        super().__init__(self.concentration.shape, (dim, dim), validate_args=validate_args)

    def _rows(self) -> Tensor:
        """1 ... dim - 1: what the rows after the first hold left of the diagonal."""
        return make.arange(1, self.dim, dtype=self.concentration.dtype, device=self.concentration.device)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            rows, shape = self._rows(), self._extended_shape(sample_shape)
            rest = self.concentration.unsqueeze(-1) + 0.5 * (self.dim - 1 - rows)
            part = Beta(0.5 * rows, rest, validate_args=False).sample(sample_shape)  # of the row's square, left of the diagonal
            away = self.concentration.new_empty((*shape[:-2], self.dim - 1, self.dim)).normal_().tril()
            away = F.normalize(away, dim=-1, eps=float(finfo(away.dtype).tiny)) * part.sqrt().unsqueeze(-1)
            end = (1 - away.square().sum(-1)).clamp(min=float(finfo(away.dtype).tiny)).sqrt()
            return F.pad(away, [0, 0, 1, 0]) + F.pad(end, [1, 0], value=1.0).diag_embed()

    def _log_density(self, value: Tensor) -> Tensor:
        c, more = self.concentration, self.dim - 1
        power = 2 * (c - 1).unsqueeze(-1) + self.dim - 1 - self._rows()
        top = c + 0.5 * more
        constant = 0.5 * more * math.log(math.pi) + (top - 0.5).mvlgamma(more) - top.lgamma() * more
        return (power * value.diagonal(dim1=-2, dim2=-1)[..., 1:].log()).sum(-1) - constant
