"""Gradient clipping."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, List, Union

from ... import _C
from ..._C import Tensor
from ..._events import announce
from ..._messages.callers import warn
from ..._messages.parameters import listed
from ..._tensor import creation as make
from ...amp._ledger import ledger_of
from ...amp._parts import norm_of_all


def _grads(parameters: List[Tensor]) -> List[Tensor]:
    return [p.grad for p in parameters if p.grad is not None]


def _one_device(tensors: List[Tensor]) -> bool:
    return len({t.device for t in tensors}) == 1


def get_total_norm(tensors: Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: Any = None) -> Tensor:
    """The norm of all tensors together, as if they were one vector; a 0-d tensor."""
    every = listed(tensors, "get_total_norm")
    for t in every:
        announce.norm_taken(t)
    return _total_norm(every, float(norm_type), error_if_nonfinite)


def _total_norm(every: List[Tensor], norm_type: float, error_if_nonfinite: bool) -> Tensor:
    dtype = _C.float64 if any(t.dtype == _C.float64 for t in every) else _C.float32
    if every and all(t.is_meta for t in every) and not error_if_nonfinite:
        return make.empty((), dtype=dtype, device="meta")
    whole = norm_of_all(every, norm_type)
    if whole is not None:
        total = whole
    elif norm_type == 2.0 and every and _one_device(every) and not (error_if_nonfinite and every[0].is_cuda):
        table = ledger_of(every)
        norm = _C._cuda_norm(table, dtype == _C.float64) if table.is_cuda else table[:, 0].sum().sqrt().to(dtype)
        if not error_if_nonfinite:
            return norm
        total = norm.item()
    elif norm_type == 2.0:
        total = math.sqrt(sum(ledger_of([t])[0, 0].item() for t in every))
    else:
        norms = [t.detach().norm(norm_type).item() for t in every]  # a norm of norms: nan stays, and overflow is infinite
        total = make.tensor(norms, dtype=_C.float64).norm(norm_type).item() if norms else 0.0
    if error_if_nonfinite and not math.isfinite(total):
        raise RuntimeError(f"the gradients' norm of order {norm_type} is {total}, so they cannot be clipped; "
                           "error_if_nonfinite=False scales them all the same")
    return make.full((), total, dtype=dtype, device=every[0].device if every else None)


def clip_grads_with_norm_(parameters: Any, max_norm: Union[float, Tensor], total_norm: Tensor, foreach: Any = None) -> None:
    """Scales gradients by max_norm / total_norm where that is below 1."""
    grads = [g.detach() for g in _grads(listed(parameters, "clip_grads_with_norm_"))]
    if total_norm.is_meta:
        return
    if grads and grads[0].is_cuda and _one_device(grads) and total_norm.device == grads[0].device:  # without waiting for it
        limit = max_norm.double() if isinstance(max_norm, Tensor) and max_norm.device == total_norm.device else float(max_norm)
        norm = total_norm.detach() if total_norm.is_floating_point() else total_norm.double()
        _C._scale_all(grads, 1.0, _C._cuda_clip_factor(norm, limit))
        return
    factor = float(max_norm) / (total_norm.item() + 1e-6)
    if not factor >= 1.0:  # nan spreads, as in torch
        _C._scale_all(grads, factor)


def clip_grad_norm_(parameters: Union[Tensor, Iterable[Tensor]], max_norm: Union[float, Tensor], norm_type: float = 2.0,
                    error_if_nonfinite: bool = False, foreach: Any = None) -> Tensor:
    """Scales all gradients together, in place, so that their norm is at most ``max_norm``; returns the norm
    before. A limit on the gradients' GPU is not waited for. RuntimeError for a norm that is not finite, with
    ``error_if_nonfinite``. Under a GradScaler, call ``scaler.unscale_(optimizer)`` first."""
    params = listed(parameters, "clip_grad_norm_")
    announce.clipping(params, "clip_grad_norm_", None if isinstance(max_norm, Tensor) and max_norm.is_cuda else float(max_norm))
    grads = _grads(params)
    total = _total_norm(grads, float(norm_type), error_if_nonfinite)
    clip_grads_with_norm_(params, max_norm, total)
    _C._set_provenance(params, "same")
    return total


def clip_grad_norm(parameters: Union[Tensor, Iterable[Tensor]], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: Any = None) -> Tensor:
    """clip_grad_norm_, by its older name."""
    warn("nn.utils.clip_grad_norm is deprecated: write clip_grad_norm_")
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Union[Tensor, Iterable[Tensor]], clip_value: float, foreach: Any = None) -> None:
    """Limits every gradient to [-clip_value, clip_value], in place."""
    limit, params = float(clip_value), listed(parameters, "clip_grad_value_")
    announce.clipping(params, "clip_grad_value_", limit)
    for g in _grads(params):
        g.detach().clamp_(-limit, limit)
    _C._set_provenance(params, "same")
