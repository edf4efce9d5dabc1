"""A loss that is inf or nan is said once where no GradScaler skips the step."""

import warnings

import pytest
from where import ON_GPU

import ampc
from ampc import doctor
from ampc.amp import GradScaler
from ampc.doctor import guard


@pytest.fixture(autouse=True)
def fresh():
    doctor.reports(clear=True)
    guard._State.scaled = None
    yield
    doctor.reports(clear=True)


def of_loss(value):
    """A loss of a weight, of this value."""
    return (ampc.ones(1, requires_grad=True) * value).sum()


@pytest.mark.skipif(ON_GPU, reason="a loss on a GPU is not read")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_not_finite_is_said_once(value):
    with pytest.warns(doctor.MisuseWarning, match=rf"\[loss-not-finite\] the loss is {value:g}, .*\n.*ampc run --doctor"):
        of_loss(value).backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        of_loss(value).backward()
    assert [r.rule for r in doctor.reports()] == ["loss-not-finite"]
    with doctor.errors(), pytest.raises(doctor.MisuseError, match="loss-not-finite"):
        of_loss(value).backward()


def test_losses_that_say_nothing_of_divergence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        of_loss(3e38).backward()
        w = ampc.full((2,), float("inf"), requires_grad=True)
        (w * 1).backward(ampc.ones(2))  # no loss: the script gave the gradient
        scaler = GradScaler("cuda" if ON_GPU else "cpu")
        scaler.scale(of_loss(float("nan"))).backward()  # the scaler skips this step
    assert not doctor.reports()


def test_the_doctor_says_it_alone():
    w = ampc.full((1,), 3e38, requires_grad=True)
    with pytest.warns(doctor.DoctorWarning, match="mul returned inf"), ampc.doctor():
        (w * 10).sum().backward()
    assert not doctor.reports()
