"""What is CUDA's own: memory, streams, events, errors, the scaler without waiting, sharing memory. Runs with
``--device sim`` on the simulator of tests/cuda_sim, which also injects faults, and with ``--device cuda`` on a GPU."""

import ctypes
import gc
import os

import numpy as np
import pytest
from samples import CASES, IDS, ROWS, SAMPLES, function, outputs, to_ampc
from where import ON_GPU, settled

import ampc

pytestmark = pytest.mark.skipif(not ON_GPU, reason="needs --device sim or cuda")
SIMULATED = ON_GPU and ampc._C._cuda_is_simulated()
simulated = pytest.mark.skipif(not SIMULATED, reason="asks the simulator")
two_gpus = pytest.mark.skipif(not ON_GPU or ampc.cuda.device_count() < 2, reason="needs two GPUs")


def simulator(what, value=0):
    """Sets something in the simulator, or asks it for a number."""
    control = ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcuda.so.1")).ampc_simulator
    control.restype, control.argtypes = ctypes.c_longlong, [ctypes.c_char_p, ctypes.c_longlong]
    return control(what.encode(), value)


# -- devices ------------------------------------------------------------------------------------------------------


def test_devices():
    assert ampc.cuda.is_available() and ampc.cuda.device_count() >= 1 and ampc.cuda.current_device() == 0
    p = ampc.cuda.get_device_properties(0)
    assert p.name == ampc.cuda.get_device_name() and (p.major, p.minor) == ampc.cuda.get_device_capability("cuda:0")
    assert p.total_memory > 0 and p.multi_processor_count > 0 and p.name in repr(p)
    assert ampc.cuda.is_bf16_supported()
    x = ampc.ones(2, device="cuda:0")
    assert x.is_cuda and not x.is_cpu and x.get_device() == 0 and x.device == ampc.device("cuda", 0) and x.type() == "ampc.cuda.FloatTensor"
    for bad in ("cuda:99", 99):
        with pytest.raises(RuntimeError, match="99"):
            ampc.ones(2, device=bad)
    with pytest.raises(RuntimeError, match="computes on"):
        ampc.ones(2, device="mps")


@two_gpus
def test_two_gpus():
    a = ampc.arange(5.0, device="cuda:0")
    b = a.to("cuda:1")
    assert b.device.index == 1 and b.tolist() == a.tolist() and b.to("cuda:0").tolist() == a.tolist()
    with pytest.raises(RuntimeError, match=r"`x` is on cuda:0 and `other` on cuda:1"):
        a + b
    with ampc.cuda.device(1):
        assert ampc.ones(1, device="cuda").device.index == 1 and ampc.cuda.current_device() == 1
    with ampc.device("cuda:1"):
        assert ampc.ones(1).device.index == 1
    assert ampc.ones(1).device.index == 0
    w = ampc.ones(3, requires_grad=True)
    (w.to("cuda:1") * 2).sum().backward()
    assert w.grad.device.index == 0 and w.grad.tolist() == [2, 2, 2]


def test_moving():
    x = ampc.randn(3, 4, device="cpu")
    y = x.cuda()
    assert y.cpu().equal(x) and y.cuda() is y and x.cpu() is x and x.to("cuda", ampc.float64).dtype is ampc.float64
    assert x.t().cuda().cpu().equal(x.t()) and y.t().cpu().equal(x.t()) and y[1:, ::2].cpu().equal(x[1:, ::2])
    w = ampc.ones(3, device="cpu", requires_grad=True)
    (w.cuda() * ampc.arange(3.0)).sum().backward()
    assert w.grad.is_cpu and w.grad.tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="cuda:0"):
        y.numpy()
    assert np.array_equal(y.numpy(force=True), x.numpy())
    net = ampc.nn.Linear(3, 2, device="cpu").to("cuda")
    assert all(p.is_cuda for p in net.parameters()) and all(p.is_cpu for p in net.cpu().parameters())
    assert ampc.zeros_like(y).is_cuda and y.new_ones(2).is_cuda and x.new_ones(2).is_cpu
    z = ampc.zeros(3, 4)
    z.copy_(x)
    assert z.cpu().equal(x)
    z[1] = 5
    z[z > 4] = -1
    assert z[1].tolist() == [-1] * 4 and z[0, ampc.tensor([1], device="cpu")].cpu().equal(x[0, [1]])


def test_mixtures():
    x = ampc.ones(2)
    assert (x + ampc.tensor(2.0, device="cpu")).tolist() == [3, 3] and (ampc.tensor(2.0, device="cpu") * x).is_cuda
    with pytest.raises(RuntimeError, match="mm: `x` is on cuda:0 and `mat2` on cpu"):
        ampc.ones(2, 2) @ ampc.ones(2, 2, device="cpu")
    with pytest.raises(RuntimeError, match="`x` is on cpu and `other` on cuda:0"):
        ampc.ones(2, device="cpu").add_(x)
    import copy
    import pickle

    assert copy.deepcopy(x).is_cuda and pickle.loads(pickle.dumps(x)).device == x.device


# -- the same numbers ------------------------------------------------------------------------------------------------


def test_random_numbers_are_those_of_the_cpu():
    for make in (lambda d: ampc.rand(1001, device=d), lambda d: ampc.rand(1001, dtype=ampc.float64, device=d),
                 lambda d: ampc.randint(0, 100, (1001,), device=d), lambda d: ampc.randperm(1001, device=d)):
        ampc.manual_seed(5)
        there = make("cuda").cpu()
        ampc.manual_seed(5)
        assert there.equal(make("cpu"))
    for dtype in (ampc.float32, ampc.float16, ampc.float64):
        ampc.manual_seed(5)
        there = ampc.randn(1001, dtype=dtype, device="cuda").cpu()
        ampc.manual_seed(5)
        assert (there - ampc.randn(1001, dtype=dtype, device="cpu")).abs().max().item() <= 16 * ampc.finfo(dtype).eps


@pytest.mark.parametrize("n", [1, 1000, 4096, 100003])
def test_dropout_is_that_of_the_cpu(n):
    x = ampc.rand(n, device="cpu") + 1
    results = []
    for device in ("cpu", "cuda"):
        ampc.manual_seed(9)
        results.append(ampc.nn.functional.dropout(x.to(device), 0.3).cpu())
    assert results[0].equal(results[1])


@pytest.mark.parametrize("shape", [(5,), (70000,), (3, 5000), (5000, 3), (2, 300, 40)])
@pytest.mark.parametrize("dtype", [ampc.float32, ampc.bfloat16, ampc.int64])
def test_reductions_of_all_sizes(shape, dtype):
    """Every walk: rows, columns, in parts."""
    x = (ampc.rand(*shape, device="cpu") * 8 - 4).to(dtype)
    y, wide = x.cuda(), x.double()
    for dim in (None, 0, -1):
        want = wide.sum() if dim is None else wide.sum(dim)
        n = x.numel() // want.numel()
        got = (y.sum(dtype=ampc.float32 if dtype.is_floating_point else None) if dim is None else
               y.sum(dim, dtype=ampc.float32 if dtype.is_floating_point else None)).double().cpu()
        assert (got - want).abs().max().item() <= (4 * n**0.5 * 4 * 2**-24 if dtype.is_floating_point else 0)
        if dim is not None:
            assert y.max(dim).indices.cpu().equal(x.max(dim).indices) and y.amin(dim).cpu().equal(x.amin(dim))


@pytest.mark.parametrize("n", [1, 31, 64, 1000, 1024, 4096, 5000, 13000])
def test_rows_of_all_lengths(n):
    x = ampc.randn(5, n, device="cpu") * 3
    g = ampc.randn(5, n, device="cpu")
    def check(dtype):
        def run(device):
            a = x.detach().to(device, dtype).requires_grad_()
            w = ampc.linspace(0.5, 1.5, n, device=device, dtype=dtype).requires_grad_()
            out = [a.softmax(1), a.log_softmax(1), a.logsumexp(1), ampc.nn.functional.layer_norm(a, (n,), w)]
            sum((o * g.to(device, dtype)[:, :o.shape[-1]].reshape(o.shape) if o.ndim == 2 else o).float().sum() for o in out).backward()
            return [t.detach().double().cpu() for t in (*out, a.grad, w.grad)]

        for here, there in zip(run("cpu"), run("cuda")):
            assert (here - there).abs().max().item() <= 64 * ampc.finfo(dtype).eps * max(1, here.abs().max().item())

    check(ampc.float32)
    check(ampc.float16)


@pytest.mark.parametrize("shape", [(7,), (3000,), (4, 700), (700, 4)])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_of_all_sizes(shape, descending):
    x = ampc.randint(-50, 50, shape, device="cpu").float()
    x.view(-1)[::7] = float("nan")
    for t in (x, x.half(), x.nan_to_num() if hasattr(x, "nan_to_num") else ampc.where(x.isnan(), 0.0, x)):
        here, there = t.sort(-1, descending), t.cuda().sort(-1, descending)
        assert there.indices.cpu().equal(here.indices)
        assert np.array_equal(there.values.numpy(force=True), here.values.numpy(force=True), equal_nan=True)


def test_additions_that_meet():
    """Many items at one place: summed in their order, the same every time."""
    index = ampc.randint(0, 13, (5000,), device="cpu")
    values = ampc.randn(5000, 3, device="cpu")
    want = np.zeros((13, 3))
    np.add.at(want, index.numpy(), values.double().numpy())
    runs = [ampc.zeros(13, 3).index_add(0, index.cuda(), values.cuda()) for _ in range(3)]
    assert abs(runs[0].double().numpy(force=True) - want).max() <= 5000**0.5 * 4 * 2**-24 * 10
    assert runs[0].equal(runs[1]) and runs[0].equal(runs[2])
    table = ampc.randn(13, 3).requires_grad_()
    ampc.nn.functional.embedding(index.cuda(), table).backward(values.cuda())
    assert abs(table.grad.double().numpy(force=True) - want).max() <= 5000**0.5 * 4 * 2**-24 * 10


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.bfloat16, ampc.float64])
@pytest.mark.parametrize("mkn", [(1, 1, 1), (17, 33, 9), (64, 48, 80), (5, 0, 3)])
def test_products(mkn, dtype):
    m, k, n = mkn
    a, b, bias = ampc.randn(m, k, device="cpu").to(dtype), ampc.randn(k, n, device="cpu").to(dtype), ampc.randn(n, device="cpu").to(dtype)
    want = a.double() @ b.double()
    bound = 8 * ampc.finfo(dtype).eps * max(1, k**0.5) * 4
    for x, y in ((a, b), (a.t().contiguous().t(), b), (a, b.t().contiguous().t())):
        assert ((x.cuda() @ y.cuda()).double().cpu() - want).abs().max().item() <= bound
    got = ampc.nn.functional.linear(a.cuda(), b.t().contiguous().cuda(), bias.cuda()).double().cpu()
    assert (got - (want + bias.double())).abs().max().item() <= bound
    three = ampc.stack([a, a * 2]).cuda() @ b.cuda()
    assert (three.double().cpu() - ampc.stack([want, want * 2])).abs().max().item() <= 2 * bound


def test_tf32_is_off_until_allowed():
    a, b = ampc.rand(32, 64) + 1, ampc.rand(64, 32) + 1
    want = a.double() @ b.double()
    exact = (a @ b - want).abs().max().item()
    assert not ampc.backends.cuda.matmul.allow_tf32
    ampc.backends.cuda.matmul.allow_tf32 = True
    try:
        rounded = (a @ b - want).abs().max().item()
    finally:
        ampc.backends.cuda.matmul.allow_tf32 = False
    assert exact < 1e-4 and (not SIMULATED or rounded > 1e-4)


def test_weight_gradients_accumulate_in_float32():
    """Contributions that float16 cannot add are not lost in .grad."""
    w = ampc.ones(1, 64, requires_grad=True)
    big, small = ampc.full((1, 64), 2048.0), ampc.full((1, 64), 0.25)
    for x in (big, small, small):
        with ampc.autocast("cuda", dtype=ampc.float16):
            y = ampc.nn.functional.linear(x, w)
        y.backward(ampc.ones_like(y))
    assert w.grad.dtype is ampc.float32 and w.grad[0, 0].item() == 2048.5


# -- thread order --------------------------------------------------------------------------------------------------------


@simulated
@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16], ids=str)
@pytest.mark.parametrize(("name", "i"), CASES, ids=IDS)
def test_results_do_not_depend_on_the_order_of_threads(name, i, dtype):
    """Forward, backward and at random: a missing barrier would show."""
    def run(order):
        simulator("order", order)
        try:
            ampc.manual_seed(1)
            args, kwargs = to_ampc(SAMPLES[name][i], dtype, ROWS[name]["differentiable"] and SAMPLES[name][i].grad)
            out = outputs(function(name)(*args, **kwargs))
            leaves = [a for a in args if isinstance(a, ampc.Tensor) and a.requires_grad]
            if leaves and out[0].requires_grad:
                out[0].backward(ampc.ones_like(out[0]))
            return [t.numpy(force=True).tobytes() for t in (*out, *[a.grad for a in leaves if a.grad is not None])]
        finally:
            simulator("order", 0)

    if name == "index_put" and not SAMPLES[name][i].kwargs and len(SAMPLES[name][i].args) < 4:
        pytest.skip("of values that meet, any one may stand")
    want = run(0)
    assert all(run(order) == want for order in (1, 2, 5))


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
    end.synchronize()
    assert start.elapsed_time(end) > 0
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(done)


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
    assert stats["allocated_bytes.all.current"] == before and stats["reserved_bytes.all.current"] == ampc.cuda.memory_reserved()
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
    with pytest.raises(ampc.cuda.OutOfMemoryError, match=r"asked for .* in use and .* cached by this process, .* free of") as e:
        ampc.empty(total, dtype=ampc.float32)
    assert isinstance(e.value, RuntimeError) and ampc.OutOfMemoryError is ampc.cuda.OutOfMemoryError
    assert ampc.ones(3).sum().item() == 3
    ampc.cuda.set_per_process_memory_fraction((ampc.cuda.memory_reserved() + (8 << 20)) / total)
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


# -- errors --------------------------------------------------------------------------------------------------------------------------


def test_a_bad_index_names_operator_and_tensor():
    x = ampc.arange(10.0)
    for act, text in ((lambda: x[ampc.tensor([3, 12])], "_index: index 12 in `indices` is out of range for a size of 10"),
                      (lambda: x.gather(0, ampc.tensor([-11])), "gather: index -11 in `index`"),
                      (lambda: ampc.nn.functional.embedding(ampc.tensor([7]), x.view(5, 2)), "_embedding: index 7 in `index`.*size of 5"),
                      (lambda: x.index_add(0, ampc.tensor([10]), ampc.ones(1)), "index_add: index 10 in `index`"),
                      (lambda: ampc.nn.functional.nll_loss(x.view(5, 2), ampc.tensor([0, 1, 2, 1, 0])), "nll_loss: index 2 in `target`.*size of 2")):
        with pytest.raises(IndexError, match=text):
            settled(act())
        assert x.sum().item() == 45  # told once; all goes on


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
def test_failing_launches_and_lost_devices():
    x = ampc.ones(3)
    ampc.cuda.synchronize()
    simulator("fail_launch", 1)
    with pytest.raises(RuntimeError, match=r"ac_point_exp_f32: CUDA_ERROR_LAUNCH_FAILED \(719\)"):
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


# -- the scaler and the optimizers: nobody waits ------------------------------------------------------------------------------------------


def training(optimizer="AdamW", **options):
    ampc.manual_seed(0)
    net = ampc.nn.Sequential(ampc.nn.Linear(8, 16), ampc.nn.GELU(), ampc.nn.LayerNorm(16), ampc.nn.Linear(16, 4))
    return net, getattr(ampc.optim, optimizer)(net.parameters(), lr=1e-2, **options), ampc.amp.GradScaler("cuda", init_scale=64.0, growth_interval=3)


@simulated
@pytest.mark.parametrize(("optimizer", "options"), [("AdamW", {}), ("Adam", {"amsgrad": True}), ("SGD", {"momentum": 0.9})])
def test_a_step_waits_for_nothing(optimizer, options):
    net, opt, scaler = training(optimizer, **options)
    x, y = ampc.randn(6, 8), ampc.randint(0, 4, (6,))

    def step():
        opt.zero_grad()
        with ampc.autocast("cuda", dtype=ampc.float16):
            loss = ampc.nn.functional.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        ampc.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()

    for _ in range(3):
        step()
    ampc.cuda.synchronize()
    before = simulator("syncs")
    step()
    step()
    assert simulator("syncs") == before and simulator("pending") > 0
    assert scaler.get_scale() == 128.0


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_overflow_leaves_the_step_out(bad):
    net, opt, scaler = training()
    x = ampc.randn(6, 8)

    def step(poison):
        opt.zero_grad()
        scaler.scale(net(x).square().mean()).backward()
        if poison:
            net[0].weight.grad[3, 2] = bad
        scaler.step(opt)
        scaler.update()

    step(False)
    weights = [p.detach().clone() for p in net.parameters()]
    counts = [opt.state[p]["step"].item() for p in net.parameters()]
    step(True)
    assert all(p.equal(w) for p, w in zip(net.parameters(), weights)) and scaler.get_scale() == 32.0
    assert [opt.state[p]["step"].item() for p in net.parameters()] == counts == [1.0] * 6
    step(False)
    assert not net[0].weight.equal(weights[0]) and opt.state[net[0].weight]["step"].item() == 2.0
    state = scaler.state_dict()
    assert state["scale"] == 32.0 and state["_growth_tracker"] == 1
    other = ampc.amp.GradScaler("cuda")
    other.load_state_dict(state)
    assert other.get_scale() == 32.0


@pytest.mark.parametrize(("optimizer", "options"), [("AdamW", {}), ("Adam", {"amsgrad": True, "weight_decay": 0.1}), ("SGD", {}),
                                                    ("SGD", {"momentum": 0.9, "dampening": 0.2}), ("SGD", {"momentum": 0.9, "nesterov": True})])
def test_training_equals_the_cpu(optimizer, options):
    results = []
    for device in ("cpu", "cuda"):
        ampc.manual_seed(0)
        net = ampc.nn.Sequential(ampc.nn.Linear(8, 33, device="cpu"), ampc.nn.Tanh(), ampc.nn.Linear(33, 4, device="cpu")).to(device)
        opt, scaler = getattr(ampc.optim, optimizer)(net.parameters(), lr=1e-2, **options), ampc.amp.GradScaler(device, init_scale=4.0)
        x, y = ampc.randn(16, 8, device="cpu").to(device), ampc.randint(0, 4, (16,), device="cpu").to(device)
        for _ in range(6):
            opt.zero_grad()
            scaler.scale(ampc.nn.functional.cross_entropy(net(x), y)).backward()
            scaler.unscale_(opt)
            norm = ampc.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            scaler.step(opt)
            scaler.update()
        results.append(([p.detach().cpu() for p in net.parameters()], norm.item()))
    for a, b in zip(results[0][0], results[1][0]):
        assert (a - b).abs().max().item() <= 2e-5
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-4)


def test_optimizer_state_moves_between_devices():
    net, opt, _ = training()
    net(ampc.randn(3, 8)).sum().backward()
    opt.step()
    here = ampc.nn.Sequential(*[type(m)(*a, device="cpu") if a else m for m, a in
                                zip(net, ((8, 16), (), (16,), (16, 4)))])
    mine = ampc.optim.AdamW(here.parameters(), lr=1e-2)
    state = opt.state_dict()
    state["state"] = {k: {n: v.cpu() if isinstance(v, ampc.Tensor) else v for n, v in s.items()} for k, s in state["state"].items()}
    mine.load_state_dict(state)
    here(ampc.randn(3, 8, device="cpu")).sum().backward()
    mine.step()
    assert all(s["step"] == 2 for s in mine.state.values())


def test_lists_of_mixed_tensors():
    """One launch for all: any dtype, any size, contiguous or not, and an alignment that 16 bytes do not divide."""
    rng = np.random.default_rng(1)
    shapes = [(3,), (70001,), (64, 33), (0,), (1,), (8, 1024)]
    grads = [ampc.tensor(rng.standard_normal(s), dtype=d) for s in shapes for d in (ampc.float32, ampc.float16, ampc.bfloat16, ampc.float64)]
    grads.append(ampc.randn(40, 30).t())
    grads.append(ampc.randn(1001)[1:])
    want = [g.double().cpu() * 0.5 for g in grads]
    found, factor = ampc.zeros(()), ampc.tensor(0.5)
    ampc._C._cuda_unscale(grads, factor, found)
    for g, w in zip(grads, want):
        assert g.numel() == 0 or (g.double().cpu() - w).abs().max().item() <= ampc.finfo(g.dtype).eps * 8
    assert found.item() == 0
    total = ampc._C._cuda_squares(grads).sum().sqrt().item()
    assert total == pytest.approx(sum(g.double().square().sum().item() for g in grads) ** 0.5, rel=1e-6)
    grads[5].view(-1)[0] = float("inf")
    ampc._C._cuda_unscale(grads, None, found)
    assert found.item() == 1


# -- sharing memory ---------------------------------------------------------------------------------------------------------------------------


def test_cuda_array_interface():
    x = ampc.arange(12.0).view(3, 4)
    facts = x.t().__cuda_array_interface__
    assert facts["version"] == 3 and facts["shape"] == (4, 3) and facts["strides"] == (4, 16) and facts["data"] == (x.data_ptr(), False)
    assert x.__cuda_array_interface__["strides"] is None and facts["typestr"] == "<f4" and facts["stream"] == 1

    class Other:
        __cuda_array_interface__ = facts

    y = ampc.as_tensor(Other())
    assert y.data_ptr() == x.data_ptr() and y.shape == (4, 3)
    y.mul_(2)
    assert x.tolist()[1] == [8, 10, 12, 14]
    with pytest.raises(AttributeError):
        _ = ampc.ones(1, device="cpu").__cuda_array_interface__
    with pytest.raises(RuntimeError, match="detach"):
        _ = ampc.ones(1, requires_grad=True).__cuda_array_interface__


def test_dlpack_on_the_gpu():
    x = ampc.arange(6.0).view(2, 3)
    assert x.__dlpack_device__() == (2, 0)
    y = ampc.from_dlpack(x)
    y.add_(1)
    assert y.data_ptr() == x.data_ptr() and x.tolist() == [[1, 2, 3], [4, 5, 6]]
    side = ampc.cuda.Stream()
    z = x * 10
    capsule = z.__dlpack__(stream=side.cuda_stream)
    with ampc.cuda.stream(side):  # its work waits for the product
        assert (ampc.from_dlpack(capsule) + 1).tolist()[0] == [11, 21, 31]
    with pytest.raises(ValueError, match="ambiguous"):
        x.__dlpack__(stream=0)
    with pytest.raises(BufferError, match="copy"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    assert ampc.from_dlpack(x, device="cpu").is_cpu
