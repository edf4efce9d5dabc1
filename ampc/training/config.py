"""The configuration of mixed-precision training: plain data, checked when it is created."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Dict, Optional, Tuple, Union


class OptimizationLevel(str, Enum):
    """A preset of a PerformanceConfig: how many optimizations it turns on."""

    BASIC = "basic"
    ADVANCED = "advanced"
    ULTRA = "ultra"


def _check(owner: Any, name: str, good: bool, allowed: str) -> None:
    if not good:
        raise ValueError(f"{type(owner).__name__}: `{name}` is {getattr(owner, name)!r}; allowed: {allowed}")


def _check_bools(owner: Any) -> None:
    for f in fields(owner):
        if f.type == "bool":
            _check(owner, f.name, isinstance(getattr(owner, f.name), bool), "True or False")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


@dataclass(frozen=True)
class AMPConfig:
    """Settings of mixed precision. ``dataclasses.replace(config, dtype='bfloat16')`` changes a field.

    A ValueError names the field, its value and the allowed values."""

    enabled: bool = True  # False: float32 throughout
    dtype: str = "float16"  # of autocast regions: 'float16', 'bfloat16' or 'float32' (none is opened)
    init_scale: float = 2.0**16  # the GradScaler's four
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    scale_loss: bool = True  # divide each micro-batch's loss by their number, so that gradients are the whole batch's mean
    enable_gradient_scaling: bool = True  # a GradScaler, where dtype is float16
    clear_gradients_after_step: bool = True
    enable_tf32: bool = True  # float32 products and convolutions on a GPU may round to tf32
    enable_cudnn_benchmark: bool = True
    enable_fallback_to_fp32: bool = True  # a step that overflows is computed again in float32
    max_fp32_fallbacks: int = 10  # in an epoch; beyond, losses that are not finite are skipped, and models that raise an error go on in float32
    enable_amp_memory_pooling: bool = False  # hold this process to a part of the GPU's memory:
    amp_memory_fraction: float = 0.8
    track_amp_stats: bool = True  # scales and memory, step by step
    sync_across_gpus: bool = True  # of several processes: average gradients, join losses, and decide alike
    sync_batch_norm: bool = True  # and batch norms use the batches of all processes together
    enable_distributed_accumulation: bool = True  # and gradients travel once a step, after the last micro-batch

    def __post_init__(self) -> None:
        _check_bools(self)
        _check(self, "dtype", self.dtype in ("float16", "bfloat16", "float32"), "'float16', 'bfloat16', 'float32'")
        _check(self, "init_scale", _is_number(self.init_scale) and 2.0**-126 <= self.init_scale <= 2.0**127, "a number from 2^-126 to 2^127")
        _check(self, "growth_factor", _is_number(self.growth_factor) and self.growth_factor > 1, "a number above 1")
        _check(self, "backoff_factor", _is_number(self.backoff_factor) and 0 < self.backoff_factor < 1, "a number between 0 and 1")
        _check(self, "growth_interval", _is_count(self.growth_interval, 1), "a whole number of 1 or more")
        _check(self, "max_fp32_fallbacks", _is_count(self.max_fp32_fallbacks, 0), "a whole number of 0 or more")
        _check(self, "amp_memory_fraction", _is_number(self.amp_memory_fraction) and 0 < self.amp_memory_fraction <= 1, "a number above 0, at most 1")

    @property
    def scaler_options(self) -> Dict[str, Any]:
        """What a GradScaler is made with."""
        return {"init_scale": float(self.init_scale), "growth_factor": self.growth_factor, "backoff_factor": self.backoff_factor,
                "growth_interval": self.growth_interval, "enabled": self.enabled and self.enable_gradient_scaling and self.dtype == "float16"}


@dataclass(frozen=True)
class PerformanceConfig:
    """A training's settings; ``preset(level)`` gives those of a level. ValueError as AMPConfig's."""

    optimization_level: OptimizationLevel = OptimizationLevel.ADVANCED
    amp_config: AMPConfig = field(default_factory=AMPConfig)
    gradient_accumulation_steps: int = 1  # micro-batches to a step of the optimizer
    max_grad_norm: Optional[float] = None  # clip to it
    on_too_many_fallbacks: str = "warn"  # beyond max_fp32_fallbacks in an epoch; or 'bfloat16': go on in that

    def __post_init__(self) -> None:
        level = self.optimization_level
        if isinstance(level, str) and level in [e.value for e in OptimizationLevel]:
            object.__setattr__(self, "optimization_level", OptimizationLevel(level))
        _check(self, "optimization_level", isinstance(self.optimization_level, OptimizationLevel), "'basic', 'advanced', 'ultra'")
        _check(self, "amp_config", isinstance(self.amp_config, AMPConfig), "an AMPConfig")
        _check(self, "gradient_accumulation_steps", _is_count(self.gradient_accumulation_steps, 1), "a whole number of 1 or more")
        _check(self, "max_grad_norm", self.max_grad_norm is None or (_is_number(self.max_grad_norm) and self.max_grad_norm > 0),
               "None or a number above 0")
        _check(self, "on_too_many_fallbacks", self.on_too_many_fallbacks in ("warn", "bfloat16"), "'warn', 'bfloat16'")

    @classmethod
    def preset(cls, level: Union[OptimizationLevel, str]) -> PerformanceConfig:
        """basic: float32. advanced: float16 with a GradScaler. ultra: bfloat16, at most 3 fallbacks an epoch."""
        configs: Dict[str, Tuple[AMPConfig, str]] = {
            "basic": (AMPConfig(enabled=False, enable_tf32=False, enable_cudnn_benchmark=False), "warn"),
            "advanced": (AMPConfig(), "bfloat16"),
            "ultra": (AMPConfig(dtype="bfloat16", max_fp32_fallbacks=3), "warn"),
        }
        name = level.value if isinstance(level, OptimizationLevel) else level
        if name not in configs:
            raise ValueError(f"PerformanceConfig: there is no level {level!r}; allowed: 'basic', 'advanced', 'ultra'")
        amp, beyond = configs[name]
        return cls(optimization_level=OptimizationLevel(name), amp_config=amp, on_too_many_fallbacks=beyond)
