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
    from ._over_nccl import Operation
    from .groups import ProcessGroup

GRACE = 2.0  # seconds after the timeout; where this thread of Python has not run by then, the core breaks the group off
_operations: List[Operation] = []
_change = threading.Condition()
_threads: List[threading.Thread] = []


def add(operation: Operation) -> None:
    """From now on this operation is looked at."""
    with _change:
        _operations.append(operation)
        if not _threads or not _threads[0].is_alive():  # none yet, or a forked process
            _threads[:] = [threading.Thread(target=_watch, name="ampc.distributed.watch", daemon=True)]
            _threads[0].start()
        _change.notify()


def of(group: ProcessGroup) -> List[Operation]:
    """Those of a group that may still run."""
    with _change:
        return [operation for operation in _operations if operation.group is group]


def drop(group: ProcessGroup) -> None:
    """Those of a group are not looked at any more."""
    with _change:
        _operations[:] = [operation for operation in _operations if operation.group is not group]


def _watch() -> None:
    while True:
        with _change:
            while not _operations:
                _change.wait()
            operations = list(_operations)
        over = [operation for operation in operations if _is_over(operation)]
        with _change:
            _operations[:] = [operation for operation in _operations if operation not in over]
        time.sleep(SLICE)


def _is_over(operation: Operation) -> bool:
    try:
        if not operation.group.broken and operation.is_over():
            return True
        _check(operation)
        return False
    except DistBackendError as error:
        _break_off(operation, error)
    except RuntimeError as error:  # of the GPU itself, whose other users are told, too
        _break_off(operation, DistBackendError(f"{operation.what}: {error}"))
    return True


def _check(operation: Operation) -> None:
    """DistBackendError where an operation will not end."""
    group = operation.group
    group.need(operation.what)
    operation.connection.state(operation.what)
    group.look_around(operation.what, operation.number)
    if time.monotonic() >= operation.end_by:
        group.give_up(operation.what, operation.number, group.seconds)


def _break_off(operation: Operation, error: DistBackendError) -> None:
    for each in of(operation.group):
        each.fail(error)
    if operation.group.tell_once():
        _C._nccl_tell(error)  # before the end of the operation, for which somebody may be waiting
    operation.connection.abort()
