"""Checks and normalises the numbers of dimensions, which count from the front or from the back; and the shape that several shapes
broadcast to."""

from __future__ import annotations

from typing import Any

from .._messages import checks as _checks
from .device import Size


def wrap_dim(dim: int, ndim: int, what: str) -> int:
    """``dim`` counted from the front. A 0-d tensor counts as one of 1 dimension. IndexError where there is no such dimension."""
    n = max(ndim, 1)
    if not -n <= dim < n:
        raise IndexError(f"{what}: dimension {dim} is out of range for a tensor of {ndim} dimensions (expected {-n} to {n - 1})")
    return dim % n


def broadcast_shapes(*shapes: Any) -> Any:
    """The shape that shapes broadcast to. RuntimeError where they do not."""
    for s in shapes:
        if not isinstance(s, (int, list, tuple, str)):
            raise RuntimeError(f"broadcast_shapes: expected ints, and lists or tuples of them, got {type(s).__name__}")
    shapes = tuple(_checks.integers(s, "broadcast_shapes") for s in shapes)
    if any(size < 0 for s in shapes for size in s):
        raise ValueError("broadcast_shapes: a size is negative")
    n = max((len(s) for s in shapes), default=0)
    out = [1] * n
    for i, shape in enumerate(shapes):
        for d, size in enumerate(shape, n - len(shape)):
            if size != 1 and out[d] not in (1, size):
                raise RuntimeError(f"broadcast_shapes: {list(shape)}, at position {i}, does not fit those before it: sizes {out[d]} and {size}")
            out[d] = out[d] if size == 1 else size
    return Size(out)
