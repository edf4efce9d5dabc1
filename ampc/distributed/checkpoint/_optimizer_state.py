"""State dicts of optimizers by the names of parameters, with parts of those that are spread as DTensors."""

from __future__ import annotations

import inspect
from collections import defaultdict
from typing import Any, Dict, Iterable, List, Tuple

from ..._C import Tensor
from ..._tensor import creation as make
from ...nn.parameter import Parameter
from ..tensor._dtensor import DTensor, part_of


def names_by_id(module: Any) -> Dict[int, str]:
    """The names of a module's parameters by their ids. A module that is gathered gives the whole back before."""
    for m in module.modules():
        state = getattr(m, "_fsdp_state", None)
        if state is not None:
            state.drop()
    return {id(p): name for name, p in module.named_parameters(remove_duplicate=False)}


def optimizers_of(given: Any) -> List[Any]:
    """One optimizer, or several."""
    return list(given) if isinstance(given, Iterable) else [given]


def state_of(module: Any, optimizers: Any) -> Dict[str, Any]:
    """{'state': by name, 'param_groups': options and names}, of all optimizers. Before the first step it is that of a step that changed nothing."""
    names = names_by_id(module)
    found: Dict[str, Any] = {"state": {}, "param_groups": []}
    for optimizer in optimizers_of(optimizers):
        by_param = _values(optimizer)
        for group in optimizer.param_groups:
            own = [_name_of(p, names) for p in group["params"]]
            found["param_groups"].append({**{k: v for k, v in group.items() if k != "params"}, "params": own})
            for name, p in zip(own, group["params"]):
                if p in by_param:
                    found["state"][name] = {k: _spread(v, p) for k, v in by_param[p].items()}
    return found


def load_state(module: Any, optimizers: Any, given: Dict[str, Any]) -> None:
    """The optimizers continue from what ``state_of`` gave, of any number of processes. RuntimeError where a parameter is missing."""
    names, groups = names_by_id(module), {name: group for group in given["param_groups"] for name in group["params"]}
    for optimizer in optimizers_of(optimizers):
        state: Dict[int, Any] = {}
        saved: List[Dict[str, Any]] = []
        number = 0
        for group in optimizer.param_groups:
            own = [_name_of(p, names) for p in group["params"]]
            missing = [name for name in own if name not in groups]
            if missing:
                raise RuntimeError(f"set_optimizer_state_dict: the state dict lacks {', '.join(missing[:5])}")
            options = groups[own[0]] if own else group
            saved.append({**options, "params": list(range(number, number + len(own)))})
            for name, p in zip(own, group["params"]):
                if name in given["state"]:
                    state[number] = {k: _part(v, p) for k, v in given["state"][name].items()}
                number += 1
        optimizer.load_state_dict({"state": state, "param_groups": saved})


def _name_of(p: Any, names: Dict[int, str]) -> str:
    if id(p) not in names:
        raise RuntimeError("state dicts of optimizers: an optimizer has a parameter that the model does not have; make it of model.parameters(), "
                           "after fully_shard()")
    return names[id(p)]


def _spread(value: Any, p: Any) -> Any:
    """A value of a parameter's state: where it is of the shape of this process' part, that part of a DTensor."""
    if isinstance(value, Tensor) and isinstance(p, DTensor) and value.ndim and value.shape == p.to_local().shape:
        return DTensor._made(value, p.device_mesh, p.placements, p._whole)
    return value


def _part(value: Any, p: Any) -> Any:
    """The same backwards: of a DTensor or a whole tensor this process' part."""
    if isinstance(value, DTensor):
        return value.to_local()
    if isinstance(value, Tensor) and isinstance(p, DTensor) and value.ndim and tuple(value.shape) == p._whole:
        return part_of(value, p.device_mesh, p.placements)
    return value


# -- before the first step -------------------------------------------------------------------------------------------------


def _values(optimizer: Any) -> Dict[Any, Dict[str, Any]]:
    if optimizer.state or inspect.signature(optimizer.step).parameters["closure"].default is inspect.Parameter.empty:
        return optimizer.state
    pairs = [(p, _twin_of(p)) for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    return _after_a_step(optimizer, pairs)


def _twin_of(p: Any) -> Any:
    """A parameter like it, with a gradient of 0."""
    if not isinstance(p, DTensor):
        twin = Parameter(p.detach().clone())
        twin.grad = make.zeros_like(p)
        return twin
    twin = p.__deepcopy__({})
    twin.grad = DTensor._made(make.zeros_like(p.to_local()), p.device_mesh, p.placements, p._whole)
    return twin


def _after_a_step(optimizer: Any, pairs: List[Tuple[Any, Any]]) -> Dict[Any, Dict[str, Any]]:
    """The state that a step of an optimizer like it makes, with 0 for all values."""
    twins = {id(p): twin for p, twin in pairs}
    like = object.__new__(type(optimizer))
    groups = [{**group, "params": [twins[id(p)] for p in group["params"] if id(p) in twins]} for group in optimizer.param_groups]
    like.__setstate__({"defaults": optimizer.defaults, "state": defaultdict(dict), "param_groups": groups})
    like.step()
    return {p: {k: _zero(v) for k, v in like.state[twin].items()} for p, twin in pairs if twin in like.state}


def _zero(value: Any) -> Any:
    if isinstance(value, Tensor):
        return make.zeros_like(value)
    return type(value)(0) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
