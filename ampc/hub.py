"""Downloads state dicts and keeps them in a folder of the user's."""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, Any, Optional
from urllib.parse import urlparse

from ._names.missing import absent_from

__all__ = ["download_url_to_file", "get_dir", "load_state_dict_from_url", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # the part of a file's name that its SHA-256 begins with
_dir: Optional[str] = None


def _get_torch_home() -> str:
    """$TORCH_HOME, or ~/.cache/ampc."""
    cache = os.environ.get("XDG_CACHE_HOME", os.path.join("~", ".cache"))
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "ampc")))


def get_dir() -> str:
    """Where files are kept: what `set_dir` said, $TORCH_HOME/hub, or ~/.cache/ampc/hub."""
    return _dir if _dir is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d: Any) -> None:
    """Sets the folder."""
    global _dir
    _dir = os.path.expanduser(os.fspath(d))


def download_url_to_file(url: str, dst: str, hash_prefix: Optional[str] = None, progress: bool = True) -> None:
    """Fetches a file; it is there as a whole or not at all. RuntimeError when fewer bytes come than the server has said, or when their
    SHA-256 does not begin with ``hash_prefix``."""
    import sys
    from urllib.request import urlopen

    from ._messages.progress import somebody_watches
    from .serialization import _files

    watched = progress and somebody_watches()

    def fetch(path: str) -> None:
        digest, done = hashlib.sha256(), 0
        with urlopen(url) as source, open(path, "wb") as target:
            said = source.headers.get("Content-Length") or ""
            total = int(said) if said.isdecimal() else 0
            while chunk := source.read(1 << 20):
                target.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                if watched:
                    share = f"{100 * done // total:3d} %" if total else ""
                    sys.stderr.write(f"\r{os.path.basename(dst)}: {done >> 20} MiB {share}")
        if watched:
            sys.stderr.write("\n")
        if done < total:
            raise RuntimeError(f"{url}: the connection ended after {done} of {total} bytes; try again")
        if hash_prefix and not digest.hexdigest().startswith(hash_prefix):
            raise RuntimeError(f"{url}: the file's SHA-256 is {digest.hexdigest()}, which does not begin with {hash_prefix}")

    _files.replace(dst, fetch)


def load_state_dict_from_url(url: str, model_dir: Optional[str] = None, map_location: Any = None, progress: bool = True, check_hash: bool = False,
                             file_name: Optional[str] = None, weights_only: bool = True) -> Any:
    """`ampc.load` of a file that is fetched once and then kept in ``model_dir`` (hub's checkpoints)."""
    from .serialization import load

    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        found = re.search(r"-([a-f0-9]*)\.", name) if check_hash else None
        download_url_to_file(url, path, found[1] if found else None, progress)
    return load(path, map_location, weights_only=weights_only)


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
