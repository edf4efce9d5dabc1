"""Optimizers whose state is shared out to processes, refused as the rest of torch.distributed's work is."""

from . import init_process_group as _refuse


class ZeroRedundancyOptimizer:
    """RuntimeError: training in several processes is not there yet."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        _refuse()


__all__ = ["ZeroRedundancyOptimizer"]
