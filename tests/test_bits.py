"""What may change the bits of a result, and what may not.

Threads and caches never do. The instruction set does wherever numbers are rounded in between: what is in SAME_EVERYWHERE and SAME_WITHOUT_UNITS is
not. docs/numerics.md says the same in prose."""

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from machines import machine

import ampc

pytestmark = pytest.mark.cpu
nn, F = ampc.nn, ampc.nn.functional
CACHES = [512 << 10, 64 << 10, 2 << 20, 64 << 20]  # bytes of the second level
THREADS = [1, 2, 3, 8]
MANY = [8, 16, 64]  # more than there are cores, so that most wait for one while others work
LOW = [ampc.float32, ampc.bfloat16, ampc.float16]
DTYPES = [*LOW, ampc.float64]


def digest(tensors):
    h = hashlib.sha256()
    for t in tensors:
        t = t.detach().contiguous()
        h.update(str((t.dtype, tuple(t.shape))).encode() + (t.view(ampc.int16) if t.dtype is ampc.bfloat16 else t).numpy().tobytes())
    return h.hexdigest()[:16]


def with_gradients(f, *shapes):
    """f's results and the gradients of its arguments, of these shapes."""
    def run(dtype):
        ampc.manual_seed(1)
        leaves = [ampc.randn(*s).to(dtype).requires_grad_() for s in shapes]
        y = f(*leaves)
        y = y if isinstance(y, tuple) else (y,)
        return {"forward": y, "gradients": ampc.autograd.grad(y, leaves, [ampc.randn(*t.shape).to(dtype) for t in y])}
    return run


def convolution(*shapes, transposed=False, **how):
    """The gradient of its weight apart from the others."""
    def run(dtype):
        run = with_gradients(lambda x, w: (F.conv_transpose2d if transposed else F.conv2d)(x, w, **how), *shapes)(dtype)
        return {"forward": run["forward"], "gradient of the input": run["gradients"][:1], "gradient of the weight": run["gradients"][1:]}
    return run


def recurrent(kind):
    def run(dtype):
        ampc.manual_seed(1)
        net, x = getattr(nn, kind)(40, 48, 2, bidirectional=True).to(dtype), ampc.randn(7, 35, 40).to(dtype).requires_grad_()
        y = net(x)[0]
        return {"forward": [y], "gradients": ampc.autograd.grad(y, [x, *net.parameters()], ampc.ones_like(y))}
    return run


OPERATORS = {
    "convolution": convolution((9, 48, 33, 31), (40, 48, 3, 3), padding=1),
    "convolution with a stride": convolution((3, 33, 57, 55), (64, 33, 3, 3), stride=2, padding=1),
    "convolution of groups": convolution((3, 64, 31, 29), (96, 32, 5, 3), padding=(4, 1), dilation=2, groups=2),
    "convolution of few channels": convolution((3, 3, 65, 63), (24, 3, 7, 7), stride=2, padding=3),
    "depthwise convolution": convolution((5, 60, 29, 31), (60, 1, 5, 5), padding=2, groups=60),
    "transposed convolution": convolution((5, 40, 17, 19), (40, 32, 4, 4), transposed=True, stride=2, padding=1),
    "linear": with_gradients(F.linear, (333, 1100), (555, 1100), (555,)),
    "bmm": with_gradients(ampc.bmm, (7, 129, 300), (7, 300, 65)),
    "mv": with_gradients(ampc.mv, (700, 900), (900,)),
    "attention": with_gradients(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *[(3, 5, 300, 40)] * 3),
    "layer_norm": with_gradients(lambda x, w, b: F.layer_norm(x, [300], w, b), (500, 300), (300,), (300,)),
    "rms_norm": with_gradients(lambda x, w: F.rms_norm(x, [300], w), (500, 300), (300,)),
    "batch_norm": with_gradients(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), (6, 50, 40, 41), (50,), (50,)),
    "group_norm": with_gradients(lambda x, w, b: F.group_norm(x, 10, w, b), (6, 50, 40, 41), (50,), (50,)),
    "RNN": recurrent("RNN"), "LSTM": recurrent("LSTM"), "GRU": recurrent("GRU"),
    "softmax": with_gradients(lambda x: F.softmax(x, -1), (300, 1000)),
    "cross_entropy": with_gradients(lambda x: F.cross_entropy(x, ampc.arange(300)), (300, 1000)),
    "sum": with_gradients(lambda x: (x.sum(), x.sum(0), x.sum(1)), (1000, 333)),
    "cumsum": with_gradients(lambda x: (x.cumsum(0), x.cumsum(1)), (500, 333)),
    "norm": with_gradients(lambda x: (x.norm(), x.norm(dim=0), x.std(1)), (1000, 333)),
    "max_pool": with_gradients(lambda x: F.max_pool2d(x, 3, 2, 1), (5, 30, 41, 43)),
    "interpolate": with_gradients(lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), (3, 10, 41, 43)),
    "embedding": with_gradients(lambda w: F.embedding(ampc.arange(3000) * 7 % 100, w), (100, 64)),
    "gelu": with_gradients(lambda x: F.gelu(x), (500, 333)),
    "exp, log, tanh": with_gradients(lambda x: (x.exp(), x.abs().log(), x.tanh()), (500, 333)),
    "+ - * /": with_gradients(lambda x, y: (x + y, x - y, x * y, x / y), (500, 333), (500, 333)),
    "multiply and add": with_gradients(lambda x, y: (ampc.addcmul(x, x, y, value=0.3), ampc.lerp(x, y, 0.3), ampc.add(x, y, alpha=0.3), x.var(0)), (500, 333), (500, 333)),
    "sqrt, abs, round": with_gradients(lambda x: (x.abs().sqrt(), x.round()), (500, 333)),
    "copies and casts": with_gradients(lambda x: (x.t().contiguous(), x.half(), x.bfloat16(), x.double()), (500, 333)),
    "max, sort": with_gradients(lambda x: (x.amax(1), x.sort(0)[0], x.relu()), (500, 333)),
    "random numbers": lambda dtype: {"forward": [ampc.rand(3000), ampc.randint(0, 100, (3000,)), ampc.randperm(500)]},
    "dropout": with_gradients(lambda x: F.dropout(x, 0.3), (500, 333)),
}


def bits(name):
    """A digest for each part of an operator's results in each dtype."""
    ampc.manual_seed(2)
    return {(part, dtype): digest(values) for dtype in DTYPES for part, values in OPERATORS[name](dtype).items()}


# -- the lists -------------------------------------------------------------------------------------------------------


def pairs_are_added_by_units():
    """Whether this CPU multiplies bfloat16 in pairs along a sum, on units of its own; float16 then goes by them, too."""
    facts = ampc._C._machine()
    return facts["isa"].startswith("amx") or facts["isa"] == "avx512_bf16" and facts["fast_dot"]


# Single operations that IEEE 754 rounds in one way, what only moves values, sums whose order is ours on every instruction set, and counted
# random numbers.
SAME_EVERYWHERE = ["sum", "cumsum", "max_pool", "embedding", "+ - * /", "sqrt, abs, round", "copies and casts", "max, sort", "random numbers", "dropout"]
# The product of two 16-bit numbers is exact in float32, so it makes no difference whether its addition is fused; nor does the width of vectors,
# since every sum goes along its terms one by one.
SAME_WITHOUT_UNITS = ["convolution", "convolution with a stride", "convolution of groups", "convolution of few channels", "depthwise convolution",
                      "transposed convolution", "linear", "bmm", "mv"]


@pytest.mark.parametrize("name", OPERATORS)
def test_bits_of_an_operator(name):
    """Equal at any number of threads, and at any size of the cache."""
    with machine(CACHES[0], threads=1):
        first = bits(name)
    for cache, threads in [*((CACHES[0], n) for n in THREADS[1:]), *((c, 2) for c in CACHES[1:])]:
        with machine(cache, threads=threads):
            now = bits(name)
        assert not {key for key in first if now[key] != first[key]}, f"with a cache of {cache} bytes and {threads} threads"


def test_bits_on_another_instruction_set():
    """This machine's against the plainest's."""
    names = SAME_EVERYWHERE + ([] if pairs_are_added_by_units() else SAME_WITHOUT_UNITS)
    env = {**os.environ, "AMPC_CPU": "baseline", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    run = subprocess.run([sys.executable, __file__, *names], env=env, capture_output=True, text=True, check=True)
    there = dict(zip(names, json.loads(run.stdout)))
    for name in names:
        for (part, dtype), value in bits(name).items():
            if name in SAME_EVERYWHERE or dtype in (ampc.bfloat16, ampc.float16):
                assert there[name][f"{part}, {dtype}"] == value, f"{part} of {name} in {dtype}"


# -- trainings -------------------------------------------------------------------------------------------------------


class Images(nn.Module):
    """Convolutions of every kind, with batch and group norm."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 32, 5, 2, 2), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.SiLU(),
                                  nn.Conv2d(32, 48, 3, padding=1), nn.GroupNorm(6, 48), nn.GELU(), nn.MaxPool2d(2),
                                  nn.ConvTranspose2d(48, 32, 4, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Dropout(0.1), nn.Linear(288, 10))

    def forward(self, x):
        return self.body(x)


class Text(nn.Module):
    """Embeddings, then what `body` is, over whole sequences."""

    def __init__(self, body):
        super().__init__()
        self.words, self.body, self.norm, self.head = nn.Embedding(100, 64), body, nn.RMSNorm(64), nn.Linear(64, 10)

    def forward(self, x):
        y = self.body(self.words(x))
        return self.head(self.norm(y[0] if isinstance(y, tuple) else y).mean(1))


NETWORKS = {
    "convolutions": (Images, lambda: ampc.randn(9, 3, 50, 46)),
    "lstm": (lambda: Text(nn.LSTM(64, 32, 2, batch_first=True, bidirectional=True)), lambda: ampc.randint(0, 100, (20, 17))),
    "gru": (lambda: Text(nn.GRU(64, 64, batch_first=True)), lambda: ampc.randint(0, 100, (20, 17))),
    "transformer": (lambda: Text(nn.TransformerEncoderLayer(64, 4, 160, batch_first=True, activation="gelu")), lambda: ampc.randint(0, 100, (6, 140)))}


def train(name, dtype):
    """Three steps; every loss, parameter, buffer and state of the optimizer."""
    ampc.manual_seed(3)
    make, data = NETWORKS[name]
    net, x = make(), data()
    opt, scaler, losses = ampc.optim.AdamW(net.parameters(), lr=1e-3), ampc.amp.GradScaler("cpu", 256.0, enabled=dtype is ampc.float16), []
    for _ in range(3):
        opt.zero_grad()
        with ampc.autocast("cpu", dtype=dtype, enabled=dtype is not ampc.float32):
            loss = F.cross_entropy(net(x), ampc.arange(len(x)) % 10)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        losses.append(loss)
    assert dtype is not ampc.float16 or not scaler.last_step.skipped
    return digest([*losses, *net.state_dict().values(), *(v for s in opt.state_dict()["state"].values() for v in s.values() if isinstance(v, ampc.Tensor))])


def gradients_of_a_layer(x, w, dtype):
    with ampc.autocast("cpu", dtype=dtype, enabled=dtype is not ampc.float32):
        y = F.gelu(F.linear(x, w))
    return digest([y, *ampc.autograd.grad(y, (x, w), ampc.ones_like(y))])


@pytest.mark.filterwarnings("ignore:.*autocast-without-effect")
@pytest.mark.parametrize("threads", MANY)
def test_bits_of_many_callers_at_once(threads):
    """One of them has the pool's threads, and the others compute alone."""
    ampc.manual_seed(4)
    calls = [(ampc.randn(150 + 10 * i, 300, requires_grad=True), ampc.randn(200, 300, requires_grad=True), dtype) for i in range(4) for dtype in LOW]
    with machine(CACHES[0], threads=1):
        alone = [gradients_of_a_layer(*call) for call in calls]
    with machine(CACHES[0], threads=threads), ThreadPoolExecutor(8) as callers:
        for _ in range(5):
            assert list(callers.map(lambda call: gradients_of_a_layer(*call), calls)) == alone


@pytest.mark.filterwarnings("ignore:.*autocast-without-effect")
@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_bits_of_a_training_on_more_threads_than_cores(name, dtype):
    runs = []
    for threads in (1, *MANY):
        with machine(CACHES[0], threads=threads):
            runs.append(train(name, dtype))
    assert len(set(runs)) == 1, f"with {(1, *MANY)} threads: {runs}"


@pytest.mark.filterwarnings("ignore:.*autocast-without-effect")
@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_bits_of_a_training(name, dtype):
    """At any number of threads and any size of the cache."""
    runs = {}
    for cache in CACHES:
        for threads in THREADS:
            with machine(cache, threads=threads):
                runs[cache, threads] = train(name, dtype)
    assert len(set(runs.values())) == 1, runs


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(8192 * 5 + 77,), (41, 1000), (1000, 41)], ids=str)
def test_bits_of_elements_that_threads_share_while_they_are_awake(shape, dtype):
    """They share less work then, right after a product that both had a part in."""
    ampc.manual_seed(5)
    x, y = ampc.randn(*shape).to(dtype), ampc.randn(*shape).to(dtype)
    wide, weight = ampc.randn(300, 300), ampc.randn(300, 300)
    calls = [lambda: x.exp(), lambda: x * y, lambda: F.relu(x), lambda: F.gelu(x), lambda: x.t().tanh() if x.ndim == 2 else x[1:].tanh(),
             lambda: x.to(ampc.float32), lambda: F.mse_loss(x.float(), y.float()), lambda: F.mse_loss(x.t().float(), y.t().float()),
             lambda: x[..., 1:] + y[..., :-1]]
    with machine(CACHES[0], threads=1):
        alone = [digest([call()]) for call in calls]
    with machine(CACHES[0], threads=2):
        for call, want in zip(calls, alone):
            for _ in range(20):
                wide @ weight
                assert digest([call()]) == want


if __name__ == "__main__":
    print(json.dumps([{f"{part}, {dtype}": value for (part, dtype), value in bits(name).items()} for name in sys.argv[1:]]))


@pytest.mark.parametrize("k", [32, 96, 4096, 4100])
@pytest.mark.parametrize("dtype", [ampc.bfloat16, ampc.float16, ampc.float32])
def test_one_row_is_multiplied_as_among_others(dtype, k):
    """One row that is read where it lies, not packed; a part of a wider tensor, too."""
    rows, weight = ampc.randn(16, k + 1).to(dtype)[:, :k], ampc.randn(40, k).to(dtype)
    whole = ampc.nn.functional.linear(rows.contiguous(), weight)
    for one in (rows[3:4].clone(), rows[3:4], rows[3]):
        assert ampc.nn.functional.linear(one, weight).flatten().tolist() == whole[3].tolist()
    assert (rows[3:4].clone() @ weight.T).tolist() == [whole[3].tolist()]
