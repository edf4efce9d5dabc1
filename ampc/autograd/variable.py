"""``Variable``, the name that tensors with gradients had until torch 0.4."""

from __future__ import annotations

from typing import Any, Callable, Optional

from .._C import Tensor
from .._messages.callers import warn
from .engine import call_after_backward, is_running


class _Engine:
    """What libraries reach as ``Variable._execution_engine``."""

    @staticmethod
    def queue_callback(callback: Callable[[], Any]) -> None:
        """Calls ``callback()`` when the backward pass that runs now in this thread has ended. RuntimeError where none runs."""
        if not is_running():
            raise RuntimeError("queue_callback: no backward pass runs in this thread; call it from a hook or from a Function's backward")
        call_after_backward(callback)


class _VariableType(type):
    """Every tensor is a ``Variable``."""

    _execution_engine = _Engine()

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableType):
    """``Variable(data, requires_grad=False)``: the tensor ``data`` without its history; both share memory. Without ``data``: an empty
    tensor. ``volatile`` has had no effect since torch 0.4, where ``no_grad`` took its place.

    Raises TypeError for data that is no tensor, RuntimeError if a dtype without fractions shall require gradients, and ValueError
    for ``volatile`` together with ``requires_grad``. Source: ``torch.autograd.Variable``."""

    def __new__(cls, data: Optional[Tensor] = None, requires_grad: bool = False, volatile: bool = False) -> Any:
        if data is not None and not isinstance(data, Tensor):
            raise TypeError(f"Variable: `data` must be a tensor, got {type(data).__name__}; ampc.tensor(data) makes one")
        if volatile and requires_grad:
            raise ValueError("Variable: `volatile` and `requires_grad` exclude each other; leave `volatile` out and use no_grad()")
        if volatile:
            warn("Variable: `volatile` has no effect; use `with no_grad():`")
        return (Tensor() if data is None else data.detach()).requires_grad_(requires_grad)
