"""The launches of every kernel, and the bytes that it reads and writes, as the GPU of tests/cuda_ptx counts them: in sectors of 32 bytes, each
once for a block between two of its barriers, as if caches held nothing longer."""

import ctypes
import os
from typing import Callable, Dict, Tuple

from where import settled, simulator

Traffic = Dict[str, Tuple[int, int, int]]  # by kernel: launches, bytes read, bytes written


def so_far() -> Traffic:
    kernel = ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcuda.so.1")).sim_kernel
    kernel.restype, numbers, found = ctypes.c_char_p, (ctypes.c_longlong * 3)(), {}
    while (name := kernel(len(found), numbers)) is not None:
        found[name.decode()] = tuple(numbers)
    return found


def traffic(f: Callable[[], object]) -> Traffic:
    """That of a second call of ``f``: the first may make copies that later ones keep."""
    settled(f())
    before = so_far()
    simulator("count_traffic", 1)
    try:
        settled(f())
    finally:
        simulator("count_traffic", 0)
    found = {name: tuple(now - then for now, then in zip(numbers, before.get(name, (0, 0, 0)))) for name, numbers in so_far().items()}
    return {name: numbers for name, numbers in found.items() if numbers[0]}
