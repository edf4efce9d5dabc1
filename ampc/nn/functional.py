"""Functions of neural networks: operators of the table, and functions written with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from .. import _ops
from .._messages import checks as _checks
from .._tensor import creation as make
from .._C import Tensor
from .._messages.callers import warn
from .._names.missing import absent_from
from .._ops import (
    adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d,
    affine_grid, alpha_dropout, avg_pool1d, avg_pool2d, avg_pool3d, batch_norm, bilinear, binary_cross_entropy,
    binary_cross_entropy_with_logits, celu, channel_shuffle, conv1d, conv2d, conv3d, conv_tbc, conv_transpose1d, conv_transpose2d,
    conv_transpose3d, cosine_embedding_loss, cosine_similarity, cross_entropy, dropout, dropout1d, dropout2d, dropout3d, elu, embedding,
    embedding_bag, feature_alpha_dropout, feature_dropout, fold, gaussian_nll_loss, gelu, glu, grid_sample, group_norm, hardshrink,
    hardsigmoid, hardswish, hardtanh, hinge_embedding_loss, instance_norm, kl_div, layer_norm, leaky_relu, linear,
    local_response_norm, logsigmoid, lp_pool1d, lp_pool2d, lp_pool3d, margin_ranking_loss, max_pool1d, max_pool2d, max_pool3d, max_unpool1d,
    max_unpool2d, max_unpool3d, mish, multi_margin_loss, multilabel_margin_loss, multilabel_soft_margin_loss, nll_loss, normalize, one_hot,
    pairwise_distance, pdist, pixel_shuffle, pixel_unshuffle, poisson_nll_loss, prelu, relu, relu_, rms_norm, rrelu,
    scaled_dot_product_attention, selu, sigmoid, silu, soft_margin_loss, softplus, softshrink, softsign, tanh, tanhshrink,
    threshold, triplet_margin_loss,
)
from .._ops import celu_, elu_, hardtanh_, leaky_relu_, rrelu_, selu_, threshold_
from .._ops import im2col as unfold  # `unfold` itself is the method, which is another function
from ._fractional import *  # noqa: F403
from ._further import *  # noqa: F403
from ._further import embedding_renorm_
from ._linear_cross_entropy import *  # noqa: F403
from ._losses import *  # noqa: F403
from ._multihead import *  # noqa: F403
from ._resample import *  # noqa: F403


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


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """x limited to [0, 6]."""
    return hardtanh(input, 0.0, 6.0, inplace)


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


# -- losses ------------------------------------------------------------------------------------------------


def mse_loss(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
             weight: Optional[Tensor] = None) -> Tensor:
    """(x - target) ** 2, averaged, summed or each."""
    _warn_of_shapes("mse_loss", input, target)
    if weight is None:
        return _ops.mse_loss(input, target, size_average, reduce, reduction)
    return _ops._mse_loss_weighted(input, target, size_average, reduce, reduction, weight)


def l1_loss(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
            weight: Optional[Tensor] = None) -> Tensor:
    """|x - target|, averaged, summed or each."""
    _warn_of_shapes("l1_loss", input, target)
    return _ops.l1_loss(input, target, size_average, reduce, reduction, weight)


def smooth_l1_loss(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
                   beta: float = 1.0) -> Tensor:
    """(x - target) ** 2 / (2 beta) within ``beta``, |x - target| - beta / 2 beyond; averaged, summed or each."""
    _warn_of_shapes("smooth_l1_loss", input, target)
    return _ops.smooth_l1_loss(input, target, size_average, reduce, reduction, beta)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Optional[Tensor] = None) -> Tensor:
    """(x - target) ** 2 / 2 within ``delta``, delta (|x - target| - delta / 2) beyond; averaged, summed or each."""
    _warn_of_shapes("huber_loss", input, target)
    return _ops.huber_loss(input, target, reduction, delta, weight)


def _warn_of_shapes(name: str, input: Any, target: Any) -> None:
    if isinstance(target, Tensor) and isinstance(input, Tensor) and target.shape != input.shape:
        warn(f"{name}: target {list(target.shape)} and input {list(input.shape)} differ and will be broadcast")


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


_checks.install(globals(), hot="softmax log_softmax mse_loss l1_loss smooth_l1_loss huber_loss")
if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
