"""doctor.bisect: the smallest set of operators or modules to keep in float32."""

import math

import pytest
from where import ON_GPU

import ampc as torch
from ampc import doctor

KIND, LOW = ("cuda", torch.float16) if ON_GPU else ("cpu", torch.bfloat16)


def region():
    return torch.autocast(KIND, dtype=LOW)


def test_the_operator_that_matters_is_found():
    a, b, calls = torch.randn(2, 3, 3) * 0 + 1.001, torch.randn(4, 4), []

    def step():
        calls.append(1)
        with region():
            loud = torch.bmm(a, a).sum() - 54.0  # cancels: 16 bits lose all of it
            quiet = 1e-6 * (torch.nn.functional.linear(b, b).sum() + (b @ b).sum() + torch.nn.functional.gelu(b @ b).sum())
            return loud.float() + quiet.float()
    found = doctor.bisect(step, tolerance=0.01)
    assert found.names == ["bmm"] and found.reached and found.error <= 0.01 < found.error_before and found.runs == len(calls)
    assert {"bmm", "linear", "mm", "gelu"} <= set(found.candidates) and "bmm" in str(found)
    with torch.autocast(KIND, dtype=LOW, policy=found.policy):
        assert torch.bmm(a, a).dtype == torch.float32 and (b @ b).dtype == LOW


def test_several_that_matter_together():
    a, b = torch.full((4, 4), 1.001), torch.full((1, 4, 4), 1.001)

    def step():
        with region():
            return (a @ a).sum().float() - 64.0 + torch.bmm(b, b).sum().float() - 64.0 + 1e-7 * torch.nn.functional.linear(a, a).sum().float()
    found = doctor.bisect(step, tolerance=1e-3)
    assert sorted(found.names) == ["bmm", "mm"] and found.reached


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5)), torch.nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x))


def test_modules_and_a_step_that_trains():
    torch.manual_seed(0)
    net, x = Net(), torch.randn(16, 8)
    with torch.no_grad():
        net.head.bias.fill_(1000.3)  # 16 bits round it to 1000
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    before = [p.tolist() for p in net.parameters()]

    def step():
        opt.zero_grad()
        with region():
            y = net(x)
        y.float().mean().backward()
        opt.step()
        return y.float().mean() - 1000
    found = doctor.bisect(step, tolerance=0.05, model=net, by="modules")
    assert found.names == ["head"] and found.candidates == ["body.0", "body.1", "body.2", "head"] and found.reached
    assert [p.tolist() for p in net.parameters()] == before  # put back
    state = torch.get_rng_state().tolist()
    doctor.bisect(step, tolerance=0.05, model=net)
    assert torch.get_rng_state().tolist() == state


def test_when_there_is_nothing_to_find():
    a = torch.eye(4)

    def step(on=True):
        with torch.autocast(KIND, dtype=LOW, enabled=on):
            return (a @ a).sum()
    found = doctor.bisect(step)
    assert found.names == [] and found.reached and "may run in 16 bits" in str(found)
    assert "nothing ran in 16 bits" in str(doctor.bisect(lambda: step(False)))
    found = doctor.bisect(lambda: float(len(torch.policy.state.chosen.operators)) + step().item() * 0, tolerance=1e-9)
    assert not found.reached and "not reached" in str(found)


def test_metrics_and_bad_calls():
    a = torch.full((4, 4), 1.001)

    def step():
        with region():
            return {"out": a @ a}
    assert doctor.bisect(step, lambda r: r["out"] - 4.0, 1e-3).names == ["mm"]
    with pytest.raises(ValueError, match="must be 'operators'"):
        doctor.bisect(step, by="layers")
    with pytest.raises(ValueError, match="modules"):
        doctor.bisect(step, by="modules")
    with pytest.raises(ValueError, match="not finite with everything in float32"):
        doctor.bisect(lambda: math.nan)
