"""Instance normalisation (Ulyanov et al. 2016)."""

from __future__ import annotations

from typing import Any, Optional

from ..._C import Tensor
from .. import functional as F
from .batchnorm import _NormBase

__all__ = ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]


class _InstanceNorm(_NormBase):
    """Normalises each channel of each sample by itself; with ``track_running_stats``, by running statistics when not training."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: Optional[float] = 0.1, affine: bool = False,
                 track_running_stats: bool = False, device: Any = None, dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if input.ndim == min(self._dims):  # one sample
            return self._normalised(input.unsqueeze(0)).squeeze(0)
        return self._normalised(input)

    def _normalised(self, x: Tensor) -> Tensor:
        if self.affine and x.shape[1] != self.num_features:
            raise ValueError(f"{type(self).__name__}: expected {self.num_features} channels, got shape {list(x.shape)}")
        return F.instance_norm(x, self.running_mean, self.running_var, self.weight, self.bias, self.training or not self.track_running_stats,
                               0.0 if self.momentum is None else self.momentum, self.eps)


class InstanceNorm1d(_InstanceNorm, dims=(2, 3)):
    """Of [N, C, L] or [C, L]; see ``_InstanceNorm``."""


class InstanceNorm2d(_InstanceNorm, dims=(3, 4)):
    """Of [N, C, H, W] or [C, H, W]; see ``_InstanceNorm``."""


class InstanceNorm3d(_InstanceNorm, dims=(4, 5)):
    """Of [N, C, D, H, W] or [C, D, H, W]; see ``_InstanceNorm``."""
