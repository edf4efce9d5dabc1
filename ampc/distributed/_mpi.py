"""MPI, through mpi4py: loaded when the first group is made, and ended with the process."""

from __future__ import annotations

import atexit
import importlib.util
import os
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Callable, Dict

from .._launcher import INSTALL
from ..multiprocessing.spawn import spawned
from .errors import DistBackendError, DistNetworkError

if TYPE_CHECKING:
    from ._board import Board

LINGER = 2.0  # seconds in which the others may learn why this process has failed
_found: Dict[str, Any] = {}
before_the_end: Callable[[], Any] = bool  # what ends the groups


def is_installed() -> bool:
    """Whether mpi4py is there."""
    return importlib.util.find_spec("mpi4py") is not None


def start() -> Any:
    """The module ``mpi4py.MPI``, with MPI running. DistNetworkError where it is not installed or cannot start."""
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
    if started_here and MPI.Init_thread(MPI.THREAD_MULTIPLE) < MPI.THREAD_MULTIPLE:
        raise DistNetworkError("init_process_group: this MPI library does not allow several threads (MPI_THREAD_MULTIPLE)")
    from ._board import Board

    _found["board"] = Board(MPI, MPI.COMM_WORLD)
    _found["MPI"] = MPI
    _listen_to_the_end(MPI, started_here)
    return MPI


def board() -> Board:
    """This host's board."""
    return _found["board"]


# -- the end of the process --------------------------------------------------------------------------------------------


def _listen_to_the_end(MPI: Any, started_here: bool) -> None:
    before, _found["process"] = sys.excepthook, os.getpid()

    def fail(error: BaseException) -> None:
        if _is_own():
            board().fail(_in_short(error))

    def note(kind: Any, error: BaseException, trace: Any) -> None:
        fail(error)
        before(kind, error, trace)

    sys.excepthook = note

    def end() -> None:
        if not _is_own():
            return
        try:
            if not board().failed():
                before_the_end()
        except DistBackendError as error:
            print(f"ampc.distributed: {error}", file=sys.stderr)
            board().fail(str(error))
        if board().failed():
            _linger()
        else:
            board().leave()
            if started_here:
                MPI.Finalize()

    if spawned.folder is None:
        atexit.register(end)
    else:
        spawned.failed, spawned.ended = fail, end
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)


def _is_own() -> bool:
    """Whether this process has started MPI, and is not forked from one that has, such as a DataLoader's worker."""
    return _found["process"] == os.getpid()


def _in_short(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({last[0].filename}:{last[0].lineno})" if last else ""
    return f"{type(error).__name__}: {error}{where}"


def _linger() -> None:
    """MPI ends the other processes when this one is gone, so they get a moment to say why they failed."""
    end = time.monotonic() + LINGER
    while time.monotonic() < end and not board().all_know():
        time.sleep(0.02)
    time.sleep(0.1)


def _terminated(number: int, frame: Any) -> None:
    """mpiexec ends all processes when one has died, which is then named; else the signal does what it does without this."""
    ranks = list(range(_found["MPI"].COMM_WORLD.size))
    end = time.monotonic() + 0.3
    while _is_own() and time.monotonic() < end and not board().failed():
        gone = board().gone(ranks)
        if gone is not None:
            raise DistBackendError(f"{gone}; the launcher ends all processes")
        time.sleep(0.02)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), number)
