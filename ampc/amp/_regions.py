"""Runs a module as a whole in the dtype that the region's policy sets for its name."""

from __future__ import annotations

from typing import Any

from .. import _C
from ..policy import state
from .autocast_mode import _cast, autocast


class _WithoutModules(_C.Scope):
    """A scope in which the policy's patterns for modules have no effect."""

    def _changes(self) -> tuple:
        return ((setattr, (state, "by_module", None), setattr, (state, "by_module", state.by_module)),)


def call_module(module: Any, args: tuple, kwargs: dict) -> Any:
    """Calls a module in the dtype that the region's policy sets for its name, if it does."""
    policy = state.by_module
    dtype = policy.dtype_of(module) if policy is not None and _C._autocast_active() else None
    if dtype is None:
        return module._ampc_call(args, kwargs)
    device = "cuda" if _C._is_autocast_enabled("cuda") and not _C._is_autocast_enabled("cpu") else "cpu"
    region = autocast(device, enabled=False) if dtype is _C.float32 else autocast(device, dtype=dtype)
    if dtype is _C.float32:
        args, kwargs = _cast(args, dtype, None), _cast(kwargs, dtype, None)
    with _WithoutModules(), region:
        return module._ampc_call(args, kwargs)
