"""Training by configuration: what precision, what when it overflows, what was met. For loops of one's own, ``ampc.amp`` is enough."""

from .config import AMPConfig, OptimizationLevel, PerformanceConfig
from .performance import PerformanceOptimizer, create_performance_optimizer
from .trainer import TrainingOptimizer

__all__ = ["AMPConfig", "OptimizationLevel", "PerformanceConfig", "PerformanceOptimizer", "TrainingOptimizer", "create_performance_optimizer"]
