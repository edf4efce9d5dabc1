"""Saving and loading: tensors in a safetensors file, the structure around them as JSON in its header.

``save`` writes beside the target, makes sure that it lies on the disk, and then puts it in the target's mapper, so a file is
always whole: the old one or the new one. ``load`` runs nothing that a file says unless ``weights_only=False`` is given. It reads
what ``save`` wrote, plain safetensors files, and torch's own zip files of state dicts."""

from __future__ import annotations

import os
from typing import Any, Optional, Union

__all__ = ["load", "save"]

File = Union[str, "os.PathLike[str]", Any]


def save(obj: Any, f: File, pickle_module: Any = None, pickle_protocol: int = 2, _use_new_zipfile_serialization: bool = True) -> None:
    """Saves tensors, and numbers, strings, bytes, lists, tuples, sets and dicts of them, to a path or a binary file object.

    Of each tensor the whole storage is saved, once, so tensors that share memory share it again when they are loaded, and a tensor that
    occurs twice is one object again. A small view of a large tensor therefore makes a large file: ``clone`` it first. Other objects (a
    whole module, say) are pickled, with their tensors beside; such a file loads with ``weights_only=False`` alone. ``pickle_protocol`` is
    used where something is pickled; ``pickle_module`` and ``_use_new_zipfile_serialization`` are torch's and must be left alone.

    The write is atomic for a path: killed at any moment, it leaves the file that was there, and beside it at most a folder
    ``.ampc-<machine>-<process>-<random>.partial``, which the next save into that folder by the same machine takes away. Through a symbolic
    link the file that it leads to is replaced; into a device or FIFO the bytes are written.

    TypeError for something that is neither path nor file; OSError as the system gives it, PermissionError for a read-only file among
    them; ValueError for a structure that contains itself or has more than 100 containers within each other."""
    import pickle

    from . import _files, _safetensors

    if pickle_module not in (None, pickle) or not _use_new_zipfile_serialization:
        raise ValueError("save: there is one file format, without another pickle module")
    if isinstance(f, (str, os.PathLike)):
        _files.replace(os.fspath(f), lambda path: _safetensors.write(obj, path, pickle_protocol))
    elif hasattr(f, "write"):
        f.write(_safetensors.to_bytes(obj, pickle_protocol))
    else:
        raise TypeError(f"save: `f` must be a path or a binary file object, got {type(f).__name__}")


def load(f: File, map_location: Any = None, pickle_module: Any = None, *, weights_only: Optional[bool] = None, mmap: Optional[bool] = None,
         encoding: str = "ascii") -> Any:
    """Loads what ``save`` wrote, a plain safetensors file (as a dict of its tensors), or a state dict that torch saved.

    map_location    None: where each tensor was, on the CPU where there is no such GPU; a device or its name; a dict from names to
                    names; or a function of (tensor, name) that gives the tensor to use, None meaning what None means
    weights_only    True (what None means, too): nothing in the file is run; False: objects are unpickled, which runs whatever code
                    the file asks for, so only for files whose origin is trusted
    mmap            a hint for large files of torch's, which are read whole all the same

    pickle.UnpicklingError for a file that needs ``weights_only=False``, or holds tensors of a kind that ampc has not; RuntimeError for a
    file that is damaged or of another
    kind, whatever is wrong with it; MemoryError; OSError as the system gives it; what ``map_location`` raises.

    Nothing but ``weights_only=False`` lets a file take more than it is worth. Containers lie at most 100 deep within each other and do
    not contain themselves. Values, those of shared containers counted each time, are at most a million more than the file has bytes, and
    hashing keys takes no longer than that; at most 16 keys of a container, strings aside, have the same hash. Storages lie in the file
    as they are, none upon another, so memory is that of the file three times at most, and some 500 bytes for each byte of the pickle or
    JSON in it. Tensors reach no further than their storage; bools are 0 or 1."""
    import pickle

    from . import _files, _pt, _safetensors
    from ._tensors import Mapper

    if pickle_module not in (None, pickle) or encoding not in ("ascii", "utf-8"):
        raise ValueError("load: files are read without another pickle module or encoding")
    data, name = _files.read(f)
    mapper = Mapper(map_location)
    trusted = weights_only is False
    if _pt.is_zip(data):
        return _pt.read(data, mapper, trusted, name)
    if _pt.is_legacy(data):
        raise RuntimeError(f"load: {name} is of torch's format before 1.6; load it with torch and save it again")
    return _safetensors.read(data, mapper, trusted, name)

