"""The doctor tells an inf or nan that reaches a result, and none that the script itself repairs; and what it advises."""

import math
import warnings

import pytest

import ampc as torch
from ampc import doctor
from ampc.doctor.nonfinite import DoctorError, DoctorWarning

F = torch.nn.functional


def leaf(*values):
    return torch.tensor(values, requires_grad=True)


def watched(f, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with doctor(**kwargs) as d:
            f(*args)
    return d


REPAIRED = {
    "where": lambda x: torch.where(x > 0, x * x.log(), 0.0), "nan_to_num": lambda x: torch.nan_to_num(x / x), "selection": lambda x: (lambda y: y[y.isfinite()])(x / x),
    "masked_fill": lambda x: (x / x).masked_fill(x == 0, 0.0), "a limit": lambda x: torch.atan(1 / x), "exp": lambda x: torch.exp(x.log()),
    "comparison": lambda x: (1 / x > 0.5).float(), "clamp": lambda x: x.log().clamp(min=-10), "a row of -inf": lambda x: torch.softmax(x.log().expand(1, -1).masked_fill(x < 0, -math.inf), -1),
    "a logistic": lambda x: 1 / (1 + torch.exp(x * 200)), "softmax of a masked row": lambda x: torch.softmax(torch.full((2, 2), -math.inf) + 0 * x.sum(), -1).nan_to_num(),
    "a view": lambda x: x.log()[1:].sum(),
}


def assigned(x, all_at_once):
    root = x.pow(-0.5)
    if all_at_once:
        root[root.isinf()] = 0.0
    else:
        root[0] = 0.0
    return root


@pytest.mark.parametrize("name", REPAIRED)
def test_what_a_script_repairs_is_no_finding(name):
    x = torch.tensor([0.0, 0.5, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", DoctorWarning)
        with doctor(stop=True) as d:
            kept = REPAIRED[name](x)
    assert kept.isfinite().all() and d.findings == []


@pytest.mark.parametrize("all_at_once", [True, False])
def test_what_a_script_overwrites_is_no_finding(all_at_once):
    assert watched(lambda: assigned(torch.tensor([0.0, 1.0, 4.0]), all_at_once)).findings == []


READS = {"item": lambda t: t[0].item(), "tolist": lambda t: t.tolist(), "float": lambda t: float(t[0]), "bool": lambda t: bool(t[0]), "text": repr, "format": lambda t: f"{t[0]:.3f}",
         "notebook": lambda t: t._repr_html_(), "asked in torch": lambda t: bool(torch.isfinite(t).all()), "asked in Python": lambda t: math.isfinite(t[0].item())}


@pytest.mark.parametrize("size", [3, 3000])
@pytest.mark.parametrize("read", READS)
def test_reading_tells_nothing_and_hides_nothing(read, size):
    """Whether a script checks the number that it reads is not known, so what becomes of the tensor decides."""
    def run(repair):
        t = torch.full((size,), 200.0).exp()
        READS[read](t)
        t = repair(t)
        t += 1
    assert watched(run, torch.nan_to_num).findings == []
    assert [f.op for f in watched(run, lambda t: t * 2).findings] == ["exp"]


NOT_REPAIRED = {
    "dropped": (lambda x: x.log(), "log"), "asked about": (lambda x: x.log().isfinite().all(), "log"), "nan compared": (lambda x: (x / x) > 0.5, "div"),
    "beside a repair": (lambda x: (x.log().exp(), x.log().sum()), "log"), "too large, then inverted": (lambda x: 1 / (x.half() * 300).square().sum(), "square"),
    "gradient of the exponential": (lambda x: torch.where(x < 0.5, (x * 200).exp(), 0.0).sum().backward(), "exp"),
    "gradient of the root": (lambda x: torch.where(x > 0, x.sqrt(), 0.0).sum().backward(), "div"), "loss": (lambda x: x.log().sum().backward(), "log"),
}


@pytest.mark.parametrize("name", NOT_REPAIRED)
def test_what_reaches_something_is_found(name):
    run, op = NOT_REPAIRED[name]
    found = watched(lambda: run(leaf(0.0, 0.5, 1.0))).findings
    assert [f.op for f in found][:1] == [op], found
    with pytest.raises(DoctorError):
        watched(lambda: run(leaf(0.0, 0.5, 1.0)), stop=True)


def test_stop_raises_at_the_losss_backward():
    x, reached = leaf(0.0, 1.0), []
    with pytest.raises(DoctorError, match="log returned inf"), doctor(stop=True):
        loss = x.log().sum()
        reached.append("forward")
        loss.backward()
        reached.append("backward")
    assert reached == ["forward"]


def test_a_gradient_that_a_later_formula_masks_is_no_finding():
    def run():
        x = torch.relu(leaf(-1.0, 4.0))
        torch.where(x > 0, x.sqrt(), 0.0).sum().backward()
    assert watched(run).findings == []


ADVICE = {
    "acos": (lambda: torch.acos(torch.tensor([1.0000001])), "clamp(-1 + eps, 1 - eps)"), "atanh": (lambda: torch.atanh(torch.ones(2)), "clamp(-1 + eps, 1 - eps)"),
    "negative power": (lambda: torch.tensor([0.0, 9.0]).pow(-0.5), "negative power of 0"), "std": (lambda: torch.ones(1).std(), "at least two values"),
    "mean": (lambda: torch.ones(0).mean(), "at least one value"), "labels": (lambda: F.cross_entropy(torch.ones(2, 3), torch.full((2,), -100)), "at least one label"),
    "quotient": (lambda: torch.tensor([400.0]).half() / 0.002, "divide in float32"), "share": (lambda: (torch.tensor([0.0, 2.0]) / 2).log(), "epsilon"),
    "mask": (lambda: torch.ones(2).half() * -1e9, "finfo"), "integers": (lambda: torch.tensor([1, 70000]).half(), "can hold"),
    "ctc": (lambda: F.ctc_loss(torch.randn(3, 1, 4).log_softmax(-1), torch.tensor([[1, 2, 1, 2]]), torch.tensor([3]), torch.tensor([4])), "zero_infinity"),
}


@pytest.mark.parametrize("name", ADVICE)
def test_what_is_advised_at_the_borders_of_a_function(name):
    run, words = ADVICE[name]
    (found,) = watched(run).findings
    assert words in found.advice, found
