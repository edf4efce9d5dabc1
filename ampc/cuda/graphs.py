"""CUDA graphs: work of a GPU that is captured once, and queued again by one call. Names and meanings are torch.cuda's."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import _C
from .._messages.callers import innermost, location_text
from .._tensor.device import current
from .memory import MemPool, pool_of, retire_with
from .streams import Stream
from .streams import stream as stream_region

MODES = ("global", "thread_local", "relaxed")
_capturing: Dict[int, weakref.ref[CUDAGraph]] = {}  # by thread: what it captures; a graph that nobody else has is not captured any more


def captured_graph() -> Optional[CUDAGraph]:
    """The graph that this thread captures, or None."""
    found = _capturing.get(threading.get_ident()) if _capturing else None
    return None if found is None else found()


class _Open:
    """Dies with the thread that began a capture, and gives up what it has left open: the driver ends a capture only where it was begun."""

    def __init__(self, graph: CUDAGraph) -> None:
        self._graph = weakref.ref(graph)

    def __del__(self, captured: Callable[[], Optional[CUDAGraph]] = captured_graph) -> None:  # at the process's end the module may be empty
        graph = self._graph()
        if graph is not None and captured() is graph:
            graph.reset()


_of_thread = threading.local()  # `open`: an _Open


class CUDAGraph:
    """Work of a GPU that was captured, and can be replayed. ``with cuda.graph(g):`` captures; see also ``cuda.graph_step``.

    A replay runs the same kernels on the same memory. So inputs are written into the tensors that were captured, and results are read from
    those that the capture made. Random numbers go on from where the random stream is, as without a graph; drawing from another Generator is an
    error. Optimizers of ``ampc.optim`` whose update is computed in C read their options, such as the learning rate, anew at each replay. A capture
    that has not ended is given up by ``reset()``, and when the graph is deleted.

    Args:
        keep_graph: whether the driver's graph of what was captured is kept, for ``raw_cuda_graph()``. ``capture_end`` does not make it ready to
            run then: ``instantiate()`` does, or the first replay."""

    _number = 0  # the core's graph; 0: none
    _ready = False  # whether something was captured

    def __init__(self, keep_graph: bool = False) -> None:
        _C._cuda_init()
        self._keeps = keep_graph
        self._index = current.index
        self._memory: Optional[MemPool] = None
        self._steps: List[Tuple[Any, Dict[str, Any], range]] = []  # an optimizer, its group, and which of the captured steps are theirs
        self._calls: List[Callable[[], None]] = []

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Begins a capture on this thread's current stream, which must not be the default one.

        Args:
            pool: of ``graph_pool_handle()`` or another graph's ``pool()``, to share memory with graphs that never run at the same time;
                None takes one of its own.
            capture_error_mode: which calls of the driver end the capture with an error if they cannot be captured: of every thread ('global'),
                of this one ('thread_local'), or none ('relaxed').

        RuntimeError when this thread or another captures already, or when the graph has been captured."""
        if capture_error_mode not in MODES:
            raise ValueError(f"capture_begin: `capture_error_mode` must be one of {', '.join(map(repr, MODES))}, got {capture_error_mode!r}")
        self._memory = MemPool() if pool is None else pool_of(pool)
        retire_with(self._memory, current.index)
        if not self._number:
            self._index = current.index
            self._number = _C._cuda_graph_new(self._index, self._keeps)
            self._end = weakref.finalize(self, _C._cuda_graph_free, self._number)
            self._end.atexit = False
        _C._cuda_capture_begin(self._number, self._memory._number, MODES.index(capture_error_mode))
        _of_thread.open = _Open(self)
        _capturing[threading.get_ident()] = weakref.ref(self)

    def capture_end(self) -> None:
        """Ends the capture. RuntimeError where something could not be captured; the graph is then empty."""
        _capturing.pop(threading.get_ident(), None)
        _C._cuda_capture_end(self._number)
        self._ready = True

    def instantiate(self) -> None:
        """Makes a graph that is kept ready to run, as it is now; it may be called again when the graph was changed. Without ``keep_graph`` it does
        nothing: ``capture_end`` has done it. RuntimeError when nothing was captured."""
        self._need("instantiate")
        _C._cuda_graph_instantiate(self._number)

    def raw_cuda_graph(self) -> int:
        """The driver's graph (``CUgraph``) of what was captured, which lives as long as this object. RuntimeError when nothing was captured, or
        without ``keep_graph``."""
        self._need("raw_cuda_graph")
        if not self._keeps:
            raise RuntimeError("CUDAGraph.raw_cuda_graph: the driver's graph was not kept; make the graph by CUDAGraph(keep_graph=True)")
        return int(_C._cuda_graph_captured(self._number))

    def raw_cuda_graph_exec(self) -> int:
        """The driver's executable graph (``CUgraphExec``), which lives until the next ``instantiate()``. RuntimeError when nothing was captured,
        or when a graph that is kept was not made ready yet."""
        self._need("raw_cuda_graph_exec")
        ready = int(_C._cuda_graph_executable(self._number) or 0)
        if not ready:
            raise RuntimeError("CUDAGraph.raw_cuda_graph_exec: the graph was not made ready to run; call instantiate() first")
        return ready

    def replay(self) -> None:
        """Queues what was captured on this thread's current stream. RuntimeError when nothing was captured."""
        self._need("replay")
        for ref, group, which in self._steps:
            optimizer = ref()
            options = None if optimizer is None else optimizer._options(group)
            for i in which if options else ():
                _C._cuda_graph_options(self._number, i, options)
        _C._cuda_graph_replay(self._number)
        for call in self._calls:
            call()

    def reset(self) -> None:
        """Forgets what was captured, and gives up a capture that has not ended; the graph can be captured again. Tensors that the capture made
        keep their memory while they live."""
        if captured_graph() is self:
            del _capturing[threading.get_ident()]
        if self._number:
            self._end()
        self._number, self._memory, self._steps, self._calls, self._ready = 0, None, [], [], False

    def pool(self) -> Any:
        """What another capture passes as ``pool`` to share this graph's memory."""
        return self._need("pool").handle()

    def _need(self, what: str) -> MemPool:
        if not self._ready or self._memory is None:
            raise RuntimeError(f"CUDAGraph.{what}: nothing was captured")
        return self._memory

    def at_replay(self, call: Callable[[], None]) -> None:
        """Calls ``call`` after each replay: what code of ampc does on the CPU for what was captured."""
        self._calls.append(call)

    def note_step(self, optimizer: Any, group: Dict[str, Any]) -> None:
        """An optimizer has made a step while this graph was captured: replays read the group's options anew."""
        before = self._steps[-1][2].stop if self._steps else 0
        self._steps.append((weakref.ref(optimizer), group, range(before, _C._cuda_graph_steps(self._number))))


def graph_pool_handle() -> Any:
    """A pool of memory for several captures, to be passed to each as ``pool``."""
    return MemPool().handle()


def is_current_stream_capturing() -> bool:
    """Whether work on this thread's current stream is captured; False without a GPU."""
    return _C._cuda_count() > 0 and _C._cuda_is_capturing(current.index)


def _place(error: BaseException) -> str:
    """``train.py:12: `loss.item()`: `` of the innermost line of a script that an exception came through; "" if there is none."""
    import linecache  # here, so that `import ampc` does not load it

    at = innermost(error)
    if at is None:
        return ""
    file = at.tb_frame.f_code.co_filename
    line = linecache.getline(file, at.tb_lineno, at.tb_frame.f_globals).strip()
    return location_text((file, at.tb_lineno)) + (f": `{line}`: " if line else ": ")


class graph:
    """``with cuda.graph(g):`` captures the work within in ``g``, on a stream of its own, after waiting for the GPU and giving back the cached
    memory that no tensor uses: the graph has memory of its own, and within a capture none can be given back.

    Args:
        cuda_graph: a CUDAGraph.
        pool: as for ``CUDAGraph.capture_begin``.
        stream: to capture on; None is a stream that all captures on this GPU share.
        capture_error_mode: as for ``CUDAGraph.capture_begin``.

    What waits for the GPU cannot be captured: ``.item()``, ``.cpu()``, a result whose size depends on values, ``synchronize()``. It raises a
    RuntimeError that names the script's line and the operator. The capture is over then, and the process can go on."""

    _streams: Dict[int, Stream] = {}  # by GPU

    def __init__(self, cuda_graph: CUDAGraph, pool: Any = None, stream: Optional[Stream] = None, capture_error_mode: str = "global") -> None:
        if not isinstance(cuda_graph, CUDAGraph):
            raise TypeError(f"cuda.graph: expected a CUDAGraph, got {type(cuda_graph).__name__}")
        self.cuda_graph, self.pool, self.capture_error_mode = cuda_graph, pool, capture_error_mode
        if stream is None:
            stream = self._streams.get(current.index) or self._streams.setdefault(current.index, Stream())
        self.capture_stream = stream

    def __enter__(self) -> None:
        if any(ref() is not None for thread, ref in list(_capturing.items()) if thread != threading.get_ident()):
            raise RuntimeError("cuda.graph: another thread is capturing a CUDA graph, which waiting for the GPU would end; capture one after the "
                               "other")
        _C._cuda_synchronize(self.capture_stream._index)
        gc.collect()  # what dies later would end events and give memory back within the capture
        _C._cuda_empty_cache(self.capture_stream._index)
        self._region = stream_region(self.capture_stream)
        self._region.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self._region.__exit__(None, None, None)
            raise

    def __exit__(self, kind: Any, error: Optional[BaseException], traceback: Any) -> None:
        try:
            self.cuda_graph.capture_end()
        except _C.CaptureError:
            if error is None:
                raise
        finally:
            self._region.__exit__(None, None, None)
            if error is not None:
                self.cuda_graph.reset()
        if isinstance(error, _C.CaptureError):
            error.args = (_place(error) + str(error),)


__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing"]
