"""Averages of weights (optim.swa_utils), batch norm as a part of the layer before it, and other utilities of modules, beside torch."""

import copy
import warnings

import numpy as np
import pytest
from where import DEVICE

import ampc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("float64")


def mine(t):
    return ampc.from_dlpack(t.detach().clone()).to(DEVICE)


def same(ours, theirs, rtol=1e-6):
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(np.array(ours.detach().tolist()), np.array(theirs.detach().tolist()), rtol=rtol, atol=1e-7)


def net(lib):
    return lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.Linear(4, 2))


def twins():
    theirs, ours = net(torch), net(ampc)
    ours.load_state_dict({k: mine(v) for k, v in theirs.state_dict().items()})
    return theirs, ours


WAYS = {
    "mean": lambda S: {}, "buffers": lambda S: {"use_buffers": True}, "ema": lambda S: {"avg_fn": S.get_ema_avg_fn(0.8)},
    "ema of lists": lambda S: {"multi_avg_fn": S.get_ema_multi_avg_fn(0.8)}, "mean of lists": lambda S: {"multi_avg_fn": S.get_swa_multi_avg_fn()},
    "own": lambda S: {"avg_fn": lambda mean, now, n: 0.1 * mean + 0.9 * now},
}


@pytest.mark.parametrize("way", WAYS)
def test_averaged_models(way):
    theirs, ours = twins()
    means = [lib.optim.swa_utils.AveragedModel(model, **WAYS[way](lib.optim.swa_utils)) for lib, model in ((torch, theirs), (ampc, ours))]
    for _ in range(4):
        x = torch.randn(6, 3)
        theirs(x), ours(mine(x))
        with torch.no_grad():
            for p, q in zip(theirs.parameters(), ours.parameters()):
                p += torch.randn_like(p)
                q.data = mine(p)
        means[0].update_parameters(theirs), means[1].update_parameters(ours)
    assert list(means[0].state_dict()) == list(means[1].state_dict()) and means[1].n_averaged.item() == 4
    for name, t in means[0].state_dict().items():
        same(means[1].state_dict()[name], t, 1e-5)
    x = torch.randn(5, 3)
    same(means[1].eval()(mine(x)), means[0].eval()(x), 1e-4)
    assert all(p is not q for p, q in zip(means[1].parameters(), ours.parameters()))


def test_averaged_models_of_wrong_arguments():
    S = ampc.optim.swa_utils
    with pytest.raises(AssertionError):
        S.AveragedModel(net(ampc), avg_fn=S.get_swa_avg_fn(), multi_avg_fn=S.get_swa_multi_avg_fn())
    for make in (S.get_ema_avg_fn, S.get_ema_multi_avg_fn):
        with pytest.raises(ValueError, match="decay"):
            make(1.5)


def test_statistics_counted_anew():
    theirs, ours = twins()
    batches = [torch.randn(n, 3) for n in (4, 7, 5)]
    for lib, model, convert in ((torch, theirs, lambda t: t), (ampc, ours, mine)):
        model.eval()
        model[1].momentum = 0.3
        lib.optim.swa_utils.update_bn([[convert(batches[0]), 1], convert(batches[1]), (convert(batches[2]),)], model)
        assert not model.training and model[1].momentum == 0.3
    for name, t in theirs.state_dict().items():
        same(ours.state_dict()[name], t, 1e-5)
    ampc.optim.swa_utils.update_bn([], ampc.nn.Linear(2, 2))


@pytest.mark.parametrize("arguments", [(0.05,), ([0.05, 0.5], 4, "linear"), (0.05, 3), (0.05, 0)])
def test_rates_of_averaging(arguments):
    seen = []
    for lib in (torch, ampc):
        optimizer = lib.optim.SGD([{"params": [lib.zeros(1, requires_grad=True)], "lr": lr} for lr in (1.0, 0.1)], lr=0.1)
        schedule = lib.optim.swa_utils.SWALR(optimizer, *arguments)
        rows = [[g["lr"] for g in optimizer.param_groups]]
        for step in range(14):
            optimizer.step()
            if step == 6:  # continued from its state
                state = copy.deepcopy(schedule.state_dict())
                schedule = lib.optim.swa_utils.SWALR(optimizer, *arguments)
                schedule.load_state_dict(state)
                for group, rate in zip(optimizer.param_groups, rows[-1]):
                    group["lr"] = rate
            schedule.step()
            rows.append([g["lr"] for g in optimizer.param_groups])
        seen.append(rows)
    np.testing.assert_allclose(seen[1], seen[0], rtol=1e-9)
    for wrong in ((0.1, 3, "square"), (0.1, -1), ([0.1], 3)):
        for lib in (torch, ampc):
            optimizer = lib.optim.SGD([{"params": [lib.zeros(1, requires_grad=True)]} for _ in range(2)], lr=0.1)
            with pytest.raises(ValueError):
                lib.optim.swa_utils.SWALR(optimizer, *wrong)


LAYERS = {
    "conv1d": (lambda nn: nn.Conv1d(3, 4, 2), (2, 3, 5), "BatchNorm1d"), "conv2d": (lambda nn: nn.Conv2d(4, 4, 3, groups=2, bias=False), (2, 4, 5, 6), "BatchNorm2d"),
    "transposed": (lambda nn: nn.ConvTranspose2d(3, 4, 2, stride=2), (2, 3, 3, 4), "BatchNorm2d"), "linear": (lambda nn: nn.Linear(3, 4), (5, 3), "BatchNorm1d"),
    "linear without bias": (lambda nn: nn.Linear(3, 4, bias=False), (5, 3), "BatchNorm1d"),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_in_the_layer_before(name, affine):
    if name.startswith("linear") and not affine:
        pytest.skip("torch's needs a weight")
    make, shape, norm = LAYERS[name]
    made = []
    for lib in (torch, ampc):
        layer, bn = make(lib.nn), getattr(lib.nn, norm)(4, affine=affine)
        made.append(lib.nn.Sequential(layer, bn))
    theirs, ours = made
    for t in theirs.state_dict().values():
        t.copy_(torch.rand(t.shape) * 2) if t.is_floating_point() else None
    ours.load_state_dict({k: mine(v) for k, v in theirs.state_dict().items()})
    for model in made:
        model.eval()
    fuse, more = ("fuse_linear_bn_eval", ()) if name.startswith("linear") else ("fuse_conv_bn_eval", (name == "transposed",))
    both = [getattr(lib.nn.utils, fuse)(*model, *more) for lib, model in ((torch, theirs), (ampc, ours))]
    x = torch.randn(shape)
    same(both[1](mine(x)), ours(mine(x)), 1e-4)
    same(both[1].weight, both[0].weight, 1e-5), same(both[1].bias, both[0].bias, 1e-4)
    assert type(both[1]) is type(ours[0]) and both[1] is not ours[0]
    ours.train()
    with pytest.raises(AssertionError, match="eval"):
        getattr(ampc.nn.utils, fuse)(*ours, *more)


def test_utilities_of_other_names():
    p = ampc.nn.Parameter(ampc.ones(3))
    p.grad = ampc.full((3,), 2.0)
    with pytest.warns(UserWarning, match="clip_grad_norm_"):
        assert ampc.nn.utils.clip_grad_norm([p], 1.0).item() == pytest.approx(12**0.5)
    assert p.grad.norm().item() == pytest.approx(1)
    layer = ampc.nn.utils.skip_init(ampc.nn.Linear, 3, 4, bias=False)
    assert layer.weight.shape == (4, 3) and layer.bias is None
    for wrong in (ampc.nn.ReLU, int, 3):
        with pytest.raises(RuntimeError):
            ampc.nn.utils.skip_init(wrong)
    conv = ampc.nn.Conv2d(1, 1, 1)
    assert ampc.nn.utils.convert_conv2d_weight_memory_format(conv, ampc.channels_last) is conv
    assert ampc.nn.utils.convert_conv3d_weight_memory_format(conv, ampc.channels_last_3d) is conv


@pytest.mark.parametrize("arguments", [(), (2, 1), (1, -1), (3, 0)])
def test_norms_except_along_a_dimension(arguments):
    x = torch.randn(3, 4, 2)
    same(ampc.norm_except_dim(mine(x), *arguments), torch.norm_except_dim(x, *arguments))


def test_swa_utils_are_found():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from ampc.optim.swa_utils import AveragedModel

        assert ampc.optim.swa_utils.AveragedModel is AveragedModel
    with pytest.raises(AttributeError):
        ampc.optim.nothing_of_that_name  # noqa: B018


def test_keywords_of_what_makes_tensors():
    given = {"dtype": 1, "factory_kwargs": {"device": "cpu"}}
    assert ampc.nn.factory_kwargs(given) == torch.nn.factory_kwargs(given) == {"dtype": 1, "device": "cpu"} and ampc.nn.factory_kwargs(None) == {}
    for wrong in ({"size": 3}, {"dtype": 1, "factory_kwargs": {"dtype": 2}}):
        for lib in (torch, ampc):
            with pytest.raises(TypeError):
                lib.nn.factory_kwargs(wrong)
