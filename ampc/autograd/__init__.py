"""Automatic differentiation: ``backward``, ``grad``, hooks, modes and Python Functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._names.missing import absent_from
from . import functional, graph
from .anomaly_mode import detect_anomaly, set_detect_anomaly
from .engine import backward, grad
from .function import Function, FunctionCtx, once_differentiable
from .grad_mode import (
    enable_grad,
    inference_mode,
    is_multithreading_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .variable import Variable

__all__ = ["Function", "FunctionCtx", "GradcheckError", "backward", "detect_anomaly", "enable_grad", "functional", "grad", "graph", "gradcheck",
           "gradgradcheck", "inference_mode", "is_multithreading_enabled", "no_grad", "once_differentiable", "set_detect_anomaly", "set_grad_enabled",
           "set_multithreading_enabled", "Variable"]

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
