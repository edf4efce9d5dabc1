"""torch.profiler: which operators ran, when and how long: ``with profile() as p:`` around some steps, then ``print(p.key_averages().table())``.

It sees ampc's operators of the thread that it was started on, forward and backward, steps of optimizers, and the ranges that ``record_function``
marks. A backward formula's operators lie in a range such as ``MmBackward0``. A GPU's operators have the time that it took to queue them."""

from __future__ import annotations

import contextlib
import enum
import gzip
import json
import os
import socket
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple

from .. import _C
from .._events import Listener, forget, listen
from .._messages.callers import warn
from .._names.missing import absent_from
from .._ops import SHOWN
from ..doctor.explain import multiplications
from ._lists import Average, EventList, FunctionEvent, Record, format_time, nested

__all__ = ["Average", "EventList", "FunctionEvent", "ProfilerAction", "ProfilerActivity", "autograd_profile", "format_time", "is_recording",
           "kineto_available", "profile", "record_function", "schedule", "supported_activities", "tensorboard_trace_handler"]


class ProfilerActivity(enum.Enum):
    """What can be recorded; here the CPU."""

    CPU, XPU, MTIA, CUDA, HPU, PrivateUse1 = range(6)


class ProfilerAction(enum.Enum):
    """What a schedule says of a step."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
_now = threading.local()  # its `recorder`: of this thread


def supported_activities() -> Set[ProfilerActivity]:
    """{ProfilerActivity.CPU}"""
    return {ProfilerActivity.CPU}


def kineto_available() -> bool:
    """True: there is a profiler."""
    return True


def is_recording() -> bool:
    """Whether a profile records this thread's operators."""
    return getattr(_now, "recorder", None) is not None


# -- recording ---------------------------------------------------------------------------------------------------------


class _Recorder(Listener):
    """Keeps what runs on this thread between ``start`` and ``stop``."""

    def __init__(self, shapes: bool, memory: bool, stack: bool, flops: bool) -> None:
        self._shapes, self._memory, self._stack, self._flops = shapes, memory, stack, flops
        self.records: List[Record] = []
        self._formulas: Dict[int, Tuple[str, int, int]] = {}  # by number of the node: name, start and end
        self._thread = threading.get_native_id()
        self._steps: List[Tuple[str, int]] = []
        self.begin = self.end = 0

    def start(self) -> None:
        self._outer, self._watcher = getattr(_now, "recorder", None), _C._watch(self._saw)
        _now.recorder = self
        listen(self)
        self.begin = time.time_ns()

    def stop(self) -> None:
        self.end = time.time_ns()
        forget(self)
        _C._watch(self._watcher)
        _now.recorder = self._outer
        self.records += [Record(name, start, end, "cpu_op", self._thread) for name, start, end in self._formulas.values()]

    def _saw(self, op: str, inputs: tuple, outputs: tuple, low: Any, onto: bool, nanoseconds: int) -> None:
        end = time.time_ns()
        start = end - nanoseconds
        shapes = tuple([] if t is None else list(t.shape) for t in inputs) if self._shapes else ()
        owned = {t._storage_ptr() for t in inputs if t is not None} if self._memory else ()
        size = sum(t.numel() * t.element_size() for t in outputs if t._storage_ptr() not in owned) if self._memory and not onto else 0
        flops = 2 * multiplications(op, [t for t in inputs if t is not None and t.is_floating_point()], outputs) if self._flops else 0
        self.records.append(Record(f"aten::{SHOWN[op]}", start, end, "cpu_op", self._thread, shapes, _stack() if self._stack else (), size, flops))
        running = _C._running()
        if running is not None:
            first = self._formulas.get(running[1], ("", start, 0))[1]
            self._formulas[running[1]] = "".join(part.capitalize() for part in running[0].replace(".", "_").split("_")) + "Backward0", first, end

    def mark(self, name: str, start: int) -> None:
        """A range that has ended."""
        self.records.append(Record(name, start, time.time_ns(), "user_annotation", self._thread))

    def step_begins(self, optimizer: Any, closure: bool) -> None:
        """An optimizer's step."""
        self._steps.append((f"Optimizer.step#{type(optimizer).__name__}.step", time.time_ns()))

    def step_ended(self, optimizer: Any) -> None:
        """The same step."""
        if self._steps:
            self.mark(*self._steps.pop())


def _stack() -> Tuple[str, ...]:
    """The script's calls, the innermost first."""
    found, frame = [], sys._getframe(2)
    while frame is not None:
        found.append(f"{frame.f_code.co_filename}({frame.f_lineno}): {frame.f_code.co_name}")
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(found)


class record_function(contextlib.ContextDecorator):
    """``with record_function("name"):`` marks a range, which a profile shows; also a decorator. Nothing where no profile records."""

    def __init__(self, name: str, args: Optional[str] = None) -> None:
        self.name, self.args = name, args

    def _recreate_cm(self) -> record_function:
        return record_function(self.name, self.args)

    def __enter__(self) -> record_function:
        self._recorder, self._start = getattr(_now, "recorder", None), time.time_ns()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._recorder is not None:
            self._recorder.mark(self.name, self._start)


# -- schedules ---------------------------------------------------------------------------------------------------------


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
             skip_first_wait: int = 0) -> Callable[[int], ProfilerAction]:
    """Which steps are recorded: after ``skip_first`` steps, again and again (``repeat`` times, 0: always) ``wait`` steps not, ``warmup`` steps
    not, ``active`` steps. ``skip_first_wait`` other than 0 leaves the first ``wait`` out. AssertionError for negative numbers."""
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError(f"schedule: `active` must be at least 1 and the others at least 0, got {active=}, {wait=}, {warmup=}, {repeat=}, "
                             f"{skip_first=}")

    def action(step: int) -> ProfilerAction:
        at = step - skip_first + (wait if skip_first_wait else 0)
        cycle = wait + warmup + active
        if step < skip_first or repeat and at >= repeat * cycle:
            return ProfilerAction.NONE
        at %= cycle
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def always(step: int) -> ProfilerAction:
    """Every step is recorded."""
    return ProfilerAction.RECORD


def tensorboard_trace_handler(dir_name: str, worker_name: Optional[str] = None, use_gzip: bool = False) -> Callable[[profile], None]:
    """For ``on_trace_ready``: writes each trace into a folder, where TensorBoard's plugin finds it."""
    def write(p: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        p.export_chrome_trace(os.path.join(dir_name, f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")))

    return write


def _trace_line(number: int, r: Record) -> Dict[str, Any]:
    args: Dict[str, Any] = {"External id": number}
    if r.shapes:
        args["Input Dims"] = r.shapes
    if r.stack:
        args["Call stack"] = ";".join(reversed(r.stack))
    return {"ph": "X", "cat": r.kind, "name": r.name, "pid": os.getpid(), "tid": r.thread, "ts": r.start / 1e3, "dur": (r.end - r.start) / 1e3,
            "args": args}


# -- profiles ----------------------------------------------------------------------------------------------------------


class profile:
    """A context that records operators; or ``start()``, ``step()`` after each step, and ``stop()``.

    Args:
        activities: ProfilerActivity.CPU; for others a UserWarning says what is not recorded.
        schedule: which steps are recorded; None all of them.
        on_trace_ready: called with the profile when a recording has ended.
        record_shapes, profile_memory, with_stack, with_flops: whether inputs' shapes, bytes of results, the script's calls, and the
            operations of products are kept.
    """

    def __init__(self, *, activities: Optional[Iterable[ProfilerActivity]] = None, schedule: Optional[Callable[[int], ProfilerAction]] = None,
                 on_trace_ready: Optional[Callable[..., Any]] = None, record_shapes: bool = False, profile_memory: bool = False,
                 with_stack: bool = False, with_flops: bool = False, with_modules: bool = False, **options: Any) -> None:
        other = [a.name for a in activities or () if a is not ProfilerActivity.CPU]
        if other and _C._cuda_count() > 0:
            warn(f"profile: {', '.join(other)}: the times of a GPU's operators are those of queueing them; what the GPU itself does is not recorded")
        self.schedule, self.on_trace_ready, self._steps_marked = schedule or always, on_trace_ready, schedule is not None
        self.record_shapes, self.profile_memory, self.with_stack, self.with_flops = record_shapes, profile_memory, with_stack, with_flops
        self.step_num, self.current_action = 0, ProfilerAction.NONE
        self._recorder: Optional[_Recorder] = None
        self._recording = False
        self._events: Optional[EventList] = None
        self._metadata: Dict[str, Any] = {}
        self._step_mark: Optional[record_function] = None

    # -- states --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins, where the schedule says so of step 0."""
        self._turn(self.schedule(self.step_num))

    def step(self) -> None:
        """Says that a step has ended, and the next one begins."""
        self._end_step()
        self.step_num += 1
        self._turn(self.schedule(self.step_num))

    def stop(self) -> None:
        """Ends. AssertionError before ``start()``."""
        if self._recorder is None and self.current_action is ProfilerAction.NONE and self.step_num == 0 and self.schedule is always:
            raise AssertionError("profile.stop: nothing is running; call start() first")
        self._end_step()
        was, self.current_action = self.current_action, ProfilerAction.NONE
        if was in _RECORDING:
            self._finish(True)

    def _turn(self, action: ProfilerAction) -> None:
        was, self.current_action = self.current_action, action
        if self._recording and (was is ProfilerAction.RECORD_AND_SAVE or action not in _RECORDING):
            self._finish(was is ProfilerAction.RECORD_AND_SAVE)
        if action in _RECORDING and not self._recording:
            self._recorder, self._events, self._recording = self._new_recorder(), None, True
            self._recorder.start()
        if self._recording and self._steps_marked:
            self._step_mark = record_function(f"ProfilerStep#{self.step_num}")
            self._step_mark.__enter__()

    def _new_recorder(self) -> _Recorder:
        return _Recorder(self.record_shapes, self.profile_memory, self.with_stack, self.with_flops)

    def _end_step(self) -> None:
        if self._step_mark is not None:
            self._step_mark.__exit__()
            self._step_mark = None

    def _finish(self, ready: bool) -> None:
        assert self._recorder is not None
        self._recorder.stop()
        self._recording = False
        if ready and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # -- what was recorded ---------------------------------------------------------------------------------------------

    def _recorded(self, what: str) -> _Recorder:
        if self._recorder is None:
            raise AssertionError(f"profile.{what}: nothing was recorded; call start() first")
        return self._recorder

    def events(self) -> EventList:
        """What ran, in order. AssertionError before anything was recorded."""
        recorder = self._recorded("events")
        if self._events is None or self._recording:
            self._events = EventList(nested(recorder.records, recorder.begin), self.profile_memory, self.with_flops)
        return self._events

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False) -> EventList:
        """Sums by name; with ``group_by_input_shape`` by name and shapes, with ``group_by_stack_n`` by the innermost lines of the stack, too."""
        self._recorded("key_averages")
        return self.events().key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def export_chrome_trace(self, path: str) -> None:
        """Writes a file for chrome://tracing and Perfetto; compressed where the name ends in .gz."""
        recorder = self._recorded("export_chrome_trace")
        lines: List[Dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": os.getpid(), "tid": 0, "ts": 0, "args": {"name": "ampc"}}]
        lines += [_trace_line(i + 1, r) for i, r in enumerate(sorted(recorder.records, key=lambda r: r.start))]
        trace = {"schemaVersion": 1, "deviceProperties": [], "displayTimeUnit": "ms", **self._metadata, "traceEvents": lines, "traceName": str(path)}
        with (gzip.open(path, "wt") if str(path).endswith(".gz") else open(path, "w", encoding="utf-8")) as f:
            json.dump(trace, f)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Writes stacks with their times, of a profile ``with_stack=True``."""
        self.events().export_stacks(path, metric)

    def add_metadata(self, key: str, value: str) -> None:
        """A text that the trace has, too."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """A value in JSON that the trace has, too."""
        self._metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json

    def __str__(self) -> str:
        return str(self.events()) if self._recorder is not None else "<unfinished profiler_legacy.profile>"


class autograd_profile(profile):
    """torch.autograd.profiler.profile: a context that records all that runs inside.

    Args:
        enabled: False records nothing.
        record_shapes, profile_memory, with_stack, with_flops: as in ``profile``.
    """

    def __init__(self, enabled: bool = True, *, use_cuda: bool = False, use_device: Optional[str] = None, record_shapes: bool = False,
                 with_flops: bool = False, profile_memory: bool = False, with_stack: bool = False, with_modules: bool = False,
                 **options: Any) -> None:
        super().__init__(activities=[ProfilerActivity.CUDA] if use_cuda or use_device == "cuda" else None, record_shapes=record_shapes,
                         profile_memory=profile_memory, with_stack=with_stack, with_flops=with_flops)
        self.enabled = enabled

    def __enter__(self) -> autograd_profile:
        if self.enabled:
            self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.enabled:
            self.stop()

    @property
    def function_events(self) -> EventList:
        """What ran."""
        return self.events()

    def table(self, *args: Any, **kwargs: Any) -> str:
        """The events as text."""
        return self.events().table(*args, **kwargs)

    def total_average(self) -> Average:
        """All events as one."""
        return self.events().total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all, in microseconds."""
        return self.events().self_cpu_time_total


__getattr__ = absent_from(__name__)
