"""What goes wrong in mixed-precision training, said while the script runs. The guard, always on, reports misuse: which rule, where, this
run's numbers, and the code that mends it; ``errors()`` makes its warnings errors, ``ignore(rule)`` silences one. ``with doctor():`` looks
at every operator and names the first that makes infinities or nans of what was finite."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

from .guard import MisuseError, MisuseWarning, Report, errors, ignore, off, reports

__all__ = ["Bisection", "Doctor", "DoctorError", "DoctorWarning", "MisuseError", "MisuseWarning", "Report", "bisect", "errors", "ignore", "off",
           "reports", "rules"]


def __getattr__(name: str) -> Any:
    if name == "rules":
        return importlib.import_module(f"{__name__}.{name}")
    if name in ("Doctor", "DoctorError", "DoctorWarning"):
        return getattr(importlib.import_module(f"{__name__}.watch"), name)
    if name in ("bisect", "Bisection"):
        found = importlib.import_module(f"{__name__}.bisect")
        globals().update(bisect=found.bisect, Bisection=found.Bisection)  # the function, not the module of its name
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Callable(types.ModuleType):
    def __call__(self, stop: bool = False) -> Any:
        from .watch import Doctor

        return Doctor(stop)


sys.modules[__name__].__class__ = _Callable
