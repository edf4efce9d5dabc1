"""Packed copies of float32 weights: kept where products of few rows read a weight again and again, never stale, and the same results bit for
bit as without them."""

import ctypes
import gc
import signal
import threading

import pytest
from test_autocast import WRITES

import ampc
import ampc.nn.functional as F

pytestmark = pytest.mark.cpu

OFTEN = 3  # uses since the last write from which on a copy is kept


@pytest.fixture(autouse=True)
def nothing_kept():
    ampc.clear_autocast_cache()
    yield
    ampc.clear_autocast_cache()


@pytest.fixture
def layer():
    return ampc.nn.Linear(70, 40)


def copies():
    return ampc.amp.weight_copy_stats()["copies"]


def fresh(f):
    """What f gives where no copy is kept."""
    ampc.set_autocast_cache_enabled(False)
    try:
        return f()
    finally:
        ampc.set_autocast_cache_enabled(True)


def often(f):
    with ampc.no_grad():
        return [f() for _ in range(OFTEN + 1)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("weight", [(40, 70), (17, 33), (256, 256), (300, 1030), (64, 7000)], ids=str)
@pytest.mark.parametrize("rows", [17, 32, 100, 256])
def test_results_are_the_same_bit_for_bit(rows, weight, threads):
    before = ampc.get_num_threads()
    ampc.set_num_threads(threads)
    try:
        w, b = ampc.randn(*weight).requires_grad_(), ampc.randn(weight[0])
        x, g = ampc.randn(rows, weight[1]), ampc.randn(rows, weight[0])
        for f in (lambda: F.linear(x, w, b), lambda: ampc.mm(g, w)):
            with ampc.no_grad():
                want = fresh(f)
            held = copies()
            assert all(y.equal(want) for y in often(f)) and copies() == held + 1
    finally:
        ampc.set_num_threads(before)


def test_a_batch_of_several_dimensions_has_as_many_rows(layer):
    x = ampc.randn(4, 5, 70)
    ys = often(lambda: layer(x))
    assert copies() == 1 and ys[0].equal(ys[-1]) and ys[0].shape == (4, 5, 40)


@pytest.mark.parametrize("rows", [1, 16, 257])
def test_other_products_keep_nothing(rows, layer):
    x = ampc.randn(rows, 70)
    with ampc.no_grad():
        want = fresh(lambda: layer(x))
    assert all(y.equal(want) for y in often(lambda: layer(x))) and copies() == 0


def test_what_is_no_weight_is_not_kept(layer):
    x, plain = ampc.randn(32, 70), ampc.randn(40, 70)
    often(lambda: F.linear(x, plain))
    often(lambda: F.linear(x.double(), layer.weight.double()))
    often(lambda: F.linear(x[:, :3], ampc.randn(5, 3).requires_grad_()))
    often(lambda: fresh(lambda: layer(x)))
    assert copies() == 0


def step(net, x, batches):
    for part in x.chunk(batches):
        net(part).square().sum().backward()


def test_training_keeps_copies_only_where_steps_are_far_apart():
    """Forward and backward read a weight once in each layout. Batches that accumulate read it again."""
    def train(batches, cached):
        ampc.manual_seed(0)
        ampc.set_autocast_cache_enabled(cached)
        net, most = ampc.nn.Sequential(ampc.nn.Linear(48, 64), ampc.nn.ReLU(), ampc.nn.Linear(64, 40)), 0
        opt, x = ampc.optim.SGD(net.parameters(), lr=1e-3), ampc.randn(160, 48)
        for _ in range(3):
            opt.zero_grad()
            step(net, x, batches)
            most = max(most, copies())
            opt.step()
        return [p.detach().clone() for p in net.parameters()], most

    try:
        for batches, kept in ((1, 0), (2, 0), (5, 3)):
            (ours, most), (anew, none) = train(batches, True), train(batches, False)
            assert (most, none) == (kept, 0) and all(a.equal(b) for a, b in zip(ours, anew))
            ampc.clear_autocast_cache()
    finally:
        ampc.set_autocast_cache_enabled(True)


def test_an_optimizers_step_does_not_renew_them(layer):
    x, opt = ampc.randn(32, 70), ampc.optim.SGD(layer.parameters(), lr=0.1)
    often(lambda: layer(x))
    before = ampc.amp.weight_copy_stats()["renewed"]
    layer(x).sum().backward()
    opt.step()
    assert ampc.amp.weight_copy_stats()["renewed"] == before
    with ampc.no_grad():
        y = layer(x)
        assert copies() == 0 and y.equal(fresh(lambda: layer(x)))  # outdated ones go


MORE_WRITES = {
    "load_state_dict": lambda p: load(p), "half of it": lambda p: p[:20].mul_(2), "zero_": lambda p: p.zero_(),
    "foreach": lambda p: ampc._foreach_add_([p], 1.0), "out": lambda p: ampc.mul(p, 2, out=p), "init": lambda p: ampc.nn.init.normal_(p),
}


def load(p):
    holder = ampc.nn.Module()
    holder.weight = p
    holder.load_state_dict({"weight": p.detach() + 1})


@pytest.mark.parametrize("write", [*WRITES, *MORE_WRITES])
def test_a_copy_is_never_stale(layer, write):
    x = ampc.randn(32, 70)
    before = often(lambda: layer(x))[-1]
    assert copies() == 1
    with ampc.no_grad():
        {**WRITES, **MORE_WRITES}[write](layer.weight)
        assert not layer(x).equal(before)
        want = fresh(lambda: layer(x))
        assert all(y.equal(want) for y in often(lambda: layer(x)))


def test_memory_that_others_may_write_is_not_kept(layer):
    x = ampc.randn(32, 70)
    often(lambda: layer(x))
    array = layer.weight.detach().numpy(force=True)
    array[:] = 1
    ys = often(lambda: layer(x))
    array[:] = 2
    with ampc.no_grad():
        assert not layer(x).equal(ys[-1]) and layer(x).equal(fresh(lambda: layer(x)))


def test_limits_of_bytes(layer):
    x, limit = ampc.randn(32, 70), ampc.amp.weight_copy_stats()["limit"]
    ampc.amp.set_weight_copy_limit(100)
    try:
        often(lambda: layer(x))
        assert copies() == 0
    finally:
        ampc.amp.set_weight_copy_limit(limit)
    large = ampc.zeros(2900, 2900).requires_grad_()  # more than 32 MiB, and so would its copy be
    often(lambda: F.linear(ampc.zeros(32, 2900), large))
    assert copies() == 0


@pytest.mark.slow  # half a gigabyte
def test_copies_in_float32_take_a_quarter_of_a_gigabyte_at_most():
    layers, x = [ampc.zeros(2048, 2048).requires_grad_() for _ in range(17)], ampc.zeros(17, 2048)
    for w in layers:
        often(lambda w=w: F.linear(x, w))
    assert copies() == 16 and ampc.amp.weight_copy_bytes() == 256 << 20
    del layers[:2], w
    gc.collect()
    often(lambda: F.linear(x, layers[-1]))
    assert copies() == 15


def test_a_copy_dies_with_the_weight(layer):
    x = ampc.randn(32, 70)
    often(lambda: layer(x))
    assert copies() == 1
    del layer.weight
    gc.collect()
    assert copies() == 0 and ampc.amp.weight_copy_bytes() == 0


def test_threads_and_writes_between():
    """Products run without the GIL; what was written meanwhile is not kept as if it were new."""
    w, x, wrong, over = ampc.randn(512, 512).requires_grad_(), ampc.randn(32, 512), [], threading.Event()

    def read():
        with ampc.no_grad():
            while not over.is_set():
                F.linear(x, w)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for t in readers:
        t.start()
    with ampc.no_grad():
        for i in range(60):
            w.fill_(float(i))
            y = [F.linear(x, w) for _ in range(OFTEN + 2)]
            if not all(one.equal(fresh(lambda: F.linear(x, w))) for one in y):
                wrong.append(i)
    over.set()
    for t in readers:
        t.join()
    assert not wrong


def test_interrupts_leave_no_half_packed_copy():
    w, x = ampc.randn(1024, 1024).requires_grad_(), ampc.randn(32, 1024)

    def interrupt(number, frame):
        raise KeyboardInterrupt

    handler, happened = signal.signal(signal.SIGALRM, interrupt), 0
    try:
        for i in range(100):
            try:
                with ampc.no_grad():
                    w.mul_(-1)
                    signal.setitimer(signal.ITIMER_REAL, 1e-4 * (1 + i % 20))
                    for _ in range(1000):
                        F.linear(x, w)
            except KeyboardInterrupt:
                happened += 1
            with ampc.no_grad():
                assert F.linear(x, w).equal(fresh(lambda: F.linear(x, w)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert happened == 100


@pytest.mark.parametrize("early", [True, False], ids=["asked for before", "asked for after"])
def test_who_has_the_address_may_write(early):
    """As in torch, what is written at data_ptr() is what products read."""
    weight, x = ampc.randn(64, 64, requires_grad=True), ampc.randn(32, 64)
    address = weight.data_ptr() if early else 0
    often(lambda: F.linear(x, weight))
    assert copies() == (not early)
    ctypes.memset(address or weight.data_ptr(), 0, 64 * 64 * 4)
    assert not F.linear(x, weight).any()
