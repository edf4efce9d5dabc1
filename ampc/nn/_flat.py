"""torch's functions beside those of nn.functional: with positions in place of names, and numbers in place of words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional, Tuple

from .. import _ops
from .._C import Tensor
from .._messages import checks as _checks
from . import functional as F
from ._resample import grid_sampler

__all__ = [
    "affine_grid_generator", "alpha_dropout", "alpha_dropout_", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "ctc_loss",
    "dropout", "dropout_", "feature_alpha_dropout", "feature_alpha_dropout_", "feature_dropout", "feature_dropout_", "grid_sampler_2d",
    "grid_sampler_3d", "hinge_embedding_loss", "kl_div", "margin_ranking_loss", "native_dropout", "poisson_nll_loss", "triplet_margin_loss",
]


def _with_train(f: Callable[..., Tensor], inplace: bool) -> Any:
    def drop(input: Tensor, p: float, train: bool) -> Tensor:
        return f(input, p, train, inplace)

    drop.__name__ = drop.__qualname__ = f.__name__.lstrip("_") + ("_" if inplace else "")
    drop.__doc__ = f.__doc__
    return drop


def _feature_dropout(input: Tensor, p: float, train: bool, inplace: bool) -> Tensor:
    """Zeroes whole channels [N, C, ...] with probability ``p`` and scales the others by 1 / (1 - p)."""
    out = _ops.feature_dropout(input, p, train)
    return input.copy_(out) if inplace else out


dropout, dropout_ = (_with_train(F.dropout, inplace) for inplace in (False, True))
alpha_dropout, alpha_dropout_ = (_with_train(F.alpha_dropout, inplace) for inplace in (False, True))
feature_dropout, feature_dropout_ = (_with_train(_feature_dropout, inplace) for inplace in (False, True))
feature_alpha_dropout, feature_alpha_dropout_ = (_with_train(F.feature_alpha_dropout, inplace) for inplace in (False, True))


def native_dropout(input: Tensor, p: float, train: bool) -> Tuple[Tensor, Tensor]:
    """dropout, and a mask that is true where an element was kept."""
    kept = _ops.dropout(input.detach().new_ones(input.shape), p, bool(train))
    return input * kept, kept != 0


def grid_sampler_2d(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """grid_sampler of images [N, C, H, W]."""
    return _of_dims("grid_sampler_2d", 4, input, grid, interpolation_mode, padding_mode, align_corners)


def grid_sampler_3d(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """grid_sampler of volumes [N, C, D, H, W]."""
    return _of_dims("grid_sampler_3d", 5, input, grid, interpolation_mode, padding_mode, align_corners)


def _of_dims(name: str, ndim: int, input: Tensor, *more: Any) -> Tensor:
    if input.ndim != ndim:
        raise RuntimeError(f"{name}: expected {ndim} dimensions, got shape {list(input.shape)}")
    return grid_sampler(input, *more)


def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """nn.functional.affine_grid"""
    return _ops.affine_grid(theta, size, align_corners)


def batch_norm(input: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], running_mean: Optional[Tensor], running_var: Optional[Tensor],
               training: bool, momentum: float, eps: float, cudnn_enabled: bool) -> Tensor:
    """nn.functional.batch_norm, with its weight before the statistics."""
    return _ops.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(input: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], running_mean: Optional[Tensor], running_var: Optional[Tensor],
                  use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool) -> Tensor:
    """nn.functional.instance_norm, with its weight before the statistics."""
    return _ops.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """nn.functional.embedding, with the rows first: ``padding_idx`` is a row whose gradient stays 0, none where it is negative."""
    return F.embedding(indices, weight, padding_idx if padding_idx >= 0 else None, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


_checks.install(globals())


# torch's bindings give these losses the default 0, though their declarations say mean.
def _word(reduction: int) -> str:
    if reduction not in (0, 1, 2):
        raise ValueError(f"`reduction` must be 0 (none), 1 (mean) or 2 (sum), got {reduction!r}")
    return ("none", "mean", "sum")[reduction]


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, pos_weight: Optional[Tensor] = None,
                                     reduction: int = 0) -> Tensor:
    """nn.functional.binary_cross_entropy_with_logits, its ``reduction`` a number: 0 none, 1 mean, 2 sum. ValueError for another."""
    return _ops.binary_cross_entropy_with_logits(input, target, weight, pos_weight=pos_weight, reduction=_word(reduction))


def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0) -> Tensor:
    """nn.functional.cosine_embedding_loss, its ``reduction`` a number: 0 none, 1 mean, 2 sum. ValueError for another."""
    return _ops.cosine_embedding_loss(input1, input2, target, margin, reduction=_word(reduction))


def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: int = 0,
             zero_infinity: bool = False) -> Tensor:
    """nn.functional.ctc_loss, its ``reduction`` a number: 0 none, 1 mean, 2 sum. ValueError for another."""
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, _word(reduction), zero_infinity)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0) -> Tensor:
    """nn.functional.hinge_embedding_loss, its ``reduction`` a number: 0 none, 1 mean, 2 sum. ValueError for another."""
    return _ops.hinge_embedding_loss(input, target, margin, reduction=_word(reduction))


def kl_div(input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False) -> Tensor:
    """nn.functional.kl_div, its ``reduction`` a number: 0 none, 1 mean, 2 sum. ValueError for another."""
    return _ops.kl_div(input, target, reduction=_word(reduction), log_target=log_target)


def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0) -> Tensor:
    """nn.functional.margin_ranking_loss, its ``reduction`` a number: 0 none, 1 mean, 2 sum. ValueError for another."""
    return _ops.margin_ranking_loss(input1, input2, target, margin, reduction=_word(reduction))


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """nn.functional.poisson_nll_loss, its ``reduction`` a number: 0 none, 1 mean, 2 sum. ValueError for another."""
    return _ops.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=_word(reduction))


def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0, eps: float = 1e-06,
                        swap: bool = False, reduction: int = 0) -> Tensor:
    """nn.functional.triplet_margin_loss, its ``reduction`` a number: 0 none, 1 mean, 2 sum. ValueError for another."""
    return _ops.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=_word(reduction))
