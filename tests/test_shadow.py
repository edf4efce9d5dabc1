"""doctor.shadow: 16-bit operators run again in float32, and what that leaves alone."""

import math
import os

import numpy as np
import pytest
from where import ON_GPU

import ampc as torch
from ampc.doctor.fp32_shadow import Shadow

KIND = "cuda" if ON_GPU else "cpu"


def relative(made, exact):
    return np.linalg.norm(made - exact) / np.linalg.norm(exact)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_product_is_compared_with_float32s(dtype):
    torch.manual_seed(3)
    a, b = torch.randn(40, 50), torch.randn(50, 60)
    with Shadow() as shadow, torch.autocast(KIND, dtype=dtype):
        made = torch.mm(a, b)
    (found,) = shadow.operators
    exact = a.double().numpy(force=True) @ b.double().numpy(force=True)
    assert (found.op, os.path.basename(found.location[0]), found.dtype, found.backward_of, found.calls) == (
        "mm", "test_shadow.py", str(dtype).split(".")[-1], "", 1)
    assert found.error == pytest.approx(relative(made.double().numpy(force=True), exact), rel=1e-3) and found.error > 1e-4
    assert found.amax == made.abs().max().item()
    assert found.room == pytest.approx(math.log2((65504.0 if dtype is torch.float16 else 3.3895e38) / found.amax), rel=1e-3)


def test_operators_outside_regions_and_in_backward():
    x = (torch.rand(64, 64) + 0.5).half().requires_grad_()
    with Shadow() as shadow:
        (x.exp() * 3).sum().backward()
    found = {(e.op, e.backward_of): e for e in shadow.operators}
    assert {("exp", ""), ("mul", ""), ("sum", ""), ("mul", "exp"), ("mul", "mul")} <= set(found)
    assert all(e.error < 2.0**-10 for e in found.values())  # each rounds once


def test_what_overflows_in_16_bits_alone():
    x = torch.tensor([1.0, 12.0]).half()
    with Shadow() as shadow:
        x.exp()
        (torch.tensor([1.0, math.inf]).half() * 2)  # which float32 does, too
    first, second = shadow.operators
    assert {first.op, second.op} == {"exp", "mul"}
    exp, mul = (first, second) if first.op == "exp" else (second, first)
    assert exp.error == math.inf and exp.room == 0 and mul.error == 0


def test_it_changes_nothing():
    net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(0.5), torch.nn.LSTM(16, 8, dropout=0.3, num_layers=2))
    x = torch.randn(4, 3, 16)

    def once():
        torch.manual_seed(5)
        net.zero_grad()
        with torch.autocast(KIND, dtype=torch.float16):
            loss = net(x)[0].float().square().mean()
        loss.backward()
        return [loss.item(), *(p.grad.tolist() for p in net.parameters())], torch.rand(3).tolist()
    plain = once()
    with Shadow() as shadow:
        assert once() == plain
    assert all(e.error < 2**-10 for e in shadow.operators if e.op == "dropout")  # the same values are dropped again
    assert any(e.op == "dropout" for e in shadow.operators)
    with Shadow() as shadow:
        y = torch.ones(8).half()
        y.mul_(3)
        y.view(2, 4)
    assert y.tolist() == [3.0] * 8 and [e.op for e in shadow.operators] in ([], ["full"])


def test_calls_of_a_line_are_sampled():
    x = torch.rand(8).half()
    with Shadow() as shadow:
        for i in range(10):
            (x * 2.0**i).exp2()
    found = {e.op: e for e in shadow.operators}
    assert found["mul"].calls == 10 and found["mul"].amax == (x * 512).max().item()


def test_the_core_refuses_other_inputs():
    from ampc import _C

    assert _C._again(()) is None  # nothing is being shown
    x, shown = torch.ones(2), []

    def callback(op, inputs, outputs, low, onto, nanoseconds):
        for given in ((), (1,), [x]):
            with pytest.raises(TypeError, match="_again"):
                _C._again(given)
        shown.append((op, _C._again((torch.zeros(3),))[0].tolist()))
    _C._watch(callback)
    try:
        x.exp()
    finally:
        _C._watch(None)
    assert shown == [("exp", [1.0] * 3)]
