"""Calls the backward hooks of modules, such as those of `register_full_backward_hook`."""

from __future__ import annotations

from typing import Any, Callable, Optional

from .. import _C
from .._C import Tensor
from .._messages.callers import warn
from .._tensor import creation as make


class BackwardHooks:
    """Runs the backward hooks that a module has when it is called.

    An identity Function on the outputs sees their gradient, and another on the inputs sees theirs. If no input requires gradients, the
    hooks run at the outputs."""

    def __init__(self, module: Any) -> None:
        self.module = module
        full, older = module._get_backward_hooks()
        self.hooks, self.pre_hooks = full + older, module._get_backward_pre_hooks()
        self.grad_output: Any = None
        self.n_inputs = 0
        self.watches_inputs = False

    def _through(self, values: tuple, seen: Callable, zeros: bool) -> tuple:
        from ..autograd import Function

        slots = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad] if _C.is_grad_enabled() else []
        if not slots:
            return values
        others = [(v.shape, v.dtype, v.device) if zeros and isinstance(v, Tensor) and i not in slots else None for i, v in enumerate(values)]

        class Watch(Function):
            @staticmethod
            def forward(ctx: Any, *xs: Any) -> Any:
                return xs

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                every = dict(zip(slots, grads))
                told = seen(tuple(every[i] if i in every else _no_gradient(other) for i, other in enumerate(others)))
                return tuple(told[i] for i in slots)

        out = list(values)
        for i, v in zip(slots, Watch.apply(*(values[i] for i in slots))):
            out[i] = v
        return tuple(out) if type(values) is tuple else type(values)(*out)

    def _told(self, grads: tuple, changed: Any) -> tuple:
        """What a hook makes of the gradients."""
        if changed is None:
            return grads
        changed = tuple(changed) if isinstance(changed, (tuple, list)) else (changed,)
        if len(changed) != len(grads):
            raise RuntimeError(f"a backward hook of {type(self.module).__name__} returned {len(changed)} gradients, expected {len(grads)}")
        return changed

    def watch_inputs(self, args: tuple) -> tuple:
        def seen(grads: tuple) -> tuple:
            if self.grad_output is None:  # these came by another way than through the outputs
                return grads
            for hook in self.hooks:
                grads = self._told(grads, hook(self.module, grads, self.grad_output))
            self.grad_output = None
            return grads

        if not (self.hooks or self.pre_hooks):
            return args
        self.n_inputs = len(args)
        watched = self._through(args, seen, True)
        self.watches_inputs = watched is not args
        return watched

    def _without_inputs(self, grad_output: tuple) -> None:
        if self.hooks:
            warn(f"no input of {type(self.module).__name__} requires gradients, so its backward hook sees None for theirs")
        for hook in self.hooks:
            changed = hook(self.module, (None,) * self.n_inputs, grad_output)
            if changed is not None and not (isinstance(changed, tuple) and all(g is None for g in changed)):
                raise RuntimeError(f"a backward hook of {type(self.module).__name__}, none of whose inputs requires gradients, must "
                                   "return None")

    def watch_outputs(self, result: Any) -> Any:
        def seen(grads: tuple) -> tuple:
            for hook in self.pre_hooks:
                grads = self._told(grads, hook(self.module, grads))
            if self.watches_inputs:
                self.grad_output = grads
            else:
                self._without_inputs(grads)
            return grads

        if not (self.hooks or self.pre_hooks):
            return result
        if isinstance(result, Tensor):
            return self._through((result,), seen, False)[0]
        if isinstance(result, tuple):
            return self._through(result, seen, False)
        warn(f"backward hooks of {type(self.module).__name__} need a Tensor or a tuple as output, got {type(result).__name__}")
        return result


def _no_gradient(like: Optional[tuple]) -> Any:
    """What stands for the gradient of something that requires none: zeros for a tensor, as torch has it."""
    return None if like is None else make.zeros(like[0], dtype=like[1], device=like[2])
