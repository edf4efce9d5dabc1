"""Pooling. See the functions of the same name in ``functional``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Optional, Union

from ..._C import Tensor
from ..._messages import checks as _checks
from .. import functional as F
from ._function_module import FunctionModule
from .utils import _ntuple

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d",
    "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d",
    "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]

_Sizes = Union[int, Sequence[int]]


class _Pool(FunctionModule, function=""):
    """Base: windows of ``kernel_size``, as far apart as they are wide if ``stride`` is None."""

    kernel_size: _Sizes
    stride: Optional[_Sizes] = None
    padding: _Sizes = 0

    def __post_init__(self) -> None:
        self.stride = self.kernel_size if self.stride is None else self.stride


class _MaxPoolNd(_Pool, function=""):
    """Largest of each window; with ``return_indices`` also where it was."""

    dilation: _Sizes = 1
    return_indices: bool = False
    ceil_mode: bool = False
    _shown: ClassVar[Any] = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def forward(self, input: Tensor) -> Any:
        return getattr(F, self._function)(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)


class _MaxUnpoolNd(_Pool, function=""):
    """Puts values back where a pooling found them; zeros elsewhere."""

    def __post_init__(self) -> None:
        super().__post_init__()
        n = int(type(self).__name__[-2])
        for name in ("kernel_size", "stride", "padding"):
            setattr(self, name, _ntuple(n)(getattr(self, name)))

    def forward(self, input: Tensor, indices: Tensor, output_size: Optional[Sequence[int]] = None) -> Tensor:  # type: ignore[override]
        return getattr(F, self._function)(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class _AvgPoolNd(_Pool, function=""):
    """Mean of each window."""

    ceil_mode: bool = False
    count_include_pad: bool = True
    _shown: ClassVar[Any] = ("kernel_size", "stride", "padding")


class AvgPool1d(_AvgPoolNd, function="avg_pool1d"):
    """Of x [N, C, L], or without N; see ``_AvgPoolNd``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("kernel_size", "stride", "padding"):
            setattr(self, name, tuple(_checks.integers(getattr(self, name), "AvgPool1d")))


class _DividedAvgPoolNd(_AvgPoolNd, function=""):
    divisor_override: Optional[int] = None


class _LPPoolNd(FunctionModule, function=""):
    """The norm of order ``norm_type`` of each window."""

    norm_type: float
    kernel_size: _Sizes
    stride: Optional[_Sizes] = None
    ceil_mode: bool = False

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self._function)(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class _AdaptiveAvgPoolNd(FunctionModule, function=""):
    """Means of windows that make ``output_size`` of any input; None keeps a dimension."""

    output_size: Any


class _AdaptiveMaxPoolNd(FunctionModule, function=""):
    """Largest of windows that make ``output_size`` of any input; with ``return_indices`` also where they were."""

    output_size: Any
    return_indices: bool = False
    _shown: ClassVar[Any] = ("output_size",)

    def forward(self, input: Tensor) -> Any:
        return self._call(input)


class _FractionalMaxPool(FunctionModule, function=""):
    """Largest of each window; where windows begin is drawn anew at each call, or given by ``_random_samples``."""

    kernel_size: _Sizes
    output_size: Any = None
    output_ratio: Any = None
    return_indices: bool = False
    _random_samples: Optional[Tensor] = None
    _shown: ClassVar[Any] = ()

    def __post_init__(self) -> None:
        self.register_buffer("_random_samples", self.__dict__.pop("_random_samples"))
        if (self.output_size is None) == (self.output_ratio is None):
            raise ValueError(f"{type(self).__name__}: give either `output_size` or `output_ratio`")
        ratios = self.output_ratio if isinstance(self.output_ratio, (list, tuple)) else () if self.output_ratio is None else (self.output_ratio,)
        if not all(0 < r < 1 for r in ratios):
            raise ValueError(f"{type(self).__name__}: `output_ratio` must be numbers between 0 and 1, got {self.output_ratio}")

    def forward(self, input: Tensor) -> Any:
        return getattr(F, self._function)(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples)


class MaxPool1d(_MaxPoolNd, function="max_pool1d"):
    """Of x [N, C, L], or without N; see ``_MaxPoolNd``."""


class MaxPool2d(_MaxPoolNd, function="max_pool2d"):
    """Of x [N, C, H, W], or without N; see ``_MaxPoolNd``."""


class MaxPool3d(_MaxPoolNd, function="max_pool3d"):
    """Of x [N, C, D, H, W], or without N; see ``_MaxPoolNd``."""


class MaxUnpool1d(_MaxUnpoolNd, function="max_unpool1d"):
    """Of x [N, C, L], or without N; see ``_MaxUnpoolNd``."""


class MaxUnpool2d(_MaxUnpoolNd, function="max_unpool2d"):
    """Of x [N, C, H, W], or without N; see ``_MaxUnpoolNd``."""


class MaxUnpool3d(_MaxUnpoolNd, function="max_unpool3d"):
    """Of x [N, C, D, H, W], or without N; see ``_MaxUnpoolNd``."""


class AvgPool2d(_DividedAvgPoolNd, function="avg_pool2d"):
    """Of x [N, C, H, W], or without N; see ``_AvgPoolNd``."""


class AvgPool3d(_DividedAvgPoolNd, function="avg_pool3d"):
    """Of x [N, C, D, H, W], or without N; see ``_AvgPoolNd``."""


class LPPool1d(_LPPoolNd, function="lp_pool1d"):
    """Of x [N, C, L], or without N; see ``_LPPoolNd``."""


class LPPool2d(_LPPoolNd, function="lp_pool2d"):
    """Of x [N, C, H, W], or without N; see ``_LPPoolNd``."""


class LPPool3d(_LPPoolNd, function="lp_pool3d"):
    """Of x [N, C, D, H, W], or without N; see ``_LPPoolNd``."""


class FractionalMaxPool2d(_FractionalMaxPool, function="fractional_max_pool2d"):
    """Of x [N, C, H, W], or without N; see ``_FractionalMaxPool``."""


class FractionalMaxPool3d(_FractionalMaxPool, function="fractional_max_pool3d"):
    """Of x [N, C, D, H, W], or without N; see ``_FractionalMaxPool``."""


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd, function="adaptive_avg_pool1d"):
    """Of x [N, C, L], or without N; see ``_AdaptiveAvgPoolNd``."""


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd, function="adaptive_avg_pool2d"):
    """Of x [N, C, H, W], or without N; see ``_AdaptiveAvgPoolNd``."""


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd, function="adaptive_avg_pool3d"):
    """Of x [N, C, D, H, W], or without N; see ``_AdaptiveAvgPoolNd``."""


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd, function="adaptive_max_pool1d"):
    """Of x [N, C, L], or without N; see ``_AdaptiveMaxPoolNd``."""


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd, function="adaptive_max_pool2d"):
    """Of x [N, C, H, W], or without N; see ``_AdaptiveMaxPoolNd``."""


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd, function="adaptive_max_pool3d"):
    """Of x [N, C, D, H, W], or without N; see ``_AdaptiveMaxPoolNd``."""
