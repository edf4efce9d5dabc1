"""Training in several processes, with torch.distributed's names, on MPI, and on NCCL between GPUs.

``ampc run --nproc 4 train.py`` or ``mpiexec -n 4 ampc run train.py`` starts the processes, and ``init_process_group()`` connects them.
``groups.py`` makes groups, ``collectives.py``, ``objects.py`` and ``point_to_point.py`` move values, ``work.py`` waits for them,
``_board.py`` says who is missing. mpi4py is loaded when the first group is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._library_functions import group as group
from .._names.missing import absent_from
from ._meeting import rendezvous
from ._tcp_store import TCPStore
from .backend_names import (
    Backend,
    DebugLevel,
    get_backend_config,
    get_debug_level,
    get_default_backend_for_device,
    get_pg_count,
    set_debug_level,
    set_debug_level_from_env,
)
from .coalesced import all_gather_coalesced, all_reduce_coalesced
from .collectives import (
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from .errors import DistBackendError, DistError, DistNetworkError, DistStoreError, QueueEmptyError
from .groups import (
    ProcessGroup,
    _get_default_group,
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_available,
    is_backend_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    new_group,
)
from .objects import all_gather_object, broadcast_object_list, gather_object, recv_object_list, scatter_object_list, send_object_list
from .point_to_point import P2POp, batch_isend_irecv, irecv, isend, monitored_barrier, recv, send
from .reductions import ReduceOp
from .stores import FileStore, HashStore, PrefixStore, Store
from .subgroups import new_subgroups, new_subgroups_by_enumeration
from .work import Work

all_gather_single, reduce_scatter_single = all_gather_into_tensor, reduce_scatter_tensor  # newer names

__all__ = ["Backend", "DebugLevel", "DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "FileStore", "HashStore",
           "P2POp", "PrefixStore", "ProcessGroup", "QueueEmptyError", "ReduceOp", "Store", "TCPStore", "Work", "_get_default_group",
           "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_gather_single", "all_reduce",
           "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list",
           "destroy_process_group", "gather", "gather_object", "get_backend", "get_backend_config", "get_debug_level",
           "get_default_backend_for_device", "get_global_rank", "get_group_rank", "get_node_local_rank", "get_pg_count",
           "get_process_group_ranks", "get_rank", "get_world_size", "group", "init_process_group", "irecv", "is_available",
           "is_backend_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "isend",
           "monitored_barrier", "new_group", "new_subgroups", "new_subgroups_by_enumeration", "recv", "recv_object_list", "reduce",
           "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor", "rendezvous", "scatter", "scatter_object_list", "send",
           "send_object_list", "set_debug_level", "set_debug_level_from_env", ]

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
