"""Python's multiprocessing, with the names that torch adds. A tensor in shared memory (``Tensor.share_memory_``) is shared with the process that
gets it; others travel by value."""

from __future__ import annotations

import multiprocessing as _python
import sys
from multiprocessing import *  # noqa: F403
from typing import TYPE_CHECKING, Set

from .._C import Tensor
from .._names.missing import absent_from
from .._tensor.shared_memory import register_kinds
from .._tensor.storage import UntypedStorage
from .spawn import ProcessContext, ProcessException, ProcessExitedException, ProcessRaisedException, SpawnContext, spawn, start_processes

__all__ = [*_python.__all__, "ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext",
           "get_all_sharing_strategies", "get_sharing_strategy", "init_reductions", "set_sharing_strategy", "spawn", "start_processes"]

_strategies = ["file_system"] if sys.platform in ("darwin", "win32") else ["file_descriptor", "file_system"]
_strategy = _strategies[0]


def get_all_sharing_strategies() -> Set[str]:
    """The names that `set_sharing_strategy` accepts: 'file_system', and 'file_descriptor' on Linux."""
    return set(_strategies)


def get_sharing_strategy() -> str:
    """The name that was set last: 'file_descriptor' at first, 'file_system' on macOS and Windows."""
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Notes the name for `get_sharing_strategy`; shared memory is a file descriptor whatever it is. AssertionError for a name that
    `get_all_sharing_strategies` does not give."""
    global _strategy
    if new_strategy not in _strategies:
        raise AssertionError(f"set_sharing_strategy: expected one of {_strategies}, got {new_strategy!r}")
    _strategy = new_strategy


def init_reductions() -> None:
    """Tells Python's multiprocessing how tensors and storages are sent. Importing this module has done so."""
    register_kinds(Tensor, UntypedStorage)


init_reductions()

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
