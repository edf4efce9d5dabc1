"""Float64 references with a bound on the error of a right result: running error analysis (Wilkinson, 1963).

An operation adds the errors of its operands and one unit in the last place of its accumulator. So a bound follows from dtypes and numbers
of terms alone."""

from __future__ import annotations

from typing import Any, Optional, Tuple, Union

import numpy as np

from .._tensor import creation as make

UNITS = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10, "int64": 0.0}  # the last place of a number at 1
LEAST = {"float64": 2.0**-1074, "float32": 2.0**-149, "bfloat16": 2.0**-133, "float16": 2.0**-24, "int64": 0.0}  # the smallest positive number
Array = Union[np.ndarray, float]
LARGE = 1 << 17  # multiplications


def accumulator(dtype: str) -> float:
    """The unit of what the kernels for ``dtype`` add up in: float32, unless it is float64."""
    return UNITS["float64" if dtype == "float64" else "float32"]


def times(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a b in float64. Large ones on the core's threads, where BLAS takes them, no kernel of ours; NumPy's own would fight with these for the
    cores."""
    if max(a.size * b.shape[-1], b.size * a.shape[-2]) < LARGE:
        return a @ b
    left, right = (make.tensor(np.ascontiguousarray(x), device="cpu") for x in (a, b))
    return np.asarray((left @ right).numpy())


class Bounded:
    """``value``, of which a right result is at most ``error`` away."""

    __slots__ = ("value", "error", "unit")

    def __init__(self, value: Any, error: Array = 0.0, unit: float = UNITS["float32"]) -> None:
        self.value, self.error, self.unit = np.asarray(value, dtype=np.float64), error, unit

    def _made(self, value: np.ndarray, error: Array, lost: float = 1.0) -> Bounded:
        """A result that is rounded, to ``lost`` units."""
        return Bounded(value, error + lost * self.unit * np.abs(value), self.unit)

    def _of(self, other: Any) -> Bounded:
        return other if isinstance(other, Bounded) else Bounded(other, 0.0, self.unit)

    # -- arithmetic ------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Bounded:
        o = self._of(other)
        return self._made(self.value + o.value, self.error + o.error)

    def __sub__(self, other: Any) -> Bounded:
        o = self._of(other)
        return self._made(self.value - o.value, self.error + o.error)

    def __mul__(self, other: Any) -> Bounded:
        o = self._of(other)
        return self._made(self.value * o.value, np.abs(self.value) * o.error + (np.abs(o.value) + o.error) * self.error)

    def __matmul__(self, other: Bounded) -> Bounded:
        """Four products for each, as where a CPU multiplies float16 in two parts."""
        n = 4 * (self.value.shape[-1] + 1) * self.unit
        left, right = np.abs(self.value), np.abs(other.value)
        error = n / (1 - n) * times(left, right)
        if np.ndim(other.error):
            error = error + times(left, np.asarray(other.error))
        if np.ndim(self.error):
            error = error + times(np.broadcast_to(self.error, left.shape), right + other.error)
        return Bounded(times(self.value, other.value), error, self.unit)

    def sum(self, axis: Union[int, Tuple[int, ...]], keepdims: bool = False) -> Bounded:
        n = self.value.size / max(1, self.value.sum(axis).size) * self.unit
        error = np.broadcast_to(self.error, self.value.shape) + n / (1 - n) * np.abs(self.value)
        return Bounded(self.value.sum(axis, keepdims=keepdims), error.sum(axis, keepdims=keepdims), self.unit)

    def mean(self, axis: Union[int, Tuple[int, ...]], keepdims: bool = False) -> Bounded:
        total = self.sum(axis, keepdims)
        return total * (total.value.size / self.value.size)

    # -- functions: their derivative times the operand's error, and the units that the kernels' own ones lose --------

    def reciprocal(self) -> Bounded:
        """Of what is away from 0."""
        return self._made(1 / self.value, self.error / (np.abs(self.value) * (np.abs(self.value) - self.error)))

    def sqrt(self) -> Bounded:
        root = np.sqrt(self.value)
        return self._made(root, self.error / np.where(root > 0, root, 1.0))

    def exp(self) -> Bounded:
        value = np.exp(self.value)
        return self._made(value, value * np.expm1(self.error), 4)

    def tanh(self) -> Bounded:
        return self._made(np.tanh(self.value), self.error, 4)

    def sigmoid(self) -> Bounded:
        return Bounded(0.5 + 0.5 * np.tanh(self.value / 2), 0.25 * self.error + 4 * self.unit, self.unit)

    def larger(self, other: Bounded) -> Bounded:
        return Bounded(np.maximum(self.value, other.value), np.maximum(self.error, other.error), self.unit)

    def rounded(self, dtype: str) -> Bounded:
        """To the nearest of a dtype: half a unit, or half the smallest number."""
        lost = UNITS[dtype] / 2 * (np.abs(self.value) + self.error)
        return Bounded(self.value, self.error + lost + LEAST[dtype] / 2, self.unit)

    # -- positions ------------------------------------------------------------------------------------------------

    def _each(self, move: Any) -> Bounded:
        error = move(np.broadcast_to(self.error, self.value.shape)) if np.ndim(self.error) else self.error
        return Bounded(move(self.value), error, self.unit)

    def __getitem__(self, index: Any) -> Bounded:
        return self._each(lambda a: a[index])

    def reshape(self, *shape: int) -> Bounded:
        return self._each(lambda a: a.reshape(shape))

    def moved(self, *axes: int) -> Bounded:
        return self._each(lambda a: a.transpose(axes))

    @property
    def turned(self) -> Bounded:
        """With the last two dimensions exchanged."""
        return self._each(lambda a: a.swapaxes(-1, -2))

    def where(self, kept: np.ndarray) -> Bounded:
        """0, exactly, elsewhere."""
        return Bounded(np.where(kept, self.value, 0.0), np.where(kept, self.error, 0.0), self.unit)

    def or_else(self, kept: np.ndarray, other: Bounded) -> Bounded:
        """``other`` elsewhere."""
        errors = (np.broadcast_to(b.error, b.value.shape) for b in (self, other))
        return Bounded(np.where(kept, self.value, other.value), np.where(kept, *errors), self.unit)

    # -- judging -------------------------------------------------------------------------------------------------

    def distance(self, got: np.ndarray) -> float:
        """How far ``got`` is at most, in units of its bound: right up to 1. Infinities and nans have to be where they belong."""
        if got.shape != self.value.shape:
            return float("inf")
        same = (got == self.value) | (np.isnan(got) & np.isnan(self.value))
        with np.errstate(invalid="ignore", divide="ignore"):
            units = np.where(same, 0.0, np.abs(got - self.value) / self.error)
        return float(np.where(np.isnan(units), np.inf, units).max(initial=0.0))


def stacked(items: Any, axis: int = 0) -> Bounded:
    """Bounded arrays beside each other."""
    errors = np.stack([np.broadcast_to(b.error, b.value.shape) for b in items], axis)
    return Bounded(np.stack([b.value for b in items], axis), errors, items[0].unit)


def joined(items: Any, axis: int) -> Bounded:
    """Bounded arrays one after another."""
    errors = np.concatenate([np.broadcast_to(b.error, b.value.shape) for b in items], axis)
    return Bounded(np.concatenate([b.value for b in items], axis), errors, items[0].unit)


def nearest(x: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers of a dtype nearest to float32 numbers, ties to even: NumPy's rounding, not the core's."""
    if dtype == "float16":
        with np.errstate(over="ignore", invalid="ignore"):
            return x.astype(np.float16).astype(np.float64)
    if dtype == "bfloat16":
        bits = x.astype(np.float32).view(np.uint32)
        rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
        return np.where(np.isnan(x), np.nan, rounded).astype(np.float64)
    with np.errstate(invalid="ignore"):  # of a signalling nan
        return x.astype(np.float64)


def softmax(x: Bounded, kept: Optional[np.ndarray] = None) -> Bounded:
    """Along the last dimension, over what is kept; every row keeps something."""
    kept = np.ones(x.value.shape, bool) if kept is None else kept
    top = np.where(kept, x.value, -np.inf).max(-1, keepdims=True)
    e = (x - top).where(kept).exp().where(kept)
    return e * e.sum(-1, keepdims=True).reciprocal()
