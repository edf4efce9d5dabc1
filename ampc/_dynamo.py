"""Options of torch._dynamo, which scripts set. There is no such compiler here, so the options are accepted without effect."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List

from ._names.missing import absent_from
from .compiler import compile, disable, is_compiling, reset

__all__ = ["allow_in_graph", "config", "disable", "disallow_in_graph", "graph_break", "is_compiling", "mark_dynamic", "mark_static",
           "mark_static_address", "optimize", "reset"]

config = SimpleNamespace(suppress_errors=False, cache_size_limit=8, capture_scalar_outputs=False, dynamic_shapes=True, verbose=False)


def allow_in_graph(fn: Any) -> Any:
    """``fn`` itself."""
    return fn


disallow_in_graph = allow_in_graph


def optimize(*args: Any, **options: Any) -> Any:
    """A decorator that returns its function, as ``compile`` does, with its warning."""
    return lambda f: compile(f)


def graph_break() -> None:
    """Nothing: there is no graph."""


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Nothing: there is no graph."""


def mark_dynamic(t: Any, index: Any, **options: Any) -> None:
    """Nothing: there is no graph."""


mark_static = mark_dynamic
__path__: List[str] = []  # the table has modules below this one
__getattr__ = absent_from(__name__)
