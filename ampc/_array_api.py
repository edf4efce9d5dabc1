"""The namespace of the Python array API standard (2024.12, data-apis.org/array-api): what ``Tensor.__array_namespace__()`` gives.

The standard's names, argument names and results; where torch has the same name with another meaning (``equal``, ``nonzero``,
``argsort``) ampc itself keeps torch's, and this namespace has the standard's."""

from __future__ import annotations

import builtins
from collections import namedtuple
from collections.abc import Sequence
from typing import Any, Dict, List, Optional, Tuple, Union

from . import _C, _ops
from . import _creation as make
from . import linalg as _linalg
from ._C import Tensor, float32, float64, int8, int16, int32, int64, uint8
from ._C import bool as bool
from ._composed.creation import _asarray
from ._composed.products import tensordot
from ._composed.shape_ops import broadcast_tensors, meshgrid  # noqa: F401
from ._composed.sort_search import unique
from ._creation import eye, linspace  # noqa: F401
from ._finfo import finfo, iinfo  # noqa: F401
from ._interop import from_dlpack  # noqa: F401

__array_api_version__ = "2024.12"

Axis = Union[int, Tuple[int, ...], None]
e, inf, nan, newaxis, pi = 2.718281828459045, float("inf"), float("nan"), None, 3.141592653589793

# the standard's names that are rows of the table
_ROWS = """abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor ceil copysign
    cos cosh exp expm1 floor floor_divide hypot isfinite isinf isnan log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor
    matmul maximum minimum pow reciprocal remainder round sign signbit sin sinh sqrt square tan tanh trunc where divide multiply negative subtract
    not_equal less less_equal greater greater_equal broadcast_to moveaxis roll searchsorted tile tril triu sum prod mean argmax argmin stack diff
    nextafter"""
_OTHER = {"bitwise_invert": "bitwise_not", "equal": "eq", "positive": "clone", "max": "amax", "min": "amin", "matrix_transpose": "adjoint",
          "vecdot": "linalg_vecdot"}
globals().update({name: vars(_ops)[_OTHER.get(name, name)] for name in (*_ROWS.split(), *_OTHER)})


def conj(x: Tensor, /) -> Tensor:
    """x: there are no complex tensors."""
    return x


real = conj


def imag(x: Tensor, /) -> Tensor:
    """Zeros: there are no complex tensors."""
    return make.zeros_like(x)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """x limited to [min, max]."""
    if min is None and max is None:
        return x.clone()
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        if min is not None:
            x = _ops.maximum(x, min if isinstance(min, Tensor) else make.full_like(x, min))
        return x if max is None else _ops.minimum(x, max if isinstance(max, Tensor) else make.full_like(x, max))
    return x.clamp(min, max).to(x.dtype)


# -- creation -------------------------------------------------------------------------------------------------------------


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: Optional[builtins.bool] = None) -> Tensor:
    """A tensor of numbers, arrays or tensors; shares memory unless ``copy``. ValueError where copy=False cannot be."""
    return _asarray(obj, dtype, device, copy)


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """start, start + step, ... below stop."""
    return make.arange(start, dtype=dtype, device=device) if stop is None else make.arange(start, stop, step, dtype=dtype, device=device)


def _shape(shape: Any) -> Tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Uninitialised."""
    return make.empty(_shape(shape), dtype=dtype, device=device)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros."""
    return make.zeros(_shape(shape), dtype=dtype, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones."""
    return make.ones(_shape(shape), dtype=dtype, device=device)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """fill_value everywhere."""
    return make.full(_shape(shape), fill_value, dtype=dtype, device=device)


empty_like, zeros_like, ones_like, full_like = make.empty_like, make.zeros_like, make.ones_like, make.full_like

# -- dtypes ------------------------------------------------------------------------------------------------------------------

_FLOAT, _SIGNED, _UNSIGNED = (float32, float64), (int8, int16, int32, int64), (uint8,)
_KINDS: Dict[str, Tuple[Any, ...]] = {"bool": (bool,), "signed integer": _SIGNED, "unsigned integer": _UNSIGNED, "integral": _SIGNED + _UNSIGNED,
                                      "real floating": (*_FLOAT, _C.float16, _C.bfloat16), "complex floating": (),
                                      "numeric": (*_SIGNED, *_UNSIGNED, *_FLOAT, _C.float16, _C.bfloat16)}


def astype(x: Tensor, dtype: Any, /, *, copy: builtins.bool = True, device: Any = None) -> Tensor:
    """x in another dtype; a copy, unless ``copy`` is False and none is needed."""
    y = x.to(dtype) if device is None else x.to(device=device, dtype=dtype)
    return y.clone() if copy and y is x else y


def isdtype(dtype: Any, kind: Any) -> builtins.bool:
    """Whether dtype is one, of that kind ('real floating', ...), or of one of several."""
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"isdtype: unknown kind {kind!r}")
        return builtins.any(dtype is d for d in _KINDS[kind])
    return dtype is kind


def can_cast(from_: Any, to: Any, /) -> builtins.bool:
    """Whether promotion leads from one dtype to the other."""
    source = from_.dtype if isinstance(from_, Tensor) else from_
    return _C.promote_types(source, to) is to


def result_type(*arrays_and_dtypes: Any) -> Any:
    """What the arguments promote to."""
    found: Any = None
    for a in arrays_and_dtypes:
        if isinstance(a, (int, float)):
            continue
        d = a.dtype if isinstance(a, Tensor) else a
        found = d if found is None else _C.promote_types(found, d)
    if found is None:
        raise ValueError("result_type: needs a tensor or a dtype")
    return found


# -- reductions, order ------------------------------------------------------------------------------------------------------


def _dims(x: Tensor, axis: Axis) -> Optional[List[int]]:
    return None if axis is None else [axis] if isinstance(axis, int) else list(axis)


def var(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: builtins.bool = False) -> Tensor:
    """Variance over axis, divided by n - correction."""
    return x.var(_dims(x, axis), correction=int(correction), keepdim=keepdims)


def std(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: builtins.bool = False) -> Tensor:
    """Square root of the variance."""
    return x.std(_dims(x, axis), correction=int(correction), keepdim=keepdims)


def _truth(x: Tensor) -> Tensor:
    """x, or its truth values where it is uint8: torch's `all` and `any` of these are uint8."""
    return x.bool() if x.dtype == _C.uint8 else x


def all(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether all are true."""
    return _truth(x).all(_dims(x, axis), keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether any is true."""
    return _truth(x).any(_dims(x, axis), keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """How many are not 0."""
    return (x != 0).sum(_dims(x, axis), keepdims)


def cumulative_sum(x: Tensor, /, *, axis: Optional[int] = None, dtype: Any = None, include_initial: builtins.bool = False) -> Tensor:
    """Sums of the values so far; from 0 on with ``include_initial``."""
    return _cumulative(_ops.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x: Tensor, /, *, axis: Optional[int] = None, dtype: Any = None, include_initial: builtins.bool = False) -> Tensor:
    """Products of the values so far; from 1 on with ``include_initial``."""
    return _cumulative(_ops.cumprod, 1, x, axis, dtype, include_initial)


def _cumulative(f: Any, first: int, x: Tensor, axis: Optional[int], dtype: Any, initial: builtins.bool) -> Tensor:
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"cumulative: `axis` can be left out in 1 dimension only, not in {x.ndim}")
        axis = 0
    y = f(x, axis, dtype=dtype)
    if not initial:
        return y
    shape = [1 if d == axis % x.ndim else n for d, n in enumerate(x.shape)]
    return _ops.cat([make.full(shape, first, dtype=y.dtype, device=x.device), y], axis)


def argsort(x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
    """Where the values lie in order."""
    return x.sort(axis, descending)[1]


def sort(x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
    """Values in order."""
    return x.sort(axis, descending)[0]


def nonzero(x: Tensor, /) -> Tuple[Tensor, ...]:
    """Where the values are not 0, one tensor a dimension."""
    if x.ndim == 0:
        raise ValueError("nonzero: a 0-d tensor has no indices")
    return x.nonzero(as_tuple=True)


UniqueAll = namedtuple("UniqueAll", ["values", "indices", "inverse_indices", "counts"])
UniqueCounts = namedtuple("UniqueCounts", ["values", "counts"])
UniqueInverse = namedtuple("UniqueInverse", ["values", "inverse_indices"])


def unique_all(x: Tensor, /) -> UniqueAll:
    """Different values, where each is first, where each element's is, and how often each occurs."""
    values, inverse, counts = unique(x, return_inverse=True, return_counts=True)
    first = make.full((values.shape[0],), x.numel(), dtype=int64, device=x.device)
    order = make.arange(x.numel(), device=x.device)
    return UniqueAll(values, first.scatter_reduce(0, inverse.reshape(-1), order, "amin"), inverse, counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Different values, and how often each occurs."""
    return UniqueCounts(*unique(x, return_counts=True))


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Different values, and where each element's is."""
    return UniqueInverse(*unique(x, return_inverse=True))


def unique_values(x: Tensor, /) -> Tensor:
    """Different values."""
    return unique(x)


# -- shapes ---------------------------------------------------------------------------------------------------------------------


def broadcast_arrays(*arrays: Tensor) -> List[Tensor]:
    """Tensors expanded to the shape they broadcast to."""
    return list(broadcast_tensors(*arrays))


def concat(arrays: Sequence[Tensor], /, *, axis: Optional[int] = 0) -> Tensor:
    """Joined along axis, flattened when None."""
    return _ops.cat([a.reshape(-1) for a in arrays], 0) if axis is None else _ops.cat(list(arrays), axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> Tuple[Tensor, ...]:
    """The slices along axis."""
    return x.unbind(axis)


def expand_dims(x: Tensor, /, *, axis: int = 0) -> Tensor:
    """A new axis of size 1. IndexError outside the dimensions."""
    return x.unsqueeze(axis)


def squeeze(x: Tensor, /, axis: Axis) -> Tensor:
    """Axes of size 1 removed. ValueError where one is longer."""
    for d in _dims(x, axis) or []:
        if x.shape[d] != 1:
            raise ValueError(f"squeeze: axis {d} has size {x.shape[d]}")
    return x.squeeze(_dims(x, axis))


def flip(x: Tensor, /, *, axis: Axis = None) -> Tensor:
    """The order along axis reversed (along all when None)."""
    return x.flip(list(range(x.ndim)) if axis is None else _dims(x, axis))


def permute_dims(x: Tensor, /, axes: Tuple[int, ...]) -> Tensor:
    """Axes in another order."""
    return x.permute(list(axes))


def reshape(x: Tensor, /, shape: Tuple[int, ...], *, copy: Optional[builtins.bool] = None) -> Tensor:
    """Another shape; ``copy`` True makes one, False refuses one (ValueError)."""
    y = x.reshape(list(shape))
    if copy is False and y.numel() and y.data_ptr() != x.data_ptr():
        raise ValueError("reshape: this shape needs a copy, but `copy` is False")
    return y.clone() if copy else y


def repeat(x: Tensor, repeats: Any, /, *, axis: Optional[int] = None) -> Tensor:
    """Each element repeated."""
    return x.repeat_interleave(repeats, axis)


def take(x: Tensor, indices: Tensor, /, *, axis: Optional[int] = None) -> Tensor:
    """The slices at indices (1-d) along axis."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take: `axis` can be left out in 1 dimension only, not in {x.ndim}")
        axis = 0
    n = x.shape[axis]
    return x.index_select(axis, _ops.where(indices < 0, indices + n, indices))


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """gather with broadcasting."""
    return _ops.take_along_dim(x, indices, axis)


class linalg:
    """The standard's extension of linear algebra."""

    cholesky = staticmethod(_linalg.cholesky)
    det = staticmethod(_linalg.det)
    diagonal = staticmethod(_linalg.diagonal)
    eigh = staticmethod(_linalg.eigh)
    eigvalsh = staticmethod(_linalg.eigvalsh)
    inv = staticmethod(_linalg.inv)
    matmul = staticmethod(_linalg.matmul)
    matrix_norm = staticmethod(_linalg.matrix_norm)
    matrix_power = staticmethod(_linalg.matrix_power)
    pinv = staticmethod(_linalg.pinv)
    qr = staticmethod(_linalg.qr)
    slogdet = staticmethod(_linalg.slogdet)
    solve = staticmethod(_linalg.solve)
    svd = staticmethod(_linalg.svd)
    svdvals = staticmethod(_linalg.svdvals)
    tensordot = staticmethod(tensordot)
    matrix_rank = staticmethod(_linalg.matrix_rank)
    matrix_transpose = staticmethod(_ops.adjoint)
    outer = staticmethod(_ops.outer)
    vecdot = staticmethod(_ops.linalg_vecdot)

    @staticmethod
    def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
        """The cross product along axis."""
        return _ops.cross(x1, x2, axis)

    @staticmethod
    def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
        """Sums of diagonals."""
        return x.diagonal(offset, -2, -1).sum(-1, dtype=dtype)

    @staticmethod
    def vector_norm(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False, ord: float = 2) -> Tensor:
        """The p-norm over axis."""
        return _linalg.vector_norm(x, ord, _dims(x, axis), keepdims)


# -- inspection -------------------------------------------------------------------------------------------------------------------


class _Info:
    def capabilities(self) -> Dict[str, Any]:
        """What may depend on values, and the most dimensions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 12}

    def default_device(self) -> Any:
        """Where tensors are made."""
        from ._device import get_default_device
        return get_default_device()

    def default_dtypes(self, *, device: Any = None) -> Dict[str, Any]:
        """Of numbers without one."""
        return {"real floating": _C.get_default_dtype(), "integral": int64, "indexing": int64}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> Dict[str, Any]:
        """The standard's dtypes that there are, by name."""
        every = {d.name: d for d in (bool, *_SIGNED, *_UNSIGNED, *_FLOAT)}
        return every if kind is None else {n: d for n, d in every.items() if isdtype(d, kind)}

    def devices(self) -> List[Any]:
        """Every device."""
        from . import cuda
        from ._device import device
        return [device("cpu"), *(device("cuda", i) for i in range(cuda.device_count()))]


def __array_namespace_info__() -> _Info:
    """Facts of this namespace: capabilities, devices, dtypes."""
    return _Info()


_HIDDEN = {"annotations", "namedtuple", "Sequence", "Any", "Dict", "List", "Optional", "Tuple", "Union", "make", "Tensor", "Axis", "builtins",
           "broadcast_tensors", "unique"}
__all__ = [n for n in dir() if not n.startswith("_") and n not in _HIDDEN]
