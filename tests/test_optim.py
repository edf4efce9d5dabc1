"""Optimizers against torch's, parameter groups, state."""

import copy
import gc
import importlib
import inspect
import math

import pytest
from references import part
from where import FEWER

import ampc

OPTIONS = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.5, "dampening": 0.3, "maximize": True}), ("Adam", {}), ("Adam", {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True}),
    ("AdamW", {"lr": 0.01}), ("AdamW", {"lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-3, "maximize": True}),
    ("Adagrad", {}), ("Adagrad", {"lr": 0.1, "lr_decay": 0.3, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "maximize": True}),
    ("RMSprop", {}), ("RMSprop", {"momentum": 0.9, "weight_decay": 0.1}), ("RMSprop", {"centered": True, "alpha": 0.9}),
    ("RMSprop", {"centered": True, "momentum": 0.5, "maximize": True}), ("Adadelta", {}), ("Adadelta", {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1}),
    ("NAdam", {}), ("NAdam", {"weight_decay": 0.1, "momentum_decay": 0.1}), ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("RAdam", {}), ("RAdam", {"betas": (0.8, 0.7), "weight_decay": 0.1, "maximize": True}), ("RAdam", {"betas": (0.9, 0.6), "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Rprop", {}), ("Rprop", {"lr": 0.3, "etas": (0.4, 1.5), "step_sizes": (1e-3, 0.5), "maximize": True}),
    ("ASGD", {}), ("ASGD", {"lr": 0.1, "lambd": 0.1, "alpha": 0.5, "t0": 2, "weight_decay": 0.1, "maximize": True}),
    ("Adafactor", {}), ("Adafactor", {"lr": 1.0, "beta2_decay": -0.5, "eps": (1e-3, 1e-2), "d": 1.5, "weight_decay": 0.1, "maximize": True}),
    ("Adamax", {}), ("Adamax", {"lr": 0.1, "betas": (0.8, 0.9), "weight_decay": 0.1, "maximize": True}),
]


@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(OPTIONS)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_as_torch(torch, name, options, dtype):
    start = [ampc.randn(40, 30, dtype=ampc.float64), ampc.randn(70, dtype=ampc.float64), ampc.randn(30, 40, dtype=ampc.float64)]
    mine = [ampc.nn.Parameter(s.to(getattr(ampc, dtype))) for s in start]
    mine[2] = ampc.nn.Parameter(mine[2].detach().t())  # not contiguous
    theirs = [torch.nn.Parameter(torch.tensor(m.detach().numpy(force=True).copy())) for m in mine]
    a, b = getattr(ampc.optim, name)(mine, **options), getattr(torch.optim, name)(theirs, **options)
    for step in range(5):
        for m, t in zip(mine, theirs):
            m.grad = (m.detach() * 0.3 + step * (-1) ** (step // 2)).clone()
            t.grad = torch.tensor(m.grad.numpy(force=True).copy())
        if step == 2:
            mine[1].grad = theirs[1].grad = None
        a.step()
        b.step()
    exact = dtype if name not in ("NAdam", "ASGD") else "float32"  # in which torch keeps NAdam's product of momenta and ASGD's rate
    tol = 64 * ampc.finfo(getattr(ampc, exact)).eps
    for m, t in zip(mine, theirs):
        assert abs(m.detach() - ampc.tensor(t.detach().numpy(force=True))).max().item() <= tol * t.abs().max().item()


@pytest.mark.parametrize("options", [{}, {"lr": 0.1, "nesterov": False, "adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.3},
                                     {"ns_steps": 3, "ns_coefficients": (2.0, -1.5, 0.5), "momentum": 0.5, "adjust_lr_fn": "original"}])
@pytest.mark.parametrize("shape", [(20, 30), (30, 20)])
def test_muon_as_torch(torch, shape, options):
    mine = ampc.nn.Parameter(ampc.randn(*shape))
    start = mine.detach().clone()
    their = torch.nn.Parameter(torch.tensor(mine.detach().numpy(force=True).copy()))
    a, b = ampc.optim.Muon([mine], **options), torch.optim.Muon([their], **options)
    for _ in range(10):
        mine.grad = ampc.randn(*shape)
        their.grad = torch.tensor(mine.grad.numpy(force=True).copy())
        a.step()
        b.step()
    moved = (mine.detach() - start).abs().max().item()  # by sums of bfloat16 products
    assert abs(mine.detach() - ampc.tensor(their.detach().numpy(force=True))).max().item() <= 2 * ampc.finfo(ampc.bfloat16).eps * moved


def test_muon_makes_singular_values_about_one():
    p = ampc.nn.Parameter(ampc.zeros(16, 24))
    p.grad = ampc.randn(16, 24)
    ampc.optim.Muon([p], lr=1.0, weight_decay=0.0).step()
    values = ampc.linalg.svdvals(p.detach())
    assert 0.5 < values.min().item() <= values.max().item() < 1.4


def test_options_of_composed_optimizers_are_checked():
    p, vector = ampc.nn.Parameter(ampc.ones(2, 2)), ampc.nn.Parameter(ampc.ones(2))
    for call in (lambda: ampc.optim.Muon([vector]), lambda: ampc.optim.Muon([p], ns_steps=100), lambda: ampc.optim.Muon([p], ns_coefficients=(1, 2)),
                 lambda: ampc.optim.Muon([p], adjust_lr_fn="other"), lambda: ampc.optim.Adafactor([p], beta2_decay=0.5),
                 lambda: ampc.optim.Adafactor([p], d=0.5), lambda: ampc.optim.Adafactor([p], eps=(None, -1.0)), lambda: ampc.optim.ASGD([p], lr=-1.0)):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize("name", ["ASGD", "Adafactor", "Muon"])
def test_composed_optimizers_keep_float32_states_of_half_parameters(name):
    p = ampc.nn.Parameter(ampc.ones(3, 4, dtype=ampc.bfloat16))
    opt = getattr(ampc.optim, name)([p], lr=0.1)
    p.grad = ampc.ones(3, 4, dtype=ampc.bfloat16)
    opt.step()
    assert all(s.dtype is ampc.float32 for s in opt.state[p].values() if isinstance(s, ampc.Tensor))
    assert p.dtype is ampc.bfloat16 and p[0, 0].item() < 1


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["SGD", "AdamW", "ASGD", "Adafactor", "Muon", "LBFGS"])
def test_a_step_inside_autocast_is_the_same(name, device):
    def stepped(inside):
        ampc.manual_seed(1)
        p = ampc.nn.Parameter(ampc.randn(40, 30))
        optimizer = getattr(ampc.optim, name)([p])

        def closure():
            p.grad = p.detach() ** 3 - 0.3
            return (p.detach() ** 4 / 4 - 0.3 * p.detach()).double().sum()

        for _ in range(3):
            with ampc.autocast(device, dtype=ampc.bfloat16, enabled=inside):
                optimizer.step(closure)
        return p.detach()

    assert ampc.equal(stepped(True), stepped(False))


def test_half_parameters_train_with_float32_state():
    p = ampc.nn.Parameter(ampc.ones(100, dtype=ampc.bfloat16))
    opt = ampc.optim.AdamW([p], lr=0.1)
    p.grad = ampc.ones(100, dtype=ampc.bfloat16)
    opt.step()
    assert opt.state[p]["exp_avg"].dtype is ampc.float32 and p[0].item() == pytest.approx(0.9, abs=0.01)


def test_groups_and_errors():
    p, q = ampc.nn.Parameter(ampc.ones(1)), ampc.nn.Parameter(ampc.ones(1))
    opt = ampc.optim.SGD([{"params": [p], "lr": 1.0}, {"params": q}], lr=0.5)
    p.grad = q.grad = ampc.ones(1)
    opt.step()
    assert p.item() == 0 and q.item() == 0.5
    for bad, kind in (([], ValueError), (p, TypeError), ([3], TypeError), ([p, p], ValueError), ([p * 2], ValueError)):
        with pytest.raises(kind):
            ampc.optim.SGD(bad, lr=0.1)
    for options in ({"lr": -1}, {"momentum": -0.1}, {"nesterov": True}):
        with pytest.raises(ValueError):
            ampc.optim.SGD([p], **options)
    with pytest.raises(ValueError, match=r"betas\[0\]"):
        ampc.optim.Adam([p], betas=(1.0, 0.9))


def test_groups_have_names_together():
    one, two = ampc.nn.Linear(2, 2), ampc.nn.Linear(2, 2)
    for first, second in ((one.named_parameters(), two.parameters()), (one.parameters(), two.named_parameters())):
        with pytest.raises(ValueError, match="names"):
            ampc.optim.SGD([{"params": first}, {"params": second}], lr=0.1)
    opt = ampc.optim.SGD([{"params": one.named_parameters()}, {"params": two.named_parameters()}], lr=0.1)
    assert [g["param_names"] for g in opt.param_groups] == [["weight", "bias"]] * 2


def test_a_bad_gradient_changes_nothing():
    p, q = ampc.nn.Parameter(ampc.ones(2)), ampc.nn.Parameter(ampc.ones(2))
    with pytest.raises(RuntimeError, match="gradient"):
        ampc._C._step("sgd", [p, q], [ampc.ones(2), ampc.ones(3)], [], [{}, {}], {}, [2, 2], None, {"lr": 1.0})
    good = [[p], [ampc.ones(2)], [], [{}], {}, [1], None, {"lr": 1.0}]
    for at, bad, error, text in ((7, {"speed": 1.0}, TypeError, "speed"), (4, {"step": []}, ValueError, "notes"), (5, [0], ValueError, "1 or more"),
                                 (3, [], ValueError, "dictionaries"), (2, [[]] * 4, ValueError, "3 states"), (6, [], ValueError, "products")):
        with pytest.raises(error, match=text):
            ampc._C._step("sgd", *good[:at], bad, *good[at + 1:])
    with pytest.raises(ValueError, match="no rule"):
        ampc._C._step("sdg", *good)
    assert p.tolist() == [1, 1] and q.tolist() == [1, 1]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adadelta", "NAdam", "Adamax", "ASGD", "Adafactor"])
def test_state_dict_resumes(name):
    def make():
        ampc.manual_seed(1)
        net = ampc.nn.Linear(4, 4)
        return net, getattr(ampc.optim, name)(net.parameters(), **({"lr": 0.1, "momentum": 0.9} if name == "SGD" else {}))

    def run(net, opt, steps):
        for _ in range(steps):
            opt.zero_grad()
            net(ampc.ones(2, 4)).square().sum().backward()
            opt.step()

    net, opt = make()
    run(net, opt, 3)
    saved = copy.deepcopy((net.state_dict(), opt.state_dict()))
    run(net, opt, 3)
    other, opt2 = make()
    other.load_state_dict(saved[0])
    opt2.load_state_dict(saved[1])
    run(other, opt2, 3)
    assert other.weight.equal(net.weight)
    with pytest.raises(ValueError, match="groups"):
        ampc.optim.SGD([ampc.nn.Parameter(ampc.ones(1))], lr=0.1).load_state_dict(saved[1])


class _Kept(ampc.nn.Parameter):
    """Its gradient lies elsewhere, as a class of a script may have it."""

    elsewhere = None

    @property
    def grad(self):
        return self.elsewhere

    @grad.setter
    def grad(self, value):
        self.elsewhere = value


def test_a_property_named_grad_is_the_gradient():
    """Where gradients are let go of, and where a scaler divides them."""
    p = _Kept(ampc.ones(2))
    opt, scaler = ampc.optim.SGD([p], lr=1.0), ampc.amp.GradScaler(p.device.type, init_scale=4.0)
    scaler.scale(ampc.ones(1))
    p.grad = ampc.full((2,), 2.0)
    scaler.step(opt)
    scaler.update()
    assert p.grad.tolist() == [0.5, 0.5] and p.tolist() == [0.5, 0.5]
    opt.zero_grad()
    assert p.grad is None and p.elsewhere is None


def test_gradients_of_groups():
    """By device, with their places; parameters without one are left out, and whatever else is refused."""
    p, q, r = (ampc.nn.Parameter(ampc.ones(n)) for n in (1, 2, 3))
    half = ampc.nn.Parameter(ampc.ones(4, dtype=ampc.float16))
    p.grad, r.grad, half.grad = ampc.ones(1), ampc.ones(3), ampc.ones_like(half)
    (where, grads, places, float16), = ampc._C._gradients_of([{"params": [p, q]}, {"params": (r, half, half)}])
    assert where == ampc._C._device_index(p) and places == [(0, 0), (1, 0), (1, 1), (1, 2)] and float16 == (1, 1)
    assert all(a is b for a, b in zip(grads, (p.grad, r.grad, half.grad, half.grad), strict=True))
    assert ampc._C._gradients_of([]) == ampc._C._gradients_of([{"params": [q]}]) == []
    with pytest.raises(AssertionError, match="must be Tensors, got int"):
        ampc._C._gradients_of([{"params": [p, 1]}])
    with pytest.raises(KeyError, match="params"):
        ampc._C._gradients_of([{}])
    with pytest.raises(TypeError):
        ampc._C._gradients_of(1)


def test_hooks_closure_and_zero_grad():
    p = ampc.nn.Parameter(ampc.ones(1))
    opt, seen = ampc.optim.SGD([p], lr=0.1), []
    opt.register_step_pre_hook(lambda o, a, k: seen.append("pre"))
    opt.register_step_post_hook(lambda o, a, k: seen.append("post"))

    def closure():
        opt.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    assert opt.step(closure).item() == 1 and seen == ["pre", "post"] and p.item() == pytest.approx(0.8)
    opt.zero_grad(set_to_none=False)
    assert p.grad.item() == 0
    opt.zero_grad()
    assert p.grad is None


# -- 16-bit parameters --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [ampc.bfloat16, ampc.float16], ids=str)
@pytest.mark.parametrize("name", part(["SGD", "AdamW", "RMSprop"], FEWER))
def test_small_updates_of_16_bit_parameters(name, dtype):
    """200 updates of 1/16 of the spacing at 1: lost by rounding to nearest, and not by the others."""
    by = ampc.finfo(dtype).eps / 32  # the spacing below 1 is half of eps

    def train(rounding, p):
        options = {"SGD": {"lr": by}, "AdamW": {"lr": by, "weight_decay": 0.0}, "RMSprop": {"lr": by, "alpha": 0.0}}[name]
        opt = getattr(ampc.optim, name)([p], **options, rounding=rounding)
        for _ in range(200):
            p.grad = ampc.ones_like(p)
            opt.step()
        return p.detach().float(), opt

    make = lambda: ampc.nn.Parameter(ampc.ones(64, 70, dtype=dtype))  # noqa: E731
    want = 1 - 200 * by
    assert train("nearest", make())[0].min().item() == 1
    master, opt = train("master", make())
    state = next(iter(opt.state.values()))
    assert (master - want).abs().max().item() <= ampc.finfo(dtype).eps / 2 and abs(state["master_param"][0, 0].item() - want) < 1e-5
    assert state["master_param"].dtype is ampc.float32 and state["master_param"].to(dtype).float().equal(master)
    kahan, opt = train("kahan", make())
    state = next(iter(opt.state.values()))
    assert (kahan - want).abs().max().item() <= ampc.finfo(dtype).eps and state["compensation"].dtype is dtype
    ampc.manual_seed(4)
    stochastic = train("stochastic", make())[0]
    # each step moves by the spacing with probability 1/16: the deviation of the mean of 4480 walks of 200 steps
    deviation = ampc.finfo(dtype).eps / 2 * (200 * 15 / 256 / 4480) ** 0.5
    assert abs(stochastic.double().mean().item() - want) < 5 * deviation and stochastic.max().item() > stochastic.min().item()
    again = ampc.nn.Parameter(ampc.ones(70, 64, dtype=dtype).t())
    ampc.manual_seed(4)
    assert train("stochastic", again)[0].equal(stochastic)  # by the place in the tensor, whatever its layout
    wide = ampc.nn.Parameter(ampc.ones(3))
    assert train("stochastic", wide)[0].max().item() < 1 and "master_param" not in train("master", wide)[1].state[wide]


@pytest.mark.parametrize("dtype", [ampc.bfloat16, ampc.float16], ids=str)
@pytest.mark.parametrize("at", [1.0, -3.0, 60000.0, 2.0**-20, -(2.0**-24), 0.0])
def test_stochastic_rounding_is_without_bias(dtype, at):
    """From a number of the dtype, 3/8 of the way to the next: 3/8 of all values arrive there."""
    import numpy as np

    start = ampc.full((40_000,), at, dtype=dtype)
    bits = start[:1].view(ampc.int16) + 1
    unit = bits.view(dtype).double().item() - start[0].double().item()
    p = ampc.nn.Parameter(start)
    opt = ampc.optim.SGD([p], lr=abs(unit) * 0.375, rounding="stochastic")
    p.grad = ampc.full((40_000,), math.copysign(1, -unit), dtype=dtype)
    ampc.manual_seed(1)
    opt.step()
    moved = (p.detach().double() - start[0].double().item()).numpy(force=True) / unit
    assert set(np.unique(moved)) <= {0.0, 1.0} and abs(moved.mean() - 0.375) < 5 * (0.375 * 0.625 / 40_000) ** 0.5


def test_roundings_are_named_and_saved():
    with pytest.raises(ValueError, match="'kahan'"):
        ampc.optim.SGD([ampc.nn.Parameter(ampc.ones(1))], rounding="up")
    p = ampc.nn.Parameter(ampc.ones(5, dtype=ampc.bfloat16))
    opt = ampc.optim.SGD([p], lr=1e-4, rounding="kahan")
    p.grad = ampc.ones(5, dtype=ampc.bfloat16)
    opt.step()
    q = ampc.nn.Parameter(p.detach().clone())
    twin = ampc.optim.SGD([q], lr=1e-4, rounding="kahan")
    twin.load_state_dict(copy.deepcopy(opt.state_dict()))
    for _ in range(60):
        for one, o in ((p, opt), (q, twin)):
            one.grad = ampc.ones(5, dtype=ampc.bfloat16)
            o.step()
    assert p.equal(q) and p.max().item() < 1
    with pytest.raises(RuntimeError, match="beside it"):
        ampc._C._step("sgd", [p], [ampc.ones(5)], [], [{}], {}, [1], None, {"lr": 1.0}, None, "kahan", [ampc.ones(5)])
    for extras, text in (([None], "needs a tensor"), (None, "needs a tensor")):
        with pytest.raises(ValueError, match=text):
            ampc._C._step("sgd", [p], [ampc.ones(5)], [], [{}], {}, [1], None, {"lr": 1.0}, None, "master", extras)
    with pytest.raises(ValueError, match="no rounding"):
        ampc._C._step("sgd", [p], [ampc.ones(5)], [], [{}], {}, [1], None, {"lr": 1.0}, None, "up", None)


@pytest.mark.parametrize("how", [("SGD", {}), ("SGD", {"momentum": 0.9}), ("AdamW", {}), ("Adagrad", {}), ("NAdam", {})], ids=str)
@pytest.mark.parametrize("dtype", [ampc.float32, ampc.bfloat16, ampc.float64], ids=str)
def test_gradients_become_zero_in_the_steps_own_pass(how, dtype):
    gc.collect()  # what other tests have left in cycles may hold scaled gradients
    def run(along):
        ampc.manual_seed(0)
        params = [ampc.nn.Parameter(ampc.randn(n, m).to(dtype)) for n, m in ((3, 5), (700, 301), (33, 64))]
        opt, scaler, grads = getattr(ampc.optim, how[0])(params, lr=0.1, **how[1]), ampc.amp.GradScaler(init_scale=8.0), []
        for i in range(4):
            for j, p in enumerate(params):
                g = (ampc.randn(*reversed(p.shape)).t() if j == 2 else ampc.randn(*p.shape)).to(dtype) * 8
                if p.grad is None:
                    p.grad = g
                else:
                    p.grad.add_(g)
            scaler.scale(ampc.ones(()))
            if i == 2:
                params[1].grad[699, 300] = float("inf")  # left out
            scaler.step(opt, **({"zero_grad": True} if along else {}))
            if not along:
                opt.zero_grad(set_to_none=False)
            scaler.update()
            assert not any(p.grad.any() for p in params)
            grads.append([p.grad for p in params])
        assert all(a is b for one, two in zip(grads, grads[1:]) for a, b in zip(one, two)) and ampc._C._pending() == 0
        return params

    assert all(a.equal(b) for a, b in zip(run(True), run(False)))


def test_zeroing_along_where_the_step_cannot():
    class Plain(ampc.optim.Optimizer):
        def _step_group(self, group):
            for p in group["params"]:
                p.add_(p.grad, alpha=-1.0)

    p, q = ampc.nn.Parameter(ampc.zeros(3)), ampc.nn.Parameter(ampc.zeros(3))
    p.grad = ampc.ones(3)
    Plain([p], {}).step(zero_grad=True)
    assert p.tolist() == [-1] * 3 and p.grad.tolist() == [0] * 3
    p.grad = q.grad = ampc.ones(3)  # one gradient for two
    ampc.optim.SGD([p, q], lr=1.0).step(zero_grad=True)
    assert p.tolist() == [-2] * 3 and q.tolist() == [-1] * 3 and p.grad.tolist() == [0] * 3


@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adadelta"])
def test_a_first_step_in_float32_is_that_of_float64_but_for_rounding(name):
    """From 0, so that the step itself is seen; a rule has at most 16 roundings. What is left of 1 by a beta near it is among its numbers: taken
    from the rounded beta it would have 1e-5 of error."""
    steps = []
    grad = ampc.rand(1000) + 0.3
    for dtype in (ampc.float32, ampc.float64):
        p = ampc.zeros(1000, dtype=dtype, requires_grad=True)
        p.grad = grad.to(dtype)
        getattr(ampc.optim, name)([p], lr=0.01, **{} if name in ("RMSprop", "Adadelta") else {"betas": (0.9, 0.999)}).step()
        steps.append(p.detach().double())
    got, want = steps
    assert ((got - want).abs() <= 16 * ampc.finfo(ampc.float32).eps * want.abs()).all()


def test_many_groups_are_made_in_time_that_grows_as_they_do():
    """Each parameter in a group of its own, as for layer-wise rates: every group is looked at once, not once for each other."""
    looked = []

    class Counted(list):
        def __iter__(self):
            looked.append(len(self))
            return super().__iter__()

    params = [ampc.nn.Parameter(ampc.zeros(1)) for _ in range(50)]
    optimizer = ampc.optim.SGD([{"params": [p]} for p in params], lr=0.1)
    with pytest.raises(ValueError, match="more than once"):
        ampc.optim.SGD([{"params": [params[0]]}, {"params": [params[0]]}], lr=0.1)
    with pytest.raises(ValueError, match="more than once"):
        optimizer.add_param_group({"params": [params[7]]})
    optimizer.param_groups = Counted(optimizer.param_groups)
    optimizer.add_param_group({"params": [ampc.nn.Parameter(ampc.zeros(1))]})
    assert len(looked) == 1  # afterwards groups may have been changed by hand: all are looked at
    again = Counted()
    made = ampc.optim.SGD.__new__(ampc.optim.SGD)
    made.param_groups, made.defaults, made._known = again, {"lr": 0.1}, set()
    looked.clear()
    for p in params:
        made.add_param_group({"params": [p]})
    assert not looked and len(again) == 50


def test_a_state_that_lacks_something_is_an_error():
    p = ampc.ones(2, requires_grad=True)
    p.grad = ampc.ones(2)
    adam, sgd = ampc.optim.Adam([p], lr=0.1), ampc.optim.SGD([p], lr=0.1, momentum=0.9)
    adam.step()
    sgd.step()
    half = adam.state_dict()
    half["state"][0] = {k: v for k, v in half["state"][0].items() if k != "exp_avg_sq"}
    before = p.tolist()
    of_another = {**sgd.state_dict(), "param_groups": adam.state_dict()["param_groups"]}
    for saved in (half, of_another):
        other = ampc.optim.Adam([p], lr=0.1)
        other.load_state_dict(saved)
        with pytest.raises(KeyError, match="lacks .*exp_avg_sq"):
            other.step()
    assert p.tolist() == before


SMALL_RATE = {"lr": 1e-3}


@pytest.mark.parametrize("name, of", [("AdamW", "SGD"), ("SGD", "AdamW"), ("RMSprop", "Adam"), ("LBFGS", "SGD"), ("Adadelta", "Adagrad")])
def test_a_state_of_another_kind_of_optimizer_is_refused_when_it_is_loaded(torch, name, of):
    """torch raises the same KeyError later, at the step. Nothing of the other's options is taken."""
    p = ampc.ones(2, requires_grad=True)
    opt = getattr(ampc.optim, name)([p], **SMALL_RATE)
    saved = getattr(ampc.optim, of)([p], lr=0.5).state_dict()
    lacking = opt.param_groups[0].keys() - saved["param_groups"][0].keys()
    with pytest.raises(KeyError, match="lacks .*another kind of optimizer") as refused:
        opt.load_state_dict(saved)
    assert opt.param_groups[0]["lr"] == 1e-3

    q = torch.ones(2, requires_grad=True)
    theirs = getattr(torch.optim, name)([q], **SMALL_RATE)
    theirs.load_state_dict(getattr(torch.optim, of)([q], lr=0.5).state_dict())
    q.grad = torch.ones(2)
    with pytest.raises(KeyError) as later:
        theirs.step(lambda: q.sum())
    assert later.value.args[0] in lacking and repr(later.value.args[0]) in refused.value.args[0]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "RMSprop", "Adadelta", "Rprop", "ASGD", "Adafactor", "Muon", "LBFGS"])
def test_groups_have_the_options_of_torch(torch, name):
    """Also those that choose between torch's ways of stepping, which change nothing here: scripts ask for them, and print the optimizer."""
    for options in ({"lr": 0.1}, {"lr": 0.1, "foreach": False}, {"lr": 0.1, "fused": True}, {"lr": 0.1, "capturable": False}):
        if not options.keys() <= inspect.signature(getattr(torch.optim, name)).parameters.keys():
            continue
        ours, theirs = (getattr(lib.optim, name)([lib.ones(2, 2, requires_grad=True)], **options) for lib in (ampc, torch))
        assert {k: v for k, v in ours.defaults.items() if k != "rounding"} == theirs.defaults
        assert repr(ours) == repr(theirs)
        assert ours.state_dict()["param_groups"][0].keys() - {"rounding"} == theirs.state_dict()["param_groups"][0].keys()
    words = [inspect.signature(getattr(lib.optim, name)).parameters.keys() for lib in (torch, ampc)]
    assert words[0] <= words[1]  # scripts ask whether `fused` is among them
    if name in ("SGD", "Adam"):
        assert "rounding: kahan" in repr(getattr(ampc.optim, name)([ampc.ones(2, requires_grad=True)], lr=0.1, rounding="kahan"))


def test_a_checkpoint_of_an_older_version_loads():
    """It lacks options that came later; a class of a script may fill in its own."""
    p = ampc.ones(2, requires_grad=True)
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "NAdam", "Adagrad", "Adadelta", "Rprop"):
        opt = getattr(ampc.optim, name)([p], lr=0.1)
        saved = opt.state_dict()
        for later in ("foreach", "capturable", "maximize", "differentiable", "fused", "decoupled_weight_decay", "rounding"):
            saved["param_groups"][0].pop(later, None)
        saved["param_groups"][0]["lr"] = 0.25
        opt.load_state_dict(saved)
        assert opt.param_groups[0]["lr"] == 0.25 and opt.param_groups[0]["maximize"] is False

    class Mine(ampc.optim.Optimizer):
        def __setstate__(self, state):
            super().__setstate__(state)
            for group in self.param_groups:
                group.setdefault("factor", 2)

    mine = Mine([p], {"lr": 0.1, "factor": 3})
    mine.load_state_dict({"state": {}, "param_groups": [{"lr": 0.25, "params": [0]}]})
    assert mine.param_groups[0]["lr"] == 0.25 and mine.param_groups[0]["factor"] == 3


def test_a_loaded_state_has_the_dtype_of_a_fresh_one():
    def trained(dtype):
        p = ampc.ones(2, dtype=dtype, requires_grad=True)
        p.grad = ampc.ones(2, dtype=dtype)
        opt = ampc.optim.Adam([p], lr=0.1)
        opt.step()
        return p, opt

    for dtype, other in ((ampc.float64, ampc.float32), (ampc.float32, ampc.float64), (ampc.bfloat16, ampc.float64)):
        p, opt = trained(dtype)
        fresh = {k: getattr(v, "dtype", None) for k, v in opt.state[p].items()}
        opt.load_state_dict(trained(other)[1].state_dict())
        assert {k: getattr(v, "dtype", None) for k, v in opt.state[p].items()} == fresh
        opt.step()


def test_adam_with_decoupled_decay(torch):
    """Adam(decoupled_weight_decay=True) is AdamW, as torch's; AdamW stays itself with Adam's state."""
    ours, theirs = ampc.ones(3).requires_grad_(), torch.ones(3).requires_grad_()
    twin = ampc.ones(3).requires_grad_()
    steps = [ampc.optim.Adam([ours], 0.1, weight_decay=0.5, decoupled_weight_decay=True), torch.optim.Adam([theirs], 0.1, weight_decay=0.5, decoupled_weight_decay=True),
             ampc.optim.AdamW([twin], 0.1, weight_decay=0.5)]
    steps[2].load_state_dict(ampc.optim.Adam([ampc.ones(3)], 0.1, weight_decay=0.5).state_dict())
    for _ in range(3):
        for p, step in zip((ours, theirs, twin), steps):
            p.grad = p.detach() * 2
            step.step()
    assert ours.tolist() == pytest.approx(theirs.tolist(), abs=1e-6) and ampc.equal(ours, twin)
    assert steps[0].param_groups[0]["decoupled_weight_decay"] is True


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD"])
def test_differentiable_steps_have_a_way_out(name):
    with pytest.raises(NotImplementedError, match=f"{name}: .*functional_call"):
        getattr(ampc.optim, name)([ampc.ones(1)], lr=0.1, differentiable=True)


HOOKS = {
    "kept": "h = opt.register_step_pre_hook(f); note(opt._optimizer_step_pre_hooks[h.id] is f, len(opt._optimizer_step_post_hooks)); h.remove(); note(len(opt._optimizer_step_pre_hooks))",
    "steps": "opt.register_step_pre_hook(lambda o, a, k: note('before', a[0] is o, len(a), sorted(k))); opt.register_step_post_hook(lambda o, a, k: note('after', a[0] is o, len(a))); opt.step(); opt.step(None); opt.step(closure=None)",
    "own step": """
class Own(T.optim.Optimizer):
    def __init__(self, params): super().__init__(params, {"lr": 0.1})
    def step(self, closure=None): note("step", closure()); return 5
opt = Own([p])
opt.register_step_pre_hook(lambda o, a, k: ((o,), {"closure": lambda: 7})), opt.register_step_post_hook(lambda *a: note("after"))
note(opt.step(lambda: 3))""",
    "no pair": "opt.register_step_pre_hook(lambda *a: 3); opt.step()",
    "raises": "opt.register_step_pre_hook(lambda *a: 1 / 0); opt.register_step_post_hook(lambda *a: note('after')); opt.step()",
    "of all": """
handles = [M.register_optimizer_step_pre_hook(lambda *a: note("all before")), M.register_optimizer_step_post_hook(lambda *a: note("all after"))]
opt.register_step_pre_hook(lambda *a: note("before")), opt.register_step_post_hook(lambda *a: note("after"))
opt.step(), [h.remove() for h in handles], opt.step()""",
    "state dict": """
opt.register_state_dict_post_hook(lambda o, d: note(1, sorted(d))), opt.register_state_dict_post_hook(lambda o, d: {"x": 1}, prepend=True)
opt.register_state_dict_pre_hook(lambda o: note(3)), opt.register_state_dict_pre_hook(lambda o: note(4), prepend=True)
note(opt.state_dict())""",
    "load": """
d = T.optim.SGD([nn.Parameter(T.ones(1))], lr=7).state_dict()
opt.register_load_state_dict_pre_hook(lambda o, d: note(sorted(d))), opt.register_load_state_dict_pre_hook(lambda o, x: d, prepend=True)
opt.register_load_state_dict_post_hook(lambda o: note(o.param_groups[0]["lr"])), opt.register_load_state_dict_post_hook(lambda o: note(0), prepend=True)
opt.load_state_dict(opt.state_dict())""",
    "the group": "g = {'params': nn.Parameter(T.ones(2)), 'own': 1}; opt.add_param_group(g); note(g is opt.param_groups[1], g['lr'], type(g['params']))",
    "fused and foreach": "T.optim.Adam([p], fused=True, foreach=True)", "fused and foreach of SGD": "T.optim.SGD([p], lr=1, foreach=True, fused=True)",
    "fused and differentiable": "T.optim.AdamW([p], fused=True, differentiable=True)", "tensor lr": "T.optim.Adam([p], lr=T.tensor(0.1), foreach=True)",
    "mixed betas": "T.optim.Adam([p], betas=(T.tensor(0.9), 0.9))",
}


@pytest.mark.parametrize("what", HOOKS)
def test_hooks_and_options_as_torchs(torch, what):
    def outcome(library):
        notes = []
        p = library.nn.Parameter(library.ones(1))
        names = {"T": library, "nn": library.nn, "p": p, "opt": library.optim.SGD([p], lr=0.5), "f": lambda *a: None,
                 "M": importlib.import_module(f"{library.__name__}.optim.optimizer"), "note": lambda *seen: notes.append(repr(seen))}
        try:
            exec(HOOKS[what], names)
        except Exception as error:
            notes.append(type(error).__name__)
        return notes

    assert outcome(ampc) == outcome(torch)


@pytest.mark.parametrize("state, kind, words", [
    (lambda m, o: m.state_dict(), KeyError, r"has \['weight', 'bias'\] and lacks \['param_groups', 'state'\]; load what an optimizer's state_dict"),
    (lambda m, o: {"epoch": 3, "optim": o.state_dict(), "model": m.state_dict()}, KeyError, "lacks .*pass its part 'optim'"),
    (lambda m, o: {}, KeyError, r"has \[\] and lacks"), (lambda m, o: {"state": {}}, KeyError, r"lacks \['param_groups'\]"),
    (lambda m, o: {"param_groups": o.state_dict()["param_groups"]}, KeyError, r"lacks \['state'\]"),
    (lambda m, o: None, TypeError, "got NoneType"), (lambda m, o: "last.pt", TypeError, "got str"), (lambda m, o: o, TypeError, "got Adam"), (lambda m, o: [], TypeError, "got list")])
def test_a_state_that_is_no_optimizers_is_told_of(state, kind, words):
    model = ampc.nn.Linear(2, 2)
    optimizer = ampc.optim.Adam(model.parameters())
    before = repr(optimizer.state_dict())
    with pytest.raises(kind, match=words):
        optimizer.load_state_dict(state(model, optimizer))
    assert repr(optimizer.state_dict()) == before
