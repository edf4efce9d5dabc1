"""What the driver refuses while a stream is captured: the simulator does the same. Captures and threads."""

import ctypes
import os
import threading

import pytest
from test_cuda_graphs import begun, captured
from where import simulated, simulator

import ampc

pytestmark = simulated

UNSUPPORTED, INVALIDATED, UNJOINED, ISOLATION, IMPLICIT, CAPTURED_EVENT = 900, 901, 904, 905, 906, 907


@pytest.fixture
def driver():
    """The simulated driver itself, with the first GPU's context current."""
    cu, context = ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcuda.so.1")), ctypes.c_void_p()
    ampc.ones(1)
    assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cu.cuCtxPushCurrent_v2(context) == 0
    yield cu
    assert cu.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0


@pytest.fixture
def capture(driver):
    """A stream that is captured, another, memory, and what ends the capture: the driver's answer."""
    streams = [ctypes.c_void_p() for _ in range(2)]
    at, graph = ctypes.c_ulonglong(), ctypes.c_void_p()
    ampc.cuda.synchronize()
    for s in streams:
        assert driver.cuStreamCreateWithPriority(ctypes.byref(s), 1, 0) == 0
    assert driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(64)) == 0
    assert driver.cuStreamBeginCapture_v2(streams[0], 0) == 0
    assert driver.cuStreamBeginCapture_v2(streams[0], 0) == 401  # it is one already

    def end():
        result = driver.cuStreamEndCapture(streams[0], ctypes.byref(graph))
        assert (result == 0) == bool(graph.value)
        if graph.value:
            assert driver.cuGraphDestroy(graph) == 0
        return result

    yield streams, at, end
    driver.cuStreamEndCapture(streams[0], ctypes.byref(graph))
    for s in streams:
        assert driver.cuStreamDestroy_v2(s) == 0
    assert driver.cuMemFree_v2(at) == 0


@pytest.fixture
def event(driver):
    e = ctypes.c_void_p()
    assert driver.cuEventCreate(ctypes.byref(e), 2) == 0
    yield e
    assert driver.cuEventDestroy_v2(e) == 0


def work_on(driver, stream, at):
    return driver.cuMemsetD8Async(at, 0, ctypes.c_size_t(64), stream)


def test_the_default_stream_is_not_captured(driver):
    assert driver.cuStreamBeginCapture_v2(None, 0) == UNSUPPORTED


@pytest.mark.parametrize("call", ["cuStreamSynchronize", "cuStreamQuery", "cuCtxSynchronize", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc",
                                  "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"])
def test_what_a_capture_does_not_stand_ends_it(driver, capture, call):
    streams, at, end = capture
    size, room = ctypes.c_size_t(64), (ctypes.c_char * 64)()
    arguments = {"cuStreamSynchronize": (streams[0],), "cuStreamQuery": (streams[1],), "cuCtxSynchronize": (), "cuMemFree_v2": (at,),
                 "cuMemAlloc_v2": (ctypes.byref(ctypes.c_ulonglong()), size), "cuMemHostAlloc": (ctypes.byref(ctypes.c_void_p()), size, 1),
                 "cuMemcpyHtoDAsync_v2": (at, room, size, streams[0]), "cuMemcpyDtoHAsync_v2": (room, at, size, streams[0])}
    assert work_on(driver, streams[0], at) == 0
    assert getattr(driver, call)(*arguments[call]) == UNSUPPORTED
    assert work_on(driver, streams[0], at) == INVALIDATED and end() == INVALIDATED
    assert work_on(driver, streams[0], at) == 0  # the stream is an ordinary one again


def test_memory_is_had_in_the_relaxed_mode(driver, capture):
    _, _, end = capture
    mode, at = ctypes.c_int(2), ctypes.c_ulonglong()
    assert driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)) == 0 and mode.value == 0
    assert driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(64)) == 0
    assert driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)) == 0 and mode.value == 2 and end() == 0
    assert driver.cuMemFree_v2(at) == 0


def test_the_legacy_stream_waits_for_all_others(driver, capture):
    _, at, end = capture
    assert work_on(driver, None, at) == IMPLICIT and end() == INVALIDATED


def test_captured_work_does_not_wait_for_work_outside(driver, capture, event):
    streams, at, end = capture
    assert work_on(driver, streams[1], at) == 0 and driver.cuEventRecord(event, streams[1]) == 0
    assert driver.cuStreamWaitEvent(streams[0], event, 0) == ISOLATION and end() == INVALIDATED


def test_a_forked_stream_joins_again(driver, capture, event):
    streams, at, end = capture
    assert driver.cuEventRecord(event, streams[0]) == 0 and driver.cuStreamWaitEvent(streams[1], event, 0) == 0
    assert work_on(driver, streams[1], at) == 0
    assert driver.cuEventRecord(event, streams[1]) == 0 and driver.cuStreamWaitEvent(streams[0], event, 0) == 0
    assert end() == 0


def test_a_forked_stream_that_does_not_join(driver, capture, event):
    streams, at, end = capture
    assert driver.cuEventRecord(event, streams[0]) == 0 and driver.cuStreamWaitEvent(streams[1], event, 0) == 0
    assert work_on(driver, streams[1], at) == 0 and end() == UNJOINED


def test_a_captured_event_is_nobodys_to_wait_for(driver, capture, event):
    streams, _, end = capture
    assert driver.cuEventRecord(event, streams[0]) == 0 and driver.cuEventSynchronize(event) == CAPTURED_EVENT and end() == INVALIDATED


def test_a_graph_is_replayed_after_it_was_destroyed(driver, capture):
    streams, at, _ = capture
    graph, run = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuMemsetD8Async(at, 7, ctypes.c_size_t(64), streams[0]) == 0
    assert driver.cuStreamEndCapture(streams[0], ctypes.byref(graph)) == 0
    assert driver.cuGraphInstantiateWithFlags(ctypes.byref(run), graph, ctypes.c_ulonglong(0)) == 0 and driver.cuGraphDestroy(graph) == 0
    assert driver.cuGraphDestroy(graph) != 0
    room = (ctypes.c_char * 64)()
    assert driver.cuGraphLaunch(run, streams[1]) == 0 and driver.cuGraphExecDestroy(run) == 0  # before its turn
    assert driver.cuMemcpyDtoHAsync_v2(room, at, ctypes.c_size_t(64), streams[1]) == 0 and bytes(room) == b"\x07" * 64
    assert driver.cuGraphLaunch(run, streams[1]) != 0


# -- threads ---------------------------------------------------------------------------------------------------------------------


def test_a_failing_question_during_another_threads_capture_leaves_the_threads_mode(driver):
    """Asked in the relaxed mode, in which a capture of the thread's own would not see what it does not stand."""
    event, mode, began, asked = ampc.cuda.Event(), ctypes.c_int(0), threading.Event(), threading.Event()
    event.record()

    def capture():
        captured(lambda: (began.set(), asked.wait(60)), capture_error_mode="thread_local")

    thread = threading.Thread(target=capture)
    thread.start()
    assert began.wait(60)
    simulator("lose_device", 1)
    try:
        with pytest.raises(RuntimeError, match="asking an event"):
            event.query()
    finally:
        simulator("lose_device", 0)
        asked.set()
        thread.join()
    assert driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)) == 0 and mode.value == 0


def test_a_capture_that_its_thread_has_left_open_ends_with_the_thread():
    ampc.manual_seed(4)
    expected, left = ampc.rand(3).tolist(), []
    ampc.manual_seed(4)
    thread = threading.Thread(target=lambda: left.append(begun(ampc.cuda.Stream())))
    thread.start()
    thread.join()
    ampc.cuda.synchronize()
    assert ampc.rand(3).tolist() == expected
    with pytest.raises(RuntimeError, match="nothing was captured"):
        left[0][0].replay()


def test_another_thread_that_captures_at_the_same_time_is_refused_and_nothing_else_changes():
    ampc.manual_seed(4)
    expected, said = ampc.rand(3).tolist(), []
    ampc.manual_seed(4)

    def work():
        for begin in (lambda: captured(ampc.ones), lambda: ampc.cuda.CUDAGraph().capture_begin(capture_error_mode="thread_local")):
            with ampc.cuda.stream(ampc.cuda.Stream()), pytest.raises(RuntimeError, match="another thread is capturing .*; capture one after"):
                begin()
        said.append(True)

    def f():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return ampc.rand(3)

    g, y = captured(f, capture_error_mode="thread_local")
    g.replay()
    assert said and y.tolist() == expected
