"""Results of sort, topk and their like. Which of several equal values an index names is left open by torch. So the values at the
indices are compared, and whether the indices differ from each other, in place of the indices themselves."""

from __future__ import annotations

from typing import Any

import torch

import ampc

from .translate import to_torch

DIM_AT = {"sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1, "mode": 0}  # where the dimension is among the arguments after the input


def values_at_places(name: str, sample: Any, x: Any, result: Any) -> Any:
    """`result` of the operator for `x`, with what lies at its indices in place of them."""
    if name not in DIM_AT or sample.kwargs.get("stable"):
        return result
    several = isinstance(result, (list, tuple))
    indices = result[-1] if several else result
    return (*(result[:-1] if several else ()), str(indices.dtype).split(".")[-1], tuple(indices.shape), *found_at(name, sample, x.detach(), indices))


def gradient_at_places(name: str, sample: Any, x: torch.Tensor, indices: Any, seed: torch.Tensor) -> torch.Tensor:
    """The gradient of x where `seed` is that of the values and ampc's `indices` say whose they are."""
    along, dim = to_torch(indices), dim_of(name, sample)
    if x.ndim == 0:
        return seed.reshape(())
    if along.ndim < x.ndim:
        along, seed = along.unsqueeze(dim), seed.unsqueeze(dim)
    return torch.zeros(x.shape, dtype=x.dtype).scatter(dim, along, seed)


def dim_of(name: str, sample: Any) -> int:
    at = DIM_AT[name]
    return sample.kwargs.get("dim", sample.args[at] if len(sample.args) > at else -1)


def found_at(name: str, sample: Any, x: Any, indices: Any) -> Any:
    """(the values at the indices, whether all indices along the dimension differ)"""
    if x.ndim == 0:
        return x, bool((indices == 0).all())
    dim = dim_of(name, sample)
    lib: Any = torch if isinstance(x, torch.Tensor) else ampc
    along = indices if indices.ndim == x.ndim else indices.unsqueeze(dim)
    ordered = along.sort(dim)[0]
    apart = (ordered.narrow(dim, 1, ordered.shape[dim] - 1) != ordered.narrow(dim, 0, ordered.shape[dim] - 1)) if ordered.numel() else ordered == ordered
    return lib.take_along_dim(x, along, dim), bool(apart.all())
