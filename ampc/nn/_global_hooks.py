"""Hooks of all modules at once, for debugging and profiling. nn.modules.module shows the functions, as torch's."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Callable, Dict, Optional

from ..autograd.hooks import RemovableHandle

__all__ = ["register_module_backward_hook", "register_module_buffer_registration_hook", "register_module_forward_hook",
           "register_module_forward_pre_hook", "register_module_full_backward_hook", "register_module_full_backward_pre_hook",
           "register_module_module_registration_hook", "register_module_parameter_registration_hook"]

_global_forward_pre_hooks: Any = OrderedDict()
_global_forward_hooks: Any = OrderedDict()
_global_forward_hooks_with_kwargs: Dict[int, bool] = OrderedDict()
_global_forward_hooks_always_called: Dict[int, bool] = OrderedDict()
_global_backward_hooks: Any = OrderedDict()
_global_backward_pre_hooks: Any = OrderedDict()
_global_parameter_registration_hooks: Any = OrderedDict()
_global_module_registration_hooks: Any = OrderedDict()
_global_buffer_registration_hooks: Any = OrderedDict()
_global_is_full_backward_hook: Optional[bool] = None


def registered(hooks: Any, module: Any, name: str, value: Any) -> Any:
    """``value``, which a module gets as its parameter, module or buffer, or what the hooks put in its place."""
    for hook in hooks.values():
        changed = hook(module, name, value)
        value = value if changed is None else changed
    return value


def one_kind(before: Optional[bool], full: bool, where: str) -> bool:
    """``full``, the kind of a backward hook that is added. RuntimeError when there are hooks of the other kind already."""
    if before is not None and before is not full:
        raise RuntimeError(f"{where} has hooks of register{'_module' * (where == 'nn.Module')}{'' if full else '_full'}_backward_hook; hooks of both "
                           "kinds cannot be mixed: use the full ones alone")
    return full


def register_module_forward_pre_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, args)`` before the forward of every module; what it returns replaces the arguments."""
    return RemovableHandle(_global_forward_pre_hooks, hook)


def register_module_forward_hook(hook: Callable, *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """Calls ``hook(module, args, output)`` after the forward of every module, see Module.register_forward_hook."""
    flags = [d for d, wanted in [(_global_forward_hooks_with_kwargs, with_kwargs), (_global_forward_hooks_always_called, always_call)] if wanted]
    return RemovableHandle(_global_forward_hooks, hook, extra_dict=flags)


def _register_backward(hook: Callable, full: bool) -> RemovableHandle:
    global _global_is_full_backward_hook
    _global_is_full_backward_hook = one_kind(_global_is_full_backward_hook if _global_backward_hooks else None, full, "nn.Module")
    return RemovableHandle(_global_backward_hooks, hook)


def register_module_full_backward_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, grad_input, grad_output)`` in backward of every module, see Module.register_full_backward_hook."""
    return _register_backward(hook, True)


def register_module_backward_hook(hook: Callable) -> RemovableHandle:
    """The older name of register_module_full_backward_hook. RuntimeError when hooks of both names would be mixed."""
    return _register_backward(hook, False)


def register_module_full_backward_pre_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, grad_output)`` in backward of every module, see Module.register_full_backward_pre_hook."""
    return RemovableHandle(_global_backward_pre_hooks, hook)


def register_module_parameter_registration_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, name, parameter)`` where a module gets a parameter; what it returns replaces that."""
    return RemovableHandle(_global_parameter_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, name, submodule)`` where a module gets another; what it returns replaces that."""
    return RemovableHandle(_global_module_registration_hooks, hook)


def register_module_buffer_registration_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, name, buffer)`` where a module gets a buffer; what it returns replaces that."""
    return RemovableHandle(_global_buffer_registration_hooks, hook)
