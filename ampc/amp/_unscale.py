"""Collects an optimizer's gradients by device, divides them by the scale and checks them for overflow."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from .. import _C
from .._C import Tensor
from .._messages.model_names import Names
from .._tensor.device import device_of
from ._ledger import GradStats, remember
from ._scale import Scale

Positions = List[Tuple[int, int]]


def gradients_of(optimizer: Any, allow_fp16: bool) -> List[Tuple[Any, List[Tensor], Positions]]:
    """The gradients of an optimizer's parameters on each device, with the (group, position) of each.

    AssertionError for a parameter that is no Tensor; ValueError for a float16 gradient, unless allowed."""
    found = _C._gradients_of(optimizer.param_groups)
    float16 = None if allow_fp16 else min((first for _, _, _, first in found if first is not None), default=None)
    if float16 is not None:
        raise _refused(optimizer, *float16)
    return [(device_of(number), grads, positions) for number, grads, positions, _ in found]


def _refused(optimizer: Any, group: int, position: int) -> ValueError:
    p = optimizer.param_groups[group]["params"][position]
    return ValueError(
        f"the gradient of parameter {Names().of_parameter(optimizer, group, position)}, shape {list(p.shape)}, is float16, and unscaling would "
        "round small values to 0. Remove model.half(): keep the parameters in float32, and autocast computes products in float16. "
        "Or use rounding='master' in the optimizer and GradScaler(fp16_gradients=True)")


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
