"""Pooling. See the functions of the same name in ``functional``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

from ... import _checks
from ..._C import Tensor
from .. import functional as F
from .module import Module

_Sizes = Union[int, Sequence[int]]


class _MaxPool(Module):
    """Largest of each window; with ``return_indices`` also where it was."""

    _function = ""

    def __init__(self, kernel_size: _Sizes, stride: Optional[_Sizes] = None, padding: _Sizes = 0, dilation: _Sizes = 1,
                 return_indices: bool = False, ceil_mode: bool = False) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation, self.return_indices, self.ceil_mode = padding, dilation, return_indices, ceil_mode

    def forward(self, input: Tensor) -> Any:
        return getattr(F, self._function)(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)

    def extra_repr(self) -> str:
        return (f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
                f"ceil_mode={self.ceil_mode}")


class _MaxUnpool(Module):
    """Puts values back where a pooling found them; zeros elsewhere."""

    _function = ""

    def __init__(self, kernel_size: _Sizes, stride: Optional[_Sizes] = None, padding: _Sizes = 0) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding

    def forward(self, input: Tensor, indices: Tensor, output_size: Optional[Sequence[int]] = None) -> Tensor:
        return getattr(F, self._function)(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPool(Module):
    """Mean of each window."""

    _function = ""

    def __init__(self, kernel_size: _Sizes, stride: Optional[_Sizes] = None, padding: _Sizes = 0, ceil_mode: bool = False,
                 count_include_pad: bool = True, divisor_override: Optional[int] = None) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self._function)(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
                                          self.divisor_override)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(Module):
    """Mean of each window of [N, C, L] or [C, L]."""

    def __init__(self, kernel_size: _Sizes, stride: Optional[_Sizes] = None, padding: _Sizes = 0, ceil_mode: bool = False,
                 count_include_pad: bool = True) -> None:
        super().__init__()
        sizes = (kernel_size, kernel_size if stride is None else stride, padding)
        self.kernel_size, self.stride, self.padding = (tuple(_checks.integers(size, "AvgPool1d")) for size in sizes)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _LPPool(Module):
    """The norm of order ``norm_type`` of each window."""

    _function = ""

    def __init__(self, norm_type: float, kernel_size: _Sizes, stride: Optional[_Sizes] = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self._function)(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, ceil_mode={self.ceil_mode}"


class _AdaptiveAvgPool(Module):
    """Means of windows that make ``output_size`` of any input; None keeps a dimension."""

    _function = ""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self._function)(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveMaxPool(Module):
    """Largest of windows that make ``output_size`` of any input; with ``return_indices`` also where they were."""

    _function = ""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input: Tensor) -> Any:
        return getattr(F, self._function)(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class MaxPool1d(_MaxPool):
    """Of x [N, C, L], or without N; see ``_MaxPool``."""

    _function = "max_pool1d"


class MaxPool2d(_MaxPool):
    """Of x [N, C, H, W], or without N; see ``_MaxPool``."""

    _function = "max_pool2d"


class MaxPool3d(_MaxPool):
    """Of x [N, C, D, H, W], or without N; see ``_MaxPool``."""

    _function = "max_pool3d"


class MaxUnpool1d(_MaxUnpool):
    """Of x [N, C, L], or without N; see ``_MaxUnpool``."""

    _function = "max_unpool1d"


class MaxUnpool2d(_MaxUnpool):
    """Of x [N, C, H, W], or without N; see ``_MaxUnpool``."""

    _function = "max_unpool2d"


class MaxUnpool3d(_MaxUnpool):
    """Of x [N, C, D, H, W], or without N; see ``_MaxUnpool``."""

    _function = "max_unpool3d"


class AvgPool2d(_AvgPool):
    """Of x [N, C, H, W], or without N; see ``_AvgPool``."""

    _function = "avg_pool2d"


class AvgPool3d(_AvgPool):
    """Of x [N, C, D, H, W], or without N; see ``_AvgPool``."""

    _function = "avg_pool3d"


class LPPool1d(_LPPool):
    """Of x [N, C, L], or without N; see ``_LPPool``."""

    _function = "lp_pool1d"


class LPPool2d(_LPPool):
    """Of x [N, C, H, W], or without N; see ``_LPPool``."""

    _function = "lp_pool2d"


class LPPool3d(_LPPool):
    """Of x [N, C, D, H, W], or without N; see ``_LPPool``."""

    _function = "lp_pool3d"


class _FractionalMaxPool(Module):
    """Largest of each window; where windows begin is drawn anew at each call, or given by ``_random_samples``."""

    _function = ""

    def __init__(self, kernel_size: _Sizes, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
                 _random_samples: Optional[Tensor] = None) -> None:
        super().__init__()
        self.kernel_size, self.return_indices, self.output_size, self.output_ratio = kernel_size, return_indices, output_size, output_ratio
        self.register_buffer("_random_samples", _random_samples)
        if (output_size is None) == (output_ratio is None):
            raise ValueError(f"{type(self).__name__}: give either `output_size` or `output_ratio`")
        ratios = output_ratio if isinstance(output_ratio, (list, tuple)) else () if output_ratio is None else (output_ratio,)
        if not all(0 < r < 1 for r in ratios):
            raise ValueError(f"{type(self).__name__}: `output_ratio` must be numbers between 0 and 1, got {output_ratio}")

    def forward(self, input: Tensor) -> Any:
        return getattr(F, self._function)(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPool):
    """Of x [N, C, H, W], or without N; see ``_FractionalMaxPool``."""

    _function = "fractional_max_pool2d"


class FractionalMaxPool3d(_FractionalMaxPool):
    """Of x [N, C, D, H, W], or without N; see ``_FractionalMaxPool``."""

    _function = "fractional_max_pool3d"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Of x [N, C, L], or without N; see ``_AdaptiveAvgPool``."""

    _function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Of x [N, C, H, W], or without N; see ``_AdaptiveAvgPool``."""

    _function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Of x [N, C, D, H, W], or without N; see ``_AdaptiveAvgPool``."""

    _function = "adaptive_avg_pool3d"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Of x [N, C, L], or without N; see ``_AdaptiveMaxPool``."""

    _function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Of x [N, C, H, W], or without N; see ``_AdaptiveMaxPool``."""

    _function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Of x [N, C, D, H, W], or without N; see ``_AdaptiveMaxPool``."""

    _function = "adaptive_max_pool3d"
