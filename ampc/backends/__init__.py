"""Switches of the backends, under torch's names."""

from . import cuda

__all__ = ["cuda"]
