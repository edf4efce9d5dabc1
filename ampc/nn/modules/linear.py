"""Linear and bilinear layers."""

from __future__ import annotations

import math
from typing import Any

from ... import _C
from ..._C import Tensor
from ..._tensor import creation as make
from .. import functional as F
from .. import init
from ..parameter import Parameter
from .module import Module

__all__ = ["Bilinear", "Identity", "Linear"]


class Identity(Module):
    """Returns its input."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return input


class Linear(Module):
    """x @ weight.T + bias, for x [..., in_features]; weight [out_features, in_features]. Where one of the two has 16 bits and the
    other more, outside autocast, it computes in the wider dtype; torch, and nn.functional.linear, refuse that."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(make.empty(out_features, in_features, device=device, dtype=dtype))
        if bias:
            self.bias: Any = Parameter(make.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias anew, uniform within 1 / sqrt(in_features)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        p = self.__dict__["_parameters"]
        try:  # what self.weight finds, without the search for it
            weight, bias = p["weight"], p["bias"]
        except KeyError:  # made from other parameters
            weight, bias = self.weight, self.bias
        try:
            return F.linear(input, weight, bias)
        except RuntimeError:
            mixed = input.dtype != weight.dtype and 2 in (input.itemsize, weight.itemsize)
            if not (mixed and input.is_floating_point() and weight.is_floating_point()):
                raise
        wide = _C.promote_types(input.dtype, weight.dtype)
        return F.linear(input.to(wide), weight.to(wide), None if bias is None else bias.to(wide))

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """What MultiheadAttention ends in: a Linear by the name that torch prints and pickles."""


class Bilinear(Module):
    """x1 @ weight[k] @ x2 + bias[k], for x1 [..., in1_features] and x2 [..., in2_features]; weight [out_features, in1, in2]."""

    def __init__(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        if in1_features < 1:
            raise ValueError(f"Bilinear: `in1_features` must be 1 or more, got {in1_features}")
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = Parameter(make.empty(out_features, in1_features, in2_features, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(make.empty(out_features, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias anew, uniform within 1 / sqrt(in1_features)."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}")
