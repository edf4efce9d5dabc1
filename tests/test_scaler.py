"""GradScaler: torch's surface and rules, and what torch gets wrong."""

import math
import pickle

import pytest

import ampc
from ampc.amp import GradScaler


def make(**options):
    p = ampc.nn.Parameter(ampc.tensor([1.0, 2.0]))
    return p, ampc.optim.SGD([p], lr=0.5), GradScaler("cpu", **{"init_scale": 8.0, **options})


def iterate(p, opt, scaler, grad=1.0):
    opt.zero_grad()
    scaler.scale((p * grad).sum()).backward()
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
    p, opt, s = make()
    for _ in range(300):
        iterate(p, opt, s, math.nan)
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
    (s.scale(p.sum()) + s.scale((q * math.inf).sum())).backward()
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
