"""Modules made without first values, and weights in another order of memory: what torch does for speed, and is not needed here."""

from __future__ import annotations

from typing import Any

from ..._tensor.layout import check_format
from ..modules.module import Module


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """``module_cls(*args, **kwargs)``, for one whose parameters are set afterwards. torch's have no values until then; these have first ones.
    RuntimeError for a class that is no Module, or takes no ``device``."""
    import inspect

    if not isinstance(module_cls, type) or not issubclass(module_cls, Module):
        raise RuntimeError(f"skip_init: expected a Module, got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError(f"skip_init: {module_cls.__name__} takes no `device`")
    return module_cls(*args, **kwargs)


def convert_conv2d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """The module itself: convolutions read a packed copy of their weights, which stay row-major."""
    check_format(memory_format, "convert_conv2d_weight_memory_format")
    return module


def convert_conv3d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """The module itself, as convert_conv2d_weight_memory_format."""
    check_format(memory_format, "convert_conv3d_weight_memory_format")
    return module
