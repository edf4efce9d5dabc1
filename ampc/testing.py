"""Comparing tensors in tests: tolerances follow the dtype. Source of names and numbers: torch.testing. For pytest see ``pytest_ampc``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Callable, List, Optional, Tuple, Union

import numpy as np

from . import _C
from . import _creation as make
from ._C import Tensor
from ._device import CPU

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

    Both may be Tensors, NumPy arrays, numbers, or sequences and mappings of them. By default ``rtol`` is 1e-3 for float16, 1.6e-2 for
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
        raise AssertionError(f"the types differ: {type(actual).__name__}, expected {type(expected).__name__}")
    checks = [name for name, on in (("device", check_device), ("dtype", check_dtype), ("stride", check_stride)) if on]
    wrong = _difference(actual, expected, rtol, atol, equal_nan, checks, "")
    if wrong:
        raise AssertionError(msg(wrong) if callable(msg) else msg if msg is not None else wrong)


def _difference(a: Any, b: Any, rtol: Any, atol: Any, equal_nan: bool, checks: List[str], at: str) -> str:
    """What is wrong; '' where nothing is. ``at``: the way to this item."""
    where = f"{at}: " if at else ""
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


__all__ = ["assert_close", "default_tolerances"]
