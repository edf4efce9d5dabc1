"""torch.compile and torch.compiler: models and functions run as they are, because the core is compiled already."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Optional

from ._messages.once import say_that_nothing_is_compiled
from ._names.missing import absent_from
from .nn import Module
from .nn._optimized import OptimizedModule

__all__ = ["compile", "disable", "is_compiling", "is_dynamo_compiling", "reset", "set_stance"]


def compile(model: Optional[Callable] = None, **options: Any) -> Any:
    """A function itself, and of a module an OptimizedModule, which calls it as its ``_orig_mod``; also as a decorator with or without
    arguments. torch's options say how it would be translated, which nothing here does; a UserWarning says so once. TypeError for what
    cannot be called."""
    if model is None:
        return lambda f: compile(f)
    if not callable(model):
        raise TypeError(f"compile: expected a module or a function, got {type(model).__name__}")
    say_that_nothing_is_compiled()
    return OptimizedModule(model) if isinstance(model, Module) and not isinstance(model, OptimizedModule) else model


def disable(fn: Optional[Callable] = None, recursive: bool = True, *, reason: Optional[str] = None) -> Any:
    """``fn`` itself."""
    return fn if fn is not None else lambda f: f


def is_compiling() -> bool:
    """False."""
    return False


is_dynamo_compiling = is_compiling


def reset() -> None:
    """Does nothing: no translation is kept."""


@contextmanager
def set_stance(*args: Any, **kwargs: Any) -> Iterator[None]:
    """Does nothing."""
    yield


__path__: List[str] = []  # the table has modules below this one
__getattr__ = absent_from(__name__)
