"""The table is complete: every operator has a sample, signatures that inspect reads, and documentation."""

import inspect

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
    overloads = [r["signature"] for r in OPERATORS.values() if r["python"] == OPERATORS[name]["python"]]
    assert any(all(n + ":" in s for n in names) for s in overloads)
    assert OPERATORS[name]["doc"] in f.__doc__ and OPERATORS[name]["signature"] in f.__doc__
    assert f.__name__ == OPERATORS[name]["python"]


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
    assert pickle.loads(pickle.dumps(ampc.max)) is ampc.max
