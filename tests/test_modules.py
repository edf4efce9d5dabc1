"""Every layer and loss beside torch's of the same name: parameters, results, gradients, text."""

import copy
import gc
import inspect
import warnings
import weakref

import numpy as np
import pytest

import ampc
from ampc import nn

X1, X2, X3 = (2, 6, 11), (2, 6, 9, 10), (2, 6, 5, 6, 7)
LAYERS = [  # how it is made, shapes of its inputs
    ("Linear(6, 4)", [(5, 6)]), ("Bilinear(3, 4, 5)", [(7, 3), (7, 4)]), ("Bilinear(3, 4, 5, bias=False)", [(7, 3), (7, 4)]), ("Identity(3)", [(5,)]),
    *[(f"{name}()", [(4, 5)]) for name in ["ReLU", "ReLU6", "LeakyReLU", "ELU", "CELU", "SELU", "GELU", "SiLU", "Mish", "Sigmoid", "Tanh", "Hardtanh", "Hardsigmoid", "Hardswish", "Hardshrink", "Softshrink", "Tanhshrink", "Softplus", "Softsign", "LogSigmoid", "RReLU"]],
    ("ReLU(inplace=True)", [(4, 5)]), ("LeakyReLU(0.2)", [(4, 5)]), ("ELU(alpha=0.7)", [(4, 5)]), ("GELU('tanh')", [(4, 5)]), ("Hardtanh(-0.5, 0.7)", [(4, 5)]),
    ("Softplus(2.0, 1.0)", [(4, 5)]), ("Threshold(0.1, 20.0)", [(4, 5)]), ("GLU()", [(4, 6)]), ("GLU(0)", [(4, 6)]), ("Hardshrink(0.2)", [(4, 5)]), ("Softshrink(0.2)", [(4, 5)]),
    ("Softmax(1)", [(4, 5)]), ("Softmin(dim=0)", [(4, 5)]), ("LogSoftmax(dim=-1)", [(4, 5)]), ("Softmax2d()", [X2]), ("PReLU()", [X2]), ("PReLU(6, 0.1)", [X2]),
    ("Conv1d(6, 8, 3)", [X1]), ("Conv1d(6, 8, 3, padding='same', dilation=2, bias=False)", [X1]), ("Conv2d(6, 8, 3, stride=2, padding=1)", [X2]),
    ("Conv2d(6, 4, (3, 2), padding=(2, 1), groups=2, padding_mode='circular')", [X2]), ("Conv2d(6, 4, 3, padding=1, padding_mode='reflect')", [X2]), ("Conv2d(6, 4, 4, padding='same', padding_mode='replicate')", [X2]),
    ("Conv2d(6, 4, 3)", [X2[1:]]), ("Conv3d(6, 4, (2, 3, 3), dilation=(1, 2, 1))", [X3]), ("ConvTranspose1d(6, 4, 3, stride=2, output_padding=1)", [X1]),
    ("ConvTranspose2d(6, 4, 3, stride=2, padding=1, groups=2, bias=False)", [X2]), ("ConvTranspose3d(6, 4, 2, stride=2)", [X3]),
    ("MaxPool1d(3)", [X1]), ("MaxPool2d(3, stride=2, padding=1, ceil_mode=True)", [X2]), ("MaxPool3d(2, dilation=2)", [X3]), ("AvgPool1d(3, 2, 1)", [X1]), ("AvgPool2d((3, 2), ceil_mode=True)", [X2]),
    ("AvgPool2d(3, padding=1, count_include_pad=False, divisor_override=5)", [X2]), ("AvgPool3d(2)", [X3]), ("LPPool1d(2, 3)", [X1]), ("LPPool2d(2, (3, 2), stride=1)", [X2]), ("LPPool3d(2, 2)", [X3]),
    ("AdaptiveAvgPool1d(4)", [X1]), ("AdaptiveAvgPool2d((3, None))", [X2]), ("AdaptiveAvgPool3d(2)", [X3]), ("AdaptiveMaxPool1d(4)", [X1]), ("AdaptiveMaxPool2d(3)", [X2]), ("AdaptiveMaxPool3d(2)", [X3]),
    ("ConstantPad1d(2, 1.5)", [X1]), ("ConstantPad2d((1, 2, 0, 3), 0.5)", [X2]), ("ConstantPad3d(1, -1.0)", [X3]), ("ZeroPad1d(1)", [X1]), ("ZeroPad2d((1, 0, 2, 1))", [X2]), ("ZeroPad3d(1)", [X3]),
    ("ReflectionPad1d(2)", [X1]), ("ReflectionPad2d((1, 2, 3, 0))", [X2]), ("ReflectionPad3d(1)", [X3]), ("ReplicationPad1d(2)", [X1]), ("ReplicationPad2d(1)", [X2]), ("ReplicationPad3d(2)", [X3]),
    ("CircularPad1d(2)", [X1]), ("CircularPad2d((1, 2, 0, 3))", [X2]), ("CircularPad3d(1)", [X3]),
    ("BatchNorm1d(6)", [X1]), ("BatchNorm1d(6, eps=1e-3, momentum=None)", [(5, 6)]), ("BatchNorm2d(6, affine=False)", [X2]), ("BatchNorm3d(6, track_running_stats=False)", [X3]), ("SyncBatchNorm(6, affine=False)", [X2]),
    ("InstanceNorm1d(6, affine=True)", [X1]), ("InstanceNorm2d(6, track_running_stats=True, momentum=0.3)", [X2]), ("InstanceNorm2d(6)", [X2[1:]]), ("InstanceNorm3d(6)", [X3]),
    ("LayerNorm([9, 10])", [X2]), ("LayerNorm(10, elementwise_affine=False)", [X2]), ("RMSNorm([9, 10])", [X2]), ("RMSNorm(10, eps=1e-3, elementwise_affine=False)", [X2]),
    ("GroupNorm(3, 6)", [X2]), ("GroupNorm(2, 6, affine=False)", [X1]), ("LocalResponseNorm(3, alpha=0.1)", [X2]),
    ("Flatten()", [X2]), ("Flatten(0, 2)", [X2]), ("Unflatten(1, (2, 3))", [X2]), ("Unfold(3, padding=1, stride=2)", [X2]), ("Fold((5, 6), (2, 3))", [(2, 12, 16)]), ("PixelShuffle(2)", [(2, 8, 3, 4)]),
    ("PixelUnshuffle(2)", [(2, 3, 4, 6)]), ("ChannelShuffle(3)", [X2]), ("Upsample(scale_factor=2)", [X2]), ("Upsample((4, 13), mode='bilinear')", [X2]), ("Upsample(scale_factor=1.5, mode='trilinear', align_corners=True)", [X3]),
    ("UpsamplingNearest2d(scale_factor=2)", [X2]), ("UpsamplingBilinear2d((12, 7))", [X2]), ("PairwiseDistance()", [(4, 5), (4, 5)]), ("PairwiseDistance(1, keepdim=True)", [(4, 5), (4, 5)]),
    ("CosineSimilarity()", [(4, 5), (4, 5)]), ("CosineSimilarity(dim=-1)", [X1, X1]), *[(f"{name}(0.0)", [X2 if name[-2] == "2" else X3 if name[-2] == "3" else X1]) for name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")],
]


def made(library, how):
    return eval("nn." + how, {"nn": library.nn})


def twins(torch, how):
    mine, theirs = made(ampc, how).double(), made(torch, how).double()
    assert [(n, tuple(p.shape)) for n, p in mine.state_dict().items()] == [(n, tuple(p.shape)) for n, p in theirs.state_dict().items()]
    theirs.load_state_dict({n: torch.tensor(v.numpy(force=True).copy()) for n, v in mine.state_dict().items()})
    return mine, theirs


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize(("how", "shapes"), LAYERS, ids=[how for how, _ in LAYERS])
def test_layers(torch, how, shapes):
    mine, theirs = twins(torch, how)
    rng = np.random.default_rng(len(how))
    assert repr(mine) == repr(theirs)
    for training in (True, False):
        mine.train(training), theirs.train(training)
        if how == "RReLU()" and training:
            continue  # drawn
        arrays = [rng.standard_normal(s) for s in shapes]
        here = [ampc.tensor(a, requires_grad=True) for a in arrays]
        there = [torch.tensor(a, requires_grad=True) for a in arrays]
        inplace = "inplace=True" in how
        got, want = mine(*[t * 1 if inplace else t for t in here]), theirs(*[t * 1 if inplace else t for t in there])
        assert got.shape == tuple(want.shape) and np.allclose(got.numpy(force=True), want.detach().numpy(), rtol=1e-10, atol=1e-12)
        weight = rng.standard_normal(got.shape)
        got.backward(ampc.tensor(weight))
        want.backward(torch.tensor(weight))
        for a, b in zip([*here, *mine.parameters()], [*there, *theirs.parameters()]):
            assert np.allclose(a.grad.numpy(force=True), b.grad.numpy(), rtol=1e-7 if how == "Hardsigmoid()" else 1e-9, atol=1e-11)  # torch's sixth is a float32
    for (n, a), (_, b) in zip(mine.state_dict().items(), theirs.state_dict().items()):
        assert np.allclose(a.numpy(force=True), b.numpy(), rtol=1e-10, atol=1e-12), n


def probabilities(*shape):
    return np.random.default_rng(3).uniform(0.1, 0.9, shape)


def signs(*shape):
    return np.where(np.random.default_rng(4).random(shape) < 0.5, -1.0, 1.0)


CLASSES = np.array([0, 3, 1, 4])
LOSSES = [  # how it is made, further arguments (the first is normal [4, 5], or two or three of those)
    ("MSELoss({})", [(4, 5), (4, 5)]), ("L1Loss({})", [(4, 5), (4, 5)]), ("SmoothL1Loss({}beta=0.3)", [(4, 5), (4, 5)]), ("HuberLoss({}delta=0.4)", [(4, 5), (4, 5)]),
    ("NLLLoss({})", [(4, 5), CLASSES]), ("CrossEntropyLoss({}label_smoothing=0.1)", [(4, 5), CLASSES]), ("BCEWithLogitsLoss({})", [(4, 5), probabilities(4, 5)]), ("BCELoss({})", [probabilities(4, 5), probabilities(4, 5)]),
    ("KLDivLoss({}log_target=True)", [(4, 5), (4, 5)]), ("PoissonNLLLoss({}full=True)", [(4, 5), probabilities(4, 5) * 5]), ("GaussianNLLLoss({}full=True)", [(4, 5), (4, 5), probabilities(4, 5)]),
    ("SoftMarginLoss({})", [(4, 5), signs(4, 5)]), ("MultiMarginLoss({}p=2, margin=0.5)", [(4, 5), CLASSES]), ("MultiLabelMarginLoss({})", [(4, 5), np.array([[1, 0, -1, 2, 3]] * 4)]),
    ("MultiLabelSoftMarginLoss({})", [(4, 5), (signs(4, 5) + 1) / 2]), ("HingeEmbeddingLoss({}margin=0.7)", [(4, 5), signs(4, 5)]), ("CosineEmbeddingLoss({}margin=0.2)", [(4, 5), (4, 5), signs(4)]),
    ("MarginRankingLoss({}margin=0.3)", [(4, 5), (4, 5), signs(4, 5)]), ("TripletMarginLoss({}margin=0.6, swap=True)", [(4, 5), (4, 5), (4, 5)]), ("TripletMarginWithDistanceLoss({}swap=True, margin=2.0)", [(4, 5), (4, 5), (4, 5)]),
]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("how", "args"), LOSSES, ids=[how for how, _ in LOSSES])
def test_losses(torch, how, args, reduction):
    text = how.format(f"reduction='{reduction}', ").replace(", )", ")")
    mine, theirs = made(ampc, text), made(torch, text)
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(a) if isinstance(a, tuple) else a for a in args]
    here, there = [ampc.tensor(a) for a in arrays], [torch.tensor(a) for a in arrays]
    here[0].requires_grad_(), there[0].requires_grad_()
    got, want = mine(*here), theirs(*there)
    assert got.shape == tuple(want.shape) and np.allclose(got.numpy(force=True), want.detach().numpy(), rtol=1e-10, atol=1e-12)
    got.sum().backward()
    want.sum().backward()
    assert np.allclose(here[0].grad.numpy(force=True), there[0].grad.numpy(), rtol=1e-9, atol=1e-11) and repr(mine) == repr(theirs)


def test_every_module_is_here():
    tested = {how.split("(")[0] for how, _ in [*LAYERS, *LOSSES]}
    elsewhere = {"Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "Embedding", "EmbeddingBag", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
                 "MultiheadAttention", "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
                 "CTCLoss", "LinearCrossEntropyLoss", "LinearCrossEntropyOptions", "FractionalMaxPool2d", "FractionalMaxPool3d",
                 "RNN", "LSTM", "GRU", "RNNBase", "RNNCell", "LSTMCell", "GRUCell",  # test_windows, test_recurrent, test_nn, test_arguments
                 "Container", "CrossMapLRN2d", "NLLLoss2d", "RNNCellBase", "Module"}  # test_lazy, test_nn
    assert set(nn.modules.__all__) - elsewhere == tested - {"nn"} & set(nn.modules.__all__)


def test_signatures_are_torchs(torch):
    """Same arguments in the same order, so that scripts that give them by place mean the same."""
    for name in [*nn.modules.__all__, *nn.modules.LATER]:
        mine, theirs = (list(inspect.signature(getattr(T.nn, name).__init__).parameters) for T in (ampc, torch))
        theirs = [n for n in theirs if not n.startswith("_")]
        mine = [n for n in mine if not n.startswith("_")]
        common = [n for n in mine if n in theirs]
        assert common == theirs[:len(common)] or set(theirs) <= {"self", "args", "kwargs"} | set(common), name
        assert set(theirs) - set(mine) <= {"args", "kwargs", "size", "values", "parameters", "modules", "min_value", "max_value"}, (name, set(theirs) - set(mine))


def test_classes_have_torchs_bases(torch):
    """So that isinstance answers as in torch, of which libraries ask what a module is. ampc has no bases of lazy modules alone."""
    def bases(kind):
        return {base.__name__ for base in kind.__mro__}

    lacking = {name: bases(getattr(torch.nn, name)) - bases(getattr(nn, name)) - {"Generic"} for name in torch.nn.modules.__all__}
    assert {name: found for name, found in lacking.items() if found and not name.startswith("Lazy")} == {}


def test_losses_of_ones_own(torch):
    """Made from the bases of torch's, with their arguments in torch's order."""
    def run(lib):
        bases = lib.nn.modules.loss

        class Plain(bases._Loss):
            def forward(self, x):
                return x

        class Weighted(bases._WeightedLoss):
            def __init__(self, weight, reduction):
                super().__init__(weight, None, None, reduction)

            def forward(self, x):
                return x * self.weight

        plain, weighted = Plain(reduction="sum"), Weighted(lib.tensor([1.0, 2.0]), "none")
        return [Plain().reduction, plain.reduction, plain(3), weighted.reduction, weighted(3).tolist(), list(weighted.state_dict()), repr(weighted)]

    assert run(ampc) == run(torch)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_unpooling_and_output_sizes(torch, n):
    shape = (X1, X2, X3)[n - 1]
    x = np.random.default_rng(1).standard_normal(shape)
    results = []
    for T in (ampc, torch):
        pool, back = getattr(T.nn, f"MaxPool{n}d")(2, return_indices=True), getattr(T.nn, f"MaxUnpool{n}d")(2)
        y, where = pool(T.tensor(x))
        results.append(back(y, where, output_size=shape).cpu().numpy())
    assert np.array_equal(*results) and results[0].shape == shape
    conv = getattr(nn, f"ConvTranspose{n}d")(6, 3, 3, stride=2, padding=1)
    small = ampc.randn(2, 6, *[5] * n)
    assert conv(small, output_size=[10] * n).shape == (2, 3, *[10] * n) and conv(small).shape == (2, 3, *[9] * n)
    with pytest.raises(ValueError, match="output_size"):
        conv(small, output_size=[12] * n)


def test_containers():
    d = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Linear(2, 3)})
    d["c"] = nn.Tanh()
    d.update([("e", nn.GELU())])
    assert list(d) == ["a", "b", "c", "e"] and "b" in d and len(d) == 4 and list(d.state_dict()) == ["b.weight", "b.bias"]
    assert isinstance(d.pop("a"), nn.ReLU) and list(d.keys()) == ["b", "c", "e"] and [k for k, _ in d.items()] == list(d) and len(list(d.values())) == 3
    del d["c"]
    d.clear()
    assert len(d) == 0
    with pytest.raises(TypeError, match="mapping"):
        d.update(3)
    ps = nn.ParameterList([ampc.ones(2), nn.Parameter(ampc.zeros(3))])
    ps += [ampc.ones(1)]
    ps[0] = ampc.full((2,), 5.0)
    assert len(ps) == 3 and all(isinstance(p, nn.Parameter) for p in ps) and list(ps.state_dict()) == ["0", "1", "2"] and ps[-1].shape == (1,) and len(ps[1:]) == 2
    assert ps[0].tolist() == [5, 5] and len(list(ps.parameters())) == 3
    with pytest.raises(IndexError, match="index 3 of 3"):
        _ = ps[3]
    with pytest.raises(TypeError, match="iterable"):
        ps.extend(ampc.ones(2))
    pd = nn.ParameterDict({"x": ampc.ones(2)})
    pd["y"] = ampc.zeros(1)
    assert list(pd) == ["x", "y"] and "x" in pd and pd.get("z") is None and list(pd.state_dict()) == ["x", "y"] and pd.pop("x").shape == (2,) and len(pd) == 1
    with pytest.raises(AttributeError):
        _ = pd["x"]


@pytest.mark.parametrize(("how", "kind", "match"), [
    ("Conv2d(6, 4, 3, groups=4)", ValueError, "groups"), ("Conv2d(6, 4, 3, padding_mode='zero')", ValueError, "padding_mode"), ("Conv2d(6, 4, 3, padding='full')", ValueError, "'same' or 'valid'"),
    ("Conv2d(6, 4, 3, padding='same', stride=2)", ValueError, "stride of 1"), ("Conv2d(6, 4, (3, 3, 3))", ValueError, "kernel_size"), ("ConvTranspose2d(6, 4, 3, padding_mode='reflect')", ValueError, "zeros"),
    ("GroupNorm(4, 6)", ValueError, "divisible"), ("Dropout2d(1.5)", ValueError, "between 0 and 1"), ("MSELoss(reduction='most')", ValueError, "reduction"), ("ZeroPad2d((1, 2, 3))", ValueError, "padding"),
    ("MultiMarginLoss(p=3)", ValueError, "`p`"), ("MultiMarginLoss(weight=nn.Linear(2, 2).weight)", ValueError, "class"), ("TripletMarginLoss(margin=0)", ValueError, "margin"), ("TripletMarginWithDistanceLoss(margin=-1)", ValueError, "margin"),
    ("Hardtanh(1, -1)", AssertionError, "max_val"), ("Unflatten(1, 3)", TypeError, "tuple of ints"), ("Unflatten(1, [('a', 2)])", TypeError, "tuple of ints"), ("RNNBase('FOO', 2, 2)", ValueError, "mode"), ("LSTM(2, 2, dropout='a')", ValueError, "dropout"),
    ("Embedding.from_pretrained(nn.Linear(2, 2).bias)", AssertionError, "rows, width"), ("EmbeddingBag.from_pretrained(nn.Linear(2, 2).bias)", AssertionError, "rows, width"),
    ("EmbeddingBag(3, 2, padding_idx=5)", AssertionError, "padding_idx"), ("Bilinear(0, 1, 1)", ValueError, "in1_features")])
def test_what_cannot_be_made(how, kind, match):
    with pytest.raises(kind, match=match):
        made(ampc, how)


def test_embedding_bag(torch):
    mine, theirs = twins(torch, "EmbeddingBag(7, 3, mode='sum', padding_idx=2)")
    index, offsets = np.array([1, 2, 6, 0, 0]), np.array([0, 2, 3])
    got, want = mine(ampc.tensor(index), ampc.tensor(offsets)), theirs(torch.tensor(index), torch.tensor(offsets))
    assert np.allclose(got.numpy(force=True), want.detach().numpy()) and repr(mine) == repr(theirs)
    table = ampc.randn(4, 2)
    assert nn.EmbeddingBag.from_pretrained(table, mode="max")(ampc.tensor([[0, 3]])).tolist() == [table[[0, 3]].max(0).values.tolist()]


def test_embeddings_of_integers(torch):
    for T in (ampc, torch):
        layer = T.nn.Embedding.from_pretrained(T.tensor([[1, 2], [3, 4]]))
        got = layer(T.tensor([1, 0]))
        assert got.dtype is T.int64 and got.tolist() == [[3, 4], [1, 2]] and not layer.weight.requires_grad


@pytest.mark.parametrize("kind, options", [(RuntimeError, {"padding_idx": 4}), (RuntimeError, {"padding_idx": -5}),
                                           (ValueError, {"mode": "sum", "per_sample_weights": [1.0]}),
                                           (ValueError, {"mode": "sum", "per_sample_weights": [1.0] * 6})])
def test_what_bags_cannot_be_made_of(torch, kind, options):
    for T in (ampc, torch):
        given = {k: T.tensor(v) if isinstance(v, list) else v for k, v in options.items()}
        with pytest.raises(kind, match="padding_idx|per_sample_weights"):
            T.nn.functional.embedding_bag(T.tensor([[1, 3, 2], [0, 2, 1]]), T.ones(4, 3), **given)


@pytest.mark.parametrize("name", ["kaiming_normal_", "kaiming_uniform_"])
def test_initial_values_of_nothing_are_a_warning(torch, name):
    for T in (ampc, torch):
        with pytest.warns(UserWarning, match="element"):
            assert tuple(getattr(T.nn.init, name)(T.empty(0, 1)).shape) == (0, 1)


def test_embedding_bag_counts_in_16_bits():
    """The counts of 16-bit bags are exact; of equal largest values the first gets the gradient, and none of a padding."""
    table = ampc.ones(3, 2, dtype=ampc.bfloat16) * 1.5
    index = ampc.tensor(np.zeros(1001, np.int64))
    got = ampc.nn.functional.embedding_bag(index, table, ampc.tensor([0, 1000]), mode="mean")
    assert got.dtype is ampc.bfloat16 and got.tolist() == [[1.5, 1.5]] * 2
    weight = ampc.tensor([[1.0, 5.0], [1.0, 2.0], [0.0, 5.0]]).requires_grad_()
    for padding, want in ((None, [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]), (0, [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])):
        weight.grad = None
        ampc.nn.functional.embedding_bag(ampc.tensor([[0, 1, 2]]), weight, mode="max", padding_idx=padding).sum().backward()
        assert weight.grad.tolist() == want


def test_options_of_modules():
    """Modules that are a function with options take these as arguments, and leave a subclass its own."""
    for make, words in [(lambda: nn.CELU(1, 2, 3), "3 arguments given, 2 taken: alpha, inplace"), (lambda: nn.CELU(beta=1), "`beta` is unknown"),
                        (lambda: nn.CELU(1, alpha=2), "`alpha` was given twice"), (lambda: nn.Threshold(1), "`value` is missing")]:
        with pytest.raises(TypeError, match=words):
            make()

    class Scaled(nn.LeakyReLU):
        scale: float

        def __init__(self, scale):
            super().__init__(negative_slope=0.5)
            self.scale = scale

    assert Scaled(3.0).scale == 3.0 and Scaled(3.0)(ampc.tensor([-2.0])).item() == -1.0
    assert repr(copy.deepcopy(nn.Hardtanh(-2, inplace=True))) == "Hardtanh(min_val=-2, max_val=1.0, inplace=True)"


def test_sequential_as_a_list(torch):
    """+, *, pop, extend and insert, and their errors, as torch's; repeated modules are the same ones."""
    def seen(lib, how):
        a, b = lib.nn.Sequential(lib.nn.ReLU(), lib.nn.Tanh()), lib.nn.Sequential(lib.nn.Sigmoid())
        try:
            made = how(a, b, lib.nn)
        except Exception as error:
            return type(error).__name__
        def named(m):
            return [(n, type(c).__name__) for n, c in m._modules.items()] if hasattr(m, "_modules") and len(m._modules) else type(m).__name__
        return named(made), named(a), named(b), made is a

    cases = [lambda a, b, nn: a + b, lambda a, b, nn: a.__iadd__(b), lambda a, b, nn: a * 2, lambda a, b, nn: 3 * b, lambda a, b, nn: a.__imul__(2),
             lambda a, b, nn: a.pop(0), lambda a, b, nn: a.pop(-1), lambda a, b, nn: a.pop(slice(0, 1)), lambda a, b, nn: a.pop(2),
             lambda a, b, nn: a.extend(b), lambda a, b, nn: a.insert(1, nn.GELU()), lambda a, b, nn: a.insert(-1, nn.GELU()),
             lambda a, b, nn: a.insert(3, nn.GELU()), lambda a, b, nn: a.insert(0, "x"), lambda a, b, nn: a + [nn.GELU()], lambda a, b, nn: a * 0,
             lambda a, b, nn: a * 1.5, lambda a, b, nn: a[0:1], lambda a, b, nn: nn.ModuleList(a) + b, lambda a, b, nn: nn.ModuleList(a)[:1],
             lambda a, b, nn: nn.ModuleList(a).extend(3)]
    for how in cases:
        assert seen(ampc, how) == seen(torch, how)
    twice = nn.Sequential(nn.Linear(2, 2)) * 2
    assert twice[0] is twice[1]


def test_hooks_of_all_modules(torch):
    """nn.modules.module.register_module_*_hook: when, and before what, as torch's."""
    def seen(lib):
        notes, module = [], lib.nn.modules.module
        def name(m):
            return type(m).__name__
        handles = [module.register_module_forward_pre_hook(lambda m, args: notes.append(("pre", name(m)))),
                   module.register_module_forward_hook(lambda m, args, out: notes.append(("after", name(m)))),
                   module.register_module_full_backward_hook(lambda m, i, o: notes.append(("backward", name(m)))),
                   module.register_module_full_backward_pre_hook(lambda m, o: notes.append(("backward pre", name(m)))),
                   module.register_module_parameter_registration_hook(lambda m, n, p: notes.append(("parameter", n))),
                   module.register_module_buffer_registration_hook(lambda m, n, b: notes.append(("buffer", n))),
                   module.register_module_module_registration_hook(lambda m, n, c: notes.append(("module", n)))]
        try:
            layer = lib.nn.Linear(2, 2)
            layer.mine = lib.nn.ReLU()
            layer.register_buffer("kept", lib.zeros(1))
            layer.register_forward_hook(lambda m, args, out: notes.append(("own", name(m))))
            layer(lib.ones(1, 2, requires_grad=True)).sum().backward()
        finally:
            for handle in handles:
                handle.remove()
        lib.nn.Linear(2, 2)(lib.ones(1, 2))
        return notes

    assert seen(ampc) == seen(torch)
    handle = nn.modules.module.register_module_parameter_registration_hook(lambda m, n, p: nn.Parameter(p * 0) if n == "weight" else None)
    layer = nn.Linear(2, 2)
    handle.remove()
    assert type(layer.weight) is nn.Parameter and len(list(layer.parameters())) == 2


def test_hooks_after_loading(torch):
    """register_load_state_dict_post_hook sees the loaded values, and may take keys off the lists."""
    def seen(lib, strict, take):
        notes = []
        model = lib.nn.Sequential(lib.nn.Linear(1, 1, bias=False), lib.nn.Linear(1, 1))

        def hook(module, keys):
            notes.append((type(module).__name__, list(keys.missing_keys), list(keys.unexpected_keys)))
            if take:
                keys.missing_keys.clear()
                keys.unexpected_keys.clear()

        for m in (model, *model):
            m.register_load_state_dict_post_hook(hook)
        try:
            found = model.load_state_dict({"0.weight": lib.full((1, 1), 3.0), "more": lib.zeros(1)}, strict=strict)
        except RuntimeError:
            found = "refused"
        return notes[-1], len(notes), found if found == "refused" else tuple(map(list, found)), model[0].weight.item()

    for strict in (True, False):
        for take in (True, False):
            mine, theirs = seen(ampc, strict, take), seen(torch, strict, take)
            assert mine[1:] == theirs[1:] and mine[0][0] == theirs[0][0] and set(mine[0][1]) == set(theirs[0][1])


PARAMETERS = {
    "dict": "a = nn.ParameterDict({'b': P(1), 'a': P(2)}); note(list(a), repr(a), list(reversed(a))); a.b = P(3); note(a['b'].shape[0])",
    "joined": "a = nn.ParameterDict({'a': P(1)}); b = nn.ParameterDict({'c': P(3)}); note(repr(a | b), repr(a | {'d': P(1)}), repr({'z': P(2)} | a)); a |= b; note(repr(a), repr(a.copy()))",
    "taken": "a = nn.ParameterDict([('a', P(1)), ('b', P(2))]); note(a.popitem()[0], list(a)); note(a.setdefault('q'), a.setdefault('r', P(3)).shape[0], repr(a)); a.pop('zz')",
    "from keys": "note(repr(nn.ParameterDict().fromkeys(['x', 'y'])), repr(nn.ParameterDict().fromkeys(['x', 'y'], T.ones(2))))",
    "none there": "nn.ParameterDict()['z']", "no string": "nn.ParameterDict()[3] = P(1)", "no pair": "nn.ParameterDict([('a',)])", "no pairs": "nn.ParameterDict([1])",
    "dict called": "nn.ParameterDict()(3)", "list called": "nn.ParameterList()(3)", "joined with a number": "nn.ParameterDict() | 3",
    "list": "a = nn.ParameterList([P(1), 3]); note(repr(a)); a.append(T.ones(2)); note(repr(a), a.extra_repr(), repr(nn.ParameterList([P(1)])))",
    "modules": "note(repr(nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Sequential(nn.Tanh()), nn.Tanh(), nn.ModuleList([nn.ReLU()] * 3)])), repr(nn.ModuleList()))",
}


@pytest.mark.parametrize("what", PARAMETERS)
def test_containers_as_torchs(torch, what):
    def outcome(library):
        notes = []
        names = {"T": library, "nn": library.nn, "P": lambda n: library.nn.Parameter(library.ones(n)), "note": lambda *seen: notes.append(repr(seen))}
        try:
            exec(PARAMETERS[what], names)
        except Exception as error:
            notes.append(type(error).__name__)
        notes = [note.replace("ampc.", "torch.") for note in notes]
        return [note.replace("torch.cuda.", "torch.").replace(" (cuda:0)", "").replace(", device='cuda:0'", "") for note in notes]

    assert outcome(ampc) == outcome(torch)


def test_to_reads_its_arguments_as_tensors_do():
    m = nn.Linear(2, 2)
    assert m.to("cpu", ampc.float64, True).weight.dtype == ampc.float64 and m.to(ampc.ones(1)).weight.dtype == ampc.float32
    assert m.to(ampc.float16, non_blocking=True).weight.dtype == ampc.float16 and m.to("cpu", dtype=ampc.float32).weight.dtype == ampc.float32
    m.weight.grad = grad = ampc.ones_like(m.weight)
    m.zero_grad(set_to_none=False)
    assert m.weight.grad is grad and not grad.any()


@pytest.mark.parametrize("make", [
    lambda nn: nn.Embedding(5, 3, 1, 2.0, 1.0, True), lambda nn: nn.RNNCell(3, 4, False, "relu"), lambda nn: nn.RNNCell(3, 4),
    lambda nn: nn.GRUCell(3, 4), lambda nn: nn.Hardsigmoid(True), lambda nn: nn.ReLU6(), lambda nn: nn.ZeroPad1d(2), lambda nn: nn.ZeroPad2d((1, 2, 0, 1)), lambda nn: nn.ConstantPad2d(1, 3.5)])
def test_how_modules_show_themselves(torch, make):
    assert repr(make(ampc.nn)) == repr(make(torch.nn))


def test_what_modules_keep_of_their_options(torch):
    for lib in (ampc, torch):
        pad, relu, slopes = lib.nn.ZeroPad2d((1, 0, 0, 2)), lib.nn.ReLU6(), lib.nn.PReLU(2, 0.5)
        assert isinstance(pad, lib.nn.ConstantPad2d) and pad.value == 0.0 and pad(lib.ones(1, 1, 2)).tolist() == [[[0, 1, 1], [0, 0, 0], [0, 0, 0]]]
        assert (relu.min_val, relu.max_val) == (0.0, 6.0)
        lib.nn.init.zeros_(slopes.weight)
        slopes.reset_parameters()
        assert slopes.weight.tolist() == [0.5, 0.5]
        layers = lib.nn.TransformerEncoder(lib.nn.TransformerEncoderLayer(4, 2, 8), 2, enable_nested_tensor=False, mask_check=False)
        assert not layers.enable_nested_tensor and not layers.mask_check and not layers.use_nested_tensor


@pytest.mark.cpu
def test_results_with_names_show_a_line_each(torch):
    for call in (lambda x: x.max(0), lambda x: x.sort(0)):
        assert repr(call(ampc.tensor([2.0, 1.0]))).replace("ampc.", "torch.") == repr(call(torch.tensor([2.0, 1.0]))) == str(call(torch.tensor([2.0, 1.0])))


def test_loading_leaves_no_cycle_that_holds_a_checkpoint():
    model = ampc.nn.Sequential(ampc.nn.Linear(2, 2), ampc.nn.BatchNorm1d(2))
    state = model.state_dict()
    state["0.weight"] = ampc.ones(2, 2)
    freed = weakref.ref(state["0.weight"])
    gc.collect()
    gc.disable()
    try:
        model.load_state_dict(state)
        del state
        assert freed() is None and model[0].weight.tolist() == [[1, 1], [1, 1]]
    finally:
        gc.enable()


def test_values_that_are_loaded_into_nothing_are_warned_about(torch):
    for lib in (ampc, torch):
        with pytest.warns(UserWarning, match="meta"):
            lib.nn.Linear(2, 2, device="meta").load_state_dict({"weight": lib.ones(2, 2), "bias": lib.ones(2)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ampc.nn.Linear(2, 2, device="meta")
        model.load_state_dict({"weight": ampc.ones(2, 2), "bias": ampc.ones(2)}, assign=True)
    assert model.bias.tolist() == [1, 1]


def test_a_replica_shares_buffers_and_has_no_parameters(torch):
    def replica_of(library):
        class Own(library.nn.Linear):
            def _replicate_for_data_parallel(self):
                made = super()._replicate_for_data_parallel()
                made.name = "replica"
                return made

        own = Own(2, 3)
        own.register_buffer("steps", library.zeros(1))
        made = own._replicate_for_data_parallel()
        made._buffers["more"] = None
        return type(made) is Own, made.name, hasattr(own, "name"), list(made.parameters()), made.steps is own.steps, list(own._buffers), made._is_replica

    assert replica_of(ampc) == replica_of(torch)


def test_lists_of_parameters_take_integer_tensors_as_indices(torch):
    for lib in (ampc, torch):
        params = lib.nn.ParameterList([lib.zeros(1) for _ in range(3)])
        params[lib.tensor(2, dtype=lib.int32)] = lib.ones(1)
        assert params[lib.tensor(-1)] is params[2] and params[2].item() == 1
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            params[lib.tensor([0, 1])]


def test_buffers_are_registered_by_assignment(torch):
    """By the register_buffer of the class, whatever it knows; a name that is in use stays."""
    for lib in (ampc, torch):
        class Own(lib.nn.Module):
            def register_buffer(self, name, tensor):
                super().register_buffer(name, tensor)

        module = Own()
        module.kept = lib.nn.Buffer(lib.zeros(1))
        assert list(module.state_dict()) == ["kept"]
        module.used = 5
        with pytest.raises(KeyError, match="used"):
            module.used = lib.nn.Buffer(lib.zeros(1))
        assert module.used == 5
        plain = lib.nn.Module()
        plain.scratch = lib.nn.Buffer(lib.zeros(1), persistent=False)
        assert [name for name, _ in plain.named_buffers()] == ["scratch"] and not plain.state_dict()


def test_attributes_that_are_listed_can_be_written_after_a_dot(torch):
    for lib in (ampc, torch):
        named = dir(lib.nn.Sequential(lib.nn.ReLU()))
        assert "forward" in named and "0" not in named


def test_the_names_of_a_list(torch):
    for lib in (torch, ampc):
        modules = lib.nn.ModuleList([lib.nn.ReLU(), lib.nn.Tanh()])
        assert [modules._get_abs_string_index(i) for i in (0, 1, -1)] == ["0", "1", "1"]
        with pytest.raises(IndexError, match="out of range"):
            modules._get_abs_string_index(2)
