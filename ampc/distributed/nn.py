"""Differentiable communication, which raises an error, as all communication here does."""

from . import all_gather, all_reduce, broadcast

__all__ = ["all_gather", "all_reduce", "broadcast"]
