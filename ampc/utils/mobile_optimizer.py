"""torch.utils.mobile_optimizer's names. They rewrite TorchScript modules, which ampc has none of: all of them refuse."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["generate_mobile_module_lints", "optimize_for_mobile"]

_REASON = "it rewrites TorchScript modules, and ampc has none; save the state dict, and deploy with torch or by ONNX from there"


def optimize_for_mobile(script_module: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """NotImplementedError, with what to do instead."""
    raise NotImplementedError(f"optimize_for_mobile: {_REASON}")


def generate_mobile_module_lints(script_module: Any) -> NoReturn:
    """NotImplementedError, with what to do instead."""
    raise NotImplementedError(f"generate_mobile_module_lints: {_REASON}")
