"""Functions that create tensors, written with other creation functions."""

from __future__ import annotations

from typing import Any, Optional

from .. import _C
from .._C import Tensor
from .._messages import checks as _checks
from .._tensor import creation as make
from .._tensor.device import Size, asked_or_chosen

__all__ = ["asarray", "empty_permuted", "empty_strided", "scalar_tensor"]
METHODS = ["new", "new_empty_strided"]


def asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: Optional[bool] = None, requires_grad: Optional[bool] = None) -> Tensor:
    """``obj`` as a tensor, on its memory where it can be shared: that of Tensors, arrays, tensors of other libraries, DLPack's capsules, and
    objects with Python's buffer protocol, whose bytes are read as values of ``dtype`` (default: the default dtype).

    ``copy`` True always copies, False never: ValueError where a copy is needed. ``requires_grad`` False cuts the result off the graph of
    ``obj``; None leaves it there."""
    t = _asarray(obj, dtype, device, copy)
    if requires_grad is None or requires_grad == t.requires_grad:
        return t
    return t.requires_grad_() if requires_grad else t.requires_grad_(False) if t.is_leaf else t.detach()


def _asarray(obj: Any, dtype: Any, device: Any, copy: Optional[bool]) -> Tensor:
    """The array API's asarray."""
    device = asked_or_chosen(device)
    if isinstance(obj, _C.StorageBase):
        return _on_storage(obj, dtype or _C.uint8, device, copy)
    shared = _on_memory(obj, dtype)
    if shared is None:
        if copy is False:
            raise ValueError(f"asarray: {type(obj).__name__} has no memory to share, so it needs a copy, but `copy` is False")
        return make.tensor(obj, dtype=dtype, device=device)
    t = shared.to(device=device, dtype=dtype) if device is not None or dtype is not None else shared
    if copy is False and t is not shared:
        raise ValueError("asarray: another dtype or device needs a copy, but `copy` is False")
    return t.clone() if copy and t is shared else t


def _on_memory(obj: Any, dtype: Any) -> Optional[Tensor]:
    """A tensor on the memory of ``obj``; None for what has none that may be written."""
    if isinstance(obj, Tensor):
        return obj
    if type(obj).__name__ == "PyCapsule":
        return _C._from_dlpack(obj)
    if hasattr(obj, "__array_interface__"):
        return make.as_tensor(obj, device="cpu") if getattr(getattr(obj, "flags", None), "writeable", False) else None
    given = make.of_another_library(obj)
    if given is not None:
        return given
    try:
        memoryview(obj)
    except TypeError:
        return None
    from .._tensor.buffers import frombuffer

    return frombuffer(obj, dtype=dtype or _C.get_default_dtype())


def _on_storage(storage: Any, dtype: Any, device: Any, copy: Optional[bool]) -> Tensor:
    """A vector on a storage's bytes; a copy where they are not aligned."""
    from .._tensor.storage import tensor_on

    aligned = storage.data_ptr() % dtype.itemsize == 0
    if copy is False and not aligned:
        raise ValueError(f"asarray: the storage's memory is not aligned for {dtype}, so it needs a copy, but `copy` is False")
    t = tensor_on(storage.clone() if copy or not aligned else storage, dtype)
    return t if device is None else t.to(device)


def scalar_tensor(s: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
                  pin_memory: bool = False) -> Tensor:
    """A 0-d tensor."""
    return make.full((), s, dtype=dtype or _C.get_default_dtype(), layout=layout, device=device, requires_grad=requires_grad,
                     pin_memory=pin_memory)


def empty_strided(size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
                  pin_memory: bool = False) -> Tensor:
    """A tensor of that shape and those strides, values unspecified. RuntimeError for lists of different lengths, negative numbers, and
    more memory than there can be."""
    sizes, steps = _checks.integers(size, "size"), _checks.integers(stride, "stride")
    if len(sizes) != len(steps) or min([*sizes, *steps, 0]) < 0:
        raise RuntimeError(f"empty_strided: `size` and `stride` must be as long, of numbers of 0 or more, got {sizes} and {steps}")
    room = 0 if 0 in sizes else 1 + sum((n - 1) * step for n, step in zip(sizes, steps))
    if room >= 2**63:
        raise RuntimeError(f"empty_strided: a tensor of size {sizes} and strides {steps} has more elements than memory can hold")
    t = make.empty(room, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory).as_strided(sizes, steps)
    return t.requires_grad_() if requires_grad else t


def new_empty_strided(self: Tensor, size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
                      requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """empty_strided, of this tensor's dtype and device where none are given."""
    where = self.device if device is None else device
    return empty_strided(size, stride, dtype=dtype or self.dtype, layout=layout, device=where, requires_grad=requires_grad, pin_memory=pin_memory)


def empty_permuted(size: Any, physical_layout: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
                   requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A tensor of that shape whose dimensions lie in memory in the order ``physical_layout``, values unspecified. RuntimeError if that is no
    order of its dimensions."""
    sizes, order = _checks.integers(size, "size"), _checks.integers(physical_layout, "physical_layout")
    if sorted(order) != list(range(len(sizes))):
        raise RuntimeError(f"empty_permuted: `physical_layout` must name each of the {len(sizes)} dimensions once, got {order}")
    rows = make.empty([sizes[d] for d in order], dtype=dtype, layout=layout, device=device, pin_memory=pin_memory)
    t = rows.permute([order.index(d) for d in range(len(order))])
    return t.requires_grad_() if requires_grad else t


def new(self: Tensor, *args: Any, size: Any = None) -> Tensor:
    """A tensor of the same dtype and device: of a size, with unspecified values; of data; or on the memory of another tensor, without history.
    Without arguments it is empty."""
    if size is not None:
        if args:
            raise TypeError("new: the size was given twice: by position, and as `size`")
        return self.new_empty(size)
    if len(args) == 1 and isinstance(args[0], Tensor):
        return args[0].detach().to(self.dtype)
    if len(args) == 1 and isinstance(args[0], Size):
        return self.new_empty(args[0])
    if len(args) == 1 and not isinstance(args[0], int):
        return self.new_tensor(args[0])
    return self.new_empty(args or (0,))


_checks.install(globals())
