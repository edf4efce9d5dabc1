"""Devices and sizes: small value types that tensors return."""

from __future__ import annotations

import operator
import sys
import threading
from typing import Any, List, Optional, Tuple, Union

from .. import _C
from .._names.place import shown_name
from .unsupported_dtypes import AbsentDtype

__all__ = [
    "Size", "channels_last", "channels_last_3d", "contiguous_format", "device", "get_default_device", "layout", "memory_format",
    "preserve_format", "set_default_device", "strided",
]


def _integer(size: Any) -> int:
    try:
        return int(operator.index(size))
    except TypeError:
        raise TypeError(f"Size: expected ints, got {type(size).__name__}") from None


class Size(tuple):
    """The sizes of a tensor: a tuple of ints that knows its product."""

    __slots__ = ()

    def __new__(cls, sizes: Any = ()) -> Size:
        made = tuple.__new__(cls, sizes)
        for size in made:
            if type(size) is not int:
                return tuple.__new__(cls, map(_integer, made))
        return made

    def numel(self) -> int:
        """Number of elements of a tensor of these sizes."""
        n = 1
        for size in self:
            n *= size
        return n

    def __getitem__(self, index: Any) -> Any:
        part = tuple.__getitem__(self, index)
        return tuple.__new__(Size, part) if isinstance(index, slice) else part

    def __add__(self, other: Any) -> Any:
        return Size(tuple.__add__(self, other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return Size(tuple.__add__(other, self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times: Any) -> Any:
        return tuple.__new__(Size, tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return shown_name(f"ampc.Size({list(self)})")


_C._set_size_type(Size)


class device(_C.Scope):
    """Where a tensor lives: ``device('cpu')``, ``device('cuda:0')``, ``device('cuda', 0)``. Tensors of ``device('meta')`` have a shape and a
    dtype, and neither values nor memory: operators on them compute what their results would be like.

    Also a context manager: within it new tensors are made there.
    """

    __slots__ = ("type", "index")
    type: str
    index: Optional[int]

    def __init__(self, type: Any, index: Optional[int] = None) -> None:
        if isinstance(type, device):
            type, index = type.type, type.index
        elif isinstance(type, int) and not isinstance(type, bool):
            type, index = "cuda", type
        if isinstance(type, AbsentDtype):
            raise TypeError(f"there are no tensors of dtype {type!r}")
        if not isinstance(type, str):
            raise TypeError(f"device: expected a string such as 'cpu' or 'cuda:0', got {type!r}")
        if index is not None and not isinstance(index, int):
            raise TypeError(f"device: `index` must be an int, got {index.__class__.__name__}")
        if index is not None and index < 0:
            raise RuntimeError(f"device: `index` must be 0 or more, got {index}")
        name, _, number = type.partition(":")
        if name not in ("cpu", "cuda", "meta", "mps", "xpu") or (number and not number.isdigit()):
            raise RuntimeError(f"device: '{type}' is not a device; expected 'cpu' or 'cuda', with ':index' if wanted")
        if number and index is not None:
            raise RuntimeError(f"device: '{type}' has an index already; give it there or as `index`, not both")
        self.type = name
        self.index = int(number) if number else index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"device(type='{self.type}'" + ("" if self.index is None else f", index={self.index}") + ")"

    def __reduce__(self) -> Any:
        return device, (self.type, self.index)

    def _changes(self) -> tuple:
        module = sys.modules[__name__]
        check_device(self)
        return ((setattr, (module, "_chosen", self), setattr, (module, "_chosen", _chosen)),)


_device = device  # for functions with a parameter of that name
CPU, META = device("cpu"), device("meta")
META_NUMBER = 128
_chosen: Optional[device] = None  # by set_default_device or `with device(...)`: where new tensors are made
_BY_NUMBER = {0: CPU, META_NUMBER: META}  # by the core's numbers, see device_of; GPUs when they are asked for


class _Current(threading.local):
    """The GPU that 'cuda' without a number means, for each thread."""

    index = 0


current = _Current()


def gpu(index: int) -> device:
    """device('cuda', index), one object for each."""
    return device_of(index + 1)


def device_of(number: int) -> device:
    """The device of the core's number: 0 the CPU, 1 the first GPU, 128 'meta'."""
    found = _BY_NUMBER.get(number)
    return _BY_NUMBER.setdefault(number, device("cuda", number - 1)) if found is None else found


def number_of(where: Union[str, int, device, None], kind: Any = None) -> int:
    """The core's number of a usable device: 0 the CPU, 1 the first GPU, 128 'meta'. RuntimeError as check_device, and for a layout
    ``kind`` that is not ``strided``: whoever makes a tensor asks here where."""
    if kind is not None and kind is not strided:
        raise RuntimeError(f"there are strided tensors only, got layout {kind!r}")
    d = check_device(where)
    return 0 if d.type == "cpu" else META_NUMBER if d.type == "meta" else 1 + (d.index or 0)


def gpu_asked_for(where: Union[str, int, device, None]) -> device:
    """The GPU that ``.cuda(where)`` means, the current one when None. RuntimeError for a device of another kind."""
    d = device("cuda") if where is None else where if isinstance(where, device) else device(where)
    if d.type != "cuda":
        raise RuntimeError(f"cuda: expected a GPU, got '{d}'; .to('{d}') moves there")
    return d


def check_device(where: Union[str, int, device, None]) -> device:
    """The device asked for, or a RuntimeError when it cannot be used here."""
    if where is None:
        return get_default_device()
    d = where if isinstance(where, device) else device(where)
    if d.type == "cpu":
        return CPU
    if d.type == "meta":
        return META
    if d.type != "cuda":
        raise RuntimeError(f"device '{d}' cannot be used: ampc computes on 'cpu' and 'cuda', and on 'meta' without values")
    count = _C._cuda_count()
    if count == 0:
        try:
            _C._cuda_init()
            reason = "CUDA cannot be used: no GPU was found; test cuda.is_available() first"
        except RuntimeError as e:
            reason = str(e)
        raise _C.NoGPU(f"device '{d}': {reason}, or use device='cpu'")
    index = current.index if d.index is None else d.index
    if index >= count:
        raise RuntimeError(f"device '{d}' is not there: {count} GPU{'s were' if count > 1 else ' was'} found, numbered from 0")
    return gpu(index)


def set_default_device(device: Union[str, device, None]) -> None:
    """Sets where new tensors are made; None: on the CPU, as if nothing had been set. 'cuda' without a number is the GPU that `cuda.set_device`
    says when a tensor is made. RuntimeError for a device that is not there."""
    global _chosen
    if device is not None:
        check_device(device)
        device = _device(device)
    _chosen = device


def get_default_device() -> device:
    """Where new tensors are made."""
    return CPU if _chosen is None else check_device(_chosen)


def asked_or_chosen(where: Union[str, int, device, None]) -> Union[str, int, device, None]:
    """Where a function that makes a tensor of another one moves it: the device asked for, else the one that was chosen for new tensors; None
    leaves it where it is."""
    return _chosen if where is None else where


class layout:
    """How the elements of a tensor are kept: always ``strided``. The sparse ones are names for comparisons."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return shown_name(f"ampc.{self.name}")


strided = layout("strided")


# what `set_default_tensor_type` was told: where Tensor(...) makes tensors, which asks no chosen device
default_type = {"device": CPU}
# what `use_deterministic_algorithms` was told, and whether memory that nobody sets is filled then
asked = {"deterministic": False, "warn_only": False, "fill": True}


class memory_format:
    """How the values of [N, C, ...] lie in memory.

    ``contiguous_format`` is row-major. ``channels_last`` (4-d) and ``channels_last_3d`` (5-d) keep the channels of one position together.
    ``preserve_format`` keeps the present order."""

    def __init__(self, name: str, ndim: int = 0) -> None:
        self.name, self.ndim = name, ndim

    def __repr__(self) -> str:
        return shown_name(f"ampc.{self.name}")


contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format("preserve_format")
channels_last, channels_last_3d = memory_format("channels_last", 4), memory_format("channels_last_3d", 5)


def parse_to(*args: Any, **kwargs: Any) -> Tuple[Any, Any, bool, Any]:
    """What arguments of ``to`` mean: (device, dtype, non_blocking, memory_format), None for what is not given."""
    where, dtype = kwargs.get("device"), kwargs.get("dtype")
    flags: List[bool] = [a for a in args if isinstance(a, bool)]
    for a in (*args, kwargs.get("tensor"), kwargs.get("other")):
        if isinstance(a, _C.Tensor):
            where, dtype = a.device, a.dtype
        elif isinstance(a, _C.dtype):
            dtype = a
        elif a is not None and not isinstance(a, bool):
            where = a
    return (None if where is None else check_device(where), dtype, bool(kwargs.get("non_blocking", flags[:1] == [True])), kwargs.get("memory_format"))
