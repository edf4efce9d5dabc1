"""Parameters that are given to a function: a list of them, or words about what came in their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, List

from .._C import Tensor


def listed(given: Any, call: str) -> List[Tensor]:
    """A Tensor, or an iterable of them, as a list. TypeError, in the name of ``call``, for anything else."""
    if isinstance(given, Tensor):
        return [given]
    every = list(given) if isinstance(given, Iterable) and not isinstance(given, (str, Mapping)) else [given]
    for p in every:
        if not isinstance(p, Tensor):
            raise TypeError(f"{call}: expected a Tensor or an iterable of Tensors, got {_shown(given, p)}")
    return every


def _shown(given: Any, p: Any) -> str:
    """What came, ``p`` being what is no Tensor there, and what to write."""
    kind = type(given).__name__
    if isinstance(given, Mapping):
        return f"a {kind}; pass its values()"
    if p is given:
        return f"{kind}; pass its parameters()" if hasattr(given, "parameters") else f"{kind}; pass model.parameters()"
    if isinstance(p, tuple) and len(p) == 2 and isinstance(p[1], Tensor):
        return "pairs with names, as of named_parameters(); pass parameters()"
    return f"a {type(p).__name__} among them; pass model.parameters()"
