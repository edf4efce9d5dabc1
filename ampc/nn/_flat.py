"""torch's functions beside those of nn.functional: with positions in place of names, and numbers in place of words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Tuple

from .. import _checks, _ops
from .._C import Tensor
from . import functional as F
from ._resample import affine_grid, grid_sampler


def _with_train(f: Callable[..., Tensor], inplace: bool) -> Any:
    def drop(input: Tensor, p: float, train: bool) -> Tensor:
        return f(input, p, train, inplace)

    drop.__name__ = drop.__qualname__ = f.__name__ + ("_" if inplace else "")
    drop.__doc__ = f.__doc__
    return drop


dropout, dropout_ = (_with_train(F.dropout, inplace) for inplace in (False, True))
alpha_dropout, alpha_dropout_ = (_with_train(F.alpha_dropout, inplace) for inplace in (False, True))
feature_dropout, feature_dropout_ = (_with_train(F.feature_dropout, inplace) for inplace in (False, True))
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
    return affine_grid(theta, size, align_corners)


_checks.install(globals())
