"""Training in several processes, with torch.distributed's names, on MPI, and on NCCL between GPUs.

``ampc run --nproc 4 train.py`` or ``mpiexec -n 4 ampc run train.py`` starts the processes, and ``init_process_group()`` connects them.
``groups.py`` makes groups, ``collectives.py``, ``objects.py`` and ``point_to_point.py`` move values, ``work.py`` waits for them,
``_board.py`` says who is missing. mpi4py is loaded when the first group is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._library_functions import group as group
from .._missing import absent_from
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
from .errors import DistBackendError, DistError, DistNetworkError, DistStoreError
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
from .objects import all_gather_object, broadcast_object_list, gather_object, scatter_object_list
from .point_to_point import P2POp, batch_isend_irecv, irecv, isend, monitored_barrier, recv, send
from .reductions import ReduceOp
from .work import Work

__all__ = ["DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "P2POp", "ProcessGroup", "ReduceOp", "Work",
           "_get_default_group", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
           "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list", "destroy_process_group", "gather",
           "gather_object", "get_backend", "get_global_rank", "get_group_rank", "get_node_local_rank", "get_process_group_ranks",
           "get_rank", "get_world_size", "group", "init_process_group", "irecv", "is_available", "is_backend_available", "is_initialized",
           "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "isend", "monitored_barrier", "new_group", "recv",
           "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send"]

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
