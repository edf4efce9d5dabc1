"""State dicts of models and optimizers of which each process holds a part: whole, or by parts. Source: torch.distributed.checkpoint.state_dict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Optional

from ..._C import Tensor
from ..._missing import absent_from
from ...nn._loading import _IncompatibleKeys
from ...nn.modules.module import Module
from ..groups import get_rank, is_initialized
from ..objects import broadcast_object_list
from ..tensor._dtensor import DTensor

__all__ = ["StateDictOptions", "get_model_state_dict", "set_model_state_dict"]


@dataclass
class StateDictOptions:
    """What a state dict has.

    Fields:
        full_state_dict: whole tensors, gathered in all processes, in place of DTensors.
        cpu_offload: on the CPU; with ``full_state_dict`` in rank 0 alone, the others get an empty dict.
        ignore_frozen_params: without parameters that do not require gradients.
        strict: loading checks that every key fits.
        broadcast_from_rank0: loading takes rank 0's whole tensors, and needs none in the others."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    strict: bool = True
    broadcast_from_rank0: bool = False


def get_model_state_dict(model: Module, *, options: Optional[StateDictOptions] = None) -> Dict[str, Any]:
    """The state dict of a model, by ``options``; the keys are those of the module that DistributedDataParallel wraps. All processes of a sharded
    model must call it."""
    options = StateDictOptions() if options is None else options
    module = _unwrapped(model)
    found: Dict[str, Any] = module.state_dict()
    if options.ignore_frozen_params:
        frozen = {name for name, p in module.named_parameters() if not p.requires_grad}
        found = {key: value for key, value in found.items() if key not in frozen}
    if options.full_state_dict:
        found = {key: value.full_tensor() if isinstance(value, DTensor) else value for key, value in found.items()}
        if options.cpu_offload and is_initialized() and get_rank() != 0:
            return {}
    if options.cpu_offload:
        found = {key: value.cpu() if isinstance(value, Tensor) and not isinstance(value, DTensor) else value for key, value in found.items()}
    return dict(found)


def set_model_state_dict(model: Module, model_state_dict: Dict[str, Any], *, options: Optional[StateDictOptions] = None) -> _IncompatibleKeys:
    """Loads a state dict of DTensors or of whole tensors, of which each process takes its rows. With ``broadcast_from_rank0`` all processes must call
    it. Returns missing and unexpected keys, as load_state_dict. RuntimeError for keys and shapes that do not fit."""
    options = StateDictOptions() if options is None else options
    if options.broadcast_from_rank0 and is_initialized():
        given = [model_state_dict]
        broadcast_object_list(given, 0)
        model_state_dict = given[0]
    return _unwrapped(model).load_state_dict(model_state_dict, strict=options.strict)


def _unwrapped(model: Module) -> Any:
    from ...nn.parallel.distributed import DistributedDataParallel

    return model.module if isinstance(model, DistributedDataParallel) else model


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
