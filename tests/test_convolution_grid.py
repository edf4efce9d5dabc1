"""Convolutions of the sizes that networks have, in every dtype, as machines of every size of cache would run them.

Operands are whole numbers from -4 to 4, and no sum has more than 2^20 terms: float32 holds every partial sum, of 2^24 at most, exactly, in
whatever order it is added up. What remains is the one rounding to the result's dtype, so results equal those of float64, which shares no
code with them: it goes by columns and BLAS.

A run draws some of the geometries. AMPC_EXAMPLES is how many (all there are, if it is as much), and AMPC_TEST_SEED repeats a draw.
"""

import contextlib
import os
import random
from typing import Any, Dict, Iterator, List, NamedTuple

import numpy as np
import pytest
from references import DRAWN as SEED

import ampc

DTYPES = (ampc.float32, ampc.bfloat16, ampc.float16)
CACHES = tuple(kib << 10 for kib in (128, 256, 512, 1024, 2048, 65536))  # of second level
SIZES = (7, 8, 10, 14, 16, 20, 28, 32, 33, 40, 56, 57, 64, 112, 128, 224)
CHANNELS = (16, 17, 20, 24, 32, 40, 48, 64, 96, 128, 160, 192, 256, 384, 512)
ALL = 480  # geometries, as many of each size: 1,440 cases with the dtypes
MOST_TERMS = 1 << 20  # of a sum: the weight's gradient adds up all positions
MOST_WORK = 60e6  # multiplications of a forward pass; float64 does three passes of them, and every dtype and cache as well
MOST_VALUES = 4e6  # of the input and of the result


class Geometry(NamedTuple):
    images: int
    channels: int
    outs: int
    size: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    groups: int

    @property
    def side(self) -> int:
        """Positions of the result along each dimension."""
        return (self.size + 2 * self.padding - self.dilation * (self.kernel - 1) - 1) // self.stride + 1

    @property
    def options(self) -> Dict[str, int]:
        return {"stride": self.stride, "padding": self.padding, "dilation": self.dilation, "groups": self.groups}


def drawn(rng: np.random.Generator, size: int) -> Geometry:
    kernel, dilation = int(rng.integers(1, 8)), int(rng.choice((1, 1, 1, 2, 3)))
    channels, outs = (int(rng.choice(CHANNELS)) for _ in range(2))
    groups = int(rng.choice((*12 * (1,), 2, 2, 4, 8, channels)))
    outs = channels if groups > 2 else outs
    reach = dilation * (kernel - 1)
    padding = int(rng.choice((0, reach // 2, reach // 2, reach)))
    return Geometry(int(rng.integers(1, 10)), channels, outs, size, kernel, int(rng.choice((1, 1, 2, 3))), padding, dilation, groups)


def fits(g: Geometry) -> bool:
    positions, taps = g.images * g.side ** 2, g.channels // g.groups * g.kernel ** 2
    values = max(g.images * g.channels * g.size ** 2, positions * g.outs)
    whole_groups = g.channels % g.groups == 0 == g.outs % g.groups
    return g.side > 0 and whole_groups and positions <= MOST_TERMS and values <= MOST_VALUES and positions * g.outs * taps <= MOST_WORK


def grid() -> Iterator[Geometry]:
    """The same always."""
    rng, found = np.random.default_rng(1440), set()
    for size in SIZES:
        while len(found) < ALL // len(SIZES) * (SIZES.index(size) + 1):
            g = drawn(rng, size)
            if fits(g) and g not in found:
                found.add(g)
                yield g


GRID = list(grid())
SOME = random.Random(SEED).sample(GRID, min(ALL, int(os.environ.get("AMPC_EXAMPLES", "40"))))


@contextlib.contextmanager
def second_level(cache: int) -> Iterator[None]:
    before = ampc._C._machine()["l2_bytes"]
    ampc._C._pretend_machine(l2_bytes=cache)
    yield
    ampc._C._pretend_machine(l2_bytes=before)


def whole(*shape: int) -> ampc.Tensor:
    """Numbers that every dtype holds."""
    return ampc.tensor(np.random.default_rng([SEED, *shape]).integers(-4, 5, shape).astype(np.float32))


def results(g: Geometry, dtype: Any) -> Dict[str, ampc.Tensor]:
    x, w, b = (whole(*shape).to(dtype).requires_grad_() for shape in (
        (g.images, g.channels, g.size, g.size), (g.outs, g.channels // g.groups, g.kernel, g.kernel), (g.outs,)))
    y = ampc.nn.functional.conv2d(x, w, b, **g.options)
    y.backward(whole(*y.shape).to(dtype))
    return {"forward": y.detach(), "gradient of the input": x.grad, "of the weight": w.grad, "of the bias": b.grad}


def wrong(g: Geometry, caches: Any = CACHES) -> List[str]:
    """What differs from float64."""
    want, found = results(g, ampc.float64), []
    for cache in caches:
        with second_level(cache):
            for dtype in DTYPES:
                found += [f"{name} in {dtype} at {cache >> 10} KiB" for name, got in results(g, dtype).items() if not got.equal(want[name].to(dtype))]
    return found


@pytest.mark.parametrize("geometry", SOME, ids=lambda g: "-".join(map(str, g)))
def test_a_convolution_and_its_gradients_equal_those_of_float64(geometry: Geometry) -> None:
    assert not wrong(geometry), f"AMPC_TEST_SEED={SEED} repeats this"
