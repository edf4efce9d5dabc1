"""What real GPUs, their drivers and their libraries refuse, or do otherwise than one would wish: the simulator does the same."""

import ctypes
import faulthandler
import gc
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from where import SIMULATED, simulator

import ampc

pytestmark = pytest.mark.skipif(not SIMULATED, reason="asks the simulator")
F = ampc.nn.functional


def library(name):
    return ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], name))


@pytest.fixture(autouse=True)
def alone():
    """What a kernel did wrong stays with its test."""
    yield
    if SIMULATED:
        simulator("forget_error")


@pytest.fixture
def driver():
    """The simulated driver itself, with the first GPU's context current."""
    cu, context = library("libcuda.so.1"), ctypes.c_void_p()
    ampc.ones(1)
    assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cu.cuCtxPushCurrent_v2(context) == 0
    yield cu
    assert cu.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0


def python(code, **environment):
    env = {**os.environ, **{k: str(v) for k, v in environment.items() if v is not None}}
    for name in [k for k, v in environment.items() if v is None]:
        env.pop(name, None)
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, env=env)


def in_a_forked_child(f):
    """What f exits with in a forked child; minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        code = 99
        faulthandler.disable()
        try:
            code = f()
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


# -- the simulator is strict ---------------------------------------------------------------------------------------------------


def test_a_destroyed_streams_handle_is_handed_out_again(driver):
    first, second, at = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_ulonglong()
    assert driver.cuStreamCreateWithPriority(ctypes.byref(first), 1, 0) == 0 and driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(64)) == 0
    before = simulator("pending")
    assert driver.cuMemsetD8Async(at, 0, ctypes.c_size_t(64), first) == 0
    assert driver.cuStreamDestroy_v2(first) == 0 and simulator("pending") == before + 1  # nobody waited
    assert driver.cuMemsetD8Async(at, 0, ctypes.c_size_t(64), first) != 0
    assert driver.cuStreamCreateWithPriority(ctypes.byref(second), 1, 0) == 0 and second.value == first.value
    assert driver.cuStreamDestroy_v2(second) == 0 and driver.cuMemFree_v2(at) == 0


@pytest.mark.skipif(not SIMULATED or ampc.cuda.device_count() < 2, reason="needs two GPUs")
def test_an_event_is_of_one_device(driver):
    event, other, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuEventCreate(ctypes.byref(event), 0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(other), 1) == 0
    assert driver.cuCtxPushCurrent_v2(other) == 0
    try:
        assert driver.cuStreamCreateWithPriority(ctypes.byref(stream), 1, 0) == 0
        assert driver.cuEventRecord(event, stream) == 400 and driver.cuEventRecord(event, None) == 400
        assert driver.cuStreamWaitEvent(stream, event, 0) == 0  # that may be of another
    finally:
        assert driver.cuCtxPopCurrent_v2(ctypes.byref(other)) == 0
    assert driver.cuMemsetD8Async(0, 0, ctypes.c_size_t(0), stream) != 0
    assert driver.cuEventDestroy_v2(event) == 0 and driver.cuStreamDestroy_v2(stream) == 0


@pytest.mark.skipif(not SIMULATED or ampc.cuda.device_count() < 2, reason="needs two GPUs")
def test_work_of_a_gpu_reaches_its_own_memory_alone(driver):
    """Copies between GPUs reach both."""
    x = [ampc.ones(2, device=f"cuda:{i}") for i in range(2)]

    def clear(i):
        here = ctypes.c_ulonglong(x[i].data_ptr())
        return driver.cuMemsetD8Async(here, 0, ctypes.c_size_t(8), None) or driver.cuStreamSynchronize(None)

    assert in_a_forked_child(lambda: clear(0)) == 0 and in_a_forked_child(lambda: clear(1)) == -signal.SIGSEGV
    assert x[0].to("cuda:1").tolist() == [1.0, 1.0]


def test_shared_memory_has_a_bound(driver):
    function, module, params = ctypes.c_void_p(), ctypes.c_void_p(), (ctypes.c_void_p * 1)()
    room = ctypes.create_string_buffer(4096)
    params[0] = ctypes.addressof(room)
    assert driver.cuModuleLoadData(ctypes.byref(module), None) == 0
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"ac_integer_product") == 0
    assert driver.cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, (48 << 10) + 1, None, params, None) == 1
    assert driver.cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 48 << 10, None, params, None) == 0
    ampc.cuda.synchronize()


def test_a_forked_child_has_no_page_locked_memory():
    p = ampc.ones(4, device="cpu").pin_memory()
    assert in_a_forked_child(lambda: int(p.sum().item())) == -11 and p.sum().item() == 4


def test_one_allocation_a_block_ends_where_memory_does():
    """For finding what reads too far: AMPC_SIM_GUARD, and AMPC_CUDA_CACHING=0, which a sanitizer of a real GPU wants, too."""
    code = """
        import ctypes, sys, ampc
        x = ampc.ones(1000, device="cuda") + ampc.ones(1000, device="cuda")
        read = ctypes.c_float.from_address(x.data_ptr() + 4 * int(sys.argv[1] if len(sys.argv) > 1 else 999)).value
        assert read == 2 and ampc.cuda.memory_reserved() == ampc.cuda.memory_allocated() == 4000 == x.nbytes
        del x
        assert ampc.cuda.memory_reserved() == 0
        y = ampc.nn.Linear(30, 7, device="cuda")(ampc.rand(5, 30, device="cuda"))
        y.sum().backward()
        print("done")
    """
    within = python(code, AMPC_SIM_GUARD=1, AMPC_CUDA_CACHING=0)
    assert within.stdout == "done\n", within.stderr
    assert python(code.replace("else 999", "else 1000"), AMPC_SIM_GUARD=1, AMPC_CUDA_CACHING=0).returncode == -11


def test_a_graph_keeps_its_memory_without_caching():
    done = python("""
        import ampc
        x, g = ampc.ones(1000, device="cuda"), ampc.cuda.CUDAGraph()
        with ampc.cuda.graph(g):
            y = ((x * 2).exp() + 1).sum()
        others = [ampc.zeros(1000, device="cuda") for _ in range(8)]
        g.replay()
        print(round(y.item()))
    """, AMPC_CUDA_CACHING=0)
    assert done.stdout == "8389\n", done.stderr


# -- libraries -------------------------------------------------------------------------------------------------------------------


def lay_out(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copy(Path(os.environ["AMPC_CUDA_LIBS"]) / name.replace(".so.12", ".so.13"), folder / name)
    return folder


SEARCH = """
    import re, ampc
    assert (ampc.ones(2, 2, device="cuda") @ ampc.ones(2, 2, device="cuda")).tolist() == [[2, 2], [2, 2]]
    ampc.backends.cudnn.version()
    print(*sorted(set(re.findall(r"\\S*/libcu(?:blasLt|dnn)\\S*", open("/proc/self/maps").read()))))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="reads /proc")
@pytest.mark.parametrize("place", ["site/nvidia/cu13/lib", "site/nvidia/cublas/lib", "conda/lib", "toolkit/lib64"])
def test_libraries_are_found(tmp_path, place):
    """In the packages of the running environment, in conda's, in the toolkit's."""
    system = lay_out(tmp_path / "system", "libcuda.so.1")
    folder = lay_out(tmp_path / place, "libcublasLt.so.13", "libcudnn.so.9")
    done = python(SEARCH, AMPC_CUDA_LIBS=None, LD_LIBRARY_PATH=system, CONDA_PREFIX=tmp_path / "conda", CUDA_HOME=tmp_path / "toolkit",
                  PYTHONPATH=os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    assert done.stdout.split() == [str(folder / "libcublasLt.so.13"), str(folder / "libcudnn.so.9")], done.stderr


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="reads /proc")
@pytest.mark.parametrize(("version", "expected"), [(12040, ["libcublasLt.so.12", "libcudnn.so.9"]), (13000, ["libcublasLt.so.13", "libcudnn.so.9"]),
                                                   (13010, ["libcublasLt.so.13", "libcudnn.so.9"])])
def test_cublaslt_is_the_drivers(tmp_path, version, expected):
    """cuBLASLt 13 cannot start on a driver that knows CUDA 12 alone."""
    folder = lay_out(tmp_path, "libcuda.so.1", "libcublasLt.so.12", "libcublasLt.so.13", "libcudnn.so.9")
    done = python(SEARCH, AMPC_CUDA_LIBS=folder, AMPC_SIM_DRIVER=version)
    assert [os.path.basename(p) for p in done.stdout.split()] == expected, done.stderr


def test_a_library_for_a_newer_driver_is_named(tmp_path):
    folder = lay_out(tmp_path, "libcuda.so.1", "libcublasLt.so.13")
    done = python(SEARCH, AMPC_CUDA_LIBS=folder, AMPC_SIM_DRIVER=12040)
    assert done.returncode and "libcublasLt.so.12" in done.stderr and "nvidia-cublas-cu12" in done.stderr


def test_a_driver_that_is_too_old_is_told_of(tmp_path):
    done = python("import ampc; print(ampc.cuda.is_available(), ampc._C._cuda_note('driver'))", AMPC_SIM_DRIVER=11080)
    assert done.stdout == "False the NVIDIA driver is too old: it knows CUDA 11.8, and 12.0 is needed\n", done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the loader's words")
def test_a_library_that_does_not_open_is_told_of(tmp_path):
    """It is not as if there were none."""
    folder = lay_out(tmp_path, "libcuda.so.1")
    for name in ("libcublasLt.so.13", "libnccl.so.2"):
        (folder / name).write_text("no library")
    done = python("""
        import ampc
        try:
            ampc.ones(2, 2, device="cuda") @ ampc.ones(2, 2, device="cuda")
        except RuntimeError as error:
            print(error)
        print(ampc._C._cuda_note("cublasLt"), ampc._C._cuda_note("nccl"), sep="\\n")
    """, AMPC_CUDA_LIBS=folder)
    said = done.stdout.splitlines()
    assert "libcublasLt.so.13; one is there that does not open: " in said[0] and "file too short): install" in said[0], done.stdout + done.stderr
    assert all("; one is there that does not open: " in line for line in said)
    (folder / "libcuda.so.1").write_text("no driver")
    assert "libcuda.so.1; one is there that does not open: " in python("import ampc; print(ampc._C._cuda_note('driver'))", AMPC_CUDA_LIBS=folder).stdout


@pytest.mark.parametrize(("visible", "said"), [(None, "sees no GPU"), ("", "sees no GPU, and CUDA_VISIBLE_DEVICES, which says what it may see, is ''"),
                                               ("7", "sees no GPU, and CUDA_VISIBLE_DEVICES, which says what it may see, is '7'")])
def test_gpus_that_are_hidden_are_told_of(visible, said):
    done = python("import ampc; print(ampc._C._cuda_note('driver')); ampc.ones(1, device='cuda')", AMPC_SIM_GPUS=0, CUDA_VISIBLE_DEVICES=visible)
    assert done.stdout == f"the NVIDIA driver {said}\n" and f"the NVIDIA driver {said}; test cuda.is_available() first" in done.stderr


def test_wsls_driver_is_looked_for(monkeypatch):
    from ampc._process import cuda_folders as _cuda_folders

    monkeypatch.setattr(_cuda_folders.os.path, "isdir", lambda path: True)
    monkeypatch.setattr(_cuda_folders.sys, "path", ["", "/here"])
    assert _cuda_folders.folders()[-2:] == ["/usr/local/cuda/lib64", "/usr/lib/wsl/lib"]


# -- streams and events -------------------------------------------------------------------------------------------------------


def test_a_current_stream_outlives_its_owner():
    ampc.cuda.set_stream(ampc.cuda.Stream())
    try:
        gc.collect()
        ones = ampc.ones(1000)
        later = ampc.cuda.Stream()
        assert later != ampc.cuda.current_stream()
        with ampc.cuda.stream(later):
            ampc.full((1000,), float("nan"))
        assert (ones + 1).tolist() == [2.0] * 1000
    finally:
        ampc.cuda.synchronize()
        ampc.cuda.set_stream(ampc.cuda.default_stream())


def test_streams_are_pooled():
    """Per device and priority; as many objects as one likes share 32 streams, and numbers beyond the priorities mean the nearest."""
    before = simulator("streams")
    some = [[ampc.cuda.Stream(priority=p).cuda_stream for _ in range(100)] for p in (0, -1)]
    assert [len(set(handles)) for handles in some] == [32, 32] and not set(some[0]) & set(some[1])
    assert simulator("streams") <= before + 64
    assert ampc.cuda.Stream(priority=7).cuda_stream in some[0]


@pytest.mark.skipif(not SIMULATED or ampc.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("own", [False, True], ids=["default stream", "stream of its own"])
def test_memory_that_another_gpus_stream_uses(own):
    ampc.cuda.empty_cache()
    reserved = ampc.cuda.memory_reserved()
    x = ampc.full((1000,), 3.0, device="cuda:0")
    address = x.data_ptr()
    side = ampc.cuda.Stream("cuda:1") if own else ampc.cuda.default_stream("cuda:1")
    with ampc.cuda.stream(side):
        ampc.ones(10, device="cuda:1").exp()
    x.record_stream(side)
    del x
    assert ampc.zeros(1000).data_ptr() != address  # not before that stream is done,
    side.synchronize()
    assert ampc.zeros(1000).data_ptr() == address  # and then it is
    ampc.cuda.empty_cache()
    assert ampc.cuda.memory_reserved() == reserved


# -- products --------------------------------------------------------------------------------------------------------------------

WITH_BIAS, ONE_ROW_BIAS, MANY_BATCHES, LITTLE_ALIGNED, HALVES, AT_THE_CALL = (1 << i for i in range(6))


REFUSALS = {"with bias": WITH_BIAS, "one row with bias": ONE_ROW_BIAS, "many batches": MANY_BATCHES, "little aligned": LITTLE_ALIGNED, "halves": HALVES,
            "all": WITH_BIAS | MANY_BATCHES | LITTLE_ALIGNED | HALVES, "all, at the call": WITH_BIAS | MANY_BATCHES | LITTLE_ALIGNED | HALVES | AT_THE_CALL}


def products(what, value=0):
    f = library("libcublasLt.so.13").ampc_simulated_products
    f.restype = ctypes.c_longlong
    return f(what, ctypes.c_longlong(value))


@pytest.fixture
def refuse():
    yield lambda what: products(b"refuse", what)
    products(b"refuse", 0)


def drawn(dtype, *shape):
    """Off a boundary by one element."""
    return ampc.randn(int(np.prod(shape)) + 1).to(dtype)[1:].view(shape)


# By dtype and a number that makes shapes of its own: what was found out about a product is kept.
PRODUCTS = {
    "linear": lambda t, i: (F.linear, (ampc.randn(5, 8 * i).to(t), ampc.randn(16, 8 * i).to(t), ampc.randn(16).to(t))),
    "one row": lambda t, i: (F.linear, (ampc.randn(1, 8 * i).to(t), ampc.randn(16, 8 * i).to(t), ampc.randn(16).to(t))),
    "off a boundary": lambda t, i: (F.linear, (drawn(t, 5, 6 + i), drawn(t, 3, 6 + i), drawn(t, 3))),
    "one term": lambda t, i: (F.linear, (drawn(t, 4 + i, 1), drawn(t, 3, 1), drawn(t, 3))),
    "matrices": lambda t, i: (ampc.matmul, (drawn(t, 5, 6 + i), drawn(t, 6 + i, 9))),
    "transposed": lambda t, i: (ampc.matmul, (drawn(t, 6 + i, 5).t(), drawn(t, 9, 6 + i).t())),
    "batches": lambda t, i: (ampc.matmul, (drawn(t, 3, 5, 6 + i), drawn(t, 3, 6 + i, 9))),
    "many batches": lambda t, i: (ampc.matmul, (ampc.rand(65537 + i, 1, 2).to(t), ampc.rand(65537 + i, 2, 1).to(t))),
}


@pytest.mark.skipif(not SIMULATED or ampc.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.filterwarnings("ignore:cuBLASLt")
@pytest.mark.parametrize("dtype", [ampc.float16, ampc.bfloat16, ampc.float32, ampc.float64], ids=str)
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("what", REFUSALS)
def test_a_refused_product_has_the_same_numbers(refuse, what, product, dtype):
    asked = []
    for size in range(1 + [*REFUSALS].index(what), 100, 30):
        f, operands = PRODUCTS[product](dtype, size)
        want = f(*(t.to("cuda:1") for t in operands)).numpy(force=True)  # with plans of its own
        refuse(REFUSALS[what])
        for _ in range(2):
            before = products(b"asked")
            assert f(*operands).numpy(force=True).tobytes() == want.tobytes()
        refuse(0)
        asked.append(products(b"asked") - before)
        if not asked[-1]:  # what is refused is asked for once, unless the plans of a product take each other's places
            return
    pytest.fail(f"plans were asked for again, of sizes one after the other: {asked}")


@pytest.mark.filterwarnings("ignore:cuBLASLt")
@pytest.mark.parametrize("what", REFUSALS)
def test_a_refused_product_that_adds(refuse, what):
    """A weight's gradient goes into what is there."""
    n = 20 + [*REFUSALS].index(what)
    refuse(REFUSALS[what])
    w = ampc.ones(3, n, requires_grad=True)
    for scale in (2048.0, 0.25, 0.25):
        with ampc.autocast("cuda", dtype=ampc.float16):
            y = F.linear(ampc.full((5, n), scale), w)
        y.backward(ampc.ones_like(y))
    assert w.grad.tolist() == [[5 * 2048.5] * n] * 3


@pytest.mark.filterwarnings("ignore:cuBLASLt")
def test_a_refused_product_of_a_packed_weight(refuse):
    refuse(LITTLE_ALIGNED | HALVES)
    x, w = ampc.randn(5, 7), ampc.randn(3, 7, requires_grad=True)
    with ampc.autocast("cuda", dtype=ampc.bfloat16):
        got = [F.linear(x, w) for _ in range(2)]
    want = (x.bfloat16().float() @ w.bfloat16().float().t()).bfloat16()
    assert got[0].equal(want) and got[1].equal(want)


def test_a_refused_product_is_told_of_once():
    done = python("""
        import ctypes, os, warnings, ampc
        refuse = ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcublasLt.so.13")).ampc_simulated_products
        refuse(b"refuse", ctypes.c_longlong(17))
        f = lambda n: ampc.nn.functional.linear(*(ampc.ones(*s, device="cuda").half() for s in ((2, n), (3, n), (3,)))).tolist()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert f(4) == [[5.0] * 3] * 2 and f(5) == [[6.0] * 3] * 2
        print(*(w.message for w in said), sep=chr(10))
    """)
    assert done.stdout == ("cuBLASLt has no algorithm for a product (2 x 4 by 4 x 3, float16, with a bias), so it is computed in float32, "
                           "which takes longer; this is said once\n"), done.stderr
    done = python("""
        import ctypes, os, warnings, ampc
        ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcublasLt.so.13")).ampc_simulated_products(b"refuse", ctypes.c_longlong(16))
        warnings.simplefilter("error")
        x = ampc.ones(2, 2, device="cuda").half()
        try:
            x @ x
        except RuntimeWarning:
            print((x @ x).tolist())
    """)
    assert done.stdout == "[[2.0, 2.0], [2.0, 2.0]]\n", done.stderr


@pytest.mark.filterwarnings("ignore:cuBLASLt")
def test_a_product_that_nothing_helps(refuse):
    refuse(64)
    with pytest.raises(RuntimeError, match=r"cuBLASLt has no algorithm for a product \(2 x 3 by 3 x 4, float64\)"):
        ampc.ones(2, 3).double() @ ampc.ones(3, 4).double()


@pytest.mark.parametrize("dtype", [ampc.float16, ampc.float32, ampc.float64], ids=str)
def test_a_bias_at_an_odd_address(dtype):
    x, w, b = ampc.randn(4, 8).to(dtype), ampc.randn(8, 8).to(dtype), ampc.randn(17).to(dtype)
    want = F.linear(x, w, b[1:9].clone())
    assert F.linear(x, w, b[1:9]).equal(want)


# -- memory --------------------------------------------------------------------------------------------------------------------


def test_waiting_blocks_are_looked_at_before_memory_is_out():
    total = ampc.cuda.mem_get_info()[1]
    gc.collect()
    ampc.cuda.empty_cache()
    side = ampc.cuda.Stream()
    ampc.cuda.set_per_process_memory_fraction((ampc.cuda.memory_reserved() + (48 << 20)) / total)
    try:
        for again in (40 << 20, 30 << 20):  # the block itself; and another size, for which its piece goes back
            x = ampc.empty(40 << 20, dtype=ampc.uint8)
            x.record_stream(side)
            with ampc.cuda.stream(side):
                x[:8].zero_()
            del x
            y = ampc.empty(again, dtype=ampc.uint8)
            del y
            ampc.cuda.empty_cache()
    finally:
        ampc.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.skipif(not SIMULATED or ampc.cuda.device_count() < 2, reason="needs two GPUs")
def test_blocks_that_wait_for_another_gpu_are_looked_at_before_memory_is_out():
    total = ampc.cuda.mem_get_info()[1]
    gc.collect()
    ampc.cuda.empty_cache()
    ampc.cuda.set_per_process_memory_fraction((ampc.cuda.memory_reserved() + (48 << 20)) / total)
    try:
        x = ampc.empty(40 << 20, dtype=ampc.uint8)
        x.record_stream(ampc.cuda.default_stream("cuda:1"))
        ampc.ones(8, device="cuda:1").exp()
        del x
        ampc.empty(40 << 20, dtype=ampc.uint8)
    finally:
        ampc.cuda.set_per_process_memory_fraction(1.0)


def test_copies_are_waited_for_before_page_locked_memory_is_out():
    ampc.cuda.empty_cache()
    before = simulator("pinned")
    x = ampc.ones(1 << 18, device="cpu").pin_memory()
    there = x.to("cuda", non_blocking=True)
    del x
    simulator("fail_alloc", 1)
    y = ampc.ones(1 << 20, device="cpu").pin_memory()
    assert simulator("pinned") == before + 1 and there.sum().item() == 1 << 18 and y.is_pinned()


def test_anothers_page_locked_memory(driver):
    """Nobody tells when it goes, so the copy is waited for."""
    at = ctypes.c_void_p()
    assert driver.cuMemHostAlloc(ctypes.byref(at), ctypes.c_size_t(4096), 0) == 0
    array = np.frombuffer((ctypes.c_float * 1024).from_address(at.value), np.float32)
    array[:] = 3
    there = ampc.from_numpy(array).to("cuda", non_blocking=True)
    array[:] = 5
    assert there.tolist() == [3.0] * 1024
    ampc.from_numpy(array).copy_(there * 2, non_blocking=True)
    assert array.tolist() == [6.0] * 1024
    mine = ampc.ones(1024, device="cpu").pin_memory()  # as are ours by another way
    through = ampc.from_numpy(mine.numpy()).to("cuda", non_blocking=True)
    mine.fill_(7)
    assert through.tolist() == [1.0] * 1024
    assert driver.cuMemFreeHost(at) == 0


def test_a_gpu_that_reads_pageable_memory_itself():
    done = python("""
        import ctypes, os
        ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcuda.so.1")).ampc_simulator(b"reads_pageable", ctypes.c_longlong(1))
        import ampc
        x = ampc.arange(6.0, device="cpu").view(2, 3)
        for t in (x.t(), x):
            for non_blocking in (False, True):
                want = t.tolist()
                there = t.to("cuda", non_blocking=non_blocking)
                x.add_(1), ampc.zeros(3, 2, device="cpu")
                assert there.tolist() == want
    """)
    assert done.returncode == 0, done.stderr


def test_the_tables_of_lists_outlive_their_copies_there():
    done = python("""
        import ctypes, os
        ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcuda.so.1")).ampc_simulator(b"reads_pageable", ctypes.c_longlong(1))
        import ampc
        lists = [[ampc.full((8,), 1.0, device="cuda", requires_grad=True) for _ in range(3)] for _ in range(40)]
        for some in lists:
            for p in some:
                p.grad = ampc.full((8,), 0.5, device="cuda")
        optimizers = [ampc.optim.SGD(some, lr=1.0) for some in lists]
        for opt in optimizers:
            opt.step()
        assert all(p.tolist() == [0.5] * 8 for some in lists for p in some)
    """)
    assert done.returncode == 0, done.stderr


def test_a_forked_child_does_not_touch_mapped_memory():
    x = ampc.ones(3)
    x[ampc.tensor([1])]  # the note of bad indices is there
    ampc.cuda.synchronize()

    def child():
        for call in (lambda: x.add_(1), x.exp, x.tolist, lambda: ampc.cuda.current_stream().query()):
            try:
                call()
            except RuntimeError as e:
                if "forked" not in str(e):
                    return 1
            else:
                return 2
        return 0

    assert in_a_forked_child(child) == 0 and x.tolist() == [1, 1, 1]


# -- convolutions ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [ampc.float16, ampc.float32], ids=str)
@pytest.mark.parametrize("refused", [1, 2, 4, 7])
def test_a_refused_convolution_has_the_same_numbers(refused, dtype):
    x, w, b = ampc.randn(2, 4, 7, 6).to(dtype), ampc.randn(6, 4, 3, 3).to(dtype), ampc.randn(6).to(dtype)
    calls = [lambda t: F.conv2d(t, w, b, padding=1), lambda t: F.conv2d(t, w, stride=2), lambda t: F.conv_transpose2d(t, w.transpose(0, 1), b)]
    want = [f(x) for f in calls]
    library("libcudnn.so.9").ampc_simulate_cudnn(refused)
    try:
        wider = ampc.cat([x, x])  # a plan of its own
        got = [f(wider)[:2] for f in calls]
    finally:
        library("libcudnn.so.9").ampc_simulate_cudnn(0)
    for a, e in zip(got, want):
        assert (a - e).abs().max().item() <= 4 * ampc.finfo(dtype).eps * e.abs().max().item()


@pytest.mark.parametrize(("refused", "starts", "convolutions"), [(8, 2, 0), (16, 2, 3)], ids=["ever", "for lack of memory"])
def test_a_cudnn_that_does_not_start_is_asked_again_once_the_cache_has_made_room(refused, starts, convolutions):
    """One for a newer driver never starts."""
    done = python(f"""
        import ctypes, os, ampc
        cudnn = ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcudnn.so.9"))
        cudnn.ampc_simulate_cudnn({refused})
        x, w = ampc.ones(1, 2, 4, 4, device="cuda"), ampc.ones(3, 2, 3, 3, device="cuda")
        print([ampc.nn.functional.conv2d(x, w).sum().item() for _ in range(3)], cudnn.ampc_simulated_starts(), cudnn.ampc_simulated_convolutions())
    """)
    assert done.stdout == f"[216.0, 216.0, 216.0] {starts} {convolutions}\n", done.stderr


@pytest.mark.parametrize("dtype", [ampc.float16, ampc.float32], ids=str)
def test_convolutions_of_operands_off_a_boundary(dtype):
    x, w, b = drawn(dtype, 2, 4, 7, 6), drawn(dtype, 6, 4, 3, 3), drawn(dtype, 6)
    assert F.conv2d(x, w, b).equal(F.conv2d(x.clone(), w.clone(), b.clone()))


def test_convolutions_in_tf32():
    x, w = ampc.rand(1, 8, 6, 6) + 1, ampc.rand(4, 8, 3, 3) + 1
    want = F.conv2d(x.double(), w.double())

    def error():
        return (F.conv2d(x, w) - want).abs().max().item()

    exact, cudnn = error(), ampc.backends.cudnn
    cudnn.allow_tf32 = True
    try:
        rounded = error()
    finally:
        cudnn.allow_tf32 = False
    assert exact < 1e-4 < rounded < 1 and error() == exact
