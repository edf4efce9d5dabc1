"""Initial values of parameters, written in place and not recorded."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Tuple

from .. import _C, _ops
from .._C import Tensor
from .._messages import checks as _checks
from .._messages.callers import warn
from .._names.missing import absent_from
from .._tensor import creation as make
from ..autograd.grad_mode import no_grad

_LINEAR = ("linear", "sigmoid", *(name + dims for name in ("conv", "conv_transpose") for dims in ("1d", "2d", "3d")))


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """The factor that keeps variance through a nonlinearity. ValueError for one that is not known."""
    if nonlinearity in _LINEAR:
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        if param is not None and (isinstance(param, bool) or not isinstance(param, (int, float))):
            raise ValueError(f"calculate_gain: the slope must be a number, got {param!r:.80}")
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


_calculate_correct_fan = _fan


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
    """Normal, drawn again where it falls outside [a, b]; where most would, uniform draws are taken as often as their density says."""
    if not (a <= b and std > 0 and math.isfinite(mean)):
        raise RuntimeError(f"trunc_normal_: `a` must not be above `b` and `std` above 0, got {a}, {b} and {std} around {mean}")
    if tensor.is_meta:
        return tensor
    below = [0.5 + 0.5 * math.erf((end - mean) / (std * math.sqrt(2))) for end in (a, b)]
    peak = max(a, min(mean, b))
    pending = make.ones(tensor.shape, dtype=_C.bool, device=tensor.device)
    while pending.any():
        if below[1] - below[0] > 0.3:
            drawn = make.empty_like(tensor).normal_(mean, std, generator=generator)
            taken = pending & (drawn >= a) & (drawn <= b)
        else:
            drawn = make.empty_like(tensor).uniform_(a, b, generator=generator)
            density = ((((peak - mean) / std) ** 2 - ((drawn.double() - mean) / std) ** 2) / 2).exp()
            taken = pending & (make.empty_like(density).uniform_(generator=generator) <= density)
        tensor.copy_(_ops.where(taken, drawn, tensor))
        pending &= ~taken
    return tensor


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
def kaiming_uniform_(tensor: Tensor, a: Any = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """He et al. 2015, uniform."""
    if tensor.numel() == 0:
        warn(f"kaiming_uniform_: a tensor of shape {list(tensor.shape)} has no elements to initialize")
        return tensor
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / _fan(tensor, mode))
    return tensor.uniform_(-bound, bound, generator=generator)


@no_grad()
def kaiming_normal_(tensor: Tensor, a: Any = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """He et al. 2015, normal."""
    if tensor.numel() == 0:
        warn(f"kaiming_normal_: a tensor of shape {list(tensor.shape)} has no elements to initialize")
        return tensor
    return tensor.normal_(0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), generator=generator)


@no_grad()
def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """A random matrix [rows, everything else] whose rows, or columns where they are fewer, are orthonormal, times ``gain`` (Saxe et
    al. 2013). ValueError below 2 dimensions."""
    from .. import linalg

    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_: needs at least 2 dimensions, got shape {list(tensor.shape)}")
    if tensor.numel() == 0:
        return tensor
    rows, cols = tensor.shape[0], tensor.numel() // tensor.shape[0]
    wide = tensor.dtype if tensor.dtype == _C.float64 else _C.float32
    flat = make.empty(max(rows, cols), min(rows, cols), dtype=wide, device=tensor.device).normal_(generator=generator)
    q, r = linalg.qr(flat)
    q = q * r.diagonal().sign()  # uniform over all orthogonal matrices
    return tensor.copy_((q.t() if rows < cols else q).reshape(tensor.shape) * gain)


@no_grad()
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """The weight [out, in, ...] of a convolution that passes its inputs on, in each of ``groups`` as many as there are outputs.
    ValueError for other than 3 to 5 dimensions, or outputs that the groups do not divide."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError(f"dirac_: needs the weight of a convolution, of 3 to 5 dimensions, got shape {list(tensor.shape)}")
    if tensor.shape[0] % groups:
        raise ValueError(f"dirac_: {tensor.shape[0]} outputs do not divide into {groups} groups")
    tensor.zero_()
    each = tensor.shape[0] // groups
    middle = tuple(n // 2 for n in tensor.shape[2:])
    for g in range(groups):
        for i in range(min(each, tensor.shape[1])):
            index = (g * each + i, i, *middle)
            tensor[index] = 1
    return tensor


@no_grad()
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """A matrix, normal, with a share ``sparsity`` of each column zero (Martens 2010). ValueError for other than 2 dimensions."""
    if tensor.ndim != 2:
        raise ValueError(f"sparse_: needs 2 dimensions, got shape {list(tensor.shape)}")
    zeros = math.ceil(sparsity * tensor.shape[0])
    tensor.normal_(0, std, generator=generator)
    for col in range(tensor.shape[1]):
        tensor[make.randperm(tensor.shape[0])[:zeros], col] = 0
    return tensor


def _older(f: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Tensor:
        warn(f"nn.init.{f.__name__[:-1]} is the older name of nn.init.{f.__name__}", FutureWarning)
        return f(*args, **kwargs)

    call.__name__, call.__doc__ = f.__name__[:-1], f.__doc__
    return call


uniform, normal, constant, eye, dirac, sparse = (_older(f) for f in (uniform_, normal_, constant_, eye_, dirac_, sparse_))
xavier_uniform, xavier_normal, orthogonal = (_older(f) for f in (xavier_uniform_, xavier_normal_, orthogonal_))
kaiming_uniform, kaiming_normal = (_older(f) for f in (kaiming_uniform_, kaiming_normal_))


_checks.install(globals())

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
