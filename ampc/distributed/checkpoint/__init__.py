"""Checkpoints that several processes write and read: ``save`` and ``load``. ``state_dict`` takes state dicts of sharded modules and their
optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._names.missing import absent_from
from ._save_load import FileSystemReader, FileSystemWriter, load, save

__all__ = ["FileSystemReader", "FileSystemWriter", "load", "save"]

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
