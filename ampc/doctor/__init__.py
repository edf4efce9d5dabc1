"""What goes wrong in mixed-precision training, said while the script runs: which rule was broken, where, with what numbers, and the
code that mends it. The guard is always on; ``errors()`` makes its warnings errors, ``ignore(rule)`` silences one."""

from __future__ import annotations

import importlib
from typing import Any

from .guard import MisuseError, MisuseWarning, Report, errors, ignore, off, reports

__all__ = ["MisuseError", "MisuseWarning", "Report", "errors", "ignore", "off", "reports", "rules"]


def __getattr__(name: str) -> Any:
    if name != "rules":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
