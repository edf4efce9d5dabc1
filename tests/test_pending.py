"""Unscaling and clipping leave a factor with the gradient's memory, which the optimizer's pass multiplies in. Nobody else may see
that: every way to look at a gradient, or to change it, shows what torch shows."""

import copy
import ctypes
import gc
import io
import math
import pickle
import threading

import numpy as np
import pytest
from where import DEVICE, ON_GPU

import ampc
from ampc.amp import GradScaler

on_cpu = pytest.mark.skipif(ON_GPU, reason="of the CPU")
on_gpu = pytest.mark.skipif(not ON_GPU, reason="needs --device sim or cuda")

VALUES = np.array([[1.5, -2.0, 0.25], [8.0, 0.0, -1e-3]], dtype=np.float32)
SCALE = 1024.0


@pytest.fixture(autouse=True)
def nothing_waits():
    """Tests count the gradients that wait, so none may be left of a test that ran before in this process."""
    gc.collect()
    assert pending() == 0


def host(t):
    return t.numpy(force=True)


def waiting():
    """A parameter whose gradient in memory is 1024 times VALUES, unscaled; and what aliased it before that."""
    p = ampc.nn.Parameter(ampc.zeros(2, 3))
    scaler, opt = GradScaler(DEVICE, init_scale=SCALE), ampc.optim.SGD([p], lr=0.5)
    scaler.scale((p * ampc.tensor(VALUES)).sum()).backward()
    assert np.array_equal(host(p.grad).copy(), VALUES * SCALE)
    p.grad = p.grad.clone()  # memory that nobody has seen: what was exported does not wait
    before = {"alias": p.grad.view(-1), "slice": p.grad[1:, :2], "detached": p.grad.detach(), "transposed": p.grad.t()}
    scaler.unscale_(opt)
    return p, opt, scaler, before


def pending():
    return ampc._C._pending()


def test_it_waits_and_the_step_does_not_end_that():
    p, opt, scaler, _ = waiting()
    assert pending() == 1
    scaler.step(opt)
    assert pending() == 1 and np.array_equal(host(p), -0.5 * VALUES)
    assert p.grad.tolist() == VALUES.tolist() and pending() == 0  # what is seen after the step, too
    _, _, _, before = waiting()
    assert pending() == 1
    del before, _
    assert pending() == 0


def from_address(g):
    return np.ctypeslib.as_array(ctypes.cast(g.data_ptr(), ctypes.POINTER(ctypes.c_float)), (2, 3)).copy()


def as_others_see_it(g):
    class Other:
        __cuda_array_interface__ = g.__cuda_array_interface__

    return host(ampc.as_tensor(Other()))


READERS = {
    "numpy": host, "tolist": lambda g: g.tolist(), "items": lambda g: [[x.item() for x in row] for row in g],
    "pickle": lambda g: host(pickle.loads(pickle.dumps(g))), "deepcopy": lambda g: host(copy.deepcopy(g)), "clone": lambda g: host(g.clone()),
    "data": lambda g: host(g.data), "add": lambda g: host(g + 0), "matmul": lambda g: host(g @ ampc.eye(3)),
    "in place": lambda g: host(g.mul_(1)), "cat": lambda g: host(ampc.cat([g[:1], g[1:]])), "gather": lambda g: host(g[[0, 1]]),
    "copied": lambda g: host(ampc.zeros(2, 3).copy_(g)), "out": lambda g: host(ampc.add(g, 0, out=ampc.empty(2, 3))),
    "assigned": lambda g: host(_assign(g)), "double": lambda g: host(g.double()), "where": lambda g: host(ampc.where(g == g, g, 0.0)),
    "bytes": lambda g: host(g.view(ampc.int32)).view(np.float32), "repr": lambda g: np.array(eval(repr(g), {"tensor": lambda values, **notes: values})),
    "strided": lambda g: host(g.as_strided((2, 3), (3, 1))), "fills": lambda g: host(g.fill_(0).copy_(ampc.tensor(VALUES))),
    "other device": lambda g: host(g.to("cpu")), "dlpack": lambda g: host(ampc.from_dlpack(g)),
}
ONLY_CPU = {
    "array": np.asarray, "numpy's dlpack": np.from_dlpack, "buffer": lambda g: np.frombuffer(memoryview(g), np.float32).reshape(2, 3),
    "interface": lambda g: np.array(g.__array__()), "address": from_address,
}
ONLY_GPU = {"cuda interface": as_others_see_it, "sorted": lambda g: host(g.sort().values.gather(1, g.argsort().argsort())), "pinned": lambda g: host(g.cpu().pin_memory())}
READERS.update(ONLY_GPU if ON_GPU else ONLY_CPU)


def _assign(g):
    t = ampc.zeros(2, 3)
    t[:] = g
    return t


@pytest.mark.parametrize("reader", READERS)
def test_whoever_looks_sees_it_unscaled(reader):
    p, _, _, _ = waiting()
    assert pending() == 1
    seen = np.array(READERS[reader](p.grad), dtype=np.float64)
    assert np.allclose(seen, VALUES, rtol=0 if reader != "repr" else 1e-3, atol=0) and pending() == 0
    assert p.grad.tolist() == VALUES.tolist()


@pytest.mark.parametrize("way, want", [("alias", VALUES.reshape(-1)), ("slice", VALUES[1:, :2]), ("detached", VALUES), ("transposed", VALUES.T)])
def test_what_was_taken_before(way, want):
    _, _, _, before = waiting()
    assert pending() == 1 and before[way].tolist() == want.tolist()
    before[way].add_(1)
    assert before[way].tolist() == (want + 1).tolist()


def test_a_write_through_an_alias_counts_in_the_step():
    p, opt, scaler, before = waiting()
    before["alias"][0] = 100.0
    scaler.step(opt)
    assert p[0, 0].item() == -50 and p[0, 1].item() == 1.0


def test_memory_that_others_see_does_not_wait():
    p = ampc.nn.Parameter(ampc.zeros(2, 3))
    p.grad = ampc.tensor(VALUES * SCALE)
    seen = ampc.from_dlpack(p.grad)
    ampc._C._scale_all([p.grad], 1 / SCALE)
    assert pending() == 0 and np.array_equal(host(seen), VALUES)
    p.grad = ampc.tensor(VALUES)
    p.grad.data_ptr()
    ampc._C._scale_all([p.grad], 2.0)
    assert pending() == 0
    whole = ampc.ones(4, 3)
    p.grad = whole[:2]  # a part of memory
    ampc._C._scale_all([p.grad], 2.0)
    assert pending() == 0 and whole.sum().item() == 18
    half = ampc.ones(3, dtype=ampc.bfloat16)
    ampc._C._scale_all([half], 1 / 3)
    assert pending() == 0


def test_bytes_seen_as_another_dtype_are_settled_first():
    g = ampc.ones(4)
    wide = g.view(ampc.float64)
    ampc._C._scale_all([g], 2.0)
    assert pending() == 1
    twos = np.full(4, 2, np.float32).view(np.float64)
    assert ampc._C._grad_stats([wide])[0, 0].item() == float((twos**2).sum()) and pending() == 0
    ampc._C._scale_all([g], 2.0)
    ampc._C._scale_all([wide], 1.0)
    assert wide.tolist() == np.full(4, 4, np.float32).view(np.float64).tolist() and g.tolist() == [4.0] * 4
    p = ampc.nn.Parameter(ampc.zeros(2, dtype=ampc.float64))
    ampc._C._scale_all([g], 0.5)
    p.grad = wide
    ampc.optim.SGD([p], lr=1.0).step()
    assert p.tolist() == (-twos).tolist()


def norm_of(p):
    return math.sqrt(float((VALUES.astype(np.float64) ** 2).sum()))


@pytest.mark.parametrize("scaled", [True, False])
def test_clipping(scaled):
    p, opt, scaler, aliases = waiting()
    aliases.clear()
    if not scaled:
        p.grad, scaler = ampc.tensor(VALUES).clone(), GradScaler(DEVICE, enabled=False)
    total = ampc.nn.utils.clip_grad_norm_([p], 1.0)
    assert pending() == 1 and abs(total.item() - norm_of(p)) <= 1e-6 * norm_of(p)
    scaler.step(opt)
    want = VALUES / (norm_of(p) + 1e-6)
    assert pending() == 1 and np.allclose(host(p), -0.5 * want, rtol=3e-7, atol=0) and np.allclose(host(p.grad), want, rtol=3e-7, atol=0)
    assert abs(ampc.nn.utils.get_total_norm([p.grad]).item() - 1) < 1e-5


def test_the_norm_of_what_waits():
    p, _, _, _ = waiting()
    assert abs(ampc.nn.utils.get_total_norm([p.grad]).item() - norm_of(p)) < 1e-6
    ampc._C._scale_all([p.grad], 2.0)
    assert abs(ampc.nn.utils.get_total_norm([p.grad]).item() - 2 * norm_of(p)) < 2e-6 and pending() == 1
    assert ampc.nn.utils.get_total_norm([p.grad], math.inf).item() == 16 and pending() == 0


def test_accumulation_after_unscaling():
    p, opt, scaler, _ = waiting()
    (p * ampc.tensor(VALUES)).sum().backward()  # of a micro-batch that was not scaled
    assert np.array_equal(host(p.grad), 2 * VALUES)


@pytest.mark.parametrize("make", [lambda p: ampc.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: ampc.optim.AdamW(p, lr=0.1)])
def test_two_optimizers_share_a_parameter(make):
    results = []
    for settle in (False, True):
        p = ampc.nn.Parameter(ampc.ones(2, 3))
        one, two, scaler = make([p]), make([p]), GradScaler(DEVICE, init_scale=SCALE)
        for _ in range(3):
            p.grad = None
            scaler.scale((p * ampc.tensor(VALUES)).sum()).backward()
            for opt in (one, two):
                scaler.unscale_(opt)  # torch unscales again, too
                if settle:
                    p.grad.tolist()
                scaler.step(opt)
            scaler.update()
        results.append(host(p))
    assert np.allclose(results[0], results[1], rtol=1e-6) and not np.array_equal(results[0], np.ones((2, 3)))


def test_an_optimizer_in_python():
    class Plain(ampc.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        @ampc.no_grad()
        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                p.add_(p.grad, alpha=-0.5)

    p, _, scaler, _ = waiting()
    scaler.update()
    opt = Plain([p])
    p.grad = ampc.tensor(VALUES * SCALE).clone()
    scaler.step(opt)
    assert np.array_equal(host(p), -0.5 * VALUES)


def test_hooks_and_the_order_of_things():
    p, opt, scaler, _ = waiting()
    seen = []
    opt.register_step_pre_hook(lambda *a: seen.append(p.grad.tolist()))
    scaler.step(opt)
    assert seen == [VALUES.tolist()] and np.array_equal(host(p), -0.5 * VALUES)
    opt.zero_grad(set_to_none=False)
    assert not p.grad.any() and pending() == 0


def test_saving_a_gradient():
    p, _, _, _ = waiting()
    buffer = io.BytesIO()
    pickle.dump({"grad": p.grad, "part": p.grad[0]}, buffer)
    buffer.seek(0)
    back = pickle.load(buffer)
    assert back["grad"].tolist() == VALUES.tolist() and back["part"].tolist() == VALUES[0].tolist()


def test_a_look_from_another_thread_during_a_step():
    """Never half of one and half of the other: the step, and whoever looks, see the same gradient."""
    n = 3_000_000
    p = ampc.nn.Parameter(ampc.zeros(n))
    opt = ampc.optim.SGD([p], lr=1.0)
    for _ in range(10):
        p.grad = ampc.full((n,), 4.0)
        with ampc.no_grad():
            p.zero_()
        ampc._C._scale_all([p.grad], 0.25)
        seen = []
        thread = threading.Thread(target=lambda s=seen: s.append(p.grad.sum().item()))
        thread.start()
        opt.step()
        thread.join()
        assert seen == [float(n)] and p.min().item() == p.max().item() == -1.0


def test_gradients_of_1e20_have_a_norm():
    grads = [ampc.full((1000,), 1e20), ampc.full((7, 3), -1e-30)]
    assert abs(ampc.nn.utils.get_total_norm(grads).item() / (1e20 * math.sqrt(1000)) - 1) < 1e-6
    table = ampc._C._grad_stats([*grads, ampc.tensor([math.inf, -math.inf, math.nan, 0.0, 3.0, -4.0, 1e-6])], 2.0)
    assert table[2].tolist()[1:] == [8.0, 2.0, 1.0, 1.0, 1.0] and table[0, 5].item() == 0
    assert table[1].tolist()[4] == 21 and table[0, 1].item() == float(np.float32(1e20) * 2)
    for dtype in (ampc.float16, ampc.bfloat16, ampc.float64):
        t = ampc.tensor([[1.0, -2.0, 3e4], [math.nan, math.inf, 1e-5]], dtype=dtype)[:, ::1]
        for view in (t, t[:, ::2], t.t()):
            row, want = ampc._C._grad_stats([view], 1.5)[0].tolist(), host((view * 1.5).double())
            finite = np.isfinite(want)
            assert row[1] == np.abs(want[finite]).max() and row[2:4] == [np.isinf(want).sum(), np.isnan(want).sum()]
            assert row[5] == 1 + np.argmin(finite.ravel()) and row[4] == (1 if view.numel() == 6 or view.shape == (2, 2) else 0)
