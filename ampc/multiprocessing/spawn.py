"""Starts a function in several processes, waits for them, and tells of the first one that fails, under torch.multiprocessing.spawn's names."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
import traceback
import weakref
from multiprocessing.connection import wait
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence, Tuple

from .._messages.callers import end_at_script, warn
from .._process.owners import new_folder

__all__ = ["ProcessContext", "ProcessExitedException", "ProcessException", "ProcessRaisedException", "SpawnContext", "spawn", "start_processes"]


class _Spawned:
    """In a process that ``start_processes`` has started: how many these are, a folder that they share, which is removed after them, and what to call
    when the function has raised an exception or has called ``sys.exit``, and at the end. Python's own hooks are not called in such a process."""

    folder: Optional[str] = None
    count = 0
    failed: Callable[[BaseException], Any] = staticmethod(lambda error: None)
    exited: Callable[[Any], Any] = staticmethod(lambda code: None)
    ended: Callable[[], Any] = staticmethod(lambda: None)


spawned = _Spawned()
_PATIENCE = 30.0  # seconds that a process has to end after it was asked to


class ProcessException(Exception):
    """A process failed. ``error_index`` is its number, ``error_pid`` its process id, ``msg`` the text."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid = msg, error_index, error_pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """The function raised an exception in a process; the text holds its traceback."""


class ProcessExitedException(ProcessException):
    """A process ended with an exit code other than 0 (``exit_code``), or by a signal (``exit_code`` below 0, ``signal_name``)."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: Optional[str] = None) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)


# -- in the new process ------------------------------------------------------------------------------------------------


def _end_with_the_parent() -> None:
    """Interrupts this process when the one that started it has ended."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        parent.join()  # type: ignore[union-attr]
        os.kill(os.getpid(), signal.SIGINT)

    if parent is not None:
        threading.Thread(target=watch, daemon=True).start()


def _wrap(fn: Callable[..., Any], i: int, args: Tuple[Any, ...], error_file: str, count: int) -> None:
    """The process's main function."""
    spawned.folder, spawned.count = os.path.dirname(error_file), count
    _end_with_the_parent()
    try:
        fn(i, *args)
    except KeyboardInterrupt:  # the parent has it, too
        pass
    except SystemExit as error:
        spawned.exited(error.code)
        raise
    except Exception as error:
        end_at_script(error)
        trace = error.__traceback__
        trace = trace.tb_next or trace if trace is not None else None  # without this function
        with open(error_file, "w", encoding="utf-8", errors="backslashreplace") as f:
            f.write("".join(traceback.format_exception(type(error), error, trace)))
        spawned.failed(error)
        sys.exit(1)
    finally:
        spawned.ended()


# -- in the parent -----------------------------------------------------------------------------------------------------


def _raise_for(index: int, process: Any, error_file: str) -> NoReturn:
    """The exception that says how a process failed."""
    code, text = process.exitcode, ""
    with contextlib.suppress(OSError), open(error_file, encoding="utf-8") as f:
        text = f.read()
    if text:
        raise ProcessRaisedException(f"process {index} raised an exception:\n\n{text}", index, process.pid)
    if code >= 0:
        raise ProcessExitedException(f"process {index} ended with exit code {code}", index, process.pid, code)
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"<Unknown signal {-code}>"
    raise ProcessExitedException(f"process {index} was ended by the signal {name}", index, process.pid, code, name)


def _join_all(processes: Sequence[Any], seconds: float) -> None:
    """Waits for all of them together, no longer than that."""
    end = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))


def _end_all(processes: Sequence[Any], patience: float) -> None:
    """Ends those that still run, by force where they do not end when asked."""
    for process in processes:
        if process.is_alive():
            process.terminate()
    _join_all(processes, patience)
    for process in processes:
        if process.is_alive():
            process.kill()
        process.join()


class ProcessContext:
    """Processes that were started together. ``processes`` are Python's objects; ``error_files`` the files that hold their tracebacks;
    ``sentinels`` maps what to wait for to the numbers of those that have not been joined."""

    def __init__(self, processes: Sequence[Any], error_files: Sequence[str]) -> None:
        self.processes, self.error_files = processes, error_files
        self.sentinels: Dict[int, int] = {process.sentinel: i for i, process in enumerate(processes)}

    def pids(self) -> List[int]:
        """Their process ids."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: Optional[float] = None, grace_period: Optional[float] = None) -> bool:
        """Waits until one of them has ended, or for ``timeout`` seconds; whether all of them have ended well.

        If one has failed, the others have ``grace_period`` seconds (default 0) to end by themselves; then they are asked to, and after
        another such period (default 30 s) they are ended by force. Then ProcessRaisedException, if the function raised an exception
        there, otherwise ProcessExitedException."""
        if not self.sentinels:
            return True
        failed = []
        for sentinel in wait(list(self.sentinels), timeout):
            index = self.sentinels.pop(sentinel)  # type: ignore[arg-type]
            self.processes[index].join()
            if self.processes[index].exitcode:
                failed.append(index)
        if failed:
            index = self._cause(failed)
            if grace_period is not None:
                _join_all(self.processes, grace_period)
            _end_all(self.processes, _PATIENCE if grace_period is None else grace_period)
            _raise_for(index, self.processes[index], self.error_files[index])
        return not self.sentinels

    def _cause(self, failed: List[int]) -> int:
        """The one of the failed processes whose failure came first: that of others may follow from it, as where ranks wait for each other."""
        told = {i: os.stat(file).st_mtime_ns for i, file in enumerate(self.error_files) if os.path.exists(file)}
        by_itself = [i for i in failed if i not in told]  # killed, or by sys.exit
        return by_itself[0] if by_itself else min(told, key=lambda i: (told[i], i))


class SpawnContext(ProcessContext):
    """The older name of ProcessContext, with a warning."""

    def __init__(self, processes: Sequence[Any], error_files: Sequence[str]) -> None:
        warn("SpawnContext is the older name of ProcessContext")
        super().__init__(processes, error_files)


def start_processes(fn: Callable[..., Any], args: Tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
                    start_method: str = "spawn") -> Optional[ProcessContext]:
    """Runs ``fn(i, *args)`` in ``nprocs`` new processes. They are the ranks of a group where each calls
    ``distributed.init_process_group(rank=i, world_size=nprocs)``.

    Args:
        fn: A function; with 'spawn' and 'forkserver' one of a module's own, because it is pickled, as are ``args``.
        join: Waits for them: the result is None, and the exceptions are those of `ProcessContext.join`. Otherwise the ProcessContext.
        daemon: Whether they are daemonic processes, which Python ends with this one.
        start_method: 'spawn', 'fork' or 'forkserver'. ValueError for another.
    """
    context: Any = multiprocessing.get_context(start_method)
    folder = new_folder("errors")
    error_files = [os.path.join(folder, f"{i}.txt") for i in range(nprocs)]
    processes: List[Any] = []
    try:
        for i in range(nprocs):
            process = context.Process(target=_wrap, args=(fn, i, args, error_files[i], nprocs), daemon=daemon)
            process.start()
            processes.append(process)
    except BaseException:
        _end_all(processes, _PATIENCE)
        shutil.rmtree(folder, ignore_errors=True)
        raise
    started = ProcessContext(processes, error_files)
    weakref.finalize(started, shutil.rmtree, folder, ignore_errors=True)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(fn: Callable[..., Any], args: Tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
          start_method: str = "spawn") -> Optional[ProcessContext]:
    """As `start_processes` with 'spawn'. For another ``start_method`` there is a FutureWarning, and it is 'spawn' all the same."""
    if start_method != "spawn":
        warn(f"multiprocessing.spawn always starts processes with 'spawn', got start_method={start_method!r}; use start_processes", FutureWarning)
    return start_processes(fn, args, nprocs, join, daemon)
