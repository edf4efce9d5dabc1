"""The processes come to ``init_process_group``. Within MPI's own start nobody could be told who is missing: it waits for all, without Python and
without an end.

Open MPI's launcher has a folder for its processes of each host, and removes it after them. Each process leaves a file there. Those of several hosts
also tell `ampc run`, which has started them: it keeps a store, and says in a variable where.

Under other launchers nobody knows who is missing. A thread beside waits in MPI there, so that who waits learns at least that somebody is."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import time
from datetime import timedelta
from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

from .._process import launcher as _launcher
from .._process import stand_in as _stand_in
from .errors import DistNetworkError
from .stores import Store
from .work import run_beside

FOLDER, JOB = "PMIX_SERVER_TMPDIR", "PMIX_NAMESPACE"  # variables of Open MPI's launcher
LOCAL_RANK, LOCAL_SIZE, SIZE = "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"
RANK = "OMPI_COMM_WORLD_RANK"
PAUSE, LOOK = 0.005, 1.0  # seconds between two looks for files, and for processes
LEAST = 10.0  # seconds that processes may take to start, whatever an operation may take
MEETING = "AMPC_MEETING"  # the variable: addresses and port of the launcher's store, as in 10.0.0.1,10.1.0.1:4000
CONNECT = 5.0  # seconds for a connection to it
_calls = itertools.count()
_come: Dict[int, str] = {}  # the processes of this host that have come, by their local ranks


def meet(seconds: float) -> None:
    """Waits until all processes of this host have come, and those of others where `ampc run` has started them. DistNetworkError that names those
    which have ended, or are not here within ``seconds``, or LEAST. Without Open MPI's launcher nothing is done."""
    seconds = max(seconds, LEAST)
    if not all(name in os.environ for name in (FOLDER, JOB, LOCAL_RANK, LOCAL_SIZE, SIZE)):
        return
    name = f"{os.environ[JOB]}.{next(_calls)}."
    store = _store(CONNECT) if os.environ[LOCAL_SIZE] != os.environ[SIZE] and os.environ.get(MEETING) else None
    if store is not None:
        store.set(name + os.environ[RANK], socket.gethostname())
    _meet_here(os.path.join(os.environ[FOLDER], f"ampc.{name}"), seconds)
    if store is not None:
        _meet_others(store, name, seconds)


def in_time(f: Callable[[], Any], seconds: float) -> Any:
    """What ``f()`` returns, which connects the processes by MPI. DistNetworkError where it has not ended within ``seconds``, or LEAST."""
    return run_beside(_Coming(max(seconds, LEAST)), "init_process_group", f)


class _Coming:
    """What a ``Work`` asks while there is no group yet."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def look_around(self, what: str, number: int, waited: float = 0) -> None:
        """DistNetworkError where a process of this host has ended. Open MPI would end this one for it, without a word of which."""
        gone = [rank for rank, process in _come.items() if not _stand_in.lives(process)]
        if gone:
            raise DistNetworkError(f"{what}: {_named(gone)} ended while the processes were connected")

    def give_up(self, what: str, number: int, seconds: float) -> NoReturn:
        """DistNetworkError that names this rank."""
        rank, size = _launcher.rank(), _launcher.size()
        me, all_ = "this process" if rank is None else f"rank {rank}", "the processes" if size is None else f"all {size} processes"
        raise DistNetworkError(f"{what}: {me} on {socket.gethostname()} has waited {seconds:g} s until {all_} are connected; one of them has not "
                               f"called it, hangs, or cannot be reached over the network. `ampc run --nproc {size or 'N'} --hostfile hosts` starts "
                               "them so that the missing one is named")


def listen_for_ranks(addresses: List[str]) -> Tuple[Any, str]:
    """What the launcher keeps while its processes run, and the value of MEETING for them."""
    from ._tcp_store import Server

    server = Server(0)
    return server, f"{','.join(addresses)}:{server.port}"


def _store(seconds: float) -> Optional[Store]:
    """The launcher's; None where it cannot be reached, as over a firewall."""
    from ._tcp_store import TCPStore

    hosts, _, port = os.environ[MEETING].rpartition(":")
    for host in hosts.split(","):
        with contextlib.suppress(DistNetworkError):
            return TCPStore(host, int(port), timeout=timedelta(seconds=seconds))
    return None


def _meet_others(store: Store, name: str, seconds: float) -> None:
    """The processes of other hosts."""
    everybody, begin = [name + str(rank) for rank in range(int(os.environ[SIZE]))], time.monotonic()
    while not store.check(everybody):
        if time.monotonic() - begin >= seconds:
            missing = [rank for rank, key in enumerate(everybody) if not store.check([key])]
            here = {host.decode() for host in store.multi_get([key for rank, key in enumerate(everybody) if rank not in missing])}
            raise DistNetworkError(f"init_process_group: {_named(missing, 'rank')} not called it within {seconds:g} s; those that have are on "
                                   f"{', '.join(sorted(here))}")
        time.sleep(PAUSE)


def _meet_here(name: str, seconds: float) -> None:
    try:
        _stand_in.put(name + os.environ[LOCAL_RANK], _stand_in.process_of(os.getpid()))
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
    _come.update({rank: said for rank in range(int(os.environ[LOCAL_SIZE])) if (said := _stand_in.read(name + str(rank)))})


def _named(ranks: List[int], what: str = "") -> str:
    what = what or ("rank" if os.environ[LOCAL_SIZE] == os.environ[SIZE] else "local rank")
    more = len(ranks) > 1
    return f"{what}{'s' * more} {', '.join(map(str, ranks))} {'have' if more else 'has'}"


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
