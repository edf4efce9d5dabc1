"""Numbers for trials.

Kernels that add products get whole numbers, so small that every sum is exact. A right result is then the exact one, rounded once. A
missing, doubled or misplaced term shows, however many terms there are."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, NamedTuple

import numpy as np

import ampc

from .bounded import Bounded, accumulator, nearest

DIGITS = {"float64": 20, "float32": 16, "bfloat16": 8, "float16": 11, "int64": 20}  # bits of whole numbers that are drawn
EXACT = {"float64": 2.0**52, "float32": 2.0**24, "bfloat16": 2.0**24, "float16": 2.0**15.9, "int64": 2.0**52}  # what sums stay below


class Trial(NamedTuple):
    """A kernel's call, and what it should give: each may be asked for without the other."""

    compute: Callable[[], Dict[str, Any]]
    expect: Callable[[], Dict[str, Bounded]]


class Draw:
    """Random numbers of a dtype, on a device."""

    def __init__(self, dtype: str, seed: int, device: str = "cpu") -> None:
        self.dtype, self.device, self.random = dtype, device, np.random.default_rng(seed)

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """Where the core's own random numbers are those of this seed; the generator goes on as if nothing had been."""
        with ampc.random.fork_rng():
            ampc.manual_seed(int(self.random.integers(1 << 30)))
            yield

    def tensor(self, values: np.ndarray, grad: bool = False, dtype: str = "") -> Any:
        """A tensor of these values, which the dtype can hold."""
        t = ampc.tensor(np.ascontiguousarray(values), dtype=getattr(ampc, dtype or self.dtype), device=self.device)
        return t.requires_grad_() if grad else t

    def few(self, *shape: int) -> np.ndarray:
        """Of -2, -1, 0, 1, 2."""
        return self.random.integers(-2, 3, shape).astype(np.float64)

    def many(self, terms: int, *shape: int) -> np.ndarray:
        """Whole numbers with as many bits as sums of ``terms`` of their products with `few` leave exact."""
        if self.dtype == "float16":  # results must not overflow; random signs keep sums below 8 standard deviations
            most = EXACT["float16"] / (2 * 8 * math.sqrt(terms))
        else:
            most = EXACT[self.dtype] / (2 * terms)
        most = max(1, min(int(most), 2 ** DIGITS[self.dtype]))
        return self.random.integers(-most, most + 1, shape).astype(np.float64)

    def drawn(self, terms: int, *shape: int) -> np.ndarray:
        """`many` for so many terms; `few` for none."""
        return self.many(terms, *shape) if terms else self.few(*shape)

    def full(self, *shape: int) -> np.ndarray:
        """Whole numbers of the dtype whose first and last bits are set: sums of up to 8 of their products are exact in float32."""
        last = 1 + 2 * self.random.integers(0, 4, shape)
        return self.random.choice([-1.0, 1.0], shape) * (2.0 ** (DIGITS[self.dtype] - 1) + last)

    def held(self, values: np.ndarray) -> np.ndarray:
        """The numbers of the dtype nearest to these."""
        return values if self.dtype == "float64" else nearest(values.astype(np.float32), self.dtype)

    def reals(self, *shape: int) -> np.ndarray:
        """Normal numbers that the dtype holds."""
        return self.held(self.random.standard_normal(shape))

    def exact(self, value: np.ndarray, dtype: str = "") -> Bounded:
        """A result that is rounded once."""
        return Bounded(value).rounded(dtype or self.dtype)

    def part(self, b: Bounded) -> Bounded:
        """What one kernel of the CPU keeps in its accumulators, and on a GPU goes from operator to operator, rounded."""
        return b if self.device == "cpu" else b.rounded(self.dtype)

    def given(self, value: np.ndarray) -> Bounded:
        """An operand as it is."""
        return Bounded(value, 0.0, accumulator(self.dtype))
