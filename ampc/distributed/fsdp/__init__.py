"""Modules whose parameters are spread over processes: ``fully_shard``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._names.missing import absent_from
from ._fully_shard import FSDPModule, UnshardHandle, fully_shard, register_fsdp_forward_method
from ._policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from ._scaler import ShardedGradScaler

__all__ = ["CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "ShardedGradScaler", "UnshardHandle", "fully_shard",
           "register_fsdp_forward_method"]

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
