"""What several commands use."""

from __future__ import annotations

import os
from typing import Optional


def must_be_writable(*paths: Optional[str]) -> None:
    """OSError where a file cannot be written, before work whose result would be lost. None is no file."""
    for path in paths:
        if path is None or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)):
            continue  # a pipe would wait for its reader
        new = not os.path.exists(path)
        with open(path, "a"):
            pass
        if new:
            os.remove(path)
