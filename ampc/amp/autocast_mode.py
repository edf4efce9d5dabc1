"""autocast: regions in which operators choose their precision. The C core holds the state; this module has the context manager and
decorator."""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional, TypeVar

from .. import _C
from .. import policy as policies
from .._C import Tensor, dtype
from .._events import announce
from .._messages.callers import warn

__all__ = [
    "autocast", "autocast_decrement_nesting", "autocast_increment_nesting", "get_autocast_cpu_dtype", "get_autocast_gpu_dtype",
    "is_autocast_cpu_enabled", "is_autocast_enabled", "set_autocast_cpu_dtype", "set_autocast_cpu_enabled", "set_autocast_gpu_dtype",
]

F = TypeVar("F", bound=Callable[..., Any])
_HALF = (_C.float16, _C.bfloat16)
_SERVED = ("cpu", "cuda")
_STATE = ("device", "fast_dtype", "_enabled", "_cache_enabled", "_policy")  # what a region is, which the core holds


class _Said:
    """Which warnings were given already."""

    cuda_means_cpu = False


def cuda_means_cpu(what: str) -> None:
    """Without a usable GPU, 'cuda' regions and scalers act on the CPU; that is said once, with the script's line."""
    if _Said.cuda_means_cpu or _C._cuda_count():
        return
    _Said.cuda_means_cpu = True
    warn(f"{what}: there is no usable GPU; 'cuda' acts on the CPU, with float16 as its default dtype")


def _device_name(device_type: Any) -> str:
    if device_type is None:
        return "cuda" if _C._cuda_count() else "cpu"
    if not isinstance(device_type, str):
        raise ValueError(f"autocast: `device_type` must be a string such as 'cpu' or 'cuda', got {type(device_type).__name__}")
    if device_type not in _SERVED and not is_autocast_available(device_type):
        raise RuntimeError(f"autocast: device type '{device_type}' cannot be autocast; expected 'cpu' or 'cuda'")
    return device_type


class autocast(_C.AutocastScope):
    """A region that chooses a precision for each operator.

    Matrix products run in ``dtype``. Sums, losses and normalisations run in float32. Operators with inputs of different dtypes run in the
    widest of them.

    Args:
        device_type: 'cpu' or 'cuda'; without a usable GPU 'cuda' acts on the CPU. By default 'cuda' where there is one, else 'cpu'.
        dtype: float16 or bfloat16; default bfloat16 for 'cpu', float16 for 'cuda'.
        enabled: False opens a region without casts.
        cache_enabled: whether packed copies of weights are kept between uses (default: no change).
        policy: a ``policy.CastPolicy`` or the path of its file, which sets the precision of operators and modules. The default is the
            policy of the surrounding region or of ``policy.using``, else the table's.

    A region can be nested, entered again, and used as a decorator. float64 inputs, ``out=`` and in-place operators are not cast.
    Source: torch.amp.autocast.
    """

    _observable = True  # a listener may observe what runs in it

    def __init__(self, device_type: Optional[str] = None, dtype: Optional[dtype] = None, enabled: bool = True,
                 cache_enabled: Optional[bool] = None, *, policy: Any = None) -> None:
        self.device = _device_name(device_type)
        self._policy = None if policy is None else policies.given(policy)
        if self.device == "cuda" and enabled:
            cuda_means_cpu("autocast")
        if dtype is not None and not isinstance(dtype, _C.dtype):
            raise TypeError(f"autocast: `dtype` must be ampc.float16 or ampc.bfloat16, got {dtype!r}")
        self.fast_dtype = _C.get_autocast_dtype(self.device) if dtype is None else dtype
        self._enabled = bool(enabled)
        self._cache_enabled = _C.is_autocast_cache_enabled() if cache_enabled is None else bool(cache_enabled)
        if self._enabled and self.fast_dtype not in _HALF:
            warn(f"autocast: {self.fast_dtype} is not a 16-bit floating point dtype; the region is disabled. Use ampc.float16 or ampc.bfloat16")
            self._enabled = False
        if self._enabled and self.device == "cpu" and not _C._has_units(self.fast_dtype):
            announce.region_without_units(self.fast_dtype)

    def __call__(self, func: F) -> F:
        if not callable(func):
            raise TypeError(f"autocast decorates functions, got {type(func).__name__}; as a context manager write "
                            "`with autocast(...):`")

        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        wrapped.__script_unsupported = "autocast"  # type: ignore[attr-defined]
        return wrapped  # type: ignore[return-value]

    def __getstate__(self) -> dict:
        return {**self.__dict__, **{name: getattr(self, name) for name in _STATE}}

    def __setstate__(self, state: dict) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"autocast(device_type='{self.device}', dtype={self.fast_dtype}, enabled={self._enabled})"


_C._make_regions_of(autocast)
_C._set_policy_state(policies.state)


def is_autocast_available(device_type: str) -> bool:
    """True for 'cpu' and 'cuda'; False for other devices. RuntimeError for what is no device's name."""
    if device_type in _SERVED:
        return True
    if device_type in ("meta", "mps", "xpu", "hpu", "xla", "ipu", "mtia", "maia", "privateuseone"):
        return False
    raise RuntimeError(f"'{device_type}' is not the name of a device type; expected 'cpu' or 'cuda'")


def is_autocast_enabled(device_type: Optional[str] = None) -> bool:
    """Whether the calling thread is in an enabled region (of that device type; of any when None). False for devices that autocast does not
    serve, such as 'mps'. RuntimeError for what is no device's name."""
    if device_type is None:
        return _C._autocast_active()
    return is_autocast_available(device_type) and _C._is_autocast_enabled(device_type)


def is_autocast_cpu_enabled() -> bool:
    """is_autocast_enabled('cpu')"""
    return _C._is_autocast_enabled("cpu")


def get_autocast_gpu_dtype() -> dtype:
    """get_autocast_dtype('cuda')"""
    return _C.get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> dtype:
    """get_autocast_dtype('cpu')"""
    return _C.get_autocast_dtype("cpu")


def set_autocast_gpu_dtype(dtype: dtype) -> None:
    """set_autocast_dtype('cuda', dtype)"""
    _C.set_autocast_dtype("cuda", dtype)


def set_autocast_cpu_dtype(dtype: dtype) -> None:
    """set_autocast_dtype('cpu', dtype)"""
    _C.set_autocast_dtype("cpu", dtype)


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """set_autocast_enabled('cpu', enabled)"""
    _C.set_autocast_enabled("cpu", enabled)


def autocast_increment_nesting() -> int:
    """One region more, as torch counts them; returns how many."""
    return _C._autocast_nest(1)


def autocast_decrement_nesting() -> int:
    """One region less; returns how many."""
    return _C._autocast_nest(-1)


# -- Python Functions under autocast --------------------------------------------------------------------


def _cast(value: Any, dtype: dtype, there: Optional[str]) -> Any:
    """Floating tensors, in whatever container, in ``dtype``; of one device type only, unless None."""
    if isinstance(value, Tensor):
        eligible = value.is_floating_point() and value.dtype != _C.float64 and there in (None, value.device.type)
        return value.to(dtype) if eligible else value
    if isinstance(value, (str, bytes)):
        return value
    if isinstance(value, dict):
        return {_cast(k, dtype, there): _cast(v, dtype, there) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(v, dtype, there) for v in value)
    return value


def custom_fwd(fwd: Optional[Callable] = None, *, device_type: str = "cuda", cast_inputs: Optional[dtype] = None) -> Callable:
    """Decorates ``forward`` of an autograd.Function. With ``cast_inputs``, floating point arguments are
    cast to it and forward runs with autocast off; else forward runs under the surrounding autocast.
    backward then follows by ``custom_bwd``."""
    _device_name(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        gpu = _C._cuda_count() > 0  # then regions of cpu and cuda are apart, as in torch
        active = _C._is_autocast_enabled(device_type) if gpu else _C._autocast_active()
        ctx._dtype = (None if gpu else _C._autocast_active_dtype()) or _C.get_autocast_dtype(device_type)
        ctx._fwd_used_autocast = active and cast_inputs is None
        if cast_inputs is None or not active:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            there = device_type if gpu else None
            return fwd(*_cast(args, cast_inputs, there), **_cast(kwargs, cast_inputs, there))

    return decorated


def custom_bwd(bwd: Optional[Callable] = None, *, device_type: str = "cuda") -> Callable:
    """Decorates ``backward`` of an autograd.Function whose forward has ``custom_fwd``: it runs with the
    autocast state of forward."""
    _device_name(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        with autocast(device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(*args, **kwargs)

    return decorated
