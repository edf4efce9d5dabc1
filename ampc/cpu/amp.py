"""torch's older spelling of ``ampc.amp`` for 'cpu'."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, List

from .. import amp as _amp
from .._names.missing import absent_from


class autocast(_amp.autocast):
    """``ampc.amp.autocast('cpu', ...)``"""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: Any = None) -> None:
        super().__init__("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(_amp.GradScaler):
    """``ampc.amp.GradScaler('cpu', ...)``"""

    def __init__(self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True, **options: Any) -> None:
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled, **options)


custom_fwd = functools.partial(_amp.custom_fwd, device_type="cpu")
custom_bwd = functools.partial(_amp.custom_bwd, device_type="cpu")

__path__: List[str] = []  # the table has modules below this one

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
