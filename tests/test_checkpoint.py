"""Regions that backward runs again, and hooks on what is saved for backward."""

import subprocess
import sys

import numpy as np
import pytest
from where import DEVICE

import ampc
from ampc import nn
from ampc.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential

WAYS = [False, True]


def network(seed=0):
    ampc.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.3), nn.Linear(64, 64), nn.LayerNorm(64), nn.Tanh(), nn.Linear(64, 4))


def gradients(model, x, run, autocast=False):
    model.zero_grad()
    x.grad = None
    ampc.manual_seed(7)
    with ampc.autocast("cpu", dtype=ampc.bfloat16, enabled=autocast):
        y = run(x)
    after = ampc.rand(3)  # random numbers go on as if nothing had been
    y.float().square().sum().backward()
    return [y.detach(), after, ampc.rand(3), x.grad, *[p.grad for p in model.parameters()]]


@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("reentrant", WAYS)
def test_same_gradients(reentrant, autocast):
    model, x = network(), ampc.randn(8, 16, requires_grad=True)
    plain = gradients(model, x, model, autocast)
    for run in (lambda v: checkpoint(model, v, use_reentrant=reentrant), lambda v: checkpoint_sequential(model, 3, v, use_reentrant=reentrant),
                lambda v: ampc.utils.checkpoint(model, v, use_reentrant=reentrant)):
        again = gradients(model, x, run, autocast)
        assert all(ampc.equal(a, b) for a, b in zip(plain, again))


def test_parameters_alone_keyword_arguments_and_structures():
    model = network().eval()
    x = ampc.randn(5, 16)  # wants no gradient; the parameters do

    def run(inputs, *, scale):
        y = model(inputs["x"])
        return {"y": y * scale, "n": 3}

    want = ampc.autograd.grad(run({"x": x}, scale=2.0)["y"].sum(), list(model.parameters()))
    got = checkpoint(run, {"x": x}, scale=2.0, use_reentrant=False)
    assert got["n"] == 3
    for a, b in zip(ampc.autograd.grad(got["y"].sum(), list(model.parameters())), want):
        assert ampc.equal(a, b)
    assert not checkpoint(run, {"x": x}, scale=1.0)["y"].requires_grad or ampc.is_grad_enabled()
    with ampc.no_grad():
        assert not checkpoint(run, {"x": x}, scale=1.0)["y"].requires_grad


def test_nested_twice_and_graphs_of_gradients():
    model = nn.Sequential(*[nn.Linear(6, 6), nn.Tanh()] * 3).double()
    x = ampc.randn(3, 6, dtype=ampc.float64, requires_grad=True)

    def nested(v):
        return checkpoint(model[2:], checkpoint(model[:2], v)) * 1.0

    def whole(v):
        return checkpoint(nested, v)

    want = ampc.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
    y = whole(x).square().sum()
    for _ in range(2):  # retained, the second backward finds what the first made
        for a, b in zip(ampc.autograd.grad(y, [x, *model.parameters()], retain_graph=True), want):
            assert np.allclose(a.numpy(force=True), b.numpy(force=True), rtol=1e-12)
    first = [ampc.autograd.grad(f(x).square().sum(), x, create_graph=True)[0].square().sum() for f in (model, whole)]
    seconds = [ampc.autograd.grad(v, list(model.parameters())[:2]) for v in first]
    for a, b in zip(*seconds):
        assert np.allclose(a.numpy(force=True), b.numpy(force=True), rtol=1e-10)


class Cube(ampc.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


def test_own_functions():
    x = ampc.randn(4, dtype=ampc.float64, requires_grad=True)
    y = checkpoint(lambda v: Cube.apply(v * 2).sin(), x)
    (g,) = ampc.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = ampc.autograd.grad(g.sum(), x)
    u = (2 * x.detach()) ** 3
    assert np.allclose(g.numpy(force=True), (24 * x.detach() ** 2 * u.cos()).numpy(force=True))
    assert np.allclose(h.numpy(force=True), (48 * x.detach() * u.cos() - 576 * x.detach() ** 4 * u.sin()).numpy(force=True))


MEMORY = """
import sys
import ampc
from ampc import nn
from ampc.utils.checkpoint import checkpoint
layers = [nn.Sequential(nn.Tanh(), nn.Sigmoid(), nn.Softmax(1), nn.GELU()) for _ in range(8)]
x = ampc.randn(1024, 512, requires_grad=True)
before, y = ampc._C._memory()["current"], x
for layer in layers:
    y = layer(y) if sys.argv[1] == "plain" else checkpoint(layer, y, use_reentrant=sys.argv[1] == "reentrant")
kept = ampc._C._memory()["current"] - before
y.sum().backward()
print(kept / (x.numel() * 4), (ampc._C._memory()["peak"] - before) / (x.numel() * 4))
"""


@pytest.mark.cpu
def test_memory():
    """The results of a region are not kept: of eight layers that save four tensors each, one at a time."""
    def run(how):
        return [float(v) for v in subprocess.run([sys.executable, "-c", MEMORY, how], check=True, capture_output=True, text=True).stdout.split()]

    kept, peak = run("plain")
    assert kept >= 24 and peak >= 24
    for how in ("hooks", "reentrant"):
        kept, peak = run(how)
        assert kept <= 8.5 and peak <= 17


def test_the_second_run_must_be_like_the_first():
    calls = []

    def moody(x):
        calls.append(1)
        return (x[:2] if len(calls) > 1 else x).exp().sum()

    x = ampc.ones(4, requires_grad=True)
    with pytest.raises(CheckpointError, match=r"float32 \[4\] on (cpu|cuda:0) in the first run and is float32 \[2\]"):
        checkpoint(moody, x).backward()
    calls.clear()
    with pytest.raises(CheckpointError, match="saved 3 tensors and the second 1"):
        checkpoint(lambda v: v.exp() if calls else (calls.append(1), v.exp().exp().exp())[1], x).sum().backward()
    assert ampc.autograd.grad(x.exp().sum(), x)[0].tolist() == pytest.approx([2.7182817] * 4)  # no hook was left behind


def test_an_error_in_the_second_run_arrives():
    calls = []

    def breaks(x):
        calls.append(1)
        if len(calls) > 1:
            raise KeyError("second")
        return x.exp()

    x = ampc.ones(2, requires_grad=True)
    for reentrant in WAYS:
        calls.clear()
        y = checkpoint(breaks, x, use_reentrant=reentrant)
        with pytest.raises(KeyError, match="second"):
            y.sum().backward()
    assert not ampc.is_autocast_enabled() and ampc.is_grad_enabled()


@pytest.mark.parametrize("early", [True, False])
def test_the_second_run_stops_early(early):
    ran = []

    def f(x):
        y = x.exp()
        z = y + 1  # saves nothing
        ran.append("end")
        return z

    x = ampc.ones(2, requires_grad=True)
    checkpoint(f, x, early_stop=early).sum().backward()
    assert ran == ["end"] * (1 if early else 2)


def test_contexts_of_both_runs():
    from contextlib import contextmanager

    seen = []

    @contextmanager
    def note(word):
        seen.append(word)
        yield

    x = ampc.ones(2, requires_grad=True)
    checkpoint(lambda v: v.exp(), x, context_fn=lambda: (note("first"), note("second"))).sum().backward()
    assert seen == ["first", "second"]


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda x: checkpoint(lambda v, k: v, x, k=1, use_reentrant=True), ValueError, "takes no k"),
    (lambda x: checkpoint(lambda v: v, x, determinism_check="some"), ValueError, "'default' or 'none'"),
    (lambda x: checkpoint_sequential([nn.Tanh()], 0, x), ValueError, "at least 1"),
    (lambda x: checkpoint_sequential([nn.Tanh()], 1, x, seg=2), ValueError, "seg"),
    (lambda x: ampc.autograd.grad(checkpoint(lambda v: v.exp(), x, use_reentrant=True).sum(), x, create_graph=True), RuntimeError, "use_reentrant=False"),
])
def test_bad_use(call, error, text):
    with pytest.raises(error, match=text):
        call(ampc.ones(2, requires_grad=True))


def test_reentrant_without_gradients_says_so():
    with pytest.warns(UserWarning, match="no argument requires gradients"):
        checkpoint(lambda v: v * 2, ampc.ones(2), use_reentrant=True)


def test_hooks_on_saved_tensors(torch):
    results = []
    for T in (ampc, torch):
        packed, unpacked = [], []

        def pack(t, packed=packed):
            packed.append(tuple(t.shape))
            return t.numpy(force=True) if T is ampc else t.detach().numpy()  # noqa: B023

        def unpack(a, unpacked=unpacked, T=T):
            unpacked.append(a.shape)
            return T.from_numpy(a).to(DEVICE if T is ampc else "cpu")

        x = T.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
        with T.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = (x.exp() * x.sin()).sum(1)
        y.sum().backward()
        results.append((sorted(packed), len(unpacked), np.array(x.grad.tolist())))
    assert results[0][1] >= 3 and np.allclose(results[0][2], results[1][2], rtol=1e-6)
    x = ampc.ones(3, requires_grad=True)
    with ampc.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: 5):
        y = x.exp() * 1
    with pytest.raises(TypeError, match="unpack_hook must return a Tensor, got int"):
        y.sum().backward()
    with ampc.autograd.graph.save_on_cpu():
        y = x.exp().sin()
    y.sum().backward()
    assert np.allclose(x.grad.numpy(force=True), np.e * np.cos(np.e))
    with pytest.raises(ZeroDivisionError), ampc.autograd.graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t):
        x.exp()


@pytest.mark.parametrize("fails", ["pack", "unpack"])
@pytest.mark.parametrize("name", ["matmul", "mul", "div", "pow", "atan2", "hypot"])
def test_after_a_hook_has_raised_none_is_called(name, fails):
    """Both operands are saved, so that there is a second hook to call."""
    calls = {"pack": 0, "unpack": 0}

    def hook(which, t):
        calls[which] += 1
        if which == fails:
            raise KeyboardInterrupt
        return t

    a, b = (ampc.rand(3, 3, requires_grad=True) + 1 for _ in range(2))
    with pytest.raises(KeyboardInterrupt):
        with ampc.autograd.graph.saved_tensors_hooks(lambda t: hook("pack", t), lambda t: hook("unpack", t)):
            y = getattr(ampc, name)(a, b)
        y.sum().backward()
    assert calls[fails] == 1


@pytest.mark.parametrize("roots", [1, 2])
def test_reentrant_arguments_that_hooks_have_packed_get_gradients(roots):
    """What comes back from hooks on saved tensors has its history, in any backward."""
    x, w = ampc.ones(2, requires_grad=True), ampc.ones(2, requires_grad=True)
    scaled = w * 2
    with ampc.autograd.graph.save_on_cpu():
        y = checkpoint(lambda a, b: a.sigmoid() * b, x, scaled, use_reentrant=True)
    ampc.autograd.backward([y.sum() for _ in range(roots)])
    assert np.allclose(w.grad.numpy(force=True), roots * 2 / (1 + np.exp(-1.0))) and x.grad is not None
