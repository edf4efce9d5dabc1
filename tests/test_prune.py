"""nn.utils.prune and nn.utils.stateless beside torch's; where torch is absent they skip."""

import copy
import importlib

import numpy as np
import pytest
from references import R

import ampc
from ampc.nn.utils import prune

WEIGHT, BIAS = R.standard_normal((6, 4, 3)).astype("float32"), R.standard_normal(6).astype("float32")


@pytest.fixture
def torch():
    found = pytest.importorskip("torch")
    importlib.import_module("torch.nn.utils.prune")
    return found


def layer(library):
    conv = library.nn.Conv1d(4, 6, 3)
    with library.no_grad():
        conv.weight.copy_(library.tensor(WEIGHT))
        conv.bias.copy_(library.tensor(BIAS))
    return conv


def state(module):
    return {name: t.detach().cpu().numpy() for name, t in [*module.state_dict().items(), ("now", module.weight)]}


def agree(a, b):
    assert list(a) == list(b)
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-6)


def both(torch, do):
    modules = []
    for library, its in ((ampc, prune), (torch, torch.nn.utils.prune)):
        module = layer(library)
        do(library, its, module)
        modules.append(module)
    agree(state(modules[0]), state(modules[1]))
    return modules


DETERMINED = {
    "identity": lambda t, p, m: p.identity(m, "weight"),
    "l1 count": lambda t, p, m: p.l1_unstructured(m, "weight", 7),
    "l1 share": lambda t, p, m: p.l1_unstructured(m, "weight", 0.3),
    "l1 none": lambda t, p, m: p.l1_unstructured(m, "weight", 0),
    "l1 scores": lambda t, p, m: p.l1_unstructured(m, "weight", 0.5, importance_scores=t.tensor(WEIGHT[::-1].copy())),
    "ln 2": lambda t, p, m: p.ln_structured(m, "weight", 2, 2, 0),
    "ln 1": lambda t, p, m: p.ln_structured(m, "weight", 0.5, 1, -1),
    "ln inf": lambda t, p, m: p.ln_structured(m, "weight", 1, float("inf"), 1),
    "ln fro": lambda t, p, m: p.ln_structured(m, "weight", 1, "fro", 1),
    "mask": lambda t, p, m: p.custom_from_mask(m, "weight", t.tensor((WEIGHT > 0).astype("float32"))),
    "twice": lambda t, p, m: (p.l1_unstructured(m, "weight", 0.3), p.l1_unstructured(m, "weight", 0.3)),
    "structured after": lambda t, p, m: (p.ln_structured(m, "weight", 2, 2, 0), p.ln_structured(m, "weight", 1, 2, 0), p.l1_unstructured(m, "weight", 5)),
    "mask after": lambda t, p, m: (p.l1_unstructured(m, "weight", 9), p.custom_from_mask(m, "weight", t.tensor((WEIGHT > 0).astype("float32")))),
    "global": lambda t, p, m: p.global_unstructured([(m, "weight"), (m, "bias")], p.L1Unstructured, amount=0.4),
    "global after": lambda t, p, m: (p.l1_unstructured(m, "bias", 2), p.global_unstructured([(m, "weight"), (m, "bias")], p.L1Unstructured, amount=11)),
    "removed": lambda t, p, m: (p.l1_unstructured(m, "weight", 0.3), p.remove(m, "weight")),
}


@pytest.mark.parametrize("name", list(DETERMINED))
def test_masks(torch, name):
    mine, theirs = both(torch, DETERMINED[name])
    assert prune.is_pruned(mine) == torch.nn.utils.prune.is_pruned(theirs) == (name != "removed")
    assert [n for n, _ in mine.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    x = R.standard_normal((2, 4, 8)).astype("float32")
    for library, module in ((ampc, mine), (torch, theirs)):
        module(library.tensor(x)).square().sum().backward()
    for (_, a), (_, b) in zip(mine.named_parameters(), theirs.named_parameters()):
        np.testing.assert_allclose(a.grad.cpu().numpy(), b.grad.numpy(), rtol=2e-4, atol=1e-4)


def test_names_of_torch(torch):
    theirs = torch.nn.utils.prune
    wanted = {n for n in vars(theirs) if not n.startswith("_") and getattr(getattr(theirs, n), "__module__", "") == theirs.__name__}
    assert wanted <= set(vars(prune)) and all(getattr(prune, n).__doc__ for n in wanted)


@pytest.mark.parametrize("way", [lambda p, m: p.random_unstructured(m, "weight", 20), lambda p, m: p.random_unstructured(m, "weight", 0.25)])
def test_random_values(torch, way):
    for library, p in ((ampc, prune), (torch, torch.nn.utils.prune)):
        module = layer(library)
        way(p, module)
        assert int((module.weight_mask == 0).sum()) in (20, 18)
        assert set(np.unique(module.weight_mask.cpu().numpy())) == {0.0, 1.0}


def test_random_channels():
    seen = set()
    for _ in range(20):
        module = prune.random_structured(layer(ampc), "weight", 2, 0)
        channels = module.weight_mask.sum(dim=(1, 2)).tolist()
        assert sorted(channels) == [0.0, 0.0, 12.0, 12.0, 12.0, 12.0]
        seen.add(tuple(channels))
    assert len(seen) > 3


def test_without_a_module(torch):
    for library, p in ((ampc, prune), (torch, torch.nn.utils.prune)):
        t = p.L1Unstructured(amount=2).prune(library.tensor([1.0, -3.0, 0.5, 2.0]))
        assert t.tolist() == [0.0, -3.0, 0.0, 2.0]
        t = p.L1Unstructured(2).prune(library.tensor([1.0, -3.0, 0.5, 2.0]), importance_scores=library.tensor([4.0, 3.0, 2.0, 1.0]))
        assert t.tolist() == [1.0, -3.0, 0.0, 0.0]


def test_own_method_and_containers(torch):
    for library, p in ((ampc, prune), (torch, torch.nn.utils.prune)):
        class EverySecond(p.BasePruningMethod):
            PRUNING_TYPE = "unstructured"

            def compute_mask(self, t, default_mask):
                mask = default_mask.clone()
                mask.view(-1)[::2] = 0
                return mask

        module = layer(library)
        EverySecond.apply(module, "bias")
        container = EverySecond.apply(module, "bias")
        assert isinstance(container, p.PruningContainer) and len(container) == 2 and [type(m) for m in container] == [EverySecond] * 2
        assert module.bias_mask.tolist() == [0, 0, 0, 1, 0, 0] and isinstance(container[0], EverySecond)
        with pytest.raises(TypeError):
            container.add_pruning_method(3)
        other = p.Identity()
        other._tensor_name = "weight"
        with pytest.raises(ValueError, match="'bias'"):
            container.add_pruning_method(other)


def test_wrong_amounts(torch):
    cases = [(lambda p, m: p.l1_unstructured(m, "weight", -1), ValueError), (lambda p, m: p.l1_unstructured(m, "weight", 1.5), ValueError),
             (lambda p, m: p.l1_unstructured(m, "weight", 1000), ValueError), (lambda p, m: p.l1_unstructured(m, "weight", "x"), TypeError),
             (lambda p, m: p.ln_structured(m, "bias", 1, 2, 0), ValueError), (lambda p, m: p.ln_structured(m, "weight", 1, 2, 3), IndexError),
             (lambda p, m: p.remove(m, "weight"), ValueError), (lambda p, m: p.custom_from_mask(m, "weight", m.bias), AssertionError),
             (lambda p, m: p.global_unstructured([(m, "weight")], p.LnStructured, amount=1, n=2), TypeError),
             (lambda p, m: p.global_unstructured(3, p.L1Unstructured, amount=1), TypeError)]
    for library, p in ((ampc, prune), (torch, torch.nn.utils.prune)):
        for do, error in cases:
            module = layer(library)
            with pytest.raises(error):
                do(p, module)
            assert not p.is_pruned(module) and set(dict(module.named_parameters())) == {"weight", "bias"}


def test_training_keeps_the_mask_and_state_dicts_load():
    module = prune.l1_unstructured(layer(ampc), "weight", 0.5)
    optimizer = ampc.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        module(ampc.ones(2, 4, 8)).square().sum().backward()
        optimizer.step()
    assert int((module.weight == 0).sum()) >= 36
    other = prune.identity(layer(ampc), "weight")
    other.load_state_dict(copy.deepcopy(module.state_dict()))
    other(ampc.ones(1, 4, 8)), module(ampc.ones(1, 4, 8))
    assert other.weight.tolist() == module.weight.tolist()


def test_stateless(torch):
    for library in (ampc, torch):
        module = library.nn.Linear(2, 1)
        with pytest.warns(FutureWarning, match="functional_call"):
            y = library.nn.utils.stateless.functional_call(module, {"weight": library.ones(1, 2), "bias": library.zeros(1)}, library.ones(3, 2))
        assert y.tolist() == [[2.0]] * 3


@pytest.mark.parametrize("order", ["fro", "nuc", "a", None, 0, 3, -1])
@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2)])
def test_orders_of_structured_pruning(torch, shape, order):
    def masked(T):
        m = T.nn.Module()
        m.weight = T.nn.Parameter(T.sin(T.arange(float(np.prod(shape)))).reshape(*shape))
        prune = importlib.import_module(f"{T.__name__}.nn.utils.prune")
        try:
            prune.ln_structured(m, "weight", 2, order, 0)
        except (RuntimeError, TypeError) as e:
            return type(e)
        return m.weight_mask.tolist(), [h._tensor_name for h in m._forward_pre_hooks.values()]

    assert masked(ampc) == masked(torch)
