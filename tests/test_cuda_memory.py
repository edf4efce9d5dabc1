"""CUDA's streams, events, memory and errors, faults injected by the simulator included."""

import gc
import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from where import ON_GPU, SIMULATED, settled, simulated, simulator

import ampc

pytestmark = pytest.mark.skipif(not ON_GPU, reason="needs --device sim or cuda")


# -- streams and events ------------------------------------------------------------------------------------------------------


def test_streams_and_events():
    side = ampc.cuda.Stream()
    x = ampc.ones(1000)
    assert ampc.cuda.current_stream() == ampc.cuda.default_stream() and ampc.cuda.default_stream().cuda_stream == 0
    side.wait_stream(ampc.cuda.current_stream())
    with ampc.cuda.stream(side):
        assert ampc.cuda.current_stream() == side
        y = x * 3
        done = side.record_event()
    assert ampc.cuda.current_stream() != side
    done.wait()
    z = y + 1
    y.record_stream(ampc.cuda.current_stream())
    assert z.tolist() == [4.0] * 1000 and done.query() and side.query()
    start, end = ampc.cuda.Event(enable_timing=True), ampc.cuda.Event(enable_timing=True)
    with pytest.raises(ValueError, match="recorded"):
        start.elapsed_time(end)
    start.record()
    x.exp()
    end.record()
    if SIMULATED:  # whose work waits until it must be done
        with pytest.raises(RuntimeError, match=r"the GPU has not come to both events yet; call synchronize\(\) of the later one"):
            start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) > 0
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(done)
    if ampc.cuda.device_count() > 1:
        elsewhere = ampc.cuda.Stream("cuda:1").record_event(ampc.cuda.Event(enable_timing=True))
        with pytest.raises(RuntimeError, match="on cuda:0 and cuda:1, whose clocks differ; record both on one GPU"):
            start.elapsed_time(elsewhere)


@simulated
def test_a_missing_wait_shows():
    """What a stream did not wait for has not happened yet."""
    side = ampc.cuda.Stream()
    x = ampc.full((4,), 7.0)
    ampc.cuda.synchronize()
    with ampc.cuda.stream(side):
        x.mul_(2)
    assert x.tolist() == [7.0] * 4  # the default stream does not wait for others
    ampc.cuda.current_stream().wait_stream(side)
    assert x.tolist() == [14.0] * 4


def test_memory_of_another_stream_is_not_reused_early():
    side = ampc.cuda.Stream()
    ampc.cuda.empty_cache()
    x = ampc.full((1000,), 3.0)
    address = x.data_ptr()
    side.wait_stream(ampc.cuda.current_stream())
    with ampc.cuda.stream(side):
        y = x * 2
    x.record_stream(side)
    del x
    other = ampc.zeros(1000)  # may not take x's place before the side stream has read it
    assert not SIMULATED or other.data_ptr() != address
    side.synchronize()
    assert y.tolist() == [6.0] * 1000
    assert other.sum().item() == 0


def passed_on(side, f, *inputs):
    """f on another stream, whose work backward must wait for by itself."""
    side.wait_stream(ampc.cuda.current_stream())
    with ampc.cuda.stream(side):
        return f(*inputs)


def test_backward_waits_for_the_streams_of_forward():
    x, w, first, second = ampc.rand(1000), ampc.rand(1000, requires_grad=True), ampc.cuda.Stream(), ampc.cuda.Stream()
    ampc.cuda.synchronize()
    loss = passed_on(first, lambda: (w * x).exp().sum()) * 2 + passed_on(second, lambda: (w * x).exp().sum())
    loss.backward()
    np.testing.assert_allclose(w.grad.cpu().numpy(), (3 * x * (w * x).exp()).detach().cpu().numpy(), rtol=1e-6)


def test_what_backward_has_read_is_not_overwritten_on_the_streams_of_forward():
    x, w, side = ampc.rand(1000), ampc.rand(1000, requires_grad=True), ampc.cuda.Stream()
    (grad,) = ampc.autograd.grad(passed_on(side, lambda: (w * x).exp().sum()), w)
    with ampc.cuda.stream(side):  # takes the memory of what was saved
        others = [ampc.full((1000,), float("nan")) for _ in range(8)]
    side.synchronize()
    np.testing.assert_allclose(grad.cpu().numpy(), (x * (w * x).exp()).detach().cpu().numpy(), rtol=1e-6)
    assert all(o.isnan().all().item() for o in others)


def test_a_capture_does_not_wait_for_the_streams_of_a_forward_before_it():
    x, w, side, g = ampc.rand(100), ampc.rand(100, requires_grad=True), ampc.cuda.Stream(), ampc.cuda.CUDAGraph()
    loss = passed_on(side, lambda: (w * x).exp().sum())
    with ampc.cuda.graph(g):
        (grad,) = ampc.autograd.grad(loss, w)
    g.replay()
    np.testing.assert_allclose(grad.cpu().numpy(), (x * (w * x).exp()).detach().cpu().numpy(), rtol=1e-6)


@pytest.mark.filterwarnings("ignore::ampc.doctor.PerformanceNote")
def test_a_weights_copy_is_not_read_on_a_stream_that_did_not_make_it():
    layer, x, streams = ampc.nn.Linear(64, 64), ampc.rand(8, 64), [ampc.cuda.Stream() for _ in range(3)]
    ampc.cuda.synchronize()
    results = []
    for side in streams:
        with ampc.cuda.stream(side), ampc.autocast("cuda", dtype=ampc.float16), ampc.no_grad():
            results.append(layer(x))
    for side, result in zip(reversed(streams), reversed(results)):
        side.synchronize()
        assert result.equal(results[-1])


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_tables_of_resampling_are_there_for_every_stream(mode):
    x, streams, results = ampc.rand(1, 1, 6, 6), [ampc.cuda.Stream() for _ in range(2)], []
    ampc.cuda.synchronize()
    for side in streams:
        with ampc.cuda.stream(side):
            results.append(ampc.nn.functional.interpolate(x, size=(11, 11), mode=mode))
    streams[1].synchronize()
    later = results[1].cpu()
    streams[0].synchronize()
    assert later.equal(results[0].cpu())


def test_pinned_memory():
    x = ampc.arange(1000.0, device="cpu")
    p = x.pin_memory()
    assert p.is_pinned() and not x.is_pinned() and p.pin_memory() is p and p.equal(x) and ampc.tensor([1.0], device="cpu", pin_memory=True).is_pinned()
    with pytest.raises(RuntimeError, match="pin_memory"):
        x.cuda().pin_memory()
    there = p.to("cuda", non_blocking=True)
    back = ampc.zeros(1000, device="cpu").pin_memory()
    back.copy_(there, non_blocking=True)
    ampc.cuda.synchronize()
    assert back.equal(x)


# -- memory ----------------------------------------------------------------------------------------------------------------------


def test_statistics():
    gc.collect()
    ampc.cuda.synchronize()
    ampc.cuda.empty_cache()
    before = ampc.cuda.memory_allocated()
    ampc.cuda.reset_peak_memory_stats()
    x = ampc.zeros(1 << 18)
    assert ampc.cuda.memory_allocated() == before + (1 << 20) and ampc.cuda.memory_reserved() >= 1 << 20
    del x
    assert ampc.cuda.memory_allocated() == before and ampc.cuda.max_memory_allocated() == before + (1 << 20)
    ampc.cuda.reset_max_memory_allocated()
    assert ampc.cuda.max_memory_allocated() == before
    stats = ampc.cuda.memory_stats()
    assert stats["active_bytes.all.current"] == stats["allocated_bytes.all.current"] == before and stats["reserved_bytes.all.current"] == ampc.cuda.memory_reserved()
    text = ampc.cuda.memory_summary()
    assert "cached" in text and len({len(line) for line in text.splitlines()}) == 1 and "held" in ampc.cuda.memory_summary(abbreviated=True)
    left, total = ampc.cuda.mem_get_info()
    assert 0 < left <= total
    calls = stats["num_device_alloc"]
    for _ in range(5):
        ampc.zeros(1 << 18)
    assert ampc.cuda.memory_stats()["num_device_alloc"] <= calls + 1


def test_empty_cache_gives_everything_back():
    gc.collect()
    keep = ampc.zeros(10)
    for n in (10, 1000, 1 << 18, 3 << 20, 5 << 20):
        ampc.zeros(n)
    ampc.cuda.empty_cache()
    held = ampc.cuda.memory_reserved()
    del keep
    ampc.cuda.empty_cache()
    assert ampc.cuda.memory_reserved() <= held and ampc.cuda.memory_reserved() < held + (2 << 20)
    if SIMULATED and ampc.cuda.memory_allocated() == 0:
        assert ampc.cuda.memory_reserved() == 0 and simulator("blocks") == 0


def test_pieces_join_again():
    """Blocks freed in any order become whole pieces, so nothing fragments for good."""
    gc.collect()
    ampc.cuda.empty_cache()
    before = ampc.cuda.memory_stats()["segment.all.current"]
    rng = np.random.default_rng(3)
    for _ in range(20):
        some = [ampc.zeros(int(n)) for n in rng.integers(1, 400000, 20)]
        while some:
            some.pop(int(rng.integers(len(some))))
    ampc.cuda.empty_cache()
    assert ampc.cuda.memory_stats()["segment.all.current"] <= before


def test_out_of_memory_leaves_all_usable():
    total = ampc.cuda.mem_get_info()[1]
    with pytest.raises(ampc.cuda.OutOfMemoryError, match=r"asked for .* in use and .* cached by this process, .* free of.*; a smaller batch") as e:
        ampc.empty(total, dtype=ampc.float32)
    assert isinstance(e.value, RuntimeError) and ampc.OutOfMemoryError is ampc.cuda.OutOfMemoryError
    assert ampc.ones(3).sum().item() == 3
    assert ampc.cuda.get_per_process_memory_fraction() == 1.0
    ampc.cuda.set_per_process_memory_fraction((ampc.cuda.memory_reserved() + (8 << 20)) / total)
    assert 0 < ampc.cuda.get_per_process_memory_fraction(0) < 1
    try:
        with pytest.raises(ampc.cuda.OutOfMemoryError, match="held to"):
            ampc.empty(16 << 20)
        assert ampc.ones(3).sum().item() == 3
    finally:
        ampc.cuda.set_per_process_memory_fraction(1.0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        ampc.cuda.set_per_process_memory_fraction(2)


def test_private_pool():
    pool = ampc.cuda.MemPool()
    x = ampc.zeros(1000)
    place = x.data_ptr()
    del x
    with ampc.cuda.use_mem_pool(pool):
        inside = ampc.zeros(1000)
        assert inside.data_ptr() != place
        with pytest.raises(RuntimeError, match="already"), ampc.cuda.use_mem_pool(ampc.cuda.MemPool()):
            pass
        mine = inside.data_ptr()
        del inside
        again = ampc.zeros(1000)
        assert again.data_ptr() == mine
    assert ampc.zeros(1000).data_ptr() != mine
    del again, pool
    gc.collect()
    ampc.cuda.empty_cache()


@pytest.mark.skipif(not ON_GPU or ampc.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_pools_memory_of_each_gpu_is_everybodys_when_it_is_gone():
    ampc.cuda.empty_cache()
    held, pool = ampc.cuda.memory_reserved(1), ampc.cuda.MemPool()
    for i in range(2):
        with ampc.cuda.use_mem_pool(pool, i):
            ampc.ones(1000, device=f"cuda:{i}")
    del pool
    gc.collect()
    ampc.cuda.empty_cache()
    assert ampc.cuda.memory_reserved(1) == held


# -- storages of another size --------------------------------------------------------------------------------------------------------


def test_a_view_that_grows_still_shares_its_memory():
    t = ampc.arange(6.0)
    v = t[2:]
    assert v.resize_(6)[:4].tolist() == [2, 3, 4, 5] and v._base is t and t.untyped_storage().nbytes() == 32
    v.fill_(7)
    assert t.tolist() == [0, 1, 7, 7, 7, 7] and t.resize_(8).tolist() == [0, 1] + [7] * 6 and t.is_cuda


def test_resizing_a_storage_keeps_what_tensors_read():
    t = ampc.arange(6.0)
    s = t.untyped_storage()
    assert s.resizable()
    for n in (0, 24, 100, 10_000, 0, 20_000, 40, 24, 3, 100_000):
        s.resize_(n)
        assert s.nbytes() == n and t.tolist() == [0, 1, 2, 3, 4, 5] and t.data_ptr() == s._address
    t.add_(1)
    assert ampc.empty(0).set_(s, 0, (6,)).tolist() == [1, 2, 3, 4, 5, 6]
    with pytest.raises(RuntimeError, match="of its device that is large enough"):
        ampc._C._storage_move(s, ampc.UntypedStorage(10**6, device="cpu"))
    held = ampc.arange(6.0)
    taken = ampc.from_dlpack(held)  # which holds the address
    with pytest.raises(RuntimeError, match="resize_"):
        held.untyped_storage().resize_(100)
    assert taken.tolist() == [0, 1, 2, 3, 4, 5]


def test_memory_that_was_grown_is_given_back():
    gc.collect()
    before = ampc.cuda.memory_allocated()
    t = ampc.ones(1000)
    for n in (5000, 20_000, 10):
        t.resize_(n)
    assert t.tolist() == [1.0] * 10 and ampc.cuda.memory_allocated() >= before + 80_000
    del t
    gc.collect()
    assert ampc.cuda.memory_allocated() == before


# -- errors --------------------------------------------------------------------------------------------------------------------------


def test_a_bad_index_names_operator_and_tensor():
    x = ampc.arange(10.0)
    for act, text in ((lambda: x[ampc.tensor([3, 12])], "index on the GPU: index 12 in `indices` is out of range for a size of 10"),
                      (lambda: x.gather(0, ampc.tensor([-11])), "gather on the GPU: index -11 in `index`"),
                      (lambda: ampc.nn.functional.embedding(ampc.tensor([7]), x.view(5, 2)), "embedding on the GPU: index 7 in `index`.*size of 5"),
                      (lambda: x.index_add(0, ampc.tensor([10]), ampc.ones(1)), "index_add on the GPU: index 10 in `index`"),
                      (lambda: ampc.nn.functional.nll_loss(x.view(5, 2), ampc.tensor([0, 1, 2, 1, 0])), "nll_loss on the GPU: index 2 in `target`.*size of 2")):
        with pytest.raises(IndexError, match=text):
            settled(act())
        assert x.sum().item() == 45  # told once; all goes on


def test_the_doctor_finds_the_line_of_a_bad_index():
    table = ampc.ones(5, 2)
    with pytest.raises(IndexError, match=r"with ampc.doctor\(\):` shows its line") as e, ampc.doctor():
        found = ampc.nn.functional.embedding(ampc.tensor([7]), table)
        settled(found * 2)
    assert "embedding" in str(e.traceback[0].statement)


def _bag(rows, at):
    return ampc.nn.functional.embedding_bag(at.view(1, -1), rows)


def _unpooled(rows, at):
    return ampc.nn.functional.max_unpool1d(rows[:1, :2].unsqueeze(0), at.view(1, 1, -1), 2)


def _margins(rows, at):
    return ampc.nn.functional.multi_margin_loss(rows.t(), ampc.cat([at, at[:1] * 0]))


WRITERS = {
    "index_copy": lambda rows, at: rows.index_copy(0, at, rows[:2]), "index_fill": lambda rows, at: rows.index_fill(0, at, 7.0),
    "scatter": lambda rows, at: rows.scatter(0, at.view(1, 2), 5.0), "scatter_add": lambda rows, at: rows.scatter_add(0, at.view(1, 2), rows[:1, :2]),
    "scatter_reduce": lambda rows, at: rows.scatter_reduce(0, at.view(1, 2), rows[:1, :2], "sum"), "take": lambda rows, at: rows.t()[0].take(at),
    "put": lambda rows, at: rows.t()[0].put(at, rows[0, :2]), "take_along_dim": lambda rows, at: ampc.take_along_dim(rows, at.view(2, 1), 0),
    "embedding_bag": _bag, "max_unpool1d": _unpooled, "multi_margin_loss": _margins,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_bad_index_is_told_in_the_name_that_was_called(name):
    """Of an operator that others compute, too: its own name, and the index as it was given."""
    rows = ampc.arange(12.0).view(4, 3)
    refused = {"index_copy": (-1, -4, 4), "embedding_bag": (-1, 4), "max_unpool1d": (-1, 4)}.get(name, (-5, 4))
    for bad in refused:
        with pytest.raises(IndexError, match=f"^{name} on the GPU: index {bad} .*is out of range for a size of 4"):
            settled(WRITERS[name](rows, ampc.tensor([0, bad])))
    settled(WRITERS[name](rows, ampc.tensor([0, 3])))  # and nothing is left over
    with pytest.raises(IndexError, match="^gather on the GPU: index 9 in `index`"):
        settled(rows.gather(0, ampc.tensor([[9]])))


@simulated
def test_every_allocation_of_a_step_may_fail():
    def make():
        ampc.manual_seed(0)
        net = ampc.nn.Sequential(ampc.nn.Linear(8, 16), ampc.nn.ReLU(), ampc.nn.Linear(16, 4))
        return net, ampc.optim.AdamW(net.parameters()), ampc.amp.GradScaler("cuda", init_scale=8.0)

    x, y = ampc.randn(5, 8), ampc.randint(0, 4, (5,))

    def step(net, opt, scaler):
        opt.zero_grad()
        with ampc.autocast("cuda", dtype=ampc.float16):
            loss = ampc.nn.functional.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        return loss.item()

    step(*make())  # the page of the kernels' notes, which a process has once, is not the cache's to make room for
    failures = 0
    for n in range(1, 6):
        things = make()
        gc.collect()
        ampc.cuda.synchronize()
        ampc.cuda.empty_cache()
        ampc.cuda.set_per_process_memory_fraction(1.0)
        simulator("fail_alloc", n)
        try:
            step(*things)
        except ampc.cuda.OutOfMemoryError:
            failures += 1
        finally:
            simulator("fail_alloc", 0)
        things = make()
        first = step(*things)
        for _ in range(5):
            last = step(*things)
        assert last < first
    assert failures == 0  # the cache is emptied and the driver asked again, which here helps every time
    blocks = ampc.cuda.memory_stats()["allocation.all.current"]
    del things
    gc.collect()
    assert ampc.cuda.memory_stats()["allocation.all.current"] < blocks


@simulated
@pytest.mark.parametrize("what", ["no_memory_to_load", "no_memory_to_launch"])
def test_the_cache_makes_room_for_the_drivers_own_memory(what):
    """Code that is loaded at its first use, and what a launch needs, are the driver's memory, which a cache that fills the GPU leaves none of."""
    script = f"""
        import ctypes, os, ampc
        big = ampc.ones(1 << 20, device="cuda")
        del big
        ampc.cuda.synchronize()
        kept = ampc.cuda.memory_reserved()
        ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcuda.so.1")).ampc_simulator(b"{what}", ctypes.c_longlong(1))
        assert ampc.arange(5, device="cuda").cumsum(0).tolist() == [0, 1, 3, 6, 10]
        assert kept >= 1 << 22 and ampc.cuda.memory_reserved() < kept
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr


@simulated
def test_the_cache_makes_room_for_a_graph():
    x, g = ampc.ones(3), ampc.cuda.CUDAGraph(keep_graph=True)
    with ampc.cuda.graph(g):
        y = x + 1
    ampc.ones(1 << 20)
    kept = ampc.cuda.memory_reserved()
    simulator("no_memory_to_instantiate", 1)
    g.replay()
    assert y.tolist() == [2.0] * 3 and ampc.cuda.memory_reserved() < kept


@simulated
def test_without_caching_memory_is_given_back_by_a_thread_that_has_no_context():
    script = """
        import ctypes, os, threading, ampc
        simulator = ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcuda.so.1")).ampc_simulator
        held = [ampc.ones(3, device="cuda")]
        before = simulator(b"blocks", ctypes.c_longlong(0))
        thread = threading.Thread(target=held.clear)
        thread.start(), thread.join()
        assert simulator(b"blocks", ctypes.c_longlong(0)) == before - 1
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=100,
                         env={**os.environ, "AMPC_CUDA_CACHING": "0"})
    assert run.returncode == 0, run.stderr


@simulated
def test_a_pass_over_gradients_that_fails_keeps_no_memory():
    p = ampc.ones(4, requires_grad=True)
    scaler = ampc.amp.GradScaler("cuda")
    scaler.scale(p.half().sum()).backward()
    scaler.unscale_(ampc.optim.SGD([p], lr=0.1))
    bits = p.grad.view(ampc.float16)  # a factor that waits is multiplied in first
    for _ in range(2):  # the first leaves a table
        blocks = ampc.cuda.memory_stats()["allocation.all.current"]
        simulator("fail_launch", 1)
        with pytest.raises(RuntimeError, match="ac_list_scale"):
            ampc._C._cuda_grad_stats([bits])
    assert ampc.cuda.memory_stats()["allocation.all.current"] == blocks


@simulated
def test_failing_launches_and_lost_devices():
    x = ampc.ones(3)
    ampc.cuda.synchronize()
    simulator("fail_launch", 1)
    with pytest.raises(RuntimeError, match=r"exp: ac_point_exp_f32: CUDA_ERROR_LAUNCH_FAILED \(719\)"):
        x.exp()
    assert x.exp().sum().item() > 0
    simulator("lose_device", 1)
    try:
        with pytest.raises(RuntimeError, match="CUDA_ERROR_DEVICE_UNAVAILABLE"):
            x.exp()
        with pytest.raises(RuntimeError, match="CUDA_ERROR_DEVICE_UNAVAILABLE"):
            ampc.cuda.synchronize()
    finally:
        simulator("lose_device", 0)
    assert x.sum().item() == 3


def test_a_forked_child_is_told():
    ampc.ones(1)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            ampc.ones(1, device="cuda")
        except RuntimeError as e:
            code = 0 if "forked" in str(e) and "spawn" in str(e) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 if hasattr(os, "waitstatus_to_exitcode") else True


# -- what must not happen ----------------------------------------------------------------------------------------------------------------


def python(code):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="reads /proc")
def test_import_does_not_touch_the_driver():
    done = python("""
        import ampc
        net = ampc.nn.Linear(3, 3)
        net(ampc.ones(2, 3)).sum().backward()
        assert "libcuda" not in open("/proc/self/maps").read()
        assert ampc.cuda.is_available()
        assert "libcuda" in open("/proc/self/maps").read() and "libcublasLt" not in open("/proc/self/maps").read()
    """)
    assert done.returncode == 0, done.stderr


@simulated
def test_the_host_cannot_read_device_memory():
    """As on a GPU: what reads it by mistake is found here too."""
    done = python("""
        import ctypes, ampc
        x = ampc.ones(4, device="cuda")
        ampc.cuda.synchronize()
        print(ctypes.c_float.from_address(x.data_ptr()).value)
    """)
    assert done.returncode == -11 and not done.stdout


@simulated
def test_nothing_is_left_behind():
    gc.collect()
    ampc.cuda.empty_cache()
    counts = {what: simulator(what) for what in ("events", "pinned")}

    def work():
        side = ampc.cuda.Stream()
        x = ampc.ones(100, device="cpu").pin_memory().to("cuda", non_blocking=True)
        side.wait_stream(ampc.cuda.current_stream())
        with ampc.cuda.stream(side):
            y = x * 2
        x.record_stream(side)
        event = side.record_event()
        event.synchronize()
        del x
        return y.sum().item()

    for _ in range(10):
        assert work() == 200
    gc.collect()
    ampc.cuda.empty_cache()
    assert {what: simulator(what) for what in counts} == counts


def test_threads_share_the_allocator():
    """Four threads on streams of their own, allocating and freeing at once."""
    wrong = []

    def work(seed):
        stream = ampc.cuda.Stream()
        rng = np.random.default_rng(seed)
        with ampc.cuda.stream(stream):
            for _ in range(40):
                n = int(rng.integers(1, 50000))
                x = ampc.full((n,), float(seed), device="cuda")
                y = x + x
                if y[n - 1].item() != 2 * seed:
                    wrong.append((seed, n))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.skipif(not ON_GPU or SIMULATED, reason="needs the memory of a real GPU")
def test_more_elements_than_32_bits_count():
    n = 2**31 + 77
    x = ampc.zeros(n, dtype=ampc.int8)
    x[-5:] = 3
    assert x.sum().item() == 15 and x.argmax().item() == n - 5 and x.nonzero().shape[0] == 5
    y = x.bool()
    assert y[-6:].tolist() == [False] + [True] * 5
    assert (x + 1)[-6:].tolist() == [1, 4, 4, 4, 4, 4]
    assert x.view(-1, 7)[:, 3].shape[0] == n // 7 if n % 7 == 0 else True
    z = ampc.zeros(2, 2**30 + 40, dtype=ampc.float16)
    z[1, -1] = 2
    assert z.sum(dtype=ampc.float32).item() == 2 and z.t()[-1].tolist() == [0, 2] and z.amax(1).tolist() == [0, 2]
