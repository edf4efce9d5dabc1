"""Weight normalisation as a hook before forward, with the parameter names of older checkpoints (``weight_g``, ``weight_v``);
`parametrizations.weight_norm` is its successor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from ..._C import Tensor
from ..._messages.callers import warn
from ..modules.module import Module
from ..parameter import Parameter
from .parametrizations import norm_except_dim


def _hook_of(module: Module, kind: Any, name: str) -> Optional[int]:
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, kind) and hook.name == name:
            return key
    return None


class WeightNorm:
    """The hook: ``module.<name>`` becomes ``<name>_v`` with the sizes ``<name>_g``."""

    def __init__(self, name: str, dim: Optional[int]) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """The normalised tensor."""
        v = getattr(module, self.name + "_v")
        return v * (getattr(module, self.name + "_g") / norm_except_dim(v, 2, self.dim))

    @staticmethod
    def apply(module: Module, name: str, dim: Optional[int]) -> WeightNorm:
        """Makes the two parameters, and registers the hook. RuntimeError when the tensor is normalised already."""
        if _hook_of(module, WeightNorm, name) is not None:
            raise RuntimeError(f"weight_norm: {name!r} of {type(module).__name__} is normalised already")
        hook = WeightNorm(name, dim)
        weight = getattr(module, name)
        size = norm_except_dim(weight.detach(), 2, hook.dim)
        delattr(module, name)
        module.register_parameter(name + "_g", Parameter(size))
        module.register_parameter(name + "_v", Parameter(weight.detach()))
        setattr(module, name, hook.compute_weight(module))
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module: Module) -> None:
        """Makes the tensor a parameter again; the hook stays."""
        restore(module, self.name, self.compute_weight(module), ("_g", "_v"))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def restore(module: Module, name: str, value: Tensor, ends: Sequence[str]) -> None:
    """Makes the tensor an ordinary parameter of that value, in place of what it was computed from."""
    for made in ("", *ends):
        delattr(module, name + made)
    module.register_parameter(name, Parameter(value.detach()))


def weight_norm(module: Module, name: str = "weight", dim: Optional[int] = 0) -> Module:
    """Trains the size of each slice along ``dim`` (of all with None), ``<name>_g``, apart from its direction, ``<name>_v``.
    RuntimeError when the tensor is normalised already. A FutureWarning names the successor."""
    warn("nn.utils.weight_norm is the older form of nn.utils.parametrizations.weight_norm, which takes the same arguments", FutureWarning)
    WeightNorm.apply(module, name, dim)
    return module


def undo(module: Module, kind: Any, name: str, what: str) -> Module:
    """Takes off the hook of this kind on a tensor, which becomes an ordinary parameter. ValueError without one."""
    key = _hook_of(module, kind, name)
    if key is None:
        raise ValueError(f"{what}: {name!r} of {type(module).__name__} is not normalised")
    module._forward_pre_hooks[key].remove(module)
    del module._forward_pre_hooks[key]
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Makes the weight an ordinary parameter again. ValueError when it is not normalised."""
    return undo(module, WeightNorm, name, "weight_norm")
