"""Constraints: where parameters and values may lie. ``c.check(value)`` is true for each event that is inside; ``c.event_dim`` says how many
of the last dimensions one event has. The names and their meaning are torch.distributions.constraints'."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

from .. import linalg
from .._C import Tensor
from .._ops import cat as _joined
from .._ops import stack as _stacked
from .._tensor import creation as make
from .._tensor.finfo import finfo

__all__ = ["Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than",
           "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky",
           "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_definite",
           "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval"]


class Constraint:
    """A region. Subclasses define ``check``, and ``words``, which errors say; bounds are named in it by ``{name}``."""

    is_discrete: Any = False
    event_dim: Any = 0
    words = ""

    def check(self, value: Tensor) -> Tensor:
        """Whether each event lies inside: bool, of the value's shape without ``event_dim`` dimensions."""
        raise NotImplementedError

    def __repr__(self) -> str:
        bounds = ", ".join(f"{name}={value}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__.lstrip('_')}({bounds})"

    def describe(self) -> str:
        """What a value must be, in words."""
        values = {n: f"{v:g}" if isinstance(v, (int, float)) else str(getattr(v, "shape", v)) if isinstance(v, Tensor) and v.numel() > 1
                  else str(getattr(v, "item", lambda v=v: v)()) for n, v in vars(self).items()}
        return self.words.format(**values) if self.words else f"in {self!r}"


class _Dependent(Constraint):
    """Depends on other parameters; cannot be checked alone."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:
        if self._is_discrete is NotImplemented:
            raise NotImplementedError("is_discrete is not known without an instance")
        return self._is_discrete

    @property
    def event_dim(self) -> int:
        if self._event_dim is NotImplemented:
            raise NotImplementedError("event_dim is not known without an instance")
        return self._event_dim

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        """The same with these facts known."""
        return _Dependent(is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
                          event_dim=self._event_dim if event_dim is NotImplemented else event_dim)

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("a constraint that depends on other parameters cannot be checked alone")


class dependent_property(property, _Dependent):
    """A property that gives a constraint by other parameters, and says on the class what is known of it; a decorator, also with arguments."""

    def __init__(self, fn: Optional[Callable] = None, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        property.__init__(self, fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable) -> dependent_property:  # type: ignore[override]
        return dependent_property(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class independent(Constraint):
    """``base_constraint`` with its last batch dimensions taken as part of the event."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim + self.reinterpreted_batch_ndims)

    def check(self, value: Tensor) -> Tensor:
        inner, n = self.base_constraint.check(value), self.reinterpreted_batch_ndims
        if inner.dim() < n:
            raise ValueError(f"expected a value of {self.event_dim} dimensions or more, got {value.dim()}")
        return inner.reshape(*inner.shape[:inner.dim() - n], -1).all(-1) if n else inner

    def describe(self) -> str:
        return self.base_constraint.describe()


class MixtureSameFamilyConstraint(Constraint):
    """The region of the components of a mixture, for values that lack the dimension of components."""

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim)

    def check(self, value: Tensor) -> Tensor:
        inside = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        n = value.dim() - self.event_dim
        return inside.reshape(*inside.shape[:n], -1).all(-1)


# -- numbers --------------------------------------------------------------------------------------------------------------


class _Boolean(Constraint):
    is_discrete, words = True, "0 or 1"

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _Real(Constraint):
    words = "a number"

    def check(self, value: Tensor) -> Tensor:
        return value == value


class _Above(Constraint):
    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class _Below(Constraint):
    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound


class _Between(Constraint):
    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class greater_than(_Above):
    """Above ``lower_bound``."""

    words = "greater than {lower_bound}"

    def check(self, value: Tensor) -> Tensor:
        return value > self.lower_bound


class greater_than_eq(_Above):
    """``lower_bound`` or more."""

    words = "at least {lower_bound}"

    def check(self, value: Tensor) -> Tensor:
        return value >= self.lower_bound


class less_than(_Below):
    """Below ``upper_bound``."""

    words = "less than {upper_bound}"

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound


class interval(_Between):
    """Both bounds belong to it."""

    words = "in [{lower_bound}, {upper_bound}]"

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value <= self.upper_bound)


class half_open_interval(_Between):
    """The upper bound does not belong to it."""

    words = "in [{lower_bound}, {upper_bound})"

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value < self.upper_bound)


class integer_interval(_Between):
    """Whole numbers from ``lower_bound`` to ``upper_bound``."""

    is_discrete, words = True, "a whole number in [{lower_bound}, {upper_bound}]"

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound) & (value <= self.upper_bound)


class _WholeAbove(_Above):
    is_discrete, words = True, "a whole number, at least {lower_bound}"

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound)


# -- vectors and matrices -----------------------------------------------------------------------------------------------


def _nearly(value: Tensor, wanted: Any) -> Tensor:
    """Within what a sum of values in their dtype may miss."""
    rounding = float(finfo(value.dtype).eps) if value.is_floating_point() else 0.0
    return (value - wanted).abs() < max(1e-6, 8 * rounding)


class _Simplex(Constraint):
    event_dim, words = 1, "at least 0, with a positive sum of 1"

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & _nearly(value.sum(-1), 1)


class _OneHot(Constraint):
    is_discrete, event_dim, words = True, 1, "a single 1 among zeros"

    def check(self, value: Tensor) -> Tensor:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class multinomial(_Below):
    """Counts [..., K] that add up to ``upper_bound``, or to less, as scripts pad them."""

    is_discrete, event_dim, words = True, 1, "counts that add up to {upper_bound}"

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _Square(Constraint):
    event_dim, words = 2, "a square matrix"

    def check(self, value: Tensor) -> Tensor:
        return make.full(value.shape[:-2], value.shape[-1] == value.shape[-2], dtype=(value == value).dtype, device=value.device)


class _LowerTriangular(_Square):
    words = "a lower triangle"

    def check(self, value: Tensor) -> Tensor:
        return _every(value.tril() == value)


class _LowerCholesky(_LowerTriangular):
    words = "a lower triangle with a positive diagonal"

    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    words = "the Cholesky factor of a correlation matrix"

    def check(self, value: Tensor) -> Tensor:
        slack = 10 * value.shape[-1] * float(finfo(value.dtype).eps)
        return super().check(value) & ((linalg.vector_norm(value, dim=-1) - 1).abs() < slack).all(-1)


class _Symmetric(_Square):
    words = "a symmetric matrix"

    def check(self, value: Tensor) -> Tensor:
        square = super().check(value)
        return square & _every(value.isclose(value.mT, atol=1e-6)) if bool(square.all()) else square


class _Semidefinite(_Symmetric):
    words = "a positive semidefinite matrix"

    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        return symmetric & (linalg.eigvalsh(value) >= 0).all(-1) if bool(symmetric.all()) else symmetric


class _Definite(_Symmetric):
    words = "a positive definite matrix"

    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        return symmetric & (linalg.cholesky_ex(value)[1] == 0) if bool(symmetric.all()) else symmetric


def _every(inside: Tensor) -> Tensor:
    return inside.reshape(*inside.shape[:-2], -1).all(-1)


# -- parts ------------------------------------------------------------------------------------------------------------


class cat(Constraint):
    """Parts of a value along ``dim``, ``lengths`` long (1 each when None), each with a constraint of its own."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Optional[Sequence[int]] = None) -> None:
        self.cseq, self.dim = list(cseq), dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)

    is_discrete = property(lambda self: any(c.is_discrete for c in self.cseq))
    event_dim = property(lambda self: max(c.event_dim for c in self.cseq))

    def check(self, value: Tensor) -> Tensor:
        return _joined([c.check(v) for c, v in zip(self.cseq, value.split(self.lengths, self.dim))], self.dim)


class stack(Constraint):
    """Slices of a value along ``dim``, each with a constraint of its own."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq, self.dim = list(cseq), dim

    is_discrete = property(lambda self: any(c.is_discrete for c in self.cseq))

    @property
    def event_dim(self) -> int:
        n = max(c.event_dim for c in self.cseq)
        return n + 1 if self.dim + n < 0 else n

    def check(self, value: Tensor) -> Tensor:
        return _stacked([c.check(value.select(self.dim, i)) for i, c in enumerate(self.cseq)], self.dim)


def is_dependent(constraint: Constraint) -> bool:
    """Whether it depends on other parameters, so that it cannot be checked alone."""
    return isinstance(constraint, _Dependent)


dependent = _Dependent()
boolean, one_hot, real = _Boolean(), _OneHot(), _Real()
real_vector = independent(real, 1)
nonnegative_integer, positive_integer = _WholeAbove(0), _WholeAbove(1)
positive, nonnegative, unit_interval = greater_than(0.0), greater_than_eq(0.0), interval(0.0, 1.0)
simplex, square, symmetric = _Simplex(), _Square(), _Symmetric()
lower_triangular, lower_cholesky, corr_cholesky = _LowerTriangular(), _LowerCholesky(), _CorrCholesky()
positive_semidefinite, positive_definite = _Semidefinite(), _Definite()

# torch's names of the classes, which libraries ask about
_IndependentConstraint, _DependentProperty, _IntegerInterval, _IntegerGreaterThan = independent, dependent_property, integer_interval, _WholeAbove
_GreaterThan, _GreaterThanEq, _LessThan, _Interval, _HalfOpenInterval = greater_than, greater_than_eq, less_than, interval, half_open_interval
_Multinomial, _PositiveSemidefinite, _PositiveDefinite, _Cat, _Stack = multinomial, _Semidefinite, _Definite, cat, stack
