"""Modules called with other tensors for their parameters; ``functional_call`` is torch's older name of func.functional_call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Dict, List, Optional, Tuple

from ..._C import Tensor
from ..._messages.callers import warn
from ..modules.module import Module

__all__ = ["functional_call"]


@contextmanager
def _reparametrize_module(module: Module, parameters_and_buffers: Dict[str, Tensor], tie_weights: bool = False, strict: bool = False,
                          stack_weights: bool = False) -> Iterator[None]:
    """``module`` with these tensors in place of its parameters and buffers of those names. What it has set there meanwhile is in the dict
    afterwards. ``stack_weights`` has no effect: the last replaced is always the first put back."""
    own = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    values = _tied(own, parameters_and_buffers) if tie_weights else dict(parameters_and_buffers)
    names = {n for n, _ in own}
    unknown = set(values) - names
    if strict and names != set(values):
        raise RuntimeError(f"functional_call: {type(module).__name__} has no {sorted(unknown)}" if unknown else
                           f"functional_call: strict, but nothing is given for {sorted(names - set(values))}")
    spots: List[Tuple[str, Dict[str, Any], str, Any]] = []
    try:
        for name, value in values.items():
            if name in unknown:
                continue
            where, _, last = name.rpartition(".")
            owner = module.get_submodule(where)
            owned = owner._parameters if last in owner._parameters else owner._buffers
            spots.append((name, owned, last, owned[last]))
            owned[last] = value
        yield
    finally:
        for name, owned, last, before in reversed(spots):
            if name in parameters_and_buffers and last in owned:
                parameters_and_buffers[name] = owned[last]
            owned[last] = before


def _tied(own: List[Tuple[str, Tensor]], values: Dict[str, Tensor]) -> Dict[str, Tensor]:
    """With the value of each tensor for all names that the module has for it."""
    by_tensor = {id(t): values[n] for n, t in own if n in values}
    return {**{n: by_tensor[id(t)] for n, t in own if id(t) in by_tensor}, **values}


def call_with(module: Module, parameter_and_buffer_dicts: Any, args: Any, kwargs: Optional[Dict[str, Any]], tie_weights: bool,
              strict: bool) -> Any:
    """What func.functional_call does."""
    values: Dict[str, Tensor] = {}
    if isinstance(parameter_and_buffer_dicts, dict):
        values = parameter_and_buffer_dicts
    else:
        for d in parameter_and_buffer_dicts:
            values.update(d)
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, values, tie_weights, strict):
        return module(*args, **(kwargs or {}))


def functional_call(module: Module, parameters_and_buffers: Dict[str, Tensor], args: Any = None, kwargs: Optional[Dict[str, Any]] = None, *,
                    tie_weights: bool = True, strict: bool = False) -> Any:
    """As func.functional_call, of one dict, with a FutureWarning as in torch."""
    warn("stateless.functional_call is the older name of func.functional_call, which takes the same arguments", FutureWarning)
    return call_with(module, parameters_and_buffers, args, kwargs, tie_weights, strict)
