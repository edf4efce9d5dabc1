"""Tables of resampling. Each result is a weighted sum of values, given by the arrays index (int64) and weight (float64), [results, taps].

An index outside the input adds nothing. Each table comes with that of its adjoint, so that gradients are resamplings, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, List, Optional, Tuple

import numpy as np


def _adjoint(index: np.ndarray, weight: np.ndarray, size: int) -> Tuple[np.ndarray, np.ndarray]:
    """For each value, the results that it goes into."""
    out = np.repeat(np.arange(len(index)), index.shape[1])
    at, w = index.ravel(), weight.ravel()
    used = (at >= 0) & (at < size) & (w != 0)
    out, at, w = out[used], at[used], w[used]
    order = np.argsort(at, kind="stable")
    out, at, w = out[order], at[order], w[order]
    counts = np.bincount(at, minlength=size)
    back = np.full((size, max(1, counts.max(initial=0))), -1, dtype=np.int64)
    back_weight = np.zeros(back.shape)
    slot = np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)
    back[at, slot], back_weight[at, slot] = out, w
    return back, back_weight


def _filled(rows: List[Tuple[int, int]], weights: Callable[[int, int, int], Any]) -> Tuple[np.ndarray, np.ndarray]:
    """Rows of neighbours begin..end-1, with weights(row, begin, end)."""
    taps = max([1] + [end - begin for begin, end in rows])
    index, weight = np.full((len(rows), taps), -1, dtype=np.int64), np.zeros((len(rows), taps))
    for o, (begin, end) in enumerate(rows):
        n = max(0, end - begin)
        index[o, :n], weight[o, :n] = np.arange(begin, begin + n), weights(o, begin, end)
    return index, weight


def _window_sums(what: str, size: int, window: int, step: int, around: int, ceil_mode: bool, count_pad: bool,
                 divisor: Optional[float]) -> Tuple[np.ndarray, np.ndarray]:
    reach = size + 2 * around - window
    if reach < 0:
        raise RuntimeError(f"{what}: a window of {window} is larger than {size} values with padding {around} on both sides")
    n = (reach + (step - 1 if ceil_mode else 0)) // step + 1
    if ceil_mode and (n - 1) * step >= size + around:
        n -= 1
    starts = [o * step - around for o in range(n)]

    def weight(o: int, begin: int, end: int) -> float:
        if divisor is not None:
            return 1.0 / divisor
        return 1.0 / (min(starts[o] + window, size + around) - starts[o] if count_pad else end - begin)

    return _filled([(max(s, 0), min(s + window, size)) for s in starts], weight)


def _adaptive(size: int, out: int) -> Tuple[np.ndarray, np.ndarray]:
    return _filled([(o * size // out, -(-(o + 1) * size // out)) for o in range(out)], lambda o, begin, end: 1.0 / (end - begin))


def _nearest(size: int, out: int, scale: float, half: float) -> Tuple[np.ndarray, np.ndarray]:
    at = np.floor((np.arange(out, dtype=np.float32) + np.float32(half)) * np.float32(scale)).astype(np.int64)
    return np.minimum(at, size - 1)[:, None], np.ones((out, 1))


def _linear(size: int, out: int, scale: float, corners: bool) -> Tuple[np.ndarray, np.ndarray]:
    at = np.arange(out) * scale if corners else np.maximum((np.arange(out) + 0.5) * scale - 0.5, 0.0)
    low = np.minimum(at.astype(np.int64), size - 1)
    part = np.where(low < size - 1, at - low, 0.0)
    return np.stack([low, np.minimum(low + 1, size - 1)], 1), np.stack([1 - part, part], 1)


def _cubic_weight(x: np.ndarray, a: float) -> np.ndarray:
    """Keys' convolution kernel (1981)."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _cubic(size: int, out: int, scale: float, corners: bool) -> Tuple[np.ndarray, np.ndarray]:
    at = np.arange(out) * scale if corners else (np.arange(out) + 0.5) * scale - 0.5
    low = np.floor(at).astype(np.int64)
    taps = low[:, None] + np.arange(-1, 3)
    return np.clip(taps, 0, size - 1), _cubic_weight(at[:, None] - taps, -0.75)


def _smoothed(size: int, out: int, scale: float, corners: bool, cubic: bool) -> Tuple[np.ndarray, np.ndarray]:
    """The filter stretched to the scale when it shrinks, as PIL does."""
    stretch = max(scale, 1.0)
    support = (2.0 if cubic else 1.0) * stretch
    centre = [scale * (o + 0.5) for o in range(out)]
    rows = [(max(int(c - support + 0.5), 0), min(int(c + support + 0.5), size)) for c in centre]

    def weight(o: int, begin: int, end: int) -> np.ndarray:
        x = (np.arange(begin, end) - centre[o] + 0.5) / stretch
        w = _cubic_weight(x, -0.5) if cubic else np.maximum(1 - np.abs(x), 0.0)
        return w / (w.sum() or 1.0)

    return _filled(rows, weight)


def _merged(kind: str, *arguments: Any) -> Tuple[np.ndarray, np.ndarray]:
    """A table in which no result reads a value twice: beyond an edge the edge's value stands again."""
    index, weight = _KINDS[kind](*arguments)
    for tap in range(1, index.shape[1]):
        twice = index[:, tap] == index[:, tap - 1]
        weight[twice, tap] += weight[twice, tap - 1]
        weight[twice, tap - 1] = 0
    return index, weight


def weight_bits(table: Tuple[Any, ...]) -> int:
    """How many bits after the point a table's weights may have so that the largest fits 16 bits."""
    largest, bits = float(_merged(*table)[1].max()), 0
    while bits < 22 and int(0.5 + largest * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    return bits


def _in_bits(bits: int, kind: str, *arguments: Any) -> Tuple[np.ndarray, np.ndarray]:
    """A table's weights as whole numbers, that many binary places moved."""
    index, weight = _merged(kind, *arguments)
    return index, np.trunc(weight * 2.0**bits + np.where(weight < 0, -0.5, 0.5))


_KINDS: dict[str, Callable[..., Any]] = {"sums": _window_sums, "adaptive": _adaptive, "nearest": _nearest, "linear": _linear,
                                           "cubic": _cubic, "smoothed": _smoothed, "bits": _in_bits}


def with_adjoint(table: Tuple[Any, ...], size: int) -> List[np.ndarray]:
    """The table named by (kind, arguments), and its adjoint's for ``size`` values."""
    index, weight = _KINDS[table[0]](*table[1:])
    return [np.ascontiguousarray(a) for a in (index, weight, *_adjoint(index, weight, size))]


def around(mode: str, size: int, before: int, after: int) -> np.ndarray:
    """Where the values around ``size`` of them come from."""
    if mode == "circular":  # negative numbers cut first, and what is left repeats
        first, size = max(-before, 0), size - max(-before, 0) - max(-after, 0)
        if max(before, after) > max(size, 0):
            raise RuntimeError(f"pad: circular padding of {max(before, after)} is more than the {max(size, 0)} values that it repeats")
        return first + np.arange(-max(before, 0), size + max(after, 0)) % max(size, 1)
    positions = np.arange(-before, size + after)
    if mode == "replicate":
        return np.clip(positions, 0, size - 1)
    if max(before, after) > size - 1:
        raise RuntimeError(f"pad: reflect padding of {max(before, after)} is more than the {size - 1} that {size} values allow")
    return size - 1 - np.abs(size - 1 - np.abs(positions))


def grid_positions(size: Sequence[int], corners: bool) -> np.ndarray:
    """(x, y[, z], 1) of every position of a grid over [-1, 1]: [positions, dimensions + 1]."""
    axes = []
    for n in size:
        axis = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
        axes.append(axis if corners else axis * (n - 1) / n)
    return np.stack([*np.meshgrid(*axes, indexing="ij")][::-1] + [np.ones(tuple(size))], -1).reshape(-1, len(size) + 1)
