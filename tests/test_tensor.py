"""Tensors: dtypes, creation, views, indexing, NumPy, printing, identity."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
from where import ON_GPU, settled

import ampc

DTYPES = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"]


def test_dtypes(torch):
    for name in [*DTYPES, "bfloat16"]:
        d, t = getattr(ampc, name), getattr(torch, name)
        assert (d.name, d.itemsize, d.is_floating_point, d.is_signed) == (name, t.itemsize, t.is_floating_point, t.is_signed)
        assert repr(d) == f"ampc.{name}" and pickle.loads(pickle.dumps(d)) is d
        for other in [*DTYPES, "bfloat16"]:
            want = torch.promote_types(t, getattr(torch, other))
            assert ampc.promote_types(d, getattr(ampc, other)).name == str(want).split(".")[1]
    assert ampc.float is ampc.float32 and ampc.long is ampc.int64 and ampc.half is ampc.float16


@pytest.mark.cpu
def test_numpy_dtype():
    assert ampc.float32.numpy_dtype == np.dtype("float32") and ampc.bool.numpy_dtype == np.dtype("bool")
    pytest.importorskip("ml_dtypes")
    assert ampc.bfloat16.numpy_dtype.name == "bfloat16"
    assert ampc.ones(2, dtype=ampc.bfloat16).numpy().dtype.name == "bfloat16"


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_finfo(torch, name):
    mine, theirs = ampc.finfo(getattr(ampc, name)), torch.finfo(getattr(torch, name))
    for f in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution"):
        assert getattr(mine, f) == getattr(theirs, f), f
    assert ampc.iinfo(ampc.int16).max == 32767 and ampc.iinfo(ampc.uint8).min == 0
    with pytest.raises(TypeError, match="iinfo"):
        ampc.finfo(ampc.int32)


def test_promotion_with_numbers(torch):
    for name in [*DTYPES, "bfloat16"]:
        for number in (True, 2, 2.5):
            for dims in ((2,), ()):
                mine = ampc.ones(dims, dtype=getattr(ampc, name)) * number
                theirs = torch.ones(dims, dtype=getattr(torch, name)) * number
                assert mine.dtype.name == str(theirs.dtype).split(".")[1], (name, number, dims)
        for other in [*DTYPES, "bfloat16"]:
            mine = ampc.ones(2, dtype=getattr(ampc, name)) + ampc.ones((), dtype=getattr(ampc, other))
            theirs = torch.ones(2, dtype=getattr(torch, name)) + torch.ones((), dtype=getattr(torch, other))
            assert mine.dtype.name == str(theirs.dtype).split(".")[1], (name, other)


def test_tensor_from_data():
    assert ampc.tensor([1, 2]).dtype is ampc.int64 and ampc.tensor([1, 2.0]).dtype is ampc.float32
    assert ampc.tensor(True).dtype is ampc.bool and ampc.tensor([]).dtype is ampc.float32
    assert ampc.tensor([[1], [2]]).shape == (2, 1) and ampc.tensor(range(3)).tolist() == [0, 1, 2]
    assert ampc.tensor(np.float64(2)).dtype is ampc.float64 and ampc.tensor([ampc.tensor(2), 3]).tolist() == [2, 3]
    for bad in ([[1], [2, 3]], [1, [2]], [[1], 2], [[[]], [1]]):
        with pytest.raises(ValueError, match="rows of different"):
            ampc.tensor(bad)
    with pytest.raises(TypeError, match="numbers"):
        ampc.tensor("text")


@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_casts_as_numpy(a, b):
    x = np.array([0, 1, 2, 100, 3]).astype(a)
    assert np.array_equal(ampc.tensor(x).to(getattr(ampc, b)).numpy(force=True), x.astype(b))
    y = np.arange(24).reshape(2, 3, 4).astype(a).transpose(2, 0, 1)  # strided
    assert np.array_equal(ampc.tensor(y).to(getattr(ampc, b)).numpy(force=True), y.astype(b))


def test_half_casts_are_numpys(torch):
    x = np.concatenate([np.random.default_rng(0).standard_normal(5000) * 10.0**e for e in range(-9, 6)]).astype(np.float32)
    x = np.concatenate([x, np.array([np.inf, -np.inf, np.nan, 65504, 65519.9, 65520, 6e-8, 2e-8, 0.0, -0.0], np.float32)])
    with np.errstate(over="ignore"):
        want = x.astype(np.float16)
    got = ampc.tensor(x).half().numpy(force=True)
    assert np.array_equal(got.view(np.uint16)[~np.isnan(want)], want.view(np.uint16)[~np.isnan(want)]) and np.isnan(got[np.isnan(want)]).all()
    b = torch.tensor(x).bfloat16().float().numpy(force=True)
    assert np.array_equal(ampc.tensor(x).bfloat16().float().numpy(force=True), b, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("step", [1, 3])
def test_relu_of_every_number_in_16_bits(dtype, step):
    """Loops on neighbours take 16-bit values as they are; others convert them."""
    x = ampc.arange(-32768, 32768).to(ampc.int16).view(getattr(ampc, dtype)).repeat_interleave(step)[::step]
    g = x.flip(0).contiguous().repeat_interleave(step)[::step]
    x32, g32 = (t.float().numpy(force=True) for t in (x, g))
    for got, want in ((ampc.relu(x), np.where(x32 < 0, 0, x32)), (ampc._C._functions["relu_backward"](g, x), np.where(x32 <= 0, 0, g32))):
        assert got.dtype is getattr(ampc, dtype) and np.array_equal(got.float().numpy(force=True), want, equal_nan=True)
        assert np.array_equal(np.signbit(got.float().numpy(force=True))[want == 0], np.signbit(want)[want == 0])


@pytest.mark.cpu
def test_numpy_shares_memory():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = ampc.from_numpy(a)
    t[0, 0] = 7
    a[1, 1] = 9
    assert a[0, 0] == 7 and t[1, 1].item() == 9
    b = t.t().numpy()
    b[2, 0] = 5
    assert t[0, 2].item() == 5 and np.shares_memory(a, b)
    del t
    assert b[2, 0] == 5
    assert np.array_equal(np.asarray(ampc.ones(2, 2)), np.ones((2, 2)))
    with pytest.raises(RuntimeError, match="detach"):
        ampc.ones(2, requires_grad=True).numpy()


@pytest.mark.cpu
def test_numpy_reads_parameters_without_grad_mode():
    """As in torch: nothing is recorded there, so writes to the array lose no gradient."""
    x = ampc.ones(2, requires_grad=True)
    with ampc.no_grad():
        x.numpy()[0] = 3
        assert np.asarray(x)[0] == 3 and memoryview(x)[0] == 3
    with pytest.raises(RuntimeError, match="detach"):
        np.asarray(x)
    with pytest.raises(BufferError, match="detach"):
        memoryview(x)


CASES = [
    lambda x: x[1], lambda x: x[-1, 2], lambda x: x[:, 1:], lambda x: x[..., 0], lambda x: x[None, :, ::2], lambda x: x[1, ..., 2:5],
    lambda x: x[[0, 2]], lambda x: x[:, [1, 0, 1]], lambda x: x[[0, 1], [2, 3]], lambda x: x[[0, 1], :, [2, 3]], lambda x: x[1, [0, 1]],
    lambda x: x[x > 0.5], lambda x: x[x[:, 0, 0] > 0], lambda x: x[:, x[0, :, 0] > 0], lambda x: x[...], lambda x: x[5:1], lambda x: x[True],
    lambda x: x[:, None, [0, 1], 1], lambda x: x[-2:, -3:-1],
]


@pytest.mark.parametrize("i", range(len(CASES)))
def test_indexing_as_numpy(i, torch):
    x = np.random.default_rng(1).standard_normal((3, 4, 5)).astype(np.float32)
    f = CASES[i]
    want = f(torch.tensor(x)).numpy(force=True)
    assert np.array_equal(f(ampc.tensor(x)).numpy(force=True), want)


def test_index_errors():
    x = ampc.zeros(3, 4)
    for bad in ((3,), (0, 0, 0), (slice(None), 7)):
        with pytest.raises(IndexError):
            x[bad]
    with pytest.raises(IndexError):
        settled(x[ampc.tensor([0, 3])])
    with pytest.raises(IndexError, match="mask"):
        x[ampc.ones(2, dtype=ampc.bool)]
    with pytest.raises(IndexError, match="int64, int32, bool"):
        x[ampc.tensor([0.5])]
    with pytest.raises(ValueError, match="step"):
        x[::0]


@pytest.mark.parametrize("index", ["::-1", "2:0:-1", ":, ::-2", "::-1, ::-1", "-1, ::-1", "0:2:-1", "None, ::-1, 5::-3", "::-1, [0, 2, 2]", "[2, 0], ::-1"])
def test_negative_steps(index):
    """torch raises; the array API has them. An element is read as in NumPy, and written to where it was read."""
    def key(): return eval(f"np.s_[{index}]")
    want, x = np.arange(12.0).reshape(3, 4), ampc.arange(12.0).reshape(3, 4).requires_grad_()
    got = x[key()]
    assert np.array_equal(got.numpy(force=True), want[key()])
    (got * ampc.arange(1.0, got.numel() + 1).reshape(got.shape)).sum().backward()
    slopes = np.zeros_like(want)
    np.add.at(slopes, key(), np.arange(1.0, got.numel() + 1).reshape(got.shape))
    assert np.array_equal(x.grad.numpy(force=True), slopes)
    if "2, 2" not in index:
        y = ampc.arange(12.0).reshape(3, 4)
        y[key()] = -1 - ampc.arange(float(got.numel())).reshape(got.shape)
        want[key()] = -1 - np.arange(float(got.numel())).reshape(got.shape)
        assert np.array_equal(y.numpy(force=True), want)


def test_masks_of_size_zero():
    """Such a mask chooses nothing, by the array API; torch raises."""
    assert ampc.ones(2, 3)[ampc.ones(0, dtype=ampc.bool)].shape == (0, 3) and ampc.ones(2, 3)[ampc.ones(2, 0, dtype=ampc.bool)].shape == (0,)
    with pytest.raises(IndexError):
        ampc.ones(2, 3)[ampc.ones(0, 3, 1, dtype=ampc.bool)]


def test_complex_of_one_element():
    assert complex(ampc.tensor([2.5])) == ampc.tensor(2.5).__complex__() == 2.5 + 0j
    with pytest.raises(ValueError):
        ampc.ones(2).__complex__()


def test_assignment(torch):
    def run(T):
        x = T.zeros(3, 4)
        x[0] = 1
        x[1, 1:3] = T.tensor([2.0, 3.0])
        x[:, 3] = x[:, 0]
        x[[0, 2], 2] = 9
        x[x == 9] = 4
        x[2, :2] += 0.5
        x[1] = T.tensor([[5.0, 6.0, 7.0, 8.0]])
        x[T.tensor([True, False, False]), 1] = T.tensor([11.0])
        return x.tolist()

    assert run(ampc) == run(torch)


def test_views_share_and_reshape_copies():
    x = ampc.arange(12).view(3, 4)
    y = x.t()
    y[0, 0] = 100
    assert x[0, 0].item() == 100 and y.shape == (4, 3) and not y.is_contiguous()
    with pytest.raises(RuntimeError, match="reshape"):
        y.view(12)
    assert y.reshape(12).tolist()[:3] == [100, 4, 8] and x.expand(2, 3, 4).stride() == (0, 4, 1)
    assert x.unsqueeze(0).squeeze().shape == (3, 4) and x.flatten().shape == (12,) and x.view(-1, 2).shape == (6, 2)
    with pytest.raises(RuntimeError, match="share memory"):
        x[:1].expand(3, 4).add_(1)
    assert [t.shape for t in ampc.arange(10).split(4)] == [(4,), (4,), (2,)] and len(ampc.arange(10).chunk(3)) == 3


def test_creation(torch):
    assert ampc.arange(1, 6, 2).tolist() == [1, 3, 5] and ampc.arange(0, 1, 0.25).tolist() == [0, 0.25, 0.5, 0.75]
    assert ampc.linspace(0, 1, 5).tolist() == torch.linspace(0, 1, 5).tolist() and ampc.eye(2, 3).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert ampc.full((2,), 3).dtype is ampc.int64 and ampc.full((2,), 3.0).dtype is ampc.float32 and ampc.zeros(2, 3).shape == (2, 3)
    assert ampc.zeros_like(ampc.ones(2, dtype=ampc.float16)).dtype is ampc.float16 and sorted(ampc.randperm(9).tolist()) == list(range(9))
    assert ampc.empty(size=(2, 3)).shape == (2, 3) and ampc.zeros(size=[4]).shape == (4,)
    with pytest.raises(TypeError):
        ampc.zeros(2, dtyp=ampc.int64)
    with pytest.raises(RuntimeError, match="negative"):
        ampc.zeros(-1)
    if not ampc.cuda.is_available():
        with pytest.raises(RuntimeError, match="device='cpu'"):
            ampc.zeros(2, device="cuda")


def test_random_streams():
    ampc.manual_seed(3)
    a = ampc.randn(10000)
    state = ampc.get_rng_state()
    b = ampc.rand(10000)
    ampc.set_rng_state(state)
    assert ampc.rand(10000).equal(b)
    ampc.manual_seed(3)
    assert ampc.randn(10000).equal(a)
    assert abs(a.mean().item()) < 0.05 and abs(a.std().item() - 1) < 0.05 and b.min() >= 0 and b.max() < 1 and abs(b.mean().item() - 0.5) < 0.02
    g = ampc.Generator().manual_seed(5)
    first = ampc.rand(4, generator=g)
    assert not ampc.rand(4, generator=g).equal(first) and ampc.rand(4, generator=g.manual_seed(5)).equal(first)
    counts = ampc.randint(0, 3, (3000,))
    assert set(counts.tolist()) == {0, 1, 2}


def test_random_does_not_depend_on_threads():
    drawn = []
    for threads in (1, 2, 4):
        ampc.set_num_threads(threads)
        ampc.manual_seed(1)
        drawn.append((ampc.randn(100000), ampc.nn.functional.dropout(ampc.ones(100000), 0.3)))
    ampc.set_num_threads(2)
    for x, d in drawn[1:]:
        assert x.equal(drawn[0][0]) and d.equal(drawn[0][1])


@pytest.mark.cpu
def test_printing(torch):
    for data in ([1.0, 2.5], [[1, 2], [3, 4]], [True, False], 3.0, [1e-10, 1.0], [float("nan"), float("inf"), 1.0], list(range(2000))):
        assert repr(ampc.tensor(data)) == repr(torch.tensor(data)), data
    assert repr(ampc.ones(2, dtype=ampc.float16)) == "tensor([1., 1.], dtype=ampc.float16)"
    assert f"{ampc.tensor(1.2345):.2f}" == "1.23" and "grad_fn=<MulBackward0>" in repr(ampc.ones(1, requires_grad=True) * 2)


def test_identity_attributes_and_weak_references():
    p = ampc.nn.Parameter(ampc.ones(3))
    (p * 2).sum().backward()
    g = p.grad
    assert p.grad is g
    g.note = "kept"
    ref = weakref.ref(g)
    del g
    assert ref() is not None and p.grad.note == "kept"
    p.grad = None
    assert ref() is None


def test_cycles_are_collected():
    x = ampc.ones(2, requires_grad=True)
    x.me = x
    x.register_hook(lambda g, x=x: None)
    y = x * 2
    y.register_hook(lambda g, y=y: None)
    refs = weakref.ref(x), weakref.ref(y)
    del x, y
    gc.collect()  # y, whose graph holds x
    gc.collect()
    assert refs[0]() is None and refs[1]() is None


def test_subclass_pickle_deepcopy():
    class Mine(ampc.Tensor):
        pass

    m = ampc._C._make_subclass(Mine, ampc.ones(2), False)
    assert isinstance(m, Mine) and type(m + 1) is Mine
    p = ampc.nn.Parameter(ampc.arange(3.0))
    p.tag = 5
    q = pickle.loads(pickle.dumps(p))
    assert type(q) is ampc.nn.Parameter and q.requires_grad and q.tolist() == [0, 1, 2] and q.tag == 5
    c = copy.deepcopy(p)
    c.data.zero_()
    assert p.tolist() == [0, 1, 2] and c is not p and c.tag == 5


def test_scalars_and_protocols():
    t = ampc.tensor([[1, 2], [3, 4]])
    assert [r.tolist() for r in t] == [[1, 2], [3, 4]] and len(t) == 2 and 3 in t and int(t[0, 0]) == 1 and [10, 20, 30][t[0, 1]] == 30
    assert bool(ampc.tensor(0.0)) is False and float(ampc.tensor(2)) == 2.0 and hash(t) != hash(t.clone())
    for f, error in ((bool, RuntimeError), (float, ValueError), (int, ValueError)):  # torch's types
        with pytest.raises(error, match="one element"):
            f(t)
    assert t.size(-1) == 2 and t.shape.numel() == 4 and isinstance(t.shape, ampc.Size)
    assert (2 - ampc.ones(1)).item() == 1 and (2 ** ampc.tensor([3.0])).item() == 8 and (7 // ampc.tensor([2])).item() == 3
    assert ON_GPU or isinstance(np.ones(2) * ampc.ones(2), ampc.Tensor)
    assert isinstance(np.float32(2) * ampc.ones(2), ampc.Tensor)


def test_integer_arithmetic(torch):
    a, b = [-7, 7, -8, 5], [2, -2, 3, 5]
    for op in ("__floordiv__", "__mod__", "__mul__", "__sub__"):
        for name in ("int64", "int32", "int8"):
            mine = getattr(ampc.tensor(a, dtype=getattr(ampc, name)), op)(ampc.tensor(b, dtype=getattr(ampc, name)))
            theirs = getattr(torch.tensor(a, dtype=getattr(torch, name)), op)(torch.tensor(b, dtype=getattr(torch, name)))
            assert mine.tolist() == theirs.tolist() and mine.dtype.name == name
    assert (ampc.tensor([200], dtype=ampc.uint8) + 100).tolist() == [44]
    if ON_GPU:
        return  # the device is not asked: it gives 0
    with pytest.raises(RuntimeError, match="zero"):
        ampc.tensor([1]) // ampc.tensor([0])


def test_out_argument():
    out = ampc.zeros(2)
    r = ampc.add(ampc.ones(2), 1, out=out)
    assert r is out and out.tolist() == [2, 2] and out._version == 1
    with pytest.raises(RuntimeError, match="shape"):
        ampc.ones(2).add_(ampc.ones(2, 2))
    with pytest.raises(RuntimeError, match="gradients"):
        ampc.add(ampc.ones(2, requires_grad=True), 1, out=out)


def test_overlapping_writes_do_not_corrupt():
    x = ampc.arange(8.0)
    x[1:].add_(x[:-1])
    assert x.tolist() == [0, 1, 3, 5, 7, 9, 11, 13]
    y = ampc.arange(9.0).view(3, 3)
    y.copy_(y.t())
    assert y.tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_truth_values_and_bits():
    a, b = ampc.tensor([True, False, True]), ampc.tensor([True, True, False])
    assert (~a).tolist() == ampc.bitwise_not(a).tolist() == [False, True, False] and (~a).dtype is ampc.bool
    assert (a ^ b).tolist() == [False, True, True] and (a | b).all() and (a & b).tolist() == [True, False, False]
    c = a.clone()
    c.bitwise_not_()
    assert c.tolist() == [False, True, False] and ampc.bitwise_not(a, out=ampc.empty(3, dtype=ampc.bool)).tolist() == c.tolist()
    assert (a + b).tolist() == [True, True, True] and (a + b).dtype is ampc.bool
    with pytest.raises(RuntimeError, match="logical_xor"):
        a - b
    with pytest.raises(RuntimeError, match="logical_not"):
        -a
    x = ampc.tensor([0, 1, -100, 127], dtype=ampc.int8)
    assert (x << 3).tolist() == [0, 8, -32, -8] and (x >> 1).tolist() == [0, 0, -50, 63] and (~x).tolist() == [-1, -2, 99, -128]
    assert (1 << ampc.tensor([0, 3])).tolist() == [1, 8]
    x <<= 1
    x >>= ampc.tensor([1, 1, 1, 1], dtype=ampc.int8)
    assert x.tolist() == [0, 1, 28, -1] and x.dtype is ampc.int8


@pytest.mark.skipif(ampc.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("kind", [RuntimeError, AssertionError])
@pytest.mark.parametrize("call", [lambda: ampc.zeros(2, device="cuda"), lambda: ampc.zeros(2).cuda(), lambda: ampc.nn.Linear(2, 2).to("cuda:1"), ampc.cuda.current_device,
                                  ampc.cuda.get_device_name, ampc.cuda.Stream, ampc.cuda.init, lambda: ampc.cuda.get_device_properties(0)])
def test_without_a_gpu(call, kind):
    """torch's builds for CUDA raise a RuntimeError, those for the CPU an AssertionError; scripts catch either."""
    with pytest.raises(kind, match="cannot be used"):
        call()


def test_the_random_stream_by_cudas_names():
    ampc.cuda.manual_seed(7)
    assert ampc.cuda.initial_seed() == 7
    ampc.cuda.seed_all()
    ampc.cuda.seed()
    with ampc.cuda.nvtx.range("forward"):
        ampc.cuda.nvtx.range_end(ampc.cuda.nvtx.range_start("a part of it"))
        assert ampc.cuda.initial_seed() == ampc.initial_seed()
    ampc.manual_seed(0)


@pytest.mark.cpu
def test_a_tensor_of_a_class_of_its_own_says_so(torch):
    for made in ("lib.arange(6.).reshape(2, 3)", "lib.arange(40.) * 1000", "lib.ones(0, 2)", "lib.ones(2, 2).double()", "lib.ones(3, device='meta')"):
        shown = []
        for lib in (ampc, torch):
            kind = type("Measured", (lib.Tensor,), {})
            shown.append(repr(eval(made, {"lib": lib}).as_subclass(kind)).replace(lib.__name__, "torch"))
        assert shown[0] == shown[1] and shown[0].startswith("Measured(")
@pytest.mark.parametrize("kind", ["cfloat", "float8_e4m3fn", 3, None])
def test_a_view_as_a_dtype_without_tensors(kind):
    wanted = getattr(ampc, kind) if isinstance(kind, str) else kind
    with pytest.raises(TypeError, match="view"):
        ampc.arange(6)._view_dtype(wanted)


def test_the_other_way_round_and_what_a_tensor_contains():
    rows = ampc.tensor([[1, 2], [3, 4]])
    assert [r.tolist() for r in reversed(rows)] == [[3, 4], [1, 2]] and reversed(ampc.tensor(5)).item() == 5
    assert 3 in rows and ampc.tensor(4) in rows and 7 not in rows
    for wrong in ("3", None, [1]):
        with pytest.raises(RuntimeError, match="expected a Tensor or a number"):
            wrong in rows  # noqa: B015


def test_a_device_has_one_index_from_0():
    for wrong in (("cuda", -1), ("cpu", -1), (-1,), ("cuda:0", 0)):
        with pytest.raises(RuntimeError, match="index"):
            ampc.device(*wrong)
    assert ampc.device("cuda", 1) == ampc.device("cuda:1") == ampc.device(1)


FUNCTIONS = {"of one": lambda t: np.sqrt(t), "of two": lambda t: np.add(t, np.ones(2)), "a comparison": lambda t: np.greater(t, 2.0),
             "of two results": lambda t: np.divmod(t, 3.0), "a reduction": lambda t: np.add.reduce(t), "of 0 dimensions": lambda t: np.exp(t[0])}


@pytest.mark.cpu
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
def test_numpys_functions_of_tensors_give_tensors(torch, name):
    got, want = (FUNCTIONS[name](lib.tensor([1.0, 4.0])) for lib in (ampc, torch))
    for g, w in zip(got, want) if isinstance(want, tuple) else [(got, want)]:
        assert isinstance(g, ampc.Tensor) and isinstance(w, torch.Tensor)
        assert str(g.dtype).split(".")[-1] == str(w.dtype).split(".")[-1] and g.tolist() == w.tolist()


@pytest.mark.cpu
def test_numpys_results_without_a_dtype_here_stay_arrays():
    assert isinstance(np.add(ampc.ones(2), np.ones(2, complex)), np.ndarray)


def test_grad_has_a_second_name():
    p = ampc.ones(2, requires_grad=True)
    p._grad = ampc.tensor([1.0, 2.0])
    assert p.grad is p._grad and p.grad.tolist() == [1.0, 2.0]
    p._grad = None
    assert p.grad is None
