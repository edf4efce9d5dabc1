"""Functions of neural networks: the table's, and what is short in terms of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Optional

from .. import _C
from .. import _creation as make
from .._C import Tensor

_f = _C._functions

linear = _f["linear"]
relu_op, gelu, silu = _f["relu"], _f["gelu"], _f["silu"]
mse_loss_op, l1_loss_op, nll_loss_op = _f["mse_loss"], _f["l1_loss"], _f["nll_loss"]


def _reduction(size_average: Any, reduce: Any, reduction: str) -> str:
    """torch's old spelling of ``reduction``."""
    if size_average is None and reduce is None:
        return reduction
    warnings.warn("size_average and reduce are old spellings; write reduction='mean', 'sum' or 'none'", stacklevel=3)
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0)"""
    return input.relu_() if inplace else relu_op(input)


def relu_(input: Tensor) -> Tensor:
    """relu, in place."""
    return input.relu_()


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return input.tanh()


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))"""
    return input.sigmoid()


def softmax(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along ``dim``."""
    return _f["softmax"](input, _dim(input, dim), dtype=dtype)


def log_softmax(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """x - log(sum(exp(x))) along ``dim``."""
    return _f["log_softmax"](input, _dim(input, dim), dtype=dtype)


def _dim(x: Tensor, dim: Optional[int]) -> int:
    if dim is None:
        warnings.warn("softmax: give `dim`; without it the choice depends on the number of dimensions", stacklevel=4)
        return 0 if x.ndim in (0, 1, 3) else 1
    return dim


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta x)) / beta, without overflow; x itself where beta x > threshold."""
    scaled = input if beta == 1.0 else input * beta
    soft = _f["softplus_"](scaled)
    return _f["where"](scaled > threshold, input, soft if beta == 1.0 else soft / beta)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x))"""
    return -_f["softplus_"](-input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where x > 0, else negative_slope * x."""
    out = _f["where"](input > 0, input, input * negative_slope)
    return input.copy_(out) if inplace else out


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes elements with probability ``p`` and scales the others by 1 / (1 - p). ValueError unless 0 <= p <= 1."""
    out = _f["dropout"](input, p, training)
    return input.copy_(out) if inplace and training else out


def embedding(input: Tensor, weight: Tensor, padding_idx: Optional[int] = None, max_norm: Any = None, norm_type: float = 2.0,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """Rows of ``weight`` [rows, width] at ``input`` (int64 or int32). The row ``padding_idx`` gets no gradient.
    IndexError for an index outside the table."""
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise NotImplementedError("embedding: max_norm, scale_grad_by_freq and sparse are not supported")
    pad = -1
    if padding_idx is not None:
        if not -weight.shape[0] <= padding_idx < weight.shape[0]:
            raise AssertionError(f"embedding: `padding_idx` {padding_idx} is outside a table of {weight.shape[0]} rows")
        pad = padding_idx % weight.shape[0]
    return _f["_embedding"](weight, input, pad)


def layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Optional[Tensor] = None, bias: Optional[Tensor] = None,
               eps: float = 1e-05) -> Tensor:
    """Normalises over the last dimensions, which must be ``normalized_shape``."""
    return _f["layer_norm"](input, normalized_shape, weight, bias, eps)


def batch_norm(input: Tensor, running_mean: Optional[Tensor], running_var: Optional[Tensor], weight: Optional[Tensor] = None,
               bias: Optional[Tensor] = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-05) -> Tensor:
    """Normalises each channel (dimension 1) over the batch; updates the running statistics when training."""
    return _f["batch_norm"](input, running_mean, running_var, weight, bias, training, momentum, eps)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x / max(norm(x), eps) along ``dim``."""
    return input / input.norm(p, dim, True).clamp(eps).expand(input.shape)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 ones at the classes, zeros elsewhere, in a new last dimension."""
    n = int(tensor.max().item()) + 1 if num_classes < 0 else num_classes
    return (tensor.unsqueeze(-1) == make.arange(n)).long()


# -- losses ------------------------------------------------------------------------------------------------


def mse_loss(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> Tensor:
    """(x - target) ** 2, averaged, summed or each."""
    if isinstance(target, Tensor) and isinstance(input, Tensor) and target.shape != input.shape:
        warnings.warn(f"mse_loss: target {list(target.shape)} and input {list(input.shape)} differ and will be broadcast", stacklevel=2)
    return mse_loss_op(input, target, _reduction(size_average, reduce, reduction))


def l1_loss(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> Tensor:
    """|x - target|, averaged, summed or each."""
    return l1_loss_op(input, target, _reduction(size_average, reduce, reduction))


def nll_loss(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Any = None, ignore_index: int = -100,
             reduce: Any = None, reduction: str = "mean") -> Tensor:
    """-x[target] of log-probabilities x [N, C, ...], weighted by class. IndexError for a target outside the classes."""
    return nll_loss_op(input, target, weight, ignore_index, _reduction(size_average, reduce, reduction))


def cross_entropy(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Any = None, ignore_index: int = -100,
                  reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0) -> Tensor:
    """Cross entropy between logits [N, C, ...] and class indices, or probabilities of the logits' shape."""
    return _f["cross_entropy"](input, target, weight, ignore_index, _reduction(size_average, reduce, reduction), label_smoothing)


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Any = None,
                                     reduce: Any = None, reduction: str = "mean", pos_weight: Optional[Tensor] = None) -> Tensor:
    """Binary cross entropy of sigmoid(x), computed from the logits. ValueError when the shapes differ."""
    return _f["binary_cross_entropy_with_logits"](input, target, weight, _reduction(size_average, reduce, reduction), pos_weight)


def binary_cross_entropy(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Any = None, reduce: Any = None,
                         reduction: str = "mean") -> Tensor:
    """Binary cross entropy of probabilities. RuntimeError under autocast, where it is not safe."""
    return _f["binary_cross_entropy"](input, target, weight, _reduction(size_average, reduce, reduction))
