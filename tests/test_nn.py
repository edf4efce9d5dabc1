"""Modules: registration, state, hooks, modes, printing; layers, losses and clipping against torch."""

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest
from references import R
from where import settled

import ampc
from ampc import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.rest = nn.ModuleList([nn.Linear(8, 8), nn.BatchNorm1d(8)])
        self.register_buffer("scale", ampc.ones(1))
        self.register_buffer("scratch", ampc.zeros(1), persistent=False)
        self.act = nn.ReLU()

    def forward(self, x):
        x = self.act(self.first(x))
        for layer in self.rest:
            x = layer(x)
        return x * self.scale


def test_registration_and_walks():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == ["first.weight", "first.bias", "rest.0.weight", "rest.0.bias", "rest.1.weight", "rest.1.bias"]
    assert [n for n, _ in net.named_buffers()] == ["scale", "scratch", "rest.1.running_mean", "rest.1.running_var", "rest.1.num_batches_tracked"]
    assert [n for n, _ in net.named_modules()] == ["", "first", "rest", "rest.0", "rest.1", "act"]
    assert net.get_submodule("rest.0") is net.rest[0] and net.get_parameter("first.bias") is net.first.bias
    tied = nn.Sequential(net.first, net.first)
    assert len(list(tied.parameters())) == 2
    del net.first
    assert not hasattr(net, "first")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        net.nothing
    with pytest.raises(TypeError, match="buffer"):
        net.scale = 3
    with pytest.raises(AttributeError, match="super"):
        type("Bad", (nn.Module,), {"__init__": lambda self: setattr(self, "w", nn.Parameter(ampc.ones(1)))})()


def test_state_dict_round_trip_and_strict_errors():
    a, b = Net(), Net()
    state = a.state_dict()
    assert "scratch" not in state and not state["first.weight"].requires_grad
    assert repr(b.load_state_dict(state)) == "<All keys matched successfully>"
    assert all(x.equal(y) for x, y in zip(a.state_dict().values(), b.state_dict().values()))
    extra = OrderedDict(state, unknown=ampc.ones(1))
    del extra["first.bias"]
    with pytest.raises(RuntimeError, match="loading state_dict for Net") as e:  # torch's words, by which scripts tell what is wrong
        b.load_state_dict(extra)
    assert 'Unexpected key(s) in state_dict: "unknown"' in str(e.value) and 'Missing key(s) in state_dict: "first.bias"' in str(e.value)
    assert b.load_state_dict(extra, strict=False) == (["first.bias"], ["unknown"])
    wrong = dict(state, **{"first.weight": ampc.ones(2, 2)})
    before = b.first.bias.clone()
    with pytest.raises(RuntimeError, match=r"size mismatch for first.weight: the checkpoint has shape \[2, 2\], the model \[8, 4\]"):
        b.load_state_dict(wrong, strict=False)
    assert b.first.bias.equal(before)


def test_casts_modes_and_apply():
    net = Net().half()
    assert all(p.dtype is ampc.float16 for p in net.parameters()) and net.rest[1].num_batches_tracked.dtype is ampc.int64
    assert net.float().first.weight.dtype is ampc.float32 and net.to(ampc.bfloat16).scale.dtype is ampc.bfloat16
    net = Net().eval()
    assert not net.rest[1].training and net.train().rest[1].training
    net.apply(lambda m: nn.init.ones_(m.weight) if isinstance(m, nn.Linear) else None)
    assert net.first.weight.sum().item() == 32
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    if not ampc.cuda.is_available():
        with pytest.raises(RuntimeError, match="cuda"):
            net.cuda()
    with pytest.raises(TypeError, match="floating"):
        net.to(ampc.int64)


def test_hooks():
    layer, seen = nn.Linear(2, 2), []
    pre = layer.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    layer.register_forward_hook(lambda m, args, out: seen.append(args[0].tolist()))
    layer.register_full_backward_hook(lambda m, gi, go: seen.append((gi[0].shape, go[0].tolist())))
    layer(ampc.ones(1, 2, requires_grad=True)).sum().backward()
    assert seen == [[[2, 2]], ((1, 2), [[1, 1]])]
    pre.remove()
    layer(ampc.ones(1, 2))
    assert seen[2] == [[1, 1]]


@pytest.mark.filterwarnings("ignore:no input of Linear")
def test_hooks_outlive_their_handles():
    """Several on one thing, no handle kept: each runs, in order; one taken off again leaves the others."""
    layer = nn.Linear(2, 2)
    opt = ampc.optim.SGD(layer.parameters(), lr=0.1)
    result = layer(ampc.ones(1, 2))
    for register, run in [
        (layer.register_forward_pre_hook, lambda: layer(ampc.ones(1, 2))), (layer.register_forward_hook, lambda: layer(ampc.ones(1, 2))),
        (layer.register_full_backward_hook, lambda: layer(ampc.ones(1, 2, requires_grad=True)).sum().backward()), (opt.register_step_pre_hook, opt.step), (opt.register_step_post_hook, opt.step),
        (layer.weight.register_hook, lambda: layer(ampc.ones(1, 2)).sum().backward()), (layer.weight.register_post_accumulate_grad_hook, lambda: layer(ampc.ones(1, 2)).sum().backward()),
        (result.register_hook, lambda: result.sum().backward(retain_graph=True)), (layer.register_state_dict_hook, layer.state_dict),
    ]:
        seen = []
        for i in range(3):
            register(lambda *args, i=i, seen=seen: seen.append(i))
        fourth = register(lambda *args, seen=seen: seen.append(3))
        run()
        assert seen == [0, 1, 2, 3], register
        fourth.remove()
        fourth.remove()
        run()
        assert seen == [0, 1, 2, 3, 0, 1, 2], register


def test_repr_copy_and_pickle():
    net = nn.Sequential(OrderedDict(a=nn.Linear(2, 3), b=nn.Sequential(nn.GELU(), nn.Dropout(0.1))))
    assert repr(net) == ("Sequential(\n  (a): Linear(in_features=2, out_features=3, bias=True)\n  (b): Sequential(\n"
                         "    (0): GELU(approximate='none')\n    (1): Dropout(p=0.1, inplace=False)\n  )\n)")
    twin = copy.deepcopy(net)
    assert twin.a.weight is not net.a.weight and twin.a.weight.equal(net.a.weight) and len(list(twin.parameters())) == 2
    again = pickle.loads(pickle.dumps(net))
    assert again.a.weight.equal(net.a.weight) and again.a.weight.requires_grad
    assert net[0] is net.a and len(net[:1]) == 1
    with pytest.raises(IndexError):
        net[5]


def test_zero_grad():
    net = nn.Linear(2, 2)
    net(ampc.ones(1, 2)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert net.weight.grad.abs().sum().item() == 0
    net.zero_grad()
    assert net.weight.grad is None


PAIRS = {
    "LayerNorm": (lambda n: n.LayerNorm(6), (3, 6)),
    "BatchNorm1d": (lambda n: n.BatchNorm1d(6), (5, 6)),
    "BatchNorm1d-3": (lambda n: n.BatchNorm1d(6, momentum=None), (5, 6, 4)),
    "Linear": (lambda n: n.Linear(6, 3), (2, 5, 6)),
    "GELU": (lambda n: n.GELU("tanh"), (3, 6)),
    "Softmax": (lambda n: n.Softmax(1), (3, 6)),
    "LogSoftmax": (lambda n: n.LogSoftmax(-1), (3, 6)),
    "Flatten": (lambda n: n.Flatten(), (3, 2, 3)),
    "SiLU": (lambda n: n.SiLU(), (3, 6)),
    "LeakyReLU": (lambda n: n.LeakyReLU(0.2), (3, 6)),
    "Softplus": (lambda n: n.Softplus(2.0), (3, 6)),
    "Tanh": (lambda n: n.Tanh(), (3, 6)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_layers_as_torch(name, torch):
    make, shape = PAIRS[name]
    mine, theirs = make(nn), make(torch.nn)
    theirs.load_state_dict({k: torch.tensor(v.numpy(force=True)) for k, v in mine.state_dict().items()})
    tol = 64 * ampc.finfo(ampc.float32).eps
    for _ in range(2):
        x = ampc.randn(*shape)
        tx = torch.tensor(x.numpy(force=True)).requires_grad_()
        x.requires_grad_()
        y, ty = mine(x), theirs(tx)
        assert abs(y.detach() - ampc.tensor(ty.detach().numpy(force=True))).max().item() <= tol * max(1, ty.abs().max().item())
        (y * y).sum().backward()
        (ty * ty).sum().backward()
        assert abs(x.grad - ampc.tensor(tx.grad.numpy(force=True))).max().item() <= 4 * tol * max(1, tx.grad.abs().max().item())
    for (k, v), w in zip(mine.state_dict().items(), theirs.state_dict().values()):
        assert abs(v.double() - ampc.tensor(w.double().numpy(force=True))).max().item() <= tol, k
    mine.eval(), theirs.eval()
    assert abs(mine(x).detach() - ampc.tensor(theirs(tx).detach().numpy(force=True))).max().item() <= tol * 10
    assert repr(mine) == repr(theirs)


def test_embedding_padding(torch):
    e = nn.Embedding(5, 3, padding_idx=1)
    assert e.weight[1].abs().sum().item() == 0
    e(ampc.tensor([[0, 1], [4, 0]])).sum().backward()
    assert e.weight.grad.sum(1).tolist() == [6, 0, 0, 0, 3]
    with pytest.raises(IndexError, match="out of range"):
        settled(e(ampc.tensor([5])))


def test_dropout_statistics_and_gradient():
    x = ampc.ones(100000, requires_grad=True)
    y = nn.functional.dropout(x, 0.25)
    kept = (y > 0).float().mean().item()
    assert abs(kept - 0.75) < 0.01 and abs(y.detach().mean().item() - 1) < 0.02
    y.sum().backward()
    assert x.grad.equal(y.detach())  # backward drew the same mask
    assert nn.Dropout(0.5).eval()(x) is x
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.functional.dropout(x, 1.5)


LOSSES = {
    "MSELoss": lambda T, x: T.nn.MSELoss()(x, x.detach() * 0.5),
    "L1Loss": lambda T, x: T.nn.L1Loss(reduction="sum")(x, x.detach() * 0.5),
    "CrossEntropy": lambda T, x: T.nn.CrossEntropyLoss(weight=T.tensor([1.0, 2.0, 0.5]), ignore_index=1)(x, T.tensor([0, 1, 2, 2])),
    "NLL": lambda T, x: T.nn.NLLLoss()(x, T.tensor([0, 1, 2, 2])),
    "BCEWithLogits": lambda T, x: T.nn.BCEWithLogitsLoss(pos_weight=T.tensor([1.0, 2.0, 3.0]))(x, x.detach().sigmoid()),
    "BCE": lambda T, x: T.nn.BCELoss()(x.sigmoid(), x.detach().sigmoid()),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_as_torch(name, torch):
    x = ampc.randn(4, 3)
    tx = torch.tensor(x.numpy(force=True)).requires_grad_()
    x.requires_grad_()
    mine, theirs = LOSSES[name](ampc, x), LOSSES[name](torch, tx)
    mine.backward()
    theirs.backward()
    assert mine.item() == pytest.approx(theirs.item(), rel=1e-5) and abs(x.grad - ampc.tensor(tx.grad.numpy(force=True))).max().item() < 1e-5


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, float("inf")])
def test_clip_grad_norm(norm_type, torch):
    grads = [ampc.randn(5, 3), ampc.randn(7)]
    mine = [nn.Parameter(ampc.zeros(g.shape)) for g in grads]
    theirs = [torch.nn.Parameter(torch.zeros(tuple(g.shape))) for g in grads]
    for m, t, g in zip(mine, theirs, grads):
        m.grad, t.grad = g.clone(), torch.tensor(g.numpy(force=True))
    a = nn.utils.clip_grad_norm_(mine, 0.7, norm_type)
    b = torch.nn.utils.clip_grad_norm_(theirs, 0.7, norm_type)
    assert a.item() == pytest.approx(b.item(), rel=1e-5)
    for m, t in zip(mine, theirs):
        assert abs(m.grad - ampc.tensor(t.grad.numpy(force=True))).max().item() < 1e-6


def test_clipping_float64_keeps_its_precision():
    p = nn.Parameter(ampc.zeros(3, dtype=ampc.float64))
    p.grad = ampc.full((3,), 1.0, dtype=ampc.float64)
    nn.utils.clip_grad_norm_([p], 0.1)
    assert p.grad[0].item() == pytest.approx(0.1 / (3**0.5 + 1e-6), rel=1e-14)


def test_norm_of_huge_gradients_does_not_overflow():
    p = nn.Parameter(ampc.zeros(4))
    p.grad = ampc.full((4,), 1e20)
    assert nn.utils.clip_grad_norm_([p], 1.0).item() == pytest.approx(2e20)
    assert p.grad.tolist() == pytest.approx([0.5] * 4)
    p.grad[0] = float("nan")
    with pytest.raises(RuntimeError, match="error_if_nonfinite"):
        nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    nn.utils.clip_grad_value_([p], 0.1)
    assert p.grad[1].item() == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
def test_cells_equal_torchs(torch, name):
    mine, theirs = getattr(nn, name)(3, 4), getattr(torch.nn, name)(3, 4)
    mine.load_state_dict({k: ampc.tensor(v.numpy(force=True)) for k, v in theirs.state_dict().items()})
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    got, want = None, None
    for _ in range(3):
        got, want = mine(ampc.tensor(x), got), theirs(torch.tensor(x), want)
    for g, w in zip(got if name == "LSTMCell" else [got], want if name == "LSTMCell" else [want]):
        assert np.abs(g.numpy(force=True) - w.numpy(force=True)).max() < 1e-6
    with ampc.autocast("cuda" if got[0].is_cuda else "cpu", dtype=ampc.bfloat16):
        out = mine(ampc.tensor(x))
    assert (out[0] if name == "LSTMCell" else out).dtype is ampc.bfloat16


def test_what_is_replaced_keeps_its_turn():
    net = ampc.nn.Module()
    net.a, net.b, net.c = ampc.nn.Linear(1, 1), ampc.nn.Parameter(ampc.ones(1)), ampc.nn.Linear(1, 2)
    net.d = ampc.nn.Parameter(ampc.ones(2))
    net.a, net.b = ampc.nn.Linear(1, 3), ampc.nn.Parameter(ampc.ones(3))
    assert [n for n, _ in net.named_parameters()] == ["b", "d", "a.weight", "a.bias", "c.weight", "c.bias"]
    with pytest.raises(TypeError, match="is a parameter"):
        net.b = ampc.nn.Linear(1, 1)
    with pytest.raises(TypeError, match="is a module"):
        net.a = 3
    net.register_buffer("e", ampc.ones(1))
    net.e = ampc.nn.Linear(1, 1)  # of another kind: that is a new turn
    assert [n for n, _ in net.named_children()] == ["a", "c", "e"] and [n for n, _ in net.named_parameters(recurse=False)] == ["b", "d"] and not list(net.buffers())


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.bfloat16, ampc.float16, ampc.float64], ids=str)
@pytest.mark.parametrize(("x", "w"), [((0, 3), (4, 3)), ((2, 3), (0, 3)), ((2, 0), (4, 0)), ((2, 0, 3), (4, 3)), ((0,), (4, 0)), ((3,), (0, 3)), ((2, 0), (0, 0))])
def test_products_of_nothing(x, w, dtype):
    """An empty batch, or layers without a feature: shapes are as ever, sums of nothing 0."""
    a, b = ampc.ones(x, dtype=dtype, requires_grad=True), ampc.ones(w, dtype=dtype, requires_grad=True)
    y = nn.functional.linear(a, b)
    assert y.shape == (*x[:-1], w[0]) and not y.any()
    y.sum().backward()
    assert a.grad.shape == x and b.grad.shape == w and not b.grad.any()


INPLACE = [("relu", ()), ("leaky_relu", (0.2,)), ("elu", ()), ("celu", (0.7,)), ("selu", ()), ("silu", ()), ("mish", ()), ("hardtanh", ()), ("hardswish", ()),
           ("hardsigmoid", ()), ("relu6", ()), ("threshold", (0.1, 20.0)), ("rrelu", (0.1, 0.3)), ("dropout", (0.0,)), ("dropout2d", (0.0,)), ("alpha_dropout", (0.0,))]


@pytest.mark.parametrize(("name", "args"), INPLACE, ids=[n for n, _ in INPLACE])
def test_in_place_activations_differentiate(name, args):
    f, x = getattr(nn.functional, name), ampc.randn(2, 3, 4, 5, dtype=ampc.float64, requires_grad=True)
    plain = f(x * 2, *args)
    (want,) = ampc.autograd.grad((plain**2).sum(), x)
    y = x * 2
    z = f(y, *args, inplace=True)
    assert z is y or z.data_ptr() == y.data_ptr()
    (got,) = ampc.autograd.grad((z**2).sum(), x)
    assert ampc.equal(z, plain) and ampc.equal(got, want)
    with ampc.no_grad():
        y = x * 2
        assert f(y, *args, inplace=True).data_ptr() == y.data_ptr() and ampc.equal(y, plain)


def test_where_of_a_condition_alone():
    c = ampc.tensor([[True, False], [True, True]])
    rows, cols = ampc.where(c)
    assert rows.tolist() == [0, 1, 1] and cols.tolist() == [0, 0, 1]
    assert ampc.where(c, input=ampc.ones(2), other=0.0).tolist() == [[1, 0], [1, 1]]


def where_of(error):
    """What tracebacks say of the place."""
    return "\n".join(getattr(error, "__notes__", [])) or str(error)


def test_errors_name_the_module():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(OrderedDict(embed=nn.Linear(5, 8), encoder=nn.TransformerEncoder(layer, 3)))
    model.encoder.layers[2].linear1 = nn.Linear(9, 16)
    with pytest.raises(RuntimeError, match="linear: `x`") as found:
        model(ampc.ones(2, 3, 5))
    assert "in encoder.layers.2.linear1: Linear(in_features=9, out_features=16, bias=True)" in where_of(found.value)
    assert where_of(found.value).count("linear1") == 1
    with pytest.raises(RuntimeError) as found:
        model.embed(ampc.ones(2, 4))  # the module itself: there is no path
    assert "in " not in "".join(getattr(found.value, "__notes__", []))


def test_errors_of_scripts_keep_their_words():
    class Own(nn.Module):
        def forward(self, x):
            raise KeyError("mine")

    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = [Own()]  # not registered

        def forward(self, x):
            return self.parts[0](x)

    with pytest.raises(KeyError) as found:
        nn.Sequential(Holder())(ampc.ones(1))
    assert found.value.args == ("mine",)
    if hasattr(found.value, "__notes__"):
        assert found.value.__notes__ == ["in 0.<Own>: Own()"]
    try:  # the same exception again, from another place
        nn.Sequential(nn.ReLU(), Own())(ampc.ones(1))
    except KeyError as error:
        assert not hasattr(error, "__notes__") or error.__notes__ == ["in 1: Own()"]


@pytest.mark.parametrize("dtype", [ampc.float64, ampc.float32, ampc.bfloat16, ampc.float16], ids=str)
def test_binary_cross_entropy_of_probabilities_that_are_0_or_1(dtype):
    """A sigmoid of 20 is 1 in float32: its gradient is 0 then, not nan, whatever the target."""
    x, target = ampc.tensor([800.0, -800.0, 800.0, -800.0, 0.0], dtype=dtype).requires_grad_(), ampc.tensor([1.0, 0.0, 0.0, 1.0, 0.5], dtype=dtype)
    loss = nn.functional.binary_cross_entropy(ampc.sigmoid(x), target, reduction="none")
    loss.sum().backward()
    assert loss.tolist()[:4] == [0.0, 0.0, 100.0, 100.0] and x.grad.tolist() == [0.0] * 5
    p = ampc.tensor([0.0, 1.0], dtype=dtype).requires_grad_()
    nn.functional.binary_cross_entropy(p, ampc.tensor([0.0, 1.0], dtype=dtype), reduction="sum").backward()
    assert p.grad.tolist() == [1.0, -1.0]


@pytest.mark.filterwarnings("ignore:no input of Linear")
def test_backward_hooks_without_input_gradients():
    layer, seen = nn.Linear(2, 1), []
    layer.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go[0].tolist())))
    layer(ampc.ones(1, 2)).sum().backward()  # as the first layer of a model sees its images
    assert seen == [((None,), [[1]])] and layer.weight.grad.tolist() == [[1, 1]]
    layer.register_full_backward_hook(lambda m, gi, go: (ampc.ones(1, 2),))
    with pytest.raises(RuntimeError, match="must return None"):
        layer(ampc.ones(1, 2)).sum().backward()


def test_backward_hooks_know_every_argument():
    class Both(nn.Module):
        def forward(self, x, n, mask):
            return x * 2, n, mask

    layer, seen = Both(), []
    handle = layer.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    out = layer(ampc.ones(1, 2, requires_grad=True), 5, ampc.ones(2))
    handle.remove()  # the call that it was there for still runs it
    out[0].sum().backward()
    (gi, go), = seen
    assert gi[0].tolist() == [[2, 2]] and gi[1] is None and gi[2].tolist() == [0, 0]
    assert go[0].tolist() == [[1, 1]] and go[1:] == (None, None)
    layer.register_full_backward_hook(lambda m, gi, go: gi[:1])
    with pytest.raises(RuntimeError, match="returned 1 gradients, expected 3"):
        layer(ampc.ones(1, 2, requires_grad=True), 5, ampc.ones(2))[0].sum().backward()


def test_a_copied_parameter_has_no_gradient():
    layer = nn.Linear(2, 1)
    layer(ampc.ones(1, 2)).sum().backward()
    assert copy.deepcopy(layer).weight.grad is None and layer.weight.grad is not None
    x = ampc.ones(2, requires_grad=True)
    x.grad = ampc.ones(2)
    assert copy.deepcopy(x).grad.tolist() == [1, 1] and copy.deepcopy(x).grad is not x.grad


def test_truncated_normal():
    def drawn(*args, size=20000, **kwargs):
        return nn.init.trunc_normal_(ampc.empty(size), *args, **kwargs).cpu().numpy()

    one = drawn(generator=ampc.Generator().manual_seed(3))
    assert np.array_equal(one, drawn(generator=ampc.Generator().manual_seed(3))) and abs(one).max() <= 2 and abs(one.std() - 0.8796) < 0.02
    tail = drawn(0.0, 1.0, 5.0, 6.0)  # of a normal's values one in three million
    assert tail.min() >= 5 and tail.max() <= 6 and abs(tail.mean() - 5.1863) < 0.01
    assert (drawn(0.0, 1.0, 1.0, 1.0, size=4) == 1).all() and drawn(size=0).size == 0
    with pytest.raises(RuntimeError, match="above"):
        drawn(0.0, 1.0, 5.0, 3.0)
    with pytest.raises(RuntimeError, match="std"):
        drawn(0.0, float("nan"))


@pytest.mark.parametrize("norm_type", [0, 1, 3, 20, float("inf"), float("-inf"), -1])
def test_norms_of_several_gradients(norm_type):
    torch = pytest.importorskip("torch")
    for grads in ([[3.0, 4.0], [0.0, 1.0]], [[1.0], [float("nan")]], [[3e30], [4e30]], [[0.0], [0.0]]):
        both = []
        for lib in (torch, ampc):
            params = [lib.nn.Parameter(lib.ones(len(g))) for g in grads]
            for p, g in zip(params, grads):
                p.grad = lib.tensor(g)
            both.append(lib.nn.utils.clip_grad_norm_(params, 1.0, norm_type).item())
        if grads[0][0] == 3e30 and both[0] == float("inf"):  # torch's powers overflow float32
            assert both[1] in (pytest.approx((0.75**norm_type + 1) ** (1 / norm_type) * 4e30, rel=1e-5), float("inf"))
        else:
            assert both[1] == pytest.approx(both[0], rel=1e-5, nan_ok=True)
def test_load_state_dict_says_where_wrong_keys_come_from(torch):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    state = model.state_dict()
    for given, text in [
        ({"module." + k: v for k, v in state.items()}, r"every key begins with 'module\.', as a wrapper .*\{k\[7:\]: v for k, v in state.items\(\)\}"),
        ({"model": state, "optimizer": {}, "epoch": 3}, "a checkpoint with several parts; pass the part that is the model's"),
        ({k: v.cpu().numpy() for k, v in state.items()}, r"0.weight: expected an ampc.Tensor, got numpy.ndarray \(use ampc.from_numpy\)"),
        ({k: torch.ones(1) for k in state}, r"0.weight: expected an ampc.Tensor, got torch.Tensor \(use ampc.from_dlpack"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            model.load_state_dict(given)
    with pytest.raises(RuntimeError) as e:
        model.load_state_dict({"other": ampc.ones(1)})
    assert "(" not in str(e.value).replace("(s)", "")


def test_forward_hooks_that_are_always_called(torch):
    """After an error, with the result so far; their own errors are warnings."""
    def run(lib):
        calls = []

        class Broken(lib.nn.Module):
            def forward(self, x):
                if x is None:
                    raise KeyError("forward")
                return x

        m = Broken()
        m.register_forward_hook(lambda m, a, r: calls.append(("plain", r is None)))
        m.register_forward_hook(lambda m, a, k, r: calls.append(("always", r is None, k)), always_call=True, with_kwargs=True)
        m.register_forward_hook(lambda m, a, r: 1 / 0, always_call=True)
        with pytest.warns(UserWarning, match="always_call.*ZeroDivisionError|division by zero"), pytest.raises(KeyError, match="forward"):
            m(None)
        with pytest.raises(ZeroDivisionError):
            m(lib.ones(1))
        return calls

    assert run(ampc) == run(torch) == [("always", True, {}), ("plain", False), ("always", False, {})]


def test_the_dicts_of_hooks(torch):
    """Programs look in them for a hook that they know, as pruning and spectral normalisation do."""
    for T in (torch, ampc):
        m = T.nn.Linear(2, 2)

        def first(m, args):
            return None

        def second(m, args, kwargs):
            return args, {}

        def third(m, args, kwargs, output):
            return output * 2

        handles = [m.register_forward_pre_hook(first), m.register_forward_pre_hook(second, with_kwargs=True),
                   m.register_forward_hook(third, with_kwargs=True, always_call=True)]
        assert list(m._forward_pre_hooks.values()) == [first, second] and list(m._forward_hooks.values()) == [third]
        ids = [h.id for h in handles]
        assert list(m._forward_pre_hooks) == ids[:2] and list(m._forward_pre_hooks_with_kwargs) == [ids[1]]
        assert list(m._forward_hooks_with_kwargs) == list(m._forward_hooks_always_called) == [ids[2]]
        copied = copy.deepcopy(m)
        for h in handles:
            h.remove()
        assert not any(getattr(m, name) for name in vars(m) if name.startswith("_forward") and "hooks" in name)
        x = T.ones(1, 2)
        assert copied(x).equal(m(x) * 2)


@pytest.mark.parametrize("dtype", [ampc.float16, ampc.bfloat16], ids=str)
def test_means_and_weighted_losses_in_16_bits_are_rounded_once(dtype):
    F, x, w = ampc.nn.functional, ampc.randn(2, 3, 9, 8).to(dtype), ampc.rand(2, 3, 9, 8).to(dtype)
    for f in (lambda x, w: F.avg_pool2d(x, 3), lambda x, w: F.adaptive_avg_pool2d(x, (4, 3)),
              *(lambda x, w, loss=loss: loss(x, x * 0, reduction="none", weight=w) for loss in (F.mse_loss, F.l1_loss, F.huber_loss))):
        assert f(x, w).equal(f(x.float(), w.float()).to(dtype))


def test_what_a_weighted_loss_refuses():
    F, x = ampc.nn.functional, ampc.ones(1, 1, 2)
    for loss in (F.mse_loss, F.l1_loss, F.huber_loss):
        with pytest.raises(ValueError, match="`reduction` must be one of none,mean,sum"):
            loss(x, x, reduction="median", weight=x)


@pytest.mark.cpu
def test_unpooling_refuses_indices_outside():
    F, x = ampc.nn.functional, ampc.ones(1, 1, 2)
    for where in (4, -1):
        with pytest.raises(RuntimeError, match="`indices` must lie between 0 and 3"):
            F.max_unpool1d(x, ampc.tensor([[[0, where]]]), 2)
    with pytest.raises(RuntimeError, match="int64"):
        F.max_unpool1d(x, ampc.zeros(1, 1, 2, dtype=ampc.int32), 2)


def test_tables_of_resampling_made_in_inference_mode_serve_training():
    F, x = ampc.nn.functional, ampc.randn(1, 1, 17)
    with ampc.inference_mode():
        F.interpolate(x, 29, mode="linear")
    y = x.clone().requires_grad_()
    F.interpolate(y, 29, mode="linear").sum().backward()
    assert y.grad.sum().item() == pytest.approx(29)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("padding", [None, 2])
def test_gradients_of_an_embedding_by_frequency(torch, dtype, padding):
    """A row's gradient is divided by how often it is read."""
    index, drawn, weight = np.array([[1, 2, 1], [4, 1, 2]]), np.random.default_rng(0).standard_normal((2, 3, 5)), np.ones((6, 5))
    found = []
    for lib in (torch, ampc):
        layer = lib.nn.Embedding(6, 5, padding, scale_grad_by_freq=True, _weight=lib.tensor(weight).to(getattr(lib, dtype)))
        (layer(lib.tensor(index)) * lib.tensor(drawn).to(getattr(lib, dtype))).sum().backward()
        found.append(np.array(layer.weight.grad.double().tolist()))
    np.testing.assert_allclose(found[1], found[0], rtol=2**-7 if dtype == "bfloat16" else 1e-6, atol=2**-8 if dtype == "bfloat16" else 1e-7)


def test_second_gradients_of_an_embedding_by_frequency():
    index = ampc.tensor([1, 2, 1, 0])
    assert ampc.autograd.gradgradcheck(lambda w: nn.functional.embedding(index, w, scale_grad_by_freq=True), ampc.randn(3, 2, dtype=ampc.float64, requires_grad=True))


def test_embeddings_without_sparse_gradients():
    for make in (lambda: nn.Embedding(2, 2, sparse=True), lambda: nn.EmbeddingBag(2, 2, sparse=True), lambda: nn.EmbeddingBag(2, 2, scale_grad_by_freq=True),
                 lambda: nn.functional.embedding(ampc.tensor([0]), ampc.ones(1, 1), sparse=True)):
        with pytest.raises(NotImplementedError, match="not in ampc"):
            make()


@pytest.mark.parametrize("settings", [{}, {"label_smoothing": 0.1}, {"reduction": "none"}])
@pytest.mark.parametrize("graph", [False, True])
def test_ignored_samples_have_no_gradient_of_any_order(settings, graph):
    """Not even where all are ignored, and the mean of no losses is nan."""
    x = ampc.randn(3, 4, requires_grad=True)
    loss = nn.functional.cross_entropy(x, ampc.full((3,), -100), **settings)
    first, = ampc.autograd.grad(loss, x, ampc.full_like(loss, float("nan")), create_graph=graph)
    assert not first.any()
    assert not graph or not ampc.autograd.grad(first.sum(), x)[0].any()


@pytest.mark.parametrize("settings", [{}, {"reduction": "none"}, {"reduction": "sum", "label_smoothing": 0.1}, {"label_smoothing": 0.2, "ignore_index": 2}])
def test_classes_may_be_uint8(settings):
    """torch takes int64 and uint8, and no other dtype."""
    scores, classes, weight = R.standard_normal((5, 4, 3)), R.integers(0, 4, (5, 3)), ampc.tensor(R.uniform(0.5, 1, 4), dtype=ampc.float32)
    grads = []
    for dtype in (ampc.int64, ampc.uint8):
        x = ampc.tensor(scores, dtype=ampc.float32, requires_grad=True)
        nn.functional.cross_entropy(x, ampc.tensor(classes, dtype=dtype), weight, **settings).sum().backward()
        nn.functional.nll_loss(x, ampc.tensor(classes, dtype=dtype)).backward()
        grads.append(x.grad)
    assert ampc.equal(*grads)
    with pytest.raises(RuntimeError, match="int64 or uint8, got int32"):
        nn.functional.cross_entropy(x, ampc.tensor(classes, dtype=ampc.int32))
