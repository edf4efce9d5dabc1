"""The processes of this host come to ``init_process_group``. Within MPI's own start nobody could be told who is missing: it waits for all, without
Python and without an end.

Open MPI's launcher has a folder for its processes of each host, and removes it after them. Each process leaves a file there."""

from __future__ import annotations

import itertools
import os
import time
from typing import List

from .errors import DistNetworkError

FOLDER, JOB = "PMIX_SERVER_TMPDIR", "PMIX_NAMESPACE"  # variables of Open MPI's launcher
LOCAL_RANK, LOCAL_SIZE, SIZE = "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"
PAUSE, LOOK = 0.005, 1.0  # seconds between two looks for files, and for processes
LEAST = 10.0  # seconds that processes may take to start, whatever an operation may take
_calls = itertools.count()


def meet(seconds: float) -> None:
    """Waits until all processes of this host have come. DistNetworkError that names those which have ended, or are not here within ``seconds``, or
    LEAST. Without Open MPI's launcher nothing is done."""
    seconds = max(seconds, LEAST)
    if not all(name in os.environ for name in (FOLDER, JOB, LOCAL_RANK, LOCAL_SIZE, SIZE)):
        return
    name = os.path.join(os.environ[FOLDER], f"ampc.{os.environ[JOB]}.{next(_calls)}.")
    try:
        open(name + os.environ[LOCAL_RANK], "w").close()
    except OSError:  # it is not ours to write to
        return
    begin = looked = time.monotonic()
    missing = list(range(int(os.environ[LOCAL_SIZE])))
    dead: List[int] = []
    while missing := [rank for rank in missing if not os.path.exists(name + str(rank))]:
        now = time.monotonic()
        if now - begin >= seconds:
            raise DistNetworkError(f"init_process_group: {_named(missing)} not called it within {seconds:g} s")
        if now - looked >= LOOK:
            before, looked, dead = dead, now, _dead(missing)
            ended = [rank for rank in before if rank in dead and not os.path.exists(name + str(rank))]
            if ended:
                raise DistNetworkError(f"init_process_group: {_named(ended)} ended without calling it")
        time.sleep(PAUSE)


def _named(local: List[int]) -> str:
    what = "rank" if os.environ[LOCAL_SIZE] == os.environ[SIZE] else "local rank"
    more = len(local) > 1
    return f"{what}{'s' * more} {', '.join(map(str, local))} {'have' if more else 'has'}"


def _sees_all() -> bool:
    """Whether the launcher is among this process' ancestors. Then all that it has started can be seen; from within a container they may not be."""
    pid = os.getppid()
    while pid > 0:
        try:
            with open(f"/proc/{pid}/stat") as f:
                before, _, after = f.read().rpartition(")")
        except OSError:
            return False
        if before.partition("(")[2].startswith("prte"):
            return True
        pid = int(after.split()[1])
    return False


def _dead(local: List[int]) -> List[int]:
    """Those of the local ranks of which there is no process, as far as that can be seen."""
    if not _sees_all():
        return []
    job, left = f"{JOB}={os.environ[JOB]}".encode(), set(local)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                variables = set(f.read().split(b"\0"))
        except OSError:  # another user's, or it has just ended
            continue
        if job in variables:
            left -= {rank for rank in left if f"{LOCAL_RANK}={rank}".encode() in variables}
    return sorted(left)
