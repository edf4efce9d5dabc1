"""A thread's current CUDA context, which other libraries change, too: ampc's own is current while its calls run, and theirs between them. On the
simulator, where work that is queued in another device's context comes too late."""

import contextlib
import ctypes
import os
import threading

import pytest
from where import simulated

import ampc

pytestmark = simulated


class Driver:
    """What another library asks of the driver."""

    def __init__(self):
        self.library = ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcuda.so.1"))

    def context_of(self, device):
        context = ctypes.c_void_p()
        assert self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
        return context.value

    @property
    def current(self):
        context = ctypes.c_void_p()
        assert self.library.cuCtxGetCurrent(ctypes.byref(context)) == 0
        return context.value

    @current.setter
    def current(self, context):
        assert self.library.cuCtxSetCurrent(ctypes.c_void_p(context)) == 0


@pytest.fixture
def driver():
    ampc.cuda.synchronize()
    driver = Driver()
    before = driver.current
    yield driver
    driver.current = before


def on_new_thread(f):
    """The result of a function on a thread that has no context."""
    result = []
    thread = threading.Thread(target=lambda: result.append(f()))
    thread.start()
    thread.join()
    return result[0]


def test_another_librarys_context_is_left_as_it_was(driver):
    x = ampc.ones(1000, device="cuda:0") * 3
    driver.current = other = driver.context_of(1)
    y = x + 1
    assert driver.current == other and y.tolist() == [4.0] * 1000 and driver.current == other
    z = ampc.tensor([1.0, 2.0], device="cuda:1", requires_grad=True)
    (z * z).sum().backward()
    assert z.grad.tolist() == [2.0, 4.0] and driver.current == other
    del x, y
    assert driver.current == other


def test_a_context_that_a_hook_leaves_behind(driver):
    """The hook runs in the midst of backward, where the work before it is still queued."""
    other = driver.context_of(1)

    def hook(grad):
        driver.current = other

    x = ampc.ones(64, 64, device="cuda:0", requires_grad=True)
    h = x * 2
    h.register_hook(hook)
    (h * h).sum().backward()
    assert driver.current == other and (x.grad == 8).all().item()


def test_a_context_that_a_function_leaves_behind(driver):
    other = driver.context_of(1)

    class Twice(ampc.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            doubled = grad * 2
            driver.current = other
            return doubled

    x = ampc.ones(64, 64, device="cuda:0", requires_grad=True)
    (Twice.apply(x * x) * 3).sum().backward()
    assert (x.grad == 12).all().item()


def test_a_context_that_a_hook_on_saved_tensors_leaves_behind(driver):
    other = driver.context_of(1)

    def unpack(saved):
        driver.current = other
        return saved

    x = ampc.ones(64, 64, device="cuda:0", requires_grad=True)
    with ampc.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        y = (x * x).exp().sum()
    y.backward()
    assert x.grad[0, 0].item() == pytest.approx(2 * 2.718281828, rel=1e-6)


def test_a_thread_without_a_context_keeps_the_first_gpus(driver):
    def used(device):
        total = ampc.ones(3, device=device).sum().item()
        return total, driver.current

    assert on_new_thread(lambda: used("cuda:0")) == (3.0, driver.context_of(0))
    assert on_new_thread(lambda: used("cuda:1")) == (3.0, None)


def test_set_device_is_for_other_libraries_too(driver):
    def used():
        ampc.cuda.set_device(1)
        total = ampc.ones(3, device="cuda").sum().item()
        return total, driver.current, ampc.ones(3, device="cuda:0").sum().item(), driver.current

    assert on_new_thread(used) == (3.0, driver.context_of(1), 3.0, driver.context_of(1))


def test_threads_have_contexts_of_their_own(driver):
    """Two threads on two devices, with a stranger's context in between; each sees its own results."""
    def work(device):
        driver.current = driver.context_of(1 - device)
        x = ampc.ones(100, device=f"cuda:{device}")
        for _ in range(20):
            x = x + 1
        return x.sum().item(), driver.current == driver.context_of(1 - device)

    results = [None, None]
    threads = [threading.Thread(target=lambda i=i: results.__setitem__(i, work(i))) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [(2100.0, True), (2100.0, True)]


def test_errors_leave_the_context_too(driver):
    driver.current = other = driver.context_of(1)
    x = ampc.ones(4, device="cuda:0")
    with contextlib.suppress(RuntimeError):
        x @ ampc.ones(5, 5, device="cuda:0")
    with pytest.raises(RuntimeError, match="cuda:9"):
        x.to("cuda:9")
    assert driver.current == other and (x + 1).tolist() == [2.0] * 4
