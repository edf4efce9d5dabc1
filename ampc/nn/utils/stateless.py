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
def _with_values(module: Module, values: Dict[str, Tensor], strict: bool) -> Iterator[None]:
    """``module`` with these tensors in place of its parameters and buffers of those names."""
    spots: List[Tuple[Dict[str, Any], str, Any]] = []
    names = {n for n, _ in module.named_parameters(remove_duplicate=False)} | {n for n, _ in module.named_buffers(remove_duplicate=False)}
    unknown = set(values) - names
    if strict and names != set(values):
        raise RuntimeError(f"functional_call: {type(module).__name__} has no {sorted(unknown)}" if unknown else
                           f"functional_call: strict, but nothing is given for {sorted(names - set(values))}")
    try:
        for name, value in values.items():
            if name in unknown:
                continue
            where, _, last = name.rpartition(".")
            owner = module.get_submodule(where)
            owned = owner._parameters if last in owner._parameters else owner._buffers
            spots.append((owned, last, owned[last]))
            owned[last] = value
        yield
    finally:
        for owned, last, before in reversed(spots):
            owned[last] = before


def call_with(module: Module, parameter_and_buffer_dicts: Any, args: Any, kwargs: Optional[Dict[str, Any]], tie_weights: bool,
              strict: bool) -> Any:
    """What func.functional_call does."""
    dicts = [parameter_and_buffer_dicts] if isinstance(parameter_and_buffer_dicts, dict) else list(parameter_and_buffer_dicts)
    values: Dict[str, Tensor] = {}
    for d in dicts:
        values.update(d)
    if tie_weights:
        own = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
        by_tensor = {id(t): values[n] for n, t in own if n in values}
        values = {**{n: by_tensor[id(t)] for n, t in own if id(t) in by_tensor}, **values}
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _with_values(module, values, strict):
        return module(*args, **(kwargs or {}))


def functional_call(module: Module, parameters_and_buffers: Dict[str, Tensor], args: Any = None, kwargs: Optional[Dict[str, Any]] = None, *,
                    tie_weights: bool = True, strict: bool = False) -> Any:
    """As func.functional_call, of one dict, with a FutureWarning as in torch."""
    warn("stateless.functional_call is the older name of func.functional_call, which takes the same arguments", FutureWarning)
    return call_with(module, parameters_and_buffers, args, kwargs, tie_weights, strict)
