"""What modules and optimizers do with the gradients of many parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import _C


def zero_grad(parameters: Iterable[Any], set_to_none: bool) -> None:
    """Forgets the gradients of the parameters, or zeroes them in place."""
    if set_to_none:
        _C._forget_gradients(parameters)
        return
    for p in parameters:
        if p.grad is not None:
            if p.grad.grad_fn is not None:
                p.grad.detach_()  # what is a view has no history, and is not asked
            p.grad.requires_grad_(False).zero_()
            _C._set_provenance([p], "none")
