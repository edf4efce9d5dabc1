"""Hooks of optimizers: before and after steps, of one optimizer or of all, and of its state dicts. Where they are kept has torch's names."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Callable, Tuple

from ..autograd.hooks import RemovableHandle

_global_optimizer_pre_hooks: Any = OrderedDict()
_global_optimizer_post_hooks: Any = OrderedDict()


def register_optimizer_step_pre_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(optimizer, args, kwargs)`` before every step of every optimizer, see Optimizer.register_step_pre_hook."""
    return RemovableHandle(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(optimizer, args, kwargs)`` after every step of every optimizer."""
    return RemovableHandle(_global_optimizer_post_hooks, hook)


def _hooks_of(optimizer: Any, name: str) -> Any:
    return getattr(optimizer, name, {}).values()  # one that has not called Optimizer.__init__ has none


def has_step_hooks(optimizer: Any) -> bool:
    """Whether hooks run before or after its steps."""
    return bool(_global_optimizer_pre_hooks or _global_optimizer_post_hooks or _hooks_of(optimizer, "_optimizer_step_pre_hooks")
                or _hooks_of(optimizer, "_optimizer_step_post_hooks"))


def before_step(optimizer: Any, args: tuple, kwargs: dict) -> Tuple[tuple, dict]:
    """Calls the hooks before a step; gives its arguments, the optimizer the first, as they leave them."""
    own = getattr(optimizer, "_optimizer_step_pre_hooks", None)
    if not (own or _global_optimizer_pre_hooks):
        return args, kwargs
    for hook in [*_global_optimizer_pre_hooks.values(), *(own or {}).values()]:
        changed = hook(optimizer, args, kwargs)
        if changed is None:
            continue
        if not (isinstance(changed, tuple) and len(changed) == 2):
            raise RuntimeError(f"a step pre-hook of {type(optimizer).__name__} must return None or a tuple (args, kwargs), got "
                               f"{type(changed).__name__}")
        args, kwargs = changed
    return args, kwargs


def after_step(optimizer: Any, args: tuple, kwargs: dict) -> None:
    """Calls the hooks after a step."""
    own = getattr(optimizer, "_optimizer_step_post_hooks", None)
    if own or _global_optimizer_post_hooks:
        for hook in [*(own or {}).values(), *_global_optimizer_post_hooks.values()]:
            hook(optimizer, args, kwargs)


class HasHooks:
    """What Optimizer has to do with hooks."""

    def _forget_hooks(self) -> None:
        self._optimizer_step_pre_hooks: Any = OrderedDict()
        self._optimizer_step_post_hooks: Any = OrderedDict()
        self._optimizer_state_dict_pre_hooks: Any = OrderedDict()
        self._optimizer_state_dict_post_hooks: Any = OrderedDict()
        self._optimizer_load_state_dict_pre_hooks: Any = OrderedDict()
        self._optimizer_load_state_dict_post_hooks: Any = OrderedDict()

    def _call_each(self, hooks: Any) -> None:
        for hook in list(hooks.values()):
            hook(self)

    def _passed_on(self, hooks: Any, state_dict: Any) -> Any:
        """A state dict as the hooks leave it."""
        for hook in list(hooks.values()):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        return state_dict

    def register_step_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Calls ``hook(optimizer, args, kwargs)`` before every step, the optimizer being the first of ``args``. It returns None, or a pair
        ``(args, kwargs)`` that replaces both; RuntimeError for something else."""
        return RemovableHandle(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable) -> RemovableHandle:
        """Calls ``hook(optimizer, args, kwargs)`` after every step, the optimizer being the first of ``args``."""
        return RemovableHandle(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(optimizer)`` before state_dict."""
        return RemovableHandle(self._optimizer_state_dict_pre_hooks, hook, prepend=prepend)

    def register_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(optimizer, state_dict)`` after state_dict; a dict that it returns is the result."""
        return RemovableHandle(self._optimizer_state_dict_post_hooks, hook, prepend=prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(optimizer, state_dict)`` before load_state_dict, with a shallow copy; a dict that it returns is loaded instead."""
        return RemovableHandle(self._optimizer_load_state_dict_pre_hooks, hook, prepend=prepend)

    def register_load_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(optimizer)`` after load_state_dict."""
        return RemovableHandle(self._optimizer_load_state_dict_post_hooks, hook, prepend=prepend)
