"""torch's functions beside those of nn.functional: numbers for words, lists of weights, in-place forms; and further names of nn.functional."""

import itertools

import numpy as np
import pytest
from where import DEVICE

import ampc

torch = pytest.importorskip("torch")


def ours_of(t):
    return ampc.from_dlpack(t.clone()).to(DEVICE)


def both(*shapes, kind="randn", dtype="float64"):
    """The same numbers in both libraries, and in every run."""
    torch.manual_seed(len(shapes))
    drawn = [getattr(torch, kind)(*shape).to(getattr(torch, dtype)) for shape in shapes]
    return drawn, [ours_of(t) for t in drawn]


def same(ours, theirs, rtol=1e-6):
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for a, t in zip(ours, theirs):
            same(a, t, rtol)
        return
    assert tuple(ours.shape) == tuple(theirs.shape) and str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
    np.testing.assert_allclose(np.array(ours.detach().tolist()), np.array(theirs.detach().tolist()), rtol=rtol, atol=1e-12)


@pytest.mark.parametrize("call", [
    "batch_norm(x, w, w + 1, w - 1, w.exp(), False, 0.1, 1e-5, False)", "batch_norm(x, None, None, None, None, True, 0.1, 1e-5, False)",
    "instance_norm(y, w, w + 1, None, None, True, 0.1, 1e-5, False)", "embedding(x, i)", "embedding(x, i, 1)", "embedding(weight=x, indices=i)"])
def test_functions_with_another_order_of_arguments(call):
    """torch's own, whose weight comes before the statistics, or before the indices."""
    theirs, ours = both((4, 3), (2, 3, 5), (3,))
    results = []
    for lib, (x, y, w), i in ((torch, theirs, torch.tensor([[0, 1], [3, 1]])), (ampc, ours, ampc.tensor([[0, 1], [3, 1]]))):
        x.requires_grad_()
        out = eval(f"lib.{call}", {"lib": lib, "x": x, "y": y, "w": w, "i": i})
        if "x" in call.split("(")[1]:
            (out * out).sum().backward()
        results.append((out, *([x.grad] if x.grad is not None else [])))
    same(results[1], results[0])


LOSSES = {
    "kl_div": lambda lib, x, y, r: lib.kl_div(x, y, r, log_target=True),
    "binary_cross_entropy_with_logits": lambda lib, x, y, r: lib.binary_cross_entropy_with_logits(x, y.sigmoid(), None, y.exp(), r),
    "cosine_embedding_loss": lambda lib, x, y, r: lib.cosine_embedding_loss(x, y, lib.ones(3), 0.1, r),
    "hinge_embedding_loss": lambda lib, x, y, r: lib.hinge_embedding_loss(x, lib.sign(y), 0.5, r),
    "margin_ranking_loss": lambda lib, x, y, r: lib.margin_ranking_loss(x, y, lib.sign(y), 0.5, r),
    "poisson_nll_loss": lambda lib, x, y, r: lib.poisson_nll_loss(x, y.exp(), True, True, 1e-8, r),
    "triplet_margin_loss": lambda lib, x, y, r: lib.triplet_margin_loss(x, y, y + 1, 1.0, 2.0, 1e-6, True, r),
    "ctc_loss": lambda lib, x, y, r: lib.ctc_loss(x.log_softmax(-1), lib.tensor([1, 2]), lib.tensor(3), lib.tensor(2), 0, r, True),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_with_numbers_for_reductions(name):
    (x, y), (a, b) = both((3, 4), (3, 4))
    for reduction in (0, 1, 2):
        same(LOSSES[name](ampc, a, b, reduction), LOSSES[name](torch, x, y, reduction))


WITHOUT = {
    "kl_div": lambda lib, x, y: lib.kl_div(x, y.sigmoid()),
    "binary_cross_entropy_with_logits": lambda lib, x, y: lib.binary_cross_entropy_with_logits(x, y.sigmoid()),
    "cosine_embedding_loss": lambda lib, x, y: lib.cosine_embedding_loss(x, y, lib.ones(3)),
    "hinge_embedding_loss": lambda lib, x, y: lib.hinge_embedding_loss(x, lib.sign(y)),
    "margin_ranking_loss": lambda lib, x, y: lib.margin_ranking_loss(x, y, lib.sign(y)),
    "triplet_margin_loss": lambda lib, x, y: lib.triplet_margin_loss(x, y, y + 1),
    "ctc_loss": lambda lib, x, y: lib.ctc_loss(x.log_softmax(-1), lib.tensor([1, 2]), lib.tensor(3), lib.tensor(2)),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_losses_without_a_reduction_give_a_value_each(name):
    (x, y), (a, b) = both((3, 4), (3, 4))
    same(WITHOUT[name](ampc, a, b), WITHOUT[name](torch, x, y))


def test_a_reduction_that_is_none():
    x = ampc.zeros(3)
    with pytest.raises(ValueError, match="must be 0"):
        ampc.kl_div(x, x, 3)
    with pytest.raises(ValueError, match="reduction"):
        ampc.nn.functional.kl_div(x, x, reduction=1)


IN_PLACE = {
    "celu_": lambda F, x: F.celu_(x, 2.0), "elu_": lambda F, x: F.elu_(x, 2.0), "hardtanh_": lambda F, x: F.hardtanh_(x, -0.5, 0.5),
    "leaky_relu_": lambda F, x: F.leaky_relu_(x, 0.2), "relu_": lambda F, x: F.relu_(x), "rrelu_": lambda F, x: F.rrelu_(x, 0.1, 0.3),
    "selu_": lambda F, x: F.selu_(x), "threshold_": lambda F, x: F.threshold_(x, 0.1, 7.0),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_activations_in_place(name):
    (x,), (a,) = both((3, 4))
    leaf, mine = x.clone().requires_grad_(), a.clone().requires_grad_()
    result = IN_PLACE[name](ampc.nn.functional, a)
    assert result is a
    same(a, IN_PLACE[name](torch.nn.functional, x))
    IN_PLACE[name](torch.nn.functional, leaf * 2).sum().backward()
    IN_PLACE[name](ampc.nn.functional, mine * 2).sum().backward()
    same(mine.grad, leaf.grad)
    if hasattr(torch, name):
        assert getattr(ampc, name) is getattr(ampc.nn.functional, name)


@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"])
def test_dropouts_by_position(name):
    x = ampc.ones(40, 50, 2)
    for p, train in ((0.5, False), (0.0, True)):
        assert (getattr(ampc, name)(x, p, train) == 1).all()
    y = getattr(ampc, name)(x, p=0.5, train=True)
    share = (y != y.max()).float().mean()
    assert 0.3 < share < 0.7 and (x == 1).all()
    assert name.startswith("feature") == bool((y[:, :, 0] == y[:, :, 1]).all())
    assert getattr(ampc, name + "_")(x, 0.5, True) is x and not (x == 1).all()
    with pytest.raises(TypeError):
        getattr(ampc, name)(x, 0.5)


def test_native_dropout():
    x = ampc.full((50, 40), 3.0)
    y, kept = ampc.native_dropout(x, 0.25, True)
    assert kept.dtype is ampc.bool and ((y == 4) == kept).all() and ((y == 0) == ~kept).all() and 0.6 < kept.float().mean() < 0.9
    y, kept = ampc.native_dropout(x, 0.25, False)
    assert (y == 3).all() and kept.all()


POOLS = [("max_pool1d", (2, 3, 8), (2,)), ("max_pool2d", (2, 3, 8, 6), (2, 1)), ("max_pool3d", (2, 3, 4, 8, 6), (2,)), ("adaptive_max_pool1d", (2, 3, 8), (3,)),
         ("adaptive_max_pool2d", (2, 3, 8, 6), ((3, 2),)), ("adaptive_max_pool3d", (2, 3, 4, 8, 6), (2,))]


@pytest.mark.parametrize(("name", "shape", "more"), POOLS)
def test_pooling_with_indices(name, shape, more):
    (x,), (a,) = both(shape)
    ours, theirs = (getattr(lib.nn.functional, name + "_with_indices") for lib in (ampc, torch))
    same(ours(a, *more), theirs(x, *more))
    same(ours(a, *more, return_indices=False), theirs(x, *more, return_indices=False))


def test_fractional_pooling_with_indices():
    for nd, name in ((2, "fractional_max_pool2d_with_indices"), (3, "fractional_max_pool3d_with_indices")):
        (x, samples), (a, mine) = both((2, 3, *[7] * nd), (2, 3, nd), kind="rand")
        same(getattr(ampc.nn.functional, name)(a, 2, 3, None, False, mine), getattr(torch.nn.functional, name)(x, 2, 3, None, False, samples))


@pytest.mark.parametrize("shapes", [((6, 16), (3, 16, 8)), ((3, 16, 16), (16, 6)), ((16, 6), (6, 16)), ((3, 4, 16), (3, 16, 8))])
def test_products_of_groups(shapes):
    (x, y), (a, b) = both(*shapes, dtype="float32")
    ends = [2, 2, 6]
    if len(shapes[0]) == len(shapes[1]) == 3:
        return same(ampc.nn.functional.grouped_mm(a, b), torch.bmm(x, y), 1e-5)
    ours = ampc.nn.functional.grouped_mm(a, b, offs=ampc.tensor(ends, dtype=ampc.int32))
    parts = list(zip([0, *ends], ends))
    if len(shapes[1]) == 3:
        theirs = torch.cat([x[i:j] @ y[k] for k, (i, j) in enumerate(parts)])
    elif len(shapes[0]) == 3:
        theirs = torch.cat([x[k] @ y[:, i:j] for k, (i, j) in enumerate(parts)], 1)
    else:
        theirs = torch.stack([x[:, i:j] @ y[i:j] for i, j in parts])
    return same(ours, theirs, 1e-4)


def test_products_of_groups_that_do_not_fit():
    a, b = ampc.ones(6, 16), ampc.ones(3, 16, 8)
    y = ampc.nn.functional.grouped_mm(a, b, offs=ampc.tensor([1, 2, 4]))
    assert y.shape == (6, 8) and (y[:4] == 16).all() and (y[4:] == 0).all()
    for offs in (None, ampc.tensor([2, 6]), ampc.tensor([2, 1, 6]), ampc.tensor([2, 4, 7])):
        with pytest.raises(RuntimeError):
            ampc.nn.functional.grouped_mm(a, b, offs=offs)


def test_grid_samplers_with_numbers():
    (theta,), (mine,) = both((2, 2, 3))
    grid, my_grid = torch.affine_grid_generator(theta, [2, 3, 4, 5], False), ampc.affine_grid_generator(mine, [2, 3, 4, 5], False)
    same(my_grid, grid)
    (x,), (a,) = both((2, 3, 6, 7))
    for mode, outside, corners in itertools.product((0, 1, 2), (0, 1, 2), (False, True)):
        same(ampc.grid_sampler_2d(a, my_grid, mode, outside, corners), torch.grid_sampler_2d(x, grid, mode, outside, corners))
    (x, grid), (a, my_grid) = both((2, 3, 4, 5, 6), (2, 3, 2, 4, 3))
    same(ampc.grid_sampler_3d(a, my_grid, 0, 1, True), torch.grid_sampler_3d(x, grid, 0, 1, True))
    with pytest.raises(RuntimeError, match="expected 4 dimensions"):
        ampc.grid_sampler_2d(a, my_grid, 0, 0, False)


def test_rows_of_a_table_are_scaled_down():
    (x,), (a,) = both((5, 3))
    rows = [0, 3, 3]
    assert ampc.embedding_renorm_(a, ampc.tensor(rows), 0.5, 1.0) is a
    same(a, torch.embedding_renorm_(x, torch.tensor(rows), 0.5, 1.0))


@pytest.mark.parametrize("norm", [2.0, 1.0])
def test_tables_whose_rows_are_limited(norm):
    (x,), (a,) = both((6, 3))
    rows = [[0, 3], [3, 5]]
    for name, more in (("Embedding", {"padding_idx": 3}), ("EmbeddingBag", {"mode": "sum"}), ("EmbeddingBag", {"mode": "max", "padding_idx": 0})):
        theirs = getattr(torch.nn, name).from_pretrained(x.clone(), False, max_norm=0.8, norm_type=norm, **more)
        ours = getattr(ampc.nn, name).from_pretrained(a.clone(), False, max_norm=0.8, norm_type=norm, **more)
        t, o = theirs(torch.tensor(rows)), ours(ampc.tensor(rows))
        same(o, t), same(ours.weight, theirs.weight)
        (t * t).sum().backward(), (o * o).sum().backward()
        same(ours.weight.grad, theirs.weight.grad)
        assert repr(ours) == repr(theirs)


def test_tables_whose_rows_are_limited_take_int32():
    (x,), (a,) = both((6, 3))
    for name in ("Embedding", "EmbeddingBag"):
        theirs, ours = (getattr(T.nn, name).from_pretrained(w.clone(), max_norm=0.5) for T, w in ((torch, x), (ampc, a)))
        same(ours(ampc.tensor([[0, 3], [3, 5]], dtype=ampc.int32)), theirs(torch.tensor([[0, 3], [3, 5]], dtype=torch.int32)))
        same(ours.weight, theirs.weight)


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize(("layers", "both_ways", "biases", "projected"), [(1, False, True, 0), (2, True, True, 0), (2, False, False, 0), (2, True, True, 2)])
def test_recurrent_layers_with_lists_of_weights(cell, layers, both_ways, biases, projected):
    if projected and cell != "lstm":
        pytest.skip("of an LSTM alone")
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(cell, torch.nn.RNN)
    more = {"proj_size": projected} if projected else {}
    module = kind(3, 4, layers, bias=biases, bidirectional=both_ways, dtype=torch.float64, **more)
    params = [p.detach() for p in module.parameters()]
    mine = [ours_of(p) for p in params]
    (x, h, c), (a, b, d) = both((5, 2, 3), (layers * (1 + both_ways), 2, projected or 4), (layers * (1 + both_ways), 2, 4))
    hx, my_hx = ((h, c), (b, d)) if cell == "lstm" else (h, b)
    for turned in (False, True):
        arguments = (biases, layers, 0.0, False, both_ways, turned)
        theirs = getattr(torch, cell)(x.transpose(0, 1) if turned else x, hx, params, *arguments)
        same(getattr(ampc, cell)(a.transpose(0, 1) if turned else a, my_hx, mine, *arguments), theirs)
    data, sizes = x.reshape(10, 3)[:7], [2, 2, 2, 1]
    theirs = getattr(torch, cell)(data, torch.tensor(sizes), hx, params, biases, layers, 0.0, False, both_ways)
    same(getattr(ampc, cell)(ours_of(data), ampc.tensor(sizes, device="cpu"), my_hx, mine, biases, layers, 0.0, False, both_ways), theirs)
    with pytest.raises(RuntimeError, match="do not fit"):
        getattr(ampc, cell)(a, my_hx, mine[:-1], biases, layers, 0.0, False, both_ways, False)


def test_binomial():
    count, chance = ampc.tensor([[10.0], [400.0]], dtype=ampc.float64).expand(2, 4000), ampc.tensor(0.3)
    drawn = ampc.binomial(count, chance)
    assert drawn.dtype is ampc.float64 and drawn.shape == (2, 4000) and (drawn == drawn.round()).all() and (drawn <= count).all()
    np.testing.assert_allclose(drawn.mean(1).tolist(), [3, 120], rtol=0.05)
    np.testing.assert_allclose(drawn.var(1).tolist(), [2.1, 84], rtol=0.15)
    with pytest.raises(ValueError, match="floating point"):
        ampc.binomial(ampc.tensor(3), chance)


@pytest.mark.filterwarnings("ignore")
def test_range():
    for arguments in ((0, 3), (1, 2, 0.3), (5, 0, -2), (2, 2)):
        same(ampc.range(*arguments), torch.range(*arguments))
    same(ampc.range(0, 5, 2, dtype=ampc.int64), torch.range(0, 5, 2, dtype=torch.int64))
    for arguments in ((3,), (0, 3, 0), (3, 0)):
        with pytest.raises((TypeError, RuntimeError)) as theirs:
            torch.range(*arguments)
        with pytest.raises(theirs.type):
            ampc.range(*arguments)


def test_memory_of_buffers_and_files(tmp_path):
    memory = bytearray(range(16))
    t = ampc.frombuffer(memory, dtype=ampc.int16, count=3, offset=2)
    assert t.tolist() == torch.frombuffer(memory, dtype=torch.int16, count=3, offset=2).tolist()
    t[0] = -1
    assert memory[2:4] == b"\xff\xff"
    assert ampc.frombuffer(bytearray(b"\x80\x3f"), dtype=ampc.bfloat16).tolist() == [1.0]
    assert ampc.frombuffer(bytearray(4), dtype=ampc.float32, requires_grad=True).requires_grad
    for arguments in ({"dtype": "int64", "count": 3}, {"dtype": "int16", "offset": 1}, {"dtype": "int8", "offset": 16}, {"dtype": "int8", "count": 0}):
        name = arguments.pop("dtype")
        for lib in (torch, ampc):
            with pytest.raises(ValueError):
                lib.frombuffer(memory, dtype=getattr(lib, name), **arguments)
    with pytest.raises(ValueError, match="buffer protocol"):
        ampc.frombuffer([1], dtype=ampc.int8)
    file = tmp_path / "values"
    ampc.from_file(str(file), shared=True, size=3).copy_(ampc.tensor([1.0, 2.0, 3.0]))
    alone = ampc.from_file(str(file), size=2, dtype=ampc.float32)
    assert alone.tolist() == [1, 2]
    alone.zero_()
    assert torch.from_file(str(file), size=3).tolist() == [1, 2, 3]
    with pytest.raises(RuntimeError, match="need"):
        ampc.from_file(str(file), size=4)


def test_deterministic_debug_mode():
    assert ampc.get_deterministic_debug_mode() == 0 and not ampc.are_deterministic_algorithms_enabled()
    try:
        for word, number in (("warn", 1), ("error", 2), ("default", 0), (2, 2)):
            ampc.set_deterministic_debug_mode(word)
            assert ampc.get_deterministic_debug_mode() == number
        with pytest.raises(RuntimeError):
            ampc.set_deterministic_debug_mode(5)
    finally:
        ampc.set_deterministic_debug_mode(0)


def test_names_that_other_modules_hold():
    assert ampc.vmap is ampc.func.vmap and ampc.thread_safe_generator is ampc.random.thread_safe_generator
    assert ampc.native_channel_shuffle is ampc.channel_shuffle is ampc.nn.functional.native_channel_shuffle


# In the terms of either library, m, with F its functions: a shape, or which error there is.
ENDS = {
    "reflect padding without channels": "F.pad(m.zeros(3, 0, 10), (2, 2), mode='reflect')", "reflect padding without samples": "F.pad(m.zeros(0, 3, 10), (2, 2), mode='reflect')",
    "replicate padding without channels": "F.pad(m.zeros(3, 0, 9, 9), (2,) * 4, mode='replicate')", "of one image": "F.pad(m.zeros(0, 9, 9), (2,) * 4, mode='replicate')",
    "replicate padding without values": "F.pad(m.zeros(3, 2, 0, 9), (2,) * 4, mode='replicate')", "circular padding that cuts too much": "F.pad(m.zeros(1, 1, 4), (-3, -2), mode='circular')",
    "circular padding that cuts all": "F.pad(m.zeros(1, 1, 4), (-3, -1), mode='circular')", "reflect padding that cuts all": "F.pad(m.zeros(1, 1, 4), (-3, -1), mode='reflect')",
    "replicate padding that cuts too much": "F.pad(m.zeros(1, 1, 4), (-3, -2), mode='replicate')", "unfold without channels": "F.unfold(m.zeros(3, 0, 3, 4), (2, 3))",
    "unfold without samples": "F.unfold(m.zeros(0, 3, 3, 4), (2, 3))", "fold without channels": "F.fold(m.zeros(3, 0, 4), (3, 4), (2, 3))", "no image to sample": "F.grid_sample(m.zeros(1, 1, 0, 2), m.zeros(1, 1, 1, 2), align_corners=False)",
    "no channels to sample": "F.grid_sample(m.zeros(1, 0, 2, 2), m.zeros(1, 1, 1, 2), align_corners=False)", "multi_margin_loss of no classes": "F.multi_margin_loss(m.zeros(9, 0), m.ones(9).long())",
    "multilabel_margin_loss of no classes": "F.multilabel_margin_loss(m.zeros(9, 0), m.ones(9, 0).long())", "multi_margin_loss of no score": "F.multi_margin_loss(m.zeros(0), m.ones(9).long())",
    "multi_margin_loss of a class in a vector": "F.multi_margin_loss(m.zeros(5), m.tensor([1]), reduction='none')", "multi_margin_loss of a class": "F.multi_margin_loss(m.zeros(5), m.tensor(1), reduction='none')",
    "cosine_similarity of integers and floats": "F.cosine_similarity(m.ones(2, 2).to(m.int8), m.ones(2, 2))", "cosine_similarity of integers": "F.cosine_similarity(m.ones(2, 2).to(m.int8), m.ones(2, 2).to(m.int8))",
    "a state of another batch": "m.nn.RNNCell(3, 4)(m.zeros(2, 3), m.zeros(1, 4))", "two states of another batch": "m.nn.LSTMCell(3, 4)(m.zeros(2, 3), (m.zeros(1, 4), m.zeros(1, 4)))[0]",
    "a gated state of another batch": "m.nn.GRUCell(3, 4)(m.zeros(2, 3), m.zeros(1, 4))",
}


@pytest.mark.parametrize("name", ENDS)
def test_refuses_what_torch_refuses(name):
    outcomes = []
    for lib in (ampc, torch):
        try:
            result = eval(ENDS[name], {"m": lib, "F": lib.nn.functional})
            outcomes.append((tuple(result.shape), str(result.dtype).split(".")[1]))
        except RuntimeError as error:
            outcomes.append(type(error))
    assert outcomes[0] == outcomes[1]
