"""Settings of the CPU backend."""

from __future__ import annotations

from .. import _C


def get_cpu_capability() -> str:
    """The instruction set that elementwise loops were chosen for: 'DEFAULT', 'AVX2' or 'AVX512'."""
    found = _C._build_info()["cpu_loops"].upper()
    return found if found in ("AVX2", "AVX512") else "DEFAULT"
