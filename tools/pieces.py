"""Which parts of a long work are finished, in a file. It holds for as long as the sources stay as they are."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Iterable, List


def fingerprint(paths: Iterable[Path]) -> str:
    """Of the contents of files, and their names."""
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(f"{path}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


class Pieces:
    """The finished parts of the work on sources of this fingerprint."""

    def __init__(self, path: Path, sources: str) -> None:
        self._path, self._sources = path, sources
        kept = json.loads(path.read_text()) if path.exists() else {}
        self.finished: List[str] = kept["finished"] if kept.get("sources") == sources else []

    def finish(self, part: str) -> None:
        """Keeps that this part is done."""
        self.finished.append(part)
        self._path.write_text(json.dumps({"sources": self._sources, "finished": self.finished}))

    def forget(self) -> None:
        """The work begins anew."""
        self.finished = []
        self._path.unlink(missing_ok=True)
