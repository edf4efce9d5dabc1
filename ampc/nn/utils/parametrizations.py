"""Weight normalisation (Salimans and Kingma 2016) and spectral normalisation (Miyato et al. 2018)."""

from __future__ import annotations

from typing import Optional, Tuple

from ... import _creation as make
from ..._C import Tensor
from ...autograd import no_grad
from .. import functional as F
from ..modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module
from . import parametrize

__all__ = ["spectral_norm", "weight_norm"]


def norm_except_dim(v: Tensor, pow: float = 2, dim: int = 0) -> Tensor:
    """The norm of every slice along ``dim`` (of all with -1), shaped to multiply ``v``."""
    if dim == -1:
        return v.norm(pow)
    return v.norm(pow, [d for d in range(v.dim()) if d != dim % v.dim()], keepdim=True) if v.dim() > 1 else v.abs()


class _WeightNorm(Module):
    def __init__(self, dim: Optional[int]) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        return v * (g / norm_except_dim(v, 2, self.dim))

    def right_inverse(self, weight: Tensor) -> Tuple[Tensor, Tensor]:
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: Optional[int] = 0) -> Module:
    """Trains the norm of each slice along ``dim`` separately from its direction; None means the norm of the whole tensor.

    The weight is ``original0 * original1 / |original1|``. ValueError if the weight is normalised already."""
    if parametrize.is_parametrized(module, name) and any(isinstance(p, _WeightNorm) for p in module.parametrizations[name]):
        raise ValueError(f"weight_norm: {name!r} of {type(module).__name__} is normalised already")
    return parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


def rows_of(module: Module) -> int:
    """The dimension along which a module's weight has its results."""
    return 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0


class _SpectralNorm(Module):
    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        if not isinstance(n_power_iterations, int) or n_power_iterations <= 0:
            raise ValueError(f"spectral_norm: `n_power_iterations` must be at least 1, got {n_power_iterations!r}")
        if not -weight.dim() <= dim < max(weight.dim(), 1):
            raise IndexError(f"spectral_norm: `dim` {dim} is outside a weight of {weight.dim()} dimensions")
        self.dim, self.eps, self.n_power_iterations = dim % max(weight.dim(), 1), eps, n_power_iterations
        if weight.dim() > 1:
            matrix = self._matrix(weight.detach())
            self.register_buffer("_u", F.normalize(make.randn(matrix.shape[0], dtype=weight.dtype, device=weight.device), dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(make.randn(matrix.shape[1], dtype=weight.dtype, device=weight.device), dim=0, eps=eps))
            self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.transpose(0, self.dim).flatten(1) if self.dim else weight.flatten(1)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        with no_grad():
            for _ in range(times):
                self._u.copy_(F.normalize(matrix.detach().mv(self._v), dim=0, eps=self.eps))
                self._v.copy_(F.normalize(matrix.detach().t().mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.dim() == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # later iterations overwrite what backward needs
        return weight / u.dot(matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: Optional[int] = None) -> Module:
    """Divides the weight, as a matrix with rows along ``dim``, by its largest singular value.

    A power iteration estimates that value. It takes ``n_power_iterations`` each time the weight is read in training. ``dim`` is 0 by
    default, and 1 for transposed convolutions. ValueError and IndexError for bad arguments."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"spectral_norm: {type(module).__name__} has no parameter or buffer named {name!r}")
    dim = rows_of(module) if dim is None else dim
    return parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))

