"""What torch calls ``*_copy`` and ``unsafe_*``: the results of views in memory of their own, and parts that may be written apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Tuple

from .._C import Tensor
from .._messages import checks as _checks
from .._tensor.out import own, written

__all__ = ["split_copy", "split_with_sizes_copy", "unbind_copy", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes",
           "view_copy"]
METHODS = ["unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes"]


def view_copy(input: Tensor, *size: Any, out: Any = None) -> Tensor:
    """view, in memory of its own."""
    return written(own(input.view(*size), input), out, "view_copy")


def _parts(found: Sequence[Tensor], out: Any, what: str) -> Any:
    if out is not None and len(out) != len(found):
        raise RuntimeError(f"{what}: expected {len(found)} Tensors as `out`, got {len(out)}")
    return written(tuple(t.clone() for t in found), out, what)


def unbind_copy(input: Tensor, dim: int = 0, *, out: Any = None) -> Tuple[Tensor, ...]:
    """unbind, each part in memory of its own."""
    return _parts(input.unbind(dim), out, "unbind_copy")


def split_copy(input: Tensor, split_size: int, dim: int = 0, *, out: Any = None) -> Tuple[Tensor, ...]:
    """split, each part in memory of its own."""
    return _parts(input.split(split_size, dim), out, "split_copy")


def split_with_sizes_copy(input: Tensor, split_sizes: Sequence[int], dim: int = 0, *, out: Any = None) -> Tuple[Tensor, ...]:
    """split_with_sizes, each part in memory of its own."""
    return _parts(input.split(list(split_sizes), dim), out, "split_with_sizes_copy")


def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> Tuple[Tensor, ...]:
    """chunk. A part that is written in place has its own history, as long as the others and x are not read again."""
    return input.chunk(chunks, dim)


def unsafe_split(input: Tensor, split_size: int, dim: int = 0) -> Tuple[Tensor, ...]:
    """split, as unsafe_chunk."""
    return input.split(split_size, dim)


def unsafe_split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> Tuple[Tensor, ...]:
    """split_with_sizes, as unsafe_chunk."""
    return input.split(list(split_sizes), dim)


_checks.install(globals())
