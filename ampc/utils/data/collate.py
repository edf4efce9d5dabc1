"""Makes a batch of samples."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import numpy as np

from ... import _C, _ops
from ..._C import Tensor
from ..._tensor import creation as make

_cat = _ops.cat
default_collate_err_msg_format = "default_collate: samples must be Tensors, arrays, numbers, text, mappings or sequences, got {}"
CollateMap = Dict[Union[type, Tuple[type, ...]], Callable[..., Any]]


# -- containers like others ------------------------------------------------------------------------------------


def _mapping_like(x: Mapping, values: Dict[Any, Any]) -> Any:
    """The values in a mapping of ``x``'s type; in a dict where none can be made."""
    try:
        if not isinstance(x, MutableMapping):
            return type(x)(values)  # type: ignore[call-arg]
        new = copy.copy(x)
        new.update(values)
        return new
    except TypeError:
        return values


def _sequence_like(x: Sequence, values: List[Any]) -> Any:
    """The values in a sequence of ``x``'s type; in a list for tuples, and where none can be made."""
    if isinstance(x, tuple):
        return values
    try:
        if not isinstance(x, MutableSequence):
            return type(x)(values)  # type: ignore[call-arg]
        new = copy.copy(x)
        for i, value in enumerate(values):
            new[i] = value
        return new
    except TypeError:
        return values


def _from_array(a: Any) -> Tensor:
    return make.as_tensor(np.ascontiguousarray(a), device="cpu").reshape(a.shape)


def default_convert(data: Any) -> Any:
    """NumPy arrays and numbers as Tensors, wherever they are in ``data``; all else as it is. Containers keep their types, but tuples
    without names become lists."""
    if isinstance(data, (Tensor, str, bytes)):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        return data if data.dtype.kind in "SUO" else _from_array(data)
    if isinstance(data, Mapping):
        return _mapping_like(data, {k: default_convert(data[k]) for k in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(default_convert, data))
    if isinstance(data, Sequence):
        return _sequence_like(data, [default_convert(v) for v in data])
    return data


# -- how samples of a type are joined --------------------------------------------------------------------------


def collate(batch: Sequence[Any], *, collate_fn_map: Optional[CollateMap] = None) -> Any:
    """Joins samples into a batch: by the function that the map has for the type of the first, ``fn(batch, collate_fn_map=...)``; its own type
    comes before those that it is a subclass of. Without one, mappings and sequences are joined element by element and keep their types, but
    tuples without names become lists. TypeError for anything else; RuntimeError for sequences of different lengths."""
    first, joins = batch[0], {} if collate_fn_map is None else collate_fn_map
    join = joins.get(type(first)) or next((joins[kind] for kind in joins if isinstance(first, kind)), None)
    if join is not None:
        return join(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        return _mapping_like(first, {k: collate([sample[k] for sample in batch], collate_fn_map=collate_fn_map) for k in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch)))
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("default_collate: sequences of different lengths; pad them in a collate_fn of your own")
        return _sequence_like(first, [collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch)])
    raise TypeError(default_collate_err_msg_format.format(type(first).__name__))


def collate_tensor_fn(batch: Sequence[Tensor], *, collate_fn_map: Any = None) -> Tensor:
    """Tensors of one shape, stacked. TypeError for anything else among them; RuntimeError for different shapes."""
    for t in batch:
        if not isinstance(t, Tensor):
            raise TypeError(f"default_collate: expected Tensors, as the first sample is one, got {type(t).__name__}")
    if any(t.shape != batch[0].shape for t in batch):
        raise RuntimeError(f"default_collate: samples of different shapes, {[list(t.shape) for t in batch[:4]]}..., cannot be stacked; "
                           "pad them in a collate_fn of your own")
    return _cat([t.unsqueeze(0) for t in batch], 0)


def collate_numpy_array_fn(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    """Arrays of one shape, stacked. TypeError for arrays of texts and objects."""
    if batch[0].dtype.kind in "SUO":
        raise TypeError(f"default_collate: arrays of {batch[0].dtype} cannot become Tensors")
    return collate([_from_array(a) if isinstance(a, np.ndarray) else make.as_tensor(a, device="cpu") for a in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Tensor:
    """NumPy's numbers, in a Tensor of their dtype."""
    return make.as_tensor(batch, device="cpu")


def collate_float_fn(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Tensor:
    """Numbers, in a float64 Tensor."""
    return make.tensor(batch, dtype=_C.float64, device="cpu")


def collate_int_fn(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Tensor:
    """Numbers, in a Tensor."""
    return make.tensor(batch, device="cpu")


def collate_str_fn(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    """Texts, as they are."""
    return batch


default_collate_fn_map: CollateMap = {
    Tensor: collate_tensor_fn, np.ndarray: collate_numpy_array_fn, (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn, int: collate_int_fn, str: collate_str_fn, bytes: collate_str_fn,
}


def default_collate(batch: Sequence[Any]) -> Any:
    """Joins samples into a batch. Tensors and arrays are stacked, numbers become a Tensor, and texts stay as they are. Mappings and sequences
    are joined element by element and keep their types, but tuples without names become lists. TypeError for anything else; RuntimeError for
    sequences of different lengths. It is `collate` with ``utils.data._utils.collate.default_collate_fn_map``, to which types can be added."""
    return collate(batch, collate_fn_map=default_collate_fn_map)
