"""What a GradScaler asks of optimizers, as protocols, and how it steps them.

Any optimizer with ``param_groups`` and ``step`` can be stepped. One that keeps the second protocol leaves a step out on the GPU,
where nobody waits for the flag; one that keeps the third divides its gradients within its own step."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Callable, Dict, List, Protocol, Union

from .. import _creation as make
from .._C import Tensor


class Steppable(Protocol):
    """Every optimizer. ``step`` with a closure also asks for ``state``; ``step(zero_grad=True)`` for ``zero_grad``."""

    param_groups: List[Dict[str, Any]]

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Updates the parameters once."""


class LeavesStepsOut(Steppable, Protocol):
    """An optimizer that knows of steps that were left out: ``ampc.optim.Optimizer``."""

    def can_leave_step_out(self) -> bool:
        """Whether the next step can be left out on the GPU, by a flag there."""

    def step_unless(self, found_inf: Tensor, *args: Any, **kwargs: Any) -> Any:
        """A step, which the GPU leaves out where ``found_inf`` is not 0."""

    def step_left_out(self) -> None:
        """The scaler has left a step out; for schedulers the optimizer has stepped."""


class UnscalesItself(Steppable, Protocol):
    """An optimizer that divides its gradients itself, as torch's fused ones do. It finds both tensors on itself while it steps; where
    its ``step`` takes ``grad_scaler``, it is given the scaler in their place."""

    _step_supports_amp_scaling: bool
    grad_scale: Union[Tensor, None]
    found_inf: Tensor


def can_leave_step_out(optimizer: Any) -> bool:
    """Whether the GPU can leave the optimizer's next step out. One that wraps another and passes names on cannot: the flag would pass by
    its own ``step``."""
    return hasattr(type(optimizer), "step_unless") and optimizer.can_leave_step_out()


def leave_step_out(optimizer: Any, kwargs: Dict[str, Any]) -> None:
    """In place of ``optimizer.step(**kwargs)``."""
    if hasattr(optimizer, "step_left_out"):
        optimizer.step_left_out()
    if kwargs.get("zero_grad"):
        optimizer.zero_grad(set_to_none=False)


def takes_scaler(optimizer: UnscalesItself) -> bool:
    """Whether its ``step`` wants the scaler itself."""
    from inspect import signature

    return "grad_scaler" in signature(optimizer.step).parameters


def step_that_unscales(optimizer: UnscalesItself, scale: Union[Tensor, None], found_inf: List[Tensor], args: tuple, kwargs: Dict[str, Any]) -> Any:
    """A step of an optimizer that finds ``grad_scale`` (None: divided already) and ``found_inf`` on itself. A ``grad_scale`` of its own
    counts, too."""
    own = getattr(optimizer, "grad_scale", None)
    optimizer.grad_scale = own if scale is None else scale if own is None else scale * own
    optimizer.found_inf = sum(found_inf) if found_inf else make.zeros(())  # type: ignore[assignment]
    try:
        return optimizer.step(*args, **kwargs)
    finally:
        del optimizer.grad_scale, optimizer.found_inf


class _Overflow(Exception):
    """Leaves an optimizer's step from within its closure."""


def step_with_closure(optimizer: Any, closure: Callable[[], Any], found_inf: Callable[[], bool], args: tuple, kwargs: Dict[str, Any]) -> Any:
    """A step with a closure, which may be called several times. ``found_inf``, asked after each call, divides the gradients and tells
    whether one is not finite; then parameters and the optimizer's state are put back to what they were, and None is returned."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    values = [p.detach().clone() for p in params]
    state = {k: deepcopy(v) for k, v in optimizer.state.items()}  # the keys are the parameters themselves

    def unscaled() -> Any:
        loss = closure()
        if found_inf():
            raise _Overflow
        return loss

    try:
        return optimizer.step(unscaled, *args, **kwargs)
    except _Overflow:
        for p, old in zip(params, values):
            p.detach().copy_(old)
        optimizer.state.clear()
        optimizer.state.update(state)
        if kwargs.get("zero_grad"):
            optimizer.zero_grad(set_to_none=False)
        return None
