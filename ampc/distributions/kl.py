"""The Kullback-Leibler divergence KL(p || q) (1951)."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Tuple

from .._C import Tensor
from ..nn import functional as F
from .bernoulli import Bernoulli
from .categorical import Categorical
from .distribution import Distribution
from .normal import Normal

_FORMULAS: Dict[Tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable:
    """A decorator: the function is the divergence for these types and their subclasses. TypeError for other classes."""
    for t in (type_p, type_q):
        if not (isinstance(t, type) and issubclass(t, Distribution)):
            raise TypeError(f"register_kl: expected classes of distributions, got {t!r}")

    def keep(formula: Callable[[Any, Any], Tensor]) -> Callable:
        _FORMULAS[type_p, type_q] = formula
        return formula

    return keep


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q), of shape ``batch_shape``. NotImplementedError for a pair without a formula; the closest classes decide."""
    fits = [(type(p).__mro__.index(a) + type(q).__mro__.index(b), i, f) for i, ((a, b), f) in enumerate(_FORMULAS.items())
            if isinstance(p, a) and isinstance(q, b)]
    if not fits:
        raise NotImplementedError(f"kl_divergence: there is no formula for {type(p).__name__} and {type(q).__name__}; register_kl takes one")
    return min(fits, key=lambda fit: fit[:2])[2](p, q)


@register_kl(Normal, Normal)
def _normals(p: Normal, q: Normal) -> Tensor:
    ratio, shift = (p.scale / q.scale) ** 2, ((p.loc - q.loc) / q.scale) ** 2
    return 0.5 * (ratio + shift - 1 - ratio.log())


@register_kl(Bernoulli, Bernoulli)
def _bernoullis(p: Bernoulli, q: Bernoulli) -> Tensor:
    one = p.probs * (F.softplus(-q.logits) - F.softplus(-p.logits))
    none = (1 - p.probs) * (F.softplus(q.logits) - F.softplus(p.logits))
    one = one.masked_fill(q.probs == 0, math.inf).masked_fill(p.probs == 0, 0.0)
    return one + none.masked_fill(q.probs == 1, math.inf).masked_fill(p.probs == 1, 0.0)


@register_kl(Categorical, Categorical)
def _categoricals(p: Categorical, q: Categorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = terms.masked_fill((q.probs == 0).expand(terms.shape), math.inf).masked_fill((p.probs == 0).expand(terms.shape), 0.0)
    return terms.sum(-1)
