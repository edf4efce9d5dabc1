"""Optimizers against torch's, parameter groups, state."""

import copy

import pytest

import ampc

OPTIONS = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.5, "dampening": 0.3, "maximize": True}), ("Adam", {}), ("Adam", {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True}),
    ("AdamW", {"lr": 0.01}), ("AdamW", {"lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-3, "maximize": True}),
    ("Adagrad", {}), ("Adagrad", {"lr": 0.1, "lr_decay": 0.3, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "maximize": True}),
    ("RMSprop", {}), ("RMSprop", {"momentum": 0.9, "weight_decay": 0.1}), ("RMSprop", {"centered": True, "alpha": 0.9}),
    ("RMSprop", {"centered": True, "momentum": 0.5, "maximize": True}), ("Adadelta", {}), ("Adadelta", {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1}),
    ("NAdam", {}), ("NAdam", {"weight_decay": 0.1, "momentum_decay": 0.1}), ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
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
            m.grad = (m.detach() * 0.3 + step).clone()
            t.grad = torch.tensor(m.grad.numpy(force=True).copy())
        if step == 2:
            mine[1].grad = theirs[1].grad = None
        a.step()
        b.step()
    exact = dtype if name != "NAdam" else "float32"  # in which torch keeps NAdam's product of momenta
    tol = 64 * ampc.finfo(getattr(ampc, exact)).eps
    for m, t in zip(mine, theirs):
        assert abs(m.detach() - ampc.tensor(t.detach().numpy(force=True))).max().item() <= tol * t.abs().max().item()


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


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adadelta", "NAdam", "Adamax"])
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
