"""Hooks of all modules at once, for debugging and profiling. nn.modules.module shows the functions, as torch's."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Callable, List

from ..autograd.hooks import RemovableHandle

__all__ = ["register_module_backward_hook", "register_module_buffer_registration_hook", "register_module_forward_hook",
           "register_module_forward_pre_hook", "register_module_full_backward_hook", "register_module_full_backward_pre_hook",
           "register_module_module_registration_hook", "register_module_parameter_registration_hook"]

# A module's own hooks by their numbers; those with a longer name hold the numbers of hooks that are called in another way.
HOOK_DICTS = ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
              "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")
everywhere: Any = OrderedDict()  # of each hook: when it is called, and how


def hooks_of_all(when: str) -> List[Any]:
    """Those that are called then. They come before a module's own."""
    return [hook for kind, hook in everywhere.values() if kind == when]


def pre_hooks_of(module: Any) -> List[Any]:
    """(hook, whether it takes keywords) of each that is called before the module's forward."""
    own = [(hook, key in module._forward_pre_hooks_with_kwargs) for key, hook in module._forward_pre_hooks.items()]
    return [*hooks_of_all("forward_pre"), *own]


def forward_hooks_of(module: Any) -> List[Any]:
    """(hook, whether it takes keywords, whether it is called after an error) of each that is called after the module's forward."""
    keywords, always = module._forward_hooks_with_kwargs, module._forward_hooks_always_called
    return [*hooks_of_all("forward"), *((hook, key in keywords, key in always) for key, hook in module._forward_hooks.items())]


def registered(kind: str, module: Any, name: str, value: Any) -> Any:
    """``value``, which a module gets as its parameter, module or buffer, or what hooks put in its place."""
    for hook in hooks_of_all(kind) if everywhere else ():
        changed = hook(module, name, value)
        value = value if changed is None else changed
    return value


def register_module_forward_pre_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, args)`` before the forward of every module; what it returns replaces the arguments."""
    return RemovableHandle(everywhere, ("forward_pre", (hook, False)))


def register_module_forward_hook(hook: Callable, *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """Calls ``hook(module, args, output)`` after the forward of every module, see Module.register_forward_hook."""
    return RemovableHandle(everywhere, ("forward", (hook, with_kwargs, always_call)))


def register_module_full_backward_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, grad_input, grad_output)`` in backward of every module, see Module.register_full_backward_hook."""
    return RemovableHandle(everywhere, ("backward", hook))


register_module_backward_hook = register_module_full_backward_hook


def register_module_full_backward_pre_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, grad_output)`` in backward of every module, see Module.register_full_backward_pre_hook."""
    return RemovableHandle(everywhere, ("backward_pre", hook))


def register_module_parameter_registration_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, name, parameter)`` where a module gets a parameter; what it returns replaces that."""
    return RemovableHandle(everywhere, ("parameter", hook))


def register_module_module_registration_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, name, submodule)`` where a module gets another; what it returns replaces that."""
    return RemovableHandle(everywhere, ("module", hook))


def register_module_buffer_registration_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, name, buffer)`` where a module gets a buffer; what it returns replaces that."""
    return RemovableHandle(everywhere, ("buffer", hook))
