"""Diagnosis listens to events; what lies below knows nothing of it."""

import ast
import copy
import math
import pickle
from pathlib import Path

import pytest
from where import DEVICE, ON_GPU

import ampc
from ampc import _events
from ampc.amp import GradScaler
from ampc.amp._device_scale import DeviceScale
from ampc.amp._host_scale import HostScale
from ampc.amp._scale import Scale

HOME = Path(ampc.__file__).parent
BELOW = [*(HOME / "amp").glob("*.py"), *(HOME / "optim").glob("*.py"), *(HOME / "nn").rglob("*.py"), *(HOME / "_composed").glob("*.py"),
         *(HOME / f"{name}.py" for name in ("_events", "_messages/callers", "_tensor/methods", "linalg"))]
KIND = "cuda" if ON_GPU else "cpu"


class Notes(_events.Listener):
    """Writes down what it hears."""

    def __init__(self):
        self.heard = []

    def scaler_made(self, scaler):
        self.heard.append("made")

    def loss_scaled(self, scaler, outputs):
        self.heard.append("scaled")

    def unscaling(self, number, iteration, scale, optimizer):
        self.heard.append(("unscaling", iteration, scale))

    def step_decided(self, scaler, optimizer, scale, loss, found_inf, stats):
        self.heard.append(("decided", sum(f.item() for f in found_inf.values())))

    def step_begins(self, optimizer, closure):
        self.heard.append("begins")

    def clipping(self, params, what, limit):
        self.heard.append((what, limit))

    def backward_begins(self, loss):
        self.heard.append("backward")


@pytest.fixture
def notes():
    listener = Notes()
    _events.listen(listener)
    yield listener
    _events.forget(listener)


def made():
    p = ampc.nn.Parameter(ampc.tensor([1.0, 2.0], device=DEVICE))
    return p, ampc.optim.SGD([p], lr=0.5), GradScaler(KIND, init_scale=8.0)


def iterate(p, opt, scaler, factor):
    opt.zero_grad()
    scaler.scale(p.sum()).backward()
    if factor != 1.0:
        p.grad.fill_(factor)
    scaler.unscale_(opt)
    ampc.nn.utils.clip_grad_norm_([p], 100.0)
    scaler.step(opt)
    scaler.update()


@pytest.mark.parametrize("path", BELOW, ids=lambda p: str(p.relative_to(HOME)))
def test_nothing_below_imports_the_doctor(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert "doctor" not in (node.module or "") and "doctor" not in [a.name for a in node.names], f"line {node.lineno}"


def test_a_step_is_heard_in_order(notes):
    p, opt, scaler = made()
    iterate(p, opt, scaler, 1.0)
    known = 0.0 if ON_GPU else 8.0
    assert notes.heard == ["made", "scaled", "backward", ("unscaling", 0, known), ("clip_grad_norm_", 100.0), ("decided", 0.0), "begins"]
    notes.heard.clear()
    iterate(p, opt, scaler, math.inf)
    assert ("decided", 1.0) in notes.heard
    assert ON_GPU or "begins" not in notes.heard  # the GPU leaves a step out by itself, which has begun by then


def test_a_copy_is_a_scaler_of_its_own(notes):
    p, opt, scaler = made()
    iterate(p, opt, scaler, 1.0)
    notes.heard.clear()
    for again in (copy.deepcopy(scaler), pickle.loads(pickle.dumps(scaler))):
        assert len(again.ledger) == 0 and again.last_step is None and len(scaler.ledger) == 1
    assert notes.heard == ["made", "made"]


def test_listeners_hear_one_after_the_other():
    first, second = Notes(), Notes()
    for listener in (first, second):
        _events.listen(listener)
    made()
    _events.forget(first)
    made()
    _events.forget(second)
    made()
    assert (first.heard, second.heard) == (["made"], ["made", "made"])
    with pytest.raises(ValueError, match="was not added"):
        _events.forget(first)


def test_training_needs_no_listener():
    before = _events.announce._listeners
    try:
        _events.announce._connect([])
        p, opt, scaler = made()
        for factor, scale, want in ((1.0, 8.0, [0.5, 1.5]), (math.inf, 4.0, [0.5, 1.5])):
            iterate(p, opt, scaler, factor)
            assert (scaler.get_scale(), p.tolist(), scaler.last_step) == (scale, want, None)
    finally:
        _events.announce._connect(before)


def test_both_scales_have_the_interface():
    for name in (*Scale.__annotations__, *(n for n in vars(Scale) if not n.startswith("_"))):
        options = (8.0, 2.0, 0.5, 2000, 1.0, 64.0, 1)
        assert hasattr(HostScale(*options), name) and hasattr(DeviceScale(*options, ampc.device(DEVICE)), name), name


class Wrapper:
    """Passes every name on to an optimizer, as wrappers do, and steps in a way of its own."""

    def __init__(self, optimizer):
        self.optimizer, self.steps = optimizer, 0

    def step(self):
        self.steps += 1
        return self.optimizer.step()

    def __getattr__(self, name):
        return getattr(self.optimizer, name)


@pytest.mark.parametrize("factor", [1.0, math.inf])
def test_an_optimizer_that_wraps_another(factor):
    p, opt, scaler = made()
    wrapper = Wrapper(opt)
    scaler.scale((p * factor).sum()).backward()
    scaler.step(wrapper)
    scaler.update()
    applied = math.isfinite(factor)
    assert p.tolist() == ([0.5, 1.5] if applied else [1.0, 2.0]) and wrapper.steps == applied and scaler.last_step.skipped != applied
    assert (opt._n_applied, opt._n_skipped) == (applied, not applied)


def test_an_optimizer_of_ones_own():
    class Own:
        def __init__(self, p):
            self.param_groups = [{"params": [p]}]

        def step(self):
            self.param_groups[0]["params"][0].detach().sub_(1.0)

    p, _, scaler = made()
    own = Own(p)
    for factor, want in ((math.inf, [1.0, 2.0]), (1.0, [0.0, 1.0])):
        p.grad = None
        scaler.scale((p * factor).sum()).backward()
        scaler.step(own)
        scaler.update()
        assert p.tolist() == want and set(vars(own)) == {"param_groups"}
