"""Functions of tensors that give no tensor, or several; some are methods, too (see methods.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

from .. import _C, _ops
from .._C import Tensor
from .._messages import checks as _checks

__all__ = ["allclose", "chunk", "equal", "is_floating_point", "is_tensor", "nonzero", "numel", "split", "unbind", "where"]


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


def chunk(input: Tensor, chunks: int, dim: int = 0, *, axis: Optional[int] = None) -> tuple:
    """At most ``chunks`` pieces of equal size along ``dim``, or ``axis``."""
    dim = dim if axis is None else axis
    if type(chunks) is not int:
        if not _checks.is_integer(chunks):
            raise TypeError(f"chunk: `chunks` must be an int, got {type(chunks).__name__}")
        chunks = int(chunks)
    if chunks < 1:
        raise RuntimeError(f"chunk: `chunks` must be 1 or more, got {chunks}")
    if _checks.need_tensor("chunk", input).ndim == 0:
        raise RuntimeError("chunk: a 0-d tensor has no dimension to cut")
    n = input.size(dim)
    return input.split(-(-n // chunks) if n else [0] * chunks, dim)


def unbind(input: Tensor, dim: int = 0, *, axis: Optional[int] = None) -> tuple:
    """The slices along ``dim``, or ``axis``, as views."""
    return _checks.need_tensor("unbind", input)._cut_into(None, dim if axis is None else axis, True)


def nonzero(input: Tensor, *, as_tuple: bool = False, out: Optional[Tensor] = None) -> Any:
    """Indices of the nonzero elements, one row each; or one tensor a dimension."""
    if out is not None and as_tuple:
        raise RuntimeError("nonzero: `out` is one tensor; it does not go with as_tuple=True")
    if not as_tuple:
        return _ops._nonzero(input, out=out)
    return _ops._nonzero(input.reshape(1) if input.ndim == 0 else input).t().contiguous().unbind(0)


def where(condition: Tensor, *values: Any, **named: Any) -> Any:
    """``input`` where ``condition`` holds, ``other`` elsewhere, broadcast; of a condition alone, the indices where it holds: a tuple of
    indices, one for each dimension."""
    if values or named:
        if "input" in named:
            named["x"] = named.pop("input")
        result = _ops.where(condition, *values, **named)
        if values and (isinstance(values[0], Tensor) or isinstance(values[-1], Tensor)):
            return result
        numbers = not any(isinstance(v, Tensor) for v in (*values, *named.values()))
        return result.to(_C.get_default_dtype()) if numbers and result.is_floating_point() else result
    return condition.nonzero(as_tuple=True)


def equal(input: Tensor, other: Tensor) -> bool:
    """True when shapes and all elements are equal."""
    return input.shape == other.shape and bool((input == other).all())


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """True when |input - other| <= atol + rtol * |other| everywhere."""
    return bool(_ops.isclose(input, other, rtol, atol, equal_nan).all())


_checks.install(globals(), hot="where split chunk unbind")
