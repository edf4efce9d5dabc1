"""Switches of the backends, under torch's names."""

from . import cuda, cudnn

__all__ = ["cuda", "cudnn"]
