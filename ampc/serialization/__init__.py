"""Saving and loading: tensors in a safetensors file, the structure around them as JSON in its header.

``save`` writes a new file beside the target, waits until it is on the disk, and then renames it. So there is always a whole file, the old
one or the new one. ``load`` runs no code from a file, except with ``weights_only=False``. It reads what ``save`` wrote, plain safetensors
files, and torch's zip files of state dicts."""

from __future__ import annotations

import os
from typing import Any, Optional, Union

from .._events import announce
from .._messages.callers import warn
from .._names.missing import absent_from
from ._safe import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save"]

DEFAULT_PROTOCOL = 2  # of pickle, in save

File = Union[str, "os.PathLike[str]", Any]


def save(obj: Any, f: File, pickle_module: Any = None, pickle_protocol: int = 2, _use_new_zipfile_serialization: bool = True, *,
         format: str = "ampc") -> None:
    """Saves tensors with their Python attributes, storages, and numbers, strings, bytes, lists, tuples, sets and dicts of them, to a path or a
    binary file object.

    The whole storage of each tensor is saved once. After loading, tensors that shared memory share it again, and a tensor that occurred
    twice is one object again. A small view of a large tensor makes a large file, so ``clone`` it first. Other objects, such as a whole
    module, are pickled; only ``weights_only=False`` loads such a file. ``pickle_protocol`` applies to these. ``pickle_module`` is torch's and
    must keep its default; ``_use_new_zipfile_serialization=False`` asks for torch's format of before 1.6, which is not written: a warning says so.

    ``format="torch"`` writes the zip file that ``torch.load`` reads with ``weights_only=True``, as does ``load``: state dicts of modules,
    optimizers and scalers, and other tensors, numbers, strings, bytes, lists, tuples, sets, dicts, OrderedDicts and Counters. Tensors that
    share memory share it in torch; their attributes are left out. TypeError for another object, with its place in the structure. The
    default "ampc" is a safetensors
    file, which torch.load does not read; that is what ``torch.save`` writes under ``ampc run``, too.

    Writing to a path is atomic. A process that is killed leaves the old file, and perhaps a folder
    ``.ampc-<machine>-<process>-<random>.partial`` beside it; the next save from the same machine removes that folder. A symbolic link is
    followed, and its target replaced. Devices and FIFOs are written to directly.

    TypeError for something that is neither path nor file; OSError from the system, such as PermissionError for a read-only file;
    ValueError for a structure that contains itself or has more than 100 nested containers."""
    import pickle

    from . import _files, _safetensors, _scratch

    if pickle_module not in (None, pickle):
        raise ValueError("save: files are written without another pickle module")
    if not _use_new_zipfile_serialization:
        warn("save: _use_new_zipfile_serialization=False has no effect: torch's format of before 1.6 is not written")
    if format not in ("ampc", "torch"):
        raise ValueError(f"save: `format` must be 'ampc' or 'torch', got {format!r}")
    if format == "torch" and pickle_protocol != 2:
        raise ValueError(f"save: torch's files are of pickle protocol 2, got {pickle_protocol}")
    if isinstance(f, (str, os.PathLike)):
        announce.file_saved(os.fspath(f))
        _files.replace(_scratch.written_at(os.fspath(f)), lambda path: _write(obj, path, pickle_protocol, format))
    elif hasattr(f, "write"):
        from . import _pt_write

        f.write(_safetensors.to_bytes(obj, pickle_protocol) if format == "ampc" else _pt_write.torch_bytes(obj))
        if hasattr(f, "flush"):
            f.flush()  # so that whoever opens it by its name finds it whole
    else:
        raise TypeError(f"save: `f` must be a path or a binary file object, got {type(f).__name__}")


def _write(obj: Any, path: str, pickle_protocol: int, format: str) -> None:
    if format == "ampc":
        from . import _safetensors

        return _safetensors.write(obj, path, pickle_protocol)
    from . import _pt_write

    _pt_write.write_torch(obj, path)


def load(f: File, map_location: Any = None, pickle_module: Any = None, *, weights_only: Optional[bool] = None, mmap: Optional[bool] = None,
         encoding: str = "ascii") -> Any:
    """Loads what ``save`` wrote, a plain safetensors file (as a dict of its tensors), or a state dict that torch saved.

    Args:
        map_location: a device or its name; a dict from names to names; or a function of (tensor, name) that returns the tensor to use. By
            default, and if the function returns None, a tensor comes back to its device, or to the CPU if there is no such GPU.
        weights_only: True (also the default) runs nothing from the file. False unpickles objects, which runs any code that the file asks
            for, so use it only for files from a trusted origin. Between the two: with ``add_safe_globals`` a file may hold objects of the
            classes that you name, and the limits below do not hold for such a file.
        mmap: torch's hint for large files; it has no effect.

    pickle.UnpicklingError for a file that needs ``weights_only=False``, or that holds tensors of a kind that ampc lacks; RuntimeError for a
    damaged file, which is an EOFError, too, for an empty one, and an UnpicklingError for one of another kind; MemoryError; OSError from the
    system; any exception of ``map_location``.

    Without ``weights_only=False`` a file cannot use more than these resources:

    - Containers are nested at most 100 deep, and do not contain themselves.
    - There are at most a million more values than the file has bytes. Values of shared containers count each time. Hashing keys takes
      no longer than that, and at most 16 keys of a container have the same hash, strings aside.
    - Storages do not overlap in the file, and tensors stay within their storage. So memory is at most three times the file's size, and
      about 500 bytes for each byte of pickle or JSON in it."""
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
        raise RuntimeError(f"load: {name} is a pickle, as torch wrote before 1.6; load it with what wrote it and save it again")
    return _safetensors.read(data, mapper, trusted, name)


__getattr__ = absent_from(__name__)
