"""Checks and normalises the numbers of dimensions, which count from the front or from the back."""

from __future__ import annotations


def wrap_dim(dim: int, ndim: int, what: str) -> int:
    """``dim`` counted from the front. A 0-d tensor counts as one of 1 dimension. IndexError where there is no such dimension."""
    n = max(ndim, 1)
    if not -n <= dim < n:
        raise IndexError(f"{what}: dimension {dim} is out of range for a tensor of {ndim} dimensions (expected {-n} to {n - 1})")
    return dim % n
