"""A checkpoint of several processes as a folder: a safetensors file of each process, and ``index.json``, which says what they hold.

The files have names of their own in each save, and the index is replaced last. So a process that is killed leaves the checkpoint before."""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Tuple

from ..._C import Tensor
from ...serialization import _files, _safetensors
from ...serialization._tensors import DTYPE_OF, DTYPES, from_bytes

INDEX, VERSION = "index.json", 1
_FILE = re.compile(r"[0-9a-f]{8}-\d+\.safetensors")


def file_of_rank(save: str, rank: int) -> str:
    """The file of a rank in the save with these eight digits."""
    return f"{save}-{rank}.safetensors"


def write_tensors(folder: str, name: str, tensors: Dict[str, Tensor]) -> None:
    """A file of a process."""
    _files.replace(os.path.join(folder, name), lambda path: _safetensors.write(tensors, path, 2))


def write_index(folder: str, entries: List[Dict[str, Any]]) -> None:
    """From here on the folder has this checkpoint; files of others are removed."""
    text = json.dumps({"format": "ampc.distributed.checkpoint", "version": VERSION, "entries": entries}, separators=(",", ":"))

    def write(path: str) -> None:
        with open(path, "w") as f:
            f.write(text)

    _files.replace(os.path.join(folder, INDEX), write)
    used = {part["file"] for entry in entries for part in entry.get("parts", ())}
    for name in os.listdir(folder):
        if _FILE.fullmatch(name) and name not in used:
            os.unlink(os.path.join(folder, name))


def read_index(folder: str) -> List[Dict[str, Any]]:
    """What the checkpoint has. FileNotFoundError where there is none; RuntimeError for a damaged or later one."""
    path = os.path.join(folder, INDEX)
    if not os.path.exists(path):
        raise FileNotFoundError(f"load: {folder} has no checkpoint: there is no {INDEX}")
    with _damage(path):
        with open(path) as f:
            index = json.load(f)
        if index["format"] != "ampc.distributed.checkpoint" or index["version"] != VERSION:
            raise RuntimeError(f"load: {path} is of another program, or of a later version of ampc")
        for entry in index["entries"]:
            _check(entry)
    return index["entries"]


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """What a reader meets in a file with other contents than were written is a RuntimeError that names the file."""
    try:
        yield
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise RuntimeError(f"load: {path} is damaged: {type(error).__name__}: {str(error)[:200]}") from error


def _check(entry: Dict[str, Any]) -> None:
    if not entry["path"] or not all(isinstance(key, (str, int)) for key in entry["path"]):
        raise ValueError(f"an entry has the path {entry['path']!r}")
    if "parts" not in entry:
        entry["value"]  # noqa: B018  KeyError
    for part in entry.get("parts", ()):
        if not isinstance(part["name"], str) or not _FILE.fullmatch(part["file"]) or not 0 <= part["begin"] <= part["end"]:
            raise ValueError(f"an entry has the part {part!r}")
        if entry["dtype"] not in DTYPE_OF or not all(isinstance(n, int) and n >= 0 for n in entry["shape"]):
            raise ValueError(f"an entry is {entry['dtype']!r} of shape {entry['shape']!r}")


class Files:
    """The processes' files of a checkpoint, of which each is opened once."""

    def __init__(self, folder: str) -> None:
        self._folder, self._open = folder, {}  # type: str, Dict[str, Tuple[Any, Dict[str, Any], int]]

    def _opened(self, name: str) -> Tuple[Any, Dict[str, Any], int]:
        import numpy as np

        if name not in self._open:
            path = os.path.join(self._folder, name)
            if not os.path.exists(path):
                raise FileNotFoundError(f"load: {path} is missing, which {INDEX} names")
            with _damage(path):
                data = np.memmap(path, np.uint8, "r")
                size = int.from_bytes(bytes(data[:8]), "little")
                if size > len(data) - 8:
                    raise RuntimeError(f"load: {path} is damaged: it ends within its header")
                self._open[name] = data, dict(json.loads(bytes(data[8:8 + size]))), 8 + size
        return self._open[name]

    def rows(self, part: Dict[str, Any], begin: int, end: int) -> Tensor:
        """Rows of a part, counted from its first; all of what has no dimensions. RuntimeError where the file does not hold them."""
        data, header, base = self._opened(part["file"])
        with _damage(os.path.join(self._folder, part["file"])):
            return self._cut(part, data, header, base, begin, end)

    @staticmethod
    def _cut(part: Dict[str, Any], data: Any, header: Dict[str, Any], base: int, begin: int, end: int) -> Tensor:
        entry = header.get(part["name"])
        if entry is None or entry["dtype"] not in DTYPES:
            raise RuntimeError(f"load: {part['file']} does not hold the part {part['name']!r}, which {INDEX} names")
        first, last = entry["data_offsets"]
        dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
        width = 1
        for n in shape[1:]:
            width *= n
        each = width * dtype.itemsize
        if shape:
            first, last, shape = first + begin * each, first + end * each, (end - begin, *shape[1:])
        if not 0 <= first <= last <= entry["data_offsets"][1] or base + last > len(data):
            raise RuntimeError(f"load: {part['file']} is damaged: it ends within {part['name']!r}")
        return from_bytes(bytearray(data[base + first:base + last]), dtype, shape)
