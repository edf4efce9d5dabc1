"""What a doctor follows values for: counts, differences, numbers, sums and averages in 16 bits; scaled gradients that reach parameters; running
values that a skipped step has spoiled. Beside each case stand those that look like it and are right."""

import warnings

import pytest
from where import DEVICE

import ampc
from ampc import doctor, nn
from ampc.amp import GradScaler
from ampc.doctor import guard

HALF, BRAIN = ampc.float16, ampc.bfloat16
IDS = ampc.tensor([3001, 3002, 3003, 3004], device=DEVICE)
STEPS = ampc.tensor([901, 902, 903, 904], device=DEVICE)


@pytest.fixture(autouse=True)
def fresh():
    doctor.reports(clear=True)
    doctor.ignore("autocast-without-effect", "scaler-without-fp16", "fp16-without-scaler")
    yield
    doctor.reports(clear=True)
    guard._State.ignored.clear()


def told(work):
    """The rules that a doctor reports of what a function does, and the texts of their lines."""
    with warnings.catch_warnings(), doctor():
        warnings.simplefilter("ignore")
        work()
    return [r.rule for r in doctor.reports()]


def embedding(t):
    angles = t[:, None].float() * ampc.tensor([1.0, 0.1, 0.01])
    return ampc.cat([angles.sin(), angles.cos()], 1)


def by_product(low):
    positions, frequency = ampc.arange(1024).float(), ampc.tensor([1.0, 0.1])
    with ampc.autocast(DEVICE, dtype=BRAIN, enabled=low):
        angles = positions[:, None] @ frequency[None]
    return angles.float().cos()


def through_a_table(kind):
    table = ampc.cat([IDS[:, None].to(kind), ampc.rand(4, 2).to(kind)], 1)
    return table[:, 0].long()


COUNTS = {
    "positions": (lambda: embedding(ampc.arange(1024, dtype=BRAIN)), True),
    "time steps": (lambda: embedding(STEPS.bfloat16()), True),
    "rounded by autocast": (lambda: by_product(True), True),
    "indices": (lambda: through_a_table(HALF), True),
    "compared": (lambda: IDS.half() == ampc.tensor([3001, 3003, 3002, 3004]).half(), True),
    "few positions": (lambda: embedding(ampc.arange(200, dtype=BRAIN)), False),
    "time steps of float16": (lambda: embedding(STEPS.half()), False),
    "in float32": (lambda: by_product(False), False),
    "indices in float32": (lambda: through_a_table(ampc.float32), False),
    "a part of 1000": (lambda: (STEPS.bfloat16() / 1000 * 6.28).sin(), False),
    "lengths that divide": (lambda: ampc.rand(4) / STEPS.bfloat16(), False),
    "a threshold": (lambda: STEPS.bfloat16() > 500, False),
    "a loss of counts": (lambda: (IDS.half() * 0.5 - 3).sum().long(), False),
    "another column": (lambda: ampc.cat([IDS[:, None].half(), ampc.ones(4, 1).half()], 1)[:, 1].contiguous().long(), False),
    "even numbers": (lambda: (2 * ampc.arange(1024)).to(HALF).long(), False),
    "memory that was written over": (lambda: STEPS.bfloat16().fill_(1).sin(), False),
    "a test for nan": (lambda: IDS.half() != IDS.half().clone(), False),
    "small ones among them": (lambda: ampc.tensor([1, 2, 3, 3001]).half()[:3] == ampc.tensor([1, 2, 4, 3003]).half()[:3], False),
    "overwritten and compared": (lambda: IDS.half().copy_(ampc.randn(4)) < STEPS.half().copy_(ampc.randn(4)), False),
    "random in their memory": (lambda: IDS.half().normal_().mul_(1000).sin(), False),
    "clamped in place": (lambda: IDS.half().clamp_(max=512) == ampc.tensor([3001, 3001, 7, 9]).half().clamp_(max=512), False),
    "multiplied in place": (lambda: ampc.arange(4096).bfloat16().mul_(0.5).sin(), True),
}


@pytest.mark.parametrize("what", COUNTS)
def test_counts(what):
    work, wrong = COUNTS[what]
    assert told(work) == (["count-too-coarse"] if wrong else [])


T = ampc.linspace(0.5, 1, 64, device=DEVICE)
DIFFERENCES = {
    "a slope": (lambda: (ampc.tanh((T + 1e-3).half()) - ampc.tanh(T.half())) / 1e-3, True),
    "in float32 then": (lambda: (ampc.tanh((T + 1e-3).half()) - ampc.tanh(T.half())).float() * 1000, True),
    "a wide step": (lambda: (ampc.tanh((T + 0.25).half()) - ampc.tanh(T.half())) / 0.25, False),
    "float32": (lambda: (ampc.tanh(T + 1e-3) - ampc.tanh(T)) / 1e-3, False),
    "a loss": (lambda: (ampc.tanh((T + 1e-3).half()) - ampc.tanh(T.half())).float().square().mean() * 1000, False),
    "the same": (lambda: (ampc.tanh(T.half()) - ampc.tanh(T.half())) / 1e-3, False),
    "numbers by themselves": (lambda: (ampc.tanh((T + 1e-3).half())[0] - ampc.tanh(T.half())[0]) / 1e-3, False),
    "a temperature": (lambda: (T.half().exp() - T.half().exp().amax()) / 0.01, False),
    "whole numbers": (lambda: (ampc.arange(1025, 1100).half() - ampc.arange(1024, 1099).half()) * 64, False),
}


@pytest.mark.parametrize("what", DIFFERENCES)
def test_differences(what):
    work, wrong = DIFFERENCES[what]
    assert told(work) == (["difference-too-coarse"] if wrong else [])


def average_by_number(decay, dtype):
    value = ampc.zeros(4)
    m = ampc.tensor(decay, dtype=dtype)
    return m * value + (1 - m) * ampc.ones(4)


def rates(dtype, steps=5, factor=0.2):
    p = nn.Parameter(ampc.ones(4))
    optimizer = ampc.optim.SGD([p], lr=0.1)
    listed = ampc.linspace(0, 1e-7, 5).to(dtype) * factor
    for i in range(steps):
        p.grad = ampc.ones(4)
        optimizer.param_groups[0]["lr"] = listed[i].item()
        optimizer.step()


def frozen():
    p = nn.Parameter(ampc.ones(4))
    optimizer = ampc.optim.SGD([p], lr=0.0)
    for _ in range(5):
        p.grad = ampc.ones(4)
        ampc.full((4,), 1e-5, dtype=HALF) * 1e-5
        optimizer.step()


RATES = {
    "a decay of 1": (lambda: average_by_number(0.9999, BRAIN), True),
    "an epsilon of 0": (lambda: ampc.rand(4).half() + ampc.tensor(1e-8, dtype=HALF), True),
    "a list of rates": (lambda: rates(HALF), True),
    "a decay that is held": (lambda: average_by_number(0.9, BRAIN), False),
    "a decay in float32": (lambda: average_by_number(0.9999, None), False),
    "a number that is written down": (lambda: ampc.tensor(1e-9, dtype=HALF).item(), False),
    "a probability": (lambda: ampc.tensor(0.9999, dtype=BRAIN) * ampc.ones(4), False),
    "a list in float32": (lambda: rates(ampc.float32), False),
    "rates that are some": (lambda: rates(HALF, factor=1.0), False),
    "the first steps of a warm-up": (lambda: rates(HALF, steps=2), False),
    "an optimizer that is frozen": (lambda: frozen(), False),
}


@pytest.mark.parametrize("what", RATES)
def test_rates(what):
    work, wrong = RATES[what]
    assert told(work) == (["rate-too-coarse"] if wrong else [])


def total(dtype, times=2100, one=1.0):
    reached = ampc.zeros((), dtype=dtype)
    for _ in range(times):
        reached = reached + ampc.tensor(one).to(dtype)


def residual(scale, layers=12):
    x = ampc.rand(4, 8).bfloat16() + 1
    for _ in range(layers):
        x = x + x.tanh() * scale


def averages(change, times=12, dtype=BRAIN, to=2.0):
    t = ampc.ones(64, dtype=dtype)
    for _ in range(times):
        t = change(t, ampc.full((64,), to, dtype=dtype))


def average_of_a_parameter():
    t = ampc.nn.Parameter(ampc.ones(64, dtype=HALF))
    with ampc.no_grad():
        for _ in range(12):
            t.mul_(0.9999).add_(ampc.full((64,), 1.5, dtype=HALF), alpha=1e-4)


SUMS = {
    "a sum": (lambda: total(HALF), "sum-too-coarse"),
    "probabilities": (lambda: total(BRAIN, 2000, 4e-4), "sum-too-coarse"),
    "mul_ and add_": (lambda: averages(lambda t, x: t.mul_(1 - 1e-3).add_(x, alpha=1e-3)), "weights-too-coarse"),
    "mul_ and add_ of a parameter": (average_of_a_parameter, "weights-too-coarse"),
    "copy_": (lambda: averages(lambda t, x: t.copy_((1 - 1e-3) * t + 1e-3 * x)), "weights-too-coarse"),
    "a new average": (lambda: averages(lambda t, x: (1 - 1e-3) * t + 1e-3 * x), "weights-too-coarse"),
    "few": (lambda: total(HALF, 500), None),
    "in float32": (lambda: total(ampc.float32), None),
    "layers that add little": (lambda: residual(1e-4), None),
    "an average that moves": (lambda: averages(lambda t, x: t.mul_(0.9).add_(x, alpha=0.1)), None),
    "one that has arrived": (lambda: averages(lambda t, x: t.mul_(0.999).add_(x, alpha=0.001), to=1.0), None),
    "averaged in float32": (lambda: averages(lambda t, x: t.mul_(0.999).add_(x, alpha=0.001), dtype=ampc.float32), None),
    "mixed with little, each time anew": (lambda: [(1 - 1e-3) * T.bfloat16() + 1e-3 * ampc.ones(64).bfloat16() for _ in range(12)], None),
    "one and the same mixture": (lambda: averages(lambda t, x: ((1 - 1e-3) * t + 1e-3 * x, t)[1]), None),
    "leaky": (lambda: averages(lambda t, x: 0.5 * t + 1.0 * x, 30), None),
    "momentum": (lambda: averages(lambda t, x: t.mul_(0.5).add_(x), 30), None),
    "subtracted": (lambda: averages(lambda t, x: t.mul_(0.5).sub_(x), 30), None),
    "as near as it comes": (lambda: averages(lambda t, x: 0.9 * t + 0.1 * x, 60), None),
    "as near, in place": (lambda: averages(lambda t, x: t.mul_(0.9).add_(x, alpha=0.1), 60), None),
    "as near, by lerp_": (lambda: averages(lambda t, x: t.lerp_(x, 0.3), 60), None),
    "arrived, with a product": (lambda: averages(lambda t, x: t.mul_(0.999).add_(0.001 * x), to=1.0), None),
    "mul_ and add_ of a product": (lambda: averages(lambda t, x: t.mul_(0.999).add_(0.001 * x)), "weights-too-coarse"),
    "lerp_": (lambda: averages(lambda t, x: t.lerp_(x, 1e-3)), "weights-too-coarse"),
    "nothing is added": (lambda: averages(lambda t, x: t.add_(x, alpha=0)), None),
    "into a buffer that is filled anew": (lambda: averages(lambda t, x: t.copy_(ampc.rand(64) + 1).add_(1e-6)), None),
    "into random numbers": (lambda: averages(lambda t, x: t.uniform_(1, 2).add_(1e-6)), None),
}


@pytest.mark.parametrize("what", SUMS)
def test_sums_and_averages(what):
    work, rule = SUMS[what]
    assert told(work) == ([rule] if rule else [])


def climbing(climb, scale=512.0, step=False):
    """A sharpness-aware step: the parameters go where ``climb`` says."""
    ampc.manual_seed(0)
    model = nn.Linear(8, 2)
    optimizer, scaler = ampc.optim.SGD(model.parameters(), lr=0.1), GradScaler(DEVICE, init_scale=scale)
    with ampc.autocast(DEVICE, dtype=HALF):
        loss = nn.functional.cross_entropy(model(ampc.randn(16, 8)).float(), ampc.arange(16) % 2)
    scaler.scale(loss).backward()
    if step:
        scaler.unscale_(optimizer)
    with ampc.no_grad():
        for p in model.parameters():
            p.add_(climb(p.grad, scaler, model))


def rho(grad, model):
    return 0.05 / ampc.stack([p.grad.norm() for p in model.parameters()]).norm().item()


UPDATES = {
    "scaled": (lambda: climbing(lambda g, s, m: 0.1 * g), True),
    "divided by another number": (lambda: climbing(lambda g, s, m: g / 2), True),
    "divided by the scale": (lambda: climbing(lambda g, s, m: 0.1 * g / s.get_scale()), False),
    "by the scale as a number": (lambda: climbing(lambda g, s, m: g * (0.1 / 512)), False),
    "unscaled": (lambda: climbing(lambda g, s, m: 0.1 * g, step=True), False),
    "normed": (lambda: climbing(lambda g, s, m: g * rho(g, m)), False),
    "normed by hand": (lambda: climbing(lambda g, s, m: g * (0.05 / g.square().sum().sqrt().item())), False),
    "its sign": (lambda: climbing(lambda g, s, m: 0.1 * g.sign()), False),
    "no scale": (lambda: climbing(lambda g, s, m: 0.1 * g, scale=1.0), False),
    "a large rate, divided by the scale": (lambda: climbing(lambda g, s, m: g * (10 / s.get_scale())), False),
}


@pytest.mark.parametrize("what", UPDATES)
def test_updates_by_hand(what):
    work, wrong = UPDATES[what]
    assert [r for r in told(work) if r != "clip-scaled-gradients"] == (["edit-scaled-gradients"] if wrong else [])


def running(update, scale=2.0**40, steps=30):
    """Training whose first steps are skipped, with a value that runs along."""
    model = nn.Linear(8, 2)
    optimizer, scaler = ampc.optim.SGD(model.parameters(), lr=0.01), GradScaler(DEVICE, init_scale=scale)
    value = ampc.ones(())
    for _ in range(steps):
        optimizer.zero_grad()
        with ampc.autocast(DEVICE, dtype=HALF):
            loss = nn.functional.cross_entropy(model(ampc.randn(16, 8)).float(), ampc.arange(16) % 2)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        value = update(value, ampc.stack([p.grad.norm() for p in model.parameters()]).norm())
        scaler.step(optimizer)
        scaler.update()


RUNNING = {
    "an average": (lambda: running(lambda v, n: 0.9 * v + 0.1 * n), True),
    "a sum": (lambda: running(lambda v, n: v + n), True),
    "in place": (lambda: running(lambda v, n: v.mul_(0.9).add_(n, alpha=0.1)), True),
    "where it is finite": (lambda: running(lambda v, n: 0.9 * v + 0.1 * n if n.isfinite() else v), False),
    "nothing is kept": (lambda: running(lambda v, n: n * 2 + 1), False),
    "begun again": (lambda: running(lambda v, n: 0.9 * v + 0.1 * n if v.isfinite() else ampc.ones(())), False),
    "no step is skipped": (lambda: running(lambda v, n: 0.9 * v + 0.1 * n, 256.0), False),
    "infinite on purpose": (lambda: running(lambda v, n: ampc.minimum(n, ampc.tensor(float("inf"))) + 1), False),
}


@pytest.mark.parametrize("what", RUNNING)
def test_running_values(what):
    work, wrong = RUNNING[what]
    assert told(work) == (["step-not-skipped"] if wrong else [])


@pytest.mark.parametrize(("enabled", "wrong"), [(False, True), (True, False)])
def test_a_function_that_computes_again(enabled, wrong):
    class Again(ampc.autograd.Function):
        @staticmethod
        def forward(ctx, layer, x):
            ctx.layer = layer
            ctx.save_for_backward(x)
            with ampc.no_grad():
                return layer(x)

        @staticmethod
        def backward(ctx, grad):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with ampc.enable_grad(), ampc.autocast(DEVICE, dtype=BRAIN, enabled=enabled):
                out = ctx.layer(x)
            ampc.autograd.backward(out, grad.to(out.dtype))
            return None, x.grad

    def work():
        x, layer = ampc.randn(4, 8, requires_grad=True), nn.Linear(8, 8)
        with ampc.autocast(DEVICE, dtype=BRAIN):
            loss = Again.apply(layer, x).float().sum()
        loss.backward()

    assert told(work) == (["recomputed-in-other-precision"] if wrong else [])


def test_a_checkpoint_of_ours_is_no_other_precision():
    def work():
        x, layer = ampc.randn(4, 8, requires_grad=True), nn.Linear(8, 8)
        with ampc.autocast(DEVICE, dtype=BRAIN):
            loss = ampc.utils.checkpoint.checkpoint(layer, x, use_reentrant=True).float().sum()
        loss.backward()

    assert told(work) == []


def test_views_of_what_is_not_finite_are_no_data():
    """A part of a result that overflowed, which is looked at only after the whole was used."""
    x = ampc.full((2, 8), 300.0, dtype=HALF)
    with warnings.catch_warnings(), doctor() as d:
        warnings.simplefilter("ignore")
        gates = x * x
        for part in gates.chunk(4, 1):
            part.tanh().mul(0.5) - ampc.full((2, 2), float("inf"), dtype=HALF) * 0
            (part - part).sum().item()
    assert {f.op for f in d.findings} == {"mul"}


def test_a_part_that_is_written_over_is_no_origin():
    """What is added to a nan stays one, also where a row of a larger tensor is written."""
    with warnings.catch_warnings(), doctor() as d:
        warnings.simplefilter("ignore")
        x = ampc.zeros(4).log() * ampc.zeros(4)
        row = x + 1
        row[2] += 5
        row.sum().item()
    assert {f.op for f in d.findings} == {"log"}


def test_a_transposed_parameter_is_a_parameter():
    """Weights that a bad step has spoiled are its consequence, however they are read."""
    users, items = nn.Embedding(6, 4), nn.Embedding(6, 4)
    optimizer = ampc.optim.SGD([*users.parameters(), *items.parameters()], lr=0.1)
    with warnings.catch_warnings(), doctor() as d:
        warnings.simplefilter("ignore")
        for _ in range(2):
            optimizer.zero_grad()
            with ampc.autocast(DEVICE, dtype=BRAIN):
                scores = users(ampc.arange(3)) @ items.weight.t()
            (scores.float() - ampc.tensor([0.0, 0.2, 0.2, 0.2, 0.2, 0.2]).log()).logsumexp(1).sum().backward()
            optimizer.step()
    assert {f.op for f in d.findings} == {"log"}


def test_tensors_without_values_are_not_judged():
    with doctor() as d, ampc.device("meta"):
        layer, number, whole = nn.Linear(4, 4).half(), ampc.tensor(0.9999, dtype=HALF), ampc.arange(5000)
        assert layer(ampc.empty(2, 4, dtype=HALF)).is_meta and (1 - number).is_meta and whole.half().sin().is_meta
        with ampc.autocast(DEVICE, dtype=BRAIN):
            assert (ampc.ones(4, 1) @ ampc.ones(1, 4)).is_meta
        assert nn.functional.cross_entropy(ampc.ones(4, 3), ampc.zeros(4, dtype=ampc.long)).is_meta
    assert d.findings == [] and doctor.reports() == []


def test_a_doctor_that_has_ended_hears_nothing():
    with doctor() as ended:
        ampc.full((4,), 1e-5, dtype=HALF) * 1e-5
    rates(ampc.float32, factor=0.0)
    assert ended.findings == [] and doctor.reports() == []


class Logarithms(ampc.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return ampc.full((3,), float(i)).log()


@pytest.mark.parametrize("repaired", [True, False])
def test_a_data_sets_infinity_counts_where_the_batch_is_not_repaired(repaired):
    with warnings.catch_warnings(), doctor() as d:
        warnings.simplefilter("ignore")
        for x in ampc.utils.data.DataLoader(Logarithms(), batch_size=2):
            ((x.nan_to_num(neginf=0.0) if repaired else x) * 2).sum().item()
    assert [f.op for f in d.findings] == ([] if repaired else ["log"])
