"""Handles and helpers of hooks, under torch.utils.hooks's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from .._C import Tensor
from .._messages.callers import warn
from ..autograd.hooks import RemovableHandle
from ..nn._backward_hooks import BackwardHooks

__all__ = ["BackwardHook", "RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]

_F = TypeVar("_F", bound=Callable[..., Any])


def unserializable_hook(f: _F) -> _F:
    """A decorator: a tensor with this hook is saved without a warning that the hook is not."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


def warn_if_has_hooks(tensor: Tensor) -> None:
    """Warns of each hook of the tensor that is not marked as one that is not saved."""
    for hook in (getattr(tensor, "_backward_hooks", None) or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warn(f"the tensor is saved without its hook {getattr(hook, '__name__', hook)}; decorate the hook with "
                 "utils.hooks.unserializable_hook where that is meant")


class BackwardHook(BackwardHooks):
    """Calls ``user_hooks`` with (module, gradients of the inputs, gradients of the outputs), and before them ``user_pre_hooks`` with (module,
    gradients of the outputs), when backward passes a call whose inputs and outputs went through the two methods."""

    def __init__(self, module: Any, user_hooks: Iterable[Callable[..., Any]], user_pre_hooks: Iterable[Callable[..., Any]]) -> None:
        self.module, self.hooks, self.pre_hooks = module, list(user_hooks), list(user_pre_hooks)
        self.grad_output: Any = None
        self.n_inputs, self.watches_inputs = 0, False

    def setup_input_hook(self, args: tuple) -> tuple:
        """The call's inputs, to be used in their place."""
        return self.watch_inputs(args)

    def setup_output_hook(self, args: Any) -> Any:
        """The call's outputs, a Tensor or a tuple, to be used in their place."""
        return self.watch_outputs(args)
