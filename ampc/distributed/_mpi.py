"""MPI, through mpi4py: loaded when the first group is made, and ended with the process. ``_store`` has the same functions without MPI."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import re
import shutil
import time
import zlib
from array import array
from typing import TYPE_CHECKING, Any, Dict, Iterator, List

from .._process import owners
from .._process.launcher import INSTALL
from . import _arrival, _ends
from .errors import DistNetworkError

if TYPE_CHECKING:
    from ._board import Board

MEMORY, BACKING = "/dev/shm", "OMPI_MCA_btl_sm_backing_directory"  # where Open MPI puts files by default, and what says another folder
_found: Dict[str, Any] = {}


def is_installed() -> bool:
    """Whether mpi4py is there."""
    return importlib.util.find_spec("mpi4py") is not None


def start(seconds: float = 0.0) -> Any:
    """The module ``mpi4py.MPI``, with MPI running. DistNetworkError where it is not installed or cannot start, or where, the first time, processes do
    not come within ``seconds``."""
    if "MPI" in _found:
        return _found["MPI"]
    if not is_installed():
        raise DistNetworkError(f"init_process_group: several processes talk by MPI, and mpi4py is not installed; {INSTALL}")
    import mpi4py

    os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")  # who waits leaves the core to who computes
    mpi4py.rc.initialize = mpi4py.rc.finalize = False  # it is ended here, where a failure is known
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise DistNetworkError(f"init_process_group: mpi4py has found no MPI library ({error}); {INSTALL}") from error
    started_here = not MPI.Is_initialized()
    with _folder_of_segments():
        _found["board"] = _arrival.in_time(lambda: _connect(MPI, started_here), seconds)
    _found["MPI"] = MPI
    _ends.listen_to_the_end(_found["board"], MPI.COMM_WORLD.size, (lambda: _finish(MPI)) if started_here else bool)
    return MPI


@contextlib.contextmanager
def _folder_of_segments() -> Iterator[None]:
    """Open MPI puts what processes of this host share, which has a name until all have mapped it, into a folder of this process: where it is killed
    meanwhile, the next one to start removes it. Where the user has said another folder, or there is no such memory, nothing is done."""
    if BACKING in os.environ or not os.access(MEMORY, os.W_OK):
        yield
        return
    folder = os.environ[BACKING] = owners.new_folder("segments", MEMORY)
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        del os.environ[BACKING]
        with contextlib.suppress(OSError):  # not empty: others may map it later, and the next one to start after this process removes it
            os.rmdir(folder)


def _connect(MPI: Any, starts: bool) -> Board:
    """Waits for all processes."""
    from ._board import Board

    if starts:
        _initialize(MPI)
        _drop_names(MPI)
    return Board(MPI, MPI.COMM_WORLD)


def _initialize(MPI: Any) -> None:
    """``MPI.Init_thread``, which keeps Python's lock until all processes have come; here other threads of Python run meanwhile."""
    given = ctypes.c_int()
    status = ctypes.CDLL(MPI.__file__).MPI_Init_thread(None, None, MPI.THREAD_MULTIPLE, ctypes.byref(given))
    if status != MPI.SUCCESS or given.value < MPI.THREAD_MULTIPLE:
        why = f"cannot start (error code {status})" if status != MPI.SUCCESS else "does not allow several threads (MPI_THREAD_MULTIPLE)"
        raise DistNetworkError(f"init_process_group: this MPI library {why}")
    for comm in (MPI.COMM_WORLD, MPI.COMM_SELF):
        comm.Set_errhandler(MPI.ERRORS_RETURN)  # errors become exceptions, as after mpi4py's own start


def _finish(MPI: Any) -> None:
    """Ends MPI once all ranks are about to. MPI's own end waits for them, too, but it stops all threads of Python meanwhile: those of a
    TCPStore, which other ranks may still ask."""
    others = MPI.COMM_WORLD.Ibarrier()
    while not others.Test():
        time.sleep(0.005)
    MPI.Finalize()


def _drop_names(MPI: Any) -> None:
    """Removes the names of the segments that Open MPI's processes of this host share, once all of them have mapped all. So nothing is left of them
    in /dev/shm when processes are killed."""
    host = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    mapped = _segments()
    if all(others == mapped for others in host.allgather(mapped)):
        for name in mapped:
            with contextlib.suppress(OSError):
                os.unlink(name)
    host.Free()


def _segments() -> List[str]:
    """Files that this process has mapped for MPI's messages within a host."""
    try:
        with open("/proc/self/maps") as f:
            return sorted(set(re.findall(r"/dev/shm/(?:ampc-segments-\S+/)?(?:sm|vader)_segment\.\S+$", f.read(), re.M)))
    except OSError:  # no Linux
        return []


def board() -> Board:
    """This host's board."""
    return _found["board"]


def agrees(comm: Any, same: str) -> bool:
    """Whether all ranks of a communicator say the same."""
    MPI = start()
    number = zlib.crc32(same.encode())
    mine, most = array("q", (number, -number)), array("q", (0, 0))
    comm.Allreduce(mine, most, MPI.MAX)
    return most[0] == -most[1]


def part(comm: Any, members: List[int], tag: int) -> Any:
    """A communicator of some of the processes, which alone call it."""
    return comm.Create_group(comm.group.Incl(members), tag)
