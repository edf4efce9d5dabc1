"""Normal vectors, by a whole covariance or by one of low rank; and Wishart's covariances of them."""

from __future__ import annotations

import math
from typing import Any, Optional, Tuple

from .. import _ops, linalg
from .._C import Tensor
from .._tensor.dims import broadcast_shapes
from . import constraints
from .distribution import Distribution, ExponentialFamily
from .utils import LOG_2PI, lazy_property


def batch_mahalanobis(lower: Tensor, x: Tensor) -> Tensor:
    """x^T (L L^T)^-1 x of vectors x [..., n] and lower triangles L [..., n, n]. The dimensions that x has in front of L's batch become the
    columns of one system for each L."""
    extra = max(x.dim() + 1 - lower.dim(), 0)
    columns = x.reshape((math.prod(x.shape[:extra]), *x.shape[extra:])).movedim(0, -1)
    far = linalg.solve_triangular(lower, columns, upper=False).square().sum(-2)
    return far.movedim(-1, 0).reshape((*x.shape[:extra], *far.shape[:-1]))


def half_log_det(lower: Tensor) -> Tensor:
    """log det L, half of that of L L^T."""
    return lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _of_precision(precision: Tensor) -> Tensor:
    """The lower L with L L^T the inverse of ``precision``: from the Cholesky factor of the precision with rows and columns turned around."""
    lower = linalg.cholesky(precision.flip((-2, -1))).flip((-2, -1)).mT  # lower^T lower is the precision
    return linalg.inv(lower).tril()


def _for_batch(matrix: Tensor, batch: Any) -> Tensor:
    return matrix.expand(*batch, *matrix.shape[-2:])


def _times(matrix: Tensor, x: Tensor) -> Tensor:
    """M x of vectors x [..., n]: one product where a single M serves all."""
    return x @ matrix.mT if matrix.dim() == 2 else (matrix @ x.unsqueeze(-1)).squeeze(-1)


class _OfCovariance(Distribution):
    """What is given by a covariance [..., n, n], its inverse ``precision_matrix``, or its Cholesky factor ``scale_tril``. Computations use the
    matrices as they are given, without copies for the batch."""

    _unbatched = ("_unbroadcasted_scale_tril",)
    _given: Tuple[str, Tensor]

    def _take_one(self, covariance: Optional[Tensor], precision: Optional[Tensor], scale_tril: Optional[Tensor], batch: Any) -> Tuple[int, ...]:
        """Keeps the one that is given, as it is and for the broadcast batch, which it returns."""
        given = {"covariance_matrix": covariance, "precision_matrix": precision, "scale_tril": scale_tril}
        found = {name: value for name, value in given.items() if value is not None}
        if len(found) != 1:
            raise ValueError(f"{type(self).__name__}: give one of covariance_matrix, precision_matrix and scale_tril")
        ((name, value),) = found.items()
        if value.dim() < 2:
            raise ValueError(f"{type(self).__name__}: `{name}` must be a matrix, got {value.dim()} dimensions")
        shape = broadcast_shapes(tuple(value.shape[:-2]), tuple(batch))
        self._given = name, value
        self.__dict__[name] = _for_batch(value, shape)
        return tuple(shape)

    def _check(self, constraint: Any, name: str, value: Tensor) -> None:
        super()._check(constraint, name, self._given[1] if name == self._given[0] else value)

    @lazy_property
    def _unbroadcasted_scale_tril(self) -> Tensor:
        name, value = self._given
        if name == "scale_tril":
            return value
        return linalg.cholesky(value) if name == "covariance_matrix" else _of_precision(value)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance: [*batch_shape, n, n]."""
        return _for_batch(self._unbroadcasted_scale_tril, self._batch_shape)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """L @ L.mT: [*batch_shape, n, n]."""
        lower = self._unbroadcasted_scale_tril
        return _for_batch(lower @ lower.mT, self._batch_shape)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance: [*batch_shape, n, n]."""
        return _for_batch(_ops.cholesky_inverse(self._unbroadcasted_scale_tril), self._batch_shape)


COVARIANCES = {"covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
               "scale_tril": constraints.lower_cholesky}


class MultivariateNormal(_OfCovariance):
    """Normal vectors [n] with the mean ``loc`` [..., n] and a covariance matrix [..., n, n], given as ``covariance_matrix``,
    ``precision_matrix`` or ``scale_tril``. Support: all vectors."""

    has_rsample = True
    arg_constraints = {"loc": constraints.real_vector, **COVARIANCES}
    support = constraints.real_vector

    def __init__(self, loc: Tensor, covariance_matrix: Optional[Tensor] = None, precision_matrix: Optional[Tensor] = None,
                 scale_tril: Optional[Tensor] = None, validate_args: Optional[bool] = None) -> None:
        if loc.dim() < 1:
            raise ValueError("MultivariateNormal: `loc` must be a vector, got 0 dimensions")
        batch = self._take_one(covariance_matrix, precision_matrix, scale_tril, loc.shape[:-1])
        n = loc.shape[-1]
        size = self._given[1].shape[-2:]
        if tuple(size) != (n, n):
            raise ValueError(f"MultivariateNormal: `loc` of {n} values does not fit a matrix of {list(size)}")
        self.loc = loc.expand(*batch, n)
        super().__init__(batch, (n,), validate_args=validate_args)

    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: self._unbroadcasted_scale_tril.square().sum(-1).expand(self.loc.shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc + _times(self._unbroadcasted_scale_tril, self.loc.new_empty(self._extended_shape(sample_shape)).normal_())

    def _log_density(self, value: Tensor) -> Tensor:
        far = batch_mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        return -0.5 * (self._event_shape[0] * LOG_2PI + far) - half_log_det(self._unbroadcasted_scale_tril)

    def entropy(self) -> Tensor:
        return (0.5 * self._event_shape[0] * (1 + LOG_2PI) + half_log_det(self._unbroadcasted_scale_tril)).expand(self._batch_shape)


class LowRankMultivariateNormal(Distribution):
    """Normal vectors [n] with the mean ``loc`` and the covariance cov_factor @ cov_factor.mT + diag(cov_diag), ``cov_factor`` [..., n, rank].
    Support: all vectors. Solving takes matrices of the rank alone (Woodbury 1950)."""

    has_rsample = True
    arg_constraints = {"loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
                       "cov_diag": constraints.independent(constraints.positive, 1)}
    support = constraints.real_vector
    _unbatched = ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_weighted", "_capacitance_tril")

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: Optional[bool] = None) -> None:
        if loc.dim() < 1 or cov_factor.dim() < 2 or cov_diag.dim() < 1:
            raise ValueError("LowRankMultivariateNormal: needs vectors `loc` and `cov_diag`, and a matrix `cov_factor`")
        n = loc.shape[-1]
        if cov_factor.shape[-2] != n or cov_diag.shape[-1] != n:
            raise ValueError(f"LowRankMultivariateNormal: `cov_factor` and `cov_diag` must have {n} rows, "
                             f"got {list(cov_factor.shape)} and {list(cov_diag.shape)}")
        batch = broadcast_shapes(tuple(loc.shape[:-1]), tuple(cov_factor.shape[:-2]), tuple(cov_diag.shape[:-1]))
        self.loc, self.cov_diag = loc.expand(*batch, n), cov_diag.expand(*batch, n)
        self.cov_factor = _for_batch(cov_factor, batch)
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        super().__init__(batch, (n,), validate_args=validate_args)

    @lazy_property
    def _weighted(self) -> Tensor:
        """cov_factor^T / cov_diag."""
        return self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)

    @lazy_property
    def _capacitance_tril(self) -> Tensor:
        """The Cholesky factor of I + W^T D^-1 W."""
        inner = self._weighted @ self._unbroadcasted_cov_factor
        return linalg.cholesky(inner + inner.new_ones(inner.shape[-1]).diag_embed())

    def _covariance(self) -> Tensor:
        factor = self._unbroadcasted_cov_factor
        return factor @ factor.mT + self._unbroadcasted_cov_diag.diag_embed()

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance: [*batch_shape, n, n]."""
        return _for_batch(linalg.cholesky(self._covariance()), self._batch_shape)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """cov_factor @ cov_factor.mT + diag(cov_diag): [*batch_shape, n, n]."""
        return _for_batch(self._covariance(), self._batch_shape)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance: [*batch_shape, n, n]."""
        solved = linalg.solve_triangular(self._capacitance_tril, self._weighted, upper=False)
        return _for_batch(self._unbroadcasted_cov_diag.reciprocal().diag_embed() - solved.mT @ solved, self._batch_shape)

    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: self.cov_factor.square().sum(-1) + self.cov_diag)

    def half_log_det(self) -> Tensor:
        """Half of log det of the covariance."""
        return half_log_det(self._capacitance_tril) + 0.5 * self._unbroadcasted_cov_diag.log().sum(-1)

    def mahalanobis(self, x: Tensor) -> Tensor:
        """x^T C^-1 x of vectors x [..., n]."""
        return (x.square() / self._unbroadcasted_cov_diag).sum(-1) - batch_mahalanobis(self._capacitance_tril, _times(self._weighted, x))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        few, all_ = self.loc.new_empty((*shape[:-1], self.cov_factor.shape[-1])).normal_(), self.loc.new_empty(shape).normal_()
        return self.loc + _times(self._unbroadcasted_cov_factor, few) + self._unbroadcasted_cov_diag.sqrt() * all_

    def _log_density(self, value: Tensor) -> Tensor:
        return -0.5 * (self._event_shape[0] * LOG_2PI + self.mahalanobis(value - self.loc)) - self.half_log_det()

    def entropy(self) -> Tensor:
        return (0.5 * self._event_shape[0] * (1 + LOG_2PI) + self.half_log_det()).expand(self._batch_shape)


class Wishart(_OfCovariance, ExponentialFamily):
    """Wishart's matrices [n, n]: sums of x x^T over ``df`` > n - 1 normal vectors, whose covariance is given as in MultivariateNormal.
    Support: positive definite matrices. Drawn by Bartlett's factors (1933)."""

    has_rsample = True
    support = constraints.positive_definite
    arg_constraints = {**COVARIANCES, "df": constraints.positive}

    def __init__(self, df: Any, covariance_matrix: Optional[Tensor] = None, precision_matrix: Optional[Tensor] = None,
                 scale_tril: Optional[Tensor] = None, validate_args: Optional[bool] = None) -> None:
        batch = self._take_one(covariance_matrix, precision_matrix, scale_tril, getattr(df, "shape", ()))
        kept = self._given[1]
        df = df if isinstance(df, Tensor) else kept.new_full((), float(df))
        self.df, n = (df if df.is_floating_point() else df.to(kept.dtype)).expand(*batch), kept.shape[-1]
        self.arg_constraints = {**COVARIANCES, "df": constraints.greater_than(n - 1)}
        super().__init__(batch, (n, n), validate_args=validate_args)

    mean = property(lambda self: self._each(self.df) * self.covariance_matrix)

    def _each(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-1).unsqueeze(-1)

    @property
    def mode(self) -> Tensor:
        factor = self.df - self._event_shape[0] - 1
        return self._each(factor.masked_fill(factor <= 0, math.nan)) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self._each(self.df) * (v.square() + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _degrees(self) -> Tensor:
        """(df - i) / 2 for i = 0 ... n - 1."""
        return 0.5 * (self.df.unsqueeze(-1) - self.df.new_ones(self._event_shape[0]).cumsum(-1) + 1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        lengths = (2 * _ops._standard_gamma(self._degrees().expand(shape[:-1]))).sqrt()
        factor = self.scale_tril @ (self.df.new_empty(shape).normal_().tril(-1) + lengths.diag_embed())
        return factor @ factor.mT

    @property
    def _natural_params(self) -> Tuple[Tensor, ...]:
        return 0.5 * (self.df - self._event_shape[0] - 1), -0.5 * self.precision_matrix

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        n = y.shape[-1]
        half_df = x + 0.5 * (n + 1)
        return half_df.mvlgamma(n) - half_df * linalg.slogdet(-y)[1]

    def _log_normalizer_of(self) -> Tensor:
        n = self._event_shape[0]
        return self.df * (0.5 * n * math.log(2) + half_log_det(self.scale_tril)) + (0.5 * self.df).mvlgamma(n)

    def _log_density(self, value: Tensor) -> Tensor:
        power = 0.5 * (self.df - self._event_shape[0] - 1)
        trace = (self.precision_matrix * value).sum((-2, -1))
        return power * linalg.slogdet(value)[1] - 0.5 * trace - self._log_normalizer_of()

    def entropy(self) -> Tensor:
        n = self._event_shape[0]
        log_det = self._degrees().digamma().sum(-1) + n * math.log(2) + 2 * half_log_det(self.scale_tril)
        return self._log_normalizer_of() - 0.5 * (self.df - n - 1) * log_det + 0.5 * self.df * n
