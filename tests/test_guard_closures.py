"""What the misuse guard says of gradients that a step's closure makes anew, and of float16 ones beside a scaler."""

import gc
import warnings

import pytest
from where import DEVICE

import ampc
from ampc import doctor, nn


@pytest.fixture(autouse=True)
def fresh():
    gc.collect()  # scalers of other tests
    doctor.guard.reports(clear=True)
    doctor.guard._State.scaled = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    doctor.guard.reports(clear=True)


class Training:
    """A layer that is trained with closures or without."""

    def __init__(self, optimizer=ampc.optim.SGD):
        self.layer = nn.Linear(8, 2).to(DEVICE)
        self.optimizer = optimizer(self.layer.parameters(), lr=0.1)
        self.x = ampc.ones(4, 8, device=DEVICE)

    def loss(self, half=True):
        with ampc.autocast(DEVICE, dtype=ampc.float16, enabled=half):
            return self.layer(self.x).float().square().mean()

    def closure(self, half=True, scale=lambda loss: loss):
        def call():
            self.optimizer.zero_grad()
            loss = self.loss(half)
            scale(loss).backward()
            return loss
        return call


def rules():
    return [r.rule for r in doctor.reports() if r.rule not in ("autocast-without-effect", "scaler-without-fp16")]


@pytest.mark.parametrize("kind", [ampc.optim.SGD, ampc.optim.LBFGS])
def test_what_is_left_over_before_a_closure_is_not_judged(kind):
    training = Training(kind)
    training.loss().backward()
    training.optimizer.step(training.closure(half=False))
    assert rules() == []


def test_scaled_gradients_left_over_before_a_closure_are_not_judged():
    training, scaler = Training(), ampc.amp.GradScaler(DEVICE)
    scaler.scale(training.loss()).backward()
    training.optimizer.step(training.closure(half=False))
    assert rules() == []


def test_a_scalers_closure_is_not_judged_by_what_is_left_over():
    training, scaler = Training(), ampc.amp.GradScaler(DEVICE)
    training.loss().backward()
    scaler.step(training.optimizer, training.closure(scale=scaler.scale))
    scaler.update()
    assert rules() == []


@pytest.mark.parametrize("kind", [ampc.optim.SGD, ampc.optim.LBFGS])
def test_what_a_closure_makes_in_float16_is_judged(kind):
    """At the first step already."""
    training = Training(kind)
    training.optimizer.step(training.closure())
    assert rules() == ["fp16-without-scaler"] and "make scaler = torch.amp.GradScaler" in doctor.reports()[-1].fix


def test_scaled_gradients_that_a_closure_makes_are_judged():
    training, scaler = Training(), ampc.amp.GradScaler(DEVICE)
    training.optimizer.step(training.closure(scale=scaler.scale))
    assert rules() == ["step-on-scaled-gradients"]


def test_a_closure_that_fails_is_not_judged():
    training = Training()

    def fails():
        training.loss().backward()
        raise KeyError("batch")
    with pytest.raises(KeyError, match="batch"):
        training.optimizer.step(fails)
    assert rules() == []
    training.optimizer.step()
    assert rules() == ["fp16-without-scaler"]


def test_a_script_that_has_a_scaler_is_not_told_to_make_one():
    training, head, scaler = Training(), Training(), ampc.amp.GradScaler(DEVICE)
    head.loss().backward()  # left over
    scaler.scale(training.loss()).backward()
    scaler.step(training.optimizer)
    scaler.update()
    head.optimizer.step()
    assert rules() == ["fp16-without-scaler"]
    fix = doctor.reports()[-1].fix
    assert "the scaler has not multiplied the loss" in fix and "zero_grad()" in fix and "make scaler" not in fix
