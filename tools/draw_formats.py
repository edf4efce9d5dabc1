"""Draws docs/formats.png: which numbers the formats hold, and how far apart neighbouring numbers are.

    python tools/draw_formats.py
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ampc.formats import formats

COLOURS = {"float32": "#30506e", "bfloat16": "#2e7d4f", "float16": "#d98c00"}
POWERS = range(-30, 21)  # of the second picture


def spacing(form: Any, power: int) -> float:
    """Between the numbers from 2**power on; nan outside the format's range."""
    if not form.smallest_subnormal <= 2.0**power <= form.max:
        return math.nan
    return max(2.0 ** (power - form.fraction), form.smallest_subnormal)


def draw_ranges(axes: Any, shown: list) -> None:
    for y, form in enumerate(shown):
        low, normal, high = (math.log2(v) for v in (form.smallest_subnormal, form.smallest_normal, form.max))
        axes.barh(y, high - normal, left=normal, height=0.55, color=COLOURS[form.name])
        axes.barh(y, normal - low, left=low, height=0.55, color=COLOURS[form.name], alpha=0.35)
        axes.text(high + 4, y, f"up to {form.max:.5g}", va="center", fontsize=8)
    axes.set_yticks(range(len(shown)), [form.name for form in shown])
    axes.invert_yaxis()
    axes.set_xlim(-155, 190)
    axes.set_xticks(range(-140, 141, 40), [f"$2^{{{power}}}$" for power in range(-140, 141, 40)])
    axes.set_title("range: in the pale part numbers have fewer digits; below it, they become 0", loc="left", fontsize=9)
    axes.grid(axis="x", alpha=0.25)


def draw_spacings(axes: Any, shown: list) -> None:
    numbers = [2.0**power for power in POWERS]
    for form in shown:
        axes.step(numbers, [spacing(form, power) for power in POWERS], where="post", color=COLOURS[form.name], label=form.name, linewidth=2)
        at = spacing(form, 9)
        axes.annotate(f"{at:.2g}", (1000, at), textcoords="offset points", xytext=(5, 12 if form.name == "bfloat16" else -14), fontsize=8, color=COLOURS[form.name])
    axes.axvline(1000, color="black", alpha=0.4, linestyle=":", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks([2.0**power for power in range(-30, 21, 5)])
    axes.set_yticks([2.0**power for power in range(-50, 11, 10)])
    axes.set_title("spacing: how far the next number is; the labels are for 1000", loc="left", fontsize=9)
    axes.set(xlabel="number", ylabel="distance to the next")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)


def main() -> None:
    shown = [form for form in formats().rows if form.name in COLOURS]
    figure = Figure(figsize=(8, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, height_ratios=[1, 2.2])
    draw_ranges(above, shown)
    draw_spacings(below, shown)
    figure.savefig(Path(__file__).resolve().parent.parent / "docs" / "formats.png", dpi=90)


if __name__ == "__main__":
    main()
