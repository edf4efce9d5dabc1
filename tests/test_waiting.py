"""Results that wait for the call that reads them: batch norm and ReLU, GELU and dropout, ReLU's gradient and batch norm's are one pass over memory
each, and nobody can tell but by the time: every number, node, dtype and hook is as of two passes."""

import gc
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from references import part

import ampc as torch
from ampc.selftest.running import entered

F, nn = torch.nn.functional, torch.nn
pytestmark = pytest.mark.cpu

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
SHAPES = [(8, 16, 16, 16), (5, 17, 33, 7), (6, 3, 1031), (16, 33, 8, 5), (64, 300), (4097, 5), (1, 2, 130, 129)]


def look(t):
    """Looks at t's memory: t is computed, if it waited."""
    t.data_ptr()


def leaf(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype).requires_grad_()


def ways_of(run):
    """What `run` gives, and which ways of waiting it went."""
    torch._C._reset_ways()
    result = run()
    return result, {name for name in entered() if name.startswith("waiting")}


def norm_and_relu(shape, dtype, *, seen, last=False, training=True, inplace=False, residual=False, threads=1):
    """Results and gradients of relu(batch_norm(x)). `seen`: somebody looks at what is between, both ways."""
    torch.manual_seed(0)
    channels, wide = shape[1], torch.float64 if dtype == torch.float64 else torch.float32
    x, other, slope = leaf(*shape, dtype=dtype), leaf(*shape, dtype=dtype), torch.randn(*shape).to(dtype)
    w, b = leaf(channels, dtype=wide), leaf(channels, dtype=wide)
    mean, var = torch.randn(channels).to(wide), torch.rand(channels).to(wide) + 0.5
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    y = F.batch_norm(x.to(memory_format=torch.channels_last) if last else x * 1, mean, var, w, b, training)
    if seen:
        look(y)
        y.register_hook(look)
    y = y + other if residual else y
    z = torch.relu_(y) if inplace else F.relu(y)
    (z if residual else z * 1).backward(slope)
    torch.set_num_threads(before)
    return [t.detach() for t in (z, x.grad, w.grad, b.grad, mean, var)]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batch_norm_and_relu(shape, dtype, threads):
    for last, training, inplace, residual in part([(a, b, c, d) for a in (0, 1) for b in (0, 1) for c in (0, 1) for d in (0, 1)], 4):
        how = {"last": bool(last) and len(shape) == 4, "training": bool(training), "inplace": bool(inplace), "residual": bool(residual)}
        apart = norm_and_relu(shape, dtype, seen=True, **how)
        once, ways = ways_of(lambda how=how: norm_and_relu(shape, dtype, seen=False, threads=threads, **how))
        assert all(torch.equal(a, b) for a, b in zip(apart, once)), how
        assert "waiting_read" in ways or (len(shape) == 2 and residual), how  # of few positions batch norm's result does not wait


def test_special_values_pass_alike():
    """nan, infinities, zeros of both signs and subnormal numbers, forward and as gradients."""
    odd = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, -1e-40, 6e-8, -6e-8, 1.0])
    for dtype in FLOATS:
        x = odd.to(dtype).repeat(20000).reshape(2, 2, 100, 500)
        mean, var = torch.zeros(2, dtype=torch.float64 if dtype == torch.float64 else torch.float32), None
        var = mean + 1
        found = []
        for seen in (True, False):
            a = x.clone().requires_grad_()
            y = F.batch_norm(a * 1, mean, var, None, None, False, 0.1, 0.0)
            if seen:
                look(y)
                y.register_hook(look)
            z = F.relu(y)
            z.backward(x.flip(3))
            found.append([z.detach(), a.grad])
        for one, two in zip(*found):
            assert one.double().numpy().tobytes() == two.double().numpy().tobytes(), dtype


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_and_dropout_draw_the_same_numbers(dtype, approximate):
    found = []
    for seen in (True, False):
        torch.manual_seed(3)
        x = leaf(33, 1031, dtype=dtype)

        def run(x=x, seen=seen):
            y = F.gelu(x, approximate=approximate)
            if seen:
                look(y)
            return F.dropout(y, 0.3)
        z, ways = ways_of(run)
        z.sum().backward()
        found.append([z.detach(), x.grad, torch.rand(3)])
        assert ("waiting_read" in ways) is not seen
    assert all(torch.equal(a, b) for a, b in zip(*found))
    kept = (found[1][0] != 0).float().mean().item()
    assert 0.68 < kept < 0.72


class Named(nn.BatchNorm2d):
    """A subclass: nothing but the operators matters."""


class Doubled(nn.ReLU):
    def forward(self, input):
        return super().forward(input) * 2


def sequential(kind="plain"):
    torch.manual_seed(1)
    norm = Named(8) if kind == "subclass" else nn.BatchNorm2d(8)
    relu = Doubled() if kind == "forward" else nn.ReLU(inplace=kind == "inplace")
    parts = [nn.Conv2d(3, 8, 3, padding=1), norm, relu]
    net = nn.Sequential(*parts, nn.Conv2d(8, 8, 3, padding=1), parts[1], parts[2]) if kind == "twice" else nn.Sequential(*parts)
    return net.eval() if kind == "evaluation" else net


def note(seen):
    return lambda *given: seen.append([t.detach().clone() for t in nested(given[1:])])


def nested(given):
    return [t for g in given for t in (nested(g) if isinstance(g, (tuple, list)) else [g]) if isinstance(t, torch.Tensor)]


def train(net, watch=None, dtype=None):
    """Result, gradients and buffers of one step, and what was seen on the way."""
    seen = []
    if watch:
        watch(net, seen)
    torch.manual_seed(2)
    x = torch.randn(4, 3, 24, 24, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is not None):
        y = net(x)
    y.float().square().mean().backward()
    return [y.detach(), x.grad, *[p.grad for p in net.parameters()], *net.buffers()], seen


def watch_between(net, seen):
    net[1].register_forward_hook(note(seen))


WATCHES = {
    "forward hook": watch_between,
    "forward hook of the next": lambda net, seen: net[2].register_forward_hook(note(seen)),
    "forward pre-hook": lambda net, seen: net[2].register_forward_pre_hook(note(seen)),
    "backward hook": lambda net, seen: net[1].register_full_backward_hook(note(seen)),
    "backward hook of the next": lambda net, seen: net[2].register_full_backward_hook(note(seen)),
    "backward pre-hook": lambda net, seen: net[1].register_full_backward_pre_hook(note(seen)),
    "retain_grad": lambda net, seen: net[1].register_forward_hook(lambda m, i, o: (o.retain_grad(), seen.append(o))[2:]  or None),
    "tensor's hook": lambda net, seen: net[1].register_forward_hook(lambda m, i, o: o.register_hook(lambda g: seen.append(g.clone())) and None),
}


@pytest.mark.parametrize("kind", ["plain", "inplace", "subclass", "forward", "twice", "evaluation"])
@pytest.mark.parametrize("low", [None, torch.bfloat16], ids=str)
def test_modules_in_a_sequential(kind, low):
    (apart, _), (once, ways) = train(sequential(kind), watch_between, low), ways_of(lambda: train(sequential(kind), dtype=low)[0])
    assert all(torch.equal(a, b) for a, b in zip(apart, once)) and "waiting_read" in ways


@pytest.mark.parametrize("watch", WATCHES)
def test_whoever_looks_between_sees_the_same(watch):
    """The same as of an operator at a time: numbers that NumPy makes of the same convolution."""
    net = sequential()
    plain, _ = train(sequential())
    found, seen = train(net, WATCHES[watch])
    assert len(seen) == 1 and all(torch.equal(a, b) for a, b in zip(plain, found))
    torch.manual_seed(2)
    x = torch.randn(4, 3, 24, 24, requires_grad=True)
    fresh = sequential()
    between = fresh[1](fresh[0](x))
    look(between)
    between.retain_grad()
    after = fresh[2](between)
    after.retain_grad()
    after.float().square().mean().backward()
    expected = {"forward hook": between, "forward hook of the next": after, "forward pre-hook": between, "backward pre-hook": between.grad,
                "backward hook of the next": between.grad, "retain_grad": between, "tensor's hook": between.grad}
    if watch == "backward hook":
        assert torch.equal(seen[0][-1], between.grad)
        return
    got = seen[0]
    if watch == "retain_grad":
        assert torch.equal(got.grad, between.grad)
    got = got if isinstance(got, torch.Tensor) else got[0] if watch != "forward hook of the next" else got[-1]
    if watch == "forward hook":
        got = seen[0][-1]
    assert torch.equal(got, expected[watch])


LOOKS = {
    "numpy": lambda y: y.detach().numpy().copy(),
    "dlpack": lambda y: np.from_dlpack(y.detach()).copy(),
    "buffer": lambda y: np.array(memoryview(y.detach()).tolist()),
    "tolist": lambda y: np.array(y.tolist()),
    "item": lambda y: np.array(y[-1, -1, -1, -1].item()),
    "view": lambda y: y.detach().view(-1).numpy().copy(),
    "operator": lambda y: (y.detach() * 1).numpy(),
    "storage": lambda y: np.array(y.detach().untyped_storage().tolist()),
    "clone": lambda y: y.detach().clone().numpy(),
    "repr": lambda y: np.array(sum(map(ord, repr(y.detach())))),
}


@pytest.mark.parametrize("how", LOOKS)
def test_every_way_to_look(how):
    x, w, b = torch.randn(2, 4, 50, 50), torch.randn(4), torch.randn(4)
    expected = F.batch_norm(x, None, None, w, b, True)
    look(expected)
    got, ways = ways_of(lambda: LOOKS[how](F.batch_norm(x, None, None, w, b, True)))
    assert "waiting_computed" in ways
    np.testing.assert_array_equal(got, LOOKS[how](expected))


def test_both_results_can_be_used():
    x = torch.randn(2, 4, 50, 50)
    expected = F.batch_norm(x, None, None, None, None, True)
    look(expected)
    y = F.batch_norm(x, None, None, None, None, True)
    z = F.relu(y)
    assert torch.equal(y - z, expected - expected.relu()) and torch.equal(y, expected)


def unread(x, w):
    return F.batch_norm(x, None, None, w, None, True)


CHANGES = {
    "in place": lambda x, w: x.add_(1),
    "from outside": None,  # by an array that shares x's memory
    "weight": lambda x, w: w.zero_(),
    "data": lambda x, w: setattr(x, "data", x.data * 0),
    "optimizer": lambda x, w: torch.optim.SGD([x], lr=1.0).step(),
    "set_": lambda x, w: x.set_(torch.zeros(3)),
    "resize": lambda x, w: x.untyped_storage().resize_(4),
    "moved": lambda x, w: x.untyped_storage().resize_(1 << 20),
    "deleted": lambda x, w: None,
}


@pytest.mark.parametrize("change", CHANGES)
def test_operands_may_change_meanwhile(change):
    x, w = torch.randn(2, 4, 50, 50), torch.rand(4)
    expected = F.relu(unread(x, w))
    x.grad = torch.ones_like(x)
    array = x.numpy() if change == "from outside" else None
    y = unread(x, w)
    if array is not None:
        array[...] = 0
    else:
        CHANGES[change](x, w)
    del x, w
    gc.collect()
    assert torch.equal(F.relu(y), expected)


def test_running_statistics_are_there_at_once():
    x, mean, var = torch.randn(2, 4, 50, 50), torch.zeros(4), torch.ones(4)
    y = F.batch_norm(x, mean, var, None, None, True, 1.0)
    np.testing.assert_allclose(mean.numpy(), x.numpy().mean((0, 2, 3)), rtol=1e-5, atol=1e-7)
    assert torch.equal(F.relu(y), F.relu(F.batch_norm(x, None, None, None, None, True)))


def test_other_threads_see_it_computed():
    """A thread looks at a result that waits, or changes what it is computed from, while another one reads it."""
    torch.manual_seed(0)
    x = torch.randn(8, 16, 32, 32)
    y = F.batch_norm(x, None, None, None, None, True)
    look(y)
    expected, wrong, stop = F.relu(y), [], threading.Event()

    def disturb():
        mine = torch.randn(16384)
        while not stop.is_set():
            mine.add_(1)
    others = [threading.Thread(target=disturb) for _ in range(2)]
    for t in others:
        t.start()
    for _ in range(100):
        mine = x.clone()
        z = F.batch_norm(mine, None, None, None, None, True)
        kept = []
        t = threading.Thread(target=lambda z=z, kept=kept: kept.append(z.numpy().copy()))
        t.start()
        r = F.relu(z)
        mine.zero_()
        t.join()
        if not torch.equal(r, expected) or not np.array_equal(kept[0], y.numpy()):
            wrong.append(1)
    stop.set()
    for t in others:
        t.join()
    assert not wrong


def test_results_of_threads_that_begin_to_wait_at_once():
    """One waits at a time, and kernels run outside the lock: what came to wait meanwhile is computed before another result waits."""
    operands = [torch.randn(200, 300) for _ in range(8)]
    expected = [F.gelu(x).numpy().copy() for x in operands]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(200):
            results = list(threads.map(F.gelu, operands))
            assert all(np.array_equal(y.numpy(), want) for y, want in zip(results, expected))


@pytest.mark.parametrize("make", [lambda x: F.batch_norm(x, None, None, None, None, True), F.gelu], ids=["batch_norm", "gelu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_reader_may_write_over_what_waits_is_made_of(make, dtype):
    """`out` shares memory with the input of what waits, though not with that itself."""
    n = 4 * 4 * 64 * 64
    memory = torch.randn(2 * n).to(dtype)
    x, out = memory[:n].view(4, 4, 64, 64), memory[n // 2:n // 2 + n].view(4, 4, 64, 64)
    expected = F.relu(make(x.clone()).clone())
    assert torch.equal(F.relu(make(x)), expected)
    assert torch.equal(torch.relu(make(x), out=out), expected)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no timer here")
@pytest.mark.parametrize("what", ["looks", "writes"])
def test_a_signal_handler_that_runs_while_it_is_read(what):
    """It looks at what waits, which is being written over, or writes what that is computed from."""
    torch.manual_seed(0)
    x = torch.randn(1 << 24, dtype=torch.float64)
    expected, threads, ran = torch.add(F.gelu(x).clone(), 1), torch.get_num_threads(), []

    def handle(*_):
        ran.append(y[0].item() if what == "looks" else x.zero_())
    y = F.gelu(x)
    before = signal.signal(signal.SIGALRM, handle)
    torch.set_num_threads(1)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.06)
        z = y.add_(1) if what == "looks" else torch.add(y, 1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        torch.set_num_threads(threads)
        signal.signal(signal.SIGALRM, before)
    assert ran and torch.equal(z, expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_computes_it_too():
    x = torch.randn(2, 4, 50, 50)
    expected = F.relu(F.batch_norm(x, None, None, None, None, True))
    y = F.batch_norm(x, None, None, None, None, True)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if torch.equal(F.relu(y), expected) else 1)
    assert os.waitpid(pid, 0)[1] == 0 and torch.equal(F.relu(y), expected)


def test_derivatives_of_every_order():
    torch.manual_seed(0)
    x, w, b = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 2, 64, 65), (2,), (2,)))

    def f(x, w, b):
        return F.relu(F.batch_norm(x * 1, None, None, w, b, True))
    along = [torch.randn(*t.shape, dtype=torch.float64) for t in (x, w, b)]
    slope, step = torch.randn(*x.shape, dtype=torch.float64), 1e-6
    grads = torch.autograd.grad(f(x, w, b), (x, w, b), slope, create_graph=False)
    graphed = torch.autograd.grad(f(x, w, b), (x, w, b), slope, create_graph=True)
    for plain, again in zip(grads, graphed):
        np.testing.assert_allclose(plain.numpy(), again.detach().numpy(), rtol=1e-9, atol=1e-9)
    slopes = [(f(*[t.detach() + sign * step * d for t, d in zip((x, w, b), along)]) * slope).sum().item() for sign in (1, -1)]
    there = sum((g * d).sum().item() for g, d in zip(grads, along))
    assert abs((slopes[0] - slopes[1]) / (2 * step) - there) < 1e-4 * (1 + abs(there))
    second = torch.autograd.grad([(g * d).sum() for g, d in zip(graphed[:2], along)], (x, w))

    def first(sign):
        moved = [(t.detach() + sign * step * d).requires_grad_() for t, d in zip((x, w), along)]
        return torch.autograd.grad(f(*moved, b), moved, slope)
    for mine, up, down in zip(second, first(1), first(-1)):
        np.testing.assert_allclose(mine.numpy(), (up - down).numpy() / (2 * step), rtol=1e-4, atol=1e-4)


def test_a_gradient_that_several_nodes_take():
    """It goes to batch norm and to a sum beside it: both see it."""
    found = []
    for seen in (True, False):
        torch.manual_seed(0)
        x, w = leaf(4, 8, 32, 32), leaf(8)
        y = F.batch_norm(x * 1, None, None, w, None, True)
        if seen:
            y.register_hook(look)
        z = F.relu(y + x)
        z.backward(torch.randn(4, 8, 32, 32))
        found.append((z.detach(), x.grad, w.grad))
    assert all(torch.equal(a, b) for a, b in zip(*found))


def test_a_gradient_that_waits_is_a_leafs():
    x = leaf(200, 200)
    F.relu(x).backward(torch.ones(200, 200))
    assert torch.equal(x.grad, (x.detach() > 0).float())
    F.relu(x).backward(torch.ones(200, 200))
    assert torch.equal(x.grad, 2 * (x.detach() > 0).float())


def test_nodes_and_dtypes_are_those_of_two_operators():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = F.batch_norm(leaf(2, 4, 50, 50), None, None, leaf(4), None, True)
        z = F.relu(y)
    assert "relu" in z.grad_fn.name().lower() and "batch_norm" in z.grad_fn.next_functions[0][0].name().lower().replace("batchnorm", "batch_norm")
    assert y.dtype == z.dtype == torch.float32


def test_watched_operators_do_not_wait():
    x = torch.randn(2, 4, 50, 50)
    with torch.explain() as e:
        _, ways = ways_of(lambda: F.relu(F.batch_norm(x, None, None, None, None, True)))
    assert not ways and {r.op for r in e.ran} == {"batch_norm", "relu"}


def test_every_allocation_may_fail():
    torch.manual_seed(0)
    x, w, slope = leaf(2, 4, 50, 50), leaf(4), torch.randn(2, 4, 50, 50)

    def run():
        x.grad = w.grad = None
        y = F.relu(F.batch_norm(x * 1, None, None, w, None, True))
        y.backward(slope)
        return [y.detach(), x.grad, w.grad]
    expected, n, failures = run(), 0, 0
    while True:
        n += 1
        torch._C._fail_alloc(n)
        try:
            result = run()
            break
        except MemoryError:
            failures += 1
        finally:
            torch._C._fail_alloc(0)
        assert all(torch.equal(a, b) for a, b in zip(run(), expected))
    assert failures > 5 and all(torch.equal(a, b) for a, b in zip(result, expected))


def test_nothing_is_kept_once_another_call_has_run():
    x = torch.randn(8, 16, 64, 64)
    x + 1
    gc.collect()
    before = torch._C._memory()["current"]
    for _ in range(5):
        F.relu(F.batch_norm(x, None, None, None, None, True))
        F.batch_norm(x, None, None, None, None, True)
    x.sum()
    assert torch._C._memory()["current"] <= before
