"""Questions about a tensor, such as whether two share memory; and torch's names for properties that all tensors here have, such as
being real and dense."""

from __future__ import annotations

from typing import Any

from .. import _C
from .._C import Tensor, dtype
from .._messages import checks as _checks
from .._tensor import creation as make

__all__ = ["can_cast", "conj", "detach", "get_device", "is_complex", "is_conj", "is_inference", "is_nonzero", "is_same_size", "is_signed", "isreal",
           "real", "resolve_conj", "resolve_neg", "typename"]
METHODS = ["conj", "get_device", "is_complex", "is_conj", "is_inference", "is_same_size", "is_signed", "is_neg", "is_nonzero", "is_set_to",
           "isreal", "resolve_conj", "resolve_neg", "to_dense", "to_device"]


def conj(input: Tensor) -> Tensor:
    """x: there are no complex tensors."""
    return input

real = resolve_conj = resolve_neg = to_dense = conj


def is_conj(input: Tensor) -> bool:
    """False: there are no complex tensors."""
    return False

is_neg = is_complex = is_conj


def isreal(input: Tensor) -> Tensor:
    """True everywhere: there are no complex tensors."""
    return make.ones_like(input, dtype=_C.bool)


def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not 0. RuntimeError for more."""
    if input.numel() != 1:
        raise RuntimeError(f"is_nonzero: expected one element, got {input.numel()}")
    return bool(input.item())


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both are the same view of the same memory."""
    return self.data_ptr() == tensor.data_ptr() and self.shape == tensor.shape and self.stride() == tensor.stride()


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """True when the shapes are equal."""
    return input.shape == other.shape


def is_signed(input: Tensor) -> bool:
    """True unless uint8 or bool."""
    return input.dtype.is_signed


def is_inference(input: Tensor) -> bool:
    """True when made under inference_mode."""
    return input._is_inference


def get_device(input: Tensor) -> int:
    """The number of its GPU; -1 on the CPU and on 'meta'."""
    return _C._device_index(input) - 1 if input.is_cuda else -1


def detach(input: Tensor) -> Tensor:
    """Tensor.detach"""
    return input.detach()


def typename(obj: Any) -> str:
    """The name of an object's type, of a tensor as torch's old ones."""
    if isinstance(obj, Tensor):
        return obj.type()
    named = obj if hasattr(obj, "__qualname__") else type(obj)  # a class or a function, or what an object is of
    return named.__qualname__ if named.__module__ == "builtins" else f"{named.__module__}.{named.__qualname__}"


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether values of one dtype are of the other's kind, or of a lower one."""
    rank = lambda d: 3 if d.is_floating_point else 1 if d == _C.bool else 2  # noqa: E731
    return rank(from_) <= rank(to)


def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """to(device)"""
    if stream is not None:
        raise NotImplementedError("to_device: copies go to the current stream; ampc.cuda.stream(s) makes another one current")
    return self.to(device)


_checks.install(globals())
