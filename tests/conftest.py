import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
SIMULATOR = HERE.parent / "build" / "cuda_sim"


def build_simulator():
    """The stand-in driver, cuBLASLt and cuDNN of tests/cuda_sim, made where they are out of date."""
    subprocess.run(["make", "-s", "-C", str(HERE / "cuda_sim"), f"OUT={SIMULATOR}"], check=True)
    return SIMULATOR


def pytest_addoption(parser):
    parser.addoption("--device", default="cpu", choices=("cpu", "sim", "cuda"),
                     help="where tensors are made: the CPU, the simulated GPU of tests/cuda_sim, or a real one")


def pytest_configure(config):
    device = config.getoption("--device")
    if config.getoption("markexpr") == "gpu" and device == "cpu":
        device = "cuda"  # `pytest -m gpu`: everything that can run on the GPU does
    if device == "sim":
        os.environ["AMPC_CUDA_LIBS"] = str(build_simulator())
    config.on_gpu = device != "cpu"
    os.environ["AMPC_TEST_DEVICE"] = "cuda" if config.on_gpu else "cpu"


def pytest_collection_modifyitems(config, items):
    """On a GPU, what is about the CPU's own ways is left out."""
    if config.on_gpu:
        skip = pytest.mark.skip(reason="about the CPU")
        for item in items:
            item.add_marker(skip if item.get_closest_marker("cpu") else pytest.mark.gpu)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def on_gpu(request):
    return request.config.on_gpu


@pytest.fixture(autouse=True)
def seeded(request):
    """Every test starts from one random stream, with gradients on and autocast off, its tensors on the device of the run."""
    import ampc

    if request.config.on_gpu:
        ampc.set_default_device("cuda")
    ampc.manual_seed(0)
    yield
    assert ampc.is_grad_enabled() and not ampc.is_autocast_enabled(), "a test left its mode behind"
