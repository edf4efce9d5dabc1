"""Transforms of whole vectors and matrices, and of parts of them."""

from __future__ import annotations

import math
from typing import Any, Callable, List, Optional, Sequence

from .. import _ops, linalg
from .._C import Tensor
from .._tensor import creation as make
from .._tensor.device import Size
from .._tensor.finfo import finfo
from ..nn import functional as F
from . import constraints
from ._transform import Transform
from .utils import inside_unit, sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix

__all__ = ["CatTransform", "CorrCholeskyTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform", "SoftmaxTransform", "StackTransform",
           "StickBreakingTransform"]


class SoftmaxTransform(Transform):
    """softmax(x) of vectors [..., K], points of a simplex; not a bijection: its inverse, the logarithm, is one of many."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return F.softmax(x, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class StickBreakingTransform(Transform):
    """Vectors [..., K] as points [..., K + 1] of a simplex: each value takes a part of the stick that is left (0 takes equal parts)."""

    bijective = True
    domain, codomain = constraints.real_vector, constraints.simplex

    def _offset(self, x: Tensor) -> Tensor:
        return make.arange(x.shape[-1], 0, -1, dtype=x.dtype, device=x.device).log()

    def _call(self, x: Tensor) -> Tensor:
        taken = inside_unit((x - self._offset(x)).sigmoid())
        left = (1 - taken).cumprod(-1)
        return F.pad(taken, [0, 1], value=1.0) * F.pad(left, [1, 0], value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        parts = y[..., :-1]
        left = (1 - parts.cumsum(-1)).clamp(min=float(finfo(y.dtype).tiny))
        return parts.log() - left.log() + self._offset(parts)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - self._offset(x)
        return (F.logsigmoid(x) - x + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        *batch, size = super().forward_shape(shape)
        return Size((*batch, size + 1))

    def inverse_shape(self, shape: Any) -> Any:
        *batch, size = super().inverse_shape(shape)
        return Size((*batch, size - 1))


def _with_diagonal(matrix: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
    """The lower triangle with ``f`` of its diagonal."""
    return matrix.tril(-1) + f(matrix.diagonal(dim1=-2, dim2=-1)).diag_embed()


class LowerCholeskyTransform(Transform):
    """The lower triangle of matrices [..., n, n], with exp of the diagonal."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return _with_diagonal(x, Tensor.exp)

    def _inverse(self, y: Tensor) -> Tensor:
        return _with_diagonal(y, Tensor.log)


class PositiveDefiniteTransform(Transform):
    """L @ L.mT of matrices [..., n, n], with the L that LowerCholeskyTransform gives. LinAlgError of the inverse unless y is positive definite."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        lower = LowerCholeskyTransform()(x)
        return lower @ lower.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """Vectors [..., D (D - 1) / 2] as Cholesky factors [..., D, D] of correlation matrices: tanh of a value is the part that an entry takes
    of what is left of its row's length (Lewandowski, Kurowicka and Joe 2009)."""

    bijective = True
    domain, codomain = constraints.real_vector, constraints.corr_cholesky

    def _call(self, x: Tensor) -> Tensor:
        eps = float(finfo(x.dtype).eps)
        part = vec_to_tril_matrix(x.tanh().clamp(-1 + eps, 1 - eps), -1)
        left = (1 - part.square()).sqrt().cumprod(-1)
        return (part + make.eye(part.shape[-1], dtype=part.dtype, device=part.device)) * F.pad(left[..., :-1], [1, 0], value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        left = F.pad((1 - y.square().cumsum(-1))[..., :-1], [1, 0], value=1.0)
        part = tril_matrix_to_vec(y, -1) / tril_matrix_to_vec(left, -1).sqrt()
        return part.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = (1 - y.square().cumsum(-1))  # of a row, behind each entry
        steps = 0.5 * tril_matrix_to_vec(left, -2).log().sum(-1) if y.shape[-1] > 2 else 0.0
        return steps - 2 * (x + F.softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        *batch, count = super().forward_shape(shape)
        size = (1 + math.isqrt(1 + 8 * count)) // 2
        if size * (size - 1) // 2 != count:
            raise ValueError(f"CorrCholeskyTransform: {count} values do not fill a triangle")
        return Size((*batch, size, size))

    def inverse_shape(self, shape: Any) -> Any:
        *batch, rows, columns = super().inverse_shape(shape)
        if rows != columns:
            raise ValueError(f"CorrCholeskyTransform: expected square matrices, got {tuple(shape)}")
        return Size((*batch, rows * (rows - 1) // 2))


class _Parts(Transform):
    """What CatTransform and StackTransform share: transforms of parts along ``dim``."""

    transforms: List[Transform]
    dim: int

    bijective = property(lambda self: all(t.bijective for t in self.transforms))

    def _facts(self) -> Sequence[Any]:
        return (self.dim, *self.transforms)

    def _split(self, x: Tensor) -> Sequence[Tensor]:
        raise NotImplementedError

    def _join(self, parts: List[Tensor], dim: int) -> Tensor:
        raise NotImplementedError

    def _each(self, functions: Sequence[Callable], *values: Tensor) -> List[Tensor]:
        return [f(*v) for f, *v in zip(functions, *(self._split(v) for v in values))]

    def _call(self, x: Tensor) -> Tensor:
        return self._join(self._each(self.transforms, x), self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._join(self._each([t.inv for t in self.transforms], y), self.dim)


class CatTransform(_Parts):
    """Transforms of parts along ``dim``, ``lengths`` long (1 each when None), joined. ValueError unless there are as many of both."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, lengths: Optional[Sequence[int]] = None, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms, self.dim = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq), dim
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise ValueError(f"CatTransform: {len(self.transforms)} transforms, {len(self.lengths)} lengths")

    event_dim = property(lambda self: max(t.event_dim for t in self.transforms))
    length = property(lambda self: sum(self.lengths))
    domain = property(lambda self: constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths))
    codomain = property(lambda self: constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths))

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self if self._cache_size == cache_size else CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _split(self, x: Tensor) -> Sequence[Tensor]:
        return x.split(self.lengths, self.dim)

    def _join(self, parts: List[Tensor], dim: int) -> Tensor:
        return _ops.cat(parts, dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        found = [sum_rightmost(d, self.event_dim - t.event_dim)
                 for t, d in zip(self.transforms, self._each([t.log_abs_det_jacobian for t in self.transforms], x, y))]
        dim = (self.dim - x.dim() if self.dim >= 0 else self.dim) + self.event_dim
        return self._join(found, dim) if dim < 0 else sum(found[1:], start=found[0])


class StackTransform(_Parts):
    """Transforms of the slices along ``dim``, stacked. ValueError for a value with another number of slices."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms, self.dim = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq), dim

    domain = property(lambda self: constraints.stack([t.domain for t in self.transforms], self.dim))
    codomain = property(lambda self: constraints.stack([t.codomain for t in self.transforms], self.dim))

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self if self._cache_size == cache_size else StackTransform(self.transforms, self.dim, cache_size)

    def _split(self, x: Tensor) -> Sequence[Tensor]:
        if x.shape[self.dim] != len(self.transforms):
            raise ValueError(f"StackTransform: {len(self.transforms)} transforms, but {x.shape[self.dim]} slices along dim {self.dim}")
        return x.unbind(self.dim)

    def _join(self, parts: List[Tensor], dim: int) -> Tensor:
        return _ops.stack(parts, dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self._join(self._each([t.log_abs_det_jacobian for t in self.transforms], x, y), self.dim)
