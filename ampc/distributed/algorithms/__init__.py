"""Algorithms between processes: communication hooks of DistributedDataParallel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._names.missing import absent_from

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
