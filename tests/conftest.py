import gc
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's references are small: a second thread only waits, on a core that another worker needs

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
SIMULATORS = {"sim": "cuda_sim", "ptx": "cuda_ptx"}  # of `--device`: the folders that make them


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background job; tests send it to processes of theirs
    signal.signal(signal.SIGINT, signal.default_int_handler)


def build_simulator(device="sim"):
    """The folder of a stand-in driver, cuBLASLt and cuDNN, made where they are out of date."""
    folder = HERE.parent / "build" / SIMULATORS[device]
    subprocess.run(["make", "-s", f"-j{os.cpu_count()}", "-C", str(HERE / SIMULATORS[device]), f"OUT={folder}", f"PYTHON={sys.executable}"], check=True)
    return folder


def pytest_addoption(parser):
    parser.addoption("--device", default="cpu", choices=("cpu", *SIMULATORS, "cuda"),
                     help="where tensors are made: the CPU, the simulated GPU of tests/cuda_sim, the one of tests/cuda_ptx, or a real one")
    parser.addoption("--share", type=int, default=1, metavar="N", help="one in N of the tests, drawn by the run's seed")
    parser.addoption("--cases", type=int, default=1, metavar="N", help="all tests, with one in N of the cases of each, drawn by the run's seed")


def pytest_configure(config):
    device = config.getoption("--device")
    if config.getoption("markexpr") == "gpu" and device == "cpu":
        device = "cuda"  # `pytest -m gpu`: everything that can run on the GPU does
    if device in SIMULATORS:
        os.environ["AMPC_CUDA_LIBS"] = str(build_simulator(device))
    config.on_gpu = device != "cpu"
    if device == "cuda":
        import ampc

        if not ampc.cuda.is_available():
            raise pytest.UsageError("these tests need a GPU, and none can be used: `ampc info` says what is missing; `--device sim` runs them on "
                                    "a simulated one")
    os.environ["AMPC_TEST_DEVICE"] = "cuda" if config.on_gpu else "cpu"
    import references  # noqa: F401  draws the run's seed before other processes start


def pytest_report_header():
    import references

    return f"shapes and layers are drawn by seed: AMPC_TEST_SEED={references.DRAWN} repeats them"


def draw(config, items):
    """Leaves what --share and --cases say; each process of a run draws the same."""
    import references

    numbers = random.Random(references.DRAWN)
    tests = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    cases = config.getoption("--cases")
    drawn = {item for test in tests.values() for item in numbers.sample(test, -(-len(test) // cases))}
    stays = [item in drawn and numbers.random() * config.getoption("--share") < 1 for item in items]
    config.hook.pytest_deselected(items=[item for item, stay in zip(items, stays) if not stay])
    items[:] = [item for item, stay in zip(items, stays) if stay]


def pytest_collection_modifyitems(config, items):
    """On a GPU, what is about the CPU's own ways is left out; beside an older torch, what is about a newer one."""
    import older_torch

    draw(config, items)
    old, names = pytest.mark.skip(reason="about a newer torch than this machine's"), older_torch.left_out()
    for item in items:
        if item.nodeid.rpartition("/")[2].startswith(names):
            item.add_marker(old)
    if config.on_gpu:
        skip = pytest.mark.skip(reason="about the CPU")
        for item in items:
            item.add_marker(skip if item.get_closest_marker("cpu") else pytest.mark.gpu)


def pytest_collection_finish():
    """What exists now lives until the run ends. A collection of garbage that looks at it takes a second, and some tests ask for hundreds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def drawn_names(request):
    """The programs that this run's cases of a test of this module name, those of these parameters alone; so what was not drawn is not run."""

    def get(test, **parameters):
        cases = [item.callspec.params for item in request.session.items if item.module is request.module and item.originalname == test]
        return " ".join(case["name"] for case in cases if case.items() >= parameters.items())

    return get


@pytest.fixture
def torch():
    found = pytest.importorskip("torch")
    found.distributions.Distribution.set_default_validate_args(True)  # which torch.compile of another test turns off
    return found


@pytest.fixture
def float64(torch):
    """The same numbers in every run, of torch, too, so exact that layers agree to many digits."""
    import ampc

    before = torch.get_default_dtype(), ampc.get_default_dtype()
    torch.manual_seed(0), ampc.manual_seed(0)
    torch.set_default_dtype(torch.float64), ampc.set_default_dtype(ampc.float64)
    yield
    torch.set_default_dtype(before[0]), ampc.set_default_dtype(before[1])


@pytest.fixture
def on_gpu(request):
    return request.config.on_gpu


@pytest.fixture(autouse=True)
def seeded(request):
    """Every test starts from the same random numbers, with gradients on and autocast off, its tensors on the device of the run."""
    import references

    import ampc

    if request.config.on_gpu:
        ampc.set_default_device("cuda")
        ampc.backends.cuda.matmul.allow_tf32 = ampc.backends.cudnn.allow_tf32 = False  # a TrainingOptimizer may have allowed it
    ampc.manual_seed(0)
    references.R.restart(request.node.name)
    yield
    modes = ampc.is_grad_enabled(), ampc.is_autocast_enabled(), ampc.get_deterministic_debug_mode()
    assert modes == (True, False, 0), "a test left its mode behind"


@pytest.fixture
def world(request):
    """A model, batches of data, a loss and an optimizer: what pieces of documentation take for granted."""
    from types import SimpleNamespace

    from ampc import nn, optim, randint, randn

    where = "cuda" if request.config.on_gpu else "cpu"
    model = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10)).to(where)
    batches = [(randn(16, 24, device=where), randint(0, 10, (16,), device=where)) for _ in range(6)]
    return SimpleNamespace(model=model, batches=batches, criterion=nn.CrossEntropyLoss(), optimizer=optim.Adam(model.parameters(), lr=1e-3))


@pytest.fixture
def switches_back():
    """Puts the switches of the process back that such pieces turn."""
    import ampc

    yield
    ampc.enable_autocast = False
    ampc.set_default_device("cpu")
    ampc.keras.mixed_precision.set_global_policy("float32")
