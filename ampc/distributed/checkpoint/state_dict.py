"""State dicts of models and optimizers of which each process holds a part: whole, or by parts. Source: torch.distributed.checkpoint.state_dict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Tuple

from ..._C import Tensor
from ..._names.missing import absent_from
from ...nn._loading import _IncompatibleKeys
from ...nn.modules.module import Module
from ..groups import get_rank, is_initialized
from ..objects import broadcast_object_list
from ..tensor._dtensor import DTensor
from ._optimizer_state import load_state, state_of

__all__ = ["StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict",
           "set_optimizer_state_dict", "set_state_dict"]


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
    return _gathered(found, options)


def _gathered(found: Dict[str, Any], options: StateDictOptions) -> Dict[str, Any]:
    """The state dict as ``options`` ask for it: whole, on the CPU."""
    if options.full_state_dict:
        found = _each(found, lambda t: t.full_tensor() if isinstance(t, DTensor) else t)
        if options.cpu_offload and is_initialized() and get_rank() != 0:
            return {}
    return _each(found, lambda t: t if isinstance(t, DTensor) or not options.cpu_offload else t.cpu())


def _each(value: Any, f: Callable[[Any], Any]) -> Any:
    """``f`` of every tensor in dicts and lists of dicts."""
    if isinstance(value, Tensor):
        return f(value)
    if isinstance(value, dict):
        return {key: _each(each, f) for key, each in value.items()}
    return [_each(each, f) for each in value] if isinstance(value, list) else value


def set_model_state_dict(model: Module, model_state_dict: Dict[str, Any], *, options: Optional[StateDictOptions] = None) -> _IncompatibleKeys:
    """Loads a state dict of DTensors or of whole tensors, of which each process takes its rows. With ``broadcast_from_rank0`` all processes must call
    it. Returns missing and unexpected keys, as load_state_dict. RuntimeError for keys and shapes that do not fit."""
    options = StateDictOptions() if options is None else options
    return _unwrapped(model).load_state_dict(_of_rank0(model_state_dict, options), strict=options.strict)


def _of_rank0(state_dict: Dict[str, Any], options: StateDictOptions) -> Dict[str, Any]:
    """Rank 0's state dict in all processes, where that is asked for."""
    if not options.broadcast_from_rank0 or not is_initialized():
        return state_dict
    given = [state_dict]
    broadcast_object_list(given, 0)
    return given[0]


def get_optimizer_state_dict(model: Module, optimizers: Any, *, options: Optional[StateDictOptions] = None) -> Dict[str, Any]:
    """The state of an optimizer of the model, or of several: ``{"state": {name: values}, "param_groups": [options and names]}``, by ``options``.
    What an optimizer keeps for each element of a sharded parameter is a DTensor, or with ``full_state_dict`` whole. Before the first step all values
    are 0, so that a checkpoint can be loaded into them. All processes of a sharded model must call it.

    RuntimeError for an optimizer with parameters that the model does not have."""
    return _gathered(state_of(_unwrapped(model), optimizers), StateDictOptions() if options is None else options)


def set_optimizer_state_dict(model: Module, optimizers: Any, optim_state_dict: Dict[str, Any], *, options: Optional[StateDictOptions] = None) -> None:
    """The optimizers continue from such a state dict, whatever the number of processes that it was taken in: of whole tensors each process takes its
    rows. With ``broadcast_from_rank0`` all processes must call it. RuntimeError where a parameter is missing."""
    load_state(_unwrapped(model), optimizers, _of_rank0(optim_state_dict, StateDictOptions() if options is None else options))


def get_state_dict(model: Module, optimizers: Any, *, options: Optional[StateDictOptions] = None) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """``get_model_state_dict`` and ``get_optimizer_state_dict``."""
    return get_model_state_dict(model, options=options), get_optimizer_state_dict(model, optimizers, options=options)


def set_state_dict(model: Module, optimizers: Any, *, model_state_dict: Dict[str, Any], optim_state_dict: Dict[str, Any],
                   options: Optional[StateDictOptions] = None) -> _IncompatibleKeys:
    """``set_model_state_dict``, whose result it returns, and ``set_optimizer_state_dict``."""
    found = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return found


def _unwrapped(model: Module) -> Any:
    from ...nn.parallel.distributed import DistributedDataParallel

    return model.module if isinstance(model, DistributedDataParallel) else model


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
