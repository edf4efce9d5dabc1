"""Products of tensors: einsum, tensordot, chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Dict, List, Optional, Tuple

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


# -- einsum ---------------------------------------------------------------------------------------------------------


def _parse(equation: str, tensors: Sequence[Tensor]) -> Tuple[List[List[str]], List[str]]:
    """The labels of every dimension; those of '...' are numbers."""
    text = equation.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(tensors):
        raise RuntimeError(f"einsum: {equation!r} names {len(terms)} operands, got {len(tensors)}")
    labels: List[List[str]] = []
    widest = 0
    for term, t in zip(terms, tensors):
        named = len(term.replace("...", ""))
        rest = t.ndim - named
        if rest < 0 or (rest and "..." not in term):
            raise RuntimeError(f"einsum: {term!r} names {named} dimensions of an operand with {t.ndim}")
        before, mark, after = term.partition("...")
        if not all(c.isalpha() for c in before + after):
            raise RuntimeError(f"einsum: labels must be letters, got {term!r}")
        labels.append([*before, *(str(i) for i in range(rest, 0, -1)), *after] if mark else list(before))
        widest = max(widest, rest)
    dots = [str(i) for i in range(widest, 0, -1)]
    if arrow:
        before, mark, after = output.partition("...")
        result = [*before, *(dots if mark else []), *after]
        known = {c for names in labels for c in names}
        if len(set(result)) != len(result) or not set(result) <= known:
            raise RuntimeError(f"einsum: the result {output!r} must name labels of the operands, each once")
    else:
        counts: Dict[str, int] = {}
        for c in (c for names in labels for c in names):
            counts[c] = counts.get(c, 0) + 1
        result = dots + sorted(c for c, n in counts.items() if n == 1 and c.isalpha())
    return labels, result


def _sublist(args: Tuple[Any, ...]) -> Tuple[str, List[Tensor]]:
    """The other spelling: tensor, [0, 1], tensor, [1, 2], [0, 2]."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    spell = lambda dims: "".join("..." if d is Ellipsis else letters[d] for d in dims)  # noqa: E731
    pairs = [(args[i], args[i + 1]) for i in range(0, len(args) - 1, 2)]
    text = ",".join(spell(dims) for _, dims in pairs)
    if len(args) % 2:
        text += "->" + spell(args[-1])
    return text, [t for t, _ in pairs]


def _distinct(t: Tensor, labels: List[str]) -> Tuple[Tensor, List[str]]:
    """Repeated labels become diagonals."""
    labels = list(labels)
    for c in [c for i, c in enumerate(labels) if c in labels[:i]]:
        i, j = labels.index(c), len(labels) - 1 - labels[::-1].index(c)
        if t.shape[i] != t.shape[j]:
            raise RuntimeError(f"einsum: label {c!r} has sizes {t.shape[i]} and {t.shape[j]}")
        t = t.diagonal(0, i, j)
        labels = [x for k, x in enumerate(labels) if k not in (i, j)] + [c]
    return t, labels


def _sum_out(t: Tensor, labels: List[str], kept: set) -> Tuple[Tensor, List[str]]:
    gone = [d for d, c in enumerate(labels) if c not in kept]
    return (t.sum(gone), [c for c in labels if c in kept]) if gone else (t, labels)


def _contract(x: Tensor, xl: List[str], y: Tensor, yl: List[str], kept: set) -> Tuple[Tensor, List[str]]:
    """One product of matrices: labels of both that are kept are the batch, those that are not are summed."""
    one = {c for c, n in zip(xl, x.shape) if n == 1}
    two = {c for c, n in zip(yl, y.shape) if n == 1}
    drop_x, drop_y = [c for c in xl if c in one and c in yl and c not in two], [c for c in yl if c in two and c in xl and c not in one]
    x, xl = (x.squeeze([xl.index(c) for c in drop_x]), [c for c in xl if c not in drop_x]) if drop_x else (x, xl)
    y, yl = (y.squeeze([yl.index(c) for c in drop_y]), [c for c in yl if c not in drop_y]) if drop_y else (y, yl)
    x, xl = _sum_out(x, xl, kept | set(yl))
    y, yl = _sum_out(y, yl, kept | set(xl))
    batch = [c for c in xl if c in yl and c in kept]
    inner = [c for c in xl if c in yl and c not in kept]
    left, right = [c for c in xl if c not in yl], [c for c in yl if c not in xl]
    size = dict(zip(xl, x.shape))
    size.update(zip(yl, y.shape))
    for c in batch + inner:
        if x.shape[xl.index(c)] != y.shape[yl.index(c)]:
            raise RuntimeError(f"einsum: label {c!r} has sizes {x.shape[xl.index(c)]} and {y.shape[yl.index(c)]}")
    count = lambda names: _count(size, names)  # noqa: E731
    a = x.permute([xl.index(c) for c in batch + left + inner]).reshape(count(batch), count(left), count(inner))
    b = y.permute([yl.index(c) for c in batch + inner + right]).reshape(count(batch), count(inner), count(right))
    labels = batch + left + right
    product = _ops.bmm(a, b) if inner else a * b  # nothing is summed: no product of matrices, so autocast leaves it as it is
    return product.reshape([size[c] for c in labels]), labels


def _count(size: Dict[str, int], names: List[str]) -> int:
    total = 1
    for c in names:
        total *= size[c]
    return total


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
    labels, result = _parse(equation, tensors)
    pairs = [_distinct(t, names) for t, names in zip(tensors, labels)]
    last = {c: i for i, (_, names) in enumerate(pairs) for c in names}  # where each label is met for the last time
    x, xl = pairs[0]
    for i, (y, yl) in enumerate(pairs[1:], 1):
        x, xl = _contract(x, xl, y, yl, {c for c in last if last[c] > i} | set(result))
    dtype = x.dtype
    x, xl = _sum_out(x, xl, set(result))
    dtype = dtype if dtype.is_floating_point else x.dtype
    return x.to(dtype).permute([xl.index(c) for c in result]) if x.ndim else x.to(dtype)


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
