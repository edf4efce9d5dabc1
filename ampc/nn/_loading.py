"""Module.load_state_dict: the plan of what is loaded, its messages about keys and values that do not fit, and its hooks."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Iterator, Mapping
from typing import Any, Callable, Dict, List, Tuple

from .._C import Tensor
from .parameter import is_lazy

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"  # of what get_extra_state gives, in a state dict


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    __slots__ = ()

    def __repr__(self) -> str:
        return "<All keys matched successfully>" if not any(self) else super().__repr__()


def kind_of(value: Any) -> str:
    """What a value is that should have been one of our tensors, and how it becomes one."""
    kind = f"{type(value).__module__}.{type(value).__name__}"
    return kind + {"torch.Tensor": " (use ampc.from_dlpack, or save it and load the file with ampc.load)",
                   "numpy.ndarray": " (use ampc.from_numpy)"}.get(kind, "")


def hint(missing: List[str], unexpected: List[str]) -> str:
    """What keys that do not fit come from, where that can be told."""
    first = missing[0] if missing else ""
    for stem in (u[:-len(first)] for u in unexpected if u.endswith("." + first)):
        if all(u.startswith(stem) for u in unexpected) and {stem + m for m in missing} <= set(unexpected):  # which may have more: counts of batches
            return (f"\n  (every key begins with {stem!r}, as a wrapper such as DataParallel or torch.compile saves it: "
                    f"{{k[{len(stem)}:]: v for k, v in state.items()}})")
    if {"state_dict", "model", "model_state_dict", "optimizer"} & set(unexpected):
        return "\n  (this is a checkpoint with several parts; pass the part that is the model's)"
    return ""


def post_hooks(module: Any) -> Iterator[Tuple[Any, Callable]]:
    """The hooks of register_load_state_dict_post_hook, each with its module: the children's first."""
    for child in module._modules.values():
        if child is not None:
            yield from post_hooks(child)
    for hook in module.__dict__.get("_load_state_dict_post_hooks", {}).values():
        yield module, hook


class Metadata(dict):
    """A module's metadata of a state dict, and the plan of what is loaded when every key fits."""

    plan: List[Tuple[Any, str, str, Any]]


def load_planned(plan: list, assign: bool, errors: List[str]) -> None:
    """Loads what plan_own put down. What cannot be copied is an error."""
    for module, kind, name, value in plan:
        try:
            module._load_one(kind, name, value, assign)
        except Exception as error:
            if kind == "extra":
                raise
            errors.append(f"{name}: {error}")


def plan_own(module: Any, state: Any, prefix: str, plan: list, missing: List[str], unexpected: List[str], errors: List[str]) -> None:
    """Puts down what a state dict has for a module's own parameters, buffers and extra state; and the keys that it lacks, that nothing
    of the module and its children has, and whose values do not fit."""
    local = {n: ("_parameters", v) for n, v in module._parameters.items() if v is not None}
    local.update({n: ("_buffers", v) for n, v in module._buffers.items() if v is not None and n not in module._non_persistent_buffers_set})
    if not hasattr(type(module).set_extra_state, "_is_default"):
        local[_EXTRA_STATE_KEY_SUFFIX] = ("extra", None)
    for name, (kind, own) in local.items():
        key = prefix + name
        if key not in state:
            missing.append(key)
            continue
        value = state[key]
        if kind != "extra" and not isinstance(value, Tensor):
            errors.append(f"{key}: expected an ampc.Tensor, got {kind_of(value)}")
            continue
        if kind != "extra" and not is_lazy(own):
            if own.ndim == 0 and value.shape == (1,):  # as early versions of torch saved it
                value = value[0]
            if value.shape != own.shape:
                errors.append(f"size mismatch for {key}: the checkpoint has shape {list(value.shape)}, the model {list(own.shape)}")
                continue
        plan.append((module, kind, name, value))
    unexpected.extend(key for key in state if key.startswith(prefix) and not _is_known(key[len(prefix):], local, module._modules))


def _is_known(name: str, local: Any, children: Any) -> bool:
    first, dot, _ = name.partition(".")
    return first in (children if dot else local)


def _walk(module: Any, state: Any, prefix: str, visit: Callable[[Any, Any, str], None]) -> None:
    """Calls ``visit(module, state, prefix)`` for a module and all below it, each with its part of the state dict. It is no closure, which would
    keep that alive in a cycle with itself."""
    visit(module, state, prefix)
    below: Dict[str, Dict[str, Any]] = {}
    for key, value in state.items():
        if key.startswith(prefix):
            below.setdefault(key[len(prefix):].partition(".")[0], {})[key] = value
    for name, child in module._modules.items():
        if child is not None:
            _walk(child, {k: v for k, v in below.get(name, {}).items() if k.startswith(f"{prefix}{name}.")}, f"{prefix}{name}.", visit)


def load_into(module: Any, state_dict: Mapping[str, Any], strict: bool, assign: bool) -> _IncompatibleKeys:
    """Module.load_state_dict."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"load_state_dict: expected a dict, got {type(state_dict).__name__}")
    keys = _IncompatibleKeys([], [])
    errors: List[str] = []
    plan: List[Tuple[Any, str, str, Any]] = []
    state: Any = OrderedDict(state_dict)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        state._metadata = metadata

    def load_own(module: Any, state: Any, prefix: str) -> None:
        about = Metadata((metadata or {}).get(prefix[:-1], {}), **({"assign_to_params_buffers": True} if assign else {}))
        about.plan = plan
        module._load_from_state_dict(state, prefix, about, True, *keys, errors)

    _walk(module, state, "", load_own)
    hooks = list(post_hooks(module))
    if hooks and not errors:
        load_planned(plan, assign, errors)
        plan = []
        for owner, hook in hooks:
            if hook(owner, keys) is not None:
                raise AssertionError("a hook of register_load_state_dict_post_hook must return None, and change the keys in place")
    _refuse(module, keys, errors, strict)
    load_planned(plan, assign, errors)
    _refuse(module, keys, errors, False)
    return keys


def _quoted(names: List[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _refuse(module: Any, keys: _IncompatibleKeys, errors: List[str], strict: bool) -> None:
    """RuntimeError in the words that scripts look for: which keys are missing or unexpected, and whose sizes do not match."""
    missing, unexpected = keys
    lines = [f"Unexpected key(s) in state_dict: {_quoted(unexpected)}{hint(missing, unexpected)}"] if strict and unexpected else []
    lines += [f"Missing key(s) in state_dict: {_quoted(missing)}"] if strict and missing else []
    if lines or errors:
        raise RuntimeError(f"Error(s) in loading state_dict for {type(module).__name__}:\n  " + "\n  ".join(lines + errors))
