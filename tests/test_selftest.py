"""`ampc selftest`: that it finds what is wrong, says so, and is quiet where all is right."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ampc
from ampc import selftest as package
from ampc._process.installation import info
from ampc.cli import main
from ampc.nn import functional as F
from ampc.selftest import CASES, run_case, selftest
from ampc.selftest.bounded import UNITS, Bounded, nearest, softmax
from ampc.selftest.convolutions import convolution
from ampc.selftest.data import Draw
from ampc.selftest.drawing import draw_case
from ampc.selftest.products import linear, product
from ampc.selftest.running import FLOATS, Border, Case, judge

LINEAR = Case("linear", linear, ("product_b_as_it_goes",), {"rows": 20, "inputs": 70, "outputs": 18}, FLOATS)
CONVOLUTION = Case("convolution", convolution, ("direct_down",), {"channels": 16, "outs": 18, "size": (9, 12), "kernel": (3, 3), "padding": 1}, FLOATS)


@pytest.fixture
def few(monkeypatch):
    """A table of two cases, and one to draw."""
    monkeypatch.setattr(package, "CASES", [LINEAR, CONVOLUTION])
    monkeypatch.setattr(package, "draw_case", lambda seed, known, device: (replace(LINEAR, kernel="linear, drawn"), "float32"))


@pytest.fixture
def wrong_linear(monkeypatch):
    """A linear layer that loses the last term of one result."""
    right = F.linear

    def broken(x, w, b=None):
        y = right(x, w, b)
        lost = ampc.zeros_like(y)
        lost[-1, -1] = (x[-1, -1] * w[-1, -1]).item() or 1.0
        return y - lost

    monkeypatch.setattr(F, "linear", broken)


# -- the references ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS[1:])
def test_nearest_is_the_cores_rounding(dtype):
    x = np.random.default_rng(0).standard_normal(10000).astype(np.float32) * np.float32(2.0) ** np.arange(-50, 50).repeat(100)
    assert (nearest(x, dtype) == ampc.tensor(x, device="cpu").to(getattr(ampc, dtype)).double().numpy()).all()


@pytest.mark.parametrize("seed", range(5))
def test_bounds_hold_for_float32_and_are_near(seed):
    """The same formula in NumPy's float32 stays below them, and a thousandth part more of the result does not."""
    r = np.random.default_rng(seed)
    a, b, c = r.standard_normal((20, 30)), r.standard_normal((30, 40)), r.standard_normal(40)
    a, b, c = (x.astype(np.float32) for x in (a, b, c))

    def formula(a, b, c, exp, tanh, root):
        return tanh(a @ b + c) * exp(c) + root(c * c + 1)

    bounded = formula(*map(Bounded, (a, b, c)), Bounded.exp, Bounded.tanh, Bounded.sqrt)
    got = formula(a, b, c, np.exp, np.tanh, np.sqrt)
    assert 0 < bounded.distance(got.astype(np.float64)) <= 1 < bounded.distance(bounded.value * 1.001)
    weights = softmax(Bounded(a))
    assert weights.distance((np.exp(a) / np.exp(a).sum(-1, keepdims=True)).astype(np.float64)) <= 1


def test_infinities_and_shapes_are_looked_at():
    b = Bounded(np.array([np.inf, np.nan, 1.0]))
    assert b.distance(np.array([np.inf, np.nan, 1.0])) == 0
    for bad in ([-np.inf, np.nan, 1], [np.inf, 1, 1], [np.inf, np.nan, np.nan], [np.inf, np.nan], [1, np.nan, 1]):
        assert b.distance(np.array(bad, dtype=float)) == np.inf


# -- what is wrong is found ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("sizes", [{"m": 9, "k": 40, "n": 12}, {"m": 64, "k": 2000, "n": 48}], ids=["small", "deep"])
def test_a_lost_term_is_found(dtype, sizes):
    """Also one of thousands, where its part of the sum is more than a unit of the result."""
    draw = Draw(dtype, 3)
    trial = product(draw, **sizes)
    got = dict(trial.compute())
    assert judge(got, trial)[1] == ""
    values = got["result"].detach().double()
    at = tuple(int(i) for i in np.argwhere((values.abs() > 1).numpy())[0])
    values[at] = values[at] * (1 + 2 * UNITS[dtype])
    got["result"] = values
    units, wrong = judge(got, trial)
    assert units > 1 and wrong.startswith("result is")


@pytest.mark.cpu
def test_a_wrong_kernel_is_found(few, wrong_linear):
    report = selftest(draws=2)
    assert not report.ok and {r.kernel for r in report.wrong} == {"linear", "linear, drawn"} and {r.dtype for r in report.wrong} == set(FLOATS)
    assert all("result is" in r.wrong and r.units > 1 for r in report.wrong)


@pytest.mark.cpu
def test_the_defect_that_this_is_for_is_found(few, monkeypatch):
    """A weight's gradient of which one row of places is missing."""
    right = F.conv2d

    def broken(x, w, b=None, **options):
        kept = ampc.ones_like(x)
        kept[:, :, 1] = 0
        y = right(x, w.detach(), b, **options)
        lost = right(x.detach() * kept, w, **options)
        return y + lost - lost.detach()

    monkeypatch.setattr(F, "conv2d", broken)
    monkeypatch.setattr(package, "CASES", [replace(CONVOLUTION, dtypes=("float32",))])  # in which y + lost - lost is y, of whole numbers
    report = selftest(draws=0)
    assert {(r.kernel, r.wrong.split(" is ")[0]) for r in report.wrong} == {("convolution", "gradient of the weight")}


@pytest.mark.cpu
def test_an_error_is_wrong(few, monkeypatch):
    def broken(*args, **options):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(F, "linear", broken)
    report = selftest(draws=0)
    assert {r.wrong for r in report.wrong} == {"RuntimeError: no such kernel"} and len(report.results) == 6


@pytest.mark.cpu
def test_an_error_while_a_border_is_looked_for_is_wrong(monkeypatch):
    def broken(*args, **options):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(F, "linear", broken)
    (result,) = run_case(replace(LINEAR, sizes={**LINEAR.sizes, "rows": Border("product_b_as_it_goes", 16, 64, 16)}), "float32", 0)
    assert result.wrong == "RuntimeError: no such kernel" and not result.ok


@pytest.mark.cpu
def test_borders_have_two_sides():
    case = next(c for c in CASES if c.sizes.get("k") == Border("product_k_blocks", 16, 4096, 16))
    below, at, beyond = run_case(case, "float32", 0)
    assert beyond.sizes["k"] > at.sizes["k"] == below.sizes["k"] + 16
    assert "product_k_blocks" in at.ways and "product_k_blocks" in beyond.ways and "product_k_blocks" not in below.ways
    assert below.ok and at.ok and beyond.ok


@pytest.mark.cpu
def test_threads_stay_as_they_were():
    before = ampc.get_num_threads()
    run_case(next(c for c in CASES if c.threads > 1), "float32", 0)
    assert ampc.get_num_threads() == before


def test_seeds_repeat():
    drawn = [[(c.kernel, dict(c.sizes), dtype) for c, dtype in (draw_case(seed + i, {}, "cpu") for i in range(20))] for seed in (1, 1, 1000)]
    assert drawn[0] == drawn[1] != drawn[2]


# -- the command -----------------------------------------------------------------------------------------------------------


@pytest.mark.cpu
def test_command_right(few, capsys):
    assert main(["selftest"]) == 0
    said = capsys.readouterr().out
    assert "\nCPU features " in said and "direct_down" in said and "206 of 206 trials right" in said and "Every kernel is right" in said
    assert "WRONG" not in said and len(re.findall(r" ok$", said, re.M)) == 7


@pytest.mark.cpu
def test_command_wrong(few, wrong_linear, capsys, tmp_path):
    text, numbers = tmp_path / "report.txt", tmp_path / "report.json"
    assert main(["selftest", "--output", str(text), "--json", str(numbers)]) == 1
    said = capsys.readouterr().out
    assert "WRONG" in said and "result is" in said and "seed 0" in said and "Please report" in said and f"attach {text}" in said
    assert info() in text.read_text() and said.split("\n\n", 1)[1].split("Please")[0].strip() in text.read_text()
    assert re.match(r"\S+.*, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d .*\n\nampc .*, NumPy ", text.read_text()) and "\nCPU  " in text.read_text()
    found = json.loads(numbers.read_text())
    assert not found["ok"] and found["facts"]["isa"] and {r["kernel"] for r in found["results"] if not r["ok"]} == {"linear", "linear, drawn"}


@pytest.mark.cpu
def test_advice_names_what_sets_the_way(few, monkeypatch, capsys):
    monkeypatch.setattr(package, "CASES", [next(c for c in CASES if "product_threads" in c.ways), LINEAR])
    monkeypatch.setattr("ampc.selftest.running.judge", lambda got, trial: (7.0, "result is 7 times its bound away"))
    assert main(["selftest"]) == 1
    said = capsys.readouterr().out
    assert "OMP_NUM_THREADS=1 avoids product_threads" in said
    assert ("AMPC_CPU=baseline" in said) == (ampc._C._machine()["isa"] != "baseline") and "--output FILE" in said


@pytest.mark.cpu
def test_command_stopped(few, monkeypatch, capsys):
    calls = []

    def some(*args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return run_case(*args)

    monkeypatch.setattr(package, "run_case", some)
    assert main(["selftest"]) == 130
    said = capsys.readouterr().out
    assert "2 of 2 trials so far right" in said and "Not everything has run: stopped by hand" in said and "Every kernel" not in said


@pytest.mark.cpu
def test_a_report_of_a_part_is_not_ok(few, monkeypatch):
    def stops(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(package, "run_case", stops)
    assert not selftest().ok


@pytest.mark.cpu
@pytest.mark.parametrize("error", [MemoryError(), MemoryError("64 GiB"), ampc.OutOfMemoryError("64 GiB")], ids=lambda e: f"{type(e).__name__} {e}")
def test_a_lack_of_memory_says_nothing_of_kernels(few, monkeypatch, capsys, error):
    def large(*args, **options):
        raise error

    monkeypatch.setattr(F, "conv2d", large)
    assert main(["selftest"]) == 2
    said = capsys.readouterr().out
    assert "trials so far right" in said and "Not everything has run: memory ran out" in said and str(error) in said and "WRONG" not in said


@pytest.mark.cpu
def test_command_for_some_time(few, capsys):
    assert main(["selftest", "--seconds", "0.3", "--seed", "41"]) == 0
    assert "seed 41" in capsys.readouterr().out
    assert main(["selftest", "--seconds", "0.3"]) == 0
    first = re.search(r"seed (\d+)", capsys.readouterr().out).group(1)
    assert main(["selftest", "--seconds", "0.3"]) == 0
    assert re.search(r"seed (\d+)", capsys.readouterr().out).group(1) != first


@pytest.mark.cpu
def test_some_time_is_added(few):
    """More than the default's trials, at each number of seconds."""
    assert len(selftest(draws=5).results) < len(selftest(draws=5, seconds=0.2).results)


BAD = [({"device": "tpu"}, ValueError, "device must be 'cpu' or 'cuda', got 'tpu'"), ({"seconds": -1}, ValueError, "seconds must be 0 or more"),
       ({"seconds": float("nan")}, ValueError, "seconds must be"), ({"seconds": float("inf")}, ValueError, "finite"),
       ({"seed": -1}, ValueError, "seed must be 0 or more, got -1"), ({"seed": 1.5}, TypeError, "float"), ({"draws": -1}, ValueError, "draws must be 0"),
       ({"draws": "a"}, TypeError, "str")]


@pytest.mark.parametrize("arguments, error, says", BAD, ids=lambda x: str(x))
def test_wrong_arguments(arguments, error, says):
    with pytest.raises(error, match=says):
        selftest(**arguments)
    (name, value), = arguments.items()
    if name in ("seconds", "seed") and error is ValueError:
        assert main(["selftest", f"--{name}", str(value)]) == 2


@pytest.mark.cpu
def test_quiet(few, capsys):
    assert main(["selftest", "--quiet"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) < 10 and "Every kernel is right" in said.out and said.err == ""


@pytest.mark.cpu
def test_what_runs_is_told_where_nobody_watches(few, capsys):
    assert main(["selftest"]) == 0
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == ["selftest: linear", "selftest: convolution", "selftest: random sizes"]


@pytest.mark.cpu
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_command_that_is_terminated_reports():
    env = {**os.environ, "PYTHONPATH": str(Path(ampc.__file__).parent.parent)}
    command = [sys.executable, "-m", "ampc", "selftest", "--long"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    assert process.stderr.readline().startswith("selftest: ")
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "so far right" in said and "error/bound" in said


@pytest.mark.cpu
def test_command_cannot_run(few, capsys, tmp_path):
    assert main(["selftest", "--seconds", "-1"]) == 2 and "0 or more" in capsys.readouterr().err
    for option in ("--output", "--json"):
        assert main(["selftest", option, str(tmp_path / "no" / "folder")]) == 2
        said = capsys.readouterr()
        assert "folder" in said.err and said.out == ""  # before anything has run
    if not ampc.cuda.is_available():
        assert main(["selftest", "--device", "cuda"]) == 2 and "ampc info" in capsys.readouterr().err


def test_info_names_it():
    assert "ampc selftest" in info().splitlines()[-1]


def test_on_a_gpu(on_gpu, capsys):
    if not on_gpu:
        pytest.skip("on the GPU only")
    ampc.backends.cuda.matmul.allow_tf32 = True  # as a script may; the bounds are float32's
    try:
        report = selftest("cuda", draws=0)
        assert report.ok and len(report.results) > 70, str(report)
        assert ampc.backends.cuda.matmul.allow_tf32
    finally:
        ampc.backends.cuda.matmul.allow_tf32 = False
    assert "CPU features" not in str(report) and "ways" not in str(report).splitlines()[0]
