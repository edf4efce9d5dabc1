"""Gradients of small weights, whose depth threads share (csrc/cpu/gemm/deep.c): right, and the same bits at any number of threads."""

import pytest
from references import SEED

import ampc

pytestmark = pytest.mark.cpu

# rows of the batch, which are the depth; inputs and outputs of the layer
SIZES = [(512, 64, 64), (1100, 60, 70), (1000, 128, 128), (4100, 33, 48)]
DTYPES = [ampc.float32, ampc.bfloat16, ampc.float16]


@pytest.fixture
def drawn():
    ampc.manual_seed(SEED)
    threads = ampc.get_num_threads()
    yield lambda size, dtype: (ampc.randn(size[0], size[1]).to(dtype), ampc.randn(size[0], size[2]).to(dtype))
    ampc.set_num_threads(threads)


def deep(f, *args, **kwargs):
    """What f gives; threads must have shared a product's depth."""
    ampc._C._reset_ways()
    result = f(*args, **kwargs)
    assert "product_deep" in {way["name"] for way in ampc._C._ways() if way["entered"]}
    return result


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_against_float64_at_any_number_of_threads(size, dtype, drawn):
    x, g = drawn(size, dtype)
    want, magnitudes = g.double().t() @ x.double(), g.double().abs().t() @ x.double().abs()
    for out_dtype in (ampc.float32, dtype):
        results = []
        for threads in (1, 2, 3):
            ampc.set_num_threads(threads)
            results.append(deep(ampc.mm, g.t(), x, out_dtype=out_dtype))
        assert all(r.equal(results[0]) for r in results)
        sums = size[0] ** 0.5 * ampc.finfo(ampc.float32).eps * magnitudes
        assert ((results[0].double() - want).abs() <= sums + ampc.finfo(out_dtype).eps / 2 * want.abs()).all()


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_it_adds_to_a_gradient_that_is_there(size, drawn):
    x, g = drawn(size, ampc.float32)
    w = ampc.randn(size[2], size[1], requires_grad=True)
    ampc.nn.functional.linear(x, w).backward(g)
    once = w.grad.clone()
    deep(ampc.nn.functional.linear(x, w).backward, g)
    assert w.grad.equal(once + once)


def test_bits_do_not_depend_on_a_copy_of_the_right_operand(drawn):
    """Of a weight that is multiplied by activations that lie in columns."""
    x, w = drawn((1024, 64, 48), ampc.float32)
    w.requires_grad_()
    with ampc.no_grad(), ampc.autocast("cpu", dtype=ampc.bfloat16):
        kept = [deep(ampc.mm, x.t(), w) for _ in range(4)]
        ampc.set_autocast_cache_enabled(False)
        try:
            packed = ampc.mm(x.t(), w)
        finally:
            ampc.set_autocast_cache_enabled(True)
    assert all(k.equal(packed) for k in kept)


@pytest.mark.parametrize("threads", [1, 2])
def test_missing_memory_is_told(threads, drawn):
    """Whichever allocation fails, of any thread, and the next call is right."""
    x, g = drawn((2100, 64, 64), ampc.float32)
    want = ampc.mm(g.t(), x)
    ampc.set_num_threads(threads)
    errors = 0
    for nth in range(1, 40):
        got = want
        ampc._C._fail_alloc(nth)
        try:
            got = ampc.mm(g.t(), x)
        except MemoryError:
            errors += 1
        finally:
            ampc._C._fail_alloc(0)
        assert got.equal(want)
    assert errors >= 5 and ampc.mm(g.t(), x).equal(want)  # the result, the parts' sums, and what some parts pack
