"""The scaler's pass over an optimizer's gradients: collects them by device, divides them and takes their statistics."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from .. import _C
from .. import _creation as make
from .._C import Tensor
from .._model_names import Names
from ._ledger import GradStats, remember
from ._scale import Scale

Positions = List[Tuple[int, int]]


def gradients_of(optimizer: Any, allow_fp16: bool) -> List[Tuple[Any, List[Tensor], Positions]]:
    """A device each: the gradients there of an optimizer's parameters, and the (group, position) of each. AssertionError for a parameter that is no
    Tensor; ValueError for a float16 gradient, unless allowed."""
    by_device: Dict[Any, Tuple[Any, List[Tensor], Positions]] = {}
    for g, group in enumerate(optimizer.param_groups):
        for i, p in enumerate(group["params"]):
            if not isinstance(p, Tensor):
                raise AssertionError(f"the optimizer's parameters must be Tensors, got {type(p).__name__}")
            grad = p.grad
            if grad is None:
                continue
            if not allow_fp16 and grad.dtype == _C.float16:
                raise ValueError(
                    f"the gradient of parameter {Names().of_parameter(optimizer, g, i)}, shape {list(p.shape)}, is float16: unscaling it would "
                    "lose what scaling saved. Keep the parameters in float32 (leave out model.half()) and let autocast choose float16 for the "
                    "products; or give the optimizer float32 masters, rounding='master', and say GradScaler(fp16_gradients=True)")
            device = grad.device
            if device not in by_device:
                by_device[device] = device, [], []
            _, grads, positions = by_device[device]
            grads.append(grad)
            positions.append((g, i))
    return list(by_device.values())


def divide_by_number(scale: Scale, factor: float, device: Any, grads: List[Tensor], positions: Positions) -> GradStats:
    """Multiplies gradients on one device by a number, in place; 1.0 only takes their statistics."""
    if device.type == "cpu":
        table = _C._grad_stats(grads, factor)
        if factor != 1.0:
            _C._scale_all(grads, factor)
        remember(grads, table)
        sums = _C._sum_up(table)
        return GradStats(table, positions, sums, scale.flags_of(sums))
    flags = make.zeros(2, dtype=_C.float32, device=device)
    if factor != 1.0:
        _C._scale_all(grads, factor)
    table = _C._cuda_grad_stats(grads, None, flags)
    remember(grads, table)
    return GradStats(table, positions, None, flags)


def no_gradients(optimizer: Any, what: str, connected: Optional[bool]) -> str:
    """The text for a scaler that found no gradient at all. ``connected``: whether the losses that were scaled have a graph, None where
    none was scaled."""
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
        return text + "; the loss that went through scaler.scale() has no graph: it was detached, or computed under no_grad()"
    return text + "; the graph of the scaled loss does not lead to these parameters: was backward() called, and is this the optimizer of the model "\
        "that computed the loss?"
