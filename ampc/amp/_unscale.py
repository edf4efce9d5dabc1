"""Collects an optimizer's gradients by device, divides them by the scale and checks them for overflow."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from .. import _C
from .._C import Tensor
from .._model_names import Names
from ._ledger import GradStats, remember
from ._scale import Scale

Positions = List[Tuple[int, int]]


def gradients_of(optimizer: Any, allow_fp16: bool) -> List[Tuple[Any, List[Tensor], Positions]]:
    """The gradients of an optimizer's parameters on each device, with the (group, position) of each.

    AssertionError for a parameter that is no Tensor; ValueError for a float16 gradient, unless allowed."""
    by_device: Dict[int, Tuple[Any, List[Tensor], Positions]] = {}
    last = -1  # the device of the gradient before
    for g, group in enumerate(optimizer.param_groups):
        for i, p in enumerate(group["params"]):
            if not isinstance(p, Tensor):
                raise AssertionError(f"the optimizer's parameters must be Tensors, got {type(p).__name__}")
            grad = p.grad
            if grad is None:
                continue
            if not allow_fp16 and grad.dtype == _C.float16:
                raise ValueError(
                    f"the gradient of parameter {Names().of_parameter(optimizer, g, i)}, shape {list(p.shape)}, is float16, and unscaling would "
                    "round small values to 0. Remove model.half(): keep the parameters in float32, and autocast computes products in float16. "
                    "Or use rounding='master' in the optimizer and GradScaler(fp16_gradients=True)")
            number = _C._device_index(grad)
            if number != last:
                last, found = number, by_device.setdefault(number, (grad.device, [], []))
            found[1].append(grad)
            found[2].append((g, i))
    return list(by_device.values())


def divide_by_number(scale: Scale, factor: float, device: Any, grads: List[Tensor], positions: Positions) -> GradStats:
    """Multiplies gradients on one device by a number, in place. 1.0 only checks them."""
    if device.type == "cpu":
        table = _C._grad_stats(grads, factor)
        if factor != 1.0:
            _C._scale_all(grads, factor)
        remember(grads, table)
        sums = _C._sum_up(table)
        return GradStats(table, positions, sums, scale.flags_of(sums))
    if factor != 1.0:
        _C._scale_all(grads, factor)
    table, flags, _, _ = _C._cuda_grad_stats(grads)
    remember(grads, table)
    return GradStats(table, positions, None, flags)


def no_gradients(optimizer: Any, what: str, connected: Optional[bool]) -> str:
    """The error text when no parameter has a gradient. ``connected``: whether the scaled losses have a graph; None if none was scaled."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    trained = sum(p.requires_grad for p in params)
    text = f"{what}: none of the {len(params)} parameters of {type(optimizer).__name__} has a gradient"
    if not trained:
        return text + "; none of them requires one (requires_grad is False)"
    if trained < len(params):
        text += f" ({len(params) - trained} do not require one)"
    if connected is None:
        return text + "; scaler.scale(loss).backward() was not called since the last update()"
    if not connected:
        return text + "; the loss passed to scaler.scale() has no graph: it was detached, or computed under no_grad()"
    return text + "; the graph of the scaled loss does not reach these parameters, or their gradients were dropped. Was backward() called, and "\
        "zero_grad() not called after it? Does this optimizer belong to the model that computed the loss?"
