"""Operands of several dtypes beside torch: numbers sought among integers, the weight of a mean."""

from typing import Any

import pytest
from test_corners import FLOATS, NAN, same


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
