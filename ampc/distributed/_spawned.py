"""Processes that MPI's launcher has not started, as ranks: those of ``multiprocessing.spawn``, and others that meet at a store (``_meeting.py``). MPI
knows only what mpiexec has started, so rank 0 has it start a stand-in for each rank, whose variables the ranks take over
(``ampc/_process/stand_in.py``)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any, List, Optional

from .._process import launcher as _launcher
from .._process import stand_in as _stand_in
from ..multiprocessing.spawn import spawned
from . import _arrival, _meeting, _mpi, _store
from .errors import DistNetworkError

_started: List[subprocess.Popen] = []
ADVICE = "start the script with `ampc run --nproc {}`, which starts the processes itself"


def can_connect() -> bool:
    """Whether this is a process of ``multiprocessing.spawn`` that MPI can be told of."""
    return spawned.folder is not None and _mpi.is_installed()


def become_rank(rank: int, size: int, seconds: float, init_method: Optional[str], store: Any) -> None:
    """In a process that MPI's launcher has not started: makes it this rank for MPI, which must not have started yet. Where there is one process,
    nothing is done.

    ValueError where a process of ``multiprocessing.spawn`` does not say its rank or their number; RuntimeError for another number than were
    spawned, and for processes of several hosts; DistNetworkError where one does not come, or mpiexec does not start the ranks, within ``seconds``."""
    if _launcher.rank_of_mpi() is not None or not _mpi.is_installed():
        return
    if spawned.folder is not None:
        met: Optional[_meeting.Met] = _spawned(*_store.said(rank, size))
    else:
        met = _meeting.at_a_store(init_method, store, rank, size, max(seconds, _arrival.LEAST))
    if met is None or met.size < 2:
        return
    if met.rank == 0:
        _start(met.size, met.folder, spawned.folder is None)
    _take(*met, seconds)


def _spawned(rank: int, size: int) -> _meeting.Met:
    assert spawned.folder is not None
    if rank < 0 or size < 1:
        raise ValueError("init_process_group: a process of multiprocessing.spawn must say which it is: give `rank` and `world_size`")
    if size != spawned.count or rank >= size:
        raise RuntimeError(f"init_process_group: `rank` {rank} of `world_size` {size}, and multiprocessing.spawn has started {spawned.count} "
                           "processes; on several hosts start them by `mpiexec -n N --hostfile hosts ampc run train.py`")
    return _meeting.Met(rank, size, spawned.folder)


def _start(size: int, folder: str, is_ours: bool) -> None:
    """Has mpiexec start the stand-ins, that of rank 0 to remove the folder after this process where it is ``is_ours``."""
    try:
        starter = [_stand_in.process_of(os.getpid())] if is_ours else []
        line = _launcher.command(size, [sys.executable, "-I", "-S", os.path.abspath(_stand_in.__file__), folder, *starter])
    except _launcher.CannotStart as error:
        _stand_in.put(os.path.join(folder, "failed"), str(error))
        return
    if not _launcher.is_open_mpi(line[0]):
        _stand_in.put(os.path.join(folder, "failed"), f"{line[0]} is not Open MPI's, which alone can connect processes that it has not started")
        return
    with open(os.path.join(folder, "mpiexec.txt"), "wb") as said:
        _started.append(subprocess.Popen(_launcher.started(line), env=_launcher.environment(size, os.environ), stdin=subprocess.DEVNULL, stdout=said,
                                         stderr=said, start_new_session=True))


def _take(rank: int, size: int, folder: str, seconds: float) -> None:
    """Waits for the stand-in, and takes its variables."""
    end, path = time.monotonic() + seconds, os.path.join(folder, f"rank{rank}.json")
    while (text := _stand_in.read(path)) is None:
        why = _why_not(folder)
        if why is not None or time.monotonic() >= end:
            raise DistNetworkError(f"init_process_group: the processes could not be connected: "
                                   f"{why or f'not all have called it within {seconds:g} s'}; {ADVICE.format(size)}")
        time.sleep(0.01)
    os.environ.update(json.loads(text))
    _stand_in.put(os.path.join(folder, f"rank{rank}.pid"), _stand_in.process_of(os.getpid()))


def _why_not(folder: str) -> Optional[str]:
    """Why the stand-ins will not come; None while they may."""
    why = _stand_in.read(os.path.join(folder, "failed"))
    if why is None and _started and _started[0].poll() is not None:
        why = (_stand_in.read(os.path.join(folder, "mpiexec.txt")) or "").strip() or f"mpiexec has ended with status {_started[0].returncode}"
        _stand_in.put(os.path.join(folder, "failed"), why)
    return why
