"""Weight normalisation as a hook before forward, with the parameter names of older checkpoints (``weight_g``, ``weight_v``);
`parametrizations.weight_norm` is its successor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Optional

from ..._C import Tensor
from ..modules.module import Module
from ..parameter import Parameter
from .parametrizations import norm_except_dim


class _WeightNorm:
    def __init__(self, name: str, dim: Optional[int]) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute(self, module: Module) -> Tensor:
        v = getattr(module, self.name + "_v")
        return v * (getattr(module, self.name + "_g") / norm_except_dim(v, 2, self.dim))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute(module))


def _hook_of(module: Module, kind: Any, name: str) -> Optional[int]:
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, kind) and hook.name == name:
            return key
    return None


def weight_norm(module: Module, name: str = "weight", dim: Optional[int] = 0) -> Module:
    """Trains the size of each slice along ``dim`` (of all with None), ``<name>_g``, apart from its direction, ``<name>_v``.
    RuntimeError when the tensor is normalised already."""
    if _hook_of(module, _WeightNorm, name) is not None:
        raise RuntimeError(f"weight_norm: {name!r} of {type(module).__name__} is normalised already")
    hook = _WeightNorm(name, dim)
    weight = getattr(module, name)
    delattr(module, name)
    module.register_parameter(name + "_g", Parameter(norm_except_dim(weight.detach(), 2, hook.dim)))
    module.register_parameter(name + "_v", Parameter(weight.detach()))
    setattr(module, name, hook.compute(module))
    module.register_forward_pre_hook(hook)
    return module


def undo(module: Module, kind: Any, name: str, value: Callable[[Any], Tensor], ends: Sequence[str], what: str) -> Module:
    """Takes off the hook of this kind on a tensor, which becomes an ordinary parameter of that value. ValueError without one."""
    key = _hook_of(module, kind, name)
    if key is None:
        raise ValueError(f"{what}: {name!r} of {type(module).__name__} is not normalised")
    hook = module._forward_pre_hooks.pop(key)
    weight = value(hook).detach()
    delattr(module, name)
    for end in ends:
        delattr(module, name + end)
    module.register_parameter(name, Parameter(weight))
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Makes the weight an ordinary parameter again. ValueError when it is not normalised."""
    return undo(module, _WeightNorm, name, lambda hook: hook.compute(module), ("_g", "_v"), "weight_norm")
