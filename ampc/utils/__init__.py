"""Around training: data, checkpoints of activations, TensorBoard, counting, measuring. Each part is loaded when it is first asked for."""

from __future__ import annotations

import importlib
from typing import Any

from .._names.missing import absent_from

__all__ = ["_foreach_utils", "_python_dispatch", "_pytree", "benchmark", "checkpoint", "collect_env", "cpp_extension", "data", "deterministic",
           "dlpack", "flop_counter", "hooks", "mobile_optimizer", "model_zoo", "tensorboard"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        return absent_from(__name__)(name)
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
