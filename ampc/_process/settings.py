"""Settings of the whole process."""

from __future__ import annotations

from typing import Any, Union

from .. import _C
from .._messages.callers import warn
from .._tensor.device import asked, default_type, device, set_default_device

__all__ = [
    "are_deterministic_algorithms_enabled", "get_deterministic_debug_mode", "get_float32_matmul_precision", "get_num_interop_threads",
    "is_deterministic_algorithms_warn_only_enabled", "set_default_tensor_type", "set_deterministic_debug_mode", "set_float32_matmul_precision",
    "set_flush_denormal", "set_num_interop_threads", "use_deterministic_algorithms",
]

_precision = "highest"


def get_float32_matmul_precision() -> str:
    """'highest', 'high' or 'medium'."""
    return "highest" if _precision != "highest" and not _C._cuda_allow_tf32() else _precision


def set_float32_matmul_precision(precision: str) -> None:
    """'highest': float32 products round nothing. 'high' and 'medium': on a GPU they may round operands to TF32, as
    ``backends.cuda.matmul.allow_tf32`` does; on the CPU they stay float32. ValueError for another word."""
    global _precision
    if not isinstance(precision, str):
        raise RuntimeError(f"set_float32_matmul_precision: expected a string, got {type(precision).__name__}")
    if precision not in ("highest", "high", "medium"):
        raise ValueError(f"set_float32_matmul_precision: expected 'highest', 'high' or 'medium', got {precision!r}")
    _precision = precision
    _C._cuda_allow_tf32(precision != "highest")


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Every operator gives the same numbers every time, at any number of threads, so this changes one thing: with True, `empty` and its like
    hold values that are noticed (`utils.deterministic`)."""
    asked.update(deterministic=bool(mode), warn_only=bool(warn_only))


def are_deterministic_algorithms_enabled() -> bool:
    """What `use_deterministic_algorithms` was told last; False at first, as in torch, though they all are."""
    return asked["deterministic"]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """What `use_deterministic_algorithms` was told last."""
    return asked["warn_only"]


_DEBUG_MODES = {"default": 0, "warn": 1, "error": 2}


def set_deterministic_debug_mode(debug_mode: Union[int, str]) -> None:
    """'default', 'warn' or 'error' (0, 1 or 2): `use_deterministic_algorithms` in one word."""
    mode = _DEBUG_MODES.get(debug_mode, -1) if isinstance(debug_mode, str) else debug_mode
    if mode not in _DEBUG_MODES.values():
        raise RuntimeError(f"set_deterministic_debug_mode: expected 'default', 'warn', 'error' or 0, 1, 2, got {debug_mode!r}")
    use_deterministic_algorithms(mode > 0, warn_only=mode == 1)


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2: what `set_deterministic_debug_mode` and `use_deterministic_algorithms` were told last."""
    return (1 if asked["warn_only"] else 2) if asked["deterministic"] else 0


def set_default_tensor_type(t: Any) -> None:
    """Sets default dtype, and device for a type of torch.cuda's, from a tensor type or its name (torch's older way)."""
    name = t if isinstance(t, str) else getattr(t, "__qualname__", type(t).__name__) if not hasattr(t, "type_name") else t.type_name
    kinds = {"HalfTensor": _C.float16, "BFloat16Tensor": _C.bfloat16, "FloatTensor": _C.float32, "Tensor": _C.float32, "DoubleTensor": _C.float64}
    kind = name.rsplit(".", 1)[-1]
    if kind not in kinds:
        raise TypeError(f"set_default_tensor_type: expected a floating point tensor type, got {name}")
    _C.set_default_dtype(kinds[kind])
    where = device("cuda" if ".cuda." in name else "cpu")
    set_default_device(where)
    default_type["device"] = where


def get_num_interop_threads() -> int:
    """1: operators run one after another."""
    return 1


def set_num_interop_threads(n: int) -> None:
    """Accepted where it asks for what is: one. A UserWarning for more."""
    if n != 1:
        warn("set_num_interop_threads: operators run one after another; set_num_threads is about each of them")


def set_flush_denormal(mode: bool) -> bool:
    """False: subnormal numbers are kept; the state of the CPU is not touched."""
    return False
