"""CUDA graphs are not supported yet; the names raise an error that says so."""

from __future__ import annotations

from typing import Any, NoReturn


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    """RuntimeError: CUDA graphs are not there yet."""
    raise RuntimeError("CUDA graphs are not there yet; run the operators as they are")


class CUDAGraph:
    """RuntimeError: CUDA graphs are not there yet."""

    __init__ = _refuse


class graph:
    """RuntimeError: CUDA graphs are not there yet."""

    __init__ = _refuse


graph_pool_handle = make_graphed_callables = _refuse


def is_current_stream_capturing() -> bool:
    """False."""
    return False
