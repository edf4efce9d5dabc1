"""Options of torch._dynamo, which scripts set. There is no such compiler here, so the options are accepted without effect."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .compiler import disable, is_compiling, reset

__all__ = ["allow_in_graph", "config", "disable", "disallow_in_graph", "graph_break", "is_compiling", "mark_dynamic", "mark_static",
           "mark_static_address", "reset"]

config = SimpleNamespace(suppress_errors=False, cache_size_limit=8, capture_scalar_outputs=False, dynamic_shapes=True, verbose=False)


def allow_in_graph(fn: Any) -> Any:
    """``fn`` itself."""
    return fn


disallow_in_graph = allow_in_graph


def graph_break() -> None:
    """Nothing: there is no graph."""


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Nothing: there is no graph."""


def mark_dynamic(t: Any, index: Any, **options: Any) -> None:
    """Nothing: there is no graph."""


mark_static = mark_dynamic
