"""Processes of ``multiprocessing.spawn`` as ranks. MPI knows only what mpiexec has started, so rank 0 has it start a stand-in for each rank, whose
variables the ranks take over (``_stand_in.py``)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import List, Optional

from .._process import launcher as _launcher
from ..multiprocessing.spawn import spawned
from . import _mpi, _stand_in
from .errors import DistNetworkError

_started: List[subprocess.Popen] = []
ADVICE = "start the script with `ampc run --nproc {}` and without spawn"


def can_connect() -> bool:
    """Whether this is a process of ``multiprocessing.spawn`` that MPI can be told of."""
    return spawned.folder is not None and _mpi.is_installed()


def become_rank(rank: int, size: int, seconds: float) -> None:
    """In a process of ``multiprocessing.spawn`` that no launcher knows: makes it this rank for MPI, which must not have started yet. Elsewhere
    nothing is done.

    ValueError where rank or number of ranks is not said; RuntimeError for another number than were spawned; DistNetworkError where mpiexec
    does not start the ranks within ``seconds``."""
    if spawned.folder is None or _launcher.rank_of_mpi() is not None:
        return
    rank = rank if rank >= 0 else int(os.environ.get("RANK") or -1)
    size = size if size > 0 else int(os.environ.get("WORLD_SIZE") or -1)
    if rank < 0 or size < 1:
        raise ValueError("init_process_group: a process of multiprocessing.spawn must say which it is: give `rank` and `world_size`")
    if size != spawned.count or rank >= size:
        raise RuntimeError(f"init_process_group: `rank` {rank} of `world_size` {size}, and multiprocessing.spawn has started {spawned.count} "
                           "processes; on several hosts start them by `mpiexec -n N --hostfile hosts ampc run train.py`")
    if size > 1:
        if rank == 0:
            _start(size, spawned.folder)
        _take(rank, size, spawned.folder, seconds)


def _start(size: int, folder: str) -> None:
    try:
        line = _launcher.command(size, [sys.executable, "-I", "-S", os.path.abspath(_stand_in.__file__), folder])
    except _launcher.CannotStart as error:
        _stand_in.put(os.path.join(folder, "failed"), str(error))
        return
    if not _launcher.is_open_mpi(line[0]):
        _stand_in.put(os.path.join(folder, "failed"), f"{line[0]} is not Open MPI's, which can connect spawned processes")
        return
    with open(os.path.join(folder, "mpiexec.txt"), "wb") as said:
        _started.append(subprocess.Popen(line, env=_launcher.environment(size, os.environ), stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                                         start_new_session=True))


def _take(rank: int, size: int, folder: str, seconds: float) -> None:
    """Waits for the stand-in, and takes its variables."""
    end, path = time.monotonic() + seconds, os.path.join(folder, f"rank{rank}.json")
    while (text := _stand_in.read(path)) is None:
        why = _why_not(folder)
        if why is not None or time.monotonic() >= end:
            raise DistNetworkError(f"init_process_group: the processes of multiprocessing.spawn could not be connected: "
                                   f"{why or f'not all have called it within {seconds:g} s'}; {ADVICE.format(size)}")
        time.sleep(0.01)
    os.environ.update(json.loads(text))
    _stand_in.put(os.path.join(folder, f"rank{rank}.pid"), str(os.getpid()))


def _why_not(folder: str) -> Optional[str]:
    """Why the stand-ins will not come; None while they may."""
    why = _stand_in.read(os.path.join(folder, "failed"))
    if why is None and _started and _started[0].poll() is not None:
        why = (_stand_in.read(os.path.join(folder, "mpiexec.txt")) or "").strip() or f"mpiexec has ended with status {_started[0].returncode}"
        _stand_in.put(os.path.join(folder, "failed"), why)
    return why
