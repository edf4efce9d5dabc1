"""torch.return_types: the classes of results that are several tensors with names, such as ``max(x, dim)``. They are made by the core; here they are
found by name, as pickle does."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from . import _ops, linalg
from ._C import Tensor
from ._names.missing import absent_from
from ._tensor.creation import ones

_MAKERS: Dict[str, Callable[[Tensor], Any]] = {
    "aminmax": lambda x: _ops.aminmax(x), "cummax": lambda x: _ops.cummax(x, 0), "cummin": lambda x: _ops.cummin(x, 0), "frexp": _ops.frexp,
    "geqrf": _ops.geqrf, "kthvalue": lambda x: _ops.kthvalue(x, 1), "linalg_cholesky_ex": linalg.cholesky_ex, "linalg_eigh": linalg.eigh,
    "linalg_inv_ex": linalg.inv_ex, "linalg_ldl_factor": linalg.ldl_factor, "linalg_ldl_factor_ex": linalg.ldl_factor_ex,
    "linalg_lstsq": lambda x: linalg.lstsq(x, x), "linalg_lu": linalg.lu, "linalg_lu_factor": linalg.lu_factor,
    "linalg_lu_factor_ex": linalg.lu_factor_ex, "linalg_qr": linalg.qr, "linalg_slogdet": linalg.slogdet,
    "linalg_solve_ex": lambda x: linalg.solve_ex(x, x), "linalg_svd": linalg.svd, "lu_unpack": lambda x: _ops.lu_unpack(*linalg.lu_factor(x)),
    "max": lambda x: _ops.max(x, 0), "median": lambda x: _ops.median(x, 0), "min": lambda x: _ops.min(x, 0), "mode": lambda x: _ops.mode(x, 0),
    "nanmedian": lambda x: _ops.nanmedian(x, 0), "qr": lambda x: _ops.qr(x), "slogdet": _ops.slogdet, "sort": _ops.sort, "svd": lambda x: _ops.svd(x),
    "topk": lambda x: _ops.topk(x, 1), "triangular_solve": lambda x: _ops.triangular_solve(x, x),
}
__all__: List[str] = list(_MAKERS)


def __getattr__(name: str) -> Any:
    if name == "all_return_types":
        return [__getattr__(n) for n in _MAKERS]
    if name not in _MAKERS:
        return absent_from(__name__)(name)
    globals()[name] = found = type(_MAKERS[name](ones(1, 1, device="cpu")))
    return found


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__, "all_return_types"})
