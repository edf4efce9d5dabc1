"""The GPU code of a build: what is chosen for a GPU, how it is unpacked, and what is said where that fails."""

import os
import subprocess
import sys
import textwrap

import pytest
from where import SIMULATED

from ampc._process.installation import _built_for

BUILT = [int(n) for n in _built_for() if n.isdigit()]  # the architectures of this build's GPU code
pytestmark = pytest.mark.skipif(not SIMULATED or not BUILT, reason="needs a build with GPU code, and the simulator")
LOADED = """
    import ctypes, os, sys, ampc
    simulator = ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcuda.so.1")).ampc_simulator
    for what, result in zip((b"refuse_machine_code", b"refuse_ptx"), sys.argv[1:]):
        simulator(what, ctypes.c_longlong(int(result)))
    for device in "cuda:0", "cuda:1":
        assert (ampc.ones(3, device=device) + 1).tolist() == [2, 2, 2]
        print(simulator(b"loaded", ctypes.c_longlong(0)))
"""


def python(code, *arguments, **environment):
    env = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code), *arguments], capture_output=True, text=True, timeout=120, env=env)


def ptx(architecture):
    return -max(n for n in ([75] if 75 in BUILT else []) + ([80] if max(BUILT) >= 80 else []) if n <= architecture)


@pytest.mark.parametrize("gpus", [(75, 90), (80, 80), (86, 75), (89, 121), (90, 89), (103, 90), (110, 86), (121, 110)], ids=str)
def test_the_newest_machine_code_that_runs_on_a_gpu_is_loaded_and_else_ptx(gpus):
    """Each GPU's own. The simulator takes machine code of the GPU's generation alone, and of no later version."""
    suitable = [[n for n in BUILT if n <= gpu and n // 10 == gpu // 10] for gpu in gpus]
    done = python(LOADED, AMPC_SIM_ARCHITECTURE=f"{gpus[0]},{gpus[1]}")
    assert done.stdout.split() == [str(max(some) if some else ptx(gpu)) for some, gpu in zip(suitable, gpus)], done.stderr


@pytest.mark.parametrize("result", ["209", "200"], ids=["NO_BINARY_FOR_GPU", "INVALID_IMAGE"])
def test_ptx_is_loaded_where_the_driver_refuses_machine_code(result):
    done = python(LOADED, result, AMPC_SIM_ARCHITECTURE=max(BUILT))
    assert done.stdout.split() == 2 * [str(ptx(max(BUILT)))], done.stderr


def test_an_old_driver_is_told_that_it_cannot_compile_the_ptx():
    """As each driver refuses PTX of a newer toolkit."""
    done = python(LOADED, "209", "222")
    assert "does not compile the PTX that this build has for cuda:0, an sm_90" in done.stderr and "update the driver" in done.stderr, done.stderr
    done = python(LOADED, "209", "218")
    assert "loading the GPU code: CUDA_ERROR_INVALID_PTX (218)" in done.stderr, done.stderr


def test_an_old_gpu_is_told_that_there_is_no_code_for_it():
    done = python(LOADED, AMPC_SIM_ARCHITECTURE=61)
    assert "cuda:0 is an sm_61, and this build has no GPU code for it; `ampc info` says" in done.stderr, done.stderr


def test_a_python_without_lzma_is_told_that_it_unpacks_the_gpu_code():
    done = python("import sys; sys.modules['lzma'] = None; import ampc; x = ampc.ones(3, device='cuda') + 1")
    assert "RuntimeError" in done.stderr and "a Python with the module lzma" in done.stderr, done.stderr
    script = """
        import ampc, lzma
        whole, lzma.decompress = lzma.decompress, lambda packed: whole(packed[:-100])
        try:
            ampc.ones(3, device="cuda") + 1
        except RuntimeError as e:
            print(e)
        lzma.decompress = whole
        print((ampc.ones(3, device="cuda") + 1).tolist())
    """
    said = python(script).stdout.splitlines()
    assert "unpacking the GPU code: " in said[0] and said[1] == "[2.0, 2.0, 2.0]"


def test_what_a_signals_handler_raises_while_gpu_code_is_unpacked_stands():
    script = """
        import ampc, lzma, os, signal
        whole, x = lzma.decompress, ampc.ones(3, device="cuda")
        def interrupted(packed):
            os.kill(os.getpid(), signal.SIGINT)
            return whole(packed)
        def too_late(*_):
            raise TimeoutError("time is over")
        lzma.decompress = interrupted
        for handler in signal.default_int_handler, too_late:
            signal.signal(signal.SIGINT, handler)
            try:
                x + 1
            except (KeyboardInterrupt, TimeoutError) as e:
                print(repr(e))
        lzma.decompress = whole
        print((x + 1).tolist())
    """
    done = python(script)
    assert done.stdout == "KeyboardInterrupt()\nTimeoutError('time is over')\n[2.0, 2.0, 2.0]\n", done.stdout + done.stderr


def test_gpu_code_is_unpacked_in_little_memory_and_else_says_that_there_is_none():
    """The image with the most kernels has 7 to 11 MB."""
    script = """
        import ampc, resource
        def add_within(mib):
            used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))
            resource.setrlimit(resource.RLIMIT_AS, (used * 1024 + mib * 2**20, -1))
            try:
                return x + 1
            except MemoryError as e:
                return e
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        x = ampc.ones(3, device="cuda")
        print(add_within(4))
        print(add_within(56).tolist())
    """
    done = python(script)
    assert done.stdout == "unpacking the GPU code: the host has no memory for it\n[2.0, 2.0, 2.0]\n", done.stdout + done.stderr


def test_gpu_code_goes_to_its_gpu_when_another_library_changes_the_threads_context_meanwhile():
    """As a finalizer of that library's may, which Python runs while it unpacks."""
    script = """
        import ampc, ctypes, lzma, os
        driver = ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcuda.so.1"))
        whole, x = lzma.decompress, ampc.ones(3, device="cuda")
        def leave_the_context(packed):
            driver.cuCtxSetCurrent(None)
            return whole(packed)
        lzma.decompress = leave_the_context
        print((x + 1).tolist())
    """
    done = python(script)
    assert done.stdout == "[2.0, 2.0, 2.0]\n", done.stderr


def test_threads_that_need_the_same_code_first():
    script = """
        import ampc, threading
        x, results = ampc.ones(3, device="cuda"), [0] * 8
        def use(i):
            results[i] = (x.cumsum(0) + x.sort().values).tolist()
        threads = [threading.Thread(target=use, args=[i]) for i in range(8)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert results == [[2, 3, 4]] * 8
    """
    done = python(script)
    assert done.returncode == 0, done.stderr
