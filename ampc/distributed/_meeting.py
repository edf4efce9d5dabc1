"""Processes of one host that no launcher of MPI has started, such as those of torchrun, of srun without PMIx, or of ``multiprocessing.Process``. They
meet at a store, as torch's do, and learn there which folder they share (``_spawned.py``)."""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple
from urllib.parse import parse_qs, urlsplit

from .._library_functions import default_pg_timeout
from .._process import owners
from . import _store
from .errors import DistNetworkError
from .stores import FileStore, PrefixStore, Store

PAUSE, PATIENCE = 0.005, 10.0  # seconds between two looks at the store, and until the others have read what all have said
_kept: List[Store] = []  # others may ask it as long as this process lives


class Met(NamedTuple):
    """This process' rank, the number of processes, and a folder that they share."""

    rank: int
    size: int
    folder: str


def at_a_store(init_method: Optional[str], store: Optional[Store], rank: int, size: int, seconds: float) -> Optional[Met]:
    """Waits for all processes; None where there is one, or where it is not said which this one is, and where they meet.

    DistNetworkError that names the ranks which have not come within ``seconds``; RuntimeError where they are on several hosts, or another process
    has come as this rank."""
    rank, size = _store.said(rank, size)
    store = store if store is not None or rank < 0 or size < 2 else _store_at(init_method, rank, size, seconds)
    if store is None:
        return None
    _kept.append(store)
    own = PrefixStore("ampc", store)
    return Met(rank, size, _folder(own, rank, _all_here(own, rank, size, seconds)))


def _store_at(init_method: Optional[str], rank: int, size: int, seconds: float) -> Optional[Store]:
    """The store of 'file://path', 'tcp://host:port' or the variables; None where these are not set."""
    from ._tcp_store import TCPStore

    if str(init_method).startswith("file://"):
        url = urlsplit(str(init_method))
        return FileStore(url.netloc + url.path, size) if url.netloc + url.path else None
    host, port = _store.address(init_method)
    if not host:
        return None
    return TCPStore(host, port, size, rank == 0, timedelta(seconds=seconds), wait_for_workers=False, multi_tenant=True)


def told_by(url: Optional[str], rank: int, size: int) -> Tuple[int, int]:
    """Rank and number of processes, which a URL may say in place of arguments: 'tcp://host:port?rank=0&world_size=2'. AssertionError where both
    do."""
    query = parse_qs(urlsplit(str(url)).query)
    if ("rank" in query and rank >= 0) or ("world_size" in query and size > 0):
        raise AssertionError(f"init_process_group: rank and number of processes are given beside {url!r}, which says them, too; leave one out")
    return int(query.get("rank", [rank])[0]), int(query.get("world_size", [size])[0])


def rendezvous(url: str, rank: int = -1, world_size: int = -1, timeout: timedelta = default_pg_timeout) -> Iterator[Tuple[Store, int, int]]:
    """A store that the processes share, this process' rank, and their number: ``store, rank, size = next(rendezvous("env://"))``.

    Args:
        url: 'env://', which reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, 'tcp://host:port' or 'file://path'. Rank and number may be said
            in it: 'tcp://host:port?rank=0&world_size=2'.
        rank, world_size: where the URL does not say them. AssertionError where both do.
        timeout: how long the store waits for rank 0, and for keys.

    RuntimeError for another kind of URL; ValueError where something is not said, at the first ``next``."""
    kind = urlsplit(str(url)).scheme
    if kind not in ("env", "tcp", "file"):
        raise RuntimeError(f"rendezvous: `url` must begin with 'env://', 'tcp://' or 'file://', got {url!r}")
    rank, world_size = told_by(url, rank, world_size)

    def stores() -> Iterator[Tuple[Store, int, int]]:
        own, size = _store.said(rank, world_size) if kind == "env" else (rank, world_size)
        store = _store_at(url, own, size, timeout.total_seconds()) if own >= 0 and size > 0 else None
        if store is None:
            raise ValueError(f"rendezvous: {url!r} must say the host and port of rank 0 or a path, this process' rank and the number of processes; "
                             f"got the rank {own} of {size}")
        yield store, own, size
        raise RuntimeError("rendezvous: the processes meet once; call it again for another store")

    return stores()


def _come(store: Store, rank: int) -> None:
    """Says which process this rank is, and on which host. RuntimeError where another one that may still run has said so."""
    said, mine = b"", f"{owners.me()} {socket.gethostname()}".encode()
    while (now := store.compare_set(f"rank {rank}", said, mine)) != mine:
        owner, _, host = now.decode().partition(" ")
        if not owners.is_gone(owner):
            raise RuntimeError(f"init_process_group: process {owner.split('-')[1]} on {host} has come here as rank {rank}, too; two jobs need two "
                               "places: another MASTER_PORT, or another `init_method`")
        said = now if now != said else b""


def _here(store: Store, ranks: Sequence[int]) -> List[str]:
    """What these ranks have said; nothing where one has not. A process that is gone is not heard: the file of a job that was killed may still be
    there."""
    keys = [f"rank {rank}" for rank in ranks]
    said = [value.decode() for value in store.multi_get(keys)] if store.check(keys) else []
    return [] if any(owners.is_gone(text.partition(" ")[0]) for text in said) else said


def _all_here(store: Store, rank: int, size: int, seconds: float) -> str:
    """Waits for all ranks. The name of rank 0's process, which no other job has. DistNetworkError that names those which do not come in time;
    RuntimeError where they are on several hosts."""
    _come(store, rank)
    end = time.monotonic() + seconds
    while not (said := _here(store, range(size))):
        if time.monotonic() >= end:
            missing = [str(i) for i in range(size) if not _here(store, [i])]
            raise DistNetworkError(f"init_process_group: of {size} processes {'ranks' if len(missing) > 1 else 'rank'} {', '.join(missing)} "
                                   f"{'have' if len(missing) > 1 else 'has'} not called it within {seconds:g} s")
        time.sleep(PAUSE)
    first, seen_by = said[0].partition(" ")[0], f"seen {said[0]}"
    seen, until = store.add(seen_by, 1), min(end, time.monotonic() + PATIENCE)
    while rank == 0 and seen < size and time.monotonic() < until:  # others ask the store of this process, which may end
        time.sleep(PAUSE)
        seen = store.add(seen_by, 0)
    hosts = sorted({text.partition(" ")[2] for text in said})
    if len(hosts) > 1:
        raise RuntimeError(f"init_process_group: the processes are on the hosts {', '.join(hosts)}, which MPI connects only where its launcher has "
                           f"started them: `mpiexec -n {size} --hostfile hosts ampc run script.py`, or by Slurm `srun --mpi=pmix -n {size} ampc run "
                           "script.py`; processes of one host need none")
    return first


def _folder(store: Store, rank: int, first: str) -> str:
    """Rank 0, the process ``first``, makes it, for this user alone. Its stand-in removes it."""
    key = f"folder of {first}"
    if rank == 0:
        store.set(key, owners.new_folder("ranks"))
    return os.fsdecode(store.get(key))
