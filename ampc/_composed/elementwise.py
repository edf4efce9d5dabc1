"""Elementwise functions, written with the table's operators."""

from __future__ import annotations

import math
from typing import Any, Optional

from .. import _C, _checks
from .. import _creation as make
from .._C import Tensor
from .._finfo import finfo
from .._out import in_place, takes_out
from .sort_search import searchsorted

_f = _C._functions

__all__ = ["arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "celu", "deg2rad", "fix", "float_power", "gcd", "greater",
           "greater_equal", "isin", "isneginf", "isposinf", "lcm", "ldexp", "less", "less_equal", "nan_to_num", "not_equal", "positive", "rad2deg",
           "rrelu", "rsub", "selu", "sgn", "sinc"]
METHODS = ["deg2rad", "fix", "float_power", "float_power_", "isneginf", "isposinf", "ldexp", "nan_to_num", "nan_to_num_", "positive", "rad2deg",
           "sgn", "sinc", "arccos", "arcsin", "arctan", "arccosh", "arcsinh", "arctanh", "arctan2", "logical_and_", "logical_or_", "logical_xor_",
           "logical_not_", "gcd", "lcm"]


def positive(input: Tensor) -> Tensor:
    """x itself. RuntimeError for bool."""
    if input.dtype == _C.bool:
        raise RuntimeError("positive: bool has no sign")
    return input


@takes_out
def sgn(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """sign"""
    return input.sign()


@takes_out
def fix(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """trunc"""
    return input.trunc()


@takes_out
def deg2rad(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """Degrees as radians."""
    return input * (math.pi / 180)


@takes_out
def rad2deg(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """Radians as degrees."""
    return input * (180 / math.pi)


@takes_out
def sinc(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0; of 16-bit types computed in float32, where pi x keeps its digits."""
    is_half = input.dtype in (_C.float16, _C.bfloat16)
    wide = input.float() if is_half else input
    zero = wide == 0
    x = _f["where"](zero, 1.0, wide) * math.pi
    y = _f["where"](zero, 1.0, x.sin() / x)
    return y.to(input.dtype) if is_half else y


@takes_out
def ldexp(input: Tensor, other: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """x * 2 ** other"""
    return input * _f["exp2"](other if other.is_floating_point() else other.to(_C.get_default_dtype()))


@takes_out
def float_power(input: Any, exponent: Any, *, out: Optional[Tensor] = None) -> Tensor:
    """x ** exponent in float64."""
    wide = lambda v: v.double() if isinstance(v, Tensor) else v  # noqa: E731
    x, e = wide(input), wide(exponent)
    return _f["pow"](x, e)


@takes_out
def isposinf(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """True where x is inf."""
    return input == math.inf


@takes_out
def isneginf(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """True where x is -inf."""
    return input == -math.inf


@takes_out
def nan_to_num(input: Tensor, nan: Optional[float] = None, posinf: Optional[float] = None, neginf: Optional[float] = None,
               *, out: Optional[Tensor] = None) -> Tensor:
    """x with nan replaced by 0 and the infinities by the dtype's extremes, or by what is given."""
    if not input.is_floating_point():
        return input.clone()
    limits = finfo(input.dtype)
    return _f["_nan_to_num"](input, 0.0 if nan is None else nan, limits.max if posinf is None else posinf,
                             limits.min if neginf is None else neginf)


def float_power_(self: Tensor, exponent: Any) -> Tensor:
    """float_power, in place. RuntimeError unless the tensor is float64."""
    if self.dtype != _C.float64:
        raise RuntimeError(f"float_power_: the result is float64, which a {self.dtype} tensor does not hold")
    return in_place(self, float_power, exponent)


def nan_to_num_(self: Tensor, nan: Optional[float] = None, posinf: Optional[float] = None, neginf: Optional[float] = None) -> Tensor:
    """nan_to_num, in place."""
    return in_place(self, nan_to_num, nan, posinf, neginf)


@takes_out
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False, out: Optional[Tensor] = None) -> Tensor:
    """True where an element is among test_elements."""
    some = next(t for t in (elements, test_elements) if isinstance(t, Tensor))
    x = elements if isinstance(elements, Tensor) else make.tensor(elements, device=some.device)
    y = test_elements if isinstance(test_elements, Tensor) else make.tensor(test_elements, device=some.device)
    common = _C.promote_types(x.dtype, y.dtype)
    values = y.to(common).reshape(-1).sort()[0]
    if values.is_floating_point():
        values = values[values == values]  # nan equals nothing, and does not tell where others would be
    if values.shape[0] == 0:
        found = make.zeros_like(x, dtype=_C.bool)
    else:
        x = x.to(common)
        found = values[searchsorted(values, x).clamp(max=values.shape[0] - 1)] == x
    return found.logical_not() if invert else found


def selu(input: Tensor) -> Tensor:
    """nn.functional.selu"""
    return _f["elu"](input, 1.6732632423543772, 1.0507009873554805)


def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """nn.functional.celu"""
    return _f["elu"](input, alpha, 1.0, 1.0 / alpha)


def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """nn.functional.rrelu"""
    if not -math.inf < lower <= upper < math.inf:
        raise RuntimeError(f"rrelu: `lower` must be at most `upper`, both finite, got {lower} and {upper}")
    slope = input.new_empty(input.shape).uniform_(lower, upper) if training else (lower + upper) / 2
    return _f["where"](input > 0, input, input * slope)


def rsub(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """other - alpha * x"""
    return other - input * alpha if alpha != 1 else other - input


def _written(name: str) -> Any:
    def f(self: Tensor, *args: Any) -> Tensor:
        return in_place(self, _f[name], *args)
    f.__name__, f.__doc__ = name + "_", f"{name}, in place."
    return f


logical_and_, logical_or_, logical_xor_, logical_not_ = (_written("logical_" + n) for n in ("and", "or", "xor", "not"))
arccos, arcsin, arctan, arccosh, arcsinh, arctanh, arctan2 = (
    _f[n] for n in ("acos", "asin", "atan", "acosh", "asinh", "atanh", "atan2"))

greater, greater_equal, less, less_equal, not_equal = (_f[n] for n in ("gt", "ge", "lt", "le", "ne"))


@takes_out
def gcd(input: Tensor, other: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """The greatest common divisor of integers, by Euclid's steps for all at once."""
    a, b = input.abs(), other.abs()
    if a.is_floating_point() or b.is_floating_point():
        raise RuntimeError("gcd: expected integers")
    a, b = a + b * 0, b + a * 0
    while bool((b != 0).any()):
        rest = a % _f["where"](b == 0, 1, b)
        a, b = _f["where"](b == 0, a, b), _f["where"](b == 0, b, rest)
    return a


@takes_out
def lcm(input: Tensor, other: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """The least common multiple of integers."""
    d = gcd(input, other)
    return (input // _f["where"](d == 0, 1, d) * other).abs()


_checks.install(globals())
