"""Gradients whose steps their dtype cannot hold: they are rounded once, at the end, or bounded."""

import numpy as np
import pytest
from references import R

import ampc


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["var", "std"])
def test_the_slope_of_a_variance_of_many_values(name, dtype):
    """Neither does 1 / n of a small difference lose its digits, nor is the gradient over a small std too large."""
    values = ampc.tensor(R.standard_normal(50_000) * 0.01, dtype=getattr(ampc, dtype))
    x, exact = values.clone().requires_grad_(), values.double().requires_grad_()
    for each in (x, exact):
        getattr(each, name)().backward(ampc.tensor(2000.0, dtype=each.dtype))
    step = 2.0**-8 if dtype == "bfloat16" else 2.0**-11
    np.testing.assert_allclose(x.grad.double().cpu().numpy(), exact.grad.cpu().numpy(), rtol=3 * step, atol=2.0**-24)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("p", [0.5, -1, 3, 5])
def test_the_slope_of_a_norm_of_any_power(p, dtype):
    """Not each small ratio, nor its power: they are 0 or infinite in 16 bits."""
    values = ampc.tensor(R.uniform(0.1, 10, (4, 100)), dtype=getattr(ampc, dtype))
    values[:, 0] = 1e-3
    x, exact = values.clone().requires_grad_(), values.double().requires_grad_()
    for each in (x, exact):
        ampc.linalg.vector_norm(each, p, dim=1).backward(each.new_full((4,), 2**-10))
    rounded = abs(p - 1) * 2.0**-8 if dtype == "bfloat16" else abs(p - 1) * 2.0**-11  # of the norm, to the power p - 1
    np.testing.assert_allclose(x.grad.double().cpu().numpy(), exact.grad.cpu().numpy(), rtol=rounded + 2.0**-8, atol=2.0**-24)


def test_the_slope_of_hypot_is_at_most_its_gradient():
    """Over a large result, a gradient is too small for 16 bits; over a small one, too large."""
    x = ampc.tensor([3e4, 3e-4], dtype=ampc.float16, requires_grad=True)
    y = ampc.tensor([4e4, 4e-4], dtype=ampc.float16)
    ampc.hypot(x, y).backward(ampc.tensor([0.01, 1e3], dtype=ampc.float16))
    np.testing.assert_allclose(x.grad.double().cpu().numpy(), [0.006, 600], rtol=2.0**-9)


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.bfloat16], ids=str)
def test_binary_cross_entropy_of_tiny_probabilities_has_a_bounded_slope(dtype):
    """The slope of log ends at 1e12, as in torch: times a loss scale, that of 1e-38 would be infinite, and so would a sigmoid's gradient."""
    p = ampc.tensor([1e-3, 1e-11, 1e-13, 1e-38], dtype=dtype, requires_grad=True)
    ampc.nn.functional.binary_cross_entropy(p, ampc.ones(4, dtype=dtype), reduction="none").backward(ampc.full((4,), 65536.0, dtype=dtype))
    np.testing.assert_allclose(p.grad.double().cpu().numpy(), -65536 / np.maximum(p.detach().double().cpu().numpy(), 1e-12), rtol=2**-7)


def gradients(f, gradient, *values, dtype):
    """In float16, and of the same numbers exactly."""
    operands = [ampc.tensor(v, dtype=ampc.float16).to(dtype).requires_grad_() for v in values]
    f(*operands).backward(ampc.tensor(gradient, dtype=dtype))
    return [x.grad.item() for x in operands]


@pytest.mark.parametrize("f, gradient, values", [
    (ampc.div, 400.0, (0.003, 0.005)), (ampc.rsqrt, 1.5, (40.0**-2,)), (ampc.atan2, 1100.0, (1.5e-3, 0.0157)), (ampc.xlogy, 1e-3, (4e3, 0.01)),
    (lambda x, y, z: ampc.addcdiv(x, y, z, value=100), 1000.0, (1.0, 2.0, 200.0))], ids=["div", "rsqrt", "atan2", "xlogy", "addcdiv"])
def test_no_step_of_a_slope_is_infinite_where_the_slope_is_not(f, gradient, values):
    """Quotients by small numbers, and what a loss scale has made large, meet numbers that make them small again."""
    exact = gradients(f, gradient, *values, dtype=ampc.float64)
    for mine, right in zip(gradients(f, gradient, *values, dtype=ampc.float16), exact):
        assert abs(mine - right) <= 2**-8 * abs(right) or abs(right) > 65504
