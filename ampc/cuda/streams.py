"""Streams and events: queues of work on a GPU, and markers in them."""

from __future__ import annotations

import weakref
from typing import Any, Optional

from .. import _C
from .._tensor.device import check_device, current, gpu
from .._tensor.device import device as device_type

__all__ = ["Event", "ExternalStream", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream"]


def index_of(where: Any) -> int:
    """The number of a GPU: of the current one when None. ValueError for the CPU, RuntimeError for GPUs that are not there."""
    if where is None:
        return current.index
    d = check_device(where)
    if d.type != "cuda":
        raise ValueError(f"expected a CUDA device, got '{d}'")
    return d.index or 0


class Stream(_C.Scope):
    """A queue of work: what is queued on one stream is done in order, work of different streams side by side. A GPU has 32 of
    each priority, given out in turn and kept: whoever holds more Stream objects shares them.

    Args:
        device: the GPU; None the current one.
        priority: from 0, the ordinary one, down to -5: lower numbers go first.
    """

    def __init__(self, device: Any = None, priority: int = 0, *, _handle: Optional[int] = None) -> None:
        self._index = index_of(device)
        if _handle is None:
            self.cuda_stream: int = _C._cuda_stream_of(self._index, priority)
        else:
            self.cuda_stream = _handle

    @property
    def device(self) -> device_type:
        """The GPU it belongs to."""
        return gpu(self._index)

    device_index = property(lambda self: self._index, doc="The number of that GPU.")

    def synchronize(self) -> None:
        """Waits until all its work is done. IndexError when a kernel met a bad index."""
        _C._cuda_stream_wait(self._index, self.cuda_stream)

    def query(self) -> bool:
        """Whether all its work is done."""
        return _C._cuda_stream_idle(self._index, self.cuda_stream)

    def record_event(self, event: Optional[Event] = None) -> Event:
        """Marks the end of its present work in an event (a new one when None), which is returned."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Work queued from now on waits for the event; the host does not."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Work queued from now on waits for all present work of another stream."""
        self.wait_event(stream.record_event())

    def _changes(self) -> tuple:  # ``with stream:`` as ``with cuda.stream(stream):``
        outer = _C._cuda_stream_get(self._index)
        return ((setattr, (current, "index", self._index), setattr, (current, "index", current.index)),
                (_C._cuda_stream_set, (self._index, self.cuda_stream), _C._cuda_stream_set, (self._index, outer)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self._index, self.cuda_stream) == (other._index, other.cuda_stream)

    def __hash__(self) -> int:
        return hash((self._index, self.cuda_stream))

    def __cuda_stream__(self) -> tuple:
        """The CUDA stream protocol: (version, handle)."""
        return 0, self.cuda_stream

    def __repr__(self) -> str:
        return f"<ampc.cuda.Stream device=cuda:{self._index} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that another library made, by its handle; it stays that library's."""

    def __init__(self, stream_ptr: int, device: Any = None) -> None:
        super().__init__(device, _handle=stream_ptr)


def current_stream(device: Any = None) -> Stream:
    """The stream that this thread's work on a GPU goes to."""
    index = index_of(device)
    return Stream(index, _handle=_C._cuda_stream_get(index))


def default_stream(device: Any = None) -> Stream:
    """The stream that every thread starts on: the driver's legacy default stream."""
    return Stream(index_of(device), _handle=0)


def set_stream(stream: Stream) -> None:
    """Makes a stream the one that this thread's work on its GPU goes to."""
    _C._cuda_stream_set(stream._index, stream.cuda_stream)


class StreamContext(_C.Scope):
    """``with cuda.stream(s):`` work within goes to ``s``, on its GPU. None changes nothing."""

    def __init__(self, stream: Optional[Stream]) -> None:
        self.stream = stream

    def _changes(self) -> tuple:
        return () if self.stream is None else self.stream._changes()


def stream(stream: Optional[Stream]) -> StreamContext:
    """A region whose work goes to ``stream``."""
    return StreamContext(stream)


def _stream_of(what: str, stream: Optional[Stream]) -> Stream:
    if stream is None:
        return current_stream()
    if not isinstance(stream, Stream):
        raise TypeError(f"{what}: `stream` must be a cuda.Stream or None, got {type(stream).__name__}")
    return stream


class Event:
    """A mark in a stream that others can wait for, or measure the time to.

    Args:
        enable_timing: whether it can be measured.
        blocking: whether the host sleeps while it waits for it.
        interprocess: must be False.
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        if interprocess:
            raise NotImplementedError("Event: events cannot be shared between processes")
        self._timing, self._blocking = enable_timing, blocking
        self._index = 0
        self.cuda_event = 0  # made where it is first recorded

    def record(self, stream: Optional[Stream] = None) -> None:
        """Marks the end of the present work of ``stream`` (the current one when None). RuntimeError without a GPU."""
        s = _stream_of("Event.record", stream)
        if not self.cuda_event:
            self._index = s._index
            self.cuda_event = _C._cuda_event_new(s._index, self._timing, self._blocking)
            weakref.finalize(self, _C._cuda_event_free, s._index, self.cuda_event).atexit = False
        elif s._index != self._index:
            raise RuntimeError(f"Event: recorded first on cuda:{self._index}, it cannot be recorded on cuda:{s._index}")
        _C._cuda_event_record(s._index, self.cuda_event, s.cuda_stream)

    def wait(self, stream: Optional[Stream] = None) -> None:
        """Work queued on ``stream`` (the current one when None) from now on waits for the event."""
        s = _stream_of("Event.wait", stream)
        if self.cuda_event:
            _C._cuda_event_await(s._index, self.cuda_event, s.cuda_stream)

    def query(self) -> bool:
        """Whether the work before it is done."""
        return not self.cuda_event or _C._cuda_event_done(self._index, self.cuda_event)

    def synchronize(self) -> None:
        """Waits for the work before it. IndexError when a kernel met a bad index."""
        if self.cuda_event:
            _C._cuda_event_wait(self._index, self.cuda_event)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another. RuntimeError unless both were recorded with timing and are done."""
        if not (self._timing and end_event._timing):
            raise ValueError("elapsed_time: both events must be made with enable_timing=True")
        if not (self.cuda_event and end_event.cuda_event):
            raise ValueError("elapsed_time: both events must be recorded first")
        if self._index != end_event._index:
            raise RuntimeError(f"elapsed_time: the events were recorded on cuda:{self._index} and cuda:{end_event._index}, whose clocks differ; "
                               "record both on one GPU")
        return _C._cuda_event_elapsed(self._index, self.cuda_event, end_event.cuda_event)

    def __repr__(self) -> str:
        return f"<ampc.cuda.Event {self.cuda_event:#x}>" if self.cuda_event else "<ampc.cuda.Event, not recorded>"
