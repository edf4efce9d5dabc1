"""Training on CUDA: the scaler and the optimizers, which wait for nothing, and memory shared with others."""

import gc
import re
import warnings

import numpy as np
import pytest
from test_cuda_graph_step import eager_step
from test_cuda_graphs import make_batches, make_model
from where import ON_GPU, simulated, simulator

import ampc

pytestmark = pytest.mark.skipif(not ON_GPU, reason="needs --device sim or cuda")


class Plain:
    """Of no package of ours."""

    def __init__(self, params):
        self.param_groups = [{"params": params}]

    @ampc.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            p.sub_(p.grad)


# -- the scaler and the optimizers: nobody waits ------------------------------------------------------------------------------------------


def training(optimizer="AdamW", **options):
    ampc.manual_seed(0)
    net = ampc.nn.Sequential(ampc.nn.Linear(8, 16), ampc.nn.GELU(), ampc.nn.LayerNorm(16), ampc.nn.Linear(16, 4))
    return net, getattr(ampc.optim, optimizer)(net.parameters(), lr=1e-2, **options), ampc.amp.GradScaler("cuda", init_scale=64.0, growth_interval=3)


REST = [("Adagrad", {"lr_decay": 0.1}), ("RMSprop", {"momentum": 0.5, "centered": True}), ("Adadelta", {}), ("NAdam", {"momentum_decay": 0.1}), ("Adamax", {})]


@simulated
@pytest.mark.parametrize(("optimizer", "options"), [("AdamW", {}), ("Adam", {"amsgrad": True}), ("SGD", {"momentum": 0.9}), *REST])
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


class OtherDefaults(ampc.optim.AdamW):
    """Its step is AdamW's."""

    def __init__(self, params, **options):
        super().__init__(params, **{"weight_decay": 0.1, **options})

    def zero_grad(self, set_to_none=True):
        super().zero_grad(False)


class Counts(ampc.optim.AdamW):
    def step(self, closure=None):
        self.calls = getattr(self, "calls", 0) + 1
        return super().step(closure)


def given_back(opt):
    """As a library leaves it that has replaced the step for a while."""
    own, opt.step = opt.step, None
    opt.step = own
    return opt


WAITS = {  # what was done to an optimizer, and why its step waits
    "nothing": (lambda p: ampc.optim.AdamW(p), ""),
    "other defaults": (OtherDefaults, ""),
    "its own step": (lambda p: given_back(ampc.optim.AdamW(p)), ""),
    "a hook of the state": (lambda p: hooked(p, "register_state_dict_pre_hook"), ""),
    "a subclass": (Counts, "Counts is skipped: its step.. is not that of ampc.optim"),
    "a hook": (lambda p: hooked(p, "register_step_post_hook"), "AdamW is skipped: it has step hooks"),
    "Python": (lambda p: ampc.optim.Adafactor(p), "Adafactor is skipped: its update is computed in Python"),
    "another package's": (Plain, "Plain is skipped: it is no optimizer of ampc.optim"),
}


def hooked(params, register):
    opt = ampc.optim.AdamW(params)
    getattr(opt, register)(lambda *_: None)
    return opt


@simulated
@pytest.mark.parametrize("done", WAITS)
def test_a_step_waits_where_code_of_a_script_is_in_it_and_says_so_once(done):
    make, why = WAITS[done]
    p = ampc.nn.Parameter(ampc.ones(3))
    opt, scaler = make([p]), ampc.amp.GradScaler("cuda", init_scale=4.0)
    ampc.doctor.reports(clear=True)
    waits, told = [], []
    for _ in range(3):
        scaler.scale(p.detach().sum())
        p.grad = ampc.ones(3)
        before = simulator("syncs")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            scaler.step(opt)
        waits.append(simulator("syncs") > before)
        told += [w for w in caught if w.category is ampc.doctor.PerformanceNote]
        scaler.update()
    assert waits == [True, bool(why), bool(why)]  # the first makes state
    assert len(told) == bool(why) and all(re.search(why, str(w.message)) and w.filename == __file__ for w in told)
    with ampc.doctor.errors():  # it is no misuse
        ampc.doctor.reports(clear=True)
        scaler.scale(p.detach().sum())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scaler.step(opt)


def test_a_step_looks_up_nothing_else():
    """Of a subclass: what a step asks for is known, so that a class with its own is found."""
    seen, names = set(), ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "RMSprop", "Adadelta", "Rprop")
    notes = {"step", "_stepping", "_n_applied", "_found_inf", "_zero_along", "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"}  # why_wait asks, or its own
    for name in names:
        kind = getattr(ampc.optim, name)

        class Watched(kind):
            def __getattribute__(self, name):
                seen.add(name)
                return super().__getattribute__(name)

        p = ampc.nn.Parameter(ampc.ones(3))
        opt = Watched([p])
        seen.clear()
        p.grad = ampc.ones(3)
        opt._found_inf = ampc.zeros(())
        opt.step()
        assert seen <= ampc.optim.optimizer._PARTS | notes, name
        assert "_step_group" in seen


@pytest.mark.parametrize("optimizer", ["AdamW", "NAdam"])
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_overflow_leaves_the_step_out(bad, optimizer):
    net, opt, scaler = training(optimizer)
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
    if optimizer == "NAdam":
        assert opt.state[net[0].bias]["mu_product"].item() == pytest.approx(0.9**2 * (1 - 0.5 * 0.96**0.004) * (1 - 0.5 * 0.96**0.008), rel=1e-6)
    assert not net[0].weight.equal(weights[0]) and opt.state[net[0].weight]["step"].item() == 2.0
    state = scaler.state_dict()
    assert state["scale"] == 32.0 and state["_growth_tracker"] == 1
    other = ampc.amp.GradScaler("cuda")
    other.load_state_dict(state)
    assert other.get_scale() == 32.0


@pytest.mark.parametrize(("optimizer", "options"), [("AdamW", {}), ("Adam", {"amsgrad": True, "weight_decay": 0.1}), ("SGD", {}),
                                                    ("SGD", {"momentum": 0.9, "dampening": 0.2}), ("SGD", {"momentum": 0.9, "nesterov": True}), *REST])
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
    ampc._C._scale_all(grads, 0.25, ampc.tensor(2.0, dtype=ampc.float64))
    for g, w in zip(grads, want):
        assert g.numel() == 0 or (g.double().cpu() - w).abs().max().item() <= ampc.finfo(g.dtype).eps * 8
    table, found, inverse, used = ampc._C._cuda_grad_stats(grads)
    total = table[:, 0].sum().sqrt().item()
    assert inverse is None and used is None
    assert total == pytest.approx(sum(g.double().square().sum().item() for g in grads) ** 0.5, rel=1e-6)
    assert found.tolist() == [0, 0]
    for bad, want in ((float("nan"), [1, 0]), (float("-inf"), [1, 1])):
        grads[5].view(-1)[0] = bad
        assert ampc._C._cuda_grad_stats(grads)[1].tolist() == want


def test_the_ledger_of_statistics():
    """What one read of the gradients finds, each tensor's own, against NumPy; nothing is written."""
    rng = np.random.default_rng(2)
    scale = ampc.tensor(1024.0)
    grads = [rng.standard_normal(n) * 10.0 ** rng.uniform(-9, 4, n) for n in (1, 1000, 70001, 200000)]
    grads[1][7], grads[1][8], grads[2][5] = np.inf, -np.inf, np.nan
    for dtype in (ampc.float32, ampc.float16, ampc.float64):
        there = [ampc.tensor(g).to(dtype) for g in grads]
        before = [t.clone() for t in there]
        table, flags, inverse, used = ampc._C._cuda_grad_stats(there, scale)
        rows = table.tolist()
        assert flags.tolist() == [1, 1] and inverse.item() == 1 / 1024 and used.item() == 1024
        for t, kept, (squares, amax, infs, nans, small, first) in zip(there, before, rows):
            scaled = t.double().numpy(force=True)
            x = (t.double() / 1024).to(dtype).double().numpy(force=True)
            finite = x[np.isfinite(x)]
            assert first == (0 if np.isfinite(x).all() else 1 + np.argmin(np.isfinite(x)))
            assert (infs, nans) == (np.isinf(x).sum(), np.isnan(x).sum())
            assert small == ((scaled != 0) & (abs(scaled) < 2.0**-14)).sum()
            assert amax == pytest.approx(abs(finite).max(), rel=1e-6)
            if np.isfinite(x).all():
                assert squares == pytest.approx((x * x).sum(), rel=1e-6)
            assert np.array_equal(t.numpy(force=True), kept.numpy(force=True), equal_nan=True)


def test_the_ledger_of_statistics_goes_with_the_first_gradient():
    """It is of no use once a gradient is gone, and its table is memory of the GPU."""
    from ampc.amp import _ledger

    grads = [ampc.ones(3), ampc.ones(4)]
    table = ampc._C._cuda_grad_stats(grads)[0]
    _ledger.remember(grads, table)
    assert _ledger.ledger_of(list(grads)) is table  # which takes it
    _ledger.remember(grads, table)
    grads.pop()
    again = [grads[0], ampc.ones(4)]
    assert _ledger.ledger_of(again) is not table  # the second one is another
    _ledger.remember(again, table)
    assert table.get_device() in _ledger._last
    grads.clear()
    again.clear()
    assert table.get_device() not in _ledger._last


def launched(call):
    before = simulator("launches")
    return call(), simulator("launches") - before


@simulated
@pytest.mark.parametrize("n", [3, 40])
def test_the_phase_is_two_launches_over_the_list(n):
    """Unscaling reads all gradients in one launch, whatever their number, and writes none; clipping and the step read what waits."""
    gc.collect()  # gradients of others that wait to be divided count, too
    rng = np.random.default_rng(n)
    params = [ampc.nn.Parameter(ampc.zeros(50 + 7000 * (i % 3), dtype=(ampc.float32, ampc.float64)[i % 2])) for i in range(n)]
    opt, scaler = ampc.optim.SGD(params, lr=1.0), ampc.amp.GradScaler("cuda", init_scale=64.0)
    for first in (True, False):  # the first step makes the counts of steps
        before = [p.numpy(force=True).copy() for p in params]
        scaler.scale(ampc.ones(()))
        for p in params:
            p.grad = ampc.tensor(rng.standard_normal(p.shape) * 300, dtype=p.dtype)
        raw = [p.grad.clone().numpy(force=True) for p in params]
        assert launched(lambda: scaler.unscale_(opt))[1] == 2 and ampc._C._pending() == n  # the pass, its pieces joined
        total, launches = launched(lambda: ampc.nn.utils.clip_grad_norm_(params, 1.0))
        assert launches == 3 and ampc._C._pending() == n  # the norm, the factor, its product with the one that waits
        norm = np.sqrt(sum(np.square(g / 64.0).sum(dtype=np.float64) for g in raw))
        assert total.item() == pytest.approx(norm, rel=1e-6)
        launches = launched(lambda: scaler.step(opt))[1]
        assert (first or launches <= 2) and ampc._C._pending() == n  # counts advanced, the pass
        for p, old, g in zip(params, before, raw):
            want = g / 64 / (norm + 1e-6)
            assert np.allclose(old - p.numpy(force=True), want, rtol=4e-7, atol=2e-7) and np.allclose(p.grad.numpy(force=True), want, rtol=4e-7, atol=0)
        assert ampc._C._pending() == 0
        scaler.update()


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float64], ids=str)
def test_the_factor_of_clipping(dtype):
    """limit / (norm + 1e-6), at most 1; limits are numbers, and numbers on the GPU; nan spreads."""
    inf = float("inf")
    for norm, limit, want in ((4.0, 2.0, 2 / (4 + 1e-6)), (1.0, 2.0, 1.0), (inf, 2.0, 0.0), (float("nan"), 2.0, float("nan")), (inf, inf, float("nan"))):
        for most in (limit, ampc.tensor(limit), ampc.tensor(limit, dtype=ampc.float64)):
            factor = ampc._C._cuda_clip_factor(ampc.tensor(norm, dtype=dtype), most)
            assert factor.dtype is ampc.float64 and np.array_equal(factor.numpy(force=True), want, equal_nan=True)
    with pytest.raises(ValueError, match="norm: expected one number"):
        ampc._C._cuda_clip_factor(ampc.ones(2), 1.0)


@simulated
def test_clipping_takes_the_norm_that_unscaling_saw():
    net, opt, scaler = training()
    parameters = list(net.parameters())
    step = lambda: scaler.scale(net(ampc.randn(4, 8)).square().sum()).backward()  # noqa: E731
    norm_of = lambda: ampc.nn.utils.get_total_norm([p.grad for p in parameters])  # noqa: E731
    want = lambda: sum(p.grad.double().square().sum().item() for p in parameters) ** 0.5  # noqa: E731
    spoilers = {
        "nothing": lambda: None,
        "a write": lambda: parameters[0].grad.mul_(3),
        "a write through a view": lambda: parameters[1].grad[:2].fill_(100.0),
        "another gradient": lambda: setattr(parameters[0], "grad", parameters[0].grad * 2),
        "memory lent out": lambda: parameters[0].grad.__dlpack__(),
    }
    for name, spoil in spoilers.items():
        opt.zero_grad()
        step()
        scaler.unscale_(opt)
        spoil()
        norm, again = launched(norm_of)
        assert norm.item() == pytest.approx(want(), rel=1e-6), name
        statistics = launched(norm_of)[1]
        assert again < statistics if name == "nothing" else again == statistics, name
        scaler.step(opt)
        scaler.update()


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


def test_as_tensor_takes_the_protocol_that_waits():
    """An array of another library may have both; its array interface may tell of no stream, as torch's does not."""
    side, x = ampc.cuda.Stream(), ampc.arange(6.0)
    asked = []

    class Other:
        __cuda_array_interface__ = {**x.__cuda_array_interface__, "version": 2, "stream": None}

        def __dlpack_device__(self):
            return x.__dlpack_device__()

        def __dlpack__(self, **options):
            asked.append(options["stream"])
            return x.__dlpack__(**options)

    with ampc.cuda.stream(side):
        shared = ampc.as_tensor(Other())
    assert shared.data_ptr() == x.data_ptr() and asked == [side.cuda_stream]


def test_torch_shares_memory_and_order(torch):
    """With the machine's torch, on a real GPU: no copies either way, and what one queues the other sees."""
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    x = ampc.arange(1 << 20, dtype=ampc.float32)
    theirs = torch.from_dlpack(x)
    theirs.mul_(2)
    assert theirs.data_ptr() == x.data_ptr() and x[-1].item() == 2.0 * ((1 << 20) - 1)
    mine = ampc.from_dlpack(torch.ones(1000, device="cuda", dtype=torch.bfloat16) * 3)
    assert mine.dtype is ampc.bfloat16 and mine.float().sum().item() == 3000
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        big = torch.ones(1 << 22, device="cuda").cumsum(0)
        shared = ampc.as_tensor(big)
    assert shared[-1].item() == 1 << 22
    with ampc.cuda.stream(ampc.cuda.ExternalStream(side.cuda_stream)):
        assert (shared * 2)[0].item() == 2


def test_the_demo_trains_on_the_gpu():
    from ampc.cli.demo import train
    from ampc.data import load_digits

    images, labels = load_digits()
    data = images[:300], labels[:300], images[300:400], labels[300:400]
    run = train("float16", data, epochs=2, device="cuda")
    assert run.losses[-1] < run.losses[0] and run.final_scale < 2.0**24 and run.skipped > 0 and run.accuracy > 0.2


def test_gradients_add_up_over_micro_batches():
    net, opt, scaler = training()
    x = ampc.randn(8, 8)
    scaler.scale(net(x).square().mean()).backward()
    whole = [p.grad.clone() for p in net.parameters()]
    opt.zero_grad()
    for part in x.chunk(4):
        scaler.scale(net(part).square().mean() / 4).backward()
    for p, w in zip(net.parameters(), whole):
        assert (p.grad - w).abs().max().item() <= 1e-5 * max(1, w.abs().max().item())


def test_mixed_devices_in_one_optimizer():
    """Parameters on the CPU and on the GPU are both stepped, and a bad gradient on one holds back both."""
    a, b = ampc.nn.Parameter(ampc.ones(3, device="cpu")), ampc.nn.Parameter(ampc.ones(3))
    opt, scaler = ampc.optim.SGD([a, b], lr=1.0), ampc.amp.GradScaler("cuda", init_scale=2.0)

    def step(bad):
        opt.zero_grad()
        scaler.scale(a.sum().cuda() + b.sum()).backward()
        if bad:
            b.grad[1] = float("inf")
        scaler.step(opt)
        scaler.update()

    step(False)
    assert a.tolist() == [0, 0, 0] and b.tolist() == [0, 0, 0]
    step(True)
    assert a.tolist() == [0, 0, 0] and b.tolist() == [0, 0, 0] and scaler.get_scale() == 1.0


@pytest.mark.parametrize("dtype", [ampc.float16, ampc.bfloat16], ids=str)
@pytest.mark.parametrize("m, k, n", [(1, 4, 1), (16, 63, 179), (8, 4096, 8)])
def test_parts_of_a_product_are_joined_in_float32(m, k, n, dtype):
    """cuBLASLt cuts a long sum into parts where a result has few values. Parts rounded to 16 bits would give 0 here."""
    large = 256.0 if dtype is ampc.bfloat16 else 2048.0
    x, w = ampc.zeros(m, k), ampc.ones(n, k)
    x[:, 0], x[:, k // 2 - 1], x[:, -1] = large, 1, -large
    assert (ampc.nn.functional.linear(x.to(dtype), w.to(dtype)) == 1).all()


@pytest.mark.filterwarnings("ignore::ampc.doctor.PerformanceNote")
def test_a_gated_scheduler_follows_the_steps_that_a_graph_applies():
    def train(graphed):
        model = make_model()
        optimizer, scaler = ampc.optim.SGD(model.parameters(), lr=0.05), ampc.amp.GradScaler("cuda", init_scale=2.0**19, growth_interval=3)
        scheduler = ampc.optim.lr_scheduler.StepLR(optimizer, 3, 0.9)
        gated = scaler.gate(scheduler)
        step = ampc.cuda.graph_step(model, ampc.nn.functional.cross_entropy, optimizer, scaler) if graphed else lambda x, y: eager_step(model, optimizer, scaler, x, y, None)
        seen = []
        for x, y in make_batches(30):
            step(x, y)
            gated.step()
            seen.append((scheduler.last_epoch, optimizer.param_groups[0]["lr"], scaler.last_step.skipped))
        return seen

    eager, graphed = train(False), train(True)
    skipped = sum(s for *_, s in eager)
    assert graphed == eager and 0 < skipped < 30 and eager[-1][0] == 30 - skipped


@pytest.mark.filterwarnings("ignore::ampc.doctor.PerformanceNote")
def test_a_graphed_step_does_not_accumulate():
    """Gradients that are there before a call do not count, with and without a replay."""
    def train(leftover):
        model = make_model()
        optimizer = ampc.optim.SGD(model.parameters(), lr=0.05)
        step = ampc.cuda.graph_step(model, ampc.nn.functional.cross_entropy, optimizer, dtype=ampc.float32, warmup=1)
        ampc.manual_seed(9)
        for x, y in make_batches(4):
            for i, p in enumerate(model.parameters()) if leftover else ():
                p.grad = ampc.ones_like(p) if p.grad is None or i % 2 else p.grad.add_(1)
            step(x, y)
        return [p.tolist() for p in model.parameters()], [p.grad.tolist() for p in model.parameters()]

    assert train(True) == train(False)
