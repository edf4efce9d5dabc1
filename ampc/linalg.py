"""Linear algebra on matrices [..., rows, columns], leading dimensions being a batch. Names, arguments and results are
torch.linalg's (and so mostly NumPy's), with the array API's matrix_transpose, outer, tensordot and trace.
Factorisations are LAPACK's, of float32 and float64; a GPU's matrices are brought over.

LinAlgError (a RuntimeError) where a matrix is singular, not positive definite, or not finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional, Tuple, Union

from . import _ops
from ._C import LinAlgError, Tensor
from ._events import announce
from ._messages import checks as _checks
from ._names.missing import absent_from
from ._ops import adjoint as matrix_transpose
from ._ops import det, matmul, matrix_exp, matrix_power, outer, slogdet
from ._ops import inverse as inv
from ._ops import linalg_cholesky as cholesky
from ._ops import linalg_cholesky_ex as cholesky_ex
from ._ops import linalg_cond as cond
from ._ops import linalg_cross as cross
from ._ops import linalg_diagonal as diagonal
from ._ops import linalg_eigh as eigh
from ._ops import linalg_eigvalsh as eigvalsh
from ._ops import linalg_inv_ex as inv_ex
from ._ops import linalg_ldl_factor as ldl_factor
from ._ops import linalg_ldl_factor_ex as ldl_factor_ex
from ._ops import linalg_ldl_solve as ldl_solve
from ._ops import linalg_lstsq as lstsq
from ._ops import linalg_lu as lu
from ._ops import linalg_lu_factor as lu_factor
from ._ops import linalg_lu_factor_ex as lu_factor_ex
from ._ops import linalg_lu_solve as lu_solve
from ._ops import linalg_matrix_norm as matrix_norm
from ._ops import linalg_matrix_rank as matrix_rank
from ._ops import linalg_multi_dot as multi_dot
from ._ops import linalg_pinv as pinv
from ._ops import linalg_qr as qr
from ._ops import linalg_solve as solve
from ._ops import linalg_solve_ex as solve_ex
from ._ops import linalg_solve_triangular as solve_triangular
from ._ops import linalg_svd as svd
from ._ops import linalg_svdvals as svdvals
from ._ops import linalg_tensorinv as tensorinv
from ._ops import linalg_tensorsolve as tensorsolve
from ._ops import linalg_vander as vander
from ._ops import linalg_vecdot as vecdot
from ._ops import orgqr as householder_product
from ._tensor.out import written

__all__ = ["LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh",
           "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex", "ldl_solve", "lstsq", "lu", "lu_factor", "lu_factor_ex",
           "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer", "pinv",
           "qr", "slogdet", "solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace", "vander",
           "vecdot", "vector_norm"]

_Dim = Union[int, Sequence[int], None]


def vector_norm(x: Tensor, ord: float = 2, dim: _Dim = None, keepdim: bool = False, *, dtype: Any = None, out: Optional[Tensor] = None,
                axis: _Dim = None, keepdims: Optional[bool] = None) -> Tensor:
    """The p-norm over ``dim``, or ``axis`` (all when None). float32 under autocast."""
    announce.norm_taken(x)
    return _ops._norm(x, ord, dim if axis is None else axis, keepdim if keepdims is None else keepdims, dtype=dtype, out=out)


def norm(A: Tensor, ord: Any = None, dim: _Dim = None, keepdim: bool = False, *, dtype: Any = None, out: Optional[Tensor] = None,
         axis: _Dim = None, keepdims: Optional[bool] = None) -> Tensor:
    """vector_norm, or matrix_norm where two dimensions, by ``dim`` or ``axis``, (or a matrix and an ``ord``) are given."""
    announce.norm_taken(A)
    return _ops.linalg_norm(A, ord, dim if axis is None else axis, keepdim if keepdims is None else keepdims, dtype=dtype, out=out)


def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Any = None, *, axes: Any = None) -> Tensor:
    """Sums over ``dims``, or ``axes``: the last of a with the first of b when a number, or two lists of dimensions."""
    dims = dims if axes is None else axes
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


def trace(x: Tensor, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Sums of the diagonals of matrices [..., n, m], ``offset`` above the main one. The array API's; integers are summed in int64."""
    return x.diagonal(offset, -2, -1).sum(-1, dtype=dtype)


def eig(A: Tensor) -> Any:
    """NotImplementedError: its results are complex."""
    raise NotImplementedError("linalg.eig: there are no complex tensors; for symmetric matrices use eigh")


def eigvals(A: Tensor) -> Any:
    """NotImplementedError: its results are complex."""
    raise NotImplementedError("linalg.eigvals: there are no complex tensors; for symmetric matrices use eigvalsh")


def lu_with_info(A: Tensor, pivot: bool = True, get_infos: bool = False, out: Optional[Sequence[Tensor]] = None) -> Tuple[Tensor, ...]:
    """torch.lu: lu_factor of matrices that may be singular; ``get_infos``: with lu_factor_ex's info."""
    return _ops.linalg_lu_factor_ex(A, pivot=pivot, out=out) if get_infos else _ops._lu(A, pivot, out=out)


Tensor.lu = lu_with_info  # type: ignore[method-assign]

_checks.install(globals())

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
