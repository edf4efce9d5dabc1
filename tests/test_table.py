"""The table is complete: every operator has a sample, signatures that inspect reads, and documentation."""

import inspect

import numpy as np
import pytest
from samples import OPERATORS, SAMPLES

import ampc


def test_every_row_has_a_sample():
    assert set(SAMPLES) == set(OPERATORS)


@pytest.mark.parametrize("name", OPERATORS)
def test_row_is_shown_where_it_says(name):
    op = OPERATORS[name]
    if op["home"] & 1:
        assert callable(getattr(ampc, op["python"]))
    if op["home"] & 2:
        assert hasattr(ampc.Tensor, op["python"])
    if op["home"] & 4:
        places = [ampc.Tensor] if op["home"] & 2 else [ampc, ampc.nn.functional]
        assert any(callable(getattr(place, op["python"] + "_", None)) for place in places)
    if op["home"] & 8:
        assert callable(getattr(ampc.nn.functional, op["python"]))
    if op["home"] & 16:
        assert callable(getattr(ampc.special, op["python"]))


@pytest.mark.parametrize("name", OPERATORS)
def test_signature_and_doc(name):
    f = ampc._C._functions[OPERATORS[name]["python"]]
    names = list(inspect.signature(f).parameters)
    for word, other in (("dim", "axis"), ("keepdim", "keepdims")):  # NumPy's words stand behind
        assert (word in names) == (other in names)
        names = [n for n in names if n != other]
    overloads = [r["signature"] for r in OPERATORS.values() if r["python"] == OPERATORS[name]["python"]]
    assert any(all(n + ":" in s for n in names) for s in overloads)
    assert OPERATORS[name]["doc"] in f.__doc__ and OPERATORS[name]["signature"] in f.__doc__
    assert f.__name__ == OPERATORS[name]["python"]


def test_numpys_words(torch):
    """axis for dim, keepdims for keepdim, x, a and x1 for input, x2 for other; in the signature, so that it can be bound and called."""
    def run(T):
        x = T.arange(6.0).reshape(2, 3)
        return [T.sum(x, axis=1, keepdims=True), T.sum(a=x, axis=0), T.argsort(x, axis=0), T.atan2(x1=x, x2=x + 1), T.add(x=x, x2=1), T.amax(x, axis=(0, 1)),
                *T.unbind(x, axis=1), *T.chunk(x, 2, axis=0), *x.unbind(axis=0), T.concat([x, x], axis=1)]

    for mine, theirs in zip(run(ampc), run(torch)):
        np.testing.assert_allclose(mine.tolist(), theirs.tolist(), rtol=1e-6)  # a GPU rounds atan2 its own way
    x = ampc.arange(6.0).reshape(2, 3)
    bound = inspect.signature(ampc.sum).bind(x, 1)
    bound.apply_defaults()
    assert ampc.sum(*bound.args, **bound.kwargs).tolist() == x.sum(1).tolist() and ampc.sum(x, axis=None).item() == 15
    with pytest.raises(TypeError, match="twice"):
        ampc.sum(x, 0, axis=1)
    with pytest.raises(TypeError, match="dim"):
        ampc.concat([x, x], axis=None)  # NumPy's would be flat


def test_grammar_is_proven():
    """The operators that the grammar was proven on."""
    import pickle

    x = ampc.tensor([[1.0, 5.0, 3.0]])
    assert ampc.max(x).item() == 5
    pair = ampc.max(x, 1)
    assert pair.values.tolist() == [5] and pair.indices.tolist() == [1] and pair[0] is pair.values
    assert ampc.topk(x, k=2).indices.tolist() == [[1, 2]]
    assert ampc.cat([x, x]).shape == (2, 3) and ampc.cat(tensors=(x, x), dim=1).shape == (1, 6)
    assert ampc.where(x > 2, x, 0).tolist() == [[0, 5, 3]]
    assert x.index_put((ampc.tensor([0]), ampc.tensor([2])), ampc.tensor(9.0)).tolist() == [[1, 5, 9]]
    mean, var = ampc.zeros(3), ampc.ones(3)
    ampc.nn.functional.batch_norm(ampc.randn(4, 3), mean, var, training=True)
    assert mean._version == 1 and mean.abs().sum() > 0
    for f in (ampc.max, ampc.nn.functional.relu, ampc.nn.functional.silu, ampc.special.expit, ampc.linalg.inv, ampc.Tensor.relu, ampc._ops._full):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(f, protocol)) is f
    assert b"ampc.nn.functional" in pickle.dumps(ampc.nn.functional.silu) and b"_function" not in pickle.dumps(ampc.relu)  # as torch names them


def test_a_number_or_numbers_or_words():
    """An int[] takes a number for every dimension, has defaults, and words in its place; an int?[] holds None."""
    F, x, weight = ampc.nn.functional, ampc.arange(32.0).reshape(1, 1, 4, 8), ampc.ones(1, 1, 3, 3)
    assert F.conv2d(x, weight).equal(F.conv2d(x, weight, None, [1], (0, 0), 1)) and F.conv2d(x, weight).equal(F.conv2d(x, weight, padding="valid"))
    assert F.conv2d(x, weight, padding="same").equal(F.conv2d(x, weight, padding=1))
    assert F.adaptive_avg_pool2d(x, (None, 1)).shape == (1, 1, 4, 1) and F.adaptive_avg_pool2d(x, 2).shape == (1, 1, 2, 2)
    for wrong in ((1, 1, 1), "full"):
        with pytest.raises(RuntimeError, match="`padding` must be"):
            F.conv2d(x, weight, padding=wrong)
    with pytest.raises(TypeError):
        F.adaptive_avg_pool2d(x, None)


def test_return_indices_decides_what_is_shown():
    F, x = ampc.nn.functional, ampc.tensor([[[1.0, 3.0, 2.0, 0.0]]])
    assert F.max_pool1d(x, 2).tolist() == [[[3, 2]]]
    pair = F.max_pool1d(x, 2, return_indices=True)
    assert type(pair) is tuple and pair[1].tolist() == [[[1, 2]]]


def test_the_argument_inplace():
    """The result is written into the tensor; what drops nothing leaves it as it is, a leaf that records too."""
    F, x = ampc.nn.functional, ampc.tensor([-1.0, 2.0])
    assert F.leaky_relu(x, 0.5, True) is x and x.tolist() == [-0.5, 2]
    assert F.celu(input=x, inplace=True) is x
    leaf = ampc.ones(2, 3, 4, requires_grad=True)
    for drop in (F.dropout, F.dropout2d, F.alpha_dropout):
        assert drop(leaf, 0.5, training=False, inplace=True) is leaf and leaf._version == 0
        with pytest.raises(RuntimeError, match="leaf"):
            drop(leaf, 0.5, training=True, inplace=True)
    given, out = ampc.ones(3), ampc.zeros(3)
    assert F.dropout(given, 0.0, out=out) is out and out.equal(given)
    y = leaf * 1
    F.silu(y, inplace=True).sum().backward()
    assert leaf.grad.allclose(ampc.autograd.grad(F.silu(z := ampc.ones(2, 3, 4, requires_grad=True)).sum(), z)[0])


@pytest.mark.filterwarnings("ignore:size_average and reduce")
def test_the_former_words_of_reduction():
    F, x, y = ampc.nn.functional, ampc.tensor([1.0, 3.0]), ampc.zeros(2)
    assert [F.l1_loss(x, y, *old).tolist() for old in ((False,), (True, None, "sum"), (None, False), (None, None, "sum"))] == [4, 2, [1, 3], 4]
    assert F.poisson_nll_loss(x, y, False, reduce=False).tolist() == [1, 3]
    with pytest.raises(RuntimeError, match="must be bools"):
        F.mse_loss(x, y, x)
