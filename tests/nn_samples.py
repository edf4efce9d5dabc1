"""Samples of neural networks' operators that are written with other operators: see samples.py."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
from references import ints, positive, real, spread
from sample import F, Sample

DROPOUTS = ["dropout1d", "dropout2d", "dropout3d", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"]
SIZES = {1: (7,), 2: (6, 5), 3: (4, 5, 3)}


def each(name: str, make: Callable[[str, int, tuple], list]) -> dict:
    """Samples of an operator's forms for one, two and three dimensions, by their names and sizes."""
    return {f"{name}{nd}d": make(f"{name}{nd}d", nd, size) for nd, size in SIZES.items()}


def as_pixels(x: Any, r: int) -> Any:
    n, c, h, w = x.shape
    return x.reshape(n, c // r**2, r, r, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // r**2, h * r, w * r)


def as_channels(x: Any, r: int) -> Any:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // r, r, w // r, r).transpose(0, 1, 3, 5, 2, 4).reshape(n, c * r * r, h // r, w // r)


def resized(x: Any, size: Any, a: Any, b: Any, c: Any, mode: str, corners: bool, antialias: bool) -> Any:
    smooth = mode in ("linear", "bilinear", "trilinear", "bicubic")
    return F("interpolate")(x, size, None, mode, corners if smooth else None, antialias=antialias)


def padded(x: Any, before: list, after: list, *more: Any) -> Any:
    return F("pad")(x, [n for pair in zip(before, after) for n in pair], *more)


DRAWN = np.random.default_rng(2).random

NN = {
    "fractional_max_pool": [Sample((spread(2, 3, *size), DRAWN((2, 3, len(size))), [2] * len(size), [3] * len(size)), torch=lambda x, draws, kernel, size:
                            F(f"fractional_max_pool{len(size)}d")(x, kernel, size, None, True, draws.detach()), torch_grad=False) for size in ((6, 5), (5, 6, 7))],
    # -- convolution
    **each("conv", lambda f, nd, size: [
        Sample((real(2, 4, *size), real(6, 2, *[2] * nd), real(6), 1, "same", 1, 2), torch=F(f)),
        Sample((real(4, *size), real(3, 4, *[2] * nd), None, [2] * nd, 1), torch=F(f), grad=False)]),
    **each("conv_transpose", lambda f, nd, size: [Sample((real(2, 3, *size), real(3, 4, *[3] * nd), real(4), 2, 1, 1), torch=F(f), grad=nd < 3)]),
    "conv_tbc": [Sample((real(6, 2, 3), real(3, 3, 4), real(4), 1))],
    "unfold_columns": [Sample((real(2, 3, 5, 4), 2, 1, 1, 2), torch=F("unfold"))],
    "fold": [Sample((real(2, 12, 12), (5, 4), 2), torch=F("fold"))],
    # -- pooling
    **each("max_pool", lambda f, nd, size: [Sample((spread(2, 2, *size), 2, None, 1, 1, True, True), torch=F(f)), Sample((spread(2, *size), [2] * nd, 1), torch=F(f))]),
    **each("adaptive_max_pool", lambda f, nd, size: [Sample((spread(2, 2, *size), 2, True), torch=F(f))]),
    **each("max_unpool", lambda f, nd, size: [Sample((spread(1, 2, *[2] * nd), np.arange(2**nd)[::-1].copy().reshape([1, 1] + [2] * nd).repeat(2, 1), 2), torch=F(f))]),
    **each("avg_pool", lambda f, nd, size: [Sample((real(2, 2, *size), 2, None, 1, True, False), torch=F(f)), Sample((real(2, *size), [3] * nd, 2), torch=F(f))]),
    **each("adaptive_avg_pool", lambda f, nd, size: [Sample((real(2, 2, *size), 2), torch=F(f))]),
    **each("lp_pool", lambda f, nd, size: [Sample((real(2, 2, *size), 2.0, 2), torch=F(f), grad=nd < 3)]),
    # -- resampling
    "pad": [Sample((real(2, 3, 4), [1, -1], [2, 2], "constant", 0.5), torch=padded, reference=lambda x, a, b, m, v: np.pad(x[:, 1:], [(0, 0), (0, 2), (1, 2)], constant_values=v)),
            *(Sample((real(2, 3, 4), [1, 1], [2, 0], mode), torch=padded if mode != "circular" else None,
                     reference=lambda x, a, b, m: np.pad(x, [(0, 0), (1, 0), (1, 2)], {"replicate": "edge", "reflect": "reflect", "circular": "wrap"}[m]))
              for mode in ("reflect", "replicate", "circular"))],
    "interpolate": [Sample((real(2, 2, *SIZES[nd]), [4] * nd, None, None, None, mode, corners, False), torch=resized)
                    for nd, mode, corners in ((1, "nearest", False), (2, "nearest-exact", False), (1, "linear", True), (2, "bilinear", False), (3, "trilinear", False),
                                              (2, "bicubic", True), (2, "area", False))]
    + [Sample((real(1, 2, 6, 5), [4, 9], None, None, None, "bicubic", False, True), torch=resized)],
    "grid_sample": [Sample((real(2, 2, 4, 5), real(2, 3, 2, 2) * 0.7, mode, padding, corners), torch=F("grid_sample"), half=False, grad=mode != "nearest")
                    for mode, padding, corners in (("bilinear", "zeros", False), ("nearest", "border", True), ("bicubic", "reflection", True), ("bilinear", "reflection", False))],
    "affine_grid": [Sample((real(2, 2, 3), [2, 3, 4, 5], True), torch=F("affine_grid")), Sample((real(2, 3, 4), [2, 3, 4, 1, 2]), torch=F("affine_grid"))],
    "pixel_shuffle": [Sample((real(2, 8, 3, 2), 2), reference=as_pixels)],
    "pixel_unshuffle": [Sample((real(2, 2, 6, 4), 2), reference=as_channels)],
    "channel_shuffle": [Sample((real(2, 6, 3), 3), reference=lambda x, g: x.reshape(2, 3, 2, 3).swapaxes(1, 2).reshape(2, 6, 3))],
    # -- normalisation
    "local_response_norm": [Sample((real(2, 5, 4), 3, 0.1), torch=F("local_response_norm"))],
    "rms_norm": [Sample((real(3, 4), [4], real(4), 1e-3), torch=F("rms_norm"), reference=lambda x, n, w, e: x / np.sqrt((x * x).mean(1, keepdims=True) + e) * w)],
    "instance_norm_tracked": [Sample((real(2, 3, 4), None, None, real(3), real(3)), torch=F("instance_norm")),
                              Sample((real(2, 3, 4), real(3), positive(3), real(3), real(3), False), torch=F("instance_norm"), frozen=(1, 2))],
    **{name: [Sample((real(2, 3, 4), 0.5, False), reference=lambda x, p, training: x, torch=None)] for name in DROPOUTS},
    "rrelu": [Sample((real(3, 4), 0.2, 0.6), reference=lambda x, low, high: np.where(x > 0, x, 0.4 * x))],
    # -- embedding
    "embedding_rows": [Sample((ints(5, 2, 4), real(5, 3)), torch=F("embedding")), Sample((ints(5, 2, 4), real(5, 3), -2), torch=F("embedding"), grad=False)],
    "embedding_bag": [Sample((ints(5, 2, 4), real(5, 3)), {"mode": mode}, torch=F("embedding_bag"), half=mode == "max") for mode in ("mean", "sum", "max")]
    + [Sample((ints(5, 6), real(5, 3), np.array([0, 2, 2, 6])), {"mode": mode, "include_last_offset": True, "padding_idx": 1}, torch=F("embedding_bag"), half=mode == "max")
       for mode in ("mean", "sum", "max")]
    + [Sample((ints(5, 6), real(5, 3), np.array([0, 4])), {"mode": "sum", "per_sample_weights": real(6)}, torch=F("embedding_bag"), half=False)],
    "one_hot": [Sample((ints(5, 3, 2), 6), reference=lambda x, n: np.eye(n, dtype=int)[x], torch=F("one_hot")), Sample((np.array([2, 0]),), torch=F("one_hot"))],
    # -- losses
    "mse_loss_weighted": [Sample((real(3, 4), real(3, 4)), {"weight": positive(3, 4), "reduction": r}, torch=F("mse_loss"), frozen=("weight",)) for r in ("none", "mean", "sum")],
}
