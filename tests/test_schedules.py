"""Schedules of learning rates, and L-BFGS, against torch's."""

import math
import pickle
import warnings

import numpy as np
import pytest
from where import ON_GPU

import ampc


def both(torch, groups=2, momentum=True):
    """The same optimizer of both libraries, its groups at 0.5 and 0.05."""
    made = []
    for T in (ampc, torch):
        params = [{"params": [T.nn.Parameter(T.zeros(2))], "lr": lr} for lr in (0.5, 0.05)[:groups]]
        made.append((T, T.optim.SGD(params, lr=0.1, momentum=0.9) if momentum else T.optim.Adagrad(params, lr=0.1)))
    return made


SCHEDULES = {
    "lambda": lambda S, o: S.LambdaLR(o, lambda n: 0.9**n), "lambdas": lambda S, o: S.LambdaLR(o, [lambda n: 0.9**n, lambda n: 1 / (n + 1)]),
    "multiplicative": lambda S, o: S.MultiplicativeLR(o, lambda n: 1 / (1 + n)),
    "step": lambda S, o: S.StepLR(o, 3, gamma=0.5), "milestones": lambda S, o: S.MultiStepLR(o, [2, 5, 5, 9], gamma=0.5),
    "constant": lambda S, o: S.ConstantLR(o, factor=0.25, total_iters=4), "linear": lambda S, o: S.LinearLR(o, 0.2, 0.9, total_iters=6),
    "linear default": lambda S, o: S.LinearLR(o), "exponential": lambda S, o: S.ExponentialLR(o, 0.8), "polynomial": lambda S, o: S.PolynomialLR(o, 7, power=2.0),
    "cosine": lambda S, o: S.CosineAnnealingLR(o, 6, eta_min=0.01), "cosine to 0": lambda S, o: S.CosineAnnealingLR(o, 5),
    "restarts": lambda S, o: S.CosineAnnealingWarmRestarts(o, 3, 2, eta_min=0.01), "equal restarts": lambda S, o: S.CosineAnnealingWarmRestarts(o, 4),
    "one cycle": lambda S, o: S.OneCycleLR(o, max_lr=[1.0, 0.3], total_steps=20), "three phases": lambda S, o: S.OneCycleLR(o, 1.0, epochs=4, steps_per_epoch=5, three_phase=True, anneal_strategy="linear"),
    "cyclic": lambda S, o: S.CyclicLR(o, [0.1, 0.01], 1.0, step_size_up=3, step_size_down=4),
    "cyclic, halved": lambda S, o: S.CyclicLR(o, 0.1, [1.0, 0.5], 2, mode="triangular2", base_momentum=[0.7, 0.8]),
    "cyclic, falling": lambda S, o: S.CyclicLR(o, 0.1, 1.0, 4, mode="exp_range", gamma=0.9, cycle_momentum=False),
    "cyclic by a function": lambda S, o: S.CyclicLR(o, 0.1, 1.0, 3, scale_fn=lambda n: 1 / (1 + n), scale_mode="iterations"),
    "sequence": lambda S, o: S.SequentialLR(o, [S.LinearLR(o, 0.1, total_iters=4), S.CosineAnnealingLR(o, 6), S.ExponentialLR(o, 0.5)], milestones=[4, 10]),
    "constant, then steps": lambda S, o: S.SequentialLR(o, [S.ConstantLR(o, 0.1, 3), S.StepLR(o, 2)], milestones=[3]),
    "chain, then steps": lambda S, o: S.SequentialLR(o, [S.ChainedScheduler([S.LinearLR(o, 0.1, total_iters=5), S.ConstantLR(o, 0.1, 5)]), S.StepLR(o, 2)], milestones=[5]),
    "sequence in a sequence": lambda S, o: S.SequentialLR(o, [S.SequentialLR(o, [S.LinearLR(o, 0.1), S.StepLR(o, 2)], milestones=[3]), S.StepLR(o, 3)], milestones=[8]),
    "sequence with restarts": lambda S, o: S.SequentialLR(o, [S.LinearLR(o, 0.1), S.CosineAnnealingWarmRestarts(o, 3)], milestones=[4]),
    "chain": lambda S, o: S.ChainedScheduler([S.ConstantLR(o, 0.5, 3), S.ExponentialLR(o, 0.9), S.CosineAnnealingLR(o, 8)]),
}


def rates(optimizer):
    return [[float(g["lr"]), float(g.get("momentum", 0))] for g in optimizer.param_groups]


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_torchs(torch, name):
    seen = []
    for T, opt in both(torch):
        schedule = SCHEDULES[name](T.optim.lr_scheduler, opt)
        rows = [rates(opt)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of a sequence in a sequence
            for _ in range(19):
                opt.step()
                schedule.step()
                rows.append(rates(opt))
        assert schedule.get_last_lr() == [lr for lr, _ in rows[-1]]
        seen.append(np.array(rows))
    assert np.allclose(seen[0], seen[1], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_goes_on_where_it_was(name):
    def fresh():
        opt = ampc.optim.SGD([{"params": [ampc.nn.Parameter(ampc.zeros(2))], "lr": lr} for lr in (0.5, 0.05)], lr=0.1, momentum=0.9)
        return opt, SCHEDULES[name](ampc.optim.lr_scheduler, opt)

    def go(opt, schedule, n):
        out = []
        for _ in range(n):
            opt.step()
            schedule.step()
            out.append(rates(opt))
        return out

    opt, schedule = fresh()
    go(opt, schedule, 7)
    assert not {"optimizer", "_seen"} & set(schedule.state_dict())  # what belongs to this process
    kept = pickle.dumps((opt.state_dict(), schedule.state_dict()))
    want = go(opt, schedule, 8)
    other, again = fresh()
    mine, its = pickle.loads(kept)
    other.load_state_dict(mine)
    again.load_state_dict(its)
    assert go(other, again, 8) == want


CONTINUED = {
    "lambda": lambda S, o, n: S.LambdaLR(o, lambda n: 0.9**n, last_epoch=n), "multiplicative": lambda S, o, n: S.MultiplicativeLR(o, lambda n: 1 / (1 + n), last_epoch=n),
    "step": lambda S, o, n: S.StepLR(o, 3, 0.5, last_epoch=n), "step due": lambda S, o, n: S.StepLR(o, 5, 0.5, last_epoch=n),
    "milestones": lambda S, o, n: S.MultiStepLR(o, [2, 5, 8], 0.5, last_epoch=n), "constant": lambda S, o, n: S.ConstantLR(o, 0.25, 7, last_epoch=n),
    "linear": lambda S, o, n: S.LinearLR(o, 0.2, 0.9, 9, last_epoch=n), "linear at its end": lambda S, o, n: S.LinearLR(o, 0.2, 0.9, 3, last_epoch=n),
    "exponential": lambda S, o, n: S.ExponentialLR(o, 0.8, last_epoch=n), "polynomial": lambda S, o, n: S.PolynomialLR(o, 12, 2.0, last_epoch=n),
    "cosine": lambda S, o, n: S.CosineAnnealingLR(o, 7, 0.01, last_epoch=n), "cosine at its lowest": lambda S, o, n: S.CosineAnnealingLR(o, 5, last_epoch=n),
    "restarts": lambda S, o, n: S.CosineAnnealingWarmRestarts(o, 20, 2, last_epoch=n), "one cycle": lambda S, o, n: S.OneCycleLR(o, 1.0, 20, last_epoch=n),
    "cyclic": lambda S, o, n: S.CyclicLR(o, 0.1, 1.0, 3, last_epoch=n),
}


@pytest.mark.parametrize("name", CONTINUED)
def test_a_new_schedule_that_continues_has_torchs_rates(torch, name):
    seen = []
    for T, opt in both(torch):
        rows = []
        for _ in range(3):  # the second and the third continue
            schedule = CONTINUED[name](T.optim.lr_scheduler, opt, schedule.last_epoch if rows else -1)  # noqa: F821
            for _ in range(4):
                rows.append(rates(opt))
                opt.step()
                schedule.step()
        seen.append(np.array(rows))
    assert np.allclose(seen[0], seen[1], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("options", [{}, {"mode": "max", "factor": 0.5, "patience": 1, "cooldown": 2}, {"threshold_mode": "abs", "threshold": 0.2, "patience": 0, "min_lr": [0.02, 0.01]},
                                     {"mode": "max", "threshold_mode": "abs", "patience": 2}, {"patience": 1, "eps": 0.02, "min_lr": 0.03}], ids=str)
def test_plateaus(torch, options):
    metrics = [3.0, 2.0, 2.0, 2.1, 1.9, 1.9, 1.95, 1.9, 1.89999, 1.8, 2.5, 2.6, math.nan, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    seen = []
    for T, opt in both(torch):
        schedule = T.optim.lr_scheduler.ReduceLROnPlateau(opt, **options)
        rows = []
        for m in metrics:
            schedule.step(T.tensor(m))
            rows.append(rates(opt))
        seen.append(rows)
    assert np.allclose(seen[0], seen[1], rtol=1e-12)


def test_a_plateau_lowers_groups_that_came_later(torch):
    """Its own function for that may be another one, which libraries put in its place."""
    seen = []
    for T, opt in both(torch):
        schedule = T.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0, min_lr=0.015)
        opt.add_param_group({"params": [T.nn.Parameter(T.zeros(1))], "lr": 0.4})
        rows = []
        for _ in range(4):
            schedule.step(1.0)
            rows.append([g["lr"] for g in opt.param_groups])
        for_each = T.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0, min_lr=[0.0] * len(opt.param_groups))
        for_each.step(1.0)
        opt.add_param_group({"params": [T.nn.Parameter(T.zeros(1))]})
        with pytest.raises(RuntimeError, match="min_lr"):
            for_each.step(1.0)
        schedule._reduce_lr = lambda epoch, opt=opt: opt.param_groups[-1].update(lr=float(epoch))
        schedule.step(1.0)
        seen.append([*rows, [g["lr"] for g in opt.param_groups], schedule.mode_worse, schedule.default_min_lr])
    for mine, theirs in zip(*seen):
        assert mine == pytest.approx(theirs, rel=1e-12)
    assert seen[0][0][-1] == 0.4 and seen[0][2][-1] < 0.4 and seen[0][4][-1] == 5


def test_cosine_with_warmup():
    opt = ampc.optim.SGD([ampc.nn.Parameter(ampc.zeros(1))], lr=2.0)
    schedule = ampc.optim.get_cosine_schedule_with_warmup(opt, 4, 12)
    seen = [opt.param_groups[0]["lr"]]
    for _ in range(12):
        opt.step()
        schedule.step()
        seen.append(opt.param_groups[0]["lr"])
    assert seen[:5] == [0, 0.5, 1.0, 1.5, 2.0] and seen[8] == pytest.approx(1.0) and seen[12] == 0


def test_restarts_take_fractions(torch):
    seen = []
    for T, opt in both(torch):
        schedule = T.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 3, 2)
        rows = []
        for e in (0.0, 0.5, 2.9, 3.0, 8.5, 9.0, 20.25):
            schedule.step(e)
            rows.append(rates(opt))
        seen.append(rows)
    assert np.allclose(seen[0], seen[1], rtol=1e-12)


@pytest.mark.parametrize("name", ["step", "milestones", "constant", "linear", "exponential", "polynomial", "cosine"])
def test_an_epoch_gives_torchs_rates_and_a_warning(torch, name):
    seen = []
    for T, opt in both(torch):
        schedule = SCHEDULES[name](T.optim.lr_scheduler, opt)
        opt.step()
        for epoch in (5, 0, 2, 11):
            with pytest.warns(UserWarning, match="epoch"):
                schedule.step(epoch)
            seen.append(rates(opt))
    assert np.allclose(seen[:4], seen[4:], rtol=1e-12, atol=1e-15)


def test_a_plateau_warns_of_an_epoch_too(torch):
    for T, opt in both(torch):
        schedule = T.optim.lr_scheduler.ReduceLROnPlateau(opt)
        with pytest.warns(UserWarning, match="epoch"):
            schedule.step(1.0, 7)
        assert schedule.last_epoch == 7


def test_schedules_of_other_packages_find_torchs_names(torch):
    for T, opt in both(torch):
        class Own(T.optim.lr_scheduler.LRScheduler):
            within = []

            def get_lr(self):
                self.within.append(self._get_lr_called_within_step)
                return self.base_lrs

            def _get_closed_form_lr(self):
                return [base * self.last_epoch for base in self.base_lrs]

        schedule = Own(opt)
        opt.step()
        before = [base * 3 for base in schedule.base_lrs]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the epoch
            schedule.step(3)
        assert schedule.get_last_lr() == before and not schedule._get_lr_called_within_step
        schedule.get_lr()
        assert Own.within == [True, False]


@pytest.mark.parametrize("make", [lambda T, o, v: T.optim.lr_scheduler.CyclicLR(o, v[0], v[1], base_momentum=v[2], max_momentum=v[3]),
                                  lambda T, o, v: T.optim.lr_scheduler.OneCycleLR(o, v[1], 10, base_momentum=v[2], max_momentum=v[3]),
                                  lambda T, o, v: T.optim.swa_utils.SWALR(o, v[1])], ids=["cyclic", "one cycle", "swa"])
def test_tensors_that_options_are_given_as_stay_the_callers(torch, make):
    seen = []
    for T in (ampc, torch):
        given = [T.tensor(v, dtype=T.float64) for v in (0.1, 0.2, 0.8, 0.9)]
        opt = T.optim.SGD([T.nn.Parameter(T.ones(1))], lr=given[0], momentum=0.5)
        schedule = make(T, opt, given)
        for value in given[1:]:
            value.mul_(0.5)
        for _ in range(4):
            opt.step()
            schedule.step()
            seen.append([float(opt.param_groups[0][k]) for k in ("lr", "momentum")])
    assert np.allclose(seen[:4], seen[4:], rtol=1e-9)


def test_errors_and_warnings():
    S, opt = ampc.optim.lr_scheduler, ampc.optim.SGD([ampc.nn.Parameter(ampc.ones(1))], lr=0.1)
    with pytest.raises(TypeError, match="expected an Optimizer, got int"):
        S.StepLR(3, 1)
    with pytest.raises(KeyError, match="initial_lr"):
        S.StepLR(ampc.optim.SGD([ampc.nn.Parameter(ampc.ones(1))], lr=0.1), 1, last_epoch=3)
    for make in (lambda: S.LambdaLR(opt, [abs, abs]), lambda: S.ConstantLR(opt, 2.0), lambda: S.LinearLR(opt, 0.0), lambda: S.OneCycleLR(opt, 1.0),
                 lambda: S.OneCycleLR(opt, 1.0, 10, pct_start=2), lambda: S.CosineAnnealingWarmRestarts(opt, 0), lambda: S.ReduceLROnPlateau(opt, "most"),
                 lambda: S.ReduceLROnPlateau(opt, factor=1.0), lambda: S.SequentialLR(opt, [S.StepLR(opt, 1)], [3]), lambda: S.SequentialLR(opt, [], []),
                 lambda: S.ChainedScheduler([S.ReduceLROnPlateau(opt)]), lambda: S.OneCycleLR(ampc.optim.Adagrad([ampc.nn.Parameter(ampc.ones(1))]), 1.0, 5),
                 lambda: S.CyclicLR(opt, 0.1, 1.0, mode="square"), lambda: S.CyclicLR(opt, [0.1, 0.2], 1.0),
                 lambda: S.CyclicLR(ampc.optim.Adagrad([ampc.nn.Parameter(ampc.ones(1))]), 0.1, 1.0)):
        with pytest.raises(ValueError):
            make()
    cycle = S.OneCycleLR(opt, 1.0, 2)
    with pytest.warns(UserWarning, match="before the first optimizer.step"):
        cycle.step()
    cycle.step()
    with pytest.raises(ValueError, match="step 3 of 2"):
        cycle.step()
    # an optimizer that defines its step itself has stepped, too
    class Own(ampc.optim.Optimizer):
        def step(self, closure=None):
            """Mine."""

    own = Own([ampc.nn.Parameter(ampc.ones(1))], {"lr": 0.1})
    assert own.step.__doc__ == "Mine."
    schedule = S.StepLR(own, 1)
    own.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule.step()
    # nor of a step that a scaler left out, which is another matter
    p = ampc.nn.Parameter(ampc.ones(1))
    opt, scaler = ampc.optim.SGD([p], lr=0.1), ampc.amp.GradScaler(init_scale=4.0)
    schedule = S.StepLR(opt, 1)
    scaler.scale((p * float("inf")).sum()).backward()
    scaler.step(opt)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        schedule.step()
    assert [w.category for w in caught] == ([] if ON_GPU else [ampc.doctor.MisuseWarning])


# -- L-BFGS --------------------------------------------------------------------------------------------------------------


def rosenbrock(T, x):
    return ((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2).sum()


@pytest.mark.parametrize("options", [{"line_search_fn": "strong_wolfe"}, {"lr": 0.002, "max_iter": 30}, {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 7},
                                     {"lr": 0.5, "line_search_fn": "strong_wolfe", "max_eval": 9}], ids=str)
def test_lbfgs_walks_as_torchs(torch, options):
    seen = []
    for T in (ampc, torch):
        x, y = (T.nn.Parameter(T.tensor(v, dtype=T.float64)) for v in ([-1.2, 1.0, 0.5], [[0.3, -0.7]]))
        opt, calls = T.optim.LBFGS([x, y], **options), []

        def closure(x=x, y=y, opt=opt, calls=calls, T=T):
            opt.zero_grad()
            loss = rosenbrock(T, x) + (y**4).sum()
            loss.backward()
            calls.append(loss.item())
            return loss

        for _ in range(2):  # later, near the end, what rounding makes of the last digits grows
            opt.step(closure)
        seen.append((len(calls), np.concatenate([x.detach().cpu().numpy(), y.detach().cpu().numpy().ravel(), [opt.state[x]["n_iter"], opt.state[x]["func_evals"]]])))
    assert seen[0][0] == seen[1][0] and np.allclose(seen[0][1], seen[1][1], rtol=1e-6, atol=1e-9)


def test_lbfgs_takes_a_gradient_of_zeros(torch):
    for T in (ampc, torch):
        x = T.nn.Parameter(T.ones(3))
        opt = T.optim.LBFGS([x], tolerance_grad=-math.inf)
        loss = T.tensor([10.0])
        assert float(opt.step(lambda loss=loss: loss)) == 10 and x.tolist() == [1, 1, 1]


def test_lbfgs_finds_the_minimum_and_needs_a_closure():
    x = ampc.nn.Parameter(ampc.tensor([0.2, 1.0, 2.0, 0.5], dtype=ampc.float64))
    opt = ampc.optim.LBFGS([x], line_search_fn="strong_wolfe", max_iter=200, tolerance_change=1e-14)

    def closure():
        opt.zero_grad()
        loss = rosenbrock(ampc, x)
        loss.backward()
        return loss

    before = opt.step(closure).item()
    assert before > 50 and closure().item() < 1e-13  # gradients of 1e-7, a least curvature of some 0.1
    with pytest.raises(TypeError, match="closure"):
        opt.step()
    with pytest.raises(ValueError, match="line_search_fn"):
        ampc.optim.LBFGS([x], line_search_fn="newton")
    with pytest.raises(ValueError, match="one parameter group"):
        ampc.optim.LBFGS([{"params": [x]}, {"params": [ampc.nn.Parameter(ampc.ones(1))]}])


def test_lbfgs_under_a_scaler():
    """Gradients are unscaled after every closure, so the walk is that of an unscaled one."""
    ends = []
    for scaled in (False, True):
        x = ampc.nn.Parameter(ampc.tensor([-1.2, 1.0, 0.5]))
        opt, scaler = ampc.optim.LBFGS([x], line_search_fn="strong_wolfe"), ampc.amp.GradScaler(init_scale=256.0, enabled=scaled)

        def closure(x=x, opt=opt, scaler=scaler):
            opt.zero_grad()
            loss = rosenbrock(ampc, x)
            scaler.scale(loss).backward()
            return loss

        for _ in range(3):
            scaler.step(opt, closure)
            scaler.update()
        ends.append(x.detach())
    assert (ends[0] - ends[1]).abs().max().item() < 1e-4 and (ends[1] - 1).abs().max().item() < 0.2


def test_a_group_that_came_later_needs_a_new_scheduler():
    opt = ampc.optim.SGD([ampc.ones(1, requires_grad=True)], lr=0.1)
    scheduler = ampc.optim.lr_scheduler.LambdaLR(opt, lambda epoch: 0.5)
    opt.add_param_group({"params": [ampc.ones(1, requires_grad=True)]})
    with pytest.raises(ValueError, match="1 rates for 2 groups"):
        scheduler.step()


@pytest.mark.parametrize("three", [False, True])
def test_one_cycle_goes_on_from_the_state_that_torch_saved(three):
    torch = pytest.importorskip("torch")

    def made(lib, total):
        opt = lib.optim.SGD([lib.nn.Parameter(lib.ones(1))], lr=1.0, momentum=0.9)
        return opt, lib.optim.lr_scheduler.OneCycleLR(opt, 0.5, total, three_phase=three, anneal_strategy="linear" if total == 20 else "cos")

    (theirs, one), (ours, other) = made(torch, 20), made(ampc, 11)
    for _ in range(3):
        theirs.step()
        one.step()
    ours.load_state_dict({**theirs.state_dict(), "state": {}})
    other.load_state_dict(one.state_dict())
    for _ in range(15):
        theirs.step(), one.step()
        ours.step(), other.step()
        assert other.get_last_lr() == pytest.approx(one.get_last_lr(), rel=1e-12)
        assert ours.param_groups[0]["momentum"] == pytest.approx(theirs.param_groups[0]["momentum"], rel=1e-12)
