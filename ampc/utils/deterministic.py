"""torch.utils.deterministic: whether memory that nobody has set is filled, once `use_deterministic_algorithms(True)` was called."""

import sys
import types

from .._tensor.device import asked

__all__ = ["fill_uninitialized_memory"]


class _Module(types.ModuleType):
    @property
    def fill_uninitialized_memory(self) -> bool:
        """True: `empty`, `resize_` and their like then give nan, or the largest integer, so that a value that nobody sets is noticed."""
        return asked["fill"]

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, fill: bool) -> None:
        asked["fill"] = bool(fill)


sys.modules[__name__].__class__ = _Module
fill_uninitialized_memory: bool
