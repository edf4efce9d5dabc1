"""ampc.testing.assert_close, and the pytest plugin in processes of its own."""

import io
import math
import os
import subprocess
import sys
import unittest
from pathlib import Path

import numpy as np
import pytest
from where import DEVICE, ON_GPU

import ampc
from ampc.testing import TOLERANCES, assert_close, default_tolerances


def refusal(*args, **options):
    with pytest.raises(AssertionError) as error:
        assert_close(*args, **options)
    return str(error.value)


@pytest.mark.parametrize("name", list(TOLERANCES))
def test_tolerances_follow_the_dtype(name):
    dtype, (rtol, atol) = getattr(ampc, name), TOLERANCES[name]
    assert default_tolerances(ampc.ones(1, dtype=dtype)) == (rtol, atol)
    x = np.linspace(1.0, 2.0, 7)
    exact = ampc.tensor(x, dtype=ampc.float64)
    assert_close(exact * (1 + 0.9 * rtol), exact, rtol=rtol, atol=0.0)
    assert "7 of 7 values differ" in refusal(exact * (1 + 1.1 * rtol), exact, rtol=rtol, atol=0.0)
    low = ampc.tensor(x, dtype=dtype, device=DEVICE)
    assert_close(low, ampc.tensor(x, device=DEVICE), check_dtype=False)  # the least exact dtype's


def test_what_it_says():
    text = refusal(ampc.tensor([[1.0, 2.0], [3.0, 4.0]]), ampc.tensor([[1.0, 2.5], [3.0, 4.25]]))
    assert "2 of 4 values differ (50.0 %); ampc.float32" in text and "most: 2, expected 2.5, at [0, 1]: 0.5 apart" in text and "in relation: 2, expected 2.5" in text
    assert "the shapes differ: [2], expected [3]" in refusal(ampc.ones(2), ampc.ones(3))
    assert "the dtypes differ: ampc.float32, expected ampc.float64" in refusal(ampc.ones(2), ampc.ones(2).double())
    assert "the strides differ" in refusal(ampc.ones(2, 3).t(), ampc.ones(3, 2), check_stride=True)
    assert refusal(1, 2, msg="no") == "no" and refusal(1, 2, msg=lambda text: "so: " + text).startswith("so: 1 of 1")
    assert refusal({"a": [1.0, ampc.ones(2)]}, {"a": [1.0, ampc.zeros(2)]}).startswith("['a'][1]: 2 of 2")
    assert "are on one side only" in refusal({"a": 1}, {"b": 1}) and "1 items were expected to be 2" in refusal([1], [1, 2])


def test_infinities_nans_and_kinds():
    inf = ampc.tensor([math.inf, -math.inf, 0.0])
    assert_close(inf, inf.clone())
    assert "1 of 3" in refusal(inf, ampc.tensor([math.inf, math.inf, 0.0]))
    assert "1 of 3" in refusal(ampc.tensor([1e30, -math.inf, 0.0]), inf) and "not comparable" in refusal(ampc.tensor([math.nan]), ampc.tensor([1.0]))
    nan = ampc.tensor([math.nan, 1.0])
    assert_close(nan, nan.clone(), equal_nan=True)
    assert "1 of 2" in refusal(nan, nan.clone())
    assert_close(np.arange(3), ampc.arange(3))
    assert_close((1, 2.0, True), (1, 2.0, True))
    assert "1 of 1" in refusal(ampc.tensor(3), ampc.tensor(4))
    with pytest.raises(ValueError, match="come together"):
        assert_close(1, 1, rtol=0.1)
    with pytest.raises(TypeError, match=r"\[0\]: expected a Tensor.* got set"):
        assert_close([{1}], [{1}])


FAILING = """
import ampc
from ampc.testing import assert_close

def test_values():
    assert_close(ampc.ones(2), ampc.zeros(2))  # here

def test_kinds():
    assert_close({1}, [1.0])  # here

def test_tolerances():
    assert_close(1.0, 1.0, rtol=0.1)  # here

def test_within():
    assert_close(ampc.ones(2), ampc.ones(2), atol=0, rtol=0)
    assert_close([1.0, {2}], [1.0, {2}])  # here

def test_a_message(amp_dtype):
    assert_close(1, 2, msg=lambda text: "so: " + text)  # here
"""


@pytest.mark.skipif(ON_GPU, reason="the process is on the CPU")
def test_a_failure_shows_the_tests_own_line(tmp_path):
    """pytest ends each report in the test that failed: no line of ampc's is shown."""
    (tmp_path / "test_it.py").write_text(FAILING)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(ampc.__file__).parent.parent), str(Path(__file__).resolve().parent.parent)])}
    for style in "auto", "short":
        command = [sys.executable, "-m", "pytest", "-q", "--tb", style, "-p", "pytest_ampc", "-p", "no:cacheprovider", "--ampc-doctor", "test_it.py"]
        out = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env).stdout
        assert "6 failed" in out and out.count("# here") == 6, out
        assert "testing.py" not in out and "pytest_ampc.py" not in out, out


def test_unittest_shows_the_tests_own_line():
    class Case(unittest.TestCase):
        def test_it(self):
            assert_close({"a": [1.0]}, {"a": [2.0]})  # here

    out = io.StringIO()
    unittest.TextTestRunner(stream=out).run(Case("test_it"))
    assert "# here" in out.getvalue() and "['a'][0]: 1 of 1 values differ" in out.getvalue() and f"{os.sep}testing.py" not in out.getvalue()


SUITE = """
import math, random
import numpy as np, pytest
import ampc
from ampc import nn

def test_dtypes(amp_dtype, ampc_seed):
    with ampc.autocast("cpu", dtype=amp_dtype):
        y = ampc.ones(64, 64) @ ampc.ones(64, 64)
    assert y.dtype is amp_dtype and ampc_seed == int("SEED") and (ampc.rand(1).item(), np.random.rand(), random.random()) == ampc_wanted(ampc_seed)

def ampc_wanted(seed):
    ampc.manual_seed(seed), np.random.seed(seed), random.seed(seed)
    return ampc.rand(1).item(), np.random.rand(), random.random()

def test_nan():
    x = ampc.tensor([0.0, 1.0])
    (x / x).sum()

def test_misuse():
    p = nn.Linear(2, 2)
    opt, scaler = ampc.optim.SGD(p.parameters(), lr=0.1), ampc.amp.GradScaler("cpu")
    with ampc.autocast("cpu", dtype=ampc.float16):
        loss = p(ampc.ones(1, 2)).sum()
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(p.parameters(), 1.0)

def test_scale_overflow_is_harmless():
    p = nn.Linear(2, 2)
    opt, scaler = ampc.optim.SGD(p.parameters(), lr=0.1), ampc.amp.GradScaler("cpu", init_scale=2.0**30)
    with ampc.autocast("cpu", dtype=ampc.float16):
        loss = p(ampc.ones(1, 2)).sum()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()

@pytest.mark.ampc_undoctored
def test_left_alone():
    ampc.zeros(2).log().sum().sqrt()
"""


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
def test_the_plugin(tmp_path):
    (tmp_path / "test_it.py").write_text(SUITE.replace("SEED", "7"))
    roots = [str(Path(ampc.__file__).parent.parent), str(Path(__file__).resolve().parent.parent)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(roots), "AMPC_GUARD": "warn"}

    def run(*args):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_ampc", "-p", "no:cacheprovider", "-W", "ignore", "--ampc-seed", "7", *args, "test_it.py"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
        return done.returncode, done.stdout
    status, out = run()
    assert status == 0 and "6 passed" in out
    status, out = run("--ampc-doctor", "--deselect", "test_it.py::test_dtypes")
    assert status == 1 and "2 failed, 2 passed" in out, out
    assert "test_it.py:18: div returned nan" in out and "test_it.py:26: [clip-scaled-gradients]" in out and "scaler.unscale_(optimizer)" in out
    done = subprocess.run([sys.executable, "-c", "import sys, pytest_ampc; sys.exit('ampc' in sys.modules)"], env=env)
    assert done.returncode == 0  # pytest elsewhere does not load ampc


def test_none_is_close_to_none_alone():
    assert_close(None, None)
    assert_close({"a": [None, 1.0]}, {"a": [None, 1.0]})
    assert "['a']: None, expected 0" in refusal({"a": None}, {"a": 0})
    assert "expected None" in refusal(ampc.ones(1), None)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_values_drawn_stay_below_their_limit(dtype):
    drawn = ampc.testing.make_tensor(20000, dtype=getattr(ampc, dtype), device="cpu", low=0, high=2)
    assert drawn.min() >= 0 and 1.9 < drawn.max() < 2


def test_values_between_equal_limits(torch):
    for lib in (ampc, torch):
        with pytest.warns(FutureWarning):
            assert lib.testing.make_tensor(2, dtype=lib.float32, device="cpu", low=2, high=2).tolist() == [2.0, 2.0]
        with pytest.raises(ValueError):
            lib.testing.make_tensor(2, dtype=lib.int32, device="cpu", low=2, high=2)
