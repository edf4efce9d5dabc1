"""Weight normalisation (Salimans and Kingma 2016), spectral normalisation (Miyato et al. 2018), and orthogonal weights (Lezcano-Casado 2019)."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from ... import _ops, linalg
from ..._C import Tensor
from ..._tensor import creation as make
from ..._tensor.finfo import finfo
from ...autograd import no_grad
from .. import functional as F
from ..modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module
from . import parametrize

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def norm_except_dim(v: Tensor, pow: float = 2, dim: int = 0) -> Tensor:
    """The norm of every slice along ``dim`` (of all with -1), shaped to multiply ``v``. IndexError for a dimension that ``v`` has not."""
    if dim == -1:
        return v.norm(pow)
    if not -v.dim() <= dim < v.dim():
        raise IndexError(f"norm_except_dim: dim {dim} is not in [{-v.dim()}, {v.dim() - 1}]")
    return v.norm(pow, [d for d in range(v.dim()) if d != dim % v.dim()], keepdim=True) if v.dim() > 1 else v.abs()


class _WeightNorm(Module):
    def __init__(self, dim: Optional[int]) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        return v * (g / norm_except_dim(v, 2, self.dim))

    def right_inverse(self, weight: Tensor) -> Tuple[Tensor, Tensor]:
        return norm_except_dim(weight, 2, self.dim), weight


class _OlderNames:
    """Before loading: the names of utils.weight_norm become those of the parametrization."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: Module, state: Dict[str, Any], prefix: str, *rest: Any) -> None:
        old = [f"{prefix}{self.name}_{end}" for end in "gv"]
        if all(key in state for key in old):
            for i, key in enumerate(old):
                state[f"{prefix}parametrizations.{self.name}.original{i}"] = state.pop(key)


def weight_norm(module: Module, name: str = "weight", dim: Optional[int] = 0) -> Module:
    """Trains the norm of each slice along ``dim`` separately from its direction; None means the norm of the whole tensor.

    The weight is ``original0 * original1 / |original1|``. load_state_dict takes the older names, too. ValueError if the weight is
    normalised already."""
    if parametrize.is_parametrized(module, name) and any(isinstance(p, _WeightNorm) for p in module.parametrizations[name]):
        raise ValueError(f"weight_norm: {name!r} of {type(module).__name__} is normalised already")
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module.register_load_state_dict_pre_hook(_OlderNames(name))
    return module


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


class _Orthogonal(Module):
    """A matrix, of wide ones the transpose, with orthonormal columns: made by ``map`` of the lower triangle of what is trained."""

    def __init__(self, weight: Tensor, map: str, use_trivialization: bool) -> None:
        super().__init__()
        self.shape, self.map = weight.shape, map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.shape[-2] < x.shape[-1]
        q = self._columns(x.mT if wide else x)
        if "base" in self._buffers:
            q = self.base @ q
        return q.mT if wide else q

    def _columns(self, x: Tensor) -> Tensor:
        n, k = x.shape[-2:]
        if self.map == "householder":
            below = x.tril(-1)
            q = linalg.householder_product(below, 2.0 / (1.0 + (below * below).sum(-2)))
            return q * x.detach().diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
        lower = _ops.cat([x.tril(), x.new_zeros((*x.shape[:-1], n - k))], -1)
        skew = lower - lower.mT
        if self.map == "matrix_exp":
            return _ops.matrix_exp(skew)[..., :k]
        one = make.eye(n, dtype=x.dtype, device=x.device)  # Cayley's map
        return linalg.solve(one - skew / 2, one + skew / 2)[..., :k]

    def right_inverse(self, value: Tensor) -> Tensor:
        if value.shape != self.shape:
            raise ValueError(f"orthogonal: expected shape {list(self.shape)}, got {list(value.shape)}")
        wide = value.shape[-2] < value.shape[-1]
        q = value.mT if wide else value
        if "base" in self._buffers:
            n, k = q.shape[-2:]
            more = make.randn(*q.shape[:-1], n - k, dtype=q.dtype, device=q.device)
            self.base = q.clone() if n == k and _is_orthogonal(q) else _made_orthogonal(_ops.cat([q, more], -1))
            first = make.zeros_like(value)  # of which both maps make the first columns of one, the signs being minus
            first.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
            return first
        if self.map != "householder":
            raise NotImplementedError(f"orthogonal: without use_trivialization, the map {self.map!r} cannot be assigned to")
        a, tau = _ops.geqrf(q)
        signs = a.diagonal(dim1=-2, dim2=-1)
        signs.copy_(_ops.where(tau == 0, -signs.sign(), signs.sign()))
        return a.mT if wide else a


def _is_orthogonal(q: Tensor) -> bool:
    one = make.eye(q.shape[-1], dtype=q.dtype, device=q.device)
    return bool(((q.mT @ q - one).abs() <= 10 * q.shape[-2] * finfo(q.dtype).eps).all())


def _made_orthogonal(x: Tensor) -> Tensor:
    """The factor Q of x = Q R whose R has a diagonal of 0 or more."""
    q, r = linalg.qr(x)
    signs = r.diagonal(dim1=-2, dim2=-1).sign()
    return q * _ops.where(signs == 0, 1.0, signs).unsqueeze(-2)


def orthogonal(module: Module, name: str = "weight", orthogonal_map: Optional[str] = None, *, use_trivialization: bool = True) -> Module:
    """Keeps a matrix, or a batch of them, orthogonal while it is trained: its columns, or the rows of a wide one, are orthonormal.

    Args:
        orthogonal_map: 'matrix_exp' (default of square ones), 'cayley' or 'householder' (default of others), by which it is made.
        use_trivialization: what is trained is a step from the first value, which is kept as a buffer ``base``. It costs a product, and
            any value may be assigned.

    ValueError where there is no such matrix, or no such map."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"orthogonal: {type(module).__name__} has no parameter or buffer named {name!r}")
    if weight.ndim < 2:
        raise ValueError(f"orthogonal: expected a matrix or a batch of matrices, got {weight.ndim} dimensions")
    chosen = orthogonal_map or ("matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder")
    if chosen not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(f"orthogonal: `orthogonal_map` must be matrix_exp, cayley or householder, got {chosen!r}")
    return parametrize.register_parametrization(module, name, _Orthogonal(weight, chosen, use_trivialization), unsafe=True)
