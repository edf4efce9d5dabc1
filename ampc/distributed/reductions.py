"""Reductions, and how MPI computes each of them for each dtype."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Dict, Tuple

import numpy as np

from .. import _C
from .._C import Tensor


class ReduceOp(IntEnum):
    """Reductions. ``ReduceOp.RedOpType`` is another name of it."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR = range(8)


setattr(ReduceOp, "RedOpType", ReduceOp)  # noqa: B010  for mypy it has no such name
_NAMES = ("SUM", "SUM", "PROD", "MIN", "MAX", "BAND", "BOR", "BXOR")  # MPI's, in the order of ReduceOp
_OF_BOOL = ("LOR", "", "LAND", "LAND", "LOR", "LAND", "LOR", "LXOR")
_NUMBERS = {"float64": "DOUBLE", "float32": "FLOAT", "int64": "INT64_T", "int32": "INT32_T", "int16": "INT16_T", "int8": "INT8_T",
            "uint8": "UINT8_T", "uint16": "UINT16_T", "uint32": "UINT32_T", "uint64": "UINT64_T"}
_made: Dict[Any, Any] = {}  # operations of our own
HALVES = (_C.float16, _C.bfloat16)
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")  # as tags of messages number them
_BYTES = {1: "UINT8_T", 2: "UINT16_T", 4: "UINT32_T", 8: "UINT64_T"}


def type_of_bytes(MPI: Any, t: Tensor) -> Any:
    """MPI's type for moving the tensor's elements as they are."""
    return getattr(MPI, _BYTES[t.element_size()])


def has_op(dtype: Any, op: ReduceOp) -> bool:
    """Whether elements of this dtype can be reduced so."""
    return op not in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR) if dtype.is_floating_point else op is not ReduceOp.AVG


def check_reduction(what: str, op: Any, t: Tensor) -> ReduceOp:
    """The reduction. TypeError for what is none; RuntimeError for one that the dtype does not have."""
    if not isinstance(op, ReduceOp):
        raise TypeError(f"{what}: `op` must be one of ampc.distributed.ReduceOp (SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR), got {op!r}")
    if not has_op(t.dtype, op):
        other = "; reduce with SUM and divide" if op is ReduceOp.AVG else ""
        raise RuntimeError(f"{what}: ReduceOp.{op.name} is of {'floating point' if other else 'integers and bool'}, got {t.dtype}{other}")
    return op


def widened(t: Tensor) -> Tensor:
    """The tensor in the dtype that MPI reduces it in: 16-bit floating point in float32, so that it is rounded once, and small integers in int32:
    Open MPI's sums of 8 and 16 bits end at the largest number on some CPUs, others wrap around."""
    if t.dtype in HALVES:
        return t.float()
    return t.int() if t.dtype in (_C.int8, _C.uint8, _C.int16) else t


def _nan_wins(MPI: Any, op: ReduceOp, dtype: str) -> Any:
    """MPI's own MIN and MAX may lose nan, or give it to some ranks alone."""
    if (op, dtype) not in _made:
        f = np.minimum if op is ReduceOp.MIN else np.maximum

        def combine(given: Any, kept: Any, kind: Any) -> None:
            kept = np.frombuffer(kept, dtype)
            f(np.frombuffer(given, dtype), kept, out=kept)

        _made[op, dtype] = MPI.Op.Create(combine, commute=True)
    return _made[op, dtype]


def type_and_op(MPI: Any, t: Tensor, op: ReduceOp) -> Tuple[Any, Any]:
    """MPI's type and operation for a reduction of a tensor that is ``widened``."""
    if t.dtype == _C.bool:
        return MPI.C_BOOL, getattr(MPI, _OF_BOOL[op])
    if t.is_floating_point() and op in (ReduceOp.MIN, ReduceOp.MAX):
        return getattr(MPI, _NUMBERS[t.dtype.name]), _nan_wins(MPI, op, t.dtype.name)
    return getattr(MPI, _NUMBERS[t.dtype.name]), getattr(MPI, _NAMES[op])
