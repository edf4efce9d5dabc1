"""What a training step needs of several processes: gradients that are averaged, losses that are joined, and decisions that all make alike."""

from __future__ import annotations

import contextlib
import os
import pickle
from typing import Any, Callable, ContextManager, List, Optional, Tuple

from .. import _C, nn
from .._tensor import creation as make
from ..distributed import all_gather_object, all_reduce, broadcast_object_list, get_rank, get_world_size, is_initialized
from ..distributed.groups import group_of, is_one_of_several
from ..nn.parallel.distributed import DistributedDataParallel
from .config import AMPConfig


class Ranks:
    """The processes that train a model together. Without ``init_process_group``, or where ``sync_across_gpus`` is off, this one trains alone."""

    def __init__(self) -> None:
        self._modules: List[Tuple[nn.Module, DistributedDataParallel]] = []  # what scripts have given, and what averages its gradients

    @staticmethod
    def check(amp: AMPConfig) -> None:
        """RuntimeError where a launcher has started several processes that are not connected yet."""
        if amp.sync_across_gpus and not is_initialized() and int(os.environ.get("WORLD_SIZE") or 1) > 1:
            raise RuntimeError("TrainingOptimizer: WORLD_SIZE asks for several processes, and they are not connected. Call "
                               "ampc.distributed.init_process_group() first, or set sync_across_gpus=False, so that each trains a model of its own")

    @staticmethod
    def together(amp: AMPConfig) -> bool:
        """Whether several processes train one model."""
        return amp.sync_across_gpus and is_one_of_several()

    def tells(self, amp: AMPConfig) -> bool:
        """Whether this process speaks for all."""
        return not self.together(amp) or get_rank() == 0

    def module_of(self, model: nn.Module, amp: AMPConfig) -> nn.Module:
        """What runs in the model's place: a DistributedDataParallel, with SyncBatchNorm for batch norms. RuntimeError for a model that averages
        its gradients although ``sync_across_gpus`` is off."""
        if not self.together(amp):
            if isinstance(model, DistributedDataParallel) and is_one_of_several():
                raise RuntimeError("training_step: the model is a DistributedDataParallel, which averages gradients, and sync_across_gpus is off; "
                                   "leave it on, or give the module itself")
            return model
        known = next((wrapped for given, wrapped in self._modules if given is model), None)
        if known is None:
            known = _wrapped(model, amp.sync_batch_norm)
            self._modules.append((model, known))
        return known

    @staticmethod
    def apart(module: nn.Module, apart: bool) -> ContextManager[Any]:
        """Within it gradients add up in each process, if ``apart``."""
        return module.no_sync() if apart and isinstance(module, DistributedDataParallel) else contextlib.nullcontext()

    def sums(self, values: List[float], amp: AMPConfig) -> List[float]:
        """The sum of each over all processes, in one message of float64."""
        if not self.together(amp):
            return values
        message = make.tensor(values, dtype=_C.float64, device=group_of("training").device)
        all_reduce(message)
        return list(message.tolist())

    # -- checkpoints

    def every(self, value: Any, amp: AMPConfig) -> List[Any]:
        """The value of each rank."""
        if not self.together(amp):
            return [value]
        found: List[Any] = [None] * get_world_size()
        all_gather_object(found, value)
        return found

    def by_first(self, f: Callable[[], Any], amp: AMPConfig) -> Any:
        """What ``f()`` gives on rank 0, which alone calls it, on all ranks. All wait, and an error of it is raised on all."""
        if not self.together(amp):
            return f()
        told: List[Any] = [None, None]
        error: Optional[Exception] = None
        if get_rank() == 0:
            try:
                told[0] = f()
            except Exception as raised:
                error, told[1] = raised, _that_travels(raised)
        broadcast_object_list(told)
        if told[1] is not None:
            raise error or told[1]
        return told[0]


def _wrapped(model: nn.Module, sync_batch_norm: bool) -> DistributedDataParallel:
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    if sync_batch_norm:
        inner = nn.SyncBatchNorm.convert_sync_batchnorm(inner)
    if isinstance(model, DistributedDataParallel):
        model.module = inner
        return model
    return DistributedDataParallel(inner)


def plain(model: nn.Module) -> nn.Module:
    """The module within a DistributedDataParallel, whose checkpoints one process can read, too."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def _that_travels(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
