"""Spectral normalisation as a hook before forward, with the names of older checkpoints (``weight_orig``, ``weight_u``,
``weight_v``); `parametrizations.spectral_norm` is its successor."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ..._C import Tensor
from ..._tensor import creation as make
from ...autograd import no_grad
from .. import functional as F
from ..modules.module import Module
from .parametrizations import rows_of
from .weight_norm import _hook_of, restore, undo


class SpectralNorm:
    """The hook: ``module.<name>`` becomes ``<name>_orig`` divided by its largest singular value, which the buffers ``<name>_u`` and
    ``<name>_v`` follow. ValueError for fewer than one iteration."""

    _version = 1  # of what state_dict holds

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        if n_power_iterations <= 0:
            raise ValueError(f"spectral_norm: `n_power_iterations` must be at least 1, got {n_power_iterations}")
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """The matrix whose rows lie along ``dim``."""
        return (weight.movedim(self.dim, 0) if self.dim else weight).reshape(weight.shape[self.dim], -1)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """The normalised tensor."""
        weight, u, v = (getattr(module, self.name + end) for end in ("_orig", "_u", "_v"))
        matrix = self.reshape_weight_to_matrix(weight)
        with no_grad():
            for _ in range(self.n_power_iterations if do_power_iteration else 0):
                v.copy_(F.normalize(matrix.detach().t().mv(u), dim=0, eps=self.eps))
                u.copy_(F.normalize(matrix.detach().mv(v), dim=0, eps=self.eps))
            if do_power_iteration:
                u, v = u.clone(), v.clone()  # the next iteration overwrites what backward needs
        return weight / u.dot(matrix.mv(v))

    @staticmethod
    def apply(module: Module, name: str, n_power_iterations: int, dim: int, eps: float) -> SpectralNorm:
        """Makes the parameter and the buffers, and registers the hooks. RuntimeError when the tensor is normalised already,
        KeyError for no parameter of that name."""
        if _hook_of(module, SpectralNorm, name) is not None:
            raise RuntimeError(f"spectral_norm: {name!r} of {type(module).__name__} is normalised already")
        hook = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"spectral_norm: {name!r} of {type(module).__name__} is None")
        matrix = hook.reshape_weight_to_matrix(weight.detach())
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.detach())
        for end, size in zip("uv", matrix.shape):
            start = make.randn(size, dtype=weight.dtype, device=weight.device)
            module.register_buffer(f"{name}_{end}", F.normalize(start, dim=0, eps=eps))
        module.register_forward_pre_hook(hook)
        module.register_state_dict_hook(SpectralNormStateDictHook(hook))
        module.register_load_state_dict_pre_hook(SpectralNormLoadStateDictPreHook(hook))
        return hook

    def remove(self, module: Module) -> None:
        """Makes the tensor a parameter again; the hook stays."""
        restore(module, self.name, self.compute_weight(module, False), ("_orig", "_u", "_v"))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))


class SpectralNormStateDictHook:
    """Notes the version of what state_dict holds."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Module, state: Dict[str, Any], prefix: str, about: Dict[str, Any]) -> None:
        about.setdefault("spectral_norm", {})[self.fn.name + ".version"] = self.fn._version


class SpectralNormLoadStateDictPreHook:
    """Loads what was saved before version 1: ``<name>`` itself, and no ``<name>_v``, which is solved for."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Module, state: Dict[str, Any], prefix: str, about: Dict[str, Any], *rest: Any) -> None:
        key, fn = prefix + self.fn.name, self.fn
        there = all(key + end in state for end in ("_orig", "_u", ""))
        if about.get("spectral_norm", {}).get(fn.name + ".version", 0) >= 1 or not there:
            return
        original, u = state[key + "_orig"], state[key + "_u"]
        with no_grad():
            matrix = fn.reshape_weight_to_matrix(original)
            v = ((matrix.t() @ matrix).pinverse() @ (matrix.t() @ u.unsqueeze(1))).squeeze(1)
            state[key + "_v"] = v * ((original / state.pop(key)).mean() / u.dot(matrix.mv(v)))


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: Optional[int] = None) -> Module:
    """Divides the weight, seen as a matrix whose rows lie along ``dim`` (0; of transposed convolutions 1), by its largest
    singular value, which ``n_power_iterations`` before each forward in training follow. RuntimeError when it is normalised
    already, ValueError for fewer than one iteration."""
    SpectralNorm.apply(module, name, n_power_iterations, rows_of(module) if dim is None else dim, eps)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Makes the weight an ordinary parameter again. ValueError when it is not normalised."""
    return undo(module, SpectralNorm, name, "spectral_norm")
