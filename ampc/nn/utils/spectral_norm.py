"""Spectral normalisation as a hook before forward, with the names of older checkpoints (``weight_orig``, ``weight_u``,
``weight_v``); `parametrizations.spectral_norm` is its successor."""

from __future__ import annotations

from typing import Any, Optional

from ... import _creation as make
from ..._C import Tensor
from ...autograd import no_grad
from .. import functional as F
from ..modules.module import Module
from .parametrizations import rows_of
from .weight_norm import _hook_of, undo


class _SpectralNorm:
    def __init__(self, name: str, iterations: int, dim: int, eps: float) -> None:
        self.name, self.iterations, self.dim, self.eps = name, iterations, dim, eps

    def matrix(self, weight: Tensor) -> Tensor:
        return (weight.transpose(0, self.dim) if self.dim else weight).flatten(1)

    def compute(self, module: Module, iterate: bool) -> Tensor:
        weight, u, v = (getattr(module, self.name + end) for end in ("_orig", "_u", "_v"))
        matrix = self.matrix(weight)
        with no_grad():
            for _ in range(self.iterations if iterate else 0):
                v.copy_(F.normalize(matrix.detach().t().mv(u), dim=0, eps=self.eps))
                u.copy_(F.normalize(matrix.detach().mv(v), dim=0, eps=self.eps))
            if iterate:
                u, v = u.clone(), v.clone()  # the next iteration overwrites what backward needs
        return weight / u.dot(matrix.mv(v))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute(module, module.training))


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: Optional[int] = None) -> Module:
    """Divides the weight, seen as a matrix whose rows lie along ``dim`` (0; of transposed convolutions 1), by its largest
    singular value, which ``n_power_iterations`` before each forward in training follow. RuntimeError when it is normalised
    already, ValueError for fewer than one iteration."""
    if _hook_of(module, _SpectralNorm, name) is not None:
        raise RuntimeError(f"spectral_norm: {name!r} of {type(module).__name__} is normalised already")
    if n_power_iterations <= 0:
        raise ValueError(f"spectral_norm: `n_power_iterations` must be at least 1, got {n_power_iterations}")
    hook = _SpectralNorm(name, n_power_iterations, rows_of(module) if dim is None else dim, eps)
    weight = getattr(module, name)
    matrix = hook.matrix(weight.detach())
    delattr(module, name)
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.detach())
    for end, size in zip("uv", matrix.shape):
        start = make.randn(size, dtype=weight.dtype, device=weight.device)
        module.register_buffer(f"{name}_{end}", F.normalize(start, dim=0, eps=eps))
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Makes the weight an ordinary parameter again. ValueError when it is not normalised."""
    return undo(module, _SpectralNorm, name, lambda hook: hook.compute(module, False), ("_orig", "_u", "_v"), "spectral_norm")
