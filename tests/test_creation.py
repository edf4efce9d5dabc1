"""Makers of tensors, against torch's."""

import pytest

import ampc

MAKERS = {
    "zeros": lambda lib, **k: lib.zeros(2, 3, **k), "ones": lambda lib, **k: lib.ones(2, 3, **k), "empty": lambda lib, **k: lib.empty(2, 3, **k),
    "full": lambda lib, **k: lib.full((2, 3), 6.0, **k), "rand": lambda lib, **k: lib.rand(2, 3, **k), "randn": lambda lib, **k: lib.randn(2, 3, **k),
    "arange": lambda lib, **k: lib.arange(0.0, 3.0, 0.5, **k), "linspace": lambda lib, **k: lib.linspace(0, 1, 6, **k),
    "logspace": lambda lib, **k: lib.logspace(0, 1, 6, **k), "eye": lambda lib, **k: lib.eye(2, 3, **k),
    "fftfreq": lambda lib, **k: lib.fft.fftfreq(6, 2.0, **k), "rfftfreq": lambda lib, **k: lib.fft.rfftfreq(6, 2.0, **k),
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_made_in_out_asks_for_gradients_too(torch, name):
    for asked in (True, False):
        seen = []
        for lib in (ampc, torch):
            out = lib.empty(0)
            made = MAKERS[name](lib, out=out, requires_grad=asked)
            assert made is out
            seen.append((tuple(out.shape), out.requires_grad, out.is_leaf))
        assert seen[0] == seen[1]


def test_gains_are_torchs_to_the_type(torch):
    names = ["linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu", *(f"{kind}{n}d" for kind in ("conv", "conv_transpose") for n in (1, 2, 3))]
    for name in names:
        mine, theirs = ampc.nn.init.calculate_gain(name), torch.nn.init.calculate_gain(name)
        assert mine == theirs and type(mine) is type(theirs), name


def test_a_size_alone_is_a_size_and_a_tuple_is_values():
    """As torch's older constructors have it."""
    torch = pytest.importorskip("torch")
    for lib in (ampc, torch):
        size = lib.ones(2, 3).shape
        assert all(tuple(make(size).shape) == (2, 3) for make in (lib.FloatTensor, lib.LongTensor, lib.Tensor, lib.ones(1).new))
        assert lib.FloatTensor((2, 3)).tolist() == lib.Tensor((2, 3)).tolist() == [2, 3]
