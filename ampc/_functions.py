"""Functions that torch offers in addition to methods of the same name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

from . import _C, _checks
from ._C import Tensor
from ._out import written


def is_tensor(obj: Any) -> bool:
    """True for a Tensor."""
    return isinstance(obj, Tensor)


def is_floating_point(input: Tensor) -> bool:
    """True for floating point elements."""
    return input.is_floating_point()


def numel(input: Tensor) -> int:
    """Number of elements."""
    return input.numel()


def split(tensor: Tensor, split_size_or_sections: Union[int, Sequence[int]], dim: int = 0) -> tuple:
    """Tensor.split"""
    return tensor.split(split_size_or_sections, dim)


def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple:
    """Tensor.chunk"""
    return input.chunk(chunks, dim)


def unbind(input: Tensor, dim: int = 0) -> tuple:
    """Tensor.unbind"""
    return input.unbind(dim)


def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Tensor.movedim"""
    return input.movedim(source, destination)


def nonzero(input: Tensor, *, as_tuple: bool = False, out: Optional[Tensor] = None) -> Any:
    """Tensor.nonzero"""
    if out is not None and as_tuple:
        raise RuntimeError("nonzero: `out` is one tensor; it does not go with as_tuple=True")
    return written(input.nonzero(as_tuple=as_tuple), out, "nonzero")


_where = _C._functions["where"]


def where(condition: Tensor, *values: Any, **named: Any) -> Any:
    """``input`` where ``condition`` holds, ``other`` elsewhere, broadcast; of a condition alone, the indices where it holds: a tuple of
    indices, one for each dimension."""
    if values or named:
        if "input" in named:
            named["x"] = named.pop("input")
        result = _where(condition, *values, **named)
        if values and (isinstance(values[0], Tensor) or isinstance(values[-1], Tensor)):
            return result
        numbers = not any(isinstance(v, Tensor) for v in (*values, *named.values()))
        return result.to(_C.get_default_dtype()) if numbers and result.is_floating_point() else result
    return condition.nonzero(as_tuple=True)


def equal(input: Tensor, other: Tensor) -> bool:
    """Tensor.equal"""
    return input.equal(other)


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Tensor.allclose"""
    return input.allclose(other, rtol, atol, equal_nan)


_checks.install(globals(), hot="where split chunk movedim")
