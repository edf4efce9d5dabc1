"""Lists of tensors by device and dtype, as optimizers group them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Dict, List, Optional, Tuple

from .._C import Tensor

Groups = Dict[Tuple[Any, Any], Tuple[List[list], List[int]]]


def _group_tensors_by_device_and_dtype(tensorlistlist: Sequence[Sequence[Optional[Tensor]]], with_indices: bool = False) -> Groups:
    """The lists, all as long as the first or empty, cut into those of the same device and dtype by the first list's tensors.
    {(device, dtype): (lists, indices)}; the indices of the entries ``with_indices``, else none."""
    if not tensorlistlist or any(t is None for t in tensorlistlist[0]):
        raise RuntimeError("_group_tensors_by_device_and_dtype: the first list must hold tensors alone")
    if any(len(column) not in (0, len(tensorlistlist[0])) for column in tensorlistlist):
        raise RuntimeError("_group_tensors_by_device_and_dtype: the lists must be as long as the first, or empty")
    where: Dict[Tuple[Any, Any], List[int]] = {}
    for i, t in enumerate(tensorlistlist[0]):
        assert t is not None
        where.setdefault((t.device, t.dtype), []).append(i)
    return {key: ([[column[i] for i in indices] if column else [] for column in tensorlistlist], indices if with_indices else [])
            for key, indices in where.items()}
