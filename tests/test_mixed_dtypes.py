"""Operands of several dtypes beside torch: numbers sought among integers, the weight of a mean, bytes read as truth values."""

from typing import Any

import pytest
from test_corners import FLOATS, NAN, same
from where import DEVICE

import ampc


@pytest.mark.parametrize("number", [2.5, 0.5, 1, 1.0, True, -1, NAN])
@pytest.mark.parametrize("right", [True, False])
def test_a_number_among_integers_in_order(number, right):
    """2.5 lies behind 2: it is not rounded to the dtype of what it is sought in."""
    for dtype in ("int8", "int16", "int64", "float16", "float32"):
        same(lambda lib: lib.searchsorted(lib.tensor([0, 1, 2, 4], dtype=getattr(lib, dtype)), number, right=right))  # noqa: B023
        same(lambda lib: lib.bucketize(number, lib.tensor([0, 1, 2, 4], dtype=getattr(lib, dtype)), right=right))  # noqa: B023


@pytest.mark.parametrize("weight", FLOATS)
@pytest.mark.parametrize("dtype", [*FLOATS, "int64"])
def test_the_one_weight_of_a_mean_has_any_dtype(dtype, weight):
    def mixed(lib: Any, in_place: bool = False) -> Any:
        x, end, w = lib.tensor([1, 2, 3]).to(getattr(lib, dtype)), lib.tensor([5, 6, 9]).to(getattr(lib, dtype)), lib.tensor(0.25).to(getattr(lib, weight))
        return x.lerp_(end, w) if in_place else x.lerp(end, w)

    same(mixed)
    if dtype != "int64":
        same(lambda lib: mixed(lib, in_place=True))


def test_gradients_of_the_one_weight_of_a_mean():
    def gradients(lib: Any) -> Any:
        x, w = lib.tensor([1.0, 2.0, 3.0], requires_grad=True), lib.tensor(0.25, dtype=lib.float64, requires_grad=True)
        x.lerp(lib.tensor([5.0, 6.0, 9.0]), w).square().sum().backward()
        assert w.grad.dtype == lib.float64 and x.grad.dtype == lib.float32
        return lib.cat([x.grad.double(), w.grad.reshape(1)])

    same(gradients)


@pytest.mark.parametrize("other", ["int16", "int64", "float32", "float16", "int8"])
def test_integers_wrap_in_their_own_dtype_before_out_holds_them(other):
    for name in ("sub", "add", "mul"):
        same(lambda lib: getattr(lib, name)(lib.tensor([10, 200], dtype=lib.uint8), lib.tensor([13, 100], dtype=lib.uint8),  # noqa: B023
                                            out=lib.empty(2, dtype=getattr(lib, other))))
    same(lambda lib: lib.neg(lib.tensor([-128, 1], dtype=lib.int8), out=lib.empty(2, dtype=lib.int8)))


@pytest.mark.parametrize("default", ["float32", "float64"])
def test_numbers_alone_have_the_default_dtype(default):
    before = ampc.get_default_dtype()
    try:
        ampc.set_default_dtype(getattr(ampc, default))
        for a, b in ((1, 1.0), (1.0, 2.0), (True, 1.0)):
            assert ampc.result_type(a, b) is ampc.result_type(b, a) is getattr(ampc, default)
    finally:
        ampc.set_default_dtype(before)
    assert ampc.result_type(1, True) is ampc.int64 and ampc.result_type(ampc.tensor(1.0, dtype=ampc.float64), 1.0) is ampc.float64


TRUTHS = ["x.sum()", "x.int()", "x.float()", "x.cumsum(0)", "x.cumprod(0)", "x.cummax(0)[1]", "x.cummin(0)[1]", "x.sort()[0].int()", "x.amax().int()",
          "x.logical_not().int()", "x == y", "x.eq(True)", "x > y", "(x | y).int()", "(x ^ y).int()", "(x & y).int()", "x + y.float()", "x * 2.5", "x + y.long()",
          "x.repeat(40) * lib.ones(320, device=x.device)", "lib.where(x, 1.0, 2.0)", "x.unique().int()", "x.count_nonzero()", "x.prod()", "x.any()", "x.all()"]


@pytest.mark.parametrize("expression", TRUTHS)
def test_a_byte_above_1_is_true_as_1_is(torch, expression):
    def found(lib, device):
        x = lib.tensor([1, 0, 2, 3, 0, 255, 0, 4], dtype=lib.uint8, device=device).view(lib.bool)
        got = eval(expression, {"lib": lib, "x": x, "y": lib.tensor([1, 1, 0, 1] * 2, device=device) > 0})
        return got.tolist(), str(got.dtype).rpartition(".")[2]

    assert found(ampc, DEVICE) == found(torch, "cpu")
