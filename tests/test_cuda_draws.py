"""Random functions on a simulated or real GPU: none waits for it, so all can be captured, and replays draw what calls would."""

import pytest
from where import ON_GPU, simulated, simulator

import ampc

pytestmark = pytest.mark.skipif(not ON_GPU, reason="needs a GPU, or the simulated one")
F = ampc.nn.functional

DRAWS = {
    "bernoulli": lambda x: ampc.bernoulli(x), "bernoulli of a number": lambda x: ampc.bernoulli(x, 0.25), "poisson": lambda x: ampc.poisson(x * 9),
    "bernoulli_": lambda x: ampc.empty_like(x).bernoulli_(x), "normal": lambda x: ampc.normal(x, 2.0), "rand_like": ampc.rand_like,
    "randint": lambda x: ampc.randint(9, x.shape), "exponential_": lambda x: ampc.empty_like(x).exponential_(),
    "cauchy_": lambda x: ampc.empty_like(x).cauchy_(), "geometric_": lambda x: ampc.empty_like(x).geometric_(0.3),
    "log_normal_": lambda x: ampc.empty_like(x).log_normal_(), "random_": lambda x: ampc.empty_like(x).random_(),
    "dropout": lambda x: F.dropout(x), "gumbel_softmax": lambda x: F.gumbel_softmax(x[None]), "binomial": lambda x: ampc.binomial((x * 9).ceil(), x),
}


@pytest.mark.parametrize("draw", list(DRAWS))
def test_a_replay_draws_what_a_call_draws(draw):
    x, g = ampc.rand(200), ampc.cuda.CUDAGraph()
    DRAWS[draw](x)  # its kernels are found
    with ampc.cuda.graph(g):
        y = DRAWS[draw](x)
    for seed in (3, 4):
        ampc.manual_seed(seed)
        expected = DRAWS[draw](x)
        ampc.manual_seed(seed)
        g.replay()
        assert y.tolist() == expected.tolist()
    g.replay()
    assert y.tolist() != expected.tolist()


@simulated
def test_drawing_and_one_hot_do_not_wait():
    x, classes = ampc.rand(50), ampc.arange(50) % 7
    ampc.cuda.synchronize()
    before = simulator("syncs")
    for draw in DRAWS.values():
        draw(x)
    F.one_hot(classes, 7)
    assert simulator("syncs") == before


@pytest.mark.parametrize("shape", [(12,), (3, 4), (1,), ()], ids=str)
def test_one_hot_is_the_cpus(shape):
    classes = ampc.randint(5, shape)
    for n in (5, 9, -1):
        ours, theirs = F.one_hot(classes, n), F.one_hot(classes.cpu(), n)
        assert ours.is_cuda and ours.shape == theirs.shape and ours.tolist() == theirs.tolist()
    assert F.one_hot(ampc.empty(0, 3, dtype=ampc.int64), 4).shape == (0, 3, 4)


@pytest.mark.parametrize("bad", [7, -1])
def test_a_class_that_is_not_there_is_told_of_where_the_script_waits(bad):
    F.one_hot(ampc.tensor([0, bad, 2]), 7)
    with pytest.raises(IndexError, match="one_hot"):
        ampc.cuda.synchronize()
