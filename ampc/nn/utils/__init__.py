"""Utilities for modules: gradient clipping, sequences of several lengths, parametrized weights, parameters as one vector, fused layers, pruning."""

import importlib
from typing import Any

from ..._names.missing import absent_from as _absent_from
from . import parametrizations, parametrize, rnn
from .clip_grad import clip_grad_norm, clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from .conversion import convert_conv2d_weight_memory_format, convert_conv3d_weight_memory_format, skip_init
from .convert_parameters import parameters_to_vector, vector_to_parameters
from .fusion import fuse_conv_bn_eval, fuse_conv_bn_weights, fuse_linear_bn_eval, fuse_linear_bn_weights
from .spectral_norm import remove_spectral_norm, spectral_norm
from .weight_norm import remove_weight_norm, weight_norm

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format", "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights",
    "get_total_norm", "parameters_to_vector", "parametrizations", "parametrize", "remove_spectral_norm", "remove_weight_norm", "rnn", "skip_init",
    "spectral_norm", "vector_to_parameters", "weight_norm",
]


def __getattr__(name: str) -> Any:
    """``prune`` and ``stateless`` are loaded when they are first asked for."""
    if name not in ("prune", "stateless"):
        return _absent_from(__name__)(name)
    return importlib.import_module(f"{__name__}.{name}")
