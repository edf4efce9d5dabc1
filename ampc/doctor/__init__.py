"""Diagnosis of mixed-precision training while the script runs.

The guard is always on and reports misuse: which rule, where, with this run's numbers, and the code that corrects it. ``errors()`` makes
its warnings errors; ``ignore(rule)`` silences one. ``with doctor():`` checks every operator and names the first one that makes
infinities or nans from finite values."""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from .guard import MisuseError, MisuseWarning, PerformanceNote, Report, errors, ignore, off, reports

__all__ = ["Advice", "Bisection", "Capsules", "Doctor", "DoctorError", "DoctorWarning", "MisuseError", "MisuseWarning",
           "PerformanceNote", "Replayed", "Report", "advise", "bisect", "errors", "ignore", "off", "replay", "reports", "rules"]

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

    from . import bisection, capsule, guard, nonfinite, precision_advisor, rules
    from .bisection import Bisection, bisect
    from .capsule import Capsules, Replayed, replay
    from .nonfinite import Doctor, DoctorError, DoctorWarning
    from .precision_advisor import Advice, advise

    class doctor(nonfinite.Doctor):
        """``ampc.doctor`` to type checkers, which know no module that can be called: a class that makes a Doctor, with the module's names."""

        Doctor: TypeAlias = nonfinite.Doctor
        DoctorError: TypeAlias = nonfinite.DoctorError
        DoctorWarning: TypeAlias = nonfinite.DoctorWarning
        MisuseError: TypeAlias = guard.MisuseError
        MisuseWarning: TypeAlias = guard.MisuseWarning
        PerformanceNote: TypeAlias = guard.PerformanceNote
        Report: TypeAlias = guard.Report
        Advice: TypeAlias = precision_advisor.Advice
        Bisection: TypeAlias = bisection.Bisection
        Capsules: TypeAlias = capsule.Capsules
        Replayed: TypeAlias = capsule.Replayed
        errors, ignore, off, reports = staticmethod(guard.errors), staticmethod(guard.ignore), staticmethod(guard.off), staticmethod(guard.reports)
        advise, bisect, replay = staticmethod(precision_advisor.advise), staticmethod(bisection.bisect), staticmethod(capsule.replay)
        rules = rules

_LATER = {"rules": ("rules",), "nonfinite": ("Doctor", "DoctorError", "DoctorWarning"), "precision_advisor": ("advise", "Advice"),
          "bisection": ("bisect", "Bisection"), "capsule": ("capsule", "Capsules", "Replayed", "replay")}


def __getattr__(name: str) -> Any:
    for home, names in _LATER.items():
        if name in names:
            found = importlib.import_module(f"{__name__}.{home}")
            return found if name == home else getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Callable(types.ModuleType):
    def __call__(self, stop: bool = False) -> Any:
        from .nonfinite import Doctor

        return Doctor(stop)

sys.modules[__name__].__class__ = _Callable
