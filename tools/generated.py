"""Writes generated files, or checks that they are up to date, for the tools that generate them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Dict


def write_or_check(files: Dict[Path, str]) -> int:
    """Writes each text to its path. With ``--check`` on the command line it compares instead, and returns 1 if a file differs."""
    if "--check" not in sys.argv[1:]:
        for path, text in files.items():
            path.write_text(text)
        return 0
    old = [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]
    if old:
        print(f"out of date: {', '.join(old)}; run python tools/{Path(sys.argv[0]).name}")
    return int(bool(old))
