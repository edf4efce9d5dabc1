"""What tests of a GPU's kernels count and compare: launches, bytes, results in any order of threads, and distances from float64."""

import ctypes
import os

import numpy as np
from kernel_traffic import traffic
from where import SIMULATED, settled, simulator

import ampc

COUNTS_BYTES = SIMULATED and "cuda_ptx" in os.environ["AMPC_CUDA_LIBS"]


def launches(f):
    """The launches of one call, and its result; the first call may make copies that later ones keep."""
    f()
    if not SIMULATED:
        return None, settled(f())
    before = simulator("launches")
    result = f()
    return simulator("launches") - before, settled(result)


def multiplied():
    """The products so far."""
    f = ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcublasLt.so.13")).ampc_simulated_products
    f.restype = ctypes.c_longlong
    return f(b"done", ctypes.c_longlong(0))


def bytes_of(f):
    """What a call reads and writes of the GPU's memory, in bytes."""
    return sum(read + written for _, read, written in traffic(f).values())


def same_bits_in_any_order(f):
    """The results of ``f``, a list of tensors, which are the same in every order of threads and blocks."""
    runs = []
    for order in (0, 1, 2, 5) if SIMULATED else (0, 0):
        if SIMULATED:
            simulator("order", order)
        runs.append([settled(t).numpy(force=True).tobytes() for t in f()])
    if SIMULATED:
        simulator("order", 0)
    assert all(run == runs[0] for run in runs)


def close(got, want, dtype, factor=8):
    want = np.asarray(want)
    bound = factor * ampc.finfo(dtype).eps * max(1, abs(want).max(initial=0))
    assert abs(got.double().numpy(force=True) - want).max(initial=0) <= bound


def drawn(*shape, dtype=ampc.float32, layout=None):
    t = ampc.randn(*shape).to(dtype)
    return t if layout is None else t.contiguous(memory_format=layout)


def as_float64(*tensors):
    return [t.double().numpy(force=True) for t in tensors]
