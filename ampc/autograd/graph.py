"""The graph that backward walks, and what it keeps: hooks that pack tensors which are saved for backward."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from .. import _C
from .._C import Node, Tensor

__all__ = ["Node", "saved_tensors_hooks", "save_on_cpu"]


class saved_tensors_hooks(_C.Scope):
    """Inside, what operators save for backward goes through ``pack_hook`` (Tensor -> anything) when it is saved and through
    ``unpack_hook`` (that -> Tensor, of the same shape and dtype) whenever backward asks for it. Leaves that require gradients
    are kept as they are. The innermost pair of hooks is used; hooks must not change their tensors."""

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def _changes(self) -> tuple:
        cell = ([(self.pack_hook, self.unpack_hook)],)
        return ((_C._swap_saved_hooks, cell, _C._swap_saved_hooks, cell),)


class save_on_cpu(saved_tensors_hooks):
    """Inside, tensors saved for backward lie in the CPU's memory, page-locked with ``pin_memory``, and come back when asked for."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(t: Tensor) -> Tuple[Any, Tensor]:
            there = t.cpu()
            return t.device, there.pin_memory() if pin_memory and t.is_cuda else there

        def unpack(packed: Tuple[Any, Tensor]) -> Tensor:
            device, t = packed
            return t.to(device, non_blocking=pin_memory)

        super().__init__(pack, unpack)
