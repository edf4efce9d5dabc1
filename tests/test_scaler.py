"""GradScaler: torch's surface and rules, and what torch gets wrong."""

import math
import pickle
import re
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
from where import DEVICE, FEWER, ON_GPU

import ampc
from ampc.amp import GradScaler


def make(**options):
    p = ampc.nn.Parameter(ampc.tensor([1.0, 2.0]))
    return p, ampc.optim.SGD([p], lr=0.5), GradScaler("cpu", **{"init_scale": 8.0, **options})


@pytest.mark.filterwarnings("ignore")  # without a GPU 'cuda' means the CPU
def test_the_device_may_have_a_number(torch):
    for lib in (ampc, torch):
        assert lib.amp.GradScaler("cpu:0").is_enabled() and lib.amp.GradScaler("cuda:0", enabled=False).get_scale() == 1
    scaler = GradScaler("cuda:0", init_scale=4.0)
    assert scaler.scale(ampc.tensor(2.0)).item() == 8
    with pytest.raises(RuntimeError, match="'cuda' or 'cpu', got 'mps:0'"):
        GradScaler("mps:0")


def iterate(p, opt, scaler, grad=1.0):
    opt.zero_grad()
    scaler.scale((p * (grad if math.isfinite(grad) else 1.0)).sum()).backward()
    if not math.isfinite(grad):  # in backward alone: the loss is finite
        p.grad.fill_(grad)
    scaler.step(opt)
    scaler.update()


def test_step_and_growth():
    p, opt, s = make(growth_interval=2)
    iterate(p, opt, s)
    assert p.tolist() == [0.5, 1.5] and s.get_scale() == 8 and s._get_growth_tracker() == 1
    iterate(p, opt, s)
    assert s.get_scale() == 16 and s._get_growth_tracker() == 0


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_overflow_skips_and_backs_off(bad):
    p, opt, s = make()
    iterate(p, opt, s, bad)
    assert p.tolist() == [1, 2] and s.get_scale() == 4
    s.unscale_(opt)
    assert s._found_inf_per_device(opt)[ampc.get_default_device()].item() == 1.0


def test_finite_scaled_but_infinite_unscaled_counts():
    p, opt, s = make(init_scale=1e-4)
    s.scale(p.sum())
    p.grad = ampc.full((2,), 1e36)  # torch applies -inf here
    s.step(opt)
    assert p.tolist() == [1, 2]


def test_scale_stays_a_positive_finite_number():
    p, opt, s = make(init_scale=8.0 if FEWER == 1 else 1e-30)
    for _ in range(300 // FEWER):
        iterate(p, opt, s, math.inf)
    assert 0 < s.get_scale() < 1e-30
    iterate(p, opt, s, 0.0)
    assert all(math.isfinite(v) for v in p.tolist())  # torch: 0 * inf = nan
    p, opt, s = make(growth_interval=1, init_scale=1e38)
    for _ in range(10):
        iterate(p, opt, s, 0.0)
    assert math.isfinite(s.get_scale())


def test_growth_after_the_interval_is_lowered():
    p, opt, s = make(growth_interval=100)
    for _ in range(50):
        iterate(p, opt, s, 0.0)
    s.set_growth_interval(10)
    iterate(p, opt, s, 0.0)
    assert s.get_scale() == 16  # torch compares for equality and never grows again


def test_unscale_and_clip():
    p, opt, s = make()
    s.scale((p * 3).sum()).backward()
    assert p.grad.tolist() == [24, 24]
    s.unscale_(opt)
    assert p.grad.tolist() == [3, 3]
    norm = ampc.nn.utils.clip_grad_norm_([p], 1.0)
    assert abs(norm.item() - math.sqrt(18)) < 1e-5
    s.step(opt)
    s.update()
    assert abs(p[0].item() - (1 - 0.5 / math.sqrt(2))) < 1e-5


FORGOTTEN = {
    "step": (lambda s, opt: None, "already called"), "unscale": (lambda s, opt: s.unscale_(opt), "after step"),
}


@pytest.mark.parametrize("way", FORGOTTEN)
def test_a_forgotten_update_is_named(torch, way):
    """The second iteration fails, as in torch. What to do is to call update(), also where unscale_() stands in its place."""
    between, text = FORGOTTEN[way]
    for T in (ampc, torch):
        w = T.ones(3, requires_grad=True)
        opt, s = T.optim.SGD([w], lr=0.1), T.amp.GradScaler("cpu")
        with pytest.raises(RuntimeError, match=f"{text}.*call scaler.update" if T is ampc else "step()"):
            for _ in range(2):
                s.scale(w.sum()).backward()
                between(s, opt)
                s.step(opt)


GOOD = {"scale": 4.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3, "_growth_tracker": 1}
STATES = [(None, TypeError, "expected a dict.*NoneType"), ({}, RuntimeError, "empty"), ([], RuntimeError, "empty"), ([1], TypeError, "list"),
          ({"scale": 3.0}, KeyError, "lacks .*growth_factor.*_growth_tracker"), *(({k: v for k, v in GOOD.items() if k != lost}, KeyError, lost) for lost in GOOD)]


@pytest.mark.parametrize(("state", "error", "text"), STATES)
def test_what_is_no_state_of_a_scaler(torch, state, error, text):
    """Torch's exceptions; the scaler keeps what it has."""
    with pytest.raises(error):
        torch.amp.GradScaler("cpu").load_state_dict(state)
    s = GradScaler("cpu", init_scale=16.0, growth_interval=5)
    before = s.state_dict()
    with pytest.raises(error, match=text):
        s.load_state_dict(state)
    assert s.state_dict() == before


@pytest.mark.parametrize("option", ["init_scale", "growth_factor", "backoff_factor", "growth_interval", "hysteresis"])
@pytest.mark.parametrize("value", ["big", [1]])
def test_an_option_that_is_no_number(option, value):
    with pytest.raises(TypeError, match=f"`{option}` must be a number, got {re.escape(repr(value))}"):
        GradScaler("cpu", **{option: value})


def test_call_order_rules():
    p, opt, s = make()
    for f in (lambda: s.unscale_(opt), lambda: s.step(opt), lambda: s.update()):
        with pytest.raises(AssertionError, match="scale"):
            f()
    s.scale(p.sum()).backward()
    with pytest.raises(AssertionError, match="step"):
        s.update()
    s.unscale_(opt)
    with pytest.raises(RuntimeError, match="already"):
        s.unscale_(opt)
    s.step(opt)
    with pytest.raises(RuntimeError, match="already"):
        s.step(opt)
    with pytest.raises(RuntimeError, match="before step"):
        s.unscale_(opt)
    s.update()
    opt.zero_grad()
    with pytest.raises(AssertionError, match="gradient"):
        s.step(opt)
    for closure in ({"closure": lambda: 0}, (lambda: 0,)):
        with pytest.raises(RuntimeError, match="closure"):
            s.step(opt, **closure) if isinstance(closure, dict) else s.step(opt, *closure)


def test_float16_gradients_are_refused_and_bfloat16_are_not():
    for dtype, refused in ((ampc.float16, True), (ampc.bfloat16, False), (ampc.float64, False)):
        p = ampc.nn.Parameter(ampc.ones(2, dtype=dtype))
        opt, s = ampc.optim.SGD([p], lr=0.5), GradScaler("cpu", init_scale=8.0)
        s.scale(p.float().sum()).backward()
        if refused:
            with pytest.raises(ValueError, match="parameter 0"):
                s.unscale_(opt)
        else:
            s.step(opt)
            assert p.tolist() == [0.5, 0.5]


def test_scale_of_nested_outputs():
    _, _, s = make()
    t = ampc.ones(2)
    a, (b, c), d = s.scale([t, (t, t), [t]])
    assert a.tolist() == b.tolist() == c.tolist() == d[0].tolist() == [8, 8]
    assert [x.tolist() for x in s.scale(x for x in (t, t))] == [[8, 8]] * 2
    for bad in (3, "text", [1]):
        with pytest.raises(ValueError, match="Tensor"):
            s.scale(bad)
    assert s.scale(ampc.ones(1, dtype=ampc.float16)).dtype is ampc.float16


def test_several_optimizers():
    p, q = ampc.nn.Parameter(ampc.ones(1)), ampc.nn.Parameter(ampc.ones(1))
    a, b, s = ampc.optim.SGD([p], lr=1), ampc.optim.SGD([q], lr=1), GradScaler("cpu", init_scale=2.0)
    (s.scale(p.sum()) + s.scale(q.sum())).backward()
    q.grad.fill_(math.inf)
    s.step(a)
    s.step(b)
    s.update()
    assert p.item() == 0 and q.item() == 1 and s.get_scale() == 1


def test_update_with_a_new_scale():
    _, _, s = make()
    s.scale(ampc.ones(1))
    s.update(32.0)
    assert s.get_scale() == 32
    s.update(ampc.tensor([4.0]))
    assert s.get_scale() == 4
    for bad in (0.0, -1.0, math.inf, math.nan, ampc.ones(2), ampc.ones(1, requires_grad=True), ampc.tensor([3]), "8"):
        with pytest.raises(AssertionError, match="new_scale"):
            s.update(bad)


def test_construction():
    for bad, kind in (({"growth_factor": 1.0}, AssertionError), ({"backoff_factor": 1.0}, AssertionError), ({"init_scale": 0.0}, ValueError),
                      ({"init_scale": math.inf}, ValueError), ({"growth_interval": 0}, ValueError)):
        with pytest.raises(kind, match=next(iter(bad))):
            GradScaler("cpu", **bad)
    with pytest.raises(TypeError, match="device"):
        GradScaler(2.0**16)


def test_state_dict_and_pickle():
    p, opt, s = make(growth_interval=5)
    for _ in range(3):
        iterate(p, opt, s)
    state = s.state_dict()
    assert state == {"scale": 8.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 5, "_growth_tracker": 3}
    for twin in (pickle.loads(pickle.dumps(s)), GradScaler("cpu")):
        twin.load_state_dict(state)
        iterate(p, opt, twin)
        iterate(p, opt, twin)
        assert twin.get_scale() == 16
    s.scale(p.sum()).backward()
    s.unscale_(opt)
    with pytest.raises(AssertionError, match="between iterations"):
        pickle.dumps(s)
    with pytest.raises(RuntimeError, match="empty"):
        s.load_state_dict({})


def test_disabled():
    p, opt, s = make(enabled=False)
    loss = p.sum()
    assert s.scale(loss) is loss and s.get_scale() == 1.0 and s.state_dict() == {} and not s.is_enabled() and s.get_growth_interval() == 2000
    loss.backward()
    s.unscale_(opt)
    s.step(opt)
    s.update()
    assert p.tolist() == [0.5, 1.5]


def test_optimizers_that_unscale_themselves():
    class Fused:
        _step_supports_amp_scaling = True

        def __init__(self, p):
            self.param_groups = [{"params": [p]}]

        def step(self):
            self.seen = self.grad_scale.item() if self.grad_scale is not None else None, self.found_inf.item()

    p = ampc.nn.Parameter(ampc.ones(2))
    opt, s = Fused(p), GradScaler("cpu", init_scale=8.0)
    s.scale(p.sum()).backward()
    s.step(opt)
    assert opt.seen == (8.0, 0.0) and not hasattr(opt, "found_inf") and p.grad.tolist() == [8, 8]


def test_spellings(torch):
    assert isinstance(ampc.cpu.amp.GradScaler(init_scale=4.0), GradScaler)
    theirs = {n for n in dir(torch.amp.GradScaler) if not n.startswith("__")}
    assert theirs - set(dir(GradScaler)) <= {"_abc_impl"}


def test_thousands_of_gradients_in_one_pass():
    params = [ampc.nn.Parameter(ampc.zeros(k % 50 + 1)) for k in range(3000)]
    opt, s = ampc.optim.SGD(params, lr=1.0), GradScaler("cpu", init_scale=4.0)
    s.scale(ampc.ones(1))
    for p in params:
        p.grad = ampc.ones_like(p) * 4
    params[1234].grad[0] = math.inf
    s.unscale_(opt)
    assert s._found_inf_per_device(opt)[ampc.get_default_device()].item() == 1 and params[7].grad.tolist() == [1.0] * 8


# -- beyond torch's -----------------------------------------------------------------------------------------------


def with_gradient(p, opt, s, grad):
    """One iteration whose loss is finite and whose scaled gradient is that."""
    opt.zero_grad()
    s.scale(p.detach().sum())
    p.grad = ampc.tensor(grad)
    s.step(opt)
    s.update()


def test_the_scale_stays_within_its_bounds():
    p, opt, s = make(min_scale=2.0, max_scale=32.0, growth_interval=1)
    for _ in range(9):
        iterate(p, opt, s, math.inf)
    assert s.get_scale() == 2
    for _ in range(9):
        iterate(p, opt, s)
    assert s.get_scale() == 32
    for bad in ({"min_scale": 9.0}, {"max_scale": 7.0}, {"min_scale": 0.0}, {"max_scale": math.inf}, {"hysteresis": 0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            make(**bad)


def test_hysteresis_counts_overflows_in_a_row():
    p, opt, s = make(hysteresis=3)
    scales = []
    for grad in (math.inf, math.inf, 1.0, math.inf, math.inf, math.inf, math.inf, 1.0, math.inf):
        with_gradient(p, opt, s, [grad, 1.0])
        scales.append(s.get_scale())
    assert scales == [8, 8, 8, 8, 8, 4, 2, 2, 2]
    assert s.state_dict()["_overflows"] == 1
    twin = make(hysteresis=3)[2]
    twin.load_state_dict(s.state_dict())
    twin = pickle.loads(pickle.dumps(twin))
    with_gradient(p, opt, twin, [1.0, math.inf])
    with_gradient(p, opt, twin, [math.inf, 1.0])
    assert twin.get_scale() == 1 and "_overflows" not in make()[2].state_dict()


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_loss_that_is_not_finite_is_no_overflow_and_is_told_once(bad):
    """No scale would help: torch's falls until gradients vanish. The first step after them uses its gradients whole."""
    p, opt, s = make()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(200 // FEWER):
            opt.zero_grad()
            s.scale((p * bad).sum()).backward()
            s.step(opt)
            s.update()  # the warning's line
    assert p.tolist() == [1, 2] and s.get_scale() == 8 and s._get_growth_tracker() == 0
    told = [w for w in caught if "the loss itself is" in str(w.message)]
    assert len(told) == (0 if ON_GPU else 1)
    if not ON_GPU:
        assert f"the loss itself is {bad}" in str(told[0].message) and told[0].filename == __file__
    iterate(p, opt, s)
    assert p.tolist() == [0.5, 1.5]
    iterate(p, opt, s, math.inf)
    assert s.get_scale() == 4
    again = pickle.loads(pickle.dumps(s))
    assert again._nan_streak.told == s._nan_streak.told


def test_nans_that_no_scale_prevents_leave_it():
    p, opt, s = make(init_scale=64.0)
    with_gradient(p, opt, s, [math.inf, math.nan])
    assert s.get_scale() == 32  # overflow made them
    with_gradient(p, opt, s, [1.0, math.nan])
    assert s.get_scale() == 16  # perhaps
    with_gradient(p, opt, s, [1.0, 1.0])
    assert s.get_scale() == 16
    for scale in (8, 4, 2, 1):
        with_gradient(p, opt, s, [1.0, math.nan])
        assert s.get_scale() == scale
    with nullcontext() if ON_GPU else pytest.warns(UserWarning, match=r"parameter 0 \(group 0\) is nan at a scale of 1"):  # nobody waits to know
        with_gradient(p, opt, s, [1.0, math.nan])
    for _ in range(40):
        with_gradient(p, opt, s, [1.0, math.nan])
        assert s.get_scale() == 16
    with_gradient(p, opt, s, [1.0, 1.0])
    with_gradient(p, opt, s, [math.inf, 1.0])
    assert s.get_scale() == 8


def test_an_overflow_beside_nans_is_an_overflow():
    """Of two optimizers one meets infinity and the other, later, nan: the scale shrinks, at 1 and below, too."""
    p, q = ampc.nn.Parameter(ampc.ones(1)), ampc.nn.Parameter(ampc.ones(1))
    a, b, s = ampc.optim.SGD([p], lr=1), ampc.optim.SGD([q], lr=1), GradScaler("cpu", init_scale=4.0)
    for want in (2, 1, 0.5, 0.25):
        s.scale(p.detach().sum())
        p.grad, q.grad = ampc.tensor([math.inf]), ampc.tensor([math.nan])
        s.step(a)
        s.step(b)
        s.update()
        assert s.get_scale() == want


def test_last_step():
    w = [("first", ampc.nn.Parameter(ampc.ones(3))), ("second", ampc.nn.Parameter(ampc.ones(2, 2)))]
    opt, s = ampc.optim.SGD(w, lr=0.5), GradScaler("cpu", init_scale=8.0)
    assert s.last_step is None
    s.scale(w[0][1].sum() * 2 + w[1][1].sum()).backward()
    s.step(opt)
    last = s.last_step
    assert not last.skipped and last.scale == 8 and abs(last.grad_norm - 4) < 1e-6 and last.culprit is None
    s.update()
    opt.zero_grad()
    s.scale(w[0][1].sum() + (w[1][1] * ampc.tensor([[1.0, math.inf], [math.nan, math.inf]])).sum()).backward()
    s.step(opt)
    last = s.last_step
    assert last.skipped and last.culprit[:5] == ("second", (2, 2), 1.0, 2, 1) and math.isnan(last.grad_norm) and "second" in repr(last)
    unnamed = ampc.optim.SGD([w[0][1]], lr=1)
    w[0][1].grad = ampc.tensor([1.0, math.inf, 1.0])
    s.step(unnamed)
    assert s.last_step.culprit.name == "0 (group 0)"


def test_gradients_that_are_divided_already():
    w = ampc.nn.Parameter(ampc.ones(2))
    opt, s = ampc.optim.SGD([w], lr=1.0), GradScaler("cpu", init_scale=8.0, growth_interval=1)
    for grad, scale, value in (([1.0, 2.0], 16.0, [0.0, -1.0]), ([math.inf, 0.0], 8.0, [0.0, -1.0])):
        w.grad = ampc.tensor(grad)
        s.take_unscaled(opt)
        with pytest.raises(RuntimeError, match="once an iteration"):
            s.take_unscaled(opt)
        s.step(opt)
        s.update()
        assert (s.get_scale(), w.tolist()) == (scale, value)
    assert GradScaler(enabled=False).take_unscaled(opt) is None


def test_gate():
    class Scheduler:
        last_epoch = 0

        def step(self, by=1):
            self.last_epoch += by

    p, opt, s = make()
    scheduler = s.gate(Scheduler())
    for grad, want in ((1.0, 2), (math.inf, 2), (1.0, 4)):
        iterate(p, opt, s, grad)
        scheduler.step(2)
        assert scheduler.last_epoch == want


class Twice(ampc.optim.Optimizer):
    """Like SAM: climbs, looks again, and steps from where it was."""

    def __init__(self, params):
        super().__init__(params, {})

    @ampc.no_grad()
    def step(self, closure):
        with ampc.enable_grad():
            closure()
        (p,) = self.param_groups[0]["params"]
        state = self.state[p]
        state["calls"] = state.get("calls", 0) + 1
        self.param_groups[0]["calls"] = state["calls"]
        climb = p.grad * 0.5
        p.add_(climb)
        with ampc.enable_grad():
            loss = closure()
        p.sub_(climb).add_(p.grad, alpha=-0.1)
        return loss


def test_closures():
    p = ampc.nn.Parameter(ampc.tensor([1.0, -2.0]))
    opt, s, poison = Twice([p]), GradScaler("cpu", init_scale=1024.0), []

    def closure():
        opt.zero_grad()
        loss = (p * p).sum()
        s.scale(loss).backward()
        if poison and poison.pop():
            p.grad = p.grad * math.inf
        return loss

    q = ampc.tensor([1.0, -2.0])
    for _ in range(3):
        assert s.step(opt, closure).item() == ((2 * q) ** 2).sum().item()
        s.update()
        q = q - 0.1 * 2 * (2 * q)
        assert (p.detach() - q).abs().max().item() < 1e-6 and s.get_scale() == 1024
    before = p.detach().clone()
    for poison[:] in ([True], [True, False]):  # at the first pass, and at the second, when it has climbed
        assert s.step(opt, closure=closure) is None and s.last_step.skipped
        s.update()
        assert p.detach().equal(before) and opt.state[p] == {"calls": 3} and opt.param_groups[0]["calls"] == 3
    assert s.get_scale() == 256
    with pytest.raises(AssertionError, match="scaler.scale"):
        s.step(ampc.optim.SGD([ampc.nn.Parameter(ampc.ones(1))], lr=1), lambda: None)


def test_float16_gradients_by_option():
    p = ampc.nn.Parameter(ampc.ones(2, dtype=ampc.float16))
    opt = ampc.optim.SGD([("scale.weight", p)], lr=0.5)
    s = GradScaler("cpu", init_scale=4.0)
    s.scale(p.sum()).backward()
    with pytest.raises(ValueError, match=r"scale\.weight.*float16.*fp16_gradients=True"):
        s.step(opt)
    s = GradScaler("cpu", init_scale=4.0, fp16_gradients=True)
    p.grad = None
    s.scale(p.sum()).backward()
    s.step(opt)
    assert p.tolist() == [0.5, 0.5]


@pytest.mark.slow
@pytest.mark.cpu
def test_ten_thousand_steps_with_overflow_and_nans():
    """Weights bit-equal to a run that leaves the same steps out, in float64 bookkeeping of the scale; memory stays flat."""
    import numpy as np

    R = np.random.default_rng(5)
    kinds = R.choice(3, size=10_000, p=[0.97, 0.02, 0.01])
    inputs = R.standard_normal((64, 8, 6)).astype(np.float32)

    def run(scaled):
        ampc.manual_seed(0)
        net = ampc.nn.Sequential(ampc.nn.Linear(6, 16), ampc.nn.ReLU(), ampc.nn.Linear(16, 1))
        opt = ampc.optim.AdamW(net.parameters(), lr=1e-3)
        s = GradScaler("cpu", init_scale=2.0**12, growth_interval=10, max_scale=2.0**20, enabled=scaled)
        scale, good, used = 2.0**12, 0, []
        for i, kind in enumerate(kinds):
            opt.zero_grad()
            loss = (net(ampc.tensor(inputs[i % 64])) ** 2).mean()
            s.scale(loss).backward()
            if kind:
                net[0].weight.grad[i % 16, i % 6] = math.inf if kind == 1 else math.nan
            if scaled:
                s.step(opt)
                s.update()
            elif not kind:
                opt.step()
            if kind:
                scale, good = scale * 0.5, 0
            else:
                good += 1
                if good == 10:
                    scale, good = min(scale * 2, 2.0**20), 0
            if scaled:
                assert s.get_scale() == scale
            if i in (2000, 9999):
                used.append(ampc._C._memory()["current"])
        assert used[0] == used[1]
        return [p.detach().numpy().copy() for p in net.parameters()], [opt.state[p]["step"] for p in net.parameters()]

    (mine, steps), (plain, same) = run(True), run(False)
    assert steps == same == [int((kinds == 0).sum())] * 4
    assert all(np.array_equal(a, b) for a, b in zip(mine, plain))


def penalised(T, scaler, steps=20):
    """A gradient penalty as torch's recipe has it. The gradients of the first loss overflow in float16; the second loss contains them."""
    T.manual_seed(0)
    net = T.nn.Sequential(T.nn.Linear(8, 16), T.nn.ReLU(), T.nn.Linear(16, 1))
    with T.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(T.linspace(-0.5, 0.5, p.numel()).view(p.shape) + 0.01 * i)
    opt, applied = T.optim.SGD(net.parameters(), lr=1e-7), 0
    x = T.linspace(-1, 1, 256).view(32, 8)
    y = 50 * x.sum(1, keepdim=True)
    for _ in range(steps):
        opt.zero_grad()
        with T.autocast(DEVICE if T is ampc else "cpu", dtype=T.float16):
            loss = T.nn.functional.mse_loss(net(x), y)
        grads = T.autograd.grad(scaler.scale(loss), list(net.parameters()), create_graph=True)
        inverse = 1.0 / scaler.get_scale()
        with T.autocast(DEVICE if T is ampc else "cpu", dtype=T.float16):
            loss = loss + sum((g * inverse).pow(2).sum() for g in grads).sqrt()
        before = [p.detach().clone() for p in net.parameters()]
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        applied += any((p != b).any().item() for p, b in zip(net.parameters(), before))
    return applied


def test_a_penalty_of_gradients_that_overflowed_lowers_the_scale(torch):
    """Its loss is nan because the scale is too high."""
    ours, theirs = ampc.amp.GradScaler(DEVICE), torch.amp.GradScaler("cpu")
    assert penalised(ampc, ours) >= penalised(torch, theirs) > 5 and ours.get_scale() >= theirs.get_scale() and ours.get_scale() < 65536


def test_a_loss_that_is_nan_does_not_keep_the_scale_of_another(torch):
    """Two models, two optimizers, one scaler: that of the healthy one falls until its gradients do not overflow."""
    def train(T):
        sick, well = (T.ones(2, requires_grad=True, device=DEVICE if T is ampc else "cpu") for _ in range(2))
        opts, scaler = [T.optim.SGD([p], lr=0.0) for p in (sick, well)], (ampc.amp.GradScaler(DEVICE) if T is ampc else torch.amp.GradScaler("cpu"))
        for _ in range(6):
            scaler.scale((sick * math.nan).sum()).backward()
            scaler.scale((well * 1e35).sum()).backward()
            for opt in opts:
                scaler.step(opt)
            scaler.update()
            sick.grad = well.grad = None
        return scaler

    scaler = train(ampc)
    assert scaler.get_scale() == train(torch).get_scale() < 65536
    if not ON_GPU:
        sick, well = scaler.ledger.skipped[:2]
        assert math.isnan(sick.loss) and scaler.ledger.cause(sick)[0] == "model"
        assert well.loss == float(np.float32(2e35)) and scaler.ledger.cause(well)[0] == "scale"
