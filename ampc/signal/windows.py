"""Window functions, computed in float64 and rounded once. Windows of ``M`` values are symmetric; with ``sym=False`` they are the first M of
M + 1, whose repetition has no seam."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, Optional

import numpy as np

from .. import _C, _ops
from .._C import Tensor, dtype
from .._names.missing import absent_from
from .._tensor import creation as make

__all__ = ["bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser", "nuttall"]

_Of = Callable[[Any, int], Any]  # the values at 0, 1, ... of a window that would end at the number


def _check_layout(name: str, layout: Any) -> None:
    if layout is not None and "strided" not in str(layout):
        raise ValueError(f"{name}: windows are strided tensors, got {layout}")


def _window(name: str, of: _Of, M: int, sym: builtins.bool, dtype: Any, layout: Any, device: Any, requires_grad: builtins.bool,
            alone: float = 1.0) -> Tensor:
    if M < 0:
        raise ValueError(f"{name}: the length must be 0 or more, got {M}")
    _check_layout(name, layout)
    dtype = dtype or _C.get_default_dtype()
    if dtype not in (_C.float32, _C.float64):
        raise ValueError(f"{name}: expected float32 or float64, got {dtype}")
    return make.tensor(_values(of, M, sym, alone), dtype=dtype, device=device, requires_grad=requires_grad)


def _values(of: _Of, M: int, sym: builtins.bool, alone: float = 1.0) -> Any:
    """The window's values; ``alone`` is that of a window of one."""
    return np.full(M, alone) if M < 2 else of(np.arange(M, dtype=np.float64), M - 1 if sym else M)


def _cosines(*a: float) -> _Of:
    return lambda n, end: sum((-1) ** i * w * np.cos(2 * np.pi * i * n / end) for i, w in enumerate(a))


def _triangle(n: Any, end: int) -> Any:
    return 1 - np.abs(2 * n / end - 1)


def _kaiser(beta: float) -> _Of:
    return lambda n, end: _i0(beta * np.sqrt(np.maximum(1 - (2 * n / end - 1) ** 2, 0))) / _i0(np.array(float(beta)))


def _i0(x: Any) -> Any:
    return _ops.i0(_C.from_numpy(x)).numpy()


def general_cosine(M: int, *, a: Iterable[float], sym: builtins.bool = True, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
                   requires_grad: builtins.bool = False) -> Tensor:
    """The sum of (-1)^i a[i] cos(2 pi i n / (M - 1))."""
    if M > 1 and not isinstance(a, Iterable):
        raise TypeError(f"general_cosine: `a` must be a list of numbers, got {type(a).__name__}")
    weights = list(a) if M > 1 else []
    if M > 1 and not weights:
        raise ValueError("general_cosine: `a` must hold at least one number")
    return _window("general_cosine", _cosines(*weights), M, sym, dtype, layout, device, requires_grad)


def general_hamming(M: int, *, alpha: float = 0.54, sym: builtins.bool = True, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
                    requires_grad: builtins.bool = False) -> Tensor:
    """alpha - (1 - alpha) cos(2 pi n / (M - 1))"""
    return _window("general_hamming", _cosines(alpha, 1 - alpha), M, sym, dtype, layout, device, requires_grad)


def hamming(M: int, *, sym: builtins.bool = True, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
            requires_grad: builtins.bool = False) -> Tensor:
    """0.54 - 0.46 cos(2 pi n / (M - 1))"""
    return _window("hamming", _cosines(0.54, 0.46), M, sym, dtype, layout, device, requires_grad)


def hann(M: int, *, sym: builtins.bool = True, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
         requires_grad: builtins.bool = False) -> Tensor:
    """0.5 - 0.5 cos(2 pi n / (M - 1))"""
    return _window("hann", _cosines(0.5, 0.5), M, sym, dtype, layout, device, requires_grad)


def blackman(M: int, *, sym: builtins.bool = True, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
             requires_grad: builtins.bool = False) -> Tensor:
    """0.42 - 0.5 cos(2 pi n / (M - 1)) + 0.08 cos(4 pi n / (M - 1))"""
    return _window("blackman", _cosines(0.42, 0.5, 0.08), M, sym, dtype, layout, device, requires_grad)


def nuttall(M: int, *, sym: builtins.bool = True, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
            requires_grad: builtins.bool = False) -> Tensor:
    """Nuttall's minimum of four terms (1981)."""
    return _window("nuttall", _cosines(0.3635819, 0.4891775, 0.1365995, 0.0106411), M, sym, dtype, layout, device, requires_grad)


def bartlett(M: int, *, sym: builtins.bool = True, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
             requires_grad: builtins.bool = False) -> Tensor:
    """A triangle that begins and ends with 0."""
    return _window("bartlett", _triangle, M, sym, dtype, layout, device, requires_grad)


def cosine(M: int, *, sym: builtins.bool = True, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
           requires_grad: builtins.bool = False) -> Tensor:
    """sin(pi (n + 1/2) / M)"""
    return _window("cosine", lambda n, end: np.sin(np.pi * (n + 0.5) / (end + 1)), M, sym, dtype, layout, device, requires_grad)


def exponential(M: int, *, center: Optional[float] = None, tau: float = 1.0, sym: builtins.bool = True, dtype: Optional[dtype] = None,
                layout: Any = None, device: Any = None, requires_grad: builtins.bool = False) -> Tensor:
    """exp(-|n - center| / tau), by default around the middle."""
    if tau <= 0:
        raise ValueError(f"exponential: `tau` must be above 0, got {tau}")
    if sym and center is not None:
        raise ValueError("exponential: a symmetric window takes no `center`; give sym=False")
    return _window("exponential", lambda n, end: np.exp(-np.abs(n - (end / 2 if center is None else center)) / tau), M, sym, dtype, layout, device,
                   requires_grad, float(np.exp(-abs(center or 0) / tau)))


def gaussian(M: int, *, std: float = 1.0, sym: builtins.bool = True, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
             requires_grad: builtins.bool = False) -> Tensor:
    """exp(-(n - middle)^2 / (2 std^2))"""
    if std <= 0:
        raise ValueError(f"gaussian: `std` must be above 0, got {std}")
    return _window("gaussian", lambda n, end: np.exp(-0.5 * ((n - end / 2) / std) ** 2), M, sym, dtype, layout, device, requires_grad)


def kaiser(M: int, *, beta: float = 12.0, sym: builtins.bool = True, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
           requires_grad: builtins.bool = False) -> Tensor:
    """I0(beta sqrt(1 - (2 n / (M - 1) - 1)^2)) / I0(beta) (Kaiser 1974)"""
    if beta < 0:
        raise ValueError(f"kaiser: `beta` must be 0 or more, got {beta}")
    return _window("kaiser", _kaiser(beta), M, sym, dtype, layout, device, requires_grad)


# -- ampc.hann_window and its like: periodic unless told otherwise, of any floating point dtype --------------------------------------


def _periodic(name: str, of: _Of, window_length: int, periodic: builtins.bool, dtype: Any, layout: Any, device: Any,
              requires_grad: builtins.bool, pin_memory: builtins.bool) -> Tensor:
    if window_length < 0:
        raise RuntimeError(f"{name}: the length must be 0 or more, got {window_length}")
    _check_layout(name, layout)
    dtype = dtype or _C.get_default_dtype()
    if not dtype.is_floating_point:
        raise RuntimeError(f"{name}: expected a floating point dtype, got {dtype}")
    return make.tensor(_values(of, window_length, not periodic), dtype=dtype, device=device, requires_grad=requires_grad, pin_memory=pin_memory)


def hann_window(window_length: int, periodic: builtins.bool = True, *, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
                requires_grad: builtins.bool = False, pin_memory: builtins.bool = False) -> Tensor:
    """0.5 - 0.5 cos(2 pi n / length)"""
    return _periodic("hann_window", _cosines(0.5, 0.5), window_length, periodic, dtype, layout, device, requires_grad, pin_memory)


def hamming_window(window_length: int, periodic: builtins.bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Optional[dtype] = None,
                   layout: Any = None, device: Any = None, requires_grad: builtins.bool = False, pin_memory: builtins.bool = False) -> Tensor:
    """alpha - beta cos(2 pi n / length)"""
    return _periodic("hamming_window", _cosines(alpha, beta), window_length, periodic, dtype, layout, device, requires_grad, pin_memory)


def blackman_window(window_length: int, periodic: builtins.bool = True, *, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
                    requires_grad: builtins.bool = False, pin_memory: builtins.bool = False) -> Tensor:
    """0.42 - 0.5 cos(2 pi n / length) + 0.08 cos(4 pi n / length)"""
    return _periodic("blackman_window", _cosines(0.42, 0.5, 0.08), window_length, periodic, dtype, layout, device, requires_grad, pin_memory)


def bartlett_window(window_length: int, periodic: builtins.bool = True, *, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
                    requires_grad: builtins.bool = False, pin_memory: builtins.bool = False) -> Tensor:
    """A triangle that begins with 0."""
    return _periodic("bartlett_window", _triangle, window_length, periodic, dtype, layout, device, requires_grad, pin_memory)


def kaiser_window(window_length: int, periodic: builtins.bool = True, beta: float = 12.0, *, dtype: Optional[dtype] = None, layout: Any = None,
                  device: Any = None, requires_grad: builtins.bool = False, pin_memory: builtins.bool = False) -> Tensor:
    """I0(beta sqrt(1 - (2 n / length - 1)^2)) / I0(beta)"""
    return _periodic("kaiser_window", _kaiser(beta), window_length, periodic, dtype, layout, device, requires_grad, pin_memory)


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
