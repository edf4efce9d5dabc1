"""State dicts of sharded modules: ``state_dict``. Checkpoints that several processes write are not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._missing import absent_from

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
