"""Where a trial of ``ampc advise`` saves: in a folder of its own, which has each file under its whole path; loads look there first.

The folder is named by a variable, so that processes that a script starts use it, too. Without the variable paths are left as they are."""

from __future__ import annotations

import os
import time
from typing import List

VARIABLE = "AMPC_SAVES"
ROOT = os.path.realpath(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else ""
_BEGAN = time.time()
has_read = False  # whether a trial has looked for a file that was there


def written_at(path: str, folder: bool = False) -> str:
    """Where a file of this path is written, or a folder with its files."""
    if not ROOT or _is_within(path) or os.path.exists(path) and not (os.path.isdir(path) if folder else _is_ordinary(path)):
        return path
    moved = _moved(path)
    above = os.path.dirname(moved)
    if folder or os.path.isdir(os.path.dirname(os.path.realpath(path))):
        os.makedirs(above, exist_ok=True)
    return moved if os.path.isdir(above) else path


def read_at(path: str) -> str:
    """Where a file of this path, or a folder, is read."""
    global has_read
    if not ROOT:
        return path
    moved = _moved(path)
    has_read = has_read or os.path.exists(path)
    return moved if os.path.exists(moved) else path


def was_saved(path: str) -> bool:
    """Whether this path was written elsewhere."""
    return bool(ROOT) and not _is_within(path) and os.path.isfile(_moved(path))


def saved(root: str) -> List[str]:
    """The paths of the files in such a folder, relative to the current one where they lie in it."""
    root = os.path.realpath(root)
    paths = [os.path.join(os.sep, os.path.relpath(os.path.join(folder, name), root)) for folder, _, names in os.walk(root) for name in names]
    here = os.path.join(os.path.realpath(os.getcwd()), "")
    return sorted(path[len(here):] if path.startswith(here) else path for path in paths)


def _is_within(path: str) -> bool:
    """Whether it lies in the folder already."""
    return _real(path).startswith(os.path.join(ROOT, ""))


def _moved(path: str) -> str:
    return os.path.join(ROOT, os.path.splitdrive(_real(path))[1].lstrip(os.sep))


def _real(path: str) -> str:
    return os.path.realpath(os.fsdecode(path))


def _is_ordinary(path: str) -> bool:
    """A file, which is no device or FIFO, and no empty one that the trial has just made: that may be open, as a NamedTemporaryFile is."""
    return os.path.isfile(path) and (os.path.getsize(path) > 0 or os.path.getmtime(path) < _BEGAN)
