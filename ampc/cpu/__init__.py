"""The CPU as a device."""

from typing import TYPE_CHECKING

from .._names.missing import absent_from
from . import amp


def is_available() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1"""
    return 1


def current_device() -> str:
    """'cpu'"""
    return "cpu"


def synchronize(device: object = None) -> None:
    """Nothing to wait for: CPU operators are done when they return."""


__all__ = ["amp", "current_device", "device_count", "is_available", "synchronize"]

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
