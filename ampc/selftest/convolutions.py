"""Trials of convolutions. The references go tap by tap in NumPy, as no kernel does."""

from __future__ import annotations

import itertools
import math
from typing import Any, Dict, Iterator, Sequence, Tuple

import numpy as np

import ampc
from ampc.nn import functional as F

from .bounded import Bounded, times
from .data import Draw, Trial


class Windows:
    """The geometry of a convolution in up to three dimensions. Arrays are [images, groups, channels of a group, positions...], weights [groups,
    outs of a group, channels of a group, taps...]."""

    def __init__(self, size: Sequence[int], kernel: Sequence[int], stride: int, padding: int, dilation: int) -> None:
        self.size, self.kernel, self.stride, self.padding, self.dilation = tuple(size), tuple(kernel), stride, padding, dilation
        self.out = tuple((s + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for s, k in zip(size, kernel))

    def _taps(self) -> Iterator[Tuple[Tuple[int, ...], Tuple[Any, ...]]]:
        """Each tap, and where it falls on the padded input."""
        for tap in itertools.product(*(range(k) for k in self.kernel)):
            begin = [t * self.dilation for t in tap]
            yield tap, (Ellipsis, *(slice(b, b + self.stride * (o - 1) + 1, self.stride) for b, o in zip(begin, self.out)))

    def _padded(self, x: np.ndarray) -> np.ndarray:
        return np.pad(x, [(0, 0)] * 3 + [(self.padding, self.padding)] * len(self.size))

    def _flat(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(*x.shape[:3], -1)

    def forward(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        padded = self._padded(x)
        y = sum(times(w[(slice(None),) * 3 + tap], self._flat(padded[at])) for tap, at in self._taps())
        return np.asarray(y).reshape(*x.shape[:2], w.shape[1], *self.out)

    def turned(self, g: np.ndarray, w: np.ndarray) -> np.ndarray:
        """The adjoint of `forward`: the input's gradient, or a transposed convolution."""
        padded = np.zeros((*g.shape[:2], w.shape[2], *(s + 2 * self.padding for s in self.size)))
        for tap, at in self._taps():
            part = times(w[(slice(None),) * 3 + tap].swapaxes(-1, -2), self._flat(g))
            padded[at] += part.reshape(padded[at].shape)
        inside: Tuple[Any, ...] = (Ellipsis, *(slice(self.padding, self.padding + s) for s in self.size))
        return padded[inside]

    def weight(self, x: np.ndarray, g: np.ndarray) -> np.ndarray:
        padded, dw = self._padded(x), np.zeros((g.shape[1], g.shape[2], x.shape[2], *self.kernel))
        for tap, at in self._taps():
            dw[(slice(None),) * 3 + tap] = times(self._flat(g), self._flat(padded[at]).swapaxes(-1, -2)).sum(0)
        return dw


def convolution(d: Draw, channels: int, outs: int, size: Sequence[int], kernel: Sequence[int], images: int = 1, stride: int = 1, padding: int = 0,
                dilation: int = 1, groups: int = 1, transposed: bool = False, channels_last: bool = False, special: bool = False,
                heavy: bool = False) -> Trial:
    """A convolution from ``channels`` to ``outs`` with a bias, and its gradients. ``size`` is of the plain convolution's input, which a transposed
    one gives back. ``special``: there is an infinity in the input. ``heavy``: it is the weight whose numbers have many bits."""
    w = Windows(size, kernel, stride, padding, dilation)
    terms = max(images * math.prod(w.out), max(channels, outs) // groups * math.prod(kernel) + 1)
    sides = (channels, w.size), (outs, w.out)
    (x_channels, x_size), (y_channels, y_size) = sides[::-1] if transposed else sides
    x = d.drawn(0 if heavy else terms, images, groups, x_channels // groups, *x_size)
    g, b = d.few(images, groups, y_channels // groups, *y_size), d.few(y_channels)
    weight = d.drawn(terms if heavy else 0, groups, outs // groups, channels // groups, *kernel)
    if special:
        x[-1, 0, 0] = np.inf
    merge, name = (lambda a: a.reshape(a.shape[0], -1, *a.shape[3:])), f"conv{'_transpose' if transposed else ''}{len(size)}d"

    leaf, taps, bias, slope = d.tensor(merge(x)), d.tensor(weight.reshape(outs, -1, *kernel), True), d.tensor(b, True), d.tensor(merge(g))
    if channels_last:
        leaf, slope = (t.contiguous(memory_format=ampc.channels_last) for t in (leaf, slope))
    leaf.requires_grad_()
    more: Dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if transposed:
        more["output_padding"] = [s - ((o - 1) * stride - 2 * padding + dilation * (k - 1) + 1) for s, o, k in zip(w.size, w.out, kernel)]

    def compute() -> Dict[str, Any]:
        leaf.grad = taps.grad = bias.grad = None
        y = getattr(F, name)(leaf, taps, bias, **more)
        y.backward(slope)
        return {"result": y, "gradient of the input": leaf.grad, "gradient of the weight": taps.grad, "gradient of the bias": bias.grad}

    def expect() -> Dict[str, Bounded]:
        y, dx = (w.turned(x, weight), w.forward(g, weight)) if transposed else (w.forward(x, weight), w.turned(g, weight))
        dw = w.weight(g, x) if transposed else w.weight(x, g)
        shift = b.reshape(-1, *[1] * len(size))
        return {"result": d.exact(merge(y) + shift), "gradient of the input": d.exact(merge(dx)),
                "gradient of the weight": d.exact(dw.reshape(taps.shape)), "gradient of the bias": d.exact(merge(g).sum((0, *range(2, g.ndim - 1))))}

    def expect_special() -> Dict[str, Bounded]:
        with np.errstate(invalid="ignore"):
            return expect()

    return Trial(compute, expect_special if special else expect)


def weight_bits(d: Draw, channels: int, outs: int, size: Sequence[int], kernel: Sequence[int]) -> Trial:
    """A weight's float32 gradient from 16-bit numbers whose first and last bits are set.

    A CPU that multiplies float16 in two parts needs all four products for them. Only eight values of an input channel are not 0, so sums
    are exact."""
    w = Windows(size, kernel, 1, 1, 1)
    x, g = d.full(1, 1, channels, *size), d.full(1, 1, outs, *w.out)
    flat = x.reshape(channels, -1)
    flat[d.random.random(flat.shape).argsort(1) >= 8] = 0
    leaf, slope, taps = d.tensor(x[0]), d.tensor(g[0]), d.tensor(np.zeros((outs, channels, *kernel)), True, "float32")

    def compute() -> Dict[str, Any]:
        taps.grad = None
        with ampc.autocast(d.device, dtype=getattr(ampc, d.dtype)):
            y = F.conv2d(leaf, taps, padding=1)
        y.backward(slope)
        return {"gradient of the weight": taps.grad}

    return Trial(compute, lambda: {"gradient of the weight": d.exact(w.weight(x, g).reshape(taps.shape), "float32")})
