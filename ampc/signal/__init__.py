"""Windows for signals, with torch's names."""

from . import windows as windows

__all__ = ["windows"]
