"""Floating point formats side by side: their range, their precision, and the unit that multiplies them on this machine."""

from __future__ import annotations

import math
from typing import Any, List, NamedTuple

from . import _C, cuda
from ._messages.table import html_table, text_lines

_ROWS = (("float64", 11, 52), ("float32", 8, 23), ("tf32", 8, 10), ("bfloat16", 8, 7), ("float16", 5, 10))  # bits of exponent and fraction


class Format(NamedTuple):
    """(-1)^sign * 2^(exponent - bias) * (1 + fraction); IEEE 754, tf32 and bfloat16 alike."""

    name: str
    bytes: int  # in memory
    exponent: int  # bits
    fraction: int  # bits
    hardware: str  # what multiplies it on this machine

    @property
    def bias(self) -> int:
        """Of the exponent."""
        return 2 ** (self.exponent - 1) - 1

    @property
    def max(self) -> float:
        """The largest number."""
        return (2 - 2.0**-self.fraction) * 2.0**self.bias

    @property
    def smallest_normal(self) -> float:
        """Below it digits are lost."""
        return 2.0 ** (1 - self.bias)

    @property
    def smallest_subnormal(self) -> float:
        """Below half of it is 0."""
        return self.smallest_normal * 2.0**-self.fraction

    @property
    def digits(self) -> float:
        """Decimal ones."""
        return (self.fraction + 1) * math.log10(2)


class Formats:
    """The table, as text, HTML and picture; ``rows`` holds a ``Format`` each."""

    def __init__(self) -> None:
        self.rows = [Format(name, {"float64": 8, "float32": 4, "tf32": 4}.get(name, 2), exponent, fraction, hardware_of(name))
                     for name, exponent, fraction in _ROWS]

    def _cells(self) -> List[List[str]]:
        heads = ["format", "bytes", "exponent + fraction bits", "largest", "smallest normal", "smallest", "digits", "products here"]
        return [heads, *([f.name, str(f.bytes), f"{f.exponent} + {f.fraction}", f"{f.max:.5g}", f"{f.smallest_normal:.3g}",
                          f"{f.smallest_subnormal:.3g}", f"{f.digits:.1f}", f.hardware] for f in self.rows)]

    def __str__(self) -> str:
        return "\n".join(text_lines(self._cells(), {0, 7}))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(self._cells(), {0, 7})

    def save(self, path: Any) -> None:
        """Draws the ranges into a picture file. ImportError without matplotlib."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 3.4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        shown = [f for f in self.rows if f.name != "float64"]  # whose range would leave no room for the others
        for y, f in enumerate(shown):
            low, normal, high = (math.log2(v) for v in (f.smallest_subnormal, f.smallest_normal, f.max))
            axes.barh(y, normal - low, left=low, height=0.55, color="#d98c00", label="subnormal: digits are lost" if y == 0 else None)
            axes.barh(y, high - normal, left=normal, height=0.55, color="#30506e", label="normal" if y == 0 else None)
            axes.text(high + 3, y, f"{f.max:.5g}\n{f.digits:.1f} digits", va="center", fontsize=8)
        axes.set_yticks(range(len(shown)), [f.name for f in shown])
        axes.invert_yaxis()
        axes.set_xlim(-155, 175)
        axes.set_xticks(range(-140, 141, 20), [f"$2^{{{e}}}$" for e in range(-140, 141, 20)])
        axes.set_title("what the formats hold", loc="left", fontsize=10)
        axes.grid(axis="x", alpha=0.25)
        figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
        figure.savefig(path, dpi=110)


def hardware_of(name: str) -> str:
    """What multiplies a format on this machine."""
    if cuda.is_available():
        if name == "tf32":
            return "tensor cores" if cuda.is_tf32_supported() else "none"
        return "tensor cores" if name == "float16" or (name == "bfloat16" and cuda.is_bf16_supported()) else "CUDA cores"
    if name == "tf32":
        return "none"
    if name in ("float64", "float32"):
        return "vector units"
    return "the CPU's 16-bit units" if _C._has_units(getattr(_C, name)) else "vector units, in float32"


def formats() -> Formats:
    """The formats that mixed precision mixes, and float64: range, digits, hardware."""
    return Formats()
