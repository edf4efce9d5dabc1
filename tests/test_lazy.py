"""Lazy modules and what is rare among torch's layers, beside torch."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from where import DEVICE

import ampc
from ampc.nn.modules.lazy import LazyModuleMixin
from ampc.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("float64")

LAZY = {
    "LazyLinear": ((4,), (2, 3, 5)), "LazyConv1d": ((4, 3), (2, 6, 8)), "LazyConv2d": ((4, 3, 2, 1), (2, 6, 8, 7)), "LazyConv3d": ((4, 2), (2, 6, 4, 5, 4)),
    "LazyConvTranspose1d": ((4, 3), (2, 6, 8)), "LazyConvTranspose2d": ((4, 3, 2, 1, 1), (2, 6, 4, 5)), "LazyConvTranspose3d": ((4, 2), (6, 3, 3, 3)),
    "LazyBatchNorm1d": ((), (5, 6)), "LazyBatchNorm2d": ((1e-3, 0.2), (3, 6, 4, 4)), "LazyBatchNorm3d": ((), (3, 6, 2, 3, 2)),
    "LazyInstanceNorm1d": ((), (3, 6, 5)), "LazyInstanceNorm2d": ((), (3, 6, 4, 4)), "LazyInstanceNorm3d": ((), (3, 6, 2, 3, 2)),
}


def same(ours, theirs, rtol=1e-5):
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(np.array(ours.detach().tolist()), np.array(theirs.detach().tolist()), rtol=rtol, atol=1e-6)


def mine(t):
    return ampc.from_dlpack(t.detach().clone()).to(DEVICE)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's: lazy modules are new, containers deprecated
        yield


def twins(name, *more, **named):
    arguments, shape = LAZY[name]
    made = [getattr(lib.nn, name)(*arguments, *more, **named) for lib in (torch, ampc)]
    return (*made, torch.randn(shape))


@pytest.mark.parametrize("name", LAZY)
def test_a_lazy_layer_becomes_an_ordinary_one(name):
    theirs, ours, x = twins(name)
    assert ours.has_uninitialized_params() and isinstance(ours, LazyModuleMixin)
    assert [n for n, p in ours.named_parameters() if is_lazy(p)] == [n for n, p in theirs.named_parameters() if torch.nn.parameter.is_lazy(p)]
    assert list(ours.state_dict()) == list(theirs.state_dict())
    parameters = list(ours.parameters())
    theirs(x), ours(mine(x))
    assert type(ours) is getattr(ampc.nn, name[4:]) and type(theirs).__name__ == type(ours).__name__ and not hasattr(ours, "cls_to_become")
    assert all(p is q and type(p) is ampc.nn.Parameter and p.requires_grad for p, q in zip(parameters, ours.parameters()))
    ours.load_state_dict({k: mine(v) for k, v in theirs.state_dict().items()})
    same(ours(mine(x)), theirs(x))
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("name", LAZY)
def test_states_of_lazy_layers(name):
    """Of one that has seen an input, and of one that has not, into each other."""
    _, known, x = twins(name)
    _, other, _ = twins(name)
    waiting = other.state_dict()
    known(mine(x))
    other.load_state_dict(known.state_dict())
    assert not other.has_uninitialized_params() and type(other).__name__ == name
    known.eval(), other.eval()
    same(other(mine(x)), known(mine(x)))
    assert type(other) is type(known)
    if any(map(is_lazy, waiting.values())):
        with pytest.raises(RuntimeError):
            known.load_state_dict(waiting)
        _, third, _ = twins(name)
        third.load_state_dict(waiting)
        assert third.has_uninitialized_params()


@pytest.mark.parametrize("name", LAZY)
def test_copies_and_dtypes_of_lazy_layers(name):
    _, ours, x = twins(name)
    for twin in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert twin.has_uninitialized_params() and not any(p is q for p, q in zip(twin.parameters(), ours.parameters()))
        twin = ampc.nn.Sequential(twin).double()
        assert {t.dtype for t in twin.state_dict().values()} <= {ampc.float64, ampc.int64}
        assert twin(mine(x).double()).dtype is ampc.float64 and not twin[0].__dict__.get("_modules")
    assert ours.has_uninitialized_params()
    layer = getattr(ampc.nn, name)(*LAZY[name][0], dtype=ampc.float64)
    assert layer(mine(x).double()).dtype is ampc.float64


def test_lazy_layers_without_a_part():
    for name, named in (("LazyLinear", {"bias": False}), ("LazyConv2d", {"bias": False, "groups": 2}), ("LazyConvTranspose1d", {"bias": False}),
                        ("LazyBatchNorm2d", {"affine": False}), ("LazyInstanceNorm1d", {"track_running_stats": False}), ("LazyBatchNorm1d", {"bias": False})):
        theirs, ours, x = twins(name, **named)
        theirs(x), ours(mine(x))
        assert {k: tuple(v.shape) for k, v in ours.state_dict().items()} == {k: tuple(v.shape) for k, v in theirs.state_dict().items()}
    with pytest.raises(ValueError, match="groups"):
        ampc.nn.LazyConv1d(4, 1, groups=4)(ampc.ones(2, 6, 5))
    with pytest.raises(RuntimeError, match="dimensions"):
        ampc.nn.LazyConv1d(4, 1)(ampc.ones(6))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_first_call_may_give_forwards_other_arguments(torch, dims):
    size = [10] * dims
    for T in (ampc, torch):
        layer = getattr(T.nn, f"LazyConvTranspose{dims}d")(2, 3, stride=2)
        assert list(layer(T.ones(1, 2, *[4] * dims), output_size=size).shape) == [1, 2, *size]


def test_training_begins_after_the_first_input():
    model = ampc.nn.Sequential(ampc.nn.LazyLinear(8), ampc.nn.ReLU(), ampc.nn.LazyBatchNorm1d(), ampc.nn.LazyLinear(1))
    optimizer = ampc.optim.Adam(model.parameters(), 0.05)
    x = ampc.randn(32, 3)
    y = x.sum(1, keepdim=True)
    optimizer.step()  # nothing has a gradient yet
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = ampc.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4 and not any(map(is_lazy, model.parameters()))


def test_a_lazy_module_of_ones_own():
    class Scale(ampc.nn.Module):
        def forward(self, x):
            return x * self.weight

    class LazyScale(LazyModuleMixin, Scale):
        def __init__(self):
            super().__init__()
            self.weight = UninitializedParameter()

        def initialize_parameters(self, x):
            if self.has_uninitialized_params():
                self.weight.materialize(x.shape[-1:])
                ampc.nn.init.constant_(self.weight, 2.0)

    class Forgets(LazyScale):
        def initialize_parameters(self, x):
            pass

    layer = LazyScale()
    assert (layer(ampc.ones(2, 3)) == 2).all() and type(layer) is LazyScale and layer(ampc.ones(3)).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="weight"):
        Forgets()(ampc.ones(3))


USES = [lambda p: p + 1, lambda p: ampc.add(p, 1), lambda p: ampc.nn.functional.linear(ampc.ones(2, 3), p), lambda p: p.tolist(), lambda p: p.detach().cpu().numpy(),
        lambda p: p.detach().uniform_(), lambda p: p.data.copy_(ampc.zeros(0)), lambda p: ampc.cat([p, p]), lambda p: p.clone(), lambda p: p.numel(), lambda p: p.dim()]


@pytest.mark.parametrize("use", USES)
def test_what_is_uninitialized_cannot_be_used(use):
    for p in (UninitializedParameter(), UninitializedBuffer()):
        with pytest.raises(ValueError, match="uninitialized"):
            use(p)


def test_uninitialized_parameters():
    p = UninitializedParameter(dtype=ampc.float64)
    assert repr(p) == "<UninitializedParameter>" and p.dtype is ampc.float64 and p.requires_grad and isinstance(p, ampc.nn.Parameter)
    with pytest.raises(RuntimeError, match="not known yet"):
        p.shape  # noqa: B018
    p.materialize((2, 3))
    assert type(p) is ampc.nn.Parameter and p.shape == (2, 3) and p.dtype is ampc.float64 and p.requires_grad
    frozen = UninitializedParameter(requires_grad=False)
    frozen.materialize((2,), dtype=ampc.float16)
    assert not frozen.requires_grad and frozen.dtype is ampc.float16
    b = UninitializedBuffer()
    b.materialize((2,))
    assert not is_lazy(b) and not b.requires_grad
    assert (ampc.ones(3) + 1).tolist() == [2, 2, 2]  # others compute as ever


# -- rare layers --------------------------------------------------------------------------------------------------


def adaptive(**named):
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 20, [5, 10, 15], div_value=2.0, **named)
    ours = ampc.nn.AdaptiveLogSoftmaxWithLoss(16, 20, [5, 10, 15], div_value=2.0, **named)
    assert {k: tuple(v.shape) for k, v in ours.state_dict().items()} == {k: tuple(v.shape) for k, v in theirs.state_dict().items()}
    ours.load_state_dict({k: mine(v) for k, v in theirs.state_dict().items()})
    return theirs, ours


@pytest.mark.parametrize("head_bias", [False, True])
def test_adaptive_softmax(head_bias):
    theirs, ours = adaptive(head_bias=head_bias)
    for targets in (torch.arange(20), torch.randint(0, 5, (6,)), torch.randint(15, 20, (6,))):
        x = torch.randn(len(targets), 16, requires_grad=True)
        a = mine(x).requires_grad_()
        t, o = theirs(x, targets), ours(a, mine(targets))
        same(o.output, t.output), same(o.loss, t.loss)
        t.loss.backward(), o.loss.backward()
        same(a.grad, x.grad)
        same(ours.log_prob(a), theirs.log_prob(x)), same(ours.predict(a), theirs.predict(x))
    for name, p in theirs.named_parameters():
        same(ours.get_parameter(name).grad, p.grad)
    x = torch.randn(16)
    same(ours(mine(x), ampc.tensor(17)).output, theirs(x, torch.tensor(17)).output)


@pytest.mark.parametrize("arguments", [(16, 20, []), (16, 20, [5, 5]), (16, 20, [10, 5]), (16, 20, [0, 5]), (16, 20, [5, 20]), (16, 20, [5, 7.5])])
def test_adaptive_softmax_with_wrong_cutoffs(arguments):
    for lib in (torch, ampc):
        with pytest.raises(ValueError):
            lib.nn.AdaptiveLogSoftmaxWithLoss(*arguments)


def test_adaptive_softmax_with_wrong_targets():
    theirs, ours = adaptive()
    for lib, layer in ((torch, theirs), (ampc, ours)):
        for x, y in ((lib.ones(2, 16), [0]), (lib.ones(2, 16), [0, 20]), (lib.ones(2, 16), [0, -1]), (lib.ones(16), [0]), (lib.ones(1, 16), [[0]])):
            with pytest.raises(RuntimeError):
                layer(x, lib.tensor(y))


@pytest.mark.parametrize("size", [1, 3, 4, 5, 8])
def test_normalisation_over_neighbouring_channels(size):
    x = torch.randn(2, 7, 3, 4)
    same(ampc.nn.CrossMapLRN2d(size, 0.5, 0.6, 2)(mine(x)), torch.nn.CrossMapLRN2d(size, 0.5, 0.6, 2)(x))
    assert ampc.autograd.gradcheck(ampc.nn.CrossMapLRN2d(size), (mine(x[:1, :, :1, :1]).double().requires_grad_(),))
    assert repr(ampc.nn.CrossMapLRN2d(size)) == repr(torch.nn.CrossMapLRN2d(size))


def test_older_names_of_layers():
    x = torch.randn(2, 5, 3, 4).log_softmax(1)
    target = torch.randint(0, 5, (2, 3, 4))
    same(ampc.nn.NLLLoss2d()(mine(x), mine(target)), torch.nn.NLLLoss2d()(x, target))
    cell = ampc.nn.RNNCellBase(3, 4, True, num_chunks=2)
    assert cell.weight_ih.shape == (8, 3) and cell.bias_hh.shape == (8,) and isinstance(ampc.nn.GRUCell(3, 4), ampc.nn.RNNCellBase)
    assert list(dict(ampc.nn.Container(a=ampc.nn.ReLU(), b=ampc.nn.Tanh()).named_children())) == ["a", "b"]
