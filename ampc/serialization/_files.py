"""Files that are whole or not there: written beside their place, synced, renamed."""

from __future__ import annotations

import errno
import os
import re
import shutil
from typing import Any, Callable, Tuple


def replace(path: str, write: Callable[[str], None]) -> None:
    """``write`` makes a file at the path it is given, which then takes the place of ``path`` in one step."""
    folder, name = os.path.split(os.path.abspath(path))
    if os.path.isdir(path):
        raise IsADirectoryError(f"save: {path} is a folder")
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"save: there is no folder {folder}")
    _clear_away(folder, name)
    room = os.path.join(folder, f".{name}.{os.getpid()}-{os.urandom(4).hex()}.partial")  # a folder: writers may need more than one file
    beside = os.path.join(room, "file")
    os.mkdir(room)
    try:
        write(beside)
        with open(beside, "rb+") as f:
            _sync(f.fileno())
        if os.path.exists(path):
            os.chmod(beside, os.stat(path).st_mode & 0o7777)
        os.replace(beside, path)
    finally:
        shutil.rmtree(room, ignore_errors=True)
    _sync_folder(folder)


_NO_SUCH_CALL = {getattr(errno, name) for name in ("EINVAL", "ENOTSUP", "EOPNOTSUPP", "ENOSYS") if hasattr(errno, name)}


def _sync(handle: int) -> None:
    """To the disk, where the file system can be asked for it; an error of the disk itself is raised."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SUCH_CALL:
            raise


def _sync_folder(folder: str) -> None:
    """The new name, too, lies on the disk."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # not every system opens folders
        return
    try:
        _sync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def _clear_away(folder: str, name: str) -> None:
    """What a process that was killed while saving this file has left."""
    pattern = re.compile(rf"\.{re.escape(name)}\.(\d+)-[0-9a-f]{{8}}\.partial")
    for entry in os.listdir(folder):
        match = pattern.fullmatch(entry)
        if match and not _is_running(int(match[1])):
            shutil.rmtree(os.path.join(folder, entry), ignore_errors=True)


def _is_running(pid: int) -> bool:
    if os.name == "nt":  # os.kill would end it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def read(f: Any) -> Tuple[bytes, str]:
    """All bytes of a path or a file object, and how to call it in messages."""
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return file.read(), repr(os.fspath(f))
    if hasattr(f, "read"):
        data = f.read()
        if not isinstance(data, (bytes, bytearray)):
            raise TypeError(f"load: the file must be open in binary mode, its read() gave {type(data).__name__}")
        return bytes(data), repr(getattr(f, "name", "the file"))
    raise TypeError(f"load: `f` must be a path or a binary file object, got {type(f).__name__}")
