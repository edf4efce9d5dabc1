"""Parameter: a tensor that modules collect and optimizers train; and those whose size is not known yet."""

from __future__ import annotations

from typing import Any, Optional

from .. import _C
from .._C import Tensor
from .._tensor import creation as make


class Parameter(Tensor):
    """A leaf that requires gradients (unless told otherwise) and registers itself with the Module it is
    assigned to. Shares ``data``'s memory."""

    __torch_function__ = _C._disabled_torch_function_impl

    def __new__(cls, data: Optional[Tensor] = None, requires_grad: bool = True) -> Any:
        data = make.zeros(0) if data is None else data
        if not isinstance(data, Tensor):
            raise _C.NoTensor(f"Parameter: expected a Tensor, got {type(data).__name__}")
        if not isinstance(requires_grad, int):
            raise TypeError(f"Parameter: `requires_grad` must be a bool, got {type(requires_grad).__name__}")
        return _C._make_subclass(cls, data.detach(), requires_grad)

    def __deepcopy__(self, memo: dict, *, grad: bool = False, alone: bool = True) -> Parameter:
        """A parameter of the same values, on memory of its own; as torch's, without .grad: a copied model begins with none."""
        if id(self) not in memo:
            Tensor.__deepcopy__(self, memo, grad=grad, alone=alone)
        return memo[id(self)]


class Buffer(Tensor):
    """A tensor that is part of a module's state but not trained; assign it to register it."""

    __torch_function__ = _C._disabled_torch_function_impl

    persistent: bool

    def __new__(cls, data: Optional[Tensor] = None, *, persistent: bool = True) -> Any:
        buffer = _C._make_subclass(cls, make.zeros(0) if data is None else data.detach(), False)
        buffer.persistent = persistent
        return buffer


def is_lazy(t: Any) -> bool:
    """Whether its size is not known yet."""
    return isinstance(t, _Uninitialized)


class _Uninitialized(Tensor):
    """What waits for its size. The core refuses to compute with it: a ValueError."""

    __torch_function__ = _C._disabled_torch_function_impl

    cls_to_become: Any = None

    def _wait(self) -> Any:
        _C._make_blank(self)
        return self

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Becomes an ordinary parameter or buffer of this shape, with memory whose values are still to be set."""
        requires_grad = self.requires_grad
        self.data = make.empty(shape, device=self.device if device is None else device, dtype=dtype or self.dtype)
        self.__class__ = self.cls_to_become
        self.requires_grad = requires_grad

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo: dict, *, grad: bool = False, alone: bool = True) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.device, self.dtype)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return type(self), (self.requires_grad, str(self.device), self.dtype)


UninitializedTensorMixin = _Uninitialized  # torch's name for it


def _unknown(name: str) -> property:
    def get(self: Any) -> Any:
        kind = RuntimeError if name == "shape" else ValueError  # as torch's
        raise kind(f"{name} of an uninitialized parameter or buffer is not known yet; call materialize(shape), or the lazy module once")
    return property(get)


for _name in ("shape", "numel", "nelement", "size", "stride", "dim", "ndim", "ndimension", "nbytes"):
    setattr(_Uninitialized, _name, _unknown(_name))


class UninitializedParameter(_Uninitialized, Parameter):
    """A parameter of a lazy module that has not seen an input yet."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return _C._make_subclass(cls, make.empty(0, device=device, dtype=dtype), requires_grad)._wait()


class UninitializedBuffer(_Uninitialized, Buffer):
    """A buffer of a lazy module that has not seen an input yet."""

    cls_to_become = Buffer

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True) -> Any:
        buffer = _C._make_subclass(cls, make.empty(0, device=device, dtype=dtype), requires_grad)._wait()
        buffer.persistent = persistent
        return buffer


def factory_kwargs(kwargs: Optional[dict]) -> dict:
    """``device``, ``dtype`` and ``memory_format`` of keywords, of which ``factory_kwargs`` may hold some. TypeError for others, and for one
    given twice."""
    known = {"device", "dtype", "memory_format"}
    given = dict(kwargs or {})
    found = dict(given.pop("factory_kwargs", {}))
    if given.keys() - known or given.keys() & found.keys():
        raise TypeError(f"unknown keywords, or some given twice: {sorted((given.keys() - known) | (given.keys() & found.keys()))}")
    return {**found, **given}
