"""Checkpoints that several processes write and read, each its own rows. Source: torch.distributed.checkpoint."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple, Union

from ..._C import Tensor
from ...autograd.grad_mode import no_grad
from ...serialization import _scratch
from ..collectives import barrier
from ..groups import ProcessGroup, group_of, is_initialized
from ..objects import all_gather_object, broadcast_object_list
from ..tensor._dtensor import DTensor, shard_group, span_of
from ._folder import Files, file_of_rank, read_index, write_index, write_tensors
from ._tree import Path, ends_of, is_stateful, replaced, shown, with_states

Place = Union[str, "os.PathLike[str]", None]


class FileSystemWriter:
    """The folder that ``save`` writes, for scripts that name it so."""

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        self.path = os.fspath(path)


class FileSystemReader:
    """The folder that ``load`` reads."""

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        self.path = os.fspath(path)


def _folder_of(what: str, checkpoint_id: Place, other: Any, name: str) -> str:
    if checkpoint_id is None and other is None:
        raise ValueError(f"{what}: `checkpoint_id` says which folder")
    if checkpoint_id is not None:
        return os.fspath(checkpoint_id)
    if not isinstance(other, (FileSystemWriter, FileSystemReader)):
        raise TypeError(f"{what}: `{name}` must be a FileSystemWriter or FileSystemReader, got {type(other).__name__}")
    return other.path


def _group_of(what: str, process_group: Any, no_dist: bool) -> Optional[ProcessGroup]:
    """The processes that take part; None where this one is alone."""
    return group_of(what, process_group) if is_initialized() and not no_dist else None


# -- saving ------------------------------------------------------------------------------------------------------------


def save(state_dict: Dict[str, Any], *, checkpoint_id: Place = None, storage_writer: Any = None, process_group: Any = None,
         no_dist: bool = False) -> None:
    """Writes a state dict into the folder ``checkpoint_id``: each process the rows that it has of DTensors, and the first process all else, which is
    taken to be the same in all. All processes of the group must call it, and see one folder; a checkpoint that is there is replaced.

    Nothing is pickled: a safetensors file of each process, and an index in JSON. When a process is killed meanwhile, the folder has the checkpoint
    before. Values are tensors, numbers, text, None, lists and dicts of them, and at the top what has ``state_dict`` and ``load_state_dict``.

    Args:
        storage_writer: FileSystemWriter(folder), in place of ``checkpoint_id``.
        no_dist: this process saves alone.

    TypeError for other values; RuntimeError in all processes where one cannot write."""
    folder = _scratch.written_at(_folder_of("save", checkpoint_id, storage_writer, "storage_writer"), folder=True)
    members = _group_of("save", process_group, no_dist)
    rank = 0 if members is None else members.rank()
    begun = [os.urandom(4).hex() if rank == 0 else ""]
    if members is not None:
        broadcast_object_list(begun, members.ranks[0], members)
    name = file_of_rank(begun[0], rank)
    try:
        entries, error = _write_own(folder, name, rank, with_states(state_dict)), None
    except Exception as failed:
        if members is None:
            raise
        entries, error = [], f"{type(failed).__name__}: {failed}"
    _all_or_none(members, error)
    found = [entries] if members is None else [[] for _ in members.ranks]
    if members is not None:
        all_gather_object(found, entries, members)
    if rank == 0:
        write_index(folder, _joined(found))
    if members is not None:
        barrier(members)


def _all_or_none(members: Optional[ProcessGroup], error: Optional[str]) -> None:
    if members is None:
        return
    errors: List[Any] = [None] * members.size()
    all_gather_object(errors, error, members)
    texts = [f"rank {rank}: {text}" for rank, text in zip(members.ranks, errors) if text]
    if texts:
        raise RuntimeError("save: the checkpoint before is kept, as not all ranks could write: " + "; ".join(texts))


def _write_own(folder: str, name: str, rank: int, state_dict: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Writes this process' tensors, and returns its part of the index."""
    os.makedirs(folder, exist_ok=True)
    tensors: Dict[str, Tensor] = {}
    entries: List[Dict[str, Any]] = []
    for path, value in ends_of(state_dict):
        if not isinstance(value, Tensor):
            entries += [{"path": list(path), "value": value}] if rank == 0 else []
            continue
        part = _own_part(value, rank)
        if part is not None:
            local, begin, end = part
            key = str(len(tensors))
            tensors[key] = local.contiguous().cpu() if local.device.type != "cpu" else local.contiguous()
            entries.append({"path": list(path), "dtype": local.dtype.name, "shape": list(value.shape),
                            "parts": [{"file": name, "name": key, "begin": begin, "end": end}]})
    write_tensors(folder, name, tensors)
    return entries


def _own_part(t: Tensor, rank: int) -> Optional[Tuple[Tensor, int, int]]:
    """What this process writes of a tensor, and which rows that are; None where others write it."""
    if not isinstance(t, DTensor):
        return (t.detach(), 0, t.shape[0] if t.ndim else 1) if rank == 0 else None
    first = all(placement.is_shard() or t.device_mesh.get_local_rank(dim) == 0 for dim, placement in enumerate(t.placements))
    begin, end = _rows_of(t)
    return (t.to_local(), begin, end) if first and begin < end else None


def _rows_of(t: DTensor) -> Tuple[int, int]:
    group = shard_group(t)
    return (0, len(t)) if group is None else span_of(len(t), group)[1:]


def _joined(found: List[List[Dict[str, Any]]]) -> List[Dict[str, Any]]:
    """The entries of all processes, with all parts of each tensor."""
    entries: Dict[Path, Dict[str, Any]] = {}
    for own in found:
        for entry in own:
            key = tuple(entry["path"])
            if key in entries:
                entries[key]["parts"] += entry["parts"]
            else:
                entries[key] = entry
    return list(entries.values())


# -- loading -----------------------------------------------------------------------------------------------------------


def load(state_dict: Dict[str, Any], *, checkpoint_id: Place = None, storage_reader: Any = None, process_group: Any = None,
         no_dist: bool = False) -> None:
    """Reads a checkpoint of ``save`` into a state dict, in place: tensors take their values, other values are replaced, and what has
    ``load_state_dict`` loads. Each process reads the rows that it has, whatever the number of processes that saved.

    Args:
        storage_reader: FileSystemReader(folder), in place of ``checkpoint_id``.
        process_group, no_dist: reading needs no other process; they are checked alone.

    FileNotFoundError where there is no checkpoint; RuntimeError for a damaged one, and for a value that it lacks or has with another shape."""
    folder = _scratch.read_at(_folder_of("load", checkpoint_id, storage_reader, "storage_reader"))
    _group_of("load", process_group, no_dist)
    entries, files = {tuple(entry["path"]): entry for entry in read_index(folder)}, Files(folder)
    states = with_states(state_dict)

    def value_of(path: Path, value: Any) -> Any:
        entry = entries.get(path)
        if entry is None or isinstance(value, Tensor) != ("parts" in entry):
            raise RuntimeError(f"load: the checkpoint in {folder} has no {'tensor' if isinstance(value, Tensor) else 'value'} {shown(path)}")
        if isinstance(value, Tensor):
            _fill(value, entry, files, shown(path))
            return value
        return tuple(entry["value"]) if isinstance(value, tuple) and isinstance(entry["value"], list) else entry["value"]

    replaced(states, value_of)
    for key, value in state_dict.items():
        if is_stateful(value):
            value.load_state_dict(states[key])
        else:
            state_dict[key] = states[key]


def _fill(t: Tensor, entry: Dict[str, Any], files: Files, name: str) -> None:
    if list(t.shape) != entry["shape"]:
        raise RuntimeError(f"load: {name} has the shape {list(t.shape)}, and {entry['shape']} in the checkpoint")
    local, (begin, end) = (t.to_local(), _rows_of(t)) if isinstance(t, DTensor) else (t.detach(), (0, t.shape[0] if t.ndim else 1))
    filled = 0
    with no_grad():
        for part in entry["parts"]:
            first, last = max(begin, part["begin"]), min(end, part["end"])
            if first < last:
                rows = files.rows(part, first - part["begin"], last - part["begin"])
                place = local[first - begin:last - begin] if t.ndim else local
                if rows.shape != place.shape:
                    raise RuntimeError(f"load: {part['file']} is damaged: it has {list(rows.shape)} for rows of {name} of shape {list(place.shape)}")
                place.copy_(rows)
                filled += last - first
    if filled != max(0, end - begin):
        raise RuntimeError(f"load: the checkpoint lacks rows of {name}: {filled} of {end - begin} are there")
