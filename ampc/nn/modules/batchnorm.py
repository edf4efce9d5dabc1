"""Batch normalisation (Ioffe and Szegedy 2015)."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from ... import _C
from ..._C import Tensor
from ..._ops import cat
from ..._tensor import creation as make
from ...autograd.grad_mode import no_grad
from .. import functional as F
from ._function_module import OfDims
from .normalization import _Affine

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"]


class _NormBase(_Affine, OfDims):
    """Normalises each of ``num_features`` channels over the batch when training, with the running statistics otherwise. ``momentum``
    None averages all batches alike."""

    _version = 2  # of the state: 1 had no num_batches_tracked

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: Optional[float] = 0.1, affine: bool = True,
                 track_running_stats: bool = True, device: Any = None, dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self._add_affine(num_features, affine, affine and bias, device, dtype)
        stats = track_running_stats
        self.register_buffer("running_mean", make.zeros(num_features, device=device, dtype=dtype) if stats else None)
        self.register_buffer("running_var", make.ones(num_features, device=device, dtype=dtype) if stats else None)
        self.register_buffer("num_batches_tracked", make.zeros((), dtype=_C.int64, device=device) if stats else None)

    def reset_running_stats(self) -> None:
        """mean 0, variance 1."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Statistics and weights as new."""
        self.reset_running_stats()
        super().reset_parameters()

    def _complete(self, state_dict: Any, prefix: str, local_metadata: Any) -> None:
        version = local_metadata.get("version")
        if self.num_batches_tracked is not None and (version is None or version < 2):
            state_dict.setdefault(prefix + "num_batches_tracked", self.num_batches_tracked)

    def _check_input_dim(self, input: Tensor) -> None:
        """ValueError for another number of dimensions; subclasses, also in other packages, have their own."""
        if input.ndim not in self._dims:
            raise ValueError(f"{type(self).__name__}: expected {' or '.join(map(str, self._dims))} dimensions, got shape {list(input.shape)}")

    def extra_repr(self) -> str:
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
                f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}")


class _BatchNorm(_NormBase):
    """Over the batch; see ``_NormBase``."""

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if input.shape[1] != self.num_features:
            raise RuntimeError(f"{type(self).__name__}: expected {self.num_features} channels, got shape {list(input.shape)}")
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / self.num_batches_tracked.item()
        batch = self.training or self.running_mean is None
        keep = not self.training or self.track_running_stats
        return F.batch_norm(input, self.running_mean if keep else None, self.running_var if keep else None, self.weight, self.bias,
                            batch, momentum, self.eps)


class BatchNorm1d(_BatchNorm, dims=(2, 3)):
    """Of [N, C] or [N, C, L], over all but C; see ``_BatchNorm``."""


class BatchNorm2d(_BatchNorm, dims=(4,)):
    """Of [N, C, H, W], over all but C; see ``_BatchNorm``."""


class BatchNorm3d(_BatchNorm, dims=(5,)):
    """Of [N, C, D, H, W], over all but C; see ``_BatchNorm``."""


class SyncBatchNorm(_BatchNorm, dims=(2, 3, 4, 5)):
    """Batch norm of [N, C, ...] over the batches of all processes of a group together, which may have other sizes, while training. It computes in
    float32. In evaluation, and where there is one process, it is batch norm. ValueError below 2 dimensions."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: Optional[float] = 0.1, affine: bool = True,
                 track_running_stats: bool = True, process_group: Any = None, device: Any = None, dtype: Any = None, *,
                 bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def forward(self, input: Tensor) -> Tensor:
        from ...distributed.groups import is_one_of_several

        if not (self.training or self.running_mean is None) or not is_one_of_several(self.process_group):
            return super().forward(input)
        self._check_input_dim(input)
        if input.shape[1] != self.num_features:
            raise RuntimeError(f"SyncBatchNorm: expected {self.num_features} channels, got shape {list(input.shape)}")
        x = input if input.dtype == _C.float64 else input.float()
        mean, var, count = self._statistics(x)
        if self.training and self.track_running_stats:
            self._keep(mean.detach(), var.detach(), count)
        shape = [1, -1, *[1] * (x.ndim - 2)]
        y = (x - mean.view(shape)) * (var + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            y = y * self.weight.view(shape)
        return (y if self.bias is None else y + self.bias.view(shape)).to(input.dtype)

    def _statistics(self, x: Tensor) -> Tuple[Tensor, Tensor, float]:
        """Mean and variance of each channel over all processes, and of how many values. ValueError for fewer than two."""
        from ...distributed._differentiable import sum_over_ranks

        dims = [d for d in range(x.ndim) if d != 1]
        mine = make.full((1,), x.numel() // max(x.shape[1], 1), dtype=x.dtype, device=x.device)
        sums = sum_over_ranks(cat([x.sum(dims), mine]), self.process_group)
        count = sums[-1].item()
        if count < 2:
            raise ValueError(f"SyncBatchNorm: expected more than one value of each channel over all processes, got {count:g}")
        mean = sums[:-1] / count
        centred = x - mean.view([1, -1, *[1] * (x.ndim - 2)])
        return mean, sum_over_ranks((centred * centred).sum(dims), self.process_group) / count, count

    def _keep(self, mean: Tensor, var: Tensor, count: float) -> None:
        self.num_batches_tracked.add_(1)
        momentum = 1.0 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
        with no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
            self.running_var.lerp_((var * (count / (count - 1))).to(self.running_var.dtype), momentum)

    @classmethod
    def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Any:
        """``module`` with a SyncBatchNorm, which has the same parameters and buffers, for each batch norm in it; a batch norm itself is
        replaced by the result."""
        result = module
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            result = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group)
            for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
                setattr(result, name, getattr(module, name))
            result.training = module.training
        for name, child in module.named_children():
            new = cls.convert_sync_batchnorm(child, process_group)
            if new is not child:
                setattr(result, name, new)
        return result
