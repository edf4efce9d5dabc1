"""Linear algebra on matrices [..., rows, columns], leading dimensions being a batch. Names, arguments and results are
torch.linalg's (and so mostly NumPy's). Factorisations are LAPACK's, of float32 and float64; a GPU's matrices are brought over.

LinAlgError (a RuntimeError) where a matrix is singular, not positive definite, or not finite."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Sequence
from typing import Any, Optional, Tuple, Union

from . import _checks, _ops
from . import _creation as make
from ._C import LinAlgError, Tensor
from ._dims import broadcast_shapes
from ._events import announce
from ._finfo import finfo
from ._out import takes_out
from .autograd import Function, no_grad

__all__ = ["LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "inv_ex",
           "lstsq", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve",
           "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv", "tensorsolve", "vander", "vecdot", "vector_norm"]

multi_dot, vecdot, vander, cross = _ops.linalg_multi_dot, _ops.linalg_vecdot, _ops.linalg_vander, _ops.linalg_cross
det, slogdet, matrix_power, matrix_exp, matmul = _ops.det, _ops.slogdet, _ops.matrix_power, _ops.matrix_exp, _ops.matmul

QR = namedtuple("QR", ["Q", "R"])
Eigh = namedtuple("Eigh", ["eigenvalues", "eigenvectors"])
SVD = namedtuple("SVD", ["U", "S", "Vh"])
LeastSquares = namedtuple("LeastSquares", ["solution", "residuals", "rank", "singular_values"])
Inverse = namedtuple("Inverse", ["inverse", "info"])
Solution = namedtuple("Solution", ["result", "info"])
Factor = namedtuple("Factor", ["L", "info"])


def _square(A: Tensor, what: str) -> int:
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise RuntimeError(f"linalg.{what}: needs square matrices [..., n, n], got shape {list(A.shape)}")
    return A.shape[-1]


def _eye_like(A: Tensor) -> Tensor:
    n = A.shape[-1]
    return make.eye(n, dtype=A.dtype, device=A.device).expand(A.shape)


# -- solving ---------------------------------------------------------------------------------------------------------


def _of_batch(info: Tensor, batch: Sequence[int]) -> Tensor:
    """One number for each matrix of a batch that was repeated."""
    if list(info.shape) == list(batch):
        return info
    if not info.numel():
        return info.new_zeros(tuple(batch))
    return info[(0,) * (info.ndim - len(batch)) + tuple(slice(0, n) for n in batch)].clone()


def _solved(A: Tensor, B: Tensor, left: bool, check: bool) -> Tuple[Tensor, Tensor]:
    """X, and for each matrix of A the pivot that is 0, or 0; with ``check`` an error there."""
    n = _square(A, "solve")
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and list(B.shape) == list(A.shape[:-1]))
    if vector and not left:
        raise RuntimeError("linalg.solve: left=False goes with matrices B, not with vectors")
    if not left:
        X, info = _solved(A.transpose(-2, -1), B.transpose(-2, -1), True, check)
        return X.transpose(-2, -1), info
    right = B.unsqueeze(-1) if vector else B
    if right.shape[-2] != n:
        raise RuntimeError(f"linalg.solve: A {list(A.shape)} and B {list(B.shape)} do not fit")
    lead = list(broadcast_shapes(A.shape[:-2], right.shape[:-2]))
    X, info = _ops._solve(A.expand(*lead, n, n), right.expand(*lead, n, right.shape[-1]), check)
    return X.squeeze(-1) if vector else X, _of_batch(info, A.shape[:-2])


@takes_out
def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Optional[Tensor] = None) -> Tensor:
    """X with A X = B (X A = B when not ``left``); B [..., n, k], or vectors [..., n]. LinAlgError where A is singular."""
    return _solved(A, B, left, True)[0]


@takes_out
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out: Optional[Sequence[Tensor]] = None) -> Solution:
    """solve's X and, for each matrix, 0, or the pivot that is 0: it is singular and its X is nan. ``check_errors``: an error there."""
    return Solution(*_solved(A, B, left, check_errors))


@takes_out
def inv(A: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """The inverse. LinAlgError where A is singular."""
    return inv_ex(A, check_errors=True).inverse


@takes_out
def inv_ex(A: Tensor, *, check_errors: bool = False, out: Optional[Sequence[Tensor]] = None) -> Inverse:
    """The inverses and solve_ex's info."""
    _square(A, "inv")
    return Inverse(*_ops._solve(A, _eye_like(A), check_errors))


@takes_out
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False, out: Optional[Tensor] = None) -> Tensor:
    """solve with the ``upper`` (or lower) triangle of A alone; ``unitriangular``: its diagonal counts as ones."""
    part = A.triu() if upper else A.tril()
    if unitriangular:
        eye = _eye_like(A)
        part = part - part * eye + eye
    return solve(part, B, left=left)


@takes_out
def lstsq(A: Tensor, B: Tensor, rcond: Optional[float] = None, *, driver: Optional[str] = None,
          out: Optional[Sequence[Tensor]] = None) -> LeastSquares:
    """X that makes |A X - B| smallest, of the smallest norm; residuals where A has full rank and more rows than columns."""
    if A.ndim < 2 or B.ndim < 1:
        raise RuntimeError(f"linalg.lstsq: needs matrices A and matrices or vectors B, got shapes {list(A.shape)} and {list(B.shape)}")
    if driver not in (None, "gelsy", "gels", "gelsd", "gelss"):
        raise RuntimeError(f"linalg.lstsq: `driver` must be gels, gelsy, gelsd or gelss, got {driver!r}")
    if A.dtype != B.dtype:
        raise RuntimeError(f"linalg.lstsq: A and B must have the same dtype, got {A.dtype} and {B.dtype}")
    vector = B.ndim == A.ndim - 1
    right = B.unsqueeze(-1) if vector else B
    if right.ndim < 2 or right.shape[-2] != A.shape[-2]:
        raise RuntimeError(f"linalg.lstsq: A {list(A.shape)} and B {list(B.shape)} do not fit")
    room = finfo(A.dtype).eps * max(A.shape[-2:]) if rcond is None else rcond
    X = pinv(A, rtol=room) @ right
    m, n = A.shape[-2:]
    values = svdvals(A.detach())
    rank = (values > room * values[..., :1]).sum(-1)
    off = ((A @ X - right) ** 2).sum(-2) if m > n and bool((rank == n).all()) else X.reshape(-1)[:0]
    return LeastSquares(X.squeeze(-1) if vector else X, off, rank if driver != "gels" else rank.new_zeros((0,)),
                        values if driver in ("gelsd", "gelss") else values.new_zeros((0,)))


# -- factorisations -------------------------------------------------------------------------------------------------------


@takes_out
def cholesky(A: Tensor, *, upper: bool = False, out: Optional[Tensor] = None) -> Tensor:
    """L with A = L L^T (or its transpose). LinAlgError where A is not positive definite."""
    return cholesky_ex(A, upper=upper, check_errors=True).L


@takes_out
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False, out: Optional[Sequence[Tensor]] = None) -> Factor:
    """cholesky's L and, for each matrix, 0, or the order of the leading minor that is not positive definite: its L is nan.
    ``check_errors``: an error there."""
    _square(A, "cholesky")
    L, info = _ops._cholesky(A.transpose(-2, -1) if upper else A, check_errors)
    return Factor(L.transpose(-2, -1) if upper else L, info)


@takes_out
def qr(A: Tensor, mode: str = "reduced", *, out: Optional[Sequence[Tensor]] = None) -> QR:
    """A = Q R. ``mode``: 'reduced', 'complete' (Q square) or 'r' (Q empty)."""
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"linalg.qr: `mode` must be reduced, complete or r, got {mode!r}")
    m, n = A.shape[-2:]
    if mode == "complete" and m > n:
        wide = _ops.cat([A, _ops.cat([A.new_zeros((*A.shape[:-2], n, m - n)), make.eye(m - n, dtype=A.dtype, device=A.device).expand(
            *A.shape[:-2], m - n, m - n)], -2)], -1)
        Q, R = _ops._qr(wide)
        return QR(Q, R[..., :n])
    Q, R = _ops._qr(A)
    return QR(A.new_zeros((0,)) if mode == "r" else Q, R)


def _triangle(A: Tensor, UPLO: str) -> Tensor:
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"linalg.eigh: `UPLO` must be 'L' or 'U', got {UPLO!r}")
    return A.transpose(-2, -1) if UPLO.upper() == "U" else A


@takes_out
def eigh(A: Tensor, UPLO: str = "L", *, out: Optional[Sequence[Tensor]] = None) -> Eigh:
    """Eigenvalues, ascending, and eigenvectors (columns) of symmetric matrices, of which one triangle is read."""
    _square(A, "eigh")
    return Eigh(*_ops._eigh(_triangle(A, UPLO)))


@takes_out
def eigvalsh(A: Tensor, UPLO: str = "L", *, out: Optional[Tensor] = None) -> Tensor:
    """eigh's eigenvalues."""
    return eigh(A, UPLO).eigenvalues


def eig(A: Tensor) -> Any:
    """NotImplementedError: its results are complex."""
    raise NotImplementedError("linalg.eig: there are no complex tensors; for symmetric matrices use eigh")


def eigvals(A: Tensor) -> Any:
    """NotImplementedError: its results are complex."""
    raise NotImplementedError("linalg.eigvals: there are no complex tensors; for symmetric matrices use eigvalsh")


def _check_driver(A: Tensor, driver: Optional[str]) -> None:
    """There is one way, LAPACK's gesdd. torch has a choice on a GPU alone, and refuses one elsewhere."""
    if driver is not None and (not A.is_cuda or driver not in ("gesvd", "gesvdj", "gesvda")):
        raise RuntimeError(f"linalg.svd: `driver` must be None, or for a GPU's matrices gesvd, gesvdj or gesvda, got {driver!r}")


@takes_out
def svd(A: Tensor, full_matrices: bool = True, *, driver: Optional[str] = None, out: Optional[Sequence[Tensor]] = None) -> SVD:
    """A = U diag(S) Vh, S descending; ``full_matrices`` completes U and Vh to square ones (without gradients for what is added)."""
    _check_driver(A, driver)
    U, S, Vh = _ops._svd(A)
    if not full_matrices:
        return SVD(U, S, Vh)
    return SVD(_completed(U), S, _completed(Vh.transpose(-2, -1)).transpose(-2, -1))


def _completed(Q: Tensor) -> Tensor:
    """Orthonormal columns, with more of them to make it square."""
    m, k = Q.shape[-2:]
    if m == k:
        return Q
    with no_grad():
        rest = qr(Q.detach(), "complete").Q[..., k:]
    return _ops.cat([Q, rest], -1)


@takes_out
def svdvals(A: Tensor, *, driver: Optional[str] = None, out: Optional[Tensor] = None) -> Tensor:
    """svd's S."""
    _check_driver(A, driver)
    return _ops._svd(A)[1]


_Room = Union[float, Tensor, None]


def _cut(A: Tensor, S: Tensor, atol: _Room, rtol: _Room) -> Tensor:
    """What singular values must exceed to count: max(atol, rtol * the largest), either a number or one for each matrix. Without both,
    rtol is the dtype's eps times the larger size; so it is too beside an atol of 0."""
    own_rtol = finfo(A.dtype).eps * max(A.shape[-2:])
    if rtol is None:
        none = make.zeros_like(atol) if isinstance(atol, Tensor) else 0.0
        rtol = own_rtol if atol is None else _ops.where(atol > 0, none, own_rtol) if isinstance(atol, Tensor) else 0.0 if atol > 0 else own_rtol
    least, room = (r.unsqueeze(-1) if isinstance(r, Tensor) else r for r in (0.0 if atol is None else atol, rtol))
    relative = S.amax(-1, True) * room if S.shape[-1] else S[..., :1]
    return _ops.maximum(relative, least) if isinstance(least, Tensor) else relative.clamp(min=least)


@takes_out
def pinv(A: Tensor, rcond: _Room = None, hermitian: bool = False, *, atol: _Room = None, rtol: _Room = None, out: Optional[Tensor] = None) -> Tensor:
    """Moore and Penrose's inverse: singular values up to max(atol, rtol * the largest) count as 0; ``rcond`` is rtol's old name."""
    return _PseudoInverse.apply(A, hermitian, atol, rcond if rtol is None else rtol)


def _pseudo_inverse(A: Tensor, hermitian: bool, atol: _Room, rtol: _Room) -> Tensor:
    if hermitian:
        S, V = eigh(A)
        U, sizes = V, S.abs()
    else:
        U, S, Vh = _ops._svd(A)
        V, sizes = Vh.transpose(-2, -1), S
    some = _cut(A, sizes, atol, rtol) < sizes
    inverse = _ops.where(some, _ops.where(some, S, 1.0).reciprocal(), 0.0)
    return (V * inverse.unsqueeze(-2)) @ U.transpose(-2, -1)


class _PseudoInverse(Function):
    """Its gradient (Golub and Pereyra 1973) needs no differences of singular values, which may be equal, or 0."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, hermitian: bool, atol: _Room, rtol: _Room) -> Tensor:
        P = _pseudo_inverse(A, hermitian, atol, rtol)
        ctx.save_for_backward(A, P)
        return P

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tuple[Optional[Tensor], ...]:
        A, P = ctx.saved_tensors
        gt, Pt = g.transpose(-2, -1), P.transpose(-2, -1)
        rows, columns = gt @ P @ Pt, Pt @ P @ gt
        rows, columns = rows - A @ (P @ rows), columns - columns @ P @ A
        return rows + columns - Pt @ g @ Pt, None, None, None


@takes_out
def matrix_rank(A: Tensor, tol: _Room = None, hermitian: bool = False, *, atol: _Room = None, rtol: _Room = None,
                out: Optional[Tensor] = None) -> Tensor:
    """How many singular values are above max(atol, rtol * the largest); ``tol`` is an atol that stands alone."""
    S = eigvalsh(A.detach()).abs() if hermitian else svdvals(A.detach())
    return (_cut(A, S, atol if tol is None else tol, 0.0 if tol is not None else rtol) < S).sum(-1)


# -- powers, norms -----------------------------------------------------------------------------------------------------------


_Dim = Union[int, Sequence[int], None]


@takes_out
def vector_norm(x: Tensor, ord: float = 2, dim: _Dim = None, keepdim: bool = False, *, dtype: Any = None, out: Optional[Tensor] = None) -> Tensor:
    """The p-norm over ``dim`` (all when None). float32 under autocast."""
    announce.norm_taken(x)
    return _ops._norm(x, ord, dim, keepdim, dtype=dtype)


@takes_out
def matrix_norm(A: Tensor, ord: Any = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, *, dtype: Any = None,
                out: Optional[Tensor] = None) -> Tensor:
    """A norm of matrices, in float32 under autocast.

    ``ord`` is 'fro', 'nuc' (the sum of singular values), 2 or -2 (the largest or smallest singular value), 1 or -1 (the largest or smallest
    column sum), inf or -inf (the largest or smallest row sum)."""
    if A.ndim < 2:
        raise RuntimeError(f"linalg.matrix_norm: needs at least 2 dimensions, got {A.ndim}")
    if not isinstance(ord, (str, int, float)):
        raise TypeError(f"linalg.matrix_norm: `ord` must be a string or a number, got {type(ord).__name__}")
    if ord not in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        raise RuntimeError(f"linalg.matrix_norm: `ord` must be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, got {ord!r}")
    rows, cols = (d % A.ndim for d in dim)
    if rows == cols:
        raise RuntimeError(f"linalg.matrix_norm: dims must differ, got {list(dim)}")
    if ord == "fro":
        return _ops._norm(A, 2, [rows, cols], keepdim, dtype=dtype)
    x = _ops._autocast_wide(A) if dtype is None else A.to(dtype)
    if ord in ("nuc", 2, -2):
        S = svdvals(x.movedim((rows, cols), (-2, -1)))
        y = S.sum(-1) if ord == "nuc" else S.amax([-1]) if ord == 2 else S.amin([-1])
    else:
        assert not isinstance(ord, str)  # those were above
        lines, over = (rows, cols) if abs(ord) == 1 else (cols, rows)
        total = x.abs().sum(lines, True)
        y = (total.amax([over], True) if ord > 0 else total.amin([over], True)).squeeze([rows, cols])
    if not keepdim:
        return y
    for d in sorted((rows, cols)):
        y = y.unsqueeze(d)
    return y


@takes_out
def norm(A: Tensor, ord: Any = None, dim: _Dim = None, keepdim: bool = False, *, dtype: Any = None, out: Optional[Tensor] = None) -> Tensor:
    """vector_norm, or matrix_norm where two dimensions (or a matrix and an ``ord``) are given."""
    if dim is None and ord is not None and A.ndim == 2:
        return matrix_norm(A, ord, (0, 1), keepdim, dtype=dtype)
    if ord is not None and not isinstance(dim, int) and dim is not None and len(dim) == 2:
        return matrix_norm(A, ord, dim, keepdim, dtype=dtype)
    if ord is not None and isinstance(ord, str):
        return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)  # type: ignore[arg-type]
    if ord is not None and dim is None and A.ndim != 1:
        raise RuntimeError(f"linalg.norm: without `dim`, an `ord` goes with 1 or 2 dimensions, got {A.ndim}")
    return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


@takes_out
def cond(A: Tensor, p: Any = None, *, out: Optional[Tensor] = None) -> Tensor:
    """The norm of A times that of its inverse; of singular values' ratio for None, 2 and -2."""
    if p in (None, 2, -2):
        S = svdvals(A)
        return S[..., 0] / S[..., -1] if p != -2 else S[..., -1] / S[..., 0]
    return matrix_norm(A, p) * matrix_norm(inv(A), p)


# -- the rest ------------------------------------------------------------------------------------------------------------------


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Diagonals of matrices, a view."""
    return A.diagonal(offset, dim1, dim2)


@takes_out
def tensorinv(A: Tensor, ind: int = 2, *, out: Optional[Tensor] = None) -> Tensor:
    """The inverse of A seen as a matrix whose rows are its first ``ind`` dimensions."""
    n = math.prod(A.shape[:ind])
    return inv(A.reshape(n, -1)).reshape(*A.shape[ind:], *A.shape[:ind])


@takes_out
def tensorsolve(A: Tensor, B: Tensor, dims: Optional[Sequence[int]] = None, *, out: Optional[Tensor] = None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B."""
    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    shape = A.shape[B.ndim:]
    return solve(A.reshape(B.numel(), -1), B.reshape(-1)).reshape(shape)


@takes_out
def old_svd(input: Tensor, some: bool = True, compute_uv: bool = True, *, out: Optional[Sequence[Tensor]] = None) -> Tuple[Tensor, Tensor, Tensor]:
    """torch.svd: (U, S, V), V not transposed; zeros in place of U and V without ``compute_uv``."""
    if not compute_uv:
        m, n = input.shape[-2:]
        zeros = [input.new_zeros((*input.shape[:-2], size, size)) for size in (m, n)]
        return zeros[0], svdvals(input), zeros[1]
    U, S, Vh = svd(input, not some)
    return U, S, Vh.transpose(-2, -1)


def _near_range(A: Tensor, q: int, niter: int) -> Tensor:
    """q orthonormal columns whose span nearly holds what A makes of any vector (Halko, Martinsson and Tropp 2011, algorithm 4.4)."""
    Q = qr(A @ make.randn(A.shape[-1], q, dtype=A.dtype, device=A.device)).Q
    for _ in range(niter):
        Q = qr(A @ qr(A.transpose(-2, -1) @ Q).Q).Q
    return Q


def svd_lowrank(A: Tensor, q: Optional[int] = 6, niter: Optional[int] = 2, M: Optional[Tensor] = None) -> Tuple[Tensor, Tensor, Tensor]:
    """(U, S, V) of about the ``q`` largest singular values of A (less M): those of A seen from q random directions, which ``niter`` products
    with A and its transpose turn towards the largest."""
    q, A = 6 if q is None else q, A if M is None else A - M
    if A.shape[-2] < A.shape[-1]:
        U, S, V = svd_lowrank(A.transpose(-2, -1), q, niter)
        return V, S, U
    Q = _near_range(A, q, 2 if niter is None else niter)
    U, S, Vh = svd(Q.transpose(-2, -1) @ A, False)
    return Q @ U, S, Vh.transpose(-2, -1)


def pca_lowrank(A: Tensor, q: Optional[int] = None, center: bool = True, niter: int = 2) -> Tuple[Tensor, Tensor, Tensor]:
    """svd_lowrank of observations, the rows: the columns of V are the ``q`` principal directions. ``center``: less the columns' means."""
    q = min(6, *A.shape[-2:]) if q is None else q
    if not 0 <= q <= min(A.shape[-2:]):
        raise ValueError(f"pca_lowrank: `q` must be between 0 and the smaller size of {list(A.shape)}, got {q}")
    if niter < 0:
        raise ValueError(f"pca_lowrank: `niter` must be 0 or more, got {niter}")
    return svd_lowrank(A - A.mean(-2, True) if center else A, q, niter)


for _name, _function in {
    "inverse": inv, "svd": old_svd,
    "cholesky": lambda self, upper=False: cholesky(self, upper=upper),
    "qr": lambda self, some=True: qr(self, "reduced" if some else "complete"),
    "pinverse": lambda self, rcond=1e-15: pinv(self, rtol=rcond),
}.items():
    setattr(Tensor, _name, _function)


_checks.install(globals())
