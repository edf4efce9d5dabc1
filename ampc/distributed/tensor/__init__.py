"""Tensors on several devices: of torch's names only the placements are here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._missing import absent_from

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
