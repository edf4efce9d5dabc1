"""Every operator against a float64 NumPy reference, torch (values, dtypes, gradients), and finite differences."""

import math

import numpy as np
import pytest
from linalg_samples import LINALG
from references import part
from samples import CASES, CPU_ONLY, IDS, OPERATORS, SAMPLES, function, outputs, to_ampc, to_torch, torch_function
from where import FEWER, ON_GPU, SIMULATED, settled, simulated

import ampc

# Operators chain a few roundings; reductions here are short. A handful of units in the last place.
ULPS = {"float64": 64, "float32": 32, "float16": 8, "bfloat16": 8}


@pytest.fixture(autouse=True)
def one_device(request, on_gpu):
    name = request.node.callspec.params.get("name") if getattr(request.node, "callspec", None) else None
    if on_gpu and (name == "to_device" or name in CPU_ONLY):
        pytest.skip("to_device leads to the CPU and is in test_cuda.py; the others have no GPU way of their own")


def tolerance(dtype, scale=1.0):
    eps = ampc.finfo(dtype).eps
    return ULPS[dtype.name] * eps * max(1.0, scale)


def as_array(t):
    return (t.double() if t.is_floating_point() else t).numpy(force=True)


def close(got, want, tol):
    want = np.asarray(want)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=tol, atol=tol)


RUNNING = {"cumsum", "linear_scan"}  # each addition rounds a total, so errors are of the totals' size, in whatever order they are added
RANDOM = {"uniform", "normal", "randint", "randperm", "dropout"}


@pytest.mark.parametrize("dtype", [ampc.float64, ampc.float32, ampc.float16, ampc.bfloat16], ids=str)
@pytest.mark.parametrize(("name", "i"), CASES, ids=IDS)
def test_reference(name, i, dtype):
    s = SAMPLES[name][i]
    if s.reference is None:
        pytest.skip("no NumPy reference; torch or gradcheck covers it")
    if dtype.itemsize == 2 and not s.half:
        pytest.skip("discontinuous: rounding of the inputs moves the result")
    rounded = to_ampc(s, dtype)
    args, kwargs = _numpy(rounded)
    want = s.reference(*args, **kwargs)
    got = function(name)(*rounded[0], **rounded[1])
    big = max((np.abs(a).max() for a in _arrays(args) if a.size and a.dtype.kind == "f" and np.isfinite(a).all()), default=1.0)
    for g, w in zip(outputs(got), outputs(want)):
        if g.is_floating_point():
            scale = max(big, float(np.abs(w).max())) if name in RUNNING else big
            close(as_array(g), w, tolerance(g.dtype if g.dtype.itemsize <= dtype.itemsize else dtype, scale))
        else:
            assert np.array_equal(as_array(g), w)


def _numpy(value):
    if isinstance(value, ampc.Tensor):
        return as_array(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_numpy(v) for v in value)
    if isinstance(value, dict):
        return {k: _numpy(v) for k, v in value.items()}
    return value


def _arrays(value):
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, (list, tuple)):
        return [a for v in value for a in _arrays(v)]
    return []


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("name", "i"), CASES, ids=IDS)
def test_torch(torch, name, i, dtype):
    s = SAMPLES[name][i]
    theirs = torch_function(name, s)
    if theirs is None:
        pytest.skip("torch has no such function")
    half = dtype in ("float16", "bfloat16")
    if half and not s.half:
        pytest.skip("discontinuous")
    grad = OPERATORS[name]["differentiable"] and s.grad and s.torch_grad and not half
    mine_in = to_ampc(s, getattr(ampc, dtype), grad)
    their_in = to_torch(s, getattr(torch, dtype), grad)
    try:
        want = theirs(*their_in[0], **their_in[1])
    except NotImplementedError:
        if half:
            pytest.skip("torch has it in 32 and 64 bits alone")
        raise
    got = function(name)(*mine_in[0], **mine_in[1])
    for g, w in zip(outputs(got), outputs(want)):
        assert str(g.dtype).split(".")[1] == str(w.dtype).split(".")[1]
        assert tuple(g.shape) == tuple(w.shape)
        if g.is_floating_point():
            # torch's own result in a half type may be several roundings away
            close(as_array(g), w.detach().double().numpy(force=True), tolerance(g.dtype, float(w.detach().double().abs().nan_to_num(0, 0, 0).max()) if w.numel() else 1))
        else:
            assert np.array_equal(as_array(g), w.numpy(force=True))
    if not grad:
        return
    g, w = outputs(got)[0], outputs(want)[0]
    if not w.requires_grad:
        return
    weight = torch.linspace(0.5, 1.5, w.numel(), dtype=w.dtype).view(w.shape)
    w.backward(weight)
    g.backward(ampc.tensor(weight.numpy(force=True)).to(g.dtype))
    for mine, their in zip(_leaves(mine_in), _leaves(their_in)):
        if their.grad is None:
            assert mine.grad is None or not mine.grad.abs().any()
        else:
            scale = float(their.grad.abs().max()) if their.grad.numel() else 1.0
            close(as_array(mine.grad), their.grad.double().numpy(force=True), tolerance(mine.dtype, 4 * scale))


CHAINS = {"attention", "fused_attention", "fused_attention_backward", "gru_cell", "lstm_cell", "recurrence",
          "recurrence_backward", "recurrence_parts", "rnn_layer"}  # products of rounded products


def _size_of_differences(x, n=1, dim=-1, *ends):
    """The largest sum of magnitudes of an n-th difference."""
    return 2.0**n * max(float(t.max()) for t in (x, *ends)) * ampc.ones(1)


# sums of rounded products, or of numbers that are rounded as they come: as far off as the same sum of magnitudes is large. Those of a
# cell are what its sigmoid or tanh bends, by a slope of at most 1.
SUMS = {"multi_dot": ampc.linalg.multi_dot, "chain_matmul": ampc.chain_matmul, "scatter_add": ampc.scatter_add, "rnn_relu_cell": ampc.rnn_relu_cell,
        "rnn_tanh_cell": ampc.rnn_relu_cell, "diff": _size_of_differences, "einsum": ampc.einsum}


@pytest.mark.parametrize("dtype", [ampc.float16, ampc.bfloat16], ids=str)
@pytest.mark.parametrize(("name", "i"), [(n, i) for n, i in CASES if SAMPLES[n][i].half and n not in CHAINS],
                         ids=[c for c, (n, i) in zip(IDS, CASES) if SAMPLES[n][i].half and n not in CHAINS])
def test_half_results_are_two_units_from_float32s(name, i, dtype):
    """What one operator makes of 16-bit numbers, against what it makes of the same numbers in float32."""
    args, kwargs = to_ampc(SAMPLES[name][i], dtype)
    state = ampc.get_rng_state()
    got = outputs(function(name)(*args, **kwargs))
    ampc.set_rng_state(state)
    want = outputs(function(name)(*_widened(args), **_widened(kwargs)))
    sizes = outputs(SUMS[name](*_magnitudes(_widened(args)), **_magnitudes(_widened(kwargs)))) if name in SUMS else want
    for g, w, size in zip(got, want, sizes):
        if g.dtype != dtype:
            continue
        exact = w.double().numpy(force=True)
        finite = np.isfinite(exact)
        if name in SUMS:
            assert (np.abs(as_array(g) - exact) <= 2 * ampc.finfo(dtype).eps * size.double().numpy(force=True)).all()
            continue
        unit = 2.0 ** np.floor(np.log2(np.maximum(np.abs(exact[finite]), ampc.finfo(dtype).tiny))) * ampc.finfo(dtype).eps
        assert (np.abs(as_array(g)[finite] - exact[finite]) <= 2 * unit).all()


def _magnitudes(value):
    if isinstance(value, ampc.Tensor):
        return value.abs() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(_magnitudes(v) for v in value)
    return {k: _magnitudes(v) for k, v in value.items()} if isinstance(value, dict) else value


def _widened(value):
    if isinstance(value, ampc.Tensor):
        return value.float() if value.is_floating_point() and value.element_size() == 2 else value
    if isinstance(value, (list, tuple)):
        return type(value)(_widened(v) for v in value)
    return {k: _widened(v) for k, v in value.items()} if isinstance(value, dict) else value


COLUMNS = {"nonzero", "argwhere", "vecdot", "solve", "cholesky", "cholesky_inverse", "cholesky_solve", "triangular_solve", *LINALG}  # whose results torch stores by columns


@pytest.mark.parametrize(("name", "i"), CASES, ids=IDS)
def test_strides_and_errors_equal_torchs(torch, name, i):
    """Of the same good call the same layout; of the same bad one the same type of error."""
    s = SAMPLES[name][i]
    theirs = torch_function(name, s)
    if theirs is None:
        pytest.skip("torch has no such function")
    mine_in, their_in = to_ampc(s, ampc.float64), to_torch(s, torch.float64)
    if name not in COLUMNS:
        for g, w in zip(outputs(function(name)(*mine_in[0], **mine_in[1])), outputs(theirs(*their_in[0], **their_in[1]))):
            assert w.numel() <= 1 or tuple(g.stride()) == tuple(w.stride())
    for spoil in (_no_tensor, _fewer_rows):
        mine, their = spoil(mine_in[0], ampc.Tensor), spoil(their_in[0], torch.Tensor)
        if mine is None or (ON_GPU and name == "embedding_bag"):  # a GPU tells of its indices later, by an IndexError
            continue
        found, want = _error(lambda a=mine: settled(function(name)(*a, **mine_in[1]))), _error(lambda a=their: theirs(*a, **their_in[1]))
        assert found is None is want or issubclass(found, want), spoil.__name__


def _no_tensor(args, kind):
    return ("x", *args[1:])


def _fewer_rows(args, kind):
    """The second tensor cut to two rows."""
    tensors = [k for k, v in enumerate(args) if isinstance(v, kind) and v.ndim and v.shape[0] > 2]
    if len(tensors) < 2:
        return None
    return tuple(v[:2] if k == tensors[1] else v for k, v in enumerate(args))


def _error(call):
    try:
        call()
    except Exception as e:  # noqa: BLE001
        return type(e)
    return None


def _leaves(value):
    if hasattr(value, "requires_grad"):
        return [value] if value.requires_grad else []
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _leaves(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in _leaves(v)]
    return []


def _differentiable(name, s):
    return OPERATORS[name]["differentiable"] and s.grad


GRAD_CASES = [(n, i) for n, i in CASES if _differentiable(n, SAMPLES[n][i])]


def _closure(name, s):
    """The operator as a function of the float64 tensors among its arguments."""
    args, kwargs = to_ampc(s, ampc.float64, True)
    leaves = _leaves((args, kwargs))

    def put(value, fresh):
        if isinstance(value, ampc.Tensor):
            return next(fresh) if value.requires_grad else value
        if isinstance(value, (list, tuple)):
            return type(value)(put(v, fresh) for v in value)
        if isinstance(value, dict):
            return {k: put(v, fresh) for k, v in value.items()}
        return value

    def f(*tensors):
        a, k = put((args, kwargs), iter(tensors))
        result = function(name)(*a, **k)
        return tuple(r for r in outputs(result) if r.is_floating_point())

    return f, leaves


def few_leaves(name, i):
    """A sample's closure and leaves. On a GPU, small ones: the formulas are the CPU's, and it has the large ones."""
    f, leaves = _closure(name, SAMPLES[name][i])
    if not leaves:
        pytest.skip("no floating point input at these arguments")
    if ON_GPU and sum(t.numel() for t in leaves) > 1000:
        pytest.skip("a large sample, differentiated numerically on the CPU")
    return f, leaves


differentiated = pytest.mark.parametrize(("name", "i"), GRAD_CASES, ids=[f"{n}-{i}" for n, i in GRAD_CASES])
# A finite difference calls the operator twice for each element. The simulator takes it of a part, because below it is compared with the CPU.
differenced = pytest.mark.parametrize(("name", "i"), part(GRAD_CASES, FEWER), ids=lambda v: str(v))


@differenced
def test_gradcheck(name, i):
    f, leaves = few_leaves(name, i)
    assert ampc.autograd.gradcheck(f, leaves)


@differenced
def test_gradgradcheck(name, i):
    f, leaves = few_leaves(name, i)
    assert ampc.autograd.gradgradcheck(f, leaves)


def derivatives(name, i, device):
    """The gradients of a sample's weighted results, and the gradients of these in turn, by the inputs and the weights: all that gradgradcheck checks."""
    ampc.set_default_device(device)
    f, leaves = _closure(name, SAMPLES[name][i])
    outs, inputs, found = f(*leaves), list(leaves), []
    for _ in range(2):
        weights = [((ampc.arange(o.numel(), dtype=ampc.float64) + len(inputs)) * 0.618 % 1 + 0.5).view(o.shape).requires_grad_() for o in outs]
        total = sum((w * o).sum() for w, o in zip(weights, outs) if o.requires_grad)
        if not inputs or not isinstance(total, ampc.Tensor):
            break
        outs = list(ampc.autograd.grad(total, inputs, create_graph=True, materialize_grads=True))
        inputs, found = inputs + weights, found + outs
    return [as_array(t) for t in found]


@simulated
@differentiated
def test_derivatives_equal_the_cpus(name, i):
    """Finite differences are behind the CPU's; here the same formulas run on the GPU's kernels."""
    if name in RANDOM:
        pytest.skip("devices draw other numbers")
    want, got = derivatives(name, i, "cpu"), derivatives(name, i, "cuda")
    assert len(got) == len(want)
    for g, w in zip(got, want):
        close(g, w, 1e-10 * max(1.0, np.abs(w).max(initial=0.0)))


@differentiated
def test_hot_backward_equals_composition(name, i):
    """Gradients with and without a graph of their own agree: fused operators and elementary formulas."""
    f, leaves = _closure(name, SAMPLES[name][i])
    outs = f(*leaves)
    if not leaves or not any(o.requires_grad for o in outs):
        pytest.skip("no gradient at these arguments")
    total = sum((o * o).sum() for o in outs)
    plain = ampc.autograd.grad(total, leaves, retain_graph=True, materialize_grads=True)
    graph = ampc.autograd.grad(total, leaves, create_graph=True, materialize_grads=True)
    for a, b in zip(plain, graph):
        close(as_array(a), as_array(b), 1e-10)


MEETING = {  # 3000 ones that meet at one place
    "scatter_add": lambda z, i, o: z.scatter_add(0, i, o), "index_add": lambda z, i, o: z.index_add(0, i, o),
    "index_put": lambda z, i, o: z.index_put((i,), o, accumulate=True), "scatter_reduce": lambda z, i, o: z.scatter_reduce(0, i, o, "sum"),
    "embedding": lambda z, i, o: grad_of(lambda w: ampc.nn.functional.embedding(i, w.unsqueeze(1)), z),
    "embedding_bag": lambda z, i, o: ampc.nn.functional.embedding_bag(i, (z + 1).unsqueeze(1), ampc.tensor([0]), mode="sum")[0],
    "gather": lambda z, i, o: grad_of(lambda x: x.gather(0, i), z), "index": lambda z, i, o: grad_of(lambda x: x[i], z),
    "unfold": lambda z, i, o: grad_of(lambda x: x.unfold(0, 3000, 1), ampc.zeros(6000, dtype=z.dtype))[3000:],
    "max_pool2d": lambda z, i, o: grad_of(lambda x: ampc.nn.functional.max_pool2d(x, (1, 3000), 1), ampc.eye(1, 6000, dtype=z.dtype).flip(1)
                                          .roll(-3000, 1).reshape(1, 1, 1, 6000)).flatten()[2999:],
}


def grad_of(f, x):
    leaf = x.detach().requires_grad_()
    f(leaf).sum().backward()
    return leaf.grad


@pytest.mark.parametrize("dtype", [ampc.bfloat16, ampc.float16], ids=str)
@pytest.mark.parametrize("name", [n for n in MEETING if n != "unfold" or not SIMULATED])  # whose windows are 9 million values
def test_16_bit_sums_of_what_meets_are_rounded_once(name, dtype):
    """One by one they would stop at 256 and 2048, where one more is lost."""
    got = MEETING[name](ampc.zeros(3, dtype=dtype), ampc.zeros(3000, dtype=ampc.int64), ampc.ones(3000, dtype=dtype))
    assert got.dtype == dtype and got[0].item() == ampc.tensor(3000.0).to(dtype).item()


@pytest.mark.parametrize("dtype", [ampc.bfloat16, ampc.float16], ids=str)
def test_16_bit_sums_of_windows_are_rounded_once(dtype):
    """Of 300 windows that meet at one value the first and the last give 2048, to which 16 bits can add no 1."""
    x, gradient = ampc.zeros(600, dtype=dtype).requires_grad_(), ampc.ones(301, 1, dtype=dtype)
    gradient[1] = gradient[300] = 2048
    x.unfold(0, 300, 1).backward(gradient.expand(301, 300))
    assert x.grad[300].item() == ampc.tensor(2 * 2048.0 + 298).to(dtype).item()


def test_a_deviation_of_one_value_and_of_infinities():
    inf, nan = float("inf"), float("nan")
    for values, want in (([[inf]], nan), ([[nan]], nan), ([[2.0]], nan), ([[inf, 1.0]], nan), ([[1.0, 3.0]], 2**0.5)):
        assert np.array_equal(ampc.tensor(values).std(1).numpy(force=True), np.array([want], np.float32), equal_nan=True)


def test_evaluating_batch_norm_passes_gradients_by_what_is_not_finite():
    """Its statistics are fixed, so x takes no part in the gradient of x."""
    x = ampc.tensor([[[1.0, float("inf"), float("nan"), 2.0]]]).requires_grad_()
    ampc.nn.functional.batch_norm(x, ampc.zeros(1), ampc.ones(1), ampc.tensor([3.0]), eps=0.0).sum().backward()
    assert x.grad.flatten().tolist() == [3.0] * 4


@pytest.mark.parametrize("causal", [False, True])
def test_float64_attention_of_expanded_queries_keys_and_values(causal):
    """BLAS cannot read rows that are all the same memory."""
    rows = [np.linspace(-1, 1, 2 * n * w).reshape(2, n, w) for n, w in ((1, 17), (33, 17), (1, 9))]
    sizes, results = ((2, 40, 17), (2, 33, 17), (2, 33, 9)), []
    for dense in (False, True):
        leaves = [ampc.tensor(a, dtype=ampc.float64).requires_grad_() for a in rows]
        views = [t.expand(*size) for t, size in zip(leaves, sizes)]
        y = ampc.nn.functional.scaled_dot_product_attention(*(v.contiguous() if dense else v for v in views), is_causal=causal)
        y.square().sum().backward()
        results.append([y, *(t.grad for t in leaves)])
    for expanded, dense in zip(*results):
        close(as_array(expanded), as_array(dense), 1e-12)


@pytest.mark.cpu
@pytest.mark.parametrize("rows", [1, 20])
def test_long_sums_of_products_keep_their_digits(rows):
    """Products are summed in spans: one after the other, half a million of them would keep five digits."""
    n = 2**19 + 77
    got = ampc.nn.functional.linear(ampc.full((rows, n), 1023.0), ampc.ones(3, n))
    assert np.abs(got.numpy() / (1023.0 * n) - 1).max() < 1e-6


@pytest.mark.cpu
@pytest.mark.parametrize("channels", [1, 16])
def test_weight_gradients_of_large_images_keep_their_digits(channels):
    weight, n = ampc.ones(1, channels, 1, 1, requires_grad=True), 2400 if channels == 1 else 700
    ampc.nn.functional.conv2d(ampc.full((1, channels, n, n), 1023.0), weight).sum().backward()
    assert np.abs(weight.grad.numpy() / (1023.0 * n * n) - 1).max() < 1e-6


def rounding_of(got, exact):
    """Root mean square of the errors of float32 sums, in units of half a last digit of the sums' root mean square."""
    return np.sqrt(np.square(got.numpy() - exact.numpy()).mean() / np.square(exact.numpy()).mean()) * 2**24


BLOCK = 256  # products that are added one after the other: n of them, independent, round by at most sqrt(n / 6) of these units


@pytest.mark.cpu
@pytest.mark.parametrize("k", [300, 2048, 4608, 20000])
def test_deep_products_round_as_one_block_does(k):
    a, b = (ampc.randn(*shape, generator=ampc.Generator().manual_seed(k)) for shape in [(80, k), (k, 48)])
    assert rounding_of(a @ b, a.double() @ b.double()) < math.sqrt((BLOCK + k / BLOCK) / 6)
    assert rounding_of(ampc.nn.functional.linear(a[:2], b.t()), a[:2].double() @ b.double()) < math.sqrt((BLOCK + k / BLOCK) / 6)


@pytest.mark.cpu
@pytest.mark.parametrize("shape", [(2, 512, 32, 8), (16, 16, 16, 32), (2, 16, 16, 120)], ids=str)
def test_convolutions_over_many_terms_round_as_one_block_does(shape):
    images, channels, outs, side = shape
    found = []
    for dtype in (ampc.float32, ampc.float64):
        g = ampc.Generator().manual_seed(3)
        x, w, seed = (ampc.randn(*s, generator=g).to(dtype).requires_grad_()
                      for s in [(images, channels, side, side), (outs, channels, 3, 3), (images, outs, side, side)])
        y = ampc.nn.functional.conv2d(x, w, padding=1)
        y.backward(seed.detach())
        found.append((y.detach(), x.grad, w.grad))
    for got, exact, terms in zip(*found, (channels * 9, outs * 9, images * side * side)):
        assert rounding_of(got, exact) < math.sqrt((BLOCK + terms / 128) / 6)


@pytest.mark.cpu
def test_products_deeper_than_a_million():
    """Of a right operand in two parts, one column alone is more than what is packed at once."""
    a, b = ampc.ones(5, 2**20, dtype=ampc.float16) / 64, ampc.ones(2**20, 7, dtype=ampc.float16)
    assert (a @ b).unique().tolist() == [2.0**14]


@pytest.mark.cpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("sizes", [(64, 510, 64), (16, 33, 20), (48, 300, 130), (256, 500, 40), (300, 70, 64)], ids=str)
def test_columns_and_rows_of_a_left_operand_give_the_same_sums(sizes, dtype):
    """A weight's gradient has columns, which are read where they lie, or packed another way than rows: the same bits, but for
    deeper products (test_deep_products.py)."""
    m, k, n = sizes
    g, x = ampc.randn(k, m).to(getattr(ampc, dtype)), ampc.randn(k, n).to(getattr(ampc, dtype))
    rows = g.t().contiguous()
    assert ampc.mm(g.t(), x).equal(ampc.mm(rows, x)) and ampc.mm(g[:, 3:].t(), x).equal(ampc.mm(rows[3:], x))
    assert ampc.mm(ampc.cat([g, g], 1)[:, :m].t(), x).equal(ampc.mm(rows, x))


PARTS = {"whole": lambda x: x, "every second column": lambda x: x[:, ::2], "every third row": lambda x: x[::3], "wide rows": lambda x: x[:, 5:],
           "rows that overlap": lambda x: x.as_strided((x.shape[0] // 2, 258), (2, 1)), "two dimensions": lambda x: x.unflatten(0, (10, -1))[:, 1:]}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int64", "bool"])
@pytest.mark.parametrize("which", PARTS)
@pytest.mark.parametrize("width", [4, 63, 64, 130, 300])
def test_sums_of_columns(which, width, dtype):
    """Whole numbers, whose sums are exact: rows are read one by one or several at a time, in place or converted."""
    x = ampc.randint(-2, 3, (300, width)).to(getattr(ampc, dtype))
    x = PARTS[which](x)
    dims = tuple(range(x.ndim - 1))
    want = as_array(x).astype(float)
    assert np.array_equal(as_array(x.sum(dims, dtype=ampc.float32 if x.dtype in (ampc.bfloat16, ampc.float16) else None)), want.sum(dims))
    assert np.array_equal(as_array(x.amax(dims)), want.max(dims))


@pytest.mark.cpu
@pytest.mark.parametrize("which", PARTS)
@pytest.mark.parametrize("width", [5, 64, 200, 300])
def test_sums_of_columns_of_bfloat16_are_those_of_float32(which, width):
    """bfloat16 is summed where it lies: the same sums, bit for bit, as of its values in float32; infinities and nans in their columns."""
    x = (ampc.randn(300, width) * 10.0 ** ampc.randint(-20, 20, (300, width))).to(ampc.bfloat16)
    x[7, 1], x[9, 2], x[11, 3] = float("inf"), float("nan"), -0.0
    x = PARTS[which](x)
    dims = tuple(range(x.ndim - 1))
    for f in (ampc.sum, ampc.mean):
        assert np.array_equal(f(x, dims, dtype=ampc.float32).numpy(), f(x.float().clone(), dims).numpy(), equal_nan=True)
    assert ampc.isnan(x.sum(dims)).any() == ampc.isnan(x).any()


@pytest.mark.parametrize("every", [2, 7, 1000])
def test_bits_of_rounded_numbers(every):
    """float32 to bfloat16: ties go to even, and a nan keeps the upper bits of its payload, however many of the numbers are nan."""
    bits = np.random.default_rng(every).integers(0, 1 << 32, 100_003, dtype=np.uint32)
    bits[1::3] = bits[1::3] & 0xFFFF0000 | 0x8000
    bits[::every] = bits[::every] & 0x807FFFFF | 0x7F800000
    got = ampc.from_numpy(bits.view(np.float32).copy()).to(ampc.get_default_device()).to(ampc.bfloat16)
    want = (bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)
    nan = np.isnan(bits.view(np.float32))
    want[nan] = bits[nan] >> 16 | 0x40
    assert np.array_equal(got.cpu().view(ampc.int16).numpy().view(np.uint16), want)
