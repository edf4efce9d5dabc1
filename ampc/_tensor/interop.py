"""Memory shared with other libraries without copies: DLPack and the CUDA array interface."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from .. import _C
from .._C import Tensor
from .creation import DLPACK_CPU, DLPACK_CUDA, register_converter
from .device import check_device

_KINDS = {"bool": "|b1", "uint8": "|u1", "int8": "|i1", "int16": "<i2", "int32": "<i4", "int64": "<i8", "float16": "<f2", "float32": "<f4",
          "float64": "<f8"}


def _dlpack_device(self: Tensor) -> Tuple[int, int]:
    """(device type, number) as DLPack counts them: (1, 0) the CPU, (2, i) a GPU."""
    return (DLPACK_CUDA, self.get_device()) if self.is_cuda else (DLPACK_CPU, 0)


def _dlpack(self: Tensor, *, stream: Optional[int] = None, max_version: Optional[Tuple[int, int]] = None,
            dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
    """A DLPack capsule of the tensor's memory.

    Args:
        stream: the consumer's stream on a GPU; its later work waits for the work queued here. A handle, 1 or None for the legacy
            default stream, 2 for the default stream of each thread, -1 for no waiting. Must be None on the CPU.
        max_version: the newest version of DLPack that the consumer reads; from (1, 0) on the capsule is versioned.
        dl_device: the device that the consumer wants. Another device needs a copy; BufferError if ``copy`` is False.
        copy: True makes a copy.

    BufferError for tensors that require gradients; ValueError for an invalid stream.
    """
    if self.requires_grad:
        raise BufferError("__dlpack__: the tensor requires gradients, and writes to its memory would not be seen; use .detach()")
    if not self.is_cuda and stream is not None:
        raise ValueError("__dlpack__: the CPU has no streams; `stream` must be None")
    if self.is_cuda and stream == 0:
        raise ValueError("__dlpack__: stream 0 is ambiguous in CUDA; pass 1 for the legacy default stream")
    t, copied = self, False
    if dl_device is not None and dl_device[0] not in (DLPACK_CPU, DLPACK_CUDA):
        raise BufferError(f"__dlpack__: a device of type {dl_device[0]} cannot be given; 1 is the CPU, 2 a GPU")
    if dl_device is not None and tuple(dl_device) != _dlpack_device(self):
        if copy is False:
            raise BufferError(f"__dlpack__: the tensor is on {self.device}; it can be had elsewhere only as a copy")
        t, copied = self.to("cpu" if dl_device[0] == DLPACK_CPU else f"cuda:{dl_device[1]}"), True
    elif copy:
        t, copied = self.clone(), True
    return _C._to_dlpack(t, 1 if stream is None else stream, max_version is not None and max_version[0] >= 1, copied)


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: Optional[bool] = None) -> Tensor:
    """A tensor that shares the memory of any object with ``__dlpack__`` (torch, NumPy, CuPy, JAX), or of a capsule.

    ``device`` and ``copy`` are passed on; BufferError for memory that cannot be shared, or that is described in a way that no tensor can
    be; RuntimeError for a capsule that has been taken, or is none.
    """
    if not hasattr(ext_tensor, "__dlpack__"):
        return _C._from_dlpack(ext_tensor)
    kind, index = ext_tensor.__dlpack_device__()
    options: dict = {}
    if kind == DLPACK_CUDA:
        from ..cuda import current_stream

        options["stream"] = current_stream(index).cuda_stream or 1
    if copy is not None:
        options["copy"] = copy
    if device is not None:
        where = check_device(device)
        options["dl_device"] = (DLPACK_CUDA, where.index) if where.type == "cuda" else (DLPACK_CPU, 0)
    try:
        capsule = ext_tensor.__dlpack__(max_version=(1, 1), **options)
    except TypeError:  # made before versions were
        capsule = ext_tensor.__dlpack__(**options)
    return _C._from_dlpack(capsule)


def _cuda_array_interface(self: Tensor) -> dict:
    """Version 3 of the CUDA array interface (Numba's specification). AttributeError unless the tensor is on a GPU and of a dtype
    that NumPy has; RuntimeError when it requires gradients."""
    if not self.is_cuda:
        raise AttributeError("__cuda_array_interface__: the tensor is on the CPU")
    if self.dtype.name not in _KINDS:
        raise AttributeError(f"__cuda_array_interface__: {self.dtype} has no NumPy type; use DLPack")
    if self.requires_grad:
        raise RuntimeError("__cuda_array_interface__: the tensor requires gradients; use .detach()")
    from ..cuda import current_stream

    strides = None if self.is_contiguous() else tuple(s * self.itemsize for s in self.stride())
    return {"shape": tuple(self.shape), "typestr": _KINDS[self.dtype.name], "data": (self.data_ptr() if self.numel() else 0, False),
            "strides": strides, "version": 3, "stream": current_stream(self.device).cuda_stream or 1}


def from_cuda_array(x: Any) -> Tensor:
    """A tensor that shares the memory of an object with ``__cuda_array_interface__``. Work that the object's stream has queued is
    waited for by the current stream. ValueError for read-only or masked memory and unknown types."""
    facts = x.__cuda_array_interface__
    names = {v: k for k, v in _KINDS.items()}
    address, read_only = facts["data"]
    if facts["typestr"] not in names:
        raise ValueError(f"the array's type '{facts['typestr']}' has no dtype here")
    if read_only or facts.get("mask") is not None:
        raise ValueError("read-only and masked arrays cannot be shared; pass a copy")
    dt = getattr(_C, names[facts["typestr"]])
    shape = list(facts["shape"])
    steps = [s // dt.itemsize for s in facts["strides"]] if facts.get("strides") else _row_major(shape)
    index = _C._cuda_owner(address) if address else 0
    from ..cuda import ExternalStream, current_stream

    other = facts.get("stream")
    if other is not None:
        stream = ExternalStream(0 if other == 1 else other, index)  # 1: the legacy default stream
        if stream != current_stream(index):
            current_stream(index).wait_stream(stream)
    return _C._from_device_pointer(address, index, dt, shape, steps, x)


def _row_major(shape: list) -> list:
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return steps[::-1]


for _name, _f in (("__dlpack__", _dlpack), ("__dlpack_device__", _dlpack_device)):
    setattr(Tensor, _name, _f)
register_converter("__dlpack__", from_dlpack)
register_converter("__cuda_array_interface__", from_cuda_array)
Tensor.__cuda_array_interface__ = property(_cuda_array_interface, doc=_cuda_array_interface.__doc__)


def _array_interface(self: Tensor) -> dict:
    """NumPy's array interface (version 3) of a CPU tensor's own memory; AttributeError where there is none."""
    kind = _KINDS.get(self.dtype.name)
    if self.is_cuda or self.requires_grad or kind is None:
        raise AttributeError("__array_interface__: only CPU tensors that need no gradients, in a dtype of NumPy, have it")
    memoryview(self)  # type: ignore[arg-type]  # from now on others may write the memory
    strides = None if self.is_contiguous() else tuple(s * self.element_size() for s in self.stride())
    return {"version": 3, "shape": tuple(self.shape), "typestr": kind, "data": (self.data_ptr(), False), "strides": strides}


Tensor.__array_interface__ = property(_array_interface)


def _array_wrap(self: Tensor, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
    """What NumPy's functions of tensors give: a tensor on the array's memory. bool becomes uint8, as torch's; an array of a dtype that
    tensors do not have stays one."""
    try:
        return _C.from_numpy(array.view("uint8") if array.dtype == bool else array)
    except TypeError:
        return array


Tensor.__array_wrap__ = _array_wrap  # type: ignore[method-assign]
