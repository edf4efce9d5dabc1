"""Activations."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from ... import _creation as make
from ..._C import Tensor
from ..._callers import warn
from .. import functional as F
from ..parameter import Parameter
from .module import Module


class _Activation(Module):
    """Base: a function of ``functional`` by name, called with the options that the subclass keeps under their names."""

    _function = ""
    _options: Tuple[str, ...] = ()

    def _keep(self, **options: Any) -> None:
        Module.__init__(self)
        self.__dict__.update(options)

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self._function)(input, *(self.__dict__[name] for name in self._options))

    def extra_repr(self) -> str:
        shown = [name for name in self._options if name != "inplace" or self.__dict__[name]]
        return ", ".join(f"{name}={self.__dict__[name]!r}" for name in shown)


class ReLU(_Activation):
    """max(x, 0)"""

    _function = "relu"
    _options = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        self._keep(inplace=inplace)


class ReLU6(_Activation):
    """min(max(x, 0), 6)"""

    _function = "relu6"
    _options = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        self._keep(inplace=inplace)


class LeakyReLU(_Activation):
    """x where x > 0, else negative_slope * x."""

    _function = "leaky_relu"
    _options = ("negative_slope", "inplace",)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self._keep(negative_slope=negative_slope, inplace=inplace)


class ELU(_Activation):
    """x where x > 0, else alpha * (exp(x) - 1) (Clevert et al. 2016)."""

    _function = "elu"
    _options = ("alpha", "inplace",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self._keep(alpha=alpha, inplace=inplace)


class CELU(_Activation):
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)) (Barron 2017)."""

    _function = "celu"
    _options = ("alpha", "inplace",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self._keep(alpha=alpha, inplace=inplace)


class SELU(_Activation):
    """ELU, scaled so that mean and variance settle (Klambauer et al. 2017)."""

    _function = "selu"
    _options = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        self._keep(inplace=inplace)


class GELU(_Activation):
    """x * Phi(x), or its tanh approximation."""

    _function = "gelu"
    _options = ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        self._keep(approximate=approximate)


class SiLU(_Activation):
    """x * sigmoid(x)"""

    _function = "silu"
    _options = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        self._keep(inplace=inplace)


class Mish(_Activation):
    """x * tanh(softplus(x)) (Misra 2019)."""

    _function = "mish"
    _options = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        self._keep(inplace=inplace)


class Sigmoid(_Activation):
    """1 / (1 + exp(-x))"""

    _function = "sigmoid"


class Tanh(_Activation):
    """Hyperbolic tangent."""

    _function = "tanh"


class Hardtanh(_Activation):
    """x, kept within [min_val, max_val]."""

    _function = "hardtanh"
    _options = ("min_val", "max_val", "inplace",)

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False, min_value: Optional[float] = None,
                 max_value: Optional[float] = None) -> None:
        for old, new in ((min_value, "min_val"), (max_value, "max_val")):
            if old is not None:
                warn(f"Hardtanh: `{new}ue` is an old name of `{new}`", FutureWarning)
        min_val, max_val = min_val if min_value is None else min_value, max_val if max_value is None else max_value
        self._keep(min_val=min_val, max_val=max_val, inplace=inplace)


class Hardsigmoid(_Activation):
    """min(max(x + 3, 0), 6) / 6"""

    _function = "hardsigmoid"
    _options = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        self._keep(inplace=inplace)


class Hardswish(_Activation):
    """x * hardsigmoid(x) (Howard et al. 2019)."""

    _function = "hardswish"
    _options = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        self._keep(inplace=inplace)


class _Shrink(_Activation):
    _options = ("lambd",)

    def __init__(self, lambd: float = 0.5) -> None:
        self._keep(lambd=lambd)

    def extra_repr(self) -> str:
        return str(self.__dict__["lambd"])


class Hardshrink(_Shrink):
    """x where |x| > lambd, else 0."""

    _function = "hardshrink"


class Softshrink(_Shrink):
    """x, nearer to 0 by lambd."""

    _function = "softshrink"


class Tanhshrink(_Activation):
    """x - tanh(x)"""

    _function = "tanhshrink"


class Softplus(_Activation):
    """log(1 + exp(beta x)) / beta; x where beta x is above ``threshold``."""

    _function = "softplus"
    _options = ("beta", "threshold",)

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self._keep(beta=beta, threshold=threshold)


class Softsign(_Activation):
    """x / (1 + |x|)"""

    _function = "softsign"


class LogSigmoid(_Activation):
    """log(sigmoid(x))"""

    _function = "logsigmoid"


class Threshold(_Activation):
    """x where x > threshold, else value."""

    _function = "threshold"
    _options = ("threshold", "value", "inplace",)

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        self._keep(threshold=threshold, value=value, inplace=inplace)


class GLU(_Activation):
    """The first half of ``dim`` times the sigmoid of the second (Dauphin et al. 2017)."""

    _function = "glu"
    _options = ("dim",)

    def __init__(self, dim: int = -1) -> None:
        self._keep(dim=dim)


class Softmax(_Activation):
    """exp(x) / sum(exp(x)) along ``dim``."""

    _function = "softmax"
    _options = ("dim",)

    def __init__(self, dim: Optional[int] = None) -> None:
        self._keep(dim=dim)


class Softmin(_Activation):
    """exp(-x) / sum(exp(-x)) along ``dim``."""

    _function = "softmin"
    _options = ("dim",)

    def __init__(self, dim: Optional[int] = None) -> None:
        self._keep(dim=dim)


class LogSoftmax(_Activation):
    """x - log(sum(exp(x))) along ``dim``."""

    _function = "log_softmax"
    _options = ("dim",)

    def __init__(self, dim: Optional[int] = None) -> None:
        self._keep(dim=dim)


class Softmax2d(Module):
    """Softmax over the channels of [N, C, H, W] or [C, H, W]."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected 3 or 4 dimensions, got shape {list(input.shape)}")
        return F.softmax(input, -3)


class PReLU(Module):
    """x where x > 0, else a learned slope times x: one slope, or one for each channel of [N, C, ...] (He et al. 2015)."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(make.full((num_parameters,), init, device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class RReLU(Module):
    """x where x > 0, else a slope times x: drawn from [lower, upper] when training, their mean otherwise (Xu et al. 2015)."""

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}"
