"""The hooks of one module: how they are registered, and how a call runs them. Where they are kept has torch's names, for libraries read it."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import Any, Callable, Dict, List, Tuple

from .._messages.callers import warn
from ..autograd.hooks import RemovableHandle
from . import _global_hooks as of_all
from ._backward_hooks import BackwardHooks

NONE: Dict[int, Any] = {}
SELDOM_USED = frozenset(("_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_state_dict_hooks",
                         "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"))


def made_when_used(module: Any, name: str) -> Any:
    """The dict of that name of a module, made now if nothing has used it yet: most modules never have such hooks."""
    return module.__dict__.setdefault(name, OrderedDict())


class _WrappedHook:
    """A hook that is called without the module that it is given: the module comes first where ``with_module``."""

    def __init__(self, hook: Callable[..., Any], module: Any, with_module: bool) -> None:
        self.hook, self.with_module = hook, with_module
        self._module = weakref.ref(module)

    def __call__(self, *args: Any) -> Any:
        return self.hook(self._module(), *args) if self.with_module else self.hook(*args)

    def __getstate__(self) -> Dict[str, Any]:
        return {"hook": self.hook, "with_module": self.with_module, "module": self._module()}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__(state["hook"], state["module"], state["with_module"])  # type: ignore[misc]


class HasHooks:
    """What Module has to do with hooks."""

    _forward_pre_hooks: Any
    _forward_pre_hooks_with_kwargs: Dict[int, bool]
    _forward_hooks: Any
    _forward_hooks_with_kwargs: Dict[int, bool]
    _forward_hooks_always_called: Dict[int, bool]
    _backward_hooks: Any
    _backward_pre_hooks: Any
    _is_full_backward_hook: Any = None
    _state_dict_hooks: Any
    _state_dict_pre_hooks: Any
    _load_state_dict_pre_hooks: Any
    _load_state_dict_post_hooks: Any
    forward: Callable[..., Any]

    # -- registering ---------------------------------------------------------------------------------------------------

    def register_forward_pre_hook(self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """Calls ``hook(module, args)`` before forward; what it returns replaces the arguments. With ``with_kwargs``
        ``hook(module, args, kwargs)``, which returns None or ``(args, kwargs)``; RuntimeError for something else."""
        flags = [made_when_used(self, "_forward_pre_hooks_with_kwargs")] if with_kwargs else []
        return RemovableHandle(self._forward_pre_hooks, hook, prepend=prepend, extra_dict=flags)

    def register_forward_hook(self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False,
                              always_call: bool = False) -> RemovableHandle:
        """Calls ``hook(module, args, output)`` after forward; what it returns replaces the output. With ``always_call`` after a forward
        that raised, too: with the output so far, or None."""
        flags = {"_forward_hooks_with_kwargs": with_kwargs, "_forward_hooks_always_called": always_call}
        return RemovableHandle(self._forward_hooks, hook, prepend=prepend, extra_dict=[made_when_used(self, name) for name in flags if flags[name]])

    def _register_backward(self, hook: Callable, prepend: bool, full: bool) -> RemovableHandle:
        before = self._is_full_backward_hook if self._backward_hooks else None
        self._is_full_backward_hook = of_all.one_kind(before, full, type(self).__name__)
        return RemovableHandle(self._backward_hooks, hook, prepend=prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(module, grad_input, grad_output)`` when the gradient of the inputs is known; what it
        returns replaces ``grad_input``."""
        return self._register_backward(hook, prepend, True)

    def register_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """The older name of register_full_backward_hook. RuntimeError when hooks of both names would be mixed."""
        return self._register_backward(hook, prepend, False)

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(module, grad_output)`` when the gradient of the outputs is known; what it returns
        replaces it."""
        return RemovableHandle(self._backward_pre_hooks, hook, prepend=prepend)

    def register_state_dict_hook(self, hook: Callable) -> RemovableHandle:
        """Calls ``hook(module, state_dict, prefix, local_metadata)`` after state_dict; a dict that it returns is the result, if this is the
        module whose state_dict was called. RuntimeError for a hook of register_state_dict_post_hook."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError("register_state_dict_hook: this function is a hook of register_state_dict_post_hook already, which returns None")
        return RemovableHandle(made_when_used(self, "_state_dict_hooks"), hook)

    _register_state_dict_hook = register_state_dict_hook

    def register_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Calls ``hook(module, state_dict, prefix, local_metadata)`` after state_dict: it may change the dict in place. state_dict raises a
        RuntimeError if it returns something."""
        function: Any = getattr(hook, "__func__", hook)
        function._from_public_api = True
        return RemovableHandle(made_when_used(self, "_state_dict_hooks"), hook)

    def register_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Calls ``hook(module, prefix, keep_vars)`` before state_dict."""
        return RemovableHandle(made_when_used(self, "_state_dict_pre_hooks"), hook)

    def register_load_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Calls ``hook(module, state_dict, prefix, local_metadata, strict, missing, unexpected, errors)`` before loading."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable, with_module: bool = False) -> RemovableHandle:
        """register_load_state_dict_pre_hook, whose hook is called without the module unless ``with_module``."""
        return RemovableHandle(made_when_used(self, "_load_state_dict_pre_hooks"), _WrappedHook(hook, self, with_module))

    def register_load_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Calls ``hook(module, incompatible_keys)`` after loading, before missing and unexpected keys are an error: it may take some off."""
        return RemovableHandle(made_when_used(self, "_load_state_dict_post_hooks"), hook)

    # -- calling -------------------------------------------------------------------------------------------------------

    def _get_backward_hooks(self) -> Tuple[List[Any], List[Any]]:
        """Those of all modules and this one's: of register_full_backward_hook, and of the older name."""
        full: List[Any] = []
        older: List[Any] = []
        of_every = of_all._global_backward_hooks, of_all._global_is_full_backward_hook
        for hooks, is_full in (of_every, (self._backward_hooks, self._is_full_backward_hook)):
            (older if is_full is False else full).extend(hooks.values())
        return full, older

    def _get_backward_pre_hooks(self) -> List[Any]:
        return [*of_all._global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]

    def _call_with_hooks(self, args: tuple, kwargs: dict) -> Any:
        left = self._forward_hooks_in_order()
        result = None
        try:
            args, kwargs = self._call_forward_pre_hooks(args, kwargs)
            backward = BackwardHooks(self)
            args = backward.watch_inputs(args)
            result = self.forward(*args, **kwargs)
            left = self._forward_hooks_in_order()
            while left:
                hook, with_kwargs, _ = left.pop(0)
                changed = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
                result = result if changed is None else changed
        except Exception:
            self._call_those_left(left, args, kwargs, result)
            raise
        return backward.watch_outputs(result)

    def _call_forward_pre_hooks(self, args: tuple, kwargs: dict) -> Tuple[tuple, dict]:
        for number, hook in [*of_all._global_forward_pre_hooks.items(), *self._forward_pre_hooks.items()]:
            with_kwargs = number in self.__dict__.get("_forward_pre_hooks_with_kwargs", NONE)
            changed = hook(self, args, kwargs) if with_kwargs else hook(self, args)
            if changed is None:
                continue
            if not with_kwargs:
                args = changed if isinstance(changed, tuple) else (changed,)
            elif isinstance(changed, tuple) and len(changed) == 2:
                args, kwargs = changed
            else:
                raise RuntimeError(f"a forward pre-hook of {type(self).__name__} with `with_kwargs` must return None or a tuple (args, kwargs), got "
                                   f"{type(changed).__name__}" + (f" of length {len(changed)}" if isinstance(changed, tuple) else ""))
        return args, kwargs

    def _forward_hooks_in_order(self) -> List[Tuple[Any, bool, bool]]:
        """(hook, whether it takes kwargs, whether it is called after an error) for each, those of all modules first."""
        d = self.__dict__
        own = self._forward_hooks, d.get("_forward_hooks_with_kwargs", NONE), d.get("_forward_hooks_always_called", NONE)
        of_every = of_all._global_forward_hooks, of_all._global_forward_hooks_with_kwargs, of_all._global_forward_hooks_always_called
        return [(hook, number in with_kwargs, number in always) for hooks, with_kwargs, always in (of_every, own) for number, hook in hooks.items()]

    def _call_those_left(self, hooks: list, args: tuple, kwargs: dict, result: Any) -> None:
        """The forward hooks that are called even where forward, or a hook before them, has raised. What they raise is a warning."""
        for hook, with_kwargs, always in hooks:
            if not always:
                continue
            try:
                changed = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
                result = result if changed is None else changed
            except Exception as error:
                warn(f"an always_call hook raised {type(error).__name__}: {error}; the first error is raised")
