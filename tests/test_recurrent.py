"""Recurrent layers over whole sequences and packed batches, beside torch's; packing itself."""

import math

import numpy as np
import pytest
from test_modules import twins
from where import DEVICE

import ampc
from ampc import nn

STEPS, BATCH, WIDTH = 5, 18, 6  # more sequences than a thread takes at a time
LENGTHS = [3, 5, 1, 2, 5, 4] * 3
WHAT = [f"{cls}(6, 7{more})" for cls in ("RNN", "LSTM", "GRU")
        for more in ("", ", 2, bidirectional=True", ", bias=False, batch_first=True", ", 3, batch_first=True, bidirectional=True")]
WHAT += ["RNN(6, 7, nonlinearity='relu')", "LSTM(6, 7, 2, proj_size=3, bidirectional=True)"]


def states(result):
    return list(result) if isinstance(result, tuple) else [result]


def fed(library, m, arrays, packed):
    """Results and the gradients of everything, for inputs x, h and c."""
    leaves = [library.tensor(a, requires_grad=True) for a in arrays]
    x, hidden = leaves[0], leaves[1:]
    if packed:
        x = library.nn.utils.rnn.pack_padded_sequence(x, LENGTHS, batch_first=m.batch_first, enforce_sorted=False)
    y, last = m(x, (hidden if len(hidden) > 1 else hidden[0]) if hidden else None)
    if packed:
        y, lengths = library.nn.utils.rnn.pad_packed_sequence(y, batch_first=m.batch_first, padding_value=0.25)
        assert lengths.tolist() == LENGTHS
    m.zero_grad()
    (y**3).sum().backward(retain_graph=True)
    sum((s * (i + 1.5)).sin().sum() for i, s in enumerate(states(last))).backward()
    return [y, *states(last), *[leaf.grad for leaf in leaves], *[p.grad for p in m.parameters()]]


@pytest.mark.parametrize("given", ["zeros", "states"])
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("what", WHAT)
def test_layers(torch, what, packed, given):
    mine, theirs = twins(torch, what)
    assert repr(mine) == repr(theirs)
    rng = np.random.default_rng(len(what))
    shape = (BATCH, STEPS, WIDTH) if mine.batch_first else (STEPS, BATCH, WIDTH)
    arrays = [rng.standard_normal(shape)]
    if given == "states":
        layers = mine.num_layers * (2 if mine.bidirectional else 1)
        sizes = [mine.proj_size or 7, 7][: 2 if mine.mode == "LSTM" else 1]
        arrays += [rng.standard_normal((layers, BATCH, size)) for size in sizes]
    for got, want in zip(fed(ampc, mine, arrays, packed), fed(torch, theirs, arrays, packed)):
        assert got.shape == tuple(want.shape)
        assert np.allclose(got.numpy(force=True), want.detach().numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("what", ["RNN(6, 7)", "LSTM(6, 7, bidirectional=True)", "GRU(6, 7)"])
def test_one_sequence_needs_no_batch(torch, what):
    mine, theirs = twins(torch, what)
    x = np.random.default_rng(1).standard_normal((STEPS, WIDTH))
    for got, want in zip(*([y, *states(h)] for y, h in (mine(ampc.tensor(x)), theirs(torch.tensor(x))))):
        assert got.shape == tuple(want.shape) and np.allclose(got.numpy(force=True), want.detach().numpy(), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("cls", [nn.RNN, nn.LSTM, nn.GRU])
def test_parameters_of_any_layout(cls):
    m, x = cls(6, 16), ampc.randn(STEPS, 2, 6)
    expected = m(x)[0].detach().clone()
    for name, p in list(m.named_parameters()):
        apart = ampc.stack([p.detach()] * 2, p.ndim)[..., 0]
        assert not apart.is_contiguous()
        setattr(m, name, nn.Parameter(apart))
    y = m(x)[0]
    y.sum().backward()
    assert y.equal(expected) and all(p.grad is not None for p in m.parameters())


@pytest.mark.parametrize("what", ["RNN(3, 4)", "LSTM(3, 4, 2)", "GRU(3, 4, bidirectional=True)"])
def test_gradients_of_gradients(what):
    m = eval("nn." + what).double()
    x = ampc.tensor(np.random.default_rng(2).standard_normal((3, 2, 3)), requires_grad=True)
    leaves = [x, *m.parameters()]

    def run(value):
        return m(value)[0]

    assert ampc.autograd.gradcheck(run, [x]) and ampc.autograd.gradgradcheck(run, [x])
    g = ampc.autograd.grad((m(x)[0] ** 2).sum(), leaves, create_graph=True)
    penalty = sum((v**2).sum() for v in g)
    seconds = ampc.autograd.grad(penalty, leaves)
    for leaf, second in zip(leaves, seconds):  # against differences of the first gradients, along one direction
        direction = ampc.randn(leaf.shape, dtype=ampc.float64)
        values = []
        for step in (1e-6, -1e-6):
            with ampc.no_grad():
                leaf.add_(direction * step)
            first = ampc.autograd.grad((m(x)[0] ** 2).sum(), leaves)
            values.append(float(sum((v**2).sum() for v in first)))
            with ampc.no_grad():
                leaf.sub_(direction * step)
        assert math.isclose(float((second * direction).sum()), (values[0] - values[1]) / 2e-6, rel_tol=1e-5, abs_tol=1e-7)


def test_tied_weights_get_each_use_once():
    """Gradients with a graph of their own are those of one call, whatever else the inputs depend on."""
    m = nn.GRU(4, 4).double()
    x = ampc.randn(3, 2, 4, dtype=ampc.float64)
    loss = m(m(x)[0])[0].square().sum()
    plain = ampc.autograd.grad(loss, list(m.parameters()), retain_graph=True)
    graph = ampc.autograd.grad(loss, list(m.parameters()), create_graph=True)
    for a, b in zip(plain, graph):
        assert np.allclose(a.numpy(force=True), b.numpy(force=True), rtol=1e-10)


@pytest.mark.parametrize("dtype", [ampc.float16, ampc.bfloat16], ids=str)
@pytest.mark.parametrize("what", ["RNN(32, 48)", "LSTM(32, 48, 2)", "GRU(32, 48, bidirectional=True)"])
def test_under_autocast(what, dtype):
    """16-bit results with errors of some roundings a step; gradients reach float32 parameters in float32."""
    ampc.manual_seed(5)
    m = eval("nn." + what)
    x = ampc.randn(12, 20, 32)
    want, _ = m(x)
    want.square().sum().backward()  # of a size that float16 has normal numbers for
    exact = [p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    with ampc.autocast(DEVICE, dtype=dtype):
        y, last = m(x)
    assert y.dtype is dtype and all(s.dtype is dtype for s in states(last))
    unit = ampc.finfo(dtype).eps
    assert float((y.float() - want).abs().max()) <= 12 * unit  # states are at most 1, and each step rounds some sums
    y.float().square().sum().backward()
    for p, e in zip(m.parameters(), exact):
        assert p.grad.dtype is ampc.float32
        assert float((p.grad - e).norm()) <= 12 * unit * float(e.norm())


def test_dropout_is_between_layers_when_training():
    ampc.manual_seed(0)
    m = nn.LSTM(4, 5, 2, dropout=1.0)
    bias = [p.detach().clone() for n, p in m.named_parameters() if n in ("bias_ih_l1", "bias_hh_l1")]
    x, other = ampc.randn(3, 2, 4), ampc.randn(3, 2, 4)
    assert len(bias) == 2 and ampc.equal(m(x)[0], m(other)[0])  # the second layer sees zeros
    m.eval()
    assert not ampc.equal(m(x)[0], m(other)[0])


def test_results_do_not_depend_on_threads():
    m, x = nn.LSTM(8, 40), ampc.randn(6, 50, 8)
    before, results = ampc.get_num_threads(), []
    for threads in (1, 2, 3):
        ampc.set_num_threads(threads)
        m.zero_grad()
        y, _ = m(x)
        y.square().sum().backward()
        results.append([y, *[p.grad for p in m.parameters()]])
    ampc.set_num_threads(before)
    for other in results[1:]:
        assert all(ampc.equal(a, b) for a, b in zip(results[0], other))


WRONG = [
    (lambda: nn.LSTM(3, 4)(ampc.ones(2, 3, 5)), RuntimeError, "3 features"),
    (lambda: nn.LSTM(3, 4)(ampc.ones(3)), ValueError, "2 dimensions"),
    (lambda: nn.GRU(3, 4)(ampc.ones(0, 2, 3)), RuntimeError, "no steps"),
    (lambda: nn.LSTM(3, 4)(ampc.ones(2, 5, 3), (ampc.ones(1, 5, 4), ampc.ones(1, 4, 4))), RuntimeError, r"`cx` must have shape \(1, 5, 4\)"),
    (lambda: nn.RNN(3, 4, nonlinearity="sin"), ValueError, "'tanh' or 'relu'"),
    (lambda: nn.LSTM(3, 0), ValueError, "at least 1"),
    (lambda: nn.LSTM(3, 4, dropout=1.5), ValueError, "probability"),
    (lambda: nn.LSTM(3, 4, proj_size=4), ValueError, "proj_size"),
    (lambda: nn.LSTM(3, 4)(ampc.ones(2, 5, 3).double()), ValueError, "cast one of them"),
    (lambda: nn.utils.rnn.pack_padded_sequence(ampc.ones(3, 2), [1, 2]), RuntimeError, "enforce_sorted=False"),
    (lambda: nn.utils.rnn.pack_padded_sequence(ampc.ones(3, 2), [4, 2]), RuntimeError, "3 steps"),
    (lambda: nn.utils.rnn.pack_padded_sequence(ampc.ones(3, 2), [2, 0]), RuntimeError, "greater than 0"),
    (lambda: nn.utils.rnn.pad_packed_sequence(nn.utils.rnn.pack_sequence([ampc.ones(3)]), total_length=2), ValueError, "longest"),
    (lambda: nn.GRU(3, 4)(nn.utils.rnn.PackedSequence(ampc.ones(4, 3), ampc.tensor([2, 3], device="cpu"))), RuntimeError, "more sequences than the step before"),
    (lambda: nn.GRU(3, 4)(nn.utils.rnn.PackedSequence(ampc.ones(4, 3), ampc.tensor([2, 1], device="cpu"))), RuntimeError, "must have shape"),
]


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16], ids=str)
@pytest.mark.parametrize("what", ["RNN(6, 16)", "LSTM(6, 16, 2, bidirectional=True)", "GRU(6, 7)"])
def test_an_empty_batch_trains_nothing(what, dtype):
    m, x = eval("nn." + what, {"nn": nn}).to(dtype), ampc.ones(3, 0, 6, dtype=dtype, requires_grad=True)
    y, last = m(x)
    sum(t.sum() for t in (y, *(last if isinstance(last, tuple) else [last]))).backward()
    assert y.shape[:2] == (3, 0) and x.grad.shape == x.shape and all(not p.grad.any() for p in m.parameters())


@pytest.mark.parametrize(("call", "error", "text"), WRONG)
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_packing(torch):
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal((n, 2)) for n in (2, 4, 1, 4)]
    mine, theirs = (T.nn.utils.rnn.pack_sequence([T.tensor(a) for a in arrays], enforce_sorted=False) for T in (ampc, torch))
    assert type(mine).__name__ == "PackedSequence" and mine._fields == theirs._fields
    for got, want in zip(mine, theirs):
        assert np.array_equal(got.numpy(force=True), want.numpy())
    for back, a in zip(nn.utils.rnn.unpack_sequence(mine), arrays):
        assert np.array_equal(back.numpy(force=True), a)
    for side in ("left", "right"):
        for first in (False, True):
            got, want = (T.nn.utils.rnn.pad_sequence([T.tensor(a) for a in arrays], first, -1.0, side) for T in (ampc, torch))
            assert np.array_equal(got.numpy(force=True), want.numpy())
    padded, lengths = nn.utils.rnn.pad_packed_sequence(mine, batch_first=True, padding_value=7.0, total_length=6)
    assert padded.shape == (4, 6, 2) and lengths.tolist() == [2, 4, 1, 4] and float(padded[2, 1:].min()) == 7.0
    half = mine.half()
    assert half.data.dtype is ampc.float16 and half.batch_sizes is mine.batch_sizes and mine.to(ampc.float64) is mine


@pytest.mark.parametrize("cast", ["byte", "char", "short", "int", "long", "half", "float", "double"])
def test_casts_of_packed_sequences(torch, cast):
    kinds = []
    for T in (ampc, torch):
        packed = T.nn.utils.rnn.pack_sequence([T.ones(2), T.ones(3)], enforce_sorted=False)
        got = getattr(packed, cast)()
        assert got.sorted_indices.tolist() == [1, 0] and got.data.tolist() == [1] * 5
        kinds.append(str(got.data.dtype).split(".")[-1])
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("what", ["RNN", "GRU", "LSTM"])
def test_weights_that_are_computed(torch, what):
    """As those of modules whose class computes attributes: no parameter is registered."""
    found = []
    for lib in (torch, ampc):
        kept = getattr(lib.nn, what)(2, 3)
        values = {n: lib.linspace(-1, 1, p.numel()).reshape(p.shape) for n, p in kept.named_parameters()}
        computed = getattr(lib.nn, what)(2, 3)
        computed._parameters.clear()
        computed.__class__ = type(what, (type(kept),), {n: property(lambda self, value=value: value) for n, value in values.items()})
        kept.load_state_dict(values)
        x = lib.linspace(0, 1, 8).reshape(4, 2)
        found.append(kept(x)[0].tolist())
        if lib is ampc:
            assert not list(computed.parameters()) and ampc.equal(computed(x)[0], kept(x)[0])
    assert ampc.allclose(ampc.tensor(found[0]), ampc.tensor(found[1]), rtol=0, atol=2**-20)
