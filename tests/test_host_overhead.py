"""The host's share of a training step on a GPU, counted with a driver that does nothing (tests/cuda_null); and that the GPU's benchmark runs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = [pytest.mark.cpu, pytest.mark.skipif(not (shutil.which("g++") and shutil.which("make")), reason="needs g++ and make")]


def found(*options):
    """What benchmarks/host_overhead.py finds, in a process of its own: this one may use another driver."""
    command = [sys.executable, str(ROOT / "benchmarks" / "host_overhead.py"), "--json", "--steps", "200", "--rounds", "1", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.fixture(scope="module")
def step():
    return found()


def test_a_step_makes_few_calls(step):
    """Of the driver and cuBLASLt together: an MLP of three layers, float16, a scaler, SGD."""
    kinds = step["kinds"]
    assert step["calls"] <= 50, step["functions"]
    assert kinds["launches"] <= 23 and kinds["products"] == 8, step["kernels"]
    assert kinds["memory"] < 0.1 and kinds["copies"] <= 2 and kinds["events and streams"] < 0.1


def test_a_graphed_step_launches_nothing_itself():
    """Of seven copies, two bring the batch, one the loss, and four what the ledger keeps."""
    step = found("--graph")
    assert step["calls"] <= 18 and step["functions"]["cuGraphLaunch"] == 1 and step["kinds"]["products"] == 0, step["functions"]
    assert step["kinds"]["launches"] < 0.1 and step["kinds"]["copies"] == pytest.approx(7, abs=0.1)


def test_the_context_is_set_once_and_asked_for_once_a_call(step):
    assert step["functions"].get("cuCtxSetCurrent", 0) == 0 and 0 < step["functions"]["cuCtxGetCurrent"] <= 13
    assert sum(n for name, n in step["functions"].items() if name.startswith("cuCtx")) == step["functions"]["cuCtxGetCurrent"]


def test_everything_is_counted_once(step):
    assert sum(step["kinds"].values()) == pytest.approx(step["calls"]) == pytest.approx(sum(step["functions"].values()))
    assert sum(step["kernels"].values()) == pytest.approx(step["functions"]["cuLaunchKernel"])


def test_the_benchmark_of_gpus_runs(step):
    """With the same driver; its figures mean nothing."""
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--small", "64", "--rounds", "1"]
    env = {**os.environ, "AMPC_CUDA_LIBS": str(ROOT / "build" / "cuda_null")}
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    assert said.stdout.count("| at most ") == said.stderr.count(": done") > 10


def test_the_table_of_gpus_says_which_goals_are_missed():
    code = """
import json, gpu
rounds = {"launch": [{"ampc": 1e-6, "torch": 4e-6}], "recipe": [{"ampc": 2e-3, "torch": 1e-3}]}
print(gpu.table({"rounds": rounds, "copy_bytes_s": 1e12}))"""
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT / "benchmarks").stdout
    assert "| 2.000 | 2.000 to 2.000 | at most 1 - **missed** |" in said and "| 0.250 | 0.250 to 0.250 | at most 0.5 |" in said
