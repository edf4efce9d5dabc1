"""Comparing tensors in tests: tolerances follow the dtype. Source of names and numbers: torch.testing. For pytest see ``pytest_ampc``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Tuple, Union

import numpy as np

from . import _C
from ._C import Tensor
from ._messages.callers import warn
from ._names.missing import absent_from
from ._tensor import creation as make
from ._tensor.device import CPU
from ._tensor.finfo import finfo, iinfo

__tracebackhide__ = __unittest = True  # pytest and unittest show the line of the test, and none of this file

TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}  # rtol, atol; others 0


def default_tolerances(*inputs: Union[Tensor, _C.dtype]) -> Tuple[float, float]:
    """(rtol, atol) of the least exact dtype among the inputs."""
    names = [(t.dtype if isinstance(t, Tensor) else t).name for t in inputs]
    found = [TOLERANCES.get(name, (0.0, 0.0)) for name in names]
    return max(r for r, _ in found), max(a for _, a in found)


def assert_close(actual: Any, expected: Any, *, rtol: Optional[float] = None, atol: Optional[float] = None, equal_nan: bool = False,
                 allow_subclasses: bool = True, check_device: bool = True, check_dtype: bool = True, check_layout: bool = True,
                 check_stride: bool = False, msg: Union[str, Callable[[str], str], None] = None) -> None:
    """Raises AssertionError unless |actual - expected| <= atol + rtol |expected|, element by element.

    Both may be Tensors, NumPy arrays, numbers, None, or sequences and mappings of them. By default ``rtol`` is 1e-3 for float16, 1.6e-2 for
    bfloat16, 1.3e-6 for float32 and 1e-7 for float64. ``atol`` is 1e-5, and 1e-7 for float64. Both are 0 for integers.

    Args:
        equal_nan: nan equals nan.
        allow_subclasses: False: both must be of one type.
        check_device, check_dtype, check_stride: these must agree, too. So do layouts, which are all strided, with ``check_layout``.
        msg: the error's text, or a function of it.

    ValueError where only one of ``rtol`` and ``atol`` is given; TypeError for what cannot be compared."""
    if (rtol is None) != (atol is None):
        raise ValueError("assert_close: `rtol` and `atol` come together; only one was given")
    if not allow_subclasses and type(actual) is not type(expected):
        raise TypeError(f"assert_close: the types differ: {type(actual).__name__}, expected {type(expected).__name__}")
    checks = [name for name, on in (("device", check_device), ("dtype", check_dtype), ("stride", check_stride)) if on]
    wrong = _difference(actual, expected, rtol, atol, equal_nan, checks, "")
    if wrong:
        raise AssertionError(msg(wrong) if callable(msg) else msg if msg is not None else wrong)


def _difference(a: Any, b: Any, rtol: Any, atol: Any, equal_nan: bool, checks: List[str], at: str) -> str:
    """What is wrong; '' where nothing is. ``at``: the way to this item."""
    where = f"{at}: " if at else ""
    if a is None or b is None:
        return "" if a is b else f"{where}{a}, expected {b}"
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if set(a) != set(b):
            return f"{where}the keys differ: {sorted(map(str, set(a) ^ set(b)))} are on one side only"
        return next(filter(None, (_difference(a[k], b[k], rtol, atol, equal_nan, checks, f"{at}[{k!r}]") for k in a)), "")
    if _is_sequence(a) and _is_sequence(b):
        if len(a) != len(b):
            return f"{where}{len(a)} items were expected to be {len(b)}"
        return next(filter(None, (_difference(x, y, rtol, atol, equal_nan, checks, f"{at}[{i}]") for i, (x, y) in enumerate(zip(a, b)))), "")
    x, y = _as_tensor(a, where), _as_tensor(b, where)
    if x.shape != y.shape:
        return f"{where}the shapes differ: {list(x.shape)}, expected {list(y.shape)}"
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        for name in checks:
            mine, its = (getattr(t, name)() if name == "stride" else getattr(t, name) for t in (x, y))
            if mine != its:
                return f"{where}the {name}s differ: {mine}, expected {its}"
    if rtol is None:
        rtol, atol = default_tolerances(x, y)
    return _values(x, y, rtol, atol, equal_nan, where)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _as_tensor(value: Any, where: str) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (bool, int, float, np.ndarray, np.generic)):
        return make.tensor(value, dtype=_C.float64 if isinstance(value, float) else None, device=CPU)
    raise TypeError(f"assert_close: {where}expected a Tensor, an array, a number, or sequences or mappings of them, got {type(value).__name__}")


def _values(x: Tensor, y: Tensor, rtol: float, atol: float, equal_nan: bool, where: str) -> str:
    a, b = (t.detach().to(CPU).double().numpy() for t in (x, y))
    with np.errstate(invalid="ignore"):
        good = (a == b) | (np.abs(a - b) <= atol + rtol * np.abs(b))
        good &= np.isfinite(b) | (a == b)
    if equal_nan:
        good |= np.isnan(a) & np.isnan(b)
    if good.all():
        return ""
    bad = ~good
    with np.errstate(invalid="ignore", divide="ignore"):
        away = np.where(bad, np.where(np.isnan(a - b), np.inf, np.abs(a - b)), -1.0)
        relative = np.where(bad, np.where(b != 0, away / np.abs(b), np.inf), -1.0)
    at, by = np.unravel_index(int(away.argmax()), a.shape), np.unravel_index(int(np.nan_to_num(relative, posinf=np.inf).argmax()), a.shape)
    lines = [f"{where}{int(bad.sum())} of {a.size} values differ ({100 * bad.mean():.1f} %); {x.dtype} against {y.dtype}; allowed are {atol:g} + "
             f"{rtol:g} |expected|",
             f"  most: {a[at]:.9g}, expected {b[at]:.9g}, at {list(map(int, at))}: {_text(away[at])} apart",
             f"  most in relation: {a[by]:.9g}, expected {b[by]:.9g}, at {list(map(int, by))}: {_text(relative[by])}"]
    return "\n".join(lines)


def _text(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "not comparable"


_LIMITS = {"uint8": (0, 10), "bool": (0, 2)}  # of the values that are drawn by default; of others -9 to 9


def make_tensor(*shape: Any, dtype: _C.dtype, device: Any, low: Optional[float] = None, high: Optional[float] = None, requires_grad: bool = False,
                noncontiguous: bool = False, exclude_zero: bool = False, memory_format: Any = None) -> Tensor:
    """A tensor of values drawn uniformly from [low, high).

    Args:
        shape: sizes, one by one or as a sequence.
        low, high: -9 and 9 by default, of integers -9 and 10, of uint8 0 and 10, of bool 0 and 2. Cut to what the dtype holds.
        noncontiguous: with gaps between the values in memory, where there is more than one.
        exclude_zero: the smallest positive number in place of 0; of integers and bool 1.

    ValueError for limits that are nan or leave nothing to draw, and for gradients of integers; and where both ``noncontiguous`` and
    ``memory_format`` are given. Equal limits of a floating point dtype give that value, and a FutureWarning."""
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    if low is not None and low == high and dtype.is_floating_point:
        warn(f"make_tensor: between equal limits lies nothing to draw, so all values are {low}; use full", FutureWarning)
        return make.full(sizes, low, dtype=dtype, device=device, requires_grad=requires_grad)
    first, last = _limits(dtype, low, high)
    if requires_grad and not dtype.is_floating_point:
        raise ValueError(f"make_tensor: only floating point and complex tensors have gradients, got requires_grad=True and {dtype}")
    if noncontiguous and memory_format is not None:
        raise ValueError(f"make_tensor: give `noncontiguous` or `memory_format`, one of them, got True and {memory_format}")
    if dtype.is_floating_point:
        t = (make.rand(*sizes, dtype=_C.float64, device=device) * (last - first) + first).to(dtype)
        t = t.masked_fill(t >= last, first)  # rounded up to the limit, which none reaches
    else:
        t = make.randint(math.ceil(first), math.ceil(last), sizes, dtype=_C.int64, device=device).to(dtype)
    if exclude_zero:
        t = t.masked_fill(t == 0, finfo(dtype).tiny if dtype.is_floating_point else 1)
    if noncontiguous and t.numel() > 1:
        t = t.repeat_interleave(2, dim=-1)[..., ::2]
    return (t if memory_format is None else t.clone(memory_format=memory_format)).requires_grad_(requires_grad)


def _limits(dtype: _C.dtype, low: Optional[float], high: Optional[float]) -> Tuple[float, float]:
    least, most = _LIMITS.get(dtype.name, (-9, 9 if dtype.is_floating_point else 10))
    low, high = least if low is None else low, most if high is None else high
    if low != low or high != high:
        raise ValueError(f"make_tensor: `low` and `high` must be numbers other than nan, got {low} and {high}")
    if low >= high:
        raise ValueError(f"make_tensor: expected low < high, got {low} and {high}")
    if dtype.name == "bool":
        held = (0.0, 2.0)
    elif dtype.is_floating_point:
        held = (finfo(dtype).min, finfo(dtype).max)
    else:
        held = (iinfo(dtype).min, iinfo(dtype).max + 1)
    first, last = max(low, held[0]), min(high, held[1])
    if first >= last:
        raise ValueError(f"make_tensor: nothing of {dtype} lies in [{low}, {high})")
    return first, last


def assert_allclose(actual: Any, expected: Any, rtol: Optional[float] = None, atol: Optional[float] = None, equal_nan: bool = True,
                    msg: str = "") -> None:
    """torch's older form of assert_close: no dtypes and devices are compared, and nan equals nan."""
    warn("testing.assert_allclose is torch's older form; use testing.assert_close, which compares dtypes and devices, too", FutureWarning)
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=False, check_dtype=False, msg=msg or None)


__all__ = ["assert_allclose", "assert_close", "default_tolerances", "make_tensor"]

__path__: List[str] = []  # the table has modules below this one
if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
