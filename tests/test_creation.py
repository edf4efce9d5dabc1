"""Makers of tensors, against torch's."""

import array

import numpy as np
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


def test_the_oldest_constructor_makes_tensors_on_the_cpu_whatever_was_chosen(torch):
    """`Tensor(...)` asks no default device, as in torch; `device=` may only say so."""
    for lib in (ampc, torch):
        kept = type("Kept", (lib.Tensor,), {})
        with lib.device("meta"):
            made = [lib.Tensor(2, 3), lib.Tensor(), lib.Tensor([1.0]), lib.Tensor(np.ones(2)), lib.Tensor(2, device="cpu"), lib.Tensor(2, device=None), kept(2)]
            assert all(t.device.type == "cpu" for t in made) and lib.tensor([1.0]).device.type == "meta"
            with pytest.raises(RuntimeError):
                lib.Tensor(2, device="meta")


ROWS = {"arange": lambda lib, **k: lib.arange(4, **k), "linspace": lambda lib, **k: lib.linspace(0, 3, 4, **k),
        "logspace": lambda lib, **k: lib.logspace(0, 3, 4, base=2, **k), "range": lambda lib, **k: lib.range(0, 3, **k)}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.filterwarnings("ignore")  # range is deprecated
def test_a_row_of_numbers_fills_a_view_that_has_as_many_elements(torch, name):
    seen = []
    for lib in (ampc, torch):
        x = lib.full((2, 3), -1.0)
        view = x.narrow(1, 1, 2)
        assert ROWS[name](lib, out=view) is view
        seen.append((tuple(view.shape), x.tolist()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", ["zeros", "ones", "full", "arange"])
def test_the_dtype_is_that_of_out(torch, name):
    got, want = (MAKERS[name](lib, out=lib.empty(0, dtype=lib.int32)) for lib in (ampc, torch))
    assert got.dtype == ampc.int32 and got.tolist() == want.tolist()


@pytest.mark.parametrize("name", [name for name in MAKERS if "fft" not in name])
def test_another_dtype_than_that_of_out_is_refused(torch, name):
    for lib in (ampc, torch):
        with pytest.raises(RuntimeError):
            MAKERS[name](lib, dtype=lib.float64, out=lib.empty(0))


@pytest.mark.parametrize("dtype, most", [("uint8", 256), ("int8", 128), ("bfloat16", 257), ("float16", 2049)])
def test_a_permutation_needs_a_dtype_that_holds_its_numbers(dtype, most):
    kind = getattr(ampc, dtype)
    assert sorted(ampc.randperm(most, dtype=kind).tolist()) == list(range(most))
    with pytest.raises(RuntimeError, match="does not hold all whole numbers below"):
        ampc.randperm(most + 2, dtype=kind)


def test_draws_beyond_the_dtype_are_refused(torch):
    for lib in (ampc, torch):
        for draw in (lambda: lib.randint_like(lib.ones(3, dtype=lib.uint8), 0, 300), lambda: lib.empty(3).uniform_(-3e38, 3e38),  # noqa: B023
                     lambda: lib.empty(3, dtype=lib.float16).uniform_(-7e4, 0), lambda: lib.normal(lib.zeros(1), -1.0)):  # noqa: B023
            with pytest.raises(RuntimeError):
                draw()


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**70), 3 * 2**100])
def test_whole_numbers_beyond_64_bits_are_floating_point_ones(torch, number):
    for dtype in ("float32", "float64", "bool"):
        for data in (number, [number, 1]):
            got, want = (lib.tensor(data, dtype=getattr(lib, dtype)).tolist() for lib in (ampc, torch))
            assert got == want
    with pytest.raises(OverflowError):
        ampc.tensor(number)


BUFFERS = {"bytearray": lambda: bytearray(range(16)), "array": lambda: array.array("f", [1, 2]),
           "memoryview": lambda: memoryview(np.arange(8, dtype=np.float16))}


@pytest.mark.parametrize("dtype", [None, "float16", "int16"])
@pytest.mark.parametrize("name", BUFFERS)
def test_asarray_reads_the_bytes_of_a_buffer(torch, name, dtype):
    buffer = BUFFERS[name]()
    got, want = (lib.asarray(buffer, dtype=dtype and getattr(lib, dtype)) for lib in (ampc, torch))
    assert str(got.dtype).split(".")[-1] == str(want.dtype).split(".")[-1] and got.tolist() == want.tolist()
    got[0] = 5
    assert want[0] == 5  # one memory
    copy = ampc.asarray(buffer, dtype=got.dtype, copy=True)
    copy[0] = 6
    assert want[0] == 5


def test_asarray_shares_or_copies_as_asked(torch):
    ones = np.ones(3)
    assert ampc.asarray(ones, copy=False).data_ptr() == ones.ctypes.data
    assert ampc.asarray(ones, copy=True).data_ptr() != ones.ctypes.data
    there = torch.ones(3)
    assert ampc.asarray(there, copy=False).data_ptr() == ampc.asarray(torch.utils.dlpack.to_dlpack(there)).data_ptr() == there.data_ptr()
    for obj, dtype in ((ones, ampc.float32), ([1.0], None), (3, None), (np.float32(3), None), (there, ampc.float64)):
        with pytest.raises(ValueError, match="copy"):
            ampc.asarray(obj, dtype=dtype, copy=False)
