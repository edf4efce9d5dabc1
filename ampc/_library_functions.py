"""Small functions of torch that libraries call, with what they do: checks, arithmetic of sizes, facts. The table in ``_names.table`` shows
them under torch's names."""

from __future__ import annotations

import datetime
import math
import re
import sys
from types import ModuleType
from typing import Any, Callable, List, Optional, Tuple, Type

from . import _C, _ops
from ._C import Tensor
from ._messages.callers import warn
from ._tensor.device import device, get_default_device, layout
from ._tensor.device import device as _Device

default_pg_timeout = datetime.timedelta(minutes=30)
np_str_obj_array_pattern = re.compile(r"[SaUO]")

Message = Optional[Callable[[], Any]]


# Layouts that no tensor has, to compare with.
sparse_coo, sparse_csr, sparse_csc = layout("sparse_coo"), layout("sparse_csr"), layout("sparse_csc")
sparse_bsr, sparse_bsc, jagged = layout("sparse_bsr"), layout("sparse_bsc"), layout("jagged")


class group:
    """Names of groups of processes; there is one process, and no group."""

    WORLD: Any = None
    NON_GROUP_MEMBER = -100


# -- checks ------------------------------------------------------------------------------------------------------------


def _check_with(error_type: Type[Exception], cond: bool, message: Message) -> None:
    """Raises ``error_type`` with ``message()`` where ``cond`` is False. TypeError for a condition that is no bool."""
    if not isinstance(cond, bool):
        raise TypeError(f"_check: expected True or False, got {type(cond).__name__}")
    if not cond:
        if message is not None and not callable(message):
            raise TypeError(f"_check: `message` must be a function that gives the text, got {type(message).__name__}")
        raise error_type(str(message()) if message is not None else "_check: the condition is False")


def _check(cond: bool, message: Message = None) -> None:
    """RuntimeError where ``cond`` is False."""
    _check_with(RuntimeError, cond, message)


def _check_index(cond: bool, message: Message = None) -> None:
    """IndexError where ``cond`` is False."""
    _check_with(IndexError, cond, message)


def _check_value(cond: bool, message: Message = None) -> None:
    """ValueError where ``cond`` is False."""
    _check_with(ValueError, cond, message)


def _check_type(cond: bool, message: Message = None) -> None:
    """TypeError where ``cond`` is False."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: bool, message: Message = None) -> None:
    """NotImplementedError where ``cond`` is False."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: int, message: Message = None, *, max: Optional[int] = None) -> None:
    """RuntimeError for a negative number, or one above ``max``."""
    _check_with(RuntimeError, i >= 0 and (max is None or i <= max), message)


def _check_tensor_all_with(error_type: Type[Exception], cond: Tensor, message: Message = None) -> None:
    """Raises ``error_type`` where an element of the boolean tensor is False."""
    if not isinstance(cond, Tensor) or cond.dtype != _C.bool:
        raise TypeError(f"_check_tensor_all: expected a tensor of bool, got {cond.dtype if isinstance(cond, Tensor) else type(cond).__name__}")
    _check_with(error_type, bool(cond.all()), message)


def _check_tensor_all(cond: Tensor, message: Message = None) -> None:
    """RuntimeError where an element of the boolean tensor is False."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _assert(condition: Any, message: str) -> None:
    """AssertionError with the message where the condition is false."""
    if not condition:
        raise AssertionError(message)


def _assert_async(input: Tensor, assert_msg: str = "_assert_async: the tensor's value is zero") -> None:
    """RuntimeError for a tensor of one element that is zero; the value is waited for."""
    if not bool(input):
        raise RuntimeError(assert_msg)


# -- sizes, which are plain numbers here -------------------------------------------------------------------------------


def sym_int(a: Any) -> int:
    """The number without its fraction."""
    return math.trunc(a)


def sym_float(a: Any) -> float:
    """The number as a float."""
    return float(a)


def sym_max(a: Any, b: Any) -> Any:
    """The larger one."""
    return max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller one."""
    return min(a, b)


def sym_not(a: Any) -> bool:
    """``not a``"""
    return not a


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """``t if b else f``"""
    return t if b else f


def sym_sum(args: Any) -> Any:
    """The sum of numbers."""
    return sum(args)


def sym_sqrt(a: Any) -> float:
    """The square root of a number."""
    return math.sqrt(a)


def plain_bool(a: Any) -> bool:
    """The condition as a bool: sizes are known."""
    return bool(a)


def lies_in_rows(a: Tensor, *args: Any, **kwargs: Any) -> bool:
    """Whether the tensor is row-major."""
    return a.is_contiguous()


class printoptions(_C.Scope):
    """Inside, tensors are printed with these options of ``set_printoptions``."""

    def __init__(self, **options: Any) -> None:
        self._given = options

    def _changes(self) -> tuple:
        from ._tensor.printing import _options, set_printoptions

        before = {name: getattr(_options, name) for name in ("precision", "threshold", "edgeitems", "linewidth", "sci_mode")}
        return ((lambda: set_printoptions(**self._given), (), lambda: set_printoptions(**before), ()),)


def _shape_as_tensor(input: Tensor) -> Tensor:
    """The sizes, an int64 tensor of the CPU."""
    from ._tensor.creation import tensor

    return tensor(list(input.shape), dtype=_C.int64, device="cpu")


# -- sparse matrices' indices, which libraries of graphs keep as dense tensors -----------------------------------------


def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Of sorted rows, how many there are before each of ``size`` rows and in all."""
    from ._tensor.creation import arange

    return _ops.searchsorted(input, arange(size + 1, dtype=input.dtype, device=input.device), out_int32=out_int32)


def _convert_indices_from_csr_to_coo(crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False) -> Tensor:
    """Rows and columns, [2, entries], from where each row begins and the columns."""
    from ._tensor.creation import arange

    rows = arange(crow_indices.numel() - 1, device=crow_indices.device).repeat_interleave(crow_indices.diff())
    return _ops.stack([col_indices, rows] if transpose else [rows, col_indices]).to(_C.int32 if out_int32 else _C.int64)


# -- control flow ------------------------------------------------------------------------------------------------------


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """``true_fn(*operands)`` where ``pred``, a bool or a tensor of one element, is true, else ``false_fn(*operands)``."""
    return true_fn(*operands) if bool(pred) else false_fn(*operands)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> Any:
    """``body_fn`` again and again, from ``carried_inputs`` on, as long as ``cond_fn`` of the same holds; what the last one gave."""
    given = carried_inputs
    while bool(cond_fn(*(given if isinstance(given, (tuple, list)) else (given,)))):
        given = body_fn(*(given if isinstance(given, (tuple, list)) else (given,)))
    return given


# -- devices -----------------------------------------------------------------------------------------------------------


def get_device_module(device: Any = None) -> ModuleType:
    """The module ``cuda`` or ``cpu``, of a device, which need not be there, or, for None, of the accelerator. RuntimeError for other kinds."""
    kind = (_get_accelerator() if device is None else _Device(device)).type
    if kind not in ("cpu", "cuda"):
        raise RuntimeError(f"get_device_module: there is no module of the device '{kind}'")
    return sys.modules[f"ampc.{kind}"]


def tqdm(*args: Any, **kwargs: Any) -> Any:
    """tqdm's bar. ModuleNotFoundError where it is not installed."""
    from tqdm import tqdm as bar

    return bar(*args, **kwargs)


def _get_accelerator() -> device:
    """device('cuda') where there is a GPU that can be used, else device('cpu')."""
    return device("cuda" if _C._cuda_count() > 0 else "cpu")


def _get_default_device() -> str:
    """The default device's name."""
    return str(get_default_device())


def get_device_states(*args: Any) -> Tuple[List[int], List[Any]]:
    """The numbers of the GPUs of the tensors among the arguments, and for each the state of the random stream."""
    from ._tensor.creation import get_rng_state

    gpus = [a.get_device() for a in args if isinstance(a, Tensor) and a.is_cuda]
    return gpus, [get_rng_state() for _ in gpus]


def set_device_states(devices: Any, states: Any, *, device_type: Any = None) -> None:
    """Continues the random stream from the last of the states; nothing for none."""
    set_rng_state_all(states)


def get_rng_state_all() -> List[Any]:
    """The state of the random stream once for each GPU, which all share it."""
    from ._tensor.creation import get_rng_state

    return [get_rng_state() for _ in range(_C._cuda_count())]


def set_rng_state_all(new_states: Any) -> None:
    """Continues the random stream from the last of the states; nothing for none."""
    from ._tensor.creation import set_rng_state

    for state in list(new_states)[-1:]:
        set_rng_state(state)


class DispatchKeySet:
    """A set of dispatch keys, which nothing here asks: ``DispatchKeySet(a) | DispatchKeySet(b)``."""

    def __init__(self, *keys: Any) -> None:
        self._keys = frozenset(keys)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self._keys, *other._keys)

    def has(self, key: Any) -> bool:
        """Whether the key is one of them."""
        return key in self._keys


# -- how ampc was built ------------------------------------------------------------------------------------------------


def show() -> str:
    """The compiler, flags and instruction set of this build, and its libraries, as text."""
    return "\n".join(["ampc built with:", *(f"  - {name}: {value}" for name, value in _C._build_info().items())])


def parallel_info() -> str:
    """How many threads operators use, as text."""
    return f"ampc: {_C.get_num_threads()} threads of its own for each operator, operators one after another"


# -- small parts of torch's own modules --------------------------------------------------------------------------------


def set_module(obj: Any, mod: str) -> None:
    """Says in which module an object is defined. TypeError for a name that is no text."""
    if not isinstance(mod, str):
        raise TypeError(f"set_module: expected the name of a module, got {type(mod).__name__}")
    obj.__module__ = mod


def get_enum(reduction: str) -> int:
    """The number of a loss's ``reduction``: 0 of 'none', 1 of 'mean', 2 of 'sum'. ValueError for another word."""
    if reduction == "elementwise_mean":
        warn("reduction='elementwise_mean' is an old name; write 'mean'")
        return 1
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"`reduction` must be 'none', 'mean' or 'sum', got {reduction!r}")
    return ("none", "mean", "sum").index(reduction)


def amp_definitely_not_available() -> bool:
    """Whether there is no GPU that autocast and a scaler for 'cuda' could be for."""
    return _C._cuda_count() == 0
