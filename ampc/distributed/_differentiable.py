"""Collectives that backward passes go through."""

from __future__ import annotations

from typing import Any

from .._C import Tensor
from ..autograd.function import Function
from .collectives import all_reduce


class _Sum(Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor, group: Any) -> Tensor:
        ctx.group = group
        result = t.clone()
        all_reduce(result, group=group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        total = grad.contiguous().clone()
        all_reduce(total, group=ctx.group)
        return total, None


def sum_over_ranks(t: Tensor, group: Any) -> Tensor:
    """The sum of all processes' tensors, in each. Backward sums their gradients. All processes must call it, and run its backward."""
    return _Sum.apply(t, group)
