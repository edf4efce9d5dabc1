"""Sequences of several lengths in one batch: padded to the longest, or packed step by step without padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple, Union

from ... import _C, _ops
from ..._C import Tensor
from ..._messages import checks as _checks
from ..._names.missing import absent_from
from ..._tensor import creation as make
from .._packed_sequence import PackedSequence, invert_permutation

__all__ = ["PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence",
           "unpack_sequence", "unpad_sequence"]


def _lengths(what: str, lengths: Any, batch: int) -> Any:
    import numpy as np

    if isinstance(lengths, Tensor):
        lengths = lengths.detach().cpu().numpy()
    counts = np.asarray(lengths, dtype=np.int64)
    if counts.ndim != 1 or len(counts) != batch:
        raise RuntimeError(f"{what}: `lengths` must name the length of each of {batch} sequences, got shape {counts.shape}")
    if batch == 0 or counts.min() <= 0:
        raise RuntimeError(f"{what}: every length must be greater than 0, got {counts.tolist()}")
    return counts


def _rows(x: Tensor, batch_first: bool) -> Tuple[Tensor, int]:
    """[steps * sequences, ...] and what a step is worth in it."""
    steps = x.transpose(0, 1) if batch_first else x
    return steps.reshape(steps.shape[0] * steps.shape[1], *steps.shape[2:]), steps.shape[1]


def pack_padded_sequence(input: Tensor, lengths: Union[Tensor, List[int]], batch_first: bool = False,
                         enforce_sorted: bool = True) -> PackedSequence:
    """Packs [steps, sequences, ...] ([sequences, steps, ...] with ``batch_first``) whose sequences are padded to one length.
    Lengths must fall when ``enforce_sorted``, else they are sorted here. RuntimeError for lengths that do not fit."""
    import numpy as np

    steps, batch = (input.shape[1], input.shape[0]) if batch_first else (input.shape[0], input.shape[1])
    counts = _lengths("pack_padded_sequence", lengths, batch)
    if counts.max() > steps:
        raise RuntimeError(f"pack_padded_sequence: a length of {counts.max()} exceeds the {steps} steps that `input` has")
    order = None
    if enforce_sorted:
        if np.any(np.diff(counts) > 0):
            raise RuntimeError("pack_padded_sequence: `lengths` must be sorted from longest to shortest; or pass enforce_sorted=False")
    else:
        by_length = np.argsort(-counts, kind="stable")
        counts = counts[by_length]
        order = _C.from_numpy(by_length).to(input.device)
        input = input.index_select(0 if batch_first else 1, order)
    sizes = (counts[None, :] > np.arange(counts[0])[:, None]).sum(1)
    flat, width = _rows(input, batch_first)
    indices = np.concatenate([t * width + np.arange(n) for t, n in enumerate(sizes)])
    data = flat.index_select(0, _C.from_numpy(indices).to(input.device))
    return PackedSequence(data, _C.from_numpy(sizes.astype(np.int64)), order)


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: Optional[int] = None) -> Tuple[Tensor, Tensor]:
    """Undoes `pack_padded_sequence`: the padded tensor, with at least ``total_length`` steps, and the lengths (int64, on the
    CPU). ValueError for a total length below the longest sequence."""
    import numpy as np

    data, sizes = sequence.data, sequence.batch_sizes.numpy()
    steps, batch = len(sizes), int(sizes[0])
    if total_length is not None:
        if total_length < steps:
            raise ValueError(f"pad_packed_sequence: `total_length` is {total_length}, the longest sequence has {steps} steps")
        steps = total_length
    first = np.concatenate([[0], np.cumsum(sizes)])
    indices = np.full((steps, batch), data.shape[0], np.int64)  # past the data lies the padding
    for t, n in enumerate(sizes):
        indices[t, :n] = first[t] + np.arange(n)
    padding = make.full((1, *data.shape[1:]), padding_value, dtype=data.dtype, device=data.device)
    lengths = _C.from_numpy((indices < data.shape[0]).sum(0).astype(np.int64))
    order = sequence.unsorted_indices
    if order is not None:
        unsorted = order.cpu().numpy()
        indices, lengths = indices[:, unsorted], lengths[_C.from_numpy(unsorted)]
    if batch_first:
        indices = indices.T
    index = _C.from_numpy(np.ascontiguousarray(indices).reshape(-1)).to(data.device)
    rows = _ops.cat([data, padding]).index_select(0, index)
    return rows.reshape(*indices.shape, *data.shape[1:]), lengths


def pad_sequence(sequences: Union[Tensor, Sequence[Tensor]], batch_first: bool = False, padding_value: float = 0.0,
                 padding_side: str = "right") -> Tensor:
    """Sequences [length, ...] as one tensor [longest, sequences, ...] ([sequences, longest, ...] with ``batch_first``), filled
    up with ``padding_value`` on their 'right' or 'left'. ValueError for another side; RuntimeError without sequences."""
    if not isinstance(sequences, (Tensor, str)) and not hasattr(sequences, "__iter__"):
        raise RuntimeError(f"pad_sequence: expected a list of Tensors, got {type(sequences).__name__}")
    every = _checks.tensors(list(sequences), "pad_sequence")
    if padding_side not in ("right", "left"):
        raise ValueError(f"pad_sequence: `padding_side` must be 'right' or 'left', got {padding_side!r}")
    if not every:
        raise RuntimeError("pad_sequence: there is no sequence to pad")
    longest = max(s.shape[0] for s in every)
    filled = []
    for s in every:
        missing = longest - s.shape[0]
        if missing:
            pad = make.full((missing, *s.shape[1:]), padding_value, dtype=s.dtype, device=s.device)
            s = _ops.cat([s, pad] if padding_side == "right" else [pad, s])
        filled.append(s)
    return _ops.stack(filled, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> List[Tensor]:
    """Undoes `pad_sequence` (padded on the right): a list of sequences of these lengths."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:n] for row, n in zip(rows.unbind(), lengths.tolist())]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs sequences [length, ...]."""
    return pack_padded_sequence(pad_sequence(sequences), [s.shape[0] for s in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> List[Tensor]:
    """Undoes `pack_sequence`."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


_checks.install(globals())

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
