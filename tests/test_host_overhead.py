"""The host's share of a training step on a GPU, counted with a driver that does nothing (tests/cuda_null)."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = [pytest.mark.cpu, pytest.mark.skipif(not (shutil.which("g++") and shutil.which("make")), reason="needs g++ and make")]


@pytest.fixture(scope="module")
def step():
    """What benchmarks/host_overhead.py finds, in a process of its own: this one may use another driver."""
    command = [sys.executable, str(ROOT / "benchmarks" / "host_overhead.py"), "--json", "--steps", "200", "--rounds", "1"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_a_step_makes_few_calls(step):
    """Of the driver and cuBLASLt together: an MLP of three layers, float16, a scaler, SGD."""
    kinds = step["kinds"]
    assert step["calls"] <= 50, step["functions"]
    assert kinds["launches"] <= 23 and kinds["products"] == 8, step["kernels"]
    assert kinds["memory"] < 0.1 and kinds["copies"] <= 2 and kinds["events and streams"] < 0.1


def test_the_context_is_set_once_and_asked_for_once_a_call(step):
    assert step["functions"].get("cuCtxSetCurrent", 0) == 0 and 0 < step["functions"]["cuCtxGetCurrent"] <= 13
    assert sum(n for name, n in step["functions"].items() if name.startswith("cuCtx")) == step["functions"]["cuCtxGetCurrent"]


def test_everything_is_counted_once(step):
    assert sum(step["kinds"].values()) == pytest.approx(step["calls"]) == pytest.approx(sum(step["functions"].values()))
    assert sum(step["kernels"].values()) == pytest.approx(step["functions"]["cuLaunchKernel"])
