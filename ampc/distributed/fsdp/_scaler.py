"""torch's scaler for sharded modules, which is the scaler of all modules here."""

from __future__ import annotations

from typing import Any

from ...amp import GradScaler


class ShardedGradScaler(GradScaler):
    """A `GradScaler` with the arguments of torch's, whose order is another. A GradScaler serves as well: the processes that share a parameter
    agree on whether a step is skipped, so ``process_group`` is not asked."""

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16, backoff_factor: float = 0.5, growth_factor: float = 2.0,
                 growth_interval: int = 2000, enabled: bool = True, process_group: Any = None) -> None:
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
