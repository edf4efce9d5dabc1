"""Around training: loading data, checkpoints of activations, writing for TensorBoard. Each part is loaded when it is first asked for."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["_pytree", "checkpoint", "data", "model_zoo", "tensorboard"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
