"""Initial values of parameters, written in place and not recorded."""

from __future__ import annotations

import math
from typing import Any, Optional, Tuple

from .. import _C
from .. import _creation as make
from .._C import Tensor
from ..autograd.grad_mode import no_grad


def calculate_gain(nonlinearity: str, param: Optional[float] = None) -> float:
    """The factor that keeps variance through a nonlinearity. ValueError for one that is not known."""
    if nonlinearity in ("linear", "sigmoid", "conv1d", "conv2d", "conv3d"):
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"calculate_gain: unknown nonlinearity '{nonlinearity}'")


def _fans(tensor: Tensor) -> Tuple[int, int]:
    """(inputs, outputs) of one unit of a weight [out, in, ...]."""
    if tensor.ndim < 2:
        raise ValueError(f"fan in and fan out need at least 2 dimensions, got shape {list(tensor.shape)}")
    field = tensor[0][0].numel() if tensor.numel() else 0
    return tensor.shape[1] * field, tensor.shape[0] * field


_calculate_fan_in_and_fan_out = _fans


def _fan(tensor: Tensor, mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"`mode` must be 'fan_in' or 'fan_out', got '{mode}'")
    return _fans(tensor)[mode == "fan_out"]


@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform on [a, b)."""
    return tensor.uniform_(a, b, generator=generator)


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal."""
    return tensor.normal_(mean, std, generator=generator)


@no_grad()
def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None) -> Tensor:
    """Normal, drawn again where it falls outside [a, b]."""
    tensor.normal_(mean, std, generator=generator)
    for _ in range(100):
        outside = (tensor < a) | (tensor > b)
        if not outside.any():
            return tensor
        tensor.copy_(_C._functions["where"](outside, make.randn(tensor.shape, dtype=tensor.dtype) * std + mean, tensor))
    return tensor.clamp_(a, b)


@no_grad()
def constant_(tensor: Tensor, val: float) -> Tensor:
    """One value everywhere."""
    return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """1"""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """0"""
    return constant_(tensor, 0.0)


@no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix."""
    if tensor.ndim != 2:
        raise ValueError(f"eye_: needs 2 dimensions, got {tensor.ndim}")
    return tensor.copy_(make.eye(tensor.shape[0], tensor.shape[1], dtype=tensor.dtype))


@no_grad()
def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Glorot and Bengio 2010, uniform."""
    fan_in, fan_out = _fans(tensor)
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return tensor.uniform_(-bound, bound, generator=generator)


@no_grad()
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Glorot and Bengio 2010, normal."""
    fan_in, fan_out = _fans(tensor)
    return tensor.normal_(0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)), generator=generator)


@no_grad()
def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """He et al. 2015, uniform."""
    if tensor.numel() == 0:
        return tensor
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / _fan(tensor, mode))
    return tensor.uniform_(-bound, bound, generator=generator)


@no_grad()
def kaiming_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """He et al. 2015, normal."""
    if tensor.numel() == 0:
        return tensor
    return tensor.normal_(0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), generator=generator)
