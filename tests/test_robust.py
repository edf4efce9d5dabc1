"""Robustness: bad input of every kind, failing allocations, fork, threads, leaks."""

import gc
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from references import part
from samples import OPERATORS, SAMPLES, function, outputs, to_ampc
from where import DEVICE, FEWER, ON_GPU, SIMULATED, settled

import ampc

# -- bad input ------------------------------------------------------------------------------------------

EXPECTED = (TypeError, ValueError, RuntimeError, IndexError, OverflowError, NotImplementedError, MemoryError, AttributeError, ZeroDivisionError)


def tensors():
    shapes = st.sampled_from([(), (0,), (1,), (3,), (2, 3), (3, 2), (0, 3), (2, 1, 3), (1, 2, 3, 4), (2,) * 8])
    dtypes = st.sampled_from(["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])

    def build(shape, dtype, kind):
        t = ampc.ones(shape, dtype=getattr(ampc, dtype))
        if kind == "transposed" and len(shape) > 1:
            return t.transpose(0, -1)
        if kind == "expanded" and shape:
            return t[:1].expand(shape) if shape[0] else t
        if kind == "grad" and t.is_floating_point():
            return t.requires_grad_()
        return t

    return st.builds(build, shapes, dtypes, st.sampled_from(["plain", "transposed", "expanded", "grad"]))


HUGE = st.sampled_from([-1, 0, 1, 2, 5, -2**31, 2**31, 2**62, -(2**63), 2**63, 2**70])
ANYTHING = st.one_of(tensors(), HUGE, st.floats(), st.booleans(), st.none(), st.text(max_size=3), st.lists(HUGE, max_size=4),
                     st.lists(tensors(), max_size=3), st.sampled_from([ampc.float16, ampc.int64, object(), ampc, "mean", "sum", "tanh", b"x", {}]),
                     st.tuples(HUGE, HUGE))


def hear_of_bad_indices():
    """A GPU tells of them when it is waited for: here, and not at some later call."""
    try:
        settled()
    except IndexError as e:
        assert ON_GPU and "out of range" in str(e)


# What is checked before a kernel is chosen is the same on the simulator: there, a part of the operators.
every_operator = pytest.mark.parametrize("name", part(list(OPERATORS), 4 if SIMULATED else 1))


@pytest.fixture(scope="module", autouse=True)
def some_memory():
    """A huge size ends in a MemoryError, and not in the death of the process that filled the machine's memory."""
    resource = pytest.importorskip("resource") if sys.platform == "linux" and not ON_GPU else None
    if resource is None:
        yield
        return
    limits = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + 6 * 2**30, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


@settings(max_examples=int(os.environ.get("AMPC_EXAMPLES", "40")), deadline=None, suppress_health_check=list(HealthCheck))
@every_operator
@given(data=st.data())
def test_any_object_as_any_argument(name, data):
    """Either it works, or it raises one of torch's kinds of exception; nothing else."""
    f = function(name)
    if name in ("full", "uniform", "normal", "randint", "randperm", "arange"):
        args = data.draw(st.lists(st.one_of(st.sampled_from([-1, 0, 2, 2.5, None, "x", [2, 3], [-1], [2**40, 2**40], ampc.float32, ampc.int64]),), max_size=5))
    else:
        args = data.draw(st.lists(ANYTHING, max_size=5))
    for g in (f, ampc._C._functions.get(OPERATORS[name]["python"] + "_", f)):  # and in place, where there is such
        try:
            g(*args)
        except EXPECTED as e:
            assert str(e) or isinstance(e, MemoryError)
        hear_of_bad_indices()


@settings(max_examples=int(os.environ.get("AMPC_EXAMPLES", "40")), deadline=None, suppress_health_check=list(HealthCheck))
@every_operator
@given(data=st.data())
def test_a_good_call_with_one_argument_replaced(name, data):
    if not SAMPLES[name]:
        pytest.skip("a row of the GPU alone, in 16 bits")
    s = SAMPLES[name][0]
    args, kwargs = to_ampc(s, ampc.float32)
    args = list(args)
    small = name in ("full", "uniform", "normal", "randint", "randperm", "arange")
    args[data.draw(st.integers(0, len(args) - 1))] = data.draw(st.sampled_from([-1, 0, 3, None, "x", [2, 2], [-1], []]) if small else ANYTHING)
    try:
        result = function(name)(*args, **kwargs)
        for r in result if isinstance(result, tuple) else [result]:
            if r.requires_grad and r.numel() == 1:
                r.backward()
    except EXPECTED as e:
        assert str(e) or isinstance(e, MemoryError)
    hear_of_bad_indices()


def test_messages_name_operator_argument_and_shapes():
    x = ampc.ones(2, 3)
    for f, kind, words in [
        (lambda: x @ ampc.ones(2, 3), RuntimeError, ["matmul: ", "[2, 3]", "inner sizes 3 and 2"]),
        (lambda: x + ampc.ones(4), RuntimeError, ["add", "[2, 3]", "[4]"]),
        (lambda: ampc.nn.Linear(4, 2)(x), RuntimeError, ["linear", "[2, 3]", "weight", "[2, 4]"]),
        (lambda: x.sum(5), IndexError, ["sum", "5", "-2 to 1"]),
        (lambda: ampc.cat([x, ampc.ones(2)]), RuntimeError, ["cat", "tensor 1"]),
        (lambda: x.view(4), RuntimeError, ["view", "[4]", "6"]),
        (lambda: ampc.softmax(x), TypeError, ["softmax", "dim", "missing"]),
        (lambda: ampc.relu("text"), TypeError, ["relu", "`x`", "Tensor", "str"]),
        (lambda: x.sum(axes=1), TypeError, ["sum", "axes"]),
        (lambda: x.max(dim="0"), TypeError, ["max", "signatures"]),
        (lambda: ampc.mm(x, ampc.ones(3, 2).half()), RuntimeError, ["same dtype", "float32", "float16"]),
        (lambda: ampc.nn.functional.mse_loss(x, x, reduction="avg"), ValueError, ["reduction", "none,mean,sum", "avg"]),
        (lambda: settled(ampc.nn.functional.nll_loss(x, ampc.tensor([0, 7]))), IndexError, ["target", "7", "3"]),
        (lambda: settled(ampc.gather(x, 1, ampc.tensor([[9]]))), IndexError, ["gather", "9", "3"]),
        (lambda: ampc.ones(2, dtype=ampc.int64).add_(0.5), RuntimeError, ["float32", "int64"]),
        (lambda: ampc.zeros(2**40, 2**40), RuntimeError, ["more elements"]),
        (lambda: ampc.zeros(2**50), (MemoryError, ampc.OutOfMemoryError), ["4194304.00 GiB" if ON_GPU else "cannot allocate"]),
        (lambda: x.to("cuda:77"), RuntimeError, ["cuda:77"]),
    ]:
        with pytest.raises(kind) as e:
            f()
        for word in words:
            assert word in str(e.value), (word, str(e.value))


@pytest.mark.parametrize("call, start", [
    ("x.scatter(1, n + 5, x)", "scatter: index 5"), ("x.scatter_(1, n + 5, x)", "scatter: index 5"), ("x.scatter_reduce(1, n + 5, x, 'sum')", "scatter_reduce: index 5"),
    ("x.put_(n + 9, x)", "put: index 9"), ("ampc.take(x, n + 9)", "take: index 9"), ("ampc.masked_scatter(x, x > 0, n)", "masked_scatter: "),
    ("ampc.index_put(x, (n, n, n), x)", "index_put: 3 indices"), ("ampc.index_fill(x, 1, n[0], x)", "index_fill: "), ("F.max_pool2d(x[None], -1)", "max_pool2d: `kernel_size`"),
    ("F.avg_pool1d(x > 0, 2)", "avg_pool1d: "), ("F.adaptive_max_pool2d(x[None], -1)", "adaptive_max_pool2d: "), ("F.conv1d(n[None], x[None])", "conv1d: "),
    ("F.conv_transpose2d(n[None], x[None, None])", "conv_transpose2d: "), ("F.fold(n[None], (5, 5), 3)", "fold: "), ("F.normalize(n)", "normalize: "), ("F.celu(n)", "celu: "),
    ("F.dropout2d(n[None, None], 0.5)", "dropout2d: "), ("F.rms_norm(n, (3,))", "rms_norm: "), ("F.local_response_norm(n[None], 2)", "local_response_norm: "),
    ("F.instance_norm(x[None], weight=x[0].double())", "instance_norm: "), ("x @ n.T", "matmul: "), ("x @ x", "matmul: shapes [2, 3] and [2, 3]"), ("ampc.mv(x, n[0])", "mv: "),
    ("ampc.inner(x, n)", "inner: "), ("ampc.addmm(n, x, x.T)", "addmm: "), ("ampc.clamp(x, min=x[:, :2])", "clamp: shapes"), ("ampc.max(x, x[:, :2])", "max: shapes"),
    ("ampc.argsort(x, 5)", "argsort: dimension 5"), ("ampc.ldexp(x, x[:, :2])", "ldexp: shapes"), ("ampc.var_mean(n, 1)", "var_mean: "), ("ampc.aminmax(x, dim=5)", "aminmax: "),
    ("ampc.norm(x, 2, 5)", "norm: dimension 5"), ("x.norm(object(), 1)", "norm: argument `p`"), ("ampc.hstack([x, x[None]])", "hstack: "), ("ampc.full([2], 1j)", "full: "),
    ("ampc.cumulative_trapezoid(x, dim=5)", "cumulative_trapezoid: "), ("ampc.det(n)", "det: "), ("ampc.cholesky_solve(x.T.double(), q)", "cholesky_solve: "),
    ("linalg.solve(q * 0, q)", "linalg.solve: matrix 0 is singular"), ("linalg.cholesky(-q)", "linalg.cholesky: matrix 0"), ("linalg.qr(q, 'all')", "linalg.qr: `mode`"),
    ("linalg.qr()", "linalg.qr: argument `A` is missing; the signature is linalg.qr(A: Tensor"), ("linalg.cond(None)", "linalg.cond: the arguments fit none of its signatures:\n  linalg.cond("),
    ("linalg.multi_dot([x, x])", "linalg.multi_dot: "), ("linalg.matrix_power(q * 0, -1)", "matrix_power: matrix 0"), ("ampc.special.zeta(x)", "special.zeta: argument `other`"),
    ("ampc.special.i1(None)", "special.i1: argument `x`"), ("ampc.pinverse(n)", "pinverse: "), ("ampc.svd(n)", "svd: ")])
def test_messages_name_what_was_called(call, start):
    """Not the operator within it that failed; by the name under which users find it."""
    x, n, q = ampc.ones(2, 3), ampc.zeros(2, 3, dtype=ampc.int64), ampc.eye(3)
    with pytest.raises(EXPECTED) as e:
        settled(eval(call, {"ampc": ampc, "F": ampc.nn.functional, "linalg": ampc.linalg, "x": x, "n": n, "q": q}))
    assert "on the GPU: index" in str(e.value) or str(e.value).startswith(start), str(e.value)


class Halved(ampc.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x / 2

    @staticmethod
    def backward(ctx, g):
        return g[:1].repeat(3)


class OneWay(ampc.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x / 2


def returning(result):
    x = ampc.ones(2, requires_grad=True)
    x.register_hook(lambda g: result)
    return x


def entropy(target):
    return ampc.nn.functional.cross_entropy(ampc.ones(3, 2), target)


def attend(q, k, v, dtype=ampc.float32):
    return ampc.nn.functional.scaled_dot_product_attention(ampc.ones(*q).to(dtype), ampc.ones(*k), ampc.ones(*v))


MISTAKES = [
    (lambda: ampc.zeros(2, 2)[0, 1, 2], IndexError, "too many indices for a tensor of 2 dimensions"),
    (lambda: ampc.zeros(2, 2).__setitem__((0, ampc.tensor([0]), 0), 1.0), IndexError, "too many indices for a tensor of 2 dimensions"),
    (lambda: ampc.zeros(5).__setitem__(slice(1, 3), ampc.ones(3)), RuntimeError, r"a value of shape \[3\] does not fit.*of shape \[2\]"),
    (lambda: ampc.zeros(5).__setitem__(0, ampc.ones(2)), RuntimeError, r"a value of shape \[2\] does not fit.*of shape \[\]"),
    (lambda: Halved.apply(ampc.ones(2, requires_grad=True)).sum().backward(), RuntimeError, r"backward of Halved gave a gradient of shape \[3\] for an input of shape \[2\]"),
    (lambda: OneWay.apply(ampc.ones(2, requires_grad=True)).sum().backward(), NotImplementedError, "OneWay: define backward"),
    (lambda: returning(ampc.ones(7)).sum().backward(), RuntimeError, r"hook returned a gradient of shape \[7\], it was given one of shape \[2\]"),
    (lambda: ampc.nn.CrossEntropyLoss(ampc.ones(3, 2), ampc.tensor([1, 0, 1])), RuntimeError, r"made first and then called"),
    (lambda: ampc.nn.MSELoss(ampc.ones(3), ampc.ones(3)), RuntimeError, "made first and then called"),
    (lambda: ampc.optim.Adam(ampc.nn.Linear(2, 2)), TypeError, r"'Linear' object is not iterable; of a module, pass its parameters\(\)"),
    (lambda: ampc.nn.utils.clip_grad_norm_(ampc.nn.Linear(2, 2), 1.0), TypeError, r"pass its parameters\(\)"),
    (lambda: f"{ampc.ones(2):.2f}", TypeError, r"'.2f' is for one number, the tensor has shape \[2\]"),
    (lambda: ampc.randn(2, generator=5), TypeError, "`generator` must be an ampc.Generator or None, got int"),
    (lambda: ampc.randperm(2, generator=5), TypeError, "`generator` must be an ampc.Generator or None, got int"),
    (lambda: ampc.set_rng_state(ampc.zeros(5056, dtype=ampc.uint8)), RuntimeError, r"got ampc.uint8 \[5056\]; torch's states"),
    (lambda: ampc.Generator().set_state(ampc.zeros(3)), TypeError, r"16 bytes \(uint8\).*got ampc.float32 \[3\]"),
    (lambda: ampc.nn.Embedding(3, 4)(ampc.tensor([1.0])), RuntimeError, "^embedding: `index` holds indices"),
    (lambda: entropy(ampc.tensor([[1, 0], [0, 1], [1, 0]])), RuntimeError, r"`target` is int64 \[3, 2\] beside `input` \[3, 2\].*argmax\(1\)"),
    (lambda: entropy(ampc.tensor([[1], [0], [1]])), RuntimeError, r"`target` is int64 \[3, 1\].*squeeze\(1\)"),
    (lambda: attend((1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 3, 4)), RuntimeError, r"needs as many features.*query float32 \[1, 2, 3, 4\], key float32 \[1, 2, 3, 5\]"),
    (lambda: attend((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 5, 4)), RuntimeError, "needs as many rows in key as in value"),
    (lambda: attend((1, 2, 3, 4), (1, 3, 3, 4), (1, 3, 3, 4)), RuntimeError, "heads, that broadcast.*enable_gqa"),
    (lambda: attend((2, 3, 4), (2, 3, 4), (2, 3, 4), ampc.float16), RuntimeError, "needs one dtype, got query float16"),
    (lambda: ampc.manual_seed(2**64), ValueError, "does not fit 64 bits"),
]


@pytest.mark.parametrize(("call", "kind", "text"), MISTAKES, ids=range(len(MISTAKES)))
def test_messages_of_everyday_mistakes(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_seeds_are_what_torch_takes():
    for seed in (2**64 - 1, -1, -(2**63), 1.5, "7", np.int64(3), ampc.tensor(3)):
        ampc.manual_seed(seed)
        first = ampc.rand(3)
        assert ampc.initial_seed() == int(seed) % 2**64
        if hasattr(seed, "__index__"):
            assert ampc.rand(3, generator=ampc.Generator().manual_seed(seed)).equal(first)
        else:  # as in torch, whose generators ask for ints
            with pytest.raises(RuntimeError, match="the seed must be an int"):
                ampc.Generator().manual_seed(seed)


# -- allocations that fail ----------------------------------------------------------------------------------


def training_step(net, opt, scaler, x, y):
    opt.zero_grad()
    with ampc.autocast(DEVICE, dtype=ampc.float16):
        loss = ampc.nn.functional.cross_entropy(net(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    ampc.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    return loss.item()


def make_training():
    ampc.manual_seed(0)
    net = ampc.nn.Sequential(ampc.nn.Linear(6, 8), ampc.nn.LayerNorm(8), ampc.nn.GELU(), ampc.nn.BatchNorm1d(8), ampc.nn.Dropout(0.1), ampc.nn.Linear(8, 3))
    return net, ampc.optim.AdamW(net.parameters()), ampc.amp.GradScaler("cpu"), ampc.randn(5, 6), ampc.tensor([0, 1, 2, 0, 1])


def live_blocks():
    """Blocks of the host's memory that are in use, without what caches keep."""
    gc.collect()
    ampc.clear_autocast_cache()
    notes = 0
    if ON_GPU:
        ampc.cuda.empty_cache()
        notes = ampc.cuda.memory_stats()["inactive_split.all.current"]  # the allocator's, on what is free between live blocks
    return ampc._C._memory()["blocks"] - notes


def test_every_allocation_of_a_step_may_fail():
    """MemoryError, nothing leaked, and the process trains on. A run takes one in twelve of the allocations, `make soak` all."""
    training_step(*make_training())
    blocks = live_blocks()  # empties the caches, as before each step below: what they hold decides what a step asks for
    ampc._C._fail_alloc(0)
    training_step(*make_training())
    total = ampc._C._alloc_calls()
    assert total > 200 and live_blocks() == blocks
    for n in part(range(1, total + 1), 12 * FEWER):
        ampc._C._fail_alloc(n)
        try:
            training_step(*make_training())
            failed = False
        except MemoryError:
            failed = True
        finally:
            ampc._C._fail_alloc(0)
        assert failed, n
        assert live_blocks() == blocks, n
        assert ampc.is_grad_enabled() and not ampc.is_autocast_enabled()
    assert training_step(*make_training()) > 0


def windows_and_factors():
    """Kernels that keep memory of their own: convolution both ways, attention, pooling, resampling, running totals, recurrent layers, LAPACK."""
    F = ampc.nn.functional
    x, few = ampc.randn(2, 16, 6, 6, requires_grad=True), ampc.randn(2, 3, 6, 6, requires_grad=True)
    total = F.conv2d(x, ampc.randn(16, 16, 3, 3, requires_grad=True), ampc.randn(16), padding=1).sum()
    total = total + F.conv_transpose2d(few, ampc.randn(3, 2, 3, 3, requires_grad=True), ampc.randn(2), stride=2).sum()
    total = total + F.conv2d(few, ampc.randn(3, 1, 3, 3, requires_grad=True), ampc.randn(3), groups=3).sum()
    total = total + F.max_pool2d(few, 2).sum() + F.interpolate(few, scale_factor=2, mode="bilinear").sum() + few.cumsum(2).cumprod(3).sum()
    q = few.reshape(2, 18, 6)
    total = total + F.scaled_dot_product_attention(q, q, q).sum() + few.logcumsumexp(1).sum()
    for layer in (ampc.nn.LSTM(6, 5), ampc.nn.GRU(6, 5)):
        total = total + layer(q)[0].sum()
    square = ampc.eye(4) * 3 + ampc.randn(4, 4, requires_grad=True) * 0.1
    total = total + ampc.linalg.inv(square).sum() + ampc.linalg.svdvals(square).sum() + ampc.linalg.cholesky(square @ square.T).sum()
    total.backward()
    return total.item()


class Squares(ampc.autograd.Function):
    @staticmethod
    def forward(ctx, *x):
        ctx.save_for_backward(*x)
        return tuple(t * t for t in x)

    @staticmethod
    def backward(ctx, *g):
        return tuple(2 * t * one for t, one in zip(ctx.saved_tensors, g))


def long_lists():
    """Lists of more tensors than a call keeps without memory of its own: joined, cut, cast, multiplied, differentiated twice."""
    x = [ampc.full((2,), 0.01 * i, requires_grad=True) for i in range(30)]
    low = [t.half() if i % 2 else t for i, t in enumerate(x)]
    rows = ampc.stack(x)
    few, many = rows.split([4, 26])
    with ampc.autocast(DEVICE, dtype=ampc.float16):
        total = ampc.cat(low).sum() + ampc.stack(low, 1).sum()
    total = total + sum((t * t).sum() for t in rows.unbind()[3:]) + few.sum() * many.sum() + ampc.stack(Squares.apply(*x)).sum()
    total = total + ampc.linalg.multi_dot([t.view(2, 1) @ t.view(1, 2) + 1 for t in [*x, *x[:5]]]).log().sum()
    g = ampc.autograd.grad(total, x, create_graph=True)
    (ampc.cat(g) * ampc.cat(g)).sum().backward()
    with ampc.no_grad():
        out = ampc.cat(x, out=ampc.empty(0))
        ampc.cat([out[:2]] * 30, out=out)
    return sum(t.grad.sum() for t in x).item()


@pytest.mark.parametrize("work", [windows_and_factors, long_lists])
def test_every_allocation_may_fail(work):
    want = work()
    blocks = live_blocks()
    ampc._C._fail_alloc(0)
    work()
    total = ampc._C._alloc_calls()
    assert total > 200 and live_blocks() == blocks
    for n in part(range(1, total + 1), max(6, total // 50) * FEWER):
        ampc._C._fail_alloc(n)
        try:
            work()
        except MemoryError:
            pass
        finally:
            ampc._C._fail_alloc(0)
        assert live_blocks() == blocks, n
    assert math.isfinite(want) and math.isfinite(work())


def leaves(value):
    if isinstance(value, ampc.Tensor):
        return [value] if value.requires_grad else []
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in leaves(v)] if isinstance(value, (list, tuple)) else []


def second_derivative(name, sample, dtype, autocast):
    """A function that calls the operator, and differentiates it twice."""
    given = to_ampc(sample, dtype, OPERATORS[name]["differentiable"] and sample.grad)

    def grads(results):
        results = [r for r in results if r is not None and r.requires_grad]
        if not results:
            return []
        return ampc.autograd.grad(results, leaves(given), [ampc.ones_like(r) for r in results], create_graph=True, allow_unused=True)

    def run():
        with ampc.autocast(DEVICE, dtype=ampc.bfloat16, enabled=autocast):
            results = outputs(function(name)(*given[0], **given[1]))
        grads(grads(results))

    return run


@pytest.mark.cpu
@pytest.mark.parametrize("dtype, autocast", [(ampc.float32, False), (ampc.bfloat16, False), (ampc.float32, True)], ids=str)
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_allocation_of_an_operator_may_fail(name, dtype, autocast):
    """MemoryError, and never a crash, in the operator, its derivative and the derivative of that."""
    for sample in SAMPLES[name]:
        run = second_derivative(name, sample, dtype, autocast)
        try:
            run()
        except (RuntimeError, NotImplementedError):  # not in this dtype
            continue
        ampc._C._fail_alloc(0)
        run()
        total = ampc._C._alloc_calls()
        failed = 0
        for n in range(1, total + 1, max(1, total // 100)):
            ampc._C._fail_alloc(n)
            try:
                run()
            except MemoryError:
                failed += 1
            finally:
                ampc._C._fail_alloc(0)
        run()
        assert failed or not total


@pytest.mark.slow
def test_every_allocation_of_an_import_may_fail():
    code = "import ampc; ampc._C._fail_alloc(0); print(ampc.ones(2).sum().item())"
    count = "import ampc; print(ampc._C._alloc_calls())"

    def run(n, code):
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "AMPC_FAIL_ALLOC": str(n)})

    total = int(run(10**9, count).stdout)
    for n in range(1, total + 2):
        done = run(n, code)
        ok = done.returncode == 0 and done.stdout == "2.0\n"
        assert ok if n > total else done.returncode == 1 and "MemoryError" in done.stderr, (n, done.stderr)


# -- processes and leaks ----------------------------------------------------------------------------------------


def python(code, **env):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_fork_after_parallel_work():
    python("""
        import os, ampc
        x = ampc.randn(600, 600)
        half, single = x.bfloat16(), x.half()
        def work():
            return ((x @ x).exp().sum() + (half @ half).float().sum() + (single @ single).float().sum()).item()
        want = work()
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                os._exit(0 if work() == want else 1)
            assert os.waitpid(pid, 0)[1] == 0
    """)


@pytest.mark.parametrize("low", ["", "bfloat16", "float16"])
def test_results_do_not_depend_on_threads(low):
    out = {n: python(f"""
        import ampc, hashlib
        ampc.manual_seed(0)
        net = ampc.nn.Sequential(ampc.nn.Linear(300, 300), ampc.nn.GELU(), ampc.nn.Linear(300, 50))
        opt = ampc.optim.AdamW(net.parameters())
        for _ in range(3):
            with ampc.autocast("cpu", dtype=getattr(ampc, "{low}" or "bfloat16"), enabled=bool("{low}")):
                loss = ampc.nn.functional.cross_entropy(net(ampc.randn(700, 300)), ampc.randint(0, 50, (700,)))
            loss.backward()
            opt.step()
        print(hashlib.sha256(ampc._C._tensor_bytes(net[0].weight)).hexdigest())
    """, OMP_NUM_THREADS=str(n)) for n in (1, 2, 3)}
    assert len(set(out.values())) == 1


def test_instruction_sets_agree():
    out = {isa: float(python("""
        import ampc
        x = ampc.linspace(-4, 4, 10001)
        print((x.exp() + x.tanh() + x.erf() + ampc.nn.functional.gelu(x)).double().sum().item())
        assert ampc._C._build_info()["cpu_loops"] in "baseline avx2 avx512".split()
    """, AMPC_CPU=isa)) for isa in ("baseline", "avx2", "avx512")}
    assert max(out.values()) - min(out.values()) < 1e-3 * abs(out["baseline"])


def test_training_does_not_leak(monkeypatch):
    monkeypatch.setattr(ampc.doctor.ledger, "STEPS", 20)  # of a ring that is full
    monkeypatch.setattr(ampc.doctor.ledger, "TABLES", 5)
    things = make_training()
    for _ in range(30):
        training_step(*things)
    gc.collect()
    blocks = live_blocks()
    for _ in range(50):
        training_step(*things)
    assert live_blocks() == blocks


def test_errors_do_not_leak():
    x = ampc.ones(2, 3, requires_grad=True)
    gc.collect()
    blocks = live_blocks()
    for _ in range(50):
        for f in (lambda: x @ x, lambda: x.view(4), lambda: ampc.cat([x, ampc.ones(2)]), lambda: x.sum(7), lambda: x[5], lambda: x + "a"):
            with pytest.raises(EXPECTED):
                f()
    assert live_blocks() == blocks


def test_import_is_light():
    """Neither NumPy nor torch is imported, and the GIL-free parts start no thread."""
    out = python("""
        import sys, threading, ampc
        print("numpy" in sys.modules, "torch" in sys.modules, threading.active_count())
    """)
    assert out.split() == ["False", "False", "1"]


# -- integers --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8"])
def test_integers_wrap(dtype):
    """Modulo 2**bits, as torch's do. Under the sanitizers (make debug) an overflow in C would end the process."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    a = np.resize(np.array([low, high, high, low, low + 1, 3], dtype), (48, 70))
    x = ampc.tensor(a, device=DEVICE)
    whole = a.astype(np.int64)
    same = {
        "sum": (x.sum(), whole.sum()), "columns": (x.sum(0), whole.sum(0)), "rows": (x.sum(1), whole.sum(1)), "into": (x.sum(0, dtype=x.dtype), whole.sum(0).astype(dtype)),
        "prod": (x.prod(1), whole.prod(1)), "prods": (x.prod(0), whole.prod(0)), "cumsum": (x.cumsum(0), whole.cumsum(0)), "cumprod": (x.cumprod(1), whole.cumprod(1)),
        "add": (x + x, a + a), "alpha": (x.add(x, alpha=3), a + a * np.array(3, dtype)), "sub": (-x - x, -a - a), "mul": (x * x, a * a), "neg": (-x, -a), "abs": (x.abs(), np.abs(a)),
        "square": (x.square(), a * a), "pow": (x ** 5, a * a * a * a * a), "matmul": (x @ x.t(), a @ a.T), "dot": (x[0].dot(x[1]), np.dot(a[0], a[1])), "mv": (x @ x[0], a @ a[0]),
        "trace": (x.trace(), whole.trace()), "diff": (x.diff(), np.diff(a)), "addcmul": (x.addcmul(x, x, value=2), a + a * a * np.array(2, dtype)),
        "index_add": (x.index_add(0, ampc.zeros(48, dtype=ampc.int64, device=DEVICE), x)[0], (whole.sum(0) + whole[0]).astype(dtype)),
        "scatter_add": (x.scatter_add(0, ampc.zeros(48, 70, dtype=ampc.int64, device=DEVICE), x)[0], (whole.sum(0) + whole[0]).astype(dtype)),
        "arange": (ampc.arange(0, 6, device=DEVICE) * high, np.arange(6) * np.int64(high)), "shift": (x << 3, a << np.array(3, dtype)), "cross": (x[:, :3].cross(x[:, 1:4]), np.cross(a[:, :3], a[:, 1:4])),
    }
    if low:
        same |= {"floor_divide": (x // -1, -a), "remainder": (x % -1, a * 0), "fmod": (x.fmod(-1), a * 0), "gcd": (x.gcd(x), np.abs(a)), "trunc": (x.div(-1, rounding_mode="trunc"), -a)}
    for name, (ours, wrapped) in same.items():
        assert ours.tolist() == wrapped.tolist(), name
