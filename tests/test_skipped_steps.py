"""Nothing of a step that a GradScaler skips is seen: no code runs around it, and parameters, states and counts are as if it had not been. On a GPU,
too, where only updates in C are left to the GPU; test_cuda_training.py has which."""

import math

import pytest

import ampc
from ampc.amp import GradScaler


def iterate(p, opt, scaler, grad=1.0):
    opt.zero_grad()
    scaler.scale(p.sum()).backward()
    if not math.isfinite(grad):  # in backward alone: the loss is finite
        p.grad.fill_(grad)
    scaler.step(opt)
    scaler.update()


class Halves(ampc.optim.SGD):
    """Goes on after the step."""

    def step(self, closure=None):
        super().step(closure)
        with ampc.no_grad():
            for p in self.param_groups[0]["params"]:
                p.mul_(0.5)


class OtherOptions(ampc.optim.AdamW):
    """Changes a part of the step."""

    def _options(self, group):
        group["lr"] *= 0.5
        return super()._options(group)


def halve(opt, *_):
    with ampc.no_grad():
        opt.param_groups[0]["params"][0].mul_(0.5)


def hooked(register):
    def make(params):
        opt = ampc.optim.SGD(params, lr=0.5)
        return opt, getattr(opt, register)(halve).remove
    return make


def hooked_for_all(register):
    return lambda params: (ampc.optim.SGD(params, lr=0.5), getattr(ampc.optim.optimizer, register)(halve).remove)


def patched(params):
    opt = ampc.optim.SGD(params, lr=0.5)
    own = opt.step
    opt.step = lambda: (own(), halve(opt))
    return opt, None


def patched_class(of):
    def make(params):
        own, opt = of.step, ampc.optim.SGD(params, lr=0.5)
        inherited = "step" not in vars(of)
        of.step = lambda self, *args, **kwargs: (own(self, *args, **kwargs), halve(self))
        return opt, lambda: delattr(of, "step") if inherited else setattr(of, "step", own)
    return make


CODE_AROUND = {
    "a subclass": lambda params: (Halves(params, lr=0.5), None),
    "a part of the step": lambda params: (OtherOptions(params, lr=0.5), None),
    "a hook before": hooked("register_step_pre_hook"),
    "a hook after": hooked("register_step_post_hook"),
    "a hook before all": hooked_for_all("register_optimizer_step_pre_hook"),
    "a hook after all": hooked_for_all("register_optimizer_step_post_hook"),
    "another step": patched,
    "another step of the class": patched_class(ampc.optim.SGD),
    "another step of every class": patched_class(ampc.optim.Optimizer),
}


@pytest.fixture
def undo():
    last = []
    yield last
    for each in last:
        each()


@pytest.mark.parametrize("around", CODE_AROUND)
def test_code_around_a_skipped_step_does_not_run(around, undo):
    p = ampc.nn.Parameter(ampc.tensor([1.0, 2.0]))
    opt, remove = CODE_AROUND[around]([p])
    undo += [remove] if remove else []
    s = GradScaler("cpu", init_scale=8.0)
    for bad in (math.inf, math.nan):
        iterate(p, opt, s, bad)
        assert p.tolist() == [1, 2] and opt.param_groups[0]["lr"] == 0.5 and (opt._n_applied, len(opt.state)) == (0, 0)
    iterate(p, opt, s)
    assert p.tolist() != [1, 2] and opt._n_applied == 1
    if around != "a part of the step":
        assert p.tolist() in ([0.25, 0.75], [0.0, 0.5])  # halved after the step, or before
    before, kept = p.tolist(), opt.param_groups[0]["lr"]
    iterate(p, opt, s, math.inf)
    assert (p.tolist(), opt.param_groups[0]["lr"], opt._n_applied) == (before, kept, 1)


EVERY = [("SGD", {}), ("SGD", {"momentum": 0.9, "dampening": 0.5}), ("SGD", {"momentum": 0.9, "nesterov": True}), ("Adam", {"amsgrad": True}),
         *((name, {}) for name in ("AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "RMSprop", "Adadelta", "Rprop", "ASGD", "Adafactor"))]


def kept_by(opt):
    """All that its state has, as numbers; of a step's count on a GPU, too."""
    return {id(p): {name: v.tolist() if isinstance(v, ampc.Tensor) else v for name, v in state.items()} for p, state in opt.state.items()}


@pytest.mark.parametrize("dtype, rounding", [("float32", "nearest"), ("bfloat16", "nearest"), ("bfloat16", "master"), ("bfloat16", "kahan")])
@pytest.mark.parametrize("name, options", EVERY)
def test_a_skipped_step_leaves_the_state_as_it_was(name, options, dtype, rounding):
    """A first one makes none: what state begins with may change before the first step that is made, as rates and weights do."""
    if rounding != "nearest" and name in ("ASGD", "Adafactor"):
        pytest.skip("they have no rounding")
    options = options if rounding == "nearest" else {**options, "rounding": rounding}

    def train(skip):
        p = ampc.nn.Parameter(ampc.tensor([1.0, 2.0], dtype=getattr(ampc, dtype)))
        opt, s = getattr(ampc.optim, name)([p], lr=0.25, **options), GradScaler("cpu", init_scale=8.0)
        for bad in (True, False, True, False):
            if not bad:
                with ampc.no_grad():
                    p.mul_(0.5)
                opt.param_groups[0]["lr"] *= 0.5
                iterate(p, opt, s)
            elif skip:
                before, kept = p.tolist(), kept_by(opt)
                iterate(p, opt, s, math.inf)
                assert p.tolist() == before and kept_by(opt) == kept
        return p.tolist(), list(kept_by(opt).values())

    assert train(True) == train(False)


def test_a_skipped_step_zeroes_gradients_where_that_is_asked_for():
    for kind in (ampc.optim.SGD, ampc.optim.AdamW, Halves):
        p = ampc.nn.Parameter(ampc.ones(2))
        opt, s = kind([p], lr=0.5), GradScaler("cpu", init_scale=8.0)
        for _ in range(2):
            s.scale(p.sum()).backward()
            p.grad.fill_(math.inf)
            s.step(opt, **({} if kind is Halves else {"zero_grad": True}))
            s.update()
            assert p.tolist() == [1, 1] and (kind is Halves or p.grad.tolist() == [0, 0])
            opt.zero_grad()


def test_a_step_that_its_closure_ends_counts_as_skipped():
    p = ampc.nn.Parameter(ampc.ones(2))
    opt, s = ampc.optim.SGD([p], lr=0.5), GradScaler("cpu", init_scale=8.0)
    seen = []
    opt.register_step_post_hook(lambda *_: seen.append(True))

    def closure(grad):
        opt.zero_grad()
        loss = p.sum()
        s.scale(loss).backward()
        p.grad.fill_(grad)
        return loss

    for grad, applied, skipped in ((math.inf, 0, 1), (8.0, 1, 1), (math.nan, 1, 2)):
        s.step(opt, lambda grad=grad: closure(grad))
        s.update()
        assert (opt._n_applied, opt._n_skipped, len(seen)) == (applied, skipped, applied)


def test_keras_scaled_optimizer_leaves_the_same():
    p = ampc.nn.Parameter(ampc.ones(2))
    opt = ampc.keras.optimizers.LossScaleOptimizer(Halves([p], lr=0.5), initial_scale=8.0)
    assert not opt.apply_gradients([(ampc.full((2,), math.inf), p)]) and p.tolist() == [1, 1] and opt.loss_scale == 4
    assert opt.apply_gradients([(ampc.ones(2), p)]) and p.tolist() == [0.25, 0.25]


def test_of_several_optimizers_each_is_skipped_by_itself():
    p, q = ampc.nn.Parameter(ampc.ones(1)), ampc.nn.Parameter(ampc.ones(1))
    a, b, s = Halves([p], lr=1.0), ampc.optim.AdamW([q], lr=1.0), GradScaler("cpu", init_scale=2.0)
    for bad, other in ((p, q), (q, p)):
        before, moved = bad.item(), other.item()
        for _ in range(2):  # of two micro-batches
            (s.scale(p.sum()) + s.scale(q.sum())).backward()
        bad.grad.fill_(math.inf)
        s.unscale_(a)
        s.step(a)
        s.step(b)
        s.update()
        assert bad.item() == before and other.item() != moved
        a.zero_grad()
        b.zero_grad()
