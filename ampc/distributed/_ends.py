"""How a process of a group ends: the others are told of an error, and get a moment to tell of theirs."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict

from ..multiprocessing.spawn import spawned
from .errors import DistBackendError

LINGER = 2.0  # seconds in which the others may learn why this process has failed
before_the_end: Callable[[], Any] = bool  # what ends the groups
_found: Dict[str, Any] = {}


def listen_to_the_end(board: Any, size: int, finish: Callable[[], Any]) -> None:
    """From now on the board is told how this process ends; ``finish()`` is called at a good end."""
    before = sys.excepthook
    _found.update(process=os.getpid(), board=board, size=size)

    def fail(error: BaseException) -> None:
        if _is_own():
            _board().fail(_in_short(error), getattr(error, "cause", ""))

    def note(kind: Any, error: BaseException, trace: Any) -> None:
        fail(error)
        before(kind, error, trace)

    sys.excepthook = note

    def end() -> None:
        if not _is_own():
            return
        try:
            if not _board().failed():
                before_the_end()
        except DistBackendError as error:
            print(f"ampc.distributed: {error}", file=sys.stderr)
            _board().fail(str(error), error.cause)
        if _board().failed():
            _linger()
        else:
            _board().leave()
            finish()

    if spawned.folder is None:
        atexit.register(end)
    else:
        spawned.failed, spawned.ended = fail, end
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)


def _board() -> Any:
    return _found["board"]


def _is_own() -> bool:
    """Whether this process has started the groups, and is not forked from one that has, such as a DataLoader's worker."""
    return _found["process"] == os.getpid()


def _in_short(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({last[0].filename}:{last[0].lineno})" if last else ""
    return f"{type(error).__name__}: {error}{where}"


def _linger() -> None:
    """The launcher ends the other processes when this one is gone, so they get a moment to say why they failed."""
    end = time.monotonic() + LINGER
    while time.monotonic() < end and not _board().all_know():
        time.sleep(0.02)
    time.sleep(0.1)


def _terminated(number: int, frame: Any) -> None:
    """The launcher ends all processes when one has died, which is then named; else the signal does what it does without this."""
    ranks = list(range(_found["size"]))
    end = time.monotonic() + 0.3
    while _is_own() and time.monotonic() < end and not _board().failed():
        gone = _board().gone(ranks)
        if gone is not None:
            raise DistBackendError(f"{gone}; the launcher ends all processes", gone)
        time.sleep(0.02)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), number)
