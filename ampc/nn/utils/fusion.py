"""Batch norm in evaluation as a part of the layer before it."""

from __future__ import annotations

import copy
from typing import Any, Optional, Tuple

from ..._C import Tensor
from ..modules.module import Module
from ..parameter import Parameter


def _scaled(rows: int, weight: Tensor, bias: Optional[Tensor], bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Optional[Tensor],
            bn_b: Optional[Tensor]) -> Tuple[Parameter, Parameter]:
    """The weight, its results along dimension ``rows``, and the bias of both layers in one."""
    scale = (bn_rv + bn_eps).rsqrt() * (1 if bn_w is None else bn_w)
    shift = ((0 if bias is None else bias) - bn_rm) * scale + (0 if bn_b is None else bn_b)
    shape = [1] * weight.ndim
    shape[rows] = -1
    whole = (weight * scale.reshape(shape)).to(weight.dtype)
    return Parameter(whole, weight.requires_grad), Parameter(shift.to(weight.dtype), (weight if bias is None else bias).requires_grad)


def fuse_conv_bn_weights(conv_w: Tensor, conv_b: Optional[Tensor], bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Optional[Tensor],
                         bn_b: Optional[Tensor], transpose: bool = False) -> Tuple[Parameter, Parameter]:
    """Weight and bias of a convolution (``transpose``: a transposed one) followed by batch norm."""
    return _scaled(int(transpose), conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def fuse_linear_bn_weights(linear_w: Tensor, linear_b: Optional[Tensor], bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor,
                           bn_b: Tensor) -> Tuple[Parameter, Parameter]:
    """Weight and bias of a linear layer followed by batch norm."""
    return _scaled(0, linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def _fused(layer: Any, bn: Any, rows: int) -> Any:
    if layer.training or bn.training:
        raise AssertionError("only layers in evaluation can be fused; call eval() first")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("a batch norm without running statistics cannot be fused")
    both = copy.deepcopy(layer)
    both.weight, both.bias = _scaled(rows, both.weight, both.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    return both


def fuse_conv_bn_eval(conv: Module, bn: Module, transpose: bool = False) -> Module:
    """A convolution that gives what ``bn(conv(x))`` gives, both in evaluation; AssertionError in training."""
    return _fused(conv, bn, int(transpose))


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Module:
    """A linear layer that gives what ``bn(linear(x))`` gives, both in evaluation; AssertionError in training, and for other sizes."""
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(f"fuse_linear_bn_eval: {linear.out_features} features do not fit batch norm of {bn.num_features}")
    return _fused(linear, bn, 0)
