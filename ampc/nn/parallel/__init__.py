"""Data-parallel modules: ``DistributedDataParallel`` in several processes; ``DataParallel`` on one device is the module that it wraps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._names.missing import absent_from
from ..modules.module import Module

if TYPE_CHECKING:
    from .distributed import DistributedDataParallel as DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel"]


class DataParallel(Module):
    """``module`` under the name that scripts for several GPUs know it by (parameters are named ``module.*``); it runs where its
    parameters are. RuntimeError when more than one device is asked for."""

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise RuntimeError(f"DataParallel: one device can be used, not {list(device_ids)}; several are trained on by several processes, with "
                               "DistributedDataParallel under `ampc run --nproc`")
        self.module, self.device_ids, self.output_device, self.dim = module, device_ids, output_device, dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)  # DistributedDataParallel is loaded when somebody asks for it
