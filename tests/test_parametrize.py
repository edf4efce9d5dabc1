"""Weights made from other parameters, and parameters as one vector, beside torch's."""

import copy
import io
import pickle

import numpy as np
import pytest
from test_modules import twins

import ampc
from ampc import nn
from ampc.nn.utils import parametrizations, parametrize

LAYERS = [("Linear(5, 4)", (3, 5)), ("Conv2d(3, 4, 3)", (2, 3, 6, 6)), ("ConvTranspose2d(3, 4, 3)", (2, 3, 6, 6))]
NORMS = ["parametrizations.weight_norm", "parametrizations.spectral_norm", "weight_norm", "spectral_norm"]


def find(library, path):
    found = library.nn.utils
    for name in path.split("."):
        found = getattr(found, name)
    return found


def same_state(torch, mine, theirs):
    state = mine.state_dict()
    assert {n: tuple(v.shape) for n, v in state.items()} == {n: tuple(v.shape) for n, v in theirs.state_dict().items()}
    theirs.load_state_dict({n: torch.tensor(v.numpy(force=True).copy()) for n, v in state.items()})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("what", "shape"), LAYERS, ids=[w for w, _ in LAYERS])
def test_norms(torch, what, shape, norm):
    mine, theirs = twins(torch, what)
    find(ampc, norm)(mine), find(torch, norm)(theirs)
    same_state(torch, mine, theirs)
    x = np.random.default_rng(4).standard_normal(shape)
    for training in (True, True, False):
        mine.train(training), theirs.train(training)
        got, want = mine(ampc.tensor(x)), theirs(torch.tensor(x))
        assert np.allclose(got.numpy(force=True), want.numpy(force=True), rtol=1e-9, atol=1e-12)
        mine.zero_grad(), theirs.zero_grad()
        (got**2).sum().backward(), (want**2).sum().backward()
        for (n, p), (m, q) in zip(sorted(mine.named_parameters()), sorted(theirs.named_parameters())):
            assert n == m and np.allclose(p.grad.numpy(force=True), q.grad.numpy(force=True), rtol=1e-7, atol=1e-9)
    for (n, v), (m, w) in zip(sorted(mine.state_dict().items()), sorted(theirs.state_dict().items())):
        assert n == m and np.allclose(v.numpy(force=True), w.numpy(force=True), rtol=1e-9, atol=1e-12)
    before = mine(ampc.tensor(x)).detach()
    if norm.startswith("parametrizations"):
        parametrize.remove_parametrizations(mine, "weight")
    else:
        find(ampc, "remove_" + norm)(mine)
    assert type(mine).__name__ == what.split("(")[0] and isinstance(mine.weight, nn.Parameter)
    assert np.allclose(mine(ampc.tensor(x)).numpy(force=True), before.numpy(force=True), rtol=1e-12)
    assert {n for n, _ in mine.named_parameters()} == {"weight", "bias"}


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT

    def right_inverse(self, x):
        return x.triu()


class Double(nn.Module):
    def forward(self, x):
        return 2 * x


def test_parametrization():
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert parametrize.is_parametrized(layer) and parametrize.is_parametrized(layer, "weight") and not parametrize.is_parametrized(layer, "bias")
    assert ampc.equal(layer.weight, layer.weight.mT) and "parametrizations.weight.original" in layer.state_dict()
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    target = ampc.arange(16.0).view(4, 4)
    layer.weight = target + target.T
    assert ampc.equal(layer.weight, target + target.T)
    with parametrize.cached():
        assert layer.weight is layer.weight
    twin = copy.deepcopy(layer)
    with ampc.no_grad():
        twin.parametrizations.weight.original.zero_()
    assert float(twin.weight.abs().sum()) == 0 and float(layer.weight.abs().sum()) > 0
    layer(ampc.ones(1, 4)).sum().backward()
    assert layer.parametrizations.weight.original.grad is not None
    parametrize.register_parametrization(layer, "weight", Double())
    assert ampc.equal(layer.weight, 2 * (target + target.T))
    with pytest.raises(RuntimeError, match="Double has no right_inverse"):
        layer.weight = target
    fresh = nn.Linear(4, 4)
    parametrize.transfer_parametrizations_and_params(layer, fresh, "weight")
    assert ampc.equal(fresh.weight, layer.weight)
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert type(layer) is nn.Linear and ampc.equal(layer.weight, (target + target.T).triu())


class Wide(nn.Module):
    def forward(self, x):
        return x[:1]


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda m: parametrize.register_parametrization(m, "wait", Double()), ValueError, "'wait'"),
    (lambda m: parametrize.register_parametrization(m, "weight", Wide()), ValueError, "like the one it replaces"),
    (lambda m: parametrize.remove_parametrizations(m, "weight"), ValueError, "not parametrized"),
    (lambda m: parametrizations.spectral_norm(m, "wait"), ValueError, "'wait'"),
    (lambda m: parametrizations.spectral_norm(m, n_power_iterations=0), ValueError, "at least 1"),
    (lambda m: parametrizations.weight_norm(parametrizations.weight_norm(m)), ValueError, "already"),
    (lambda m: nn.utils.weight_norm(nn.utils.weight_norm(m)), RuntimeError, "already"),
    (lambda m: nn.utils.vector_to_parameters(ampc.ones(3), m.parameters()), ValueError, "12 values"),
    (lambda m: nn.utils.vector_to_parameters([1.0], m.parameters()), TypeError, "Tensor"),
])
def test_bad_input(call, error, text):
    layer = nn.Linear(3, 3)
    with pytest.raises(error, match=text):
        call(layer)
    assert layer(ampc.ones(1, 3)).shape == (1, 3)


def test_parameters_as_a_vector():
    m = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    v = nn.utils.parameters_to_vector(m.parameters())
    assert v.shape == (14,) and v.requires_grad and ampc.equal(v[:6].detach(), m[0].weight.detach().reshape(-1))
    nn.utils.vector_to_parameters(ampc.arange(14.0), m.parameters())
    assert m[1].bias.tolist() == [12.0, 13.0] and m[0].weight.requires_grad
    v.sum().backward()
    assert all(float(p.grad.min()) == 1 for p in m.parameters())


@pytest.mark.parametrize("trivial", [True, False])
@pytest.mark.parametrize("how", ["matrix_exp", "cayley", "householder", None])
@pytest.mark.parametrize(("what", "shape"), [("Linear(5, 4)", (3, 5)), ("Linear(4, 5)", (3, 4)), ("Linear(4, 4)", (3, 4))], ids=["wide", "tall", "square"])
def test_orthogonal(torch, what, shape, how, trivial):
    """Weight, gradient and what is saved as torch's; it stays orthogonal while it is trained, and takes a value where torch's does."""
    mine, theirs = twins(torch, what)
    assignable = trivial or (how or ("matrix_exp" if what == "Linear(4, 4)" else "householder")) == "householder"
    for library, module in ((ampc, mine), (torch, theirs)):
        assert library.nn.utils.parametrizations.orthogonal(module, orthogonal_map=how, use_trivialization=trivial) is module
    if not trivial:  # else the other columns of the base are drawn
        np.testing.assert_allclose(mine.weight.numpy(force=True), theirs.weight.numpy(force=True), rtol=1e-7, atol=1e-9)
    same_state(torch, mine, theirs)
    x = np.random.default_rng(4).standard_normal(shape)
    steps = [library.optim.SGD(module.parameters(), lr=0.1) for library, module in ((ampc, mine), (torch, theirs))]
    for _ in range(3):
        got, want = mine(ampc.tensor(x)).pow(2).sum(), theirs(torch.tensor(x)).pow(2).sum()
        for loss, step in ((got, steps[0]), (want, steps[1])):
            step.zero_grad()
            loss.backward()
            step.step()
        np.testing.assert_allclose(got.item(), want.item(), rtol=1e-8)
    w = mine.weight.numpy(force=True)
    np.testing.assert_allclose(w @ w.T if what == "Linear(5, 4)" else w.T @ w, np.eye(4), atol=1e-9)
    value = np.linalg.qr(np.random.default_rng(5).standard_normal((5, 5)))[0][:w.shape[0], :w.shape[1]]
    value = np.linalg.qr(value)[0] if w.shape[0] >= w.shape[1] else np.linalg.qr(value.T)[0].T
    if assignable:
        mine.weight = ampc.tensor(value)
        np.testing.assert_allclose(mine.weight.numpy(force=True), value, atol=1e-9)
    else:
        for library, module in ((ampc, mine), (torch, theirs)):
            with pytest.raises(NotImplementedError):
                module.weight = library.tensor(value)


def test_orthogonal_refuses():
    for make, words in [(lambda: parametrizations.orthogonal(nn.Linear(2, 2), "bias"), "got 1 dim"), (lambda: parametrizations.orthogonal(nn.Linear(2, 2), "no"), "no param"),
                        (lambda: parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="cayly"), "cayly")]:
        with pytest.raises(ValueError, match=words):
            make()


def test_older_names_are_loaded(torch):
    for T in (ampc, torch):
        old, new = T.nn.utils.weight_norm(T.nn.Linear(4, 3)), T.nn.utils.parametrizations.weight_norm(T.nn.Linear(4, 3))
        new.load_state_dict(old.state_dict())
        x = T.ones(1, 4)
        assert np.allclose(new(x).tolist(), old(x).tolist())
        hook, = old._forward_pre_hooks.values()
        assert type(hook).__name__ == "WeightNorm" and hook.name == "weight" and hook.dim == 0
        old, new = T.nn.utils.spectral_norm(T.nn.Linear(4, 3)), T.nn.utils.spectral_norm(T.nn.Linear(4, 3))
        state = old.state_dict()
        assert state._metadata[""]["spectral_norm"] == {"weight.version": 1}
        old.eval(), new.eval()
        y = old(x)
        del state["weight_v"], state._metadata[""]["spectral_norm"]  # as before version 1
        state["weight"] = old.weight.detach()
        new.load_state_dict(state)
        assert np.allclose(new(x).tolist(), y.tolist(), atol=1e-4)
        with pytest.raises(IndexError):
            T.nn.utils.parametrizations.weight_norm(T.nn.Linear(4, 3), dim=3)


def test_a_further_parametrization_leaves_what_is_trained(torch):
    for T in (ampc, torch):
        class Twice(T.nn.Module):
            def forward(self, x):
                return 2 * x

            def right_inverse(self, y):
                return y / 2

        class Narrow(T.nn.Module):
            def forward(self, x):
                return x[:1]

        m, p = T.nn.Linear(3, 3), T.nn.utils.parametrize
        first = m.weight.detach().clone()
        p.register_parametrization(m, "weight", Twice())
        p.register_parametrization(m, "weight", Twice())
        assert m.weight.equal(2 * first)
        with pytest.raises(ValueError):
            p.register_parametrization(m, "weight", Narrow())
        assert m.weight.equal(2 * first)


def test_a_parametrized_module_is_not_pickled(torch):
    """Its class exists in this process alone; the message says what to save."""
    for T in (ampc, torch):
        m = T.nn.utils.parametrizations.weight_norm(T.nn.Linear(3, 2))
        for save in (pickle.dumps, copy.copy, lambda m, T=T: T.save(m, io.BytesIO())):
            with pytest.raises(RuntimeError, match="state_dict"):
                save(m)


def test_the_order_of_a_total_norm_may_be_a_word(torch):
    for T in (ampc, torch):
        assert float(T.nn.utils.get_total_norm([T.tensor([1.0, -3.0]), T.tensor([2.0])], "inf")) == 3
