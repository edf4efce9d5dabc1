"""Layer, group, RMS and local response normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

from ... import _ops
from ..._C import Tensor
from ..._messages import checks as _checks
from ..._tensor import creation as make
from .. import functional as F
from .. import init
from ..parameter import Parameter
from ._function_module import FunctionModule
from .module import Module

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


class _Affine(Module):
    def _add_affine(self, shape: Any, weight: bool, bias: Optional[bool], device: Any, dtype: Any) -> None:
        """Learned weight and bias, where wanted; ``bias`` None: there is no such thing."""
        self.register_parameter("weight", Parameter(make.ones(shape, device=device, dtype=dtype)) if weight else None)
        if bias is not None:
            self.register_parameter("bias", Parameter(make.zeros(shape, device=device, dtype=dtype)) if bias else None)

    def reset_parameters(self) -> None:
        """weight 1, bias 0."""
        for name, fill in (("weight", init.ones_), ("bias", init.zeros_)):
            if self._parameters.get(name) is not None:
                fill(self._parameters[name])


class LayerNorm(_Affine):
    """Normalises over the last dimensions, with learned weight and bias (``elementwise_affine``, ``bias``)."""

    def __init__(self, normalized_shape: Union[int, Sequence[int]], eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.normalized_shape = tuple(_checks.integers(normalized_shape, "LayerNorm"))
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self._add_affine(self.normalized_shape, elementwise_affine, elementwise_affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"


class RMSNorm(_Affine):
    """Divides by the root of the mean square over the last dimensions, times a learned weight. ``eps`` None: the dtype's."""

    def __init__(self, normalized_shape: Union[int, Sequence[int]], eps: Optional[float] = None, elementwise_affine: bool = True,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.normalized_shape = tuple(_checks.integers(normalized_shape, "RMSNorm"))
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self._add_affine(self.normalized_shape, elementwise_affine, None, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Affine):
    """Normalises each sample's channels in ``num_groups`` groups; x [N, C, ...]. ValueError where the groups do not divide the channels."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None, dtype: Any = None,
                 *, bias: bool = True) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"GroupNorm: {num_channels} channels are not divisible by {num_groups} groups")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._add_affine(num_channels, affine, affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={self.bias is not None}"


class LocalResponseNorm(FunctionModule, function="local_response_norm"):
    """Divides by what ``size`` neighbouring channels hold (Krizhevsky et al. 2012)."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm, function=""):
    """Local response normalisation over channels at most (size - 1) // 2 away. As in torch's, the first channel counts for all those behind
    its neighbours, too; the gradient is that of the result."""

    k: float = 1

    def forward(self, input: Tensor) -> Tensor:
        squares, far, channels = input * input, (self.size - 1) // 2, input.shape[1]
        padded = F.pad(squares, [0, 0] * (input.ndim - 2) + [far, far])
        total = sum((padded.narrow(1, i, channels) for i in range(1, 2 * far + 1)), padded.narrow(1, 0, channels))
        if channels > far + 1:
            total = _ops.cat([total[:, :far + 1], total[:, far + 1:] + squares[:, :1]], 1)
        return input * (total * (self.alpha / self.size) + self.k) ** -self.beta
