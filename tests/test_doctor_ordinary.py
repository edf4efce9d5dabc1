"""Calls that are of no interest to the doctor: the core enters them without Python, and what it enters is right."""

import sys
import warnings

import pytest
from where import DEVICE, ON_GPU

import ampc as torch
from ampc.doctor import nonfinite
from ampc.doctor.nonfinite import Doctor

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SIZES = [1, 15, 33, 1000, 200_000]  # parts of a vector, whole ones, and what threads share


def seen_by_python(run):
    """The operators that Python saw while ``run`` ran."""
    seen = []

    def profile(frame, event, arg):
        if event == "call" and frame.f_code is Doctor._saw.__code__:
            seen.append(frame.f_locals["op"])
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return seen


def step_of_training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(inplace=True), torch.nn.Linear(8, 8)).to(DEVICE)
    optimizer, scaler, x = torch.optim.SGD(model.parameters(), lr=1e-3), torch.amp.GradScaler(DEVICE, init_scale=1024.0), torch.randn(4, 8, device=DEVICE)

    def step():
        optimizer.zero_grad()
        with torch.autocast(DEVICE, dtype=torch.float16):
            loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return step


@pytest.mark.skipif(ON_GPU, reason="the core looks at results on the CPU only")
def test_python_sees_no_call_of_an_ordinary_step():
    step = step_of_training()
    with Doctor() as d:
        seen_by_python(step)  # it meets the files
        assert seen_by_python(step) == []
        assert seen_by_python(lambda: torch.exp(torch.full((2,), 1000.0))) == ["exp"]
    assert [f.op for f in d.findings] == ["exp"]


def test_what_an_ordinary_step_tells():
    step = step_of_training()
    with Doctor() as d:
        for _ in range(3):
            step()
    assert not d.findings and {(op, dtype) for op, _, dtype in d.margins} == {("linear", "float16"), ("square", "float16")}


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_margins_are_the_largest_magnitudes(dtype, n):
    results = []
    with Doctor() as d:
        for size in (1, -3, 2):
            x = torch.randn(n, device=DEVICE).to(dtype).clamp(-3, 3) * size
            results.append(x.sinh())
    (((op, _, name), largest),) = d.margins.items()
    wanted = max(y.abs().max().item() for y in results)
    assert (op, name) == ("sinh", str(dtype).split(".")[-1]) and largest == pytest.approx(wanted, rel=1e-7 if ON_GPU else 0)  # a GPU's is float32


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("what", ["inf", "nan"])
def test_one_bad_value_anywhere_is_found(what, dtype, n):
    for place in {0, n // 2, n - 1}:
        x, y = torch.ones(n, device=DEVICE, dtype=dtype), torch.ones(n, device=DEVICE, dtype=dtype)
        with warnings.catch_warnings(), Doctor() as d:
            warnings.simplefilter("ignore")
            torch.div(x, y)  # the file is known from here on
            x[place], y[place] = float(what == "inf"), 0.0
            torch.div(x, y)
        (found,) = d.findings
        assert (found.op, found.what, found.count, found.index) == ("div", what, 1, (place,))


def test_a_result_that_is_not_contiguous_is_judged():
    x = torch.zeros(3, 5, device=DEVICE).t()
    with warnings.catch_warnings(), Doctor() as d:
        warnings.simplefilter("ignore")
        torch.exp(x)
        x[4, 2] = 1000.0
        torch.exp(x)
    (found,) = d.findings
    assert (found.op, found.index) == ("exp", (4, 2))


def test_what_is_known_of_old_results_is_bounded(monkeypatch):
    monkeypatch.setattr(nonfinite, "KNOWN", 20)
    x = torch.ones(3, device=DEVICE)
    with Doctor() as d:
        kept = []
        for _ in range(100):
            kept.append(x * 2)
            assert len(d._made) <= 21
        (x / 0).log()
    assert [f.op for f in d.findings] == ["div"]
