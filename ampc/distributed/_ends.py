"""How a process of a group ends: the others are told of an error or of an exit status, and get a moment to tell of theirs."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, Optional, Tuple

from .._messages.callers import call_site, end_at_script, innermost, location_text
from ..multiprocessing.spawn import spawned
from .errors import DistBackendError

LINGER = 2.0  # seconds in which the others may learn why this process has failed
before_the_end: Callable[[], Any] = bool  # what ends the groups
_found: Dict[str, Any] = {}


class _Exit(SystemExit):
    """What ``sys.exit`` raises. Where nobody catches it, the interpreter reads its code, outside of any function: so a status is known before the
    process has ended. What runs at exit is not told it."""

    def __init__(self, code: Any, place: str) -> None:
        super().__init__(code)
        self._place = place

    @property
    def code(self) -> Any:  # type: ignore[override]
        code = self.args[0]
        try:
            sys._getframe(1)
        except ValueError:
            _exits(code, self._place)
        return code


def _exit(status: Any = None, /) -> Any:
    handled = sys.exc_info()[1]
    again = _place(handled) if isinstance(handled, SystemExit) else None  # raised by the script, and once more by `ampc run`
    raise _Exit(status, location_text(again or call_site()))


def listen_to_errors() -> None:
    """From now on the traceback of an error that nobody catches ends at the script's line. The others are told of it, and of the status of
    ``sys.exit``, once they are connected."""
    if "hook" in _found:
        return
    before = _found["hook"] = sys.excepthook

    def note(kind: Any, error: BaseException, trace: Any) -> None:
        end_at_script(error)
        _fail(error)
        before(kind, error, error.__traceback__)

    sys.excepthook, sys.exit = note, _exit
    spawned.failed, spawned.exited = _fail, _exits


def listen_to_the_end(board: Any, size: int, finish: Callable[[], Any]) -> None:
    """From now on the board is told how this process ends; ``finish()`` is called at a good end."""
    _found.update(process=os.getpid(), board=board, size=size)

    def end() -> None:
        if not _is_own():
            return
        try:
            if not board.failed():
                before_the_end()
        except DistBackendError as error:
            print(f"ampc.distributed: {error}", file=sys.stderr)
            board.fail(f"has failed: {error}", error.cause)
        if board.failed():
            with contextlib.suppress(KeyboardInterrupt):  # somebody does not want to wait for that
                _linger()
        else:
            board.leave(ends=True)
            if _is_at(_terminated):  # whoever ends this process now interrupts no call of the script
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            finish()

    if spawned.folder is None:
        atexit.register(end)
    else:
        spawned.ended = end
    if _is_at(signal.SIG_DFL):
        signal.signal(signal.SIGTERM, _terminated)


def _is_at(handler: Any) -> bool:
    """Whether SIGTERM is handled so, and this thread may change it."""
    return threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is handler


def _fail(error: BaseException) -> None:
    if _is_own():
        _board().fail(f"has failed: {_in_short(error)}", getattr(error, "cause", ""))


def _exits(code: Any, place: str = "") -> None:
    """``sys.exit(code)`` ends this process. A status other than 0 is a failure."""
    status = 0 if code is None else code if isinstance(code, int) else 1
    if status & 255 and _is_own():
        text = "" if isinstance(code, int) else f": {code}"
        _board().fail(f"has ended with status {status & 255}{text}" + (f" ({place})" if place else ""))


def _board() -> Any:
    return _found["board"]


def _is_own() -> bool:
    """Whether this process has started the groups, and is not forked from one that has, such as a DataLoader's worker."""
    return _found.get("process") == os.getpid()


def is_forked() -> bool:
    """Whether this process was forked from one that has started groups."""
    return "process" in _found and not _is_own()


def _place(error: BaseException) -> Optional[Tuple[str, int]]:
    """The script's line that an error came through last; without one, that which raised it."""
    at, last = innermost(error), traceback.extract_tb(error.__traceback__)[-1:]
    if at is not None:
        return at.tb_frame.f_code.co_filename, at.tb_lineno
    return (last[0].filename, last[0].lineno or 0) if last else None


def _in_short(error: BaseException) -> str:
    place = _place(error)
    return f"{type(error).__name__}: {error}" + (f" ({location_text(place)})" if place is not None else "")


def _linger() -> None:
    """The launcher ends the other processes when this one is gone, so they get a moment to say why they failed. The process that failed first is
    the first to be gone: the launcher takes its status."""
    end = time.monotonic() + LINGER
    while time.monotonic() < end and not (_board().all_know() and _board().is_next_to_go()):
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
