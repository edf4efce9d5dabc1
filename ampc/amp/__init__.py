"""Automatic mixed precision: ``autocast`` and ``GradScaler``, as torch.amp has them."""

from typing import TYPE_CHECKING

from .._C import (
    clear_autocast_cache,
    get_autocast_dtype,
    is_autocast_cache_enabled,
    set_autocast_cache_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
    set_weight_copy_limit,
    weight_copy_bytes,
    weight_copy_stats,
)
from .._names.missing import absent_from
from .autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available, is_autocast_enabled
from .grad_scaler import GradScaler, OptState
from .loss_scale import DynamicLossScaler, StaticLossScaler

__all__ = [
    "DynamicLossScaler", "GradScaler", "OptState", "StaticLossScaler", "autocast", "clear_autocast_cache", "custom_bwd", "custom_fwd",
    "get_autocast_dtype", "is_autocast_available", "is_autocast_cache_enabled", "is_autocast_enabled", "set_autocast_cache_enabled",
    "set_autocast_dtype", "set_autocast_enabled", "set_weight_copy_limit", "weight_copy_bytes", "weight_copy_stats",
]

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
