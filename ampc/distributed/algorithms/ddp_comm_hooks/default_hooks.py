"""Hooks that average gradients, as they are or rounded to 16 bits. The ``state`` of each is the group of processes, or None for all.

The numbers are torch's. Sums are in float32, which is what travels by MPI, so rounding makes no message shorter here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from .... import _C
from ...._names.missing import absent_from
from ....futures import Future
from ...collectives import all_reduce
from ...reductions import ReduceOp

__all__ = ["allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook", "fp16_compress_wrapper"]


def _averaged(group: Any, row: Any) -> Future:
    work: Any = all_reduce(row, ReduceOp.AVG, group, async_op=True)
    return work.get_future().then(lambda f: f.value()[0])


def allreduce_hook(process_group: Any, bucket: Any) -> Future:
    """The average, as without a hook."""
    return _averaged(process_group, bucket.buffer())


def _rounded(group: Any, bucket: Any, dtype: Any) -> Future:
    row = bucket.buffer()
    return _averaged(group, row.to(dtype)).then(lambda f: f.value().to(row.dtype))


def fp16_compress_hook(process_group: Any, bucket: Any) -> Future:
    """The average of gradients that each process rounds to float16. Values beyond 65504 become infinite."""
    return _rounded(process_group, bucket, _C.float16)


def bf16_compress_hook(process_group: Any, bucket: Any) -> Future:
    """The average of gradients that each process rounds to bfloat16."""
    return _rounded(process_group, bucket, _C.bfloat16)


def _wrapped(hook: Callable[[Any, Any], Future], dtype: Any) -> Callable[[Any, Any], Future]:
    def rounds(state: Any, bucket: Any) -> Future:
        row = bucket.buffer()
        bucket.set_buffer(row.to(dtype).to(row.dtype))
        return hook(state, bucket)

    return rounds


def fp16_compress_wrapper(hook: Callable[[Any, Any], Future]) -> Callable[[Any, Any], Future]:
    """``hook``, which gets gradients that were rounded to float16, in their own dtype."""
    return _wrapped(hook, _C.float16)


def bf16_compress_wrapper(hook: Callable[[Any, Any], Future]) -> Callable[[Any, Any], Future]:
    """``hook``, which gets gradients that were rounded to bfloat16, in their own dtype."""
    return _wrapped(hook, _C.bfloat16)


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
