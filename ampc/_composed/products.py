"""Products of tensors: einsum, tensordot, chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, List, Optional, Tuple

from .. import _checks, _ops
from .._C import Tensor
from .._out import takes_out, written
from ..linalg import inv, solve, solve_triangular

__all__ = ["cholesky_inverse", "cholesky_solve", "einsum", "tensordot", "triangular_solve"]
METHODS = ["cholesky_inverse", "cholesky_solve", "triangular_solve"]


def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Any = None) -> Tensor:
    """Sums over ``dims``: the last of a with the first of b when a number, or two lists of dimensions."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0 or dims > min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot: `dims` must be from 0 to {min(a.ndim, b.ndim)}, got {dims}")
        left, right = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    else:
        left, right = ([d] if isinstance(d, int) else list(d) for d in dims)
    y = _ops._tensordot(a, b, left, right)
    return written(y, out, "tensordot")


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
        equation, tensors = args[0], args[1:]
        if len(tensors) == 1 and not isinstance(tensors[0], Tensor):
            tensors = tuple(tensors[0])
    else:
        equation, tensors = _sublist(args)
    if not tensors or not all(isinstance(t, Tensor) for t in tensors):
        raise TypeError("einsum: expected an equation and Tensors")
    return _ops._einsum(equation, tensors)


def _lower(factor: Tensor, upper: bool) -> Tensor:
    """A Cholesky factor as a lower triangle. Its gradient is that of the whole matrix, as in torch."""
    low = factor.transpose(-2, -1) if upper else factor
    triangle = low.detach().tril()
    return triangle + (low - low.detach()).nan_to_num(0.0, 0.0, 0.0) if low.requires_grad else triangle


@takes_out
def cholesky_inverse(input: Tensor, upper: bool = False, *, out: Optional[Tensor] = None) -> Tensor:
    """The inverse of the matrix whose Cholesky factor this is."""
    L = _lower(input, upper)
    return inv(L @ L.transpose(-2, -1))


@takes_out
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False, *, out: Optional[Tensor] = None) -> Tensor:
    """X with A X = B, of the matrix A whose Cholesky factor is L."""
    if B.ndim < 2 or L.ndim < 2:
        raise RuntimeError(f"cholesky_solve: needs matrices, got {B.ndim} and {L.ndim} dimensions")
    low = _lower(L, upper)
    return solve(low.transpose(-2, -1), solve(low, B))


@takes_out
def triangular_solve(b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False, *,
                     out: Optional[Sequence[Tensor]] = None) -> Tuple[Tensor, Tensor]:
    """(X, A) with A X = b of a triangle of A."""
    part = A.triu() if upper else A.tril()
    X = solve_triangular(part.transpose(-2, -1) if transpose else part, b, upper=upper != transpose, unitriangular=unitriangular)
    return X, A.clone()


_checks.install(globals())
