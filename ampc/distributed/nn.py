"""Differentiable communication, refused as the rest of torch.distributed's work is."""

from . import all_gather, all_reduce, broadcast

__all__ = ["all_gather", "all_reduce", "broadcast"]
