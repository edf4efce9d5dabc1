"""Where this run's tensors are: the CPU, or (pytest --device) a simulated or real GPU."""

import ctypes
import os

import pytest

import ampc

DEVICE = os.environ.get("AMPC_TEST_DEVICE", "cpu")
ON_GPU = DEVICE == "cuda"
SIMULATED = ON_GPU and ampc._C._cuda_is_simulated()
FEWER = 10 if SIMULATED else 1  # times fewer repetitions, where each kernel is simulated
simulated = pytest.mark.skipif(not SIMULATED, reason="asks the simulator")


def settled(value=None):
    """``value``, once the GPU has done its work: that is when it tells of bad indices."""
    ampc.cuda.synchronize()
    return value


def simulator(what, value=0):
    """Sets something in the simulator of tests/cuda_sim, or asks it for a number."""
    control = ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcuda.so.1")).ampc_simulator
    control.restype, control.argtypes = ctypes.c_longlong, [ctypes.c_char_p, ctypes.c_longlong]
    return control(what.encode(), value)
