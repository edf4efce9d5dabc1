"""A thread that looks at operations which run on GPUs: where one cannot end any more, it breaks its group off, so that nobody waits for ever.

A GPU that waits for another rank tells nobody, and the host may be waiting for that GPU. So the thread looks for other processes that are gone, for
errors that NCCL has found, and at the time. The error is raised by what the script does next in the group, or with the GPU."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, List

from .. import _C
from .errors import DistBackendError
from .work import SLICE

if TYPE_CHECKING:
    from ._over_nccl import Queued
    from .groups import ProcessGroup

_works: List[Queued] = []
_change = threading.Condition()
_threads: List[threading.Thread] = []


def add(work: Queued) -> None:
    """From now on this operation is looked at."""
    with _change:
        _works.append(work)
        if not _threads or not _threads[0].is_alive():  # none yet, or a forked process
            _threads[:] = [threading.Thread(target=_watch, name="ampc.distributed.watch", daemon=True)]
            _threads[0].start()
        _change.notify()


def of(group: ProcessGroup) -> List[Queued]:
    """Those of a group that may still run."""
    with _change:
        return [work for work in _works if work.group is group]


def drop(group: ProcessGroup) -> None:
    """Those of a group are not looked at any more."""
    with _change:
        _works[:] = [work for work in _works if work.group is not group]


def _watch() -> None:
    while True:
        with _change:
            while not _works:
                _change.wait()
            works = list(_works)
        over = [work for work in works if _is_over(work)]
        with _change:
            _works[:] = [work for work in _works if work not in over]
            _change.wait(SLICE)


def _is_over(work: Queued) -> bool:
    try:
        if not work.group.broken and not work.is_queued():
            return True
        _check(work)
        return False
    except DistBackendError as error:
        _break_off(work, error)
    except RuntimeError as error:  # of the GPU itself, whose other users are told, too
        _break_off(work, DistBackendError(f"{work.what}: {error}"))
    return True


def _check(work: Queued) -> None:
    """DistBackendError where an operation will not end."""
    group = work.group
    group.need(work.what)
    work.connection.state(work.what)
    group.look_around(work.what, work.number)
    if time.monotonic() >= work.end_by:
        group.give_up(work.what, work.number, group.seconds)


def _break_off(work: Queued, error: DistBackendError) -> None:
    first = work.group.tell_once()
    for each in of(work.group):
        each.fail(error)
    work.connection.abort()
    if first:
        _C._nccl_tell(error)  # who waits for the GPU meets it there
