"""Products of tensors whose arguments are words: einsum. tensordot is linalg's."""

from __future__ import annotations

from typing import Any, List, Tuple

from .. import _ops
from .._C import Tensor
from .._messages import checks as _checks
from ..linalg import tensordot as tensordot

__all__ = ["einsum", "tensordot"]
METHODS: List[str] = []


def _sublist(args: Tuple[Any, ...]) -> Tuple[str, List[Tensor]]:
    """The other spelling: tensor, [0, 1], tensor, [1, 2], [0, 2]."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    spell = lambda dims: "".join("..." if d is Ellipsis else letters[d] for d in dims)  # noqa: E731
    pairs = [(args[i], args[i + 1]) for i in range(0, len(args) - 1, 2)]
    text = ",".join(spell(dims) for _, dims in pairs)
    if len(args) % 2:
        text += "->" + spell(args[-1])
    return text, [t for t, _ in pairs]


def einsum(*args: Any) -> Tensor:
    """Sums of products by Einstein's convention: ``einsum('bij,bjk->bik', x, y)``. Under autocast
    16 bits where two operands are multiplied and summed.

    Labels are letters, '...' stands for dimensions that broadcast; without '->' the result has the labels that occur once, in
    order. RuntimeError where labels and shapes do not fit."""
    if args and isinstance(args[0], str):
        equation, tensors = args[0], list(args[1:])
        if len(tensors) == 1 and not isinstance(tensors[0], Tensor):
            tensors = list(tensors[0])
    else:
        equation, tensors = _sublist(args)
    if not tensors or not all(isinstance(t, Tensor) for t in tensors):
        raise TypeError("einsum: expected an equation and Tensors")
    return _ops._einsum(equation, tensors)


_checks.install(globals())
