"""Random sizes for `ampc selftest --long`."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import numpy as np

from .convolutions import convolution
from .data import Trial
from .layers import attention, norm, recurrence, rows
from .passes import adamw, elementwise, reduction, scan
from .products import linear, product, trained
from .running import ALL, FLOATS, HALVES, Case

Random = np.random.Generator
Drawn = Tuple[str, Callable[..., Trial], Tuple[str, ...], Dict[str, Any]]  # kernel, trial, dtypes, sizes


def _size(r: Random, most: int) -> int:
    """From 1 to ``most``, small ones as likely as large ones, and those around multiples of 16 likely."""
    n = int(np.exp(r.uniform(0, np.log(most + 1))))
    return max(1, min(most, n if r.random() < 0.5 else (n + 15) // 16 * 16 + int(r.integers(-1, 2))))


def _coin(r: Random) -> bool:
    return bool(r.random() < 0.5)


def _product(r: Random) -> Drawn:
    sizes = {"m": _size(r, 700), "k": _size(r, 700), "n": _size(r, 700), "batch": _size(r, 4) if _coin(r) else 0,
             "a_turned": _coin(r), "b_turned": _coin(r)}
    return "product", product, ALL, sizes


def _linear(r: Random) -> Drawn:
    return "linear", linear, ALL, {"rows": 2 * _size(r, 200), "inputs": _size(r, 700), "outputs": _size(r, 700), "apart": _coin(r)}


def _trained(r: Random) -> Drawn:
    return "linear, trained", trained, HALVES, {"rows": _size(r, 200), "inputs": _size(r, 500), "outputs": _size(r, 500)}


def _convolution(r: Random) -> Drawn:
    dims = int(r.choice([1, 2, 2, 2, 3]))
    positions = {1: 4000, 2: 64, 3: 14}[dims]
    groups = int(r.choice([1, 1, 1, 2, 4]))
    depthwise = bool(r.random() < 0.2)
    kernel = tuple(int(r.integers(1, 5)) for _ in range(dims))
    dilation = int(r.integers(1, 3))
    reach = [dilation * (k - 1) for k in kernel]
    size = tuple(max(_size(r, positions), n + 1) for n in reach)
    channels, outs = (groups * _size(r, 1 if depthwise else 70) for _ in range(2))
    sizes = {"channels": channels, "outs": outs, "size": size, "kernel": kernel, "images": _size(r, 12), "stride": int(r.integers(1, 4)),
             "padding": int(r.integers(0, min(reach) // 2 + 1)), "dilation": dilation, "groups": groups, "transposed": _coin(r),
             "channels_last": dims == 2 and _coin(r)}
    return "convolution", convolution, FLOATS, sizes


def _attention(r: Random) -> Drawn:
    n, causal = _size(r, 300), _coin(r)
    return "attention", attention, ALL, {"items": _size(r, 6), "queries": n, "keys": n if causal else _size(r, 300), "width": _size(r, 80),
                                         "causal": causal, "masked": "" if causal else str(r.choice(["", "keeps", "added", "each"]))}


def _recurrence(r: Random) -> Drawn:
    return "recurrence", recurrence, ALL, {"mode": str(r.choice(["RNN", "GRU", "LSTM"])), "steps": _size(r, 4), "batch": _size(r, 40),
                                           "inputs": _size(r, 40), "units": _size(r, 60), "both": _coin(r), "packed": _coin(r)}


def _norm(r: Random) -> Drawn:
    kind, groups = str(r.choice(["layer", "batch", "group"])), _size(r, 5)
    shape = (1 + _size(r, 20), groups * _size(r, 12), *(8 + _size(r, 70) for _ in range(int(r.integers(1, 3)))))
    return "norm", norm, ALL, {"kind": kind, "shape": shape, "groups": groups, "apart": _coin(r)}


def _pass(r: Random) -> Drawn:
    drawn: List[Drawn] = [
        ("elementwise", elementwise, ALL, {"n": _size(r, 300000)}),
        ("reduction", reduction, ALL, {"shape": (_size(r, 400), _size(r, 400), _size(r, 20)), "axis": (int(r.integers(0, 3)),)}),
        ("running totals", scan, ALL, {"rows": _size(r, 200), "n": _size(r, 2000)}),
        ("softmax", rows, ALL, {"count": _size(r, 200), "n": _size(r, 2000), "apart": _coin(r)}),
        ("optimizer", adamw, ("float64", "float32"), {"shape": (_size(r, 400), _size(r, 400))}),
    ]
    return drawn[int(r.integers(len(drawn)))]


KERNELS = (_product, _linear, _trained, _convolution, _convolution, _convolution, _attention, _recurrence, _norm, _pass)


def draw_case(seed: int, known: Dict[str, Tuple[str, ...]], device: str) -> Tuple[Case, str]:
    """A case and its dtype; ``known`` has the ways that each kernel may enter."""
    r = np.random.default_rng(seed)
    kernel, trial, dtypes, sizes = KERNELS[int(r.integers(len(KERNELS)))](r)
    if device != "cpu" and kernel == "recurrence":
        dtypes = tuple(t for t in dtypes if t not in HALVES)  # whose steps round between their operators there
    return Case(f"{kernel}, drawn", trial, known.get(kernel, ()), sizes, dtypes), str(r.choice(dtypes))
