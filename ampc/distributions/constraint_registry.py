"""Transforms from unconstrained numbers to constraints: ``biject_to(c)`` is a bijection, ``transform_to(c)`` may give one value from many,
which suits optimizers better. The names and their meaning are torch.distributions.constraint_registry's."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from . import constraints as c
from . import transforms as t
from .constraints import Constraint

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

Factory = Callable[[Any], t.Transform]


class ConstraintRegistry:
    """Which transform leads to a constraint, by the constraint's type."""

    def __init__(self) -> None:
        self._registry: Dict[type, Factory] = {}

    def register(self, constraint: Any, factory: Optional[Factory] = None) -> Any:
        """``factory(constraint)`` makes the transform for a type of constraints (or that of an instance); without it a decorator. TypeError for
        what is no constraint."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, Constraint)):
            raise TypeError(f"register: expected a constraint or a type of constraints, got {constraint!r}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> t.Transform:
        """The transform to ``constraint``. NotImplementedError where none is registered."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"no transform to {type(constraint).__name__} is registered")
        return factory(constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _to_interval(constraint: Any) -> t.Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    unit = isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1)
    return t.SigmoidTransform() if unit else t.ComposeTransform([t.SigmoidTransform(), t.AffineTransform(low, high - low)])


_EVERYWHERE: Dict[Any, Factory] = {
    c.real: lambda _: t.ComposeTransform([]),
    c.positive: lambda k: t.ComposeTransform([t.ExpTransform(), t.AffineTransform(k.lower_bound, 1)]),
    c.nonnegative: lambda k: t.ComposeTransform([t.ExpTransform(), t.AffineTransform(k.lower_bound, 1)]),
    c.less_than: lambda k: t.ComposeTransform([t.ExpTransform(), t.AffineTransform(k.upper_bound, -1)]),
    c.interval: _to_interval, c.half_open_interval: _to_interval, c.corr_cholesky: lambda _: t.CorrCholeskyTransform(),
}
for _constraint, _factory in _EVERYWHERE.items():
    biject_to.register(_constraint, _factory), transform_to.register(_constraint, _factory)


def _join(to: ConstraintRegistry) -> None:
    """Constraints that are made of others."""
    to.register(c.independent, lambda k: t.IndependentTransform(to(k.base_constraint), k.reinterpreted_batch_ndims))
    to.register(c.cat, lambda k: t.CatTransform([to(part) for part in k.cseq], k.dim, k.lengths))
    to.register(c.stack, lambda k: t.StackTransform([to(part) for part in k.cseq], k.dim))


for _registry in (biject_to, transform_to):
    _join(_registry)
biject_to.register(c.simplex, lambda _: t.StickBreakingTransform())
transform_to.register(c.simplex, lambda _: t.SoftmaxTransform())
transform_to.register(c.lower_cholesky, lambda _: t.LowerCholeskyTransform())
for _constraint in (c.positive_definite, c.positive_semidefinite):
    transform_to.register(_constraint, lambda _: t.PositiveDefiniteTransform())
