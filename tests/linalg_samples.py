"""Samples of equations, factorisations and norms of matrices, which are of float32 and float64: see samples.py."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
from references import linalg, real, solid, symmetric
from sample import Sample


def L(name: str) -> Callable[..., Any]:
    """torch.linalg's function, looked up when torch is there."""
    return lambda *args, **kwargs: linalg(name)(*args, **kwargs)


def wide(*args: Any, torch: Any = "", **more: Any) -> Sample:
    """Of float32 and float64; ``more`` are a Sample's fields, or arguments of the function."""
    fields = {k: more.pop(k) for k in ("reference", "grad", "frozen", "torch_grad") if k in more}
    return Sample(args, more, torch=torch, half=False, **fields)


def factors(m: int, n: int) -> tuple:
    """An L with a diagonal of ones and a U as one matrix, and exchanges of rows."""
    return real(m, n) + 2 * np.eye(m, n), np.array([2, 2, 3][:min(m, n)], dtype=np.int32)


ANY, SQUARE, LOW = real(2, 4, 3), solid(2, 3), np.outer([1.0, 2, 3], [1.0, 0, 2]) + np.diag([0, 0, 1e-9])
LINALG = {
    # -- kernels
    "solve_triangle": [wide(SQUARE, real(2, 3, 2), up, unit, torch=lambda a, b, up, unit: linalg("solve_triangular")(a, b, upper=up, unitriangular=unit))
                       for up in (False, True) for unit in (False, True)],
    "lu_factor": [wide(x, torch=lambda a: tuple(linalg("lu_factor_ex")(a))) for x in (SQUARE, ANY, real(3, 5))] + [wide(np.ones((2, 2)), False, torch=None, grad=False)],
    "row_order": [wide(np.array([[3, 3, 3], [1, 3, 3]], dtype=np.int32), 4, reference=lambda p, n: np.array([[2, 0, 1, 3], [0, 2, 1, 3]]), torch=None)],
    "ldl_factor": [wide(symmetric(2, 3), torch=lambda a: tuple(linalg("ldl_factor_ex")(a)), grad=False)],
    "ldl_solve": [wide(np.tril(solid(3)), np.array([1, 2, 3], dtype=np.int32), real(3, 2), torch=L("ldl_solve"), grad=False)],
    "reflections": [wide(ANY, torch="geqrf", grad=False), wide(real(2, 3), torch="geqrf", grad=False)],
    "pinv_of": [wide(np.linalg.inv(solid(3)), solid(3), reference=lambda p, a: p, torch=None, grad=False)],  # its gradient is linalg_pinv's
    "inverse_of": [wide(np.linalg.inv(solid(3)), solid(3), reference=lambda x, a: x, torch=None, grad=False)],  # its gradient is linalg_inv's
    # -- equations
    "linalg_solve": [wide(SQUARE, real(2, 3, 2), torch=L("solve"), reference=np.linalg.solve), wide(SQUARE, real(4, 3), left=False, torch=L("solve")), wide(solid(3), real(3), torch=L("solve"))],
    "linalg_solve_ex": [wide(SQUARE, real(3, 2), torch=L("solve_ex"))],
    "inverse": [wide(SQUARE, reference=np.linalg.inv)],
    "linalg_inv_ex": [wide(SQUARE, torch=L("inv_ex"))],
    "linalg_solve_triangular": [wide(solid(3), real(2, 3, 2), upper=True, torch=L("solve_triangular")), wide(SQUARE, real(4, 3), upper=False, left=False, torch=L("solve_triangular"))],
    "linalg_lstsq": [wide(real(2, 4, 2), real(2, 4, 3), driver="gelsd", torch=L("lstsq"), grad=False), wide(real(2, 4, 2), real(2, 4, 3), driver="gels", torch=L("lstsq")), wide(real(2, 4), real(2), torch=L("lstsq"))],
    "linalg_tensorinv": [wide(real(2, 3, 6) + 2 * np.eye(6).reshape(2, 3, 6), torch=L("tensorinv"), reference=np.linalg.tensorinv)],
    "linalg_tensorsolve": [wide(real(2, 3, 6) + 2 * np.eye(6).reshape(2, 3, 6), real(2, 3), torch=L("tensorsolve"), reference=np.linalg.tensorsolve)],
    # -- factorisations
    "linalg_cholesky": [wide(symmetric(2, 3), torch=L("cholesky"), frozen=(0,)), wide(symmetric(3), upper=True, torch=L("cholesky"), frozen=(0,))],
    "linalg_cholesky_ex": [wide(symmetric(2, 3), torch=L("cholesky_ex"), frozen=(0,))],
    "cholesky_old": [wide(symmetric(3), True, frozen=(0,))],
    "linalg_qr": [wide(ANY, torch=L("qr")), wide(real(2, 4), "complete", torch=L("qr")), wide(real(4, 2), "complete", torch=None), wide(ANY, "r", torch=L("qr"), torch_grad=False)],
    "qr_old": [wide(ANY), wide(real(2, 4), False)],
    "linalg_eigh": [wide(symmetric(2, 3), torch=None, frozen=(0,))],
    "linalg_eigvalsh": [wide(symmetric(2, 3), "U", torch=L("eigvalsh"), frozen=(0,))],
    "linalg_svd": [wide(ANY, False, torch=None), wide(real(2, 4), torch=None, grad=False)],
    "linalg_svdvals": [wide(ANY, torch=L("svdvals"), reference=lambda x: np.linalg.svd(x, compute_uv=False))],
    "svd_old": [wide(real(4, 3), torch=None), wide(ANY, compute_uv=False)],
    "linalg_lu": [wide(SQUARE, torch=L("lu")), wide(ANY, torch=L("lu")), wide(real(2, 4), torch=L("lu"))],
    "linalg_lu_factor": [wide(SQUARE, torch=L("lu_factor"))],
    "lu_old": [wide(ANY, torch="lu")],
    "linalg_lu_factor_ex": [wide(ANY, torch=L("lu_factor_ex"))],
    "lu_unpack": [wide(*factors(3, 3)), wide(*factors(4, 3), unpack_pivots=False), wide(*factors(3, 4), unpack_data=False, grad=False)],
    "linalg_lu_solve": [wide(*factors(3, 3), real(2, 3, 2), adjoint=turned, torch=L("lu_solve")) for turned in (False, True)]
                       + [wide(*factors(3, 3), real(2, 3), left=False, torch=L("lu_solve"))],
    "lu_solve": [wide(real(3, 2), *factors(3, 3))],
    "linalg_ldl_factor": [wide(symmetric(2, 3), torch=L("ldl_factor"), grad=False)],
    "linalg_ldl_factor_ex": [wide(symmetric(3), torch=L("ldl_factor_ex"), grad=False)],
    "linalg_ldl_solve": [wide(np.tril(solid(3)), np.array([1, 2, 3], dtype=np.int32), real(2, 3, 2), torch=L("ldl_solve"), grad=False)],
    "geqrf": [wide(ANY, grad=False)],
    "orgqr": [wide(ANY, real(2, 3)), wide(real(4, 3), real(2))],
    "ormqr": [wide(real(4, 3), real(3), real(4, 2), left, turned) for left, turned in ((True, False), (True, True))]
             + [wide(real(4, 3), real(3), real(2, 4), left, turned) for left, turned in ((False, False), (False, True))],
    # -- what singular values tell
    "linalg_pinv": [wide(ANY, torch=L("pinv"), reference=np.linalg.pinv), wide(LOW, atol=1e-6, torch=L("pinv"), grad=False), wide(symmetric(2, 3), hermitian=True, torch=L("pinv"), frozen=(0,))],
    "pinverse": [wide(real(3, 4))],
    "linalg_matrix_rank": [wide(LOW, torch=L("matrix_rank"), grad=False), wide(LOW, 1e-6, torch=L("matrix_rank"), grad=False), wide(symmetric(2, 3), hermitian=True, torch=L("matrix_rank"), grad=False)],
    "svd_lowrank": [wide(real(4, 3), 2, torch=None, grad=False)],
    "pca_lowrank": [wide(real(4, 3), 2, torch=None, grad=False)],
    "linalg_cond": [wide(SQUARE, torch=L("cond"), reference=np.linalg.cond), wide(solid(3), 1, torch=L("cond"), torch_grad=False)],
    "linalg_cond_word": [wide(solid(3), "fro", torch=L("cond"), torch_grad=False)],
    # -- norms
    "linalg_matrix_norm_number": [wide(ANY, ord, torch=L("matrix_norm")) for ord in (1, -1, 2, -2, np.inf)],
    "linalg_matrix_norm": [wide(ANY, "nuc", keepdim=True, torch=L("matrix_norm")), wide(real(3, 2, 4), "fro", [0, 2], torch=L("matrix_norm"))],
    "linalg_norm": [wide(ANY, torch=L("norm")), wide(real(3, 4), 2, torch=L("norm")), wide(ANY, 3, 1, torch=L("norm"))],
    "linalg_norm_word": [wide(real(3, 4), "nuc", torch=L("norm"))],
    "linalg_diagonal": [wide(ANY, offset=1, torch=L("diagonal"))],
}
