"""Output of one of several processes: each line begins with the process' rank."""

from __future__ import annotations

import os
import sys
from typing import Any


class _Marked:
    """A stream that writes whole lines, each with ``mark`` before it. All else is the stream's own."""

    def __init__(self, stream: Any, mark: str) -> None:
        self._stream, self._mark, self._rest = stream, mark, ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        if lines:
            self._stream.write("".join(f"{self._mark}{line}\n" for line in lines))  # at once, so that those of other processes stay apart
            self._stream.flush()
        return len(text)

    def writelines(self, lines: Any) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        if self._rest:
            rest, self._rest = self._rest, ""
            self._stream.write(f"{self._mark}{rest}\n")
        self._stream.flush()

    def isatty(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def mark_lines() -> None:
    """From now on, if this is one of several processes."""
    rank = os.environ.get("RANK")
    if rank is not None and not isinstance(sys.stdout, _Marked):
        sys.stdout, sys.stderr = _Marked(sys.stdout, f"[rank {rank}] "), _Marked(sys.stderr, f"[rank {rank}] ")
