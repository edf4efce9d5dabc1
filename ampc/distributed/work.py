"""Work of a group: what a collective call returns, and the thread that runs collectives in the order of their calls."""

from __future__ import annotations

import queue
import threading
import time
from datetime import timedelta
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

from ..futures import Future
from .errors import DistBackendError

SLICE = 0.1  # seconds between two looks at the other processes
NO_LIMIT = timedelta(0)  # to Work.wait: the group's own
TAGS = 1 << 20  # tags of a script's messages are below


def seconds_of(what: str, timeout: Any) -> float:
    """A timeout in seconds. TypeError for what is no timedelta; ValueError for one that is not positive."""
    if not isinstance(timeout, timedelta):
        raise TypeError(f"{what}: `timeout` must be a datetime.timedelta, got {type(timeout).__name__}")
    if timeout.total_seconds() <= 0:
        raise ValueError(f"{what}: `timeout` must be positive, got {timeout}")
    return timeout.total_seconds()


class Message(NamedTuple):
    """A tensor that is sent to a rank of the group, or received from it, or with None from any. ``tensor`` is the caller's."""

    what: str
    t: Any
    rank: Optional[int]
    sends: bool
    tag: int
    tensor: Any


class Work:
    """An operation of a group that may still run. ``wait`` returns when the tensors have their values."""

    def __init__(self, group: Any, what: str, number: int, result: Any = None, finish: Optional[Callable[[], Any]] = None) -> None:
        self._group, self._what, self._number, self._result, self._finish = group, what, number, result, finish
        self._error: Optional[BaseException] = None
        self.kept: Any = None  # what MPI reads meanwhile
        self._running = threading.Lock()
        self._running.acquire()

    # -- of the thread that runs it

    def run(self, f: Callable[[], Any]) -> None:
        """Runs the operation; its error is raised by ``wait``."""
        try:
            f()
        except BaseException as error:
            self._error = error
        self._running.release()

    # -- of the caller

    def _ended(self, seconds: float) -> bool:
        """Whether it has ended, after waiting for so long at most."""
        if not self._running.acquire(timeout=seconds):
            return False
        self._running.release()
        return True

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Waits for the end. DistBackendError where another process failed, died, or has not come within ``timeout`` (by default, and
        for 0, the group's); the operation's own error."""
        limit = self._group.seconds if timeout in (None, NO_LIMIT) else seconds_of("Work.wait", timeout)
        begin = time.monotonic()
        while not self._ended(min(SLICE, limit)):
            self._group.look_around(self._what, self._number, time.monotonic() - begin)
            if time.monotonic() - begin >= limit:
                self._group.give_up(self._what, self._number, limit)
        if self._error is not None:
            raise self._error
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()
        return True

    def is_completed(self) -> bool:
        """Whether it has ended."""
        return self._ended(0)

    def is_success(self) -> bool:
        """Whether it has ended without an error."""
        return self._ended(0) and self._error is None

    def exception(self) -> Optional[BaseException]:
        """Its error, once it has ended."""
        return self._error if self._ended(0) else None

    def result(self) -> Any:
        """The tensors that it gives, once it has ended: a list."""
        self.wait()
        return self._result

    def source_rank(self) -> int:
        """The rank that has sent a received message. RuntimeError for other operations."""
        raise RuntimeError(f"source_rank: {self._what} is no message")

    def get_future(self) -> Future:
        """A future of ``result()``."""
        return Future.of(self.result, self.is_completed)


class Several(Work):
    """Operations that are waited for together."""

    def __init__(self, works: List[Work], result: Any, finish: Callable[[], Any]) -> None:
        super().__init__(None, "", 0, result, finish)
        self._works = works

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Waits for all; the error of the first that has one."""
        for work in self._works:
            work.wait(timeout)
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()
        return True

    def is_completed(self) -> bool:
        """Whether all have ended."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Whether all have ended without an error."""
        return all(work.is_success() for work in self._works)

    def exception(self) -> Optional[BaseException]:
        """The first error, once all have ended."""
        return next((work.exception() for work in self._works if work.exception()), None) if self.is_completed() else None


def run_beside(group: Any, what: str, f: Callable[[], Any]) -> Any:
    """What ``f()`` returns, which waits for other processes in MPI, where it could be told of nothing. A thread beside runs it, and this one waits as
    ``Work.wait`` does, so that a process which never comes is an error here."""
    made: List[Any] = []
    work = Work(group, what, 0)
    threading.Thread(target=work.run, args=(lambda: made.append(f()),), name="ampc.distributed.new", daemon=True).start()
    work.wait()
    return made[0]


class Worker:
    """A thread that runs the operations of one group one after another. It starts with the first."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Optional[Tuple[Work, Callable[[], Any]]]] = queue.SimpleQueue()
        self._threads: List[threading.Thread] = []

    def put(self, work: Work, f: Callable[[], Any]) -> None:
        """Adds an operation."""
        if not self._threads:
            self._threads.append(threading.Thread(target=self._run, name="ampc.distributed", daemon=True))
            self._threads[0].start()
        self._jobs.put((work, f))

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            job[0].run(job[1])

    def stop(self, seconds: float, look: Callable[[], Any]) -> None:
        """Ends after what was added before, for which it waits so long at most and calls ``look()`` now and then. DistBackendError where that
        is not enough."""
        self._jobs.put(None)
        end = time.monotonic() + seconds
        for thread in self._threads:
            while thread.is_alive():
                thread.join(SLICE)
                if thread.is_alive():
                    look()
                if thread.is_alive() and time.monotonic() >= end:
                    raise DistBackendError("destroy_process_group: an operation of the group still runs; wait() for it first")


class Transfer(Work):
    """A message between two processes, which MPI itself runs: it goes on while somebody waits."""

    def __init__(self, group: Any, what: str, request: Any, status: Any, result: Any, finish: Callable[[], Any],
                 other: Callable[[], str]) -> None:
        """``other()`` says what has come instead, or ''."""
        super().__init__(group, what, 0, result, finish)
        self._request, self._status, self._other = request, status, other

    def _ended(self, seconds: float) -> bool:
        end, pause = time.monotonic() + seconds, 0.0
        while self._request is not None:
            try:
                if self._request.Test(self._status):
                    self._request = None
                    break
            except Exception as error:  # MPI's own class, which is not imported here
                self._error, self._request = RuntimeError(f"{self._what}: {error}"), None
                break
            if time.monotonic() >= end:
                return self._is_another()
            time.sleep(pause)
            pause = min(pause + 5e-6, 1e-3)
        return True

    def _is_another(self) -> bool:
        """Whether a message has come that is not the one that is waited for: then it is waited for no more."""
        came = self._other()
        if came:
            self._request.Cancel()
            self._request.Wait()
            self._error, self._request = RuntimeError(f"{self._what}: {came}"), None
        return bool(came)

    def source_rank(self) -> int:
        """The rank that has sent a received message."""
        self.wait()
        return self._group.ranks[self._status.Get_source()]

    _source_rank = source_rank
