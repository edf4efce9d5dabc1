"""Modules called with other tensors for their parameters; ``functional_call`` is torch's older name of func.functional_call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Dict, List, Optional, Tuple

from ..._C import Tensor
from ..._messages.callers import warn
from ..modules.module import Module

__all__ = ["functional_call"]


_MISSING: Any = object()


def _named(module: Module) -> Dict[str, Tensor]:
    """All parameters and buffers by name, those that are tied by each of theirs."""
    return {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}


def _swap(owner: Module, name: str, value: Optional[Tensor]) -> Tuple[Optional[Dict[str, Any]], Any]:
    """Puts ``value`` in the place of a parameter, a buffer or a plain attribute. Where it stands, None for an attribute, and what stood there."""
    if not isinstance(value, Tensor) and value is not None:
        raise TypeError(f"functional_call: '{name}' must be a Tensor or None, got {value!r:.60}")
    for home in (owner._parameters, owner._buffers):
        if name in home:
            before, home[name] = home[name], value
            return home, before
    before = getattr(owner, name, _MISSING)
    if before is not _MISSING and not isinstance(before, Tensor):
        raise TypeError(f"functional_call: attribute '{name}' of {type(owner).__name__} is {before!r:.60}, and only Tensors are replaced")
    setattr(owner, name, value)
    return None, before


def _swap_back(owner: Module, name: str, home: Optional[Dict[str, Any]], before: Any) -> Any:
    """Undoes _swap. Gives what stood there last, which the call may have set."""
    if home is not None:
        last, home[name] = home.get(name, _MISSING), before
        return last
    last = getattr(owner, name, _MISSING)
    if last is not _MISSING:
        delattr(owner, name)
    if before is not _MISSING:
        setattr(owner, name, before)
    return last


@contextmanager
def _with_values(module: Module, values: Dict[str, Any], strict: bool, given: Dict[str, Any]) -> Iterator[None]:
    """``module`` with these tensors in the place of its own. What the module sets within is written into ``given``, where that has the name."""
    spots: List[Tuple[str, Module, str, Any, Any]] = []
    names = set(_named(module)) if strict else set(values)
    if names != set(values):
        unknown = set(values) - names
        raise RuntimeError(f"functional_call: {type(module).__name__} has no {sorted(unknown)}" if unknown else
                           f"functional_call: strict, but nothing is given for {sorted(names - set(values))}")
    try:
        for name, value in values.items():
            where, _, last = name.rpartition(".")
            owner = module.get_submodule(where)
            spots.append((name, owner, last, *_swap(owner, last, value)))
        yield
    finally:
        for name, *spot in reversed(spots):
            found = _swap_back(*spot)
            if name in given and found is not _MISSING and found is not given[name]:
                given[name] = found


def _tied(module: Module, values: Dict[str, Any]) -> Dict[str, Any]:
    """The values, also under the other names of parameters that have several. ValueError where these are given different ones."""
    names: Dict[int, List[str]] = {}
    for name, t in _named(module).items():
        names.setdefault(id(t), []).append(name)
    every = dict(values)
    for together in names.values():
        there = [name for name in together if name in values] if len(together) > 1 else []
        if any(values[name] is not values[there[0]] for name in there):
            raise ValueError(f"functional_call: {there} are tied and were given different values; give one, or tie_weights=False")
        every.update((name, values[there[0]]) for name in together if there)
    return every


def _one_dict(dicts: Any) -> Dict[str, Any]:
    if isinstance(dicts, dict):
        return dicts
    if not isinstance(dicts, (list, tuple)) or not all(isinstance(d, dict) for d in dicts):
        raise ValueError(f"functional_call: expected a dict or a list of dicts, got {type(dicts).__name__}")
    counted = Counter(name for d in dicts for name in d)
    several = sorted(name for name, count in counted.items() if count > 1)
    if several:
        raise ValueError(f"functional_call: {several} are in more than one of the dicts")
    return {name: value for d in dicts for name, value in d.items()}


@contextmanager
def _reparametrize_module(module: Module, parameters_and_buffers: Dict[str, Tensor], tie_weights: bool = False, strict: bool = False,
                          stack_weights: bool = False) -> Iterator[None]:
    """``module`` with these tensors in the place of its own. What it has set there meanwhile is in the dict afterwards. ``stack_weights`` has no
    effect: the last replaced is always the first put back."""
    values = _tied(module, parameters_and_buffers) if tie_weights else parameters_and_buffers
    with _with_values(module, values, strict, parameters_and_buffers):
        yield


def call_with(module: Module, parameter_and_buffer_dicts: Any, args: Any, kwargs: Optional[Dict[str, Any]], tie_weights: bool,
              strict: bool) -> Any:
    """What func.functional_call does."""
    given = _one_dict(parameter_and_buffer_dicts)
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, given, tie_weights, strict):
        return module(*args, **(kwargs or {}))


def functional_call(module: Module, parameters_and_buffers: Dict[str, Tensor], args: Any = None, kwargs: Optional[Dict[str, Any]] = None, *,
                    tie_weights: bool = True, strict: bool = False) -> Any:
    """As func.functional_call, of one dict, with a FutureWarning as in torch."""
    warn("stateless.functional_call is the older name of func.functional_call, which takes the same arguments", FutureWarning)
    return call_with(module, parameters_and_buffers, args, kwargs, tie_weights, strict)
