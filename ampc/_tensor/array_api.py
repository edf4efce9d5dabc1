"""The namespace of the Python array API standard (2024.12, data-apis.org/array-api): what ``Tensor.__array_namespace__()`` gives.

The standard's names, argument names and results. Where an operator of the table does what the standard asks, it is that operator; a function
is written here where torch means another thing by the name (``equal``, ``nonzero``, ``argsort``), names an argument differently, or has another
rule: in torch a 0-d tensor takes no part in promotion, and a sum over no dimensions is one over all."""

from __future__ import annotations

import builtins
from collections import namedtuple
from collections.abc import Sequence
from typing import Any, Dict, List, Optional, Tuple, Union

from .. import _C, _ops
from .. import linalg as _linalg
from .._C import Tensor, float32, float64, int8, int16, int32, int64, uint8
from .._C import bool as bool
from .._composed import shape_ops
from .._composed.creation import _asarray
from .._composed.sort_search import unique
from . import creation as make
from . import finfo as _finfo
from .interop import from_dlpack  # noqa: F401

__array_api_version__ = "2024.12"

Axis = Union[int, Tuple[int, ...], None]
e, inf, nan, newaxis, pi = 2.718281828459045, float("inf"), float("nan"), None, 3.141592653589793

# the standard's names that are rows of the table
_ROWS = """abs acos acosh asin asinh atan atanh ceil cos cosh exp expm1 floor isfinite isinf isnan log log10 log1p log2 logical_not reciprocal round
    sign signbit sin sinh sqrt square tan tanh trunc negative moveaxis tile argmax argmin stack diff"""
globals().update({name: vars(_ops)[name] for name in _ROWS.split()})
bitwise_invert, matrix_transpose, positive = _ops.bitwise_not, _ops.adjoint, _ops.clone


def _promoted(x1: Any, x2: Any) -> Tuple[Any, Any]:
    """Two operands in the dtype that they promote to. torch leaves a 0-d tensor out of it."""
    if isinstance(x1, Tensor) and isinstance(x2, Tensor) and x1.dtype is not x2.dtype:
        kind = _C.promote_types(x1.dtype, x2.dtype)
        return x1.to(kind), x2.to(kind)
    return x1, x2


def _promoting(name: str, row: Any) -> Any:
    """The operator with that rule, of two tensors, or a tensor and a number."""
    def f(x1: Any, x2: Any, /) -> Any:
        return row(*_promoted(x1, x2))

    f.__name__ = f.__qualname__ = name
    f.__doc__ = row.__doc__
    return f


_OF_TWO = """add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide floor_divide greater greater_equal
    hypot less less_equal logaddexp logical_and logical_or logical_xor matmul maximum minimum multiply nextafter not_equal pow subtract"""
globals().update({name: _promoting(name, vars(_ops)[name]) for name in _OF_TWO.split()}, equal=_promoting("equal", _ops.eq))


def remainder(x1: Any, x2: Any, /) -> Tensor:
    """What is left of x1 / x2, with the sign of x2; a zero, too, whose sign torch takes from x1."""
    rest: Tensor = _ops.remainder(*_promoted(x1, x2))
    return _ops.where(rest == 0, _ops.copysign(rest, x2), rest) if rest.is_floating_point() else rest


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """x1 where the condition is true, x2 elsewhere."""
    return _ops.where(condition, *_promoted(x1, x2))


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
    """start, start + step, ... before stop: none where no step leads there, where torch raises."""
    start, stop = (0, start) if stop is None else (start, stop)
    return make.arange(start, start if (stop - start) * step < 0 else stop, step, dtype=dtype or _of_numbers(start, stop, step), device=device)


def _of_numbers(*numbers: Any) -> Any:
    return int64 if builtins.all(isinstance(n, int) for n in numbers) else _C.get_default_dtype()


def linspace(start: float, stop: float, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: builtins.bool = True) -> Tensor:
    """num values from start to stop, evenly spaced; without stop itself where ``endpoint`` is False."""
    return make.linspace(start, stop, num, dtype=dtype, device=device, endpoint=endpoint)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> List[Tensor]:
    """Coordinates of the grid that vectors span, 'xy' or 'ij'."""
    return list(shape_ops.meshgrid(*arrays, indexing=indexing))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """x on and below the k-th diagonal, 0 above."""
    return x.tril(k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """x on and above the k-th diagonal, 0 below."""
    return x.triu(k)


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


eye, empty_like, zeros_like, ones_like, full_like = make.eye, make.empty_like, make.zeros_like, make.ones_like, make.full_like

# -- dtypes ------------------------------------------------------------------------------------------------------------------

_FLOAT, _SIGNED, _UNSIGNED = (float32, float64), (int8, int16, int32, int64), (uint8,)
_KINDS: Dict[str, Tuple[Any, ...]] = {"bool": (bool,), "signed integer": _SIGNED, "unsigned integer": _UNSIGNED, "integral": _SIGNED + _UNSIGNED,
                                      "real floating": (*_FLOAT, _C.float16, _C.bfloat16), "complex floating": (),
                                      "numeric": (*_SIGNED, *_UNSIGNED, *_FLOAT, _C.float16, _C.bfloat16)}


class finfo(_finfo.finfo):
    """Limits of a floating point dtype, or of an array's. Its ``dtype`` is one, where torch's is a name."""

    def __init__(self, type: Any, /) -> None:
        super().__init__(type)
        self.dtype: Any = getattr(_C, self.dtype)


class iinfo(_finfo.iinfo):
    """Limits of an integer dtype, or of an array's. Its ``dtype`` is one, where torch's is a name."""

    def __init__(self, type: Any, /) -> None:
        super().__init__(type)
        self.dtype: Any = getattr(_C, self.dtype)


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


def _reduce(f: Any, x: Tensor, axis: Axis, keepdims: builtins.bool, **options: Any) -> Tensor:
    """f over axis. Over none, which is ``()``, each element by itself: for torch that is over all."""
    if axis == ():
        return f(x.unsqueeze(-1), dim=-1, **options)
    return f(x, dim=_dims(x, axis), keepdim=keepdims, **options)


def sum(x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: builtins.bool = False) -> Tensor:
    """The sum over axis; of integers in int64."""
    return _reduce(_ops.sum, x, axis, keepdims, dtype=dtype)


def prod(x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: builtins.bool = False) -> Tensor:
    """The product over axis; of integers in int64."""
    return _reduce(_ops.prod, x, axis, keepdims, dtype=dtype)


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The mean over axis."""
    return _reduce(_ops.mean, x, axis, keepdims)


def max(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The largest value over axis."""
    return _reduce(_ops.amax, x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The smallest value over axis."""
    return _reduce(_ops.amin, x, axis, keepdims)


def var(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: builtins.bool = False) -> Tensor:
    """Variance over axis, divided by n - correction."""
    return _reduce(_ops.var, x, axis, keepdims, correction=correction)


def std(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: builtins.bool = False) -> Tensor:
    """Square root of the variance."""
    return _reduce(_ops.std, x, axis, keepdims, correction=correction)


def _truth(x: Tensor) -> Tensor:
    """x, or its truth values where it is uint8: torch's `all` and `any` of these are uint8."""
    return x.bool() if x.dtype == _C.uint8 else x


def all(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether all are true."""
    return _reduce(_ops.all, _truth(x), axis, keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether any is true."""
    return _reduce(_ops.any, _truth(x), axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """How many are not 0."""
    return sum(x != 0, axis=axis, keepdims=keepdims)


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


def searchsorted(x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Optional[Tensor] = None) -> Tensor:
    """Where each of x2 would stand in the sorted x1."""
    return _ops.searchsorted(*_promoted(x1, x2), side=side, sorter=sorter)


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
    return list(shape_ops.broadcast_tensors(*arrays))


def broadcast_to(x: Tensor, /, shape: Tuple[int, ...]) -> Tensor:
    """x expanded to a shape."""
    return x.broadcast_to(shape)


def roll(x: Tensor, /, shift: Union[int, Tuple[int, ...]], *, axis: Axis = None) -> Tensor:
    """Elements moved along axis, what leaves at its end comes back at the other; in the order of memory where axis is None."""
    if isinstance(axis, tuple) and isinstance(shift, int):
        shift = (shift,) * len(axis)
    return _ops.roll(x, shift, axis)


def concat(arrays: Sequence[Tensor], /, *, axis: Optional[int] = 0) -> Tensor:
    """Joined along axis, flattened when None."""
    return _ops.cat([a.reshape(-1) for a in arrays], 0) if axis is None else _ops.cat(list(arrays), axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> Tuple[Tensor, ...]:
    """The slices along axis."""
    return x.unbind(axis)


def expand_dims(x: Tensor, /, axis: int) -> Tensor:
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


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Sums over the last axes of x1 and the first of x2, or over two lists of axes."""
    return _linalg.tensordot(*_promoted(x1, x2), axes)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Sums of x1 * x2 along axis, others broadcast. ValueError unless both have that axis from the end, of one size."""
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"vecdot: axis {axis} has size {x1.shape[axis]} in one and {x2.shape[axis]} in the other")
    return _ops.linalg_vecdot(*_promoted(x1, x2), dim=axis)


class linalg:
    """The standard's extension of linear algebra."""

    tensordot, vecdot, matmul = staticmethod(tensordot), staticmethod(vecdot), staticmethod(globals()["matmul"])
    outer, solve = (staticmethod(_promoting(name, vars(_linalg)[name])) for name in ("outer", "solve"))
    trace = staticmethod(_linalg.trace)

    @staticmethod
    def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
        """The cross product along axis."""
        return _ops.cross(*_promoted(x1, x2), dim=axis)

    @staticmethod
    def vector_norm(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False, ord: float = 2) -> Tensor:
        """The p-norm over axis."""
        return _reduce(_linalg.vector_norm, x, axis, keepdims, ord=ord)


for _name in ("cholesky", "det", "diagonal", "eigh", "eigvalsh", "inv", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "pinv",
              "qr", "slogdet", "svd", "svdvals"):
    setattr(linalg, _name, staticmethod(getattr(_linalg, _name)))


# -- inspection -------------------------------------------------------------------------------------------------------------------


class _Info:
    def capabilities(self) -> Dict[str, Any]:
        """What may depend on values, and the most dimensions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 12}

    def default_device(self) -> Any:
        """Where tensors are made."""
        from .device import get_default_device
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
        from .. import cuda
        from .device import device
        return [device("cpu"), *(device("cuda", i) for i in range(cuda.device_count()))]


def __array_namespace_info__() -> _Info:
    """Facts of this namespace: capabilities, devices, dtypes."""
    return _Info()


_HIDDEN = {"annotations", "namedtuple", "Sequence", "Any", "Dict", "List", "Optional", "Tuple", "Union", "make", "Tensor", "Axis", "builtins",
           "shape_ops", "unique"}
__all__ = [n for n in dir() if not n.startswith("_") and n not in _HIDDEN]
