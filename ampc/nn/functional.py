"""Functions of neural networks: operators of the table, and functions written with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable, Optional

from .. import _C, _checks, _ops
from .. import _creation as make
from .._C import Tensor
from .._callers import warn
from .._missing import absent_from
from .._ops import (  # noqa: F401, I001
    adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d, affine_grid,
    avg_pool1d, avg_pool2d, avg_pool3d, channel_shuffle, conv1d, conv2d, conv3d, conv_tbc, conv_transpose1d, conv_transpose2d,
    conv_transpose3d, fold, grid_sample, local_response_norm, lp_pool1d, lp_pool2d, lp_pool3d, max_pool1d, max_pool2d, max_pool3d, max_unpool1d,
    max_unpool2d, max_unpool3d, pixel_shuffle, pixel_unshuffle, rms_norm,
)
from .._ops import im2col as unfold  # noqa: F401
from ._fractional import *  # noqa: F403
from ._linear_cross_entropy import *  # noqa: F403
from ._losses import *  # noqa: F403
from ._multihead import *  # noqa: F403
from ._resample import *  # noqa: F403

linear, tanh, sigmoid = _ops.linear, _ops.tanh, _ops.sigmoid
layer_norm, batch_norm = _ops.layer_norm, _ops.batch_norm
relu_op, gelu = _ops.relu, _ops.gelu
softplus, logsigmoid, softsign, tanhshrink = _ops.softplus, _ops.logsigmoid, _ops.softsign, _ops.tanhshrink
bilinear, cosine_similarity, normalize, pdist = _ops.bilinear, _ops.cosine_similarity, _ops.normalize, _ops.pdist
scaled_dot_product_attention = _ops.scaled_dot_product_attention
hardshrink, softshrink, prelu, glu = _ops.hardshrink, _ops.softshrink, _ops.prelu, _ops.glu
mse_loss_op, l1_loss_op, nll_loss_op = _ops.mse_loss, _ops.l1_loss, _ops.nll_loss


def _reduction(size_average: Any, reduce: Any, reduction: str) -> str:
    """torch's old spelling of ``reduction``."""
    if size_average is None and reduce is None:
        return reduction
    if isinstance(size_average, Tensor) or isinstance(reduce, Tensor):
        raise RuntimeError("`size_average` and `reduce` must be bools, got a Tensor. A loss module is made first and then called: "
                           "nn.CrossEntropyLoss()(input, target)")
    warn("size_average and reduce are old names; write reduction='mean', 'sum' or 'none'")
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0)"""
    return input.relu_() if inplace else relu_op(input)


def relu_(input: Tensor) -> Tensor:
    """relu, in place."""
    return input.relu_()


def softmax(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along ``dim``."""
    return _ops.softmax(input, _dim(input, dim), dtype=dtype)


def log_softmax(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """x - log(sum(exp(x))) along ``dim``."""
    return _ops.log_softmax(input, _dim(input, dim), dtype=dtype)


def _dim(x: Tensor, dim: Optional[int]) -> int:
    if dim is None:
        warn("softmax: give `dim`; without it the choice depends on the number of dimensions")
        return 0 if x.ndim in (0, 1, 3) else 1
    return dim


def _put(input: Tensor, f: Callable[[Tensor], Tensor], inplace: bool) -> Tensor:
    """f(input), in place of it when asked; what f keeps for backward is then a copy."""
    if not inplace:
        return f(input)
    return input.copy_(f(input.clone() if input.requires_grad and _C.is_grad_enabled() else input))


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, else alpha * (exp(x) - 1) (Clevert et al. 2016)."""
    return _put(input, lambda x: _ops.elu(x, alpha), inplace)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """The elu whose constants keep mean 0 and variance 1 (Klambauer et al. 2017)."""
    return _put(input, _ops.selu, inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, else alpha * (exp(x / alpha) - 1) (Barron 2017). RuntimeError for alpha 0."""
    return _put(input, lambda x: _ops.celu(x, alpha), inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where x > 0, else negative_slope * x."""
    return _put(input, lambda x: _ops.leaky_relu(x, negative_slope), inplace)


def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False) -> Tensor:
    """leaky_relu, its slope drawn for each element between ``lower`` and ``upper``; their mean when not training."""
    if not -math.inf < lower <= upper < math.inf:
        raise RuntimeError(f"rrelu: `lower` must be at most `upper`, both finite, got {lower} and {upper}")
    slope = input.new_empty(input.shape).uniform_(lower, upper) if training else (lower + upper) / 2
    return _put(input, lambda x: _ops.where(x > 0, x, x * slope), inplace)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x limited to [min_val, max_val]."""
    if min_val > max_val:
        raise ValueError(f"hardtanh: `min_val` {min_val} is above `max_val` {max_val}")
    return _put(input, lambda x: _ops.hardtanh(x, min_val, max_val), inplace)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """x limited to [0, 6]."""
    return hardtanh(input, 0.0, 6.0, inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * relu6(x + 3) / 6 (Howard et al. 2019)."""
    return _put(input, _ops.hardswish, inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6"""
    return _put(input, _ops.hardsigmoid, inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x)) (Misra 2019)."""
    return _put(input, _ops.mish, inplace)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x)"""
    return _put(input, _ops.silu, inplace)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where x > threshold, else value."""
    return _put(input, lambda x: _ops.threshold(x, threshold, value), inplace)


def softmin(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax(-x) along ``dim``."""
    return _ops.softmax(-input, _dim(input, dim), dtype=dtype)


def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A sample of the relaxed categorical distribution (Jang et al. 2017); ``hard``: one-hot, with the soft one's gradient."""
    if eps != 1e-10:
        warn("gumbel_softmax: `eps` has no effect")
    noise = -make.empty_like(logits).uniform_().clamp_(1e-30).log_().neg_().clamp_(1e-30).log_()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    first = soft.max(dim, True).indices
    return make.zeros_like(soft).scatter_add(dim, first, make.ones_like(first, dtype=soft.dtype)) - soft.detach() + soft


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes elements with probability ``p`` and scales the others by 1 / (1 - p). ValueError unless 0 <= p <= 1."""
    out = _ops.dropout(input, p, training)
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
    return _ops._embedding(weight, input, pad)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 ones at the classes, zeros elsewhere, in a new last dimension."""
    if tensor.dtype is not _C.int64:
        raise RuntimeError(f"one_hot: the classes must be int64, got {tensor.dtype}")
    if num_classes < -1 or (num_classes == -1 and not tensor.numel()):
        raise RuntimeError(f"one_hot: `num_classes` must be given, and above 0, got {num_classes} for {tensor.numel()} classes")
    low, high = (int(tensor.min()), int(tensor.max())) if tensor.numel() else (0, -1)
    n = high + 1 if num_classes == -1 else num_classes
    if low < 0 or high >= n:
        raise RuntimeError(f"one_hot: classes must lie between 0 and {n - 1}, got {low} to {high}")
    return (tensor.unsqueeze(-1) == make.arange(n, device=tensor.device)).long()


def group_norm(input: Tensor, num_groups: int, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, eps: float = 1e-05) -> Tensor:
    """Normalises [N, C, ...] over groups of channels (Wu and He 2018); weight and bias [C]. float32 under autocast.

    Raises: ValueError if there is one sample and one value in each group, which would all become 0.
    """
    if input.ndim > 1 and input.numel() == num_groups:
        raise ValueError(f"group_norm: needs more than 1 value in a group, got shape {list(input.shape)} and {num_groups} groups")
    return _ops.group_norm(input, num_groups, weight, bias, eps)


def instance_norm(input: Tensor, running_mean: Optional[Tensor] = None, running_var: Optional[Tensor] = None,
                  weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, use_input_stats: bool = True, momentum: float = 0.1,
                  eps: float = 1e-05) -> Tensor:
    """Normalises each channel of each sample of [N, C, ...] (Ulyanov et al. 2016), or with running statistics."""
    if not use_input_stats:
        return _ops.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    dims = list(range(2, input.ndim))
    if math.prod(input.shape[2:]) == 1:
        raise ValueError(f"instance_norm: needs more than 1 value per channel, got shape {list(input.shape)}")
    if (running_mean is None) != (running_var is None):
        raise ValueError("instance_norm: running_mean and running_var go together")
    if running_mean is not None and running_var is not None:
        if not running_mean.shape == running_var.shape == (input.shape[1],) or running_mean.dtype is not running_var.dtype:
            raise RuntimeError(f"instance_norm: running statistics must be [{input.shape[1]}] and of one dtype")
        found = input.detach().float() if input.dtype.itemsize == 2 else input.detach()
        for own, now in ((running_mean, found.mean(dims)), (running_var, found.var(dims))):
            own.detach().mul_(1 - momentum).add_(now.mean(0), alpha=momentum)
    return _ops._instance_norm(input, input.shape[1], weight, bias, eps)


def embedding_bag(input: Tensor, weight: Tensor, offsets: Optional[Tensor] = None, max_norm: Any = None, norm_type: float = 2.0,
                  scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Optional[Tensor] = None,
                  include_last_offset: bool = False, padding_idx: Optional[int] = None) -> Tensor:
    """Bags of rows of ``weight``: each row of input [B, n], or input [n] cut at ``offsets`` [B], becomes their sum, mean or max.

    ValueError for a mode or dimensions that do not fit; ``padding_idx`` counts nothing."""
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise NotImplementedError("embedding_bag: max_norm, scale_grad_by_freq and sparse are not supported")
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"embedding_bag: `mode` must be sum, mean or max, got {mode!r}")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError("embedding_bag: per_sample_weights go with mode='sum'")
    if weight.ndim != 2 or input.ndim not in (1, 2):
        raise ValueError(f"embedding_bag: needs a weight of 2 dimensions and an input of 1 or 2, got {list(weight.shape)} and {list(input.shape)}")
    if not weight.is_floating_point():
        raise RuntimeError(f"embedding_bag: the weight must be floating point, got {weight.dtype}")
    if offsets is not None and input.ndim == 1 and offsets.numel() > 0 and not offsets.is_cuda and (
            offsets.is_floating_point() or int(offsets.flatten()[0]) or int(offsets.amin()) < 0 or int(offsets.amax()) > input.numel()):
        raise RuntimeError(f"embedding_bag: offsets must be integers from 0 to at most {input.numel()}")
    if input.numel() and not input.is_cuda and not input.is_floating_point():
        low, high = int(input.amin()), int(input.amax())
        if low < 0 or high >= weight.shape[0]:
            raise RuntimeError(f"embedding_bag: indices must lie between 0 and {weight.shape[0] - 1}, got {low} to {high}")
    flat, counted = input.reshape(-1), None
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError("embedding_bag: offsets go with 1-d input")
        bags, bag = input.shape[0], make.arange(input.shape[0], device=input.device).unsqueeze(1).expand(input.shape).reshape(-1)
    elif input.ndim == 1 and offsets is not None:
        starts = offsets[:-1] if include_last_offset else offsets
        bags = starts.shape[0]
        bag = (make.arange(flat.shape[0], device=input.device).unsqueeze(1) >= starts).sum(1) - 1
    else:
        raise ValueError(f"embedding_bag: expected input [B, n], or [n] with offsets; got shape {list(input.shape)}")
    rows = _ops._embedding(weight, flat, -1)
    if padding_idx is not None:
        counted = flat != padding_idx % weight.shape[0]
        rows = _ops.where(counted.unsqueeze(1), rows, 0.0)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    zeros = rows.new_zeros((bags, weight.shape[1]))
    if mode == "max":
        return _first_largest(rows, bag, counted, zeros)
    if mode == "sum":
        return zeros.index_add(0, bag, rows)
    wide = rows.float() if rows.dtype.itemsize == 2 else rows
    total = zeros.to(wide.dtype).index_add(0, bag, wide)
    ones = make.ones(flat.shape[0], device=rows.device) if counted is None else counted.float()
    return (total / ones.new_zeros(bags).index_add(0, bag, ones).clamp(min=1).unsqueeze(1)).to(rows.dtype)


def _first_largest(rows: Tensor, bag: Tensor, counted: Optional[Tensor], zeros: Tensor) -> Tensor:
    """The largest value of each column of each bag, of equal ones the first, which gets the gradient; 0 where nothing is counted."""
    count, into = rows.shape[0], bag.unsqueeze(1).expand(rows.shape)
    if count == 0:
        return zeros
    values = rows.detach()
    values = values if counted is None else _ops.where(counted.unsqueeze(1), values, float("-inf"))
    most = zeros.fill_(float("-inf")).scatter_reduce(0, into, values, "amax")
    found = (values == most.index_select(0, bag)) | values.isnan()
    found = found if counted is None else found & counted.unsqueeze(1)
    order = _ops.where(found, make.arange(count, device=rows.device).unsqueeze(1), count)
    first = make.full(most.shape, count, dtype=order.dtype, device=rows.device).scatter_reduce(0, into, order, "amin")
    return _ops.where(first == count, 0.0, rows.gather(0, first.clamp(max=count - 1)))


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of [N, C, L] with probability ``p``."""
    return _drop_channels("dropout1d", 1, input, p, training, inplace)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of [N, C, H, W] with probability ``p``."""
    return _drop_channels("dropout2d", 2, input, p, training, inplace)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of [N, C, D, H, W] with probability ``p``."""
    return _drop_channels("dropout3d", 3, input, p, training, inplace)


def feature_dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zeroes whole channels of [N, C, ...] with probability ``p``."""
    return _drop_channels("feature_dropout", input.ndim - 2, input, p, training, False)


def _drop_channels(what: str, nd: int, x: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    if not 0 <= p <= 1:
        raise ValueError(f"{what}: `p` must be between 0 and 1, got {p}")
    if not training or p == 0:
        return x
    lead = x.ndim - nd  # [N,] C
    kept = _ops.dropout(x.new_ones(tuple(x.shape[:lead]) + (1,) * nd), p, True)
    return _put(x, lambda x: x * kept, inplace)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps the mean and variance of selu's results (Klambauer et al. 2017)."""
    return _alpha_drop("alpha_dropout", input, tuple(input.shape), p, training, inplace)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """alpha_dropout of whole channels of [N, C, ...]."""
    if training and input.ndim < 2:
        raise RuntimeError(f"feature_alpha_dropout: needs at least 2 dimensions, got {input.ndim}")
    return _alpha_drop("feature_alpha_dropout", input, (*input.shape[:2], *[1] * (input.ndim - 2)), p, training, inplace)


def _alpha_drop(what: str, input: Tensor, shape: Sequence[int], p: float, training: bool, inplace: bool) -> Tensor:
    """Drops what shares one element of ``shape`` together."""
    if not 0 <= p <= 1:
        raise ValueError(f"{what}: `p` must be between 0 and 1, got {p}")
    if not training or p == 0:
        return input
    low = -1.0507009873554805 * 1.6732632423543772
    a = 0.0 if p == 1 else ((1 - p) * (1 + p * low**2)) ** -0.5
    kept = _ops.dropout(input.new_ones(shape), p, True) != 0
    return _put(input, lambda x: _ops.where(kept, x, low) * a - a * p * low, inplace)


# -- losses ------------------------------------------------------------------------------------------------


def mse_loss(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
             weight: Optional[Tensor] = None) -> Tensor:
    """(x - target) ** 2, averaged, summed or each."""
    if isinstance(target, Tensor) and isinstance(input, Tensor) and target.shape != input.shape:
        warn(f"mse_loss: target {list(target.shape)} and input {list(input.shape)} differ and will be broadcast")
    return _weighted(mse_loss_op, input, target, weight, _reduction(size_average, reduce, reduction))


def l1_loss(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
            weight: Optional[Tensor] = None) -> Tensor:
    """|x - target|, averaged, summed or each."""
    return _weighted(l1_loss_op, input, target, weight, _reduction(size_average, reduce, reduction))


def nll_loss(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Any = None, ignore_index: int = -100,
             reduce: Any = None, reduction: str = "mean") -> Tensor:
    """-x[target] of log-probabilities x [N, C, ...], weighted by class. IndexError for a target outside the classes."""
    return nll_loss_op(input, target, weight, ignore_index, _reduction(size_average, reduce, reduction))


def cross_entropy(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Any = None, ignore_index: int = -100,
                  reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0) -> Tensor:
    """Cross entropy between logits [N, C, ...] and class indices, or probabilities of the logits' shape."""
    return _ops.cross_entropy(input, target, weight, ignore_index, _reduction(size_average, reduce, reduction), label_smoothing)


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Any = None,
                                     reduce: Any = None, reduction: str = "mean", pos_weight: Optional[Tensor] = None) -> Tensor:
    """Binary cross entropy of sigmoid(x), computed from the logits. ValueError when the shapes differ."""
    return _ops.binary_cross_entropy_with_logits(input, target, weight, _reduction(size_average, reduce, reduction), pos_weight)


def binary_cross_entropy(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Any = None, reduce: Any = None,
                         reduction: str = "mean") -> Tensor:
    """Binary cross entropy of probabilities. RuntimeError under autocast, where it is not safe; for input or target that is not between 0
    and 1, and for other dtypes of target and weight than input's. A GPU's values are not looked at, which would be waiting for them."""
    loss = _ops.binary_cross_entropy(input, target, weight, _reduction(size_average, reduce, reduction))
    if not input.is_floating_point() or any(t is not None and t.dtype is not input.dtype for t in (target, weight)):
        raise RuntimeError(f"binary_cross_entropy: input, target and weight must have one floating point dtype, got {input.dtype} and {target.dtype}")
    for name, t in (("input", input), ("target", target)):
        if t.numel() and not t.is_cuda:
            low, high = float(t.detach().amin()), float(t.detach().amax())
            if not (low >= 0 and high <= 1):
                raise RuntimeError(f"binary_cross_entropy: {name} must lie between 0 and 1, got {low:g} to {high:g}; logits go into "
                                   "binary_cross_entropy_with_logits")
    return loss


def smooth_l1_loss(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
                   beta: float = 1.0) -> Tensor:
    """Squared within ``beta``, absolute beyond (Girshick 2015)."""
    return _ops.smooth_l1_loss(input, target, _reduction(size_average, reduce, reduction), beta)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Optional[Tensor] = None) -> Tensor:
    """Squared within ``delta``, absolute beyond (Huber 1964)."""
    return _weighted(_ops.huber_loss, input, target, weight, reduction, delta)


def _weighted(loss: Any, input: Tensor, target: Tensor, weight: Optional[Tensor], reduction: str, *more: Any) -> Tensor:
    """Each element's loss times its weight; their mean is over the weights."""
    if weight is None:
        return loss(input, target, reduction, *more)
    each = loss(input, target, "none", *more) * weight
    if reduction == "none":
        return each
    return each.sum() if reduction == "sum" else each.sum() / weight.expand(each.shape).sum()


def kl_div(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
           log_target: bool = False) -> Tensor:
    """Kullback and Leibler's divergence of target from log-probabilities; 'batchmean' is the mathematical one."""
    if not input.is_floating_point() or not target.is_floating_point():
        raise RuntimeError(f"kl_div: needs floating point, got {input.dtype} and {target.dtype}")
    return _ops.kl_div(input, target, _reduction(size_average, reduce, reduction), log_target)


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, size_average: Any = None,
                     eps: float = 1e-8, reduce: Any = None, reduction: str = "mean") -> Tensor:
    """exp(x) - target x, or x - target log(x + eps) without ``log_input``."""
    return _ops.poisson_nll_loss(input, target, log_input, full, eps, _reduction(size_average, reduce, reduction))


def gaussian_nll_loss(input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> Tensor:
    """(log var + (x - target)^2 / var) / 2. ValueError where var is negative."""
    if not isinstance(var, Tensor):
        var = input.new_full((1,) * input.ndim, var).expand(input.shape)
    apart = [m for n, m in zip(input.shape, var.shape) if n != m] if var.ndim == input.ndim else None
    if apart not in ([], [1]) and (input.ndim == 0 or var.shape != input.shape[:-1]):  # or broadcast in one dimension
        raise ValueError(f"gaussian_nll_loss: `var` {list(var.shape)} does not fit input {list(input.shape)}")
    if bool((var < 0).any()):
        raise ValueError("gaussian_nll_loss: `var` has negative entries")
    return _ops.gaussian_nll_loss(input, target, var, full, eps, reduction)


def soft_margin_loss(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target x)), target -1 or 1."""
    return _ops.soft_margin_loss(input, target, _reduction(size_average, reduce, reduction))


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, size_average: Any = None, reduce: Any = None,
                         reduction: str = "mean") -> Tensor:
    """x where target is 1, max(0, margin - x) where it is -1."""
    return _ops.hinge_embedding_loss(input, target, margin, _reduction(size_average, reduce, reduction))


def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, size_average: Any = None,
                        reduce: Any = None, reduction: str = "mean") -> Tensor:
    """max(0, -target (input1 - input2) + margin)"""
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(f"margin_ranking_loss: needs equally many dimensions, got {[list(t.shape) for t in (input1, input2, target)]}")
    return _ops.margin_ranking_loss(input1, input2, target, margin, _reduction(size_average, reduce, reduction))


def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, size_average: Any = None,
                          reduce: Any = None, reduction: str = "mean") -> Tensor:
    """1 - cos where target is 1, max(0, cos - margin) where it is -1."""
    return _ops.cosine_embedding_loss(input1, input2, target, margin, _reduction(size_average, reduce, reduction))


def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6,
                        swap: bool = False, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> Tensor:
    """max(0, margin + d(anchor, positive) - d(anchor, negative)). ValueError for a margin that is not above 0."""
    if margin <= 0:
        raise ValueError(f"triplet_margin_loss: `margin` must be above 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(f"triplet_margin_loss: needs equally many dimensions, got {[list(t.shape) for t in (anchor, positive, negative)]}")
    return _ops.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, _reduction(size_average, reduce, reduction))


def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, *, distance_function: Any = None,
                                      margin: float = 1.0, swap: bool = False, reduction: str = "mean") -> Tensor:
    """triplet_margin_loss with a distance of one's own."""
    if margin <= 0:
        raise ValueError(f"triplet_margin_with_distance_loss: `margin` must be above 0, got {margin}")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"triplet_margin_with_distance_loss: `reduction` must be none, mean or sum, got {reduction!r}")
    d = distance_function or pairwise_distance
    far = d(anchor, negative)
    if swap:
        far = far.minimum(d(positive, negative))
    each = (margin + d(anchor, positive) - far).clamp(min=0)
    return each if reduction == "none" else each.mean() if reduction == "mean" else each.sum()


def multi_margin_loss(input: Tensor, target: Tensor, p: Any = 1, margin: float = 1.0, weight: Optional[Tensor] = None,
                      size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> Tensor:
    """The mean over the other classes of max(0, margin - x[target] + x)^p. ValueError unless p is 1 or 2."""
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss: `p` must be 1 or 2, got {p!r}")
    if weight is not None and tuple(weight.shape) != tuple(input.shape[-1:]):
        kind = ValueError if weight.ndim != 1 else RuntimeError
        raise kind(f"multi_margin_loss: `weight` must be a vector of {list(input.shape[-1:])} classes, got {list(weight.shape)}")
    if weight is not None and weight.dtype is not input.dtype:
        raise RuntimeError(f"multi_margin_loss: input and weight must have the same dtype, got {input.dtype} and {weight.dtype}")
    if input.ndim == 0 and target.ndim == 0:  # one score is a vector of them
        input = input.unsqueeze(0)
    return _ops.multi_margin_loss(input, target, p, margin, weight, _reduction(size_average, reduce, reduction))


def multilabel_margin_loss(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> Tensor:
    """Margins between the classes that target names, up to its first -1, and the others."""
    if input.ndim == 0 and target.ndim == 0:  # one score is a vector of them
        input, target = input.unsqueeze(0), target.unsqueeze(0)
    loss = _ops.multilabel_margin_loss(input, target, _reduction(size_average, reduce, reduction))
    if target.numel() and not target.is_cuda and (int(target.amin()) < -1 or int(target.amax()) >= max(input.shape[-1:], default=1)):
        raise RuntimeError(f"multilabel_margin_loss: classes must lie between -1 and {max(input.shape[-1:], default=1) - 1}")
    return loss


def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Any = None,
                                reduce: Any = None, reduction: str = "mean") -> Tensor:
    """Binary cross entropy of sigmoid(x), averaged over the classes."""
    return _ops.multilabel_soft_margin_loss(input, target, weight, _reduction(size_average, reduce, reduction))


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last dimension."""
    out = _ops._pairwise_distance(x1, x2, p, -1, eps)
    return out.unsqueeze(-1) if keepdim else out


_checks.install(globals(), hot="relu silu leaky_relu softmax log_softmax embedding dropout "
                "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss binary_cross_entropy_with_logits")
if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
