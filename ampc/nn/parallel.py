"""Data-parallel modules. On one device they are the module that they wrap; several processes are not supported yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, NoReturn

from .._missing import absent_from
from .modules.module import Module

__all__ = ["DataParallel", "DistributedDataParallel"]


class DataParallel(Module):
    """``module`` under the name that scripts for several GPUs know it by (parameters are named ``module.*``); it runs where its
    parameters are. RuntimeError when more than one device is asked for."""

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise RuntimeError(f"DataParallel: one device can be used, not {list(device_ids)}; data parallel is not there yet")
        self.module, self.device_ids, self.output_device, self.dim = module, device_ids, output_device, dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


class DistributedDataParallel(Module):
    """RuntimeError: training in several processes is not there yet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse()


def _refuse() -> NoReturn:
    raise RuntimeError("DistributedDataParallel: training in several processes is not there yet; run one process")


__path__: List[str] = []  # the table has modules below this one
if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
