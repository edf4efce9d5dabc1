"""Training by a configuration, which sets the precision and what follows an overflow. Your own loops need only ``ampc.amp``."""

from .config import AMPConfig, OptimizationLevel, PerformanceConfig
from .performance import PerformanceOptimizer, create_performance_optimizer
from .trainer import TrainingOptimizer

__all__ = ["AMPConfig", "OptimizationLevel", "PerformanceConfig", "PerformanceOptimizer", "TrainingOptimizer", "create_performance_optimizer"]
