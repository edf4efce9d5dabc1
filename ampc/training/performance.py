"""PerformanceOptimizer: a TrainingOptimizer that also reports its state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Union

from .config import AMPConfig, OptimizationLevel, PerformanceConfig
from .trainer import TrainingOptimizer


class PerformanceOptimizer:
    """Trains by a PerformanceConfig. Raises the same errors as TrainingOptimizer."""

    def __init__(self, config: PerformanceConfig) -> None:
        self.training_optimizer = TrainingOptimizer(config)

    @property
    def config(self) -> PerformanceConfig:
        """The current configuration, with changes that apply from the next step."""
        mine = self.training_optimizer
        return replace(mine.config, amp_config=mine._next or mine.amp_config)

    def training_step(self, *args: Any, **kwargs: Any) -> Dict[str, Any]:
        """TrainingOptimizer.training_step"""
        return self.training_optimizer.training_step(*args, **kwargs)

    def get_amp_stats(self) -> Dict[str, Any]:
        """TrainingOptimizer.get_amp_stats"""
        return self.training_optimizer.get_amp_stats()

    def reset_amp_stats(self) -> None:
        """TrainingOptimizer.reset_amp_stats"""
        self.training_optimizer.reset_amp_stats()

    def update_amp_config(self, new_config: AMPConfig) -> None:
        """TrainingOptimizer.update_amp_config"""
        self.training_optimizer.update_amp_config(new_config)

    def get_optimization_status(self) -> Dict[str, Any]:
        """The configuration's main fields, statistics, where accumulation stands, and fields that change nothing here, with the reason."""
        config, mine = self.config, self.training_optimizer
        return {"gradient_accumulation_status": mine.get_gradient_accumulation_status(), "amp_stats": mine.get_amp_stats(),
                "inactive": mine.inactive_fields(),
                "config": {"optimization_level": config.optimization_level.value, "mixed_precision": config.amp_config.enabled,
                           "amp_dtype": config.amp_config.dtype, "amp_tf32": config.amp_config.enable_tf32,
                           "gradient_accumulation_steps": config.gradient_accumulation_steps, "max_grad_norm": config.max_grad_norm}}


def create_performance_optimizer(config: Union[PerformanceConfig, OptimizationLevel, str, None] = None) -> PerformanceOptimizer:
    """From a configuration, or from a level's: 'basic', 'advanced' (the default) or 'ultra'. ValueError for another."""
    if not isinstance(config, PerformanceConfig):
        config = PerformanceConfig.preset(config if config is not None else "advanced")
    return PerformanceOptimizer(config)
