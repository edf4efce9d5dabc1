"""Protocols for the optimizers of a GradScaler, and how it calls their step.

Any optimizer with ``param_groups`` and ``step`` will do. With ``LeavesStepsOut`` the GPU itself can skip a step, and the CPU does not
wait. With ``UnscalesItself`` the optimizer divides the gradients within its step. For all others the CPU waits until it knows whether the step
is skipped, so that no code of a skipped step runs."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Callable, Dict, List, Protocol, Union

from .._C import Tensor
from .._tensor import creation as make


class Steppable(Protocol):
    """Every optimizer. ``step`` with a closure also asks for ``state``; ``step(zero_grad=True)`` for ``zero_grad``."""

    param_groups: List[Dict[str, Any]]

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Updates the parameters once."""


class LeavesStepsOut(Steppable, Protocol):
    """An optimizer that is told of skipped steps, such as ``ampc.optim.Optimizer``."""

    def can_leave_step_out(self) -> bool:
        """Whether a flag on the GPU can skip the next step there, so that nothing of it is seen."""

    def step_unless(self, found_inf: Tensor, *args: Any, **kwargs: Any) -> Any:
        """A step that the GPU skips if ``found_inf`` is not 0."""

    def step_left_out(self) -> None:
        """The scaler has skipped a step. Schedulers still count it, as torch's do."""


class UnscalesItself(Steppable, Protocol):
    """An optimizer that divides its gradients itself, as torch's fused ones do. During ``step`` it has both tensors as attributes. If
    ``step`` has a parameter ``grad_scaler``, it gets the scaler instead."""

    _step_supports_amp_scaling: bool
    grad_scale: Union[Tensor, None]
    found_inf: Tensor


def why_wait(optimizer: Any, found_inf: List[Tensor]) -> str:
    """Why the CPU must know whether the optimizer's next step is skipped, in words; "" where the GPU can skip it. A wrapper that only passes
    attributes on is asked for nothing, because ``step_unless`` would bypass its own ``step``."""
    if len(found_inf) != 1:
        return "its gradients are on several devices"
    if not hasattr(type(optimizer), "step_unless"):
        return "it is no optimizer of ampc.optim"
    if optimizer.can_leave_step_out():
        return ""
    return optimizer.why_wait() if hasattr(optimizer, "why_wait") else "it cannot leave this step out"


def leave_step_out(optimizer: Any, kwargs: Dict[str, Any]) -> None:
    """Does what follows a skipped ``optimizer.step(**kwargs)``."""
    if hasattr(optimizer, "step_left_out"):
        optimizer.step_left_out()
    if kwargs.get("zero_grad"):
        optimizer.zero_grad(set_to_none=False)


def takes_scaler(optimizer: UnscalesItself) -> bool:
    """Whether its ``step`` has a parameter ``grad_scaler``."""
    from inspect import signature

    return "grad_scaler" in signature(optimizer.step).parameters


def step_that_unscales(optimizer: UnscalesItself, scale: Union[Tensor, None], found_inf: List[Tensor], args: tuple, kwargs: Dict[str, Any]) -> Any:
    """A step during which the optimizer has ``grad_scale`` (None if already divided) and ``found_inf`` as attributes. Multiplies a
    ``grad_scale`` that it had before."""
    own = getattr(optimizer, "grad_scale", None)
    optimizer.grad_scale = own if scale is None else scale if own is None else scale * own
    optimizer.found_inf = sum(found_inf) if found_inf else make.zeros(())  # type: ignore[assignment]
    try:
        return optimizer.step(*args, **kwargs)
    finally:
        del optimizer.grad_scale, optimizer.found_inf


class _Overflow(Exception):
    """Ends an optimizer's step from within its closure."""


def step_with_closure(optimizer: Any, closure: Callable[[], Any], found_inf: Callable[[], bool], args: tuple, kwargs: Dict[str, Any]) -> Any:
    """A step with a closure, which the optimizer may call several times.

    After each call ``found_inf`` divides the gradients, and says whether one is not finite. If so, parameters, the optimizer's state and
    the groups' options get their old values back, and the result is None."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    values = [p.detach().clone() for p in params]
    options = [dict(group) for group in optimizer.param_groups]
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
        for group, before in zip(optimizer.param_groups, options):
            group.clear()
            group.update(before)
        optimizer.state.clear()
        optimizer.state.update(state)
        return leave_step_out(optimizer, kwargs)
