"""Makes a batch of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, Dict

import numpy as np

from ... import _C, _ops
from ... import _creation as make
from ..._C import Tensor

_cat = _ops.cat
# How samples of a type are joined, where packages have it otherwise than default_collate: fn(batch, collate_fn_map=...). Ours are not in it.
default_collate_fn_map: Dict[type, Callable[..., Any]] = {}


def default_convert(data: Any) -> Any:
    """NumPy arrays and numbers as Tensors, wherever they are in ``data``; all else as it is."""
    if isinstance(data, (Tensor, str, bytes)):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        return data if data.dtype.kind in "SUO" else make.as_tensor(np.ascontiguousarray(data), device="cpu").reshape(data.shape)
    if isinstance(data, Mapping):
        return {k: default_convert(v) for k, v in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(default_convert, data))
    if isinstance(data, Sequence):
        return [default_convert(v) for v in data]
    return data


def collate_tensor_fn(batch: Sequence[Tensor], *, collate_fn_map: Any = None) -> Tensor:
    """Tensors of one shape, stacked. TypeError for anything else among them; RuntimeError for different shapes."""
    for t in batch:
        if not isinstance(t, Tensor):
            raise TypeError(f"default_collate: expected Tensors, as the first sample is one, got {type(t).__name__}")
    if any(t.shape != batch[0].shape for t in batch):
        raise RuntimeError(f"default_collate: samples of different shapes, {[list(t.shape) for t in batch[:4]]}..., cannot be stacked; "
                           "pad them in a collate_fn of your own")
    return _cat([t.unsqueeze(0) for t in batch], 0)


def default_collate(batch: Sequence[Any]) -> Any:
    """Joins samples into a batch. Tensors and arrays are stacked, numbers become a Tensor, and texts stay a list. Mappings and sequences
    are joined element by element. TypeError for anything else; RuntimeError for sequences of different lengths. Types that packages add to
    ``utils.data._utils.collate.default_collate_fn_map`` are joined by their functions."""
    first = batch[0]
    for kind, join in default_collate_fn_map.items():
        if isinstance(first, kind):
            return join(batch, collate_fn_map=default_collate_fn_map)
    if isinstance(first, Tensor):
        return collate_tensor_fn(batch)
    if isinstance(first, np.ndarray):
        if first.dtype.kind in "SUO":
            raise TypeError(f"default_collate: arrays of {first.dtype} cannot become Tensors")
        return default_collate([make.as_tensor(np.ascontiguousarray(a), device="cpu").reshape(a.shape) for a in batch])
    if isinstance(first, np.generic):
        return make.as_tensor(np.array(batch), device="cpu")
    if isinstance(first, float):
        return make.tensor(batch, dtype=_C.float64, device="cpu")
    if isinstance(first, int):
        return make.tensor(batch, device="cpu")
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return {k: default_collate([sample[k] for sample in batch]) for k in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*map(default_collate, zip(*batch)))
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("default_collate: sequences of different lengths; pad them in a collate_fn of your own")
        return list(map(default_collate, zip(*batch)))
    raise TypeError(f"default_collate: samples must be Tensors, arrays, numbers, text, mappings or sequences, got {type(first).__name__}")
