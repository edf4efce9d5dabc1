"""What a sample of an operator is: see samples.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Optional


@dataclass
class Sample:
    args: tuple
    kwargs: dict = field(default_factory=dict)
    reference: Optional[Callable[..., Any]] = None  # of the same arguments, in NumPy
    torch: Any = ""  # torch's function; "" = by name, None = torch has none
    grad: bool = True  # differentiable at these arguments
    half: bool = True  # also compared in the half types
    frozen: tuple = ()  # positions or names of arguments that are not differentiated
    torch_grad: bool = True  # torch differentiates it too


def F(name: str) -> Callable[..., Any]:
    """torch.nn.functional's function, looked up when torch is there."""
    def call(*args: Any, **kwargs: Any) -> Any:
        import torch
        return getattr(torch.nn.functional, name)(*args, **kwargs)
    return call


def special(name: str) -> Callable[..., Any]:
    """torch.special's function."""
    def call(*args: Any, **kwargs: Any) -> Any:
        import torch
        return getattr(torch.special, name)(*args, **kwargs)
    return call


def pointwise(f: Optional[Callable], *args: Any, **kw: Any) -> list:
    return [Sample(args, reference=f, **kw)]
