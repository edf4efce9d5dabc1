"""What torch calls ``*_copy`` and ``unsafe_*``: the results of views in memory of their own, and parts that may be written apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Tuple

from .. import _checks, _ops
from .._C import Tensor
from .._out import own, takes_out, written

__all__ = ["alias_copy", "as_strided_copy", "detach_copy", "diagonal_copy", "expand_copy", "narrow_copy", "permute_copy", "select_copy",
           "slice_copy", "split_copy", "split_with_sizes_copy", "squeeze_copy", "t_copy", "transpose_copy", "unbind_copy", "unfold_copy",
           "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "unsqueeze_copy", "view_copy"]
METHODS = ["narrow_copy", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes"]


def _copied(name: str, view: Callable[..., Any]) -> Callable[..., Tensor]:
    def copy(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return own(view(input, *args, **kwargs), input)

    copy.__name__ = copy.__qualname__ = name + "_copy"
    copy.__doc__ = f"{name}, in memory of its own."
    return takes_out(copy)


alias_copy = _copied("alias", _ops._alias)
as_strided_copy = _copied("as_strided", _ops.as_strided)
detach_copy = _copied("detach", Tensor.detach)
diagonal_copy = _copied("diagonal", _ops.diagonal)
expand_copy = _copied("expand", Tensor.expand)
narrow_copy = _copied("narrow", _ops.narrow)
permute_copy = _copied("permute", _ops.permute)
select_copy = _copied("select", _ops.select)
squeeze_copy = _copied("squeeze", _ops.squeeze)
t_copy = _copied("t", _ops.t)
transpose_copy = _copied("transpose", _ops.transpose)
unfold_copy = _copied("unfold", _ops.unfold)
unsqueeze_copy = _copied("unsqueeze", _ops.unsqueeze)
view_copy = _copied("view", Tensor.view)


@takes_out
def slice_copy(input: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    """x[start:end:step] along dim, in memory of its own."""
    return own(_ops._slice(input, dim, start, end, step), input)


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
