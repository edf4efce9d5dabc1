"""torch._foreach_add and its kin: one operator over lists of tensors, in one call of the core (csrc/python/foreach.c).

Each takes a list or tuple of tensors of any shapes, dtypes and devices. The others, where there are any, are a list of as many tensors, a number,
a list of as many numbers, or where torch has it one tensor. The results are a tuple, with what the operator alone gives: the same dtypes, the same
gradients, the same treatment by autocast. Names that end in _ write into the tensors, and return what they were given.
RuntimeError for an empty list and for lists of different lengths; TypeError for entries that are no tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, List, Optional, Tuple, Union

from .. import _C, _ops
from .._C import Tensor
from .._events import announce
from .device import preserve_format
from .layout import clone

Tensors = Union[List[Tensor], Tuple[Tensor, ...]]
Number = Union[bool, int, float]
Operands = Union[Tensors, Tensor, Number, Sequence[Number]]
Results = Tuple[Tensor, ...]


def _need_lists(name: str, **given: Any) -> None:
    for word, value in given.items():
        if not isinstance(value, (list, tuple)) or value and not isinstance(value[0], Tensor):
            what = type(value).__name__ + (f" of {type(value[0]).__name__}" if isinstance(value, (list, tuple)) else "")
            raise TypeError(f"{name}: argument `{word}` must be a list or tuple of Tensors, got {what}")


def _need_number(name: str, word: str, value: Any) -> None:
    if not hasattr(value, "__float__") or isinstance(value, Tensor) and value.ndim:
        raise TypeError(f"{name}: argument `{word}` must be a number, got {type(value).__name__}")


def _run(name: str, f: Callable[..., Tensor], self: Any, *others: Any, **more: Any) -> Any:
    _need_lists(name, self=self)
    results = _C._foreach(f, self, *others, **more)
    return self if name.endswith("_") else results


def _titled(g: Any, name: str, what: str) -> Any:
    g.__name__ = g.__qualname__ = name
    g.__doc__ = f"{what} of each tensor of the list" + (", written into it; returns the list." if name.endswith("_") else "; a tuple.")
    return g


# -- of one list -------------------------------------------------------------------------------------------------------


def _unary(f: Callable[..., Tensor]) -> Callable[[Tensors], Results]:
    name = f"_foreach_{f.__name__}"

    def g(self: Tensors) -> Results:
        return _run(name, f, self)

    return _titled(g, name, f.__name__.rstrip("_"))


_foreach_abs, _foreach_abs_ = _unary(_ops.abs), _unary(_ops.abs_)
_foreach_acos, _foreach_acos_ = _unary(_ops.acos), _unary(_ops.acos_)
_foreach_asin, _foreach_asin_ = _unary(_ops.asin), _unary(_ops.asin_)
_foreach_atan, _foreach_atan_ = _unary(_ops.atan), _unary(_ops.atan_)
_foreach_ceil, _foreach_ceil_ = _unary(_ops.ceil), _unary(_ops.ceil_)
_foreach_cos, _foreach_cos_ = _unary(_ops.cos), _unary(_ops.cos_)
_foreach_cosh, _foreach_cosh_ = _unary(_ops.cosh), _unary(_ops.cosh_)
_foreach_erf, _foreach_erf_ = _unary(_ops.erf), _unary(_ops.erf_)
_foreach_erfc, _foreach_erfc_ = _unary(_ops.erfc), _unary(_ops.erfc_)
_foreach_exp, _foreach_exp_ = _unary(_ops.exp), _unary(_ops.exp_)
_foreach_expm1, _foreach_expm1_ = _unary(_ops.expm1), _unary(_ops.expm1_)
_foreach_floor, _foreach_floor_ = _unary(_ops.floor), _unary(_ops.floor_)
_foreach_frac, _foreach_frac_ = _unary(_ops.frac), _unary(_ops.frac_)
_foreach_lgamma, _foreach_lgamma_ = _unary(_ops.lgamma), _unary(_ops.lgamma_)
_foreach_log, _foreach_log_ = _unary(_ops.log), _unary(_ops.log_)
_foreach_log10, _foreach_log10_ = _unary(_ops.log10), _unary(_ops.log10_)
_foreach_log1p, _foreach_log1p_ = _unary(_ops.log1p), _unary(_ops.log1p_)
_foreach_log2, _foreach_log2_ = _unary(_ops.log2), _unary(_ops.log2_)
_foreach_neg, _foreach_neg_ = _unary(_ops.neg), _unary(_ops.neg_)
_foreach_reciprocal, _foreach_reciprocal_ = _unary(_ops.reciprocal), _unary(_ops.reciprocal_)
_foreach_round, _foreach_round_ = _unary(_ops.round), _unary(_ops.round_)
_foreach_rsqrt, _foreach_rsqrt_ = _unary(_ops.rsqrt), _unary(_ops.rsqrt_)
_foreach_sigmoid, _foreach_sigmoid_ = _unary(_ops.sigmoid), _unary(_ops.sigmoid_)
_foreach_sign, _foreach_sign_ = _unary(_ops.sign), _unary(_ops.sign_)
_foreach_sin, _foreach_sin_ = _unary(_ops.sin), _unary(_ops.sin_)
_foreach_sinh, _foreach_sinh_ = _unary(_ops.sinh), _unary(_ops.sinh_)
_foreach_sqrt, _foreach_sqrt_ = _unary(_ops.sqrt), _unary(_ops.sqrt_)
_foreach_tan, _foreach_tan_ = _unary(_ops.tan), _unary(_ops.tan_)
_foreach_tanh, _foreach_tanh_ = _unary(_ops.tanh), _unary(_ops.tanh_)
_foreach_trunc, _foreach_trunc_ = _unary(_ops.trunc), _unary(_ops.trunc_)


def _foreach_zero_(self: Tensors) -> Tensors:
    """Zeros written into each tensor of the list; returns the list."""
    return _run("_foreach_zero_", Tensor.zero_, self)


def _foreach_clone(self: Tensors, *, memory_format: Any = None) -> Results:
    """A copy of each tensor; a tuple."""
    return _run("_foreach_clone", clone, self, memory_format=preserve_format if memory_format is None else memory_format)


def _foreach_max(self: Tensors) -> Results:
    """The largest value of each tensor, 0-d; a tuple. RuntimeError where one has no elements."""
    if isinstance(self, (list, tuple)) and any(isinstance(t, Tensor) and t.numel() == 0 for t in self):
        raise RuntimeError("_foreach_max: a tensor without elements has no maximum")
    return _run("_foreach_max", _ops.amax, self)


def _foreach_norm(self: Tensors, ord: float = 2, dtype: Any = None) -> Results:
    """The norm of that order of all elements of each tensor, 0-d, of the dtype where one is given; a tuple."""
    _need_number("_foreach_norm", "ord", ord)
    if ord == float("inf") and isinstance(self, (list, tuple)) and any(isinstance(t, Tensor) and t.numel() == 0 for t in self):
        raise RuntimeError("_foreach_norm: a tensor without elements has no norm of order inf")
    if isinstance(self, (list, tuple)) and self and isinstance(self[0], Tensor):
        announce.norm_taken(self[0])
    return _run("_foreach_norm", _ops._norm, self, ord, dtype=dtype)


def _power_sum(x: Tensor, ord: float, dtype: Any) -> Tensor:
    if not x.is_floating_point():
        raise NotImplementedError(f"_foreach_powsum: expected floating point, got {x.dtype}")
    return (x if dtype is None else x.to(dtype)).abs().pow(ord).sum()


def _foreach_powsum(self: Tensors, ord: float = 2, dtype: Any = None) -> Results:
    """The sum of |x|^ord of each tensor, 0-d, of the dtype where one is given; a tuple."""
    return _run("_foreach_powsum", _power_sum, self, ord, dtype)


# -- of two lists, or a list and numbers -------------------------------------------------------------------------------


def _one(name: str, **given: Any) -> Any:
    """The operand, whichever of torch's words for it was used."""
    there = {word: value for word, value in given.items() if value is not None}
    if len(there) != 1:
        raise TypeError(f"{name}: expected one of the arguments {', '.join(given)}, got {', '.join(there) or 'none'}")
    return next(iter(there.values()))


def _check_operands(name: str, self: Any, other: Any, one_tensor: bool) -> None:
    _need_lists(name, self=self)
    known = isinstance(other, (list, tuple, complex)) or hasattr(other, "__float__")
    if not known or isinstance(other, Tensor) and other.ndim and not one_tensor:
        raise TypeError(f"{name}: argument `other` must be a number or a list, got a {type(other).__name__}")
    if isinstance(other, Tensor) and other.ndim:
        for t in self:
            _need_lists(name, self=[t])
        raise RuntimeError(f"{name}: a Tensor in place of a number must have 0 dimensions, got {other.ndim}")


def _binary(f: Callable[..., Tensor], one_tensor: bool = False, as_number: bool = False) -> Callable[..., Results]:
    """``one_tensor``: for all of the list, with its own dtype; elsewhere, and ``as_number``, it counts as a number."""
    name = f"_foreach_{f.__name__}"

    def g(self: Tensors, other: Optional[Operands] = None, *, scalar: Optional[Number] = None, scalars: Optional[Sequence[Number]] = None) -> Results:
        operand = _one(name, other=other, scalar=scalar, scalars=scalars)
        _check_operands(name, self, operand, one_tensor)
        if isinstance(operand, Tensor) and (not one_tensor or as_number and not operand.requires_grad and not operand.is_cuda):
            operand = operand.item()
        return _run(name, f, self, operand)

    return _titled(g, name, f.__name__.rstrip("_"))


def _with_alpha(f: Callable[..., Tensor], one_tensor: bool) -> Callable[..., Results]:
    name, plain = f"_foreach_{f.__name__}", _binary(f, one_tensor, one_tensor)

    def g(self: Tensors, other: Optional[Operands] = None, *, scalar: Optional[Number] = None, scalars: Optional[Sequence[Number]] = None,
          alpha: Optional[Number] = None) -> Results:
        if alpha is None:
            return plain(self, other, scalar=scalar, scalars=scalars)
        tensors = isinstance(other, (list, tuple)) and all(isinstance(t, Tensor) for t in other)
        if not tensors and not (one_tensor and isinstance(other, Tensor)):
            raise TypeError(f"{name}: `alpha` is for tensors; multiply the numbers by it")
        _check_operands(name, self, other, one_tensor)
        return _run(name, f, self, other, alpha=alpha)

    return _titled(g, name, f"{f.__name__.rstrip('_')} with alpha * other")


_foreach_add, _foreach_add_ = _with_alpha(_ops.add, True), _with_alpha(_ops.add_, True)
_foreach_sub, _foreach_sub_ = _with_alpha(_ops.sub, False), _with_alpha(_ops.sub_, False)
_foreach_mul, _foreach_mul_ = _binary(_ops.mul, True), _binary(_ops.mul_, True)
_foreach_div, _foreach_div_ = _binary(_ops.div, True), _binary(_ops.div_, True)
_foreach_clamp_max, _foreach_clamp_max_ = _binary(_ops.clamp_max), _binary(_ops.clamp_max_)
_foreach_clamp_min, _foreach_clamp_min_ = _binary(_ops.clamp_min), _binary(_ops.clamp_min_)


def _extreme(f: Callable[..., Tensor], limit: Callable[..., Results]) -> Tuple[Callable[..., Results], Callable[..., Any]]:
    """maximum or minimum, and in place: written by the kernel, unless that is recorded."""
    name = f"_foreach_{f.__name__}"

    def g(self: Tensors, other: Optional[Operands] = None, *, scalar: Optional[Number] = None, scalars: Optional[Sequence[Number]] = None) -> Results:
        operand = _one(name, other=other, scalar=scalar, scalars=scalars)
        _check_operands(name, self, operand, False)
        return _run(name, f, self, operand.item() if isinstance(operand, Tensor) else operand)

    def recorded(x: Tensor, other: Tensor) -> Tensor:
        return x.copy_(f(x.clone(), other))  # of a copy, for its gradient reads what x was

    def g_(self: Tensors, other: Optional[Operands] = None, *, scalar: Optional[Number] = None, scalars: Optional[Sequence[Number]] = None) -> Any:
        operand = _one(name + "_", other=other, scalar=scalar, scalars=scalars)
        _check_operands(name + "_", self, operand, False)
        if not isinstance(operand, (list, tuple)) or not any(isinstance(t, Tensor) for t in operand):
            return limit(self, operand)
        if _C.is_grad_enabled() and any(getattr(t, "requires_grad", False) for c in (self, operand) for t in c):
            return _run(name + "_", recorded, self, operand)
        return _run(name + "_", f, self, operand, out=self)

    return _titled(g, name, f.__name__), _titled(g_, name + "_", f.__name__)


_foreach_maximum, _foreach_maximum_ = _extreme(_ops.maximum, _foreach_clamp_min_)
_foreach_minimum, _foreach_minimum_ = _extreme(_ops.minimum, _foreach_clamp_max_)


def _foreach_pow(self: Union[Tensors, Number], exponent: Union[Tensors, Number, Sequence[Number]]) -> Results:
    """Each tensor to the power of a number, of its number or of its tensor; or a number to the power of each tensor; a tuple."""
    if isinstance(self, (list, tuple)):
        _check_operands("_foreach_pow", self, exponent, False)
        return _run("_foreach_pow", _ops.pow, self, exponent)
    _need_number("_foreach_pow", "self", self)
    _need_lists("_foreach_pow", exponent=exponent)
    return _C._foreach(_ops.pow, self, exponent)


def _foreach_pow_(self: Tensors, exponent: Union[Tensors, Number, Sequence[Number]]) -> Tensors:
    """As _foreach_pow, written into the tensors; returns the list."""
    _check_operands("_foreach_pow_", self, exponent, False)
    return _run("_foreach_pow_", _ops.pow_, self, exponent)


def _foreach_mm(self: Tensors, mat2: Tensors) -> Results:
    """The matrix product of each pair; a tuple."""
    _need_lists("_foreach_mm", self=self, mat2=mat2)
    return _run("_foreach_mm", _ops.mm, self, mat2)


def _foreach_copy_(self: Tensors, src: Tensors, non_blocking: bool = False) -> Tensors:
    """Each tensor of ``src`` written into that of ``self``, cast to its dtype; returns the list."""
    _need_lists("_foreach_copy_", self=self, src=src)
    return _run("_foreach_copy_", Tensor.copy_, self, src, non_blocking)


# -- of three lists ----------------------------------------------------------------------------------------------------


def _lerp(f: Callable[..., Tensor]) -> Callable[..., Results]:
    name = f"_foreach_{f.__name__}"

    def g(self: Tensors, tensors1: Tensors, weight: Optional[Operands] = None, *, weights: Optional[Tensors] = None) -> Results:
        _need_lists(name, self=self, tensors1=tensors1)
        return _run(name, f, self, tensors1, _one(name, weight=weight, weights=weights))

    return _titled(g, name, "x + weight * (end - x)")


def _numbers_of(scalars: Tensor, n: int) -> List[Number]:
    if scalars.ndim != 1:
        raise RuntimeError(f"a Tensor of scalars must have 1 dimension, got {scalars.ndim}")
    if scalars.numel() != n:
        raise RuntimeError(f"expected {n} scalars, one for each tensor, got {scalars.numel()}")
    return scalars.tolist()


def _ternary(f: Callable[..., Tensor], what: str) -> Callable[..., Results]:
    name = f"_foreach_{f.__name__}"

    def g(self: Tensors, tensor1: Tensors, tensor2: Tensors, value: Optional[Operands] = None, *,
          scalars: Union[Tensor, Sequence[Number], None] = None) -> Results:
        _need_lists(name, self=self, tensor1=tensor1, tensor2=tensor2)
        values: Any = 1 if value is None and scalars is None else _one(name, value=value, scalars=scalars)
        if isinstance(values, Tensor) and isinstance(self, (list, tuple)):
            values = _numbers_of(values, len(self))
        return _run(name, f, self, tensor1, tensor2, value=values)

    return _titled(g, name, what)


_foreach_lerp, _foreach_lerp_ = _lerp(_ops.lerp), _lerp(_ops.lerp_)
_foreach_addcmul, _foreach_addcmul_ = (_ternary(f, "x + value * tensor1 * tensor2") for f in (_ops.addcmul, _ops.addcmul_))
_foreach_addcdiv, _foreach_addcdiv_ = (_ternary(f, "x + value * tensor1 / tensor2") for f in (_ops.addcdiv, _ops.addcdiv_))
