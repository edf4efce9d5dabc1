"""Writes files atomically: in a folder beside their destination, synced, then renamed.

A process that is killed while it writes leaves a folder ``.ampc-<machine>-<process>-<random>.partial`` beside the file. The next write there
from the same machine removes that folder if its process no longer runs. A shared disk may have folders of other machines. These are never
touched, because this machine cannot know whether they are in use."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
from typing import Any, BinaryIO, Callable, Tuple

from .._process.owners import is_gone, machine
from . import _scratch

_LEFT = re.compile(r"\.ampc-([0-9a-f]{12})-(\d+)-[0-9a-f]{8}\.partial")


def replace(path: str, write: Callable[[str], None]) -> None:
    """Calls ``write`` with a temporary path, and renames that file to ``path``. A link is followed, and its target replaced. Devices, FIFOs
    and sockets are written to directly, and so is an empty file: it has nothing to lose, and may be open, as a NamedTemporaryFile is."""
    if os.path.isdir(path):
        raise IsADirectoryError(f"save: {path} is a folder")
    if os.path.exists(path) and not (os.path.isfile(path) and os.path.getsize(path)):
        return _pour(path, write)
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"save: there is no folder {folder}")
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "save: the file may not be written", path)
    _clear_away(folder)
    room = os.path.join(folder, f".ampc-{machine()}-{os.getpid()}-{os.urandom(4).hex()}.partial")  # a folder: writers may need more than one file
    beside = os.path.join(room, "file")
    os.mkdir(room)
    try:
        write(beside)
        with open(beside, "rb+") as f:
            _sync(f.fileno())
        os.chmod(beside, stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else os.stat(room).st_mode & 0o666)
        os.replace(beside, path)
    finally:
        shutil.rmtree(room, ignore_errors=True)
    _sync_folder(folder)


def _pour(path: str, write: Callable[[str], None]) -> None:
    """Writes into ``path`` itself, which is not replaced."""
    with tempfile.TemporaryDirectory(prefix="ampc-", dir=_scratch.ROOT or None) as room:
        beside = os.path.join(room, "file")
        write(beside)
        with open(beside, "rb") as source, open(path, "wb") as target:
            shutil.copyfileobj(source, target)
            target.flush()
            _sync(target.fileno())


_NO_SUCH_CALL = {getattr(errno, name) for name in ("EINVAL", "ENOTSUP", "EOPNOTSUPP", "ENOSYS") if hasattr(errno, name)}


def _sync(handle: int) -> None:
    """Syncs to the disk if the file system can. Raises an error of the disk itself."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SUCH_CALL:
            raise


def _sync_folder(folder: str) -> None:
    """Syncs the folder, so that the new name is on the disk, too."""
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


def _clear_away(folder: str) -> None:
    """Removes what killed processes of this machine have left."""
    for entry in os.listdir(folder):
        match = _LEFT.fullmatch(entry)
        if match and is_gone(f"{match[1]}-{match[2]}"):
            shutil.rmtree(os.path.join(folder, entry), ignore_errors=True)


def _opened(path: Any) -> BinaryIO:
    """The file, open for reading. Where a relative path leads to none, the exception says in which folder it was looked for."""
    try:
        return open(_scratch.read_at(path), "rb")
    except FileNotFoundError as e:
        if not os.path.isabs(path):
            raise FileNotFoundError(e.errno, f"{e.strerror} in the folder {os.getcwd()}", path) from None
        raise


def read(f: Any) -> Tuple[bytes, str]:
    """All bytes of a path or a file object, and its name for messages."""
    if isinstance(f, (str, os.PathLike)):
        with _opened(os.fspath(f)) as file:
            if stat.S_ISCHR(os.fstat(file.fileno()).st_mode):  # of which some never end
                raise RuntimeError(f"load: {os.fspath(f)!r} is a device, not a file")
            return file.read(), repr(os.fspath(f))
    if hasattr(f, "read"):
        data = f.read()
        if not isinstance(data, (bytes, bytearray)):
            raise TypeError(f"load: the file must be open in binary mode, its read() gave {type(data).__name__}")
        name = getattr(f, "name", None)
        return bytes(data), "the file" if name is None else repr(name)
    raise TypeError(f"load: `f` must be a path or a binary file object, got {type(f).__name__}")
