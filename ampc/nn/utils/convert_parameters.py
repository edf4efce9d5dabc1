"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from ... import _ops
from ..._C import Tensor
from ..._messages.parameters import listed


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All values, tensor by tensor in row-major order; differentiable. RuntimeError when they lie on several devices."""
    return _ops.cat([p.reshape(-1) for p in listed(parameters, "parameters_to_vector")])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Makes the parameters' values those of ``vec`` (copied), as `parameters_to_vector` put them.
    TypeError for anything but a Tensor; ValueError for a vector of another length."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"vector_to_parameters: `vec` must be a Tensor, got {type(vec).__name__}")
    every = listed(parameters, "vector_to_parameters")
    total = sum(p.numel() for p in every)
    if vec.dim() != 1 or vec.numel() != total:
        raise ValueError(f"vector_to_parameters: the parameters hold {total} values, `vec` has shape {tuple(vec.shape)}")
    first = 0
    for p in every:
        p.data.copy_(vec.detach()[first:first + p.numel()].reshape(p.shape))
        first += p.numel()
