"""Tensors that are spread over processes: ``DTensor``, which parameters of sharded modules are, and the placements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._names.missing import absent_from

if TYPE_CHECKING:
    from ._dtensor import DTensor as DTensor
    from ._dtensor import distribute_tensor as distribute_tensor

_LATER = ("DTensor", "distribute_tensor")  # loaded when they are asked for: they need the groups

if not TYPE_CHECKING:
    def __getattr__(name):
        if name in _LATER:
            from . import _dtensor, _over_ranks  # noqa: F401  which tells GradScaler and clipping of it

            return getattr(_dtensor, name)
        return absent_from(__name__)(name)
