"""What scripts ask about backends, and the level of checks."""

from __future__ import annotations

import os
from enum import Enum, IntEnum
from typing import Any, Dict, List

from .._tensor.device import device as device_of
from .groups import group_of, names


class Backend(str):
    """The name of a backend, in small letters; ``Backend.GLOO == 'gloo'``. ValueError for what is no str."""

    UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE = "undefined", "gloo", "nccl", "xccl", "ucc", "mpi", "fake"
    backend_list: List[str] = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE]
    default_device_backend_map: Dict[str, str] = {"cpu": MPI, "cuda": NCCL}

    def __new__(cls, name: str) -> Backend:
        """The name."""
        if not isinstance(name, str):
            raise ValueError(f"Backend: expected a name such as 'mpi', got {type(name).__name__}")
        return str.__new__(cls, name.lower())


class DebugLevel(IntEnum):
    """How much is checked. ``OFF`` leaves out the comparison of calls; the other two are one here."""

    OFF, INFO, DETAIL = range(3)
    __str__ = Enum.__str__


_level: List[DebugLevel] = []


def get_debug_level() -> DebugLevel:
    """What the variable TORCH_DISTRIBUTED_DEBUG says, or ``set_debug_level`` has; ``OFF`` where neither does. Calls are compared unless the
    variable says OFF when a group is made."""
    if not _level:
        set_debug_level_from_env()
    return _level[0]


def set_debug_level(level: DebugLevel) -> None:
    """What ``get_debug_level`` gives. Groups ask the variable TORCH_DISTRIBUTED_DEBUG alone."""
    _level[:] = [DebugLevel(level)]


def set_debug_level_from_env() -> None:
    """What the variable TORCH_DISTRIBUTED_DEBUG says now. RuntimeError where that is not OFF, INFO or DETAIL."""
    text = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if text not in DebugLevel.__members__:
        raise RuntimeError(f"TORCH_DISTRIBUTED_DEBUG must be OFF, INFO or DETAIL, got {text!r}")
    set_debug_level(DebugLevel[text])


def get_pg_count() -> int:
    """The number of groups that were made since ``init_process_group``, with those that this process is not in, and its own; 0 before it."""
    return 1 + names.WORLD.others if names.WORLD is not None else 0


def get_backend_config(group: Any = None) -> str:
    """The group's backend for each kind of device, such as 'cpu:mpi,cuda:nccl'. ValueError without a group."""
    name = group_of("get_backend_config", group).name()
    return name if ":" in name else f"cuda:{name}" if name == "nccl" else f"cpu:{name},cuda:{name}"


def get_default_backend_for_device(device: Any) -> str:
    """'mpi' for the CPU, 'nccl' for a GPU. ValueError for other devices."""
    kind = device_of(device).type
    if kind not in Backend.default_device_backend_map:
        raise ValueError(f"get_default_backend_for_device: expected a CPU or a GPU, got {str(device)!r}")
    return Backend.default_device_backend_map[kind]
