"""Shows the overflow ledger: as text, in a notebook, as a picture."""

from __future__ import annotations

import base64
import html
import io
import math
from typing import TYPE_CHECKING, Any, List

from .._messages.table import html_table, text_lines

if TYPE_CHECKING:
    from .ledger import Gradient, Step

ROWS = 12  # of a table
COLOURS = {"scale": "#d98c00", "model": "#c0232c", "divergence": "#7b3fb5", "leftover": "#2a6fb0"}
MEANING = {"scale": "the scale was too high, which does no harm", "model": "the model overflows its dtype", "divergence": "training diverges",
           "leftover": "gradients of a skipped step were not cleared"}


class LedgerReport:
    """A view of ``scaler.ledger``."""

    def __init__(self, scaler: Any) -> None:
        self.ledger, self._scale = scaler.ledger, scaler.get_scale()

    def _rows(self) -> List[List[str]]:
        """One a skipped step: of many the first, which those that follow may come of, and the last ones."""
        skipped = self.ledger.skipped
        shown = skipped if len(skipped) <= ROWS else [skipped[0], *skipped[1 - ROWS:]]
        return [_row(step, self.ledger.cause(step)[0]) for step in shown]

    def _left_out(self) -> List[str]:
        """A sentence on the skipped steps that have no row."""
        n = len(self.ledger.skipped) - ROWS
        steps = "1 skipped step is" if n == 1 else f"{n} skipped steps are"
        return [f"{steps} left out between the first one and the last {ROWS - 1}; scaler.ledger.skipped has all"] if n > 0 else []

    def _heading(self) -> str:
        total, kept, skipped = self.ledger.total, len(self.ledger), len(self.ledger.skipped)
        if not total:
            return "GradScaler: no step yet"
        of = f"the last {kept} of {total} steps" if total > kept else f"{total} step{'s' if total > 1 else ''}"
        return f"GradScaler: {of}, {skipped} skipped ({100 * skipped / kept:.1f} %); the scale is {self._scale:.8g}"

    def _causes(self) -> List[str]:
        """Each cause once, with its latest sentence."""
        latest = dict(self.ledger.cause(step) for step in self.ledger.skipped)
        return [f"{cause}: {text}" for cause, text in latest.items()]

    def _ranges(self) -> str:
        found = self.ledger.ranges()
        if not found:
            return ""
        low, high, step = max(found, key=lambda g: g.underflow), max(found, key=lambda g: g.amax), self.ledger.latest[0]
        small = (f"{low.name} has the most values below float16's normal range, {100 * low.underflow:.2g} %" if low.underflow
                 else "no value is below float16's normal range")
        largest = high.amax * step.scale
        room = (f"{largest:.3g}, which float32 holds; float16 would hold up to 65504" if largest > 65504
                else f"{largest:.3g}, {65504 / largest:.2g} times below float16's largest number" if largest else "0")
        return (f"step {step.number}, the last applied: the largest gradient value is {high.amax:.3g}, in {high.name}; multiplied by the scale "
                f"it was {room}; {small}")

    def __str__(self) -> str:
        lines = [self._heading()]
        rows = self._rows()
        if rows:
            lines += text_lines([HEADER, *rows], WORDS)
        lines += [*self._left_out(), *self._causes()]
        return "\n".join([line for line in [*lines, self._ranges()] if line])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{html.escape(self._heading())}</b></p>"]
        rows = self._rows()
        if rows:
            parts.append(html_table([HEADER, *rows], WORDS))
        parts += [f"<p>{html.escape(line)}</p>" for line in [*self._left_out(), *self._causes(), self._ranges()] if line]
        if len(self.ledger):
            try:
                picture = base64.b64encode(self._png()).decode()
                parts.append(f"<img alt='scale and gradient ranges' style='max-width:100%' src='data:image/png;base64,{picture}'>")
            except ImportError:
                parts.append("<p>no picture: install matplotlib</p>")
        return "".join(parts)

    def _png(self) -> bytes:
        out = io.BytesIO()
        self._draw(out)
        return out.getvalue()

    def save(self, path: Any) -> None:
        """Draws the scale's history with skipped steps marked, and gradients against float16's range, into a picture file. ImportError
        without matplotlib."""
        self._draw(path)

    def _draw(self, to: Any) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        ranges = self.ledger.ranges()[:30]
        figure = Figure(figsize=(9, 3.2 + 0.22 * max(len(ranges), 4)), layout="constrained")
        FigureCanvasAgg(figure)
        above, below = figure.subplots(2, 1, height_ratios=[2.4, 0.6 + 0.2 * max(len(ranges), 4)])
        self._draw_scale(above)
        _draw_ranges(below, ranges, self.ledger.latest[0].scale if self.ledger.latest else 1.0)
        figure.savefig(to, format="png" if isinstance(to, io.BytesIO) else None, dpi=110)

    def _draw_scale(self, axes: Any) -> None:
        steps = self.ledger[:]
        axes.step([s.number for s in steps], [s.scale for s in steps], where="post", color="#30506e", linewidth=1.5)
        causes: dict = {}
        for s in steps:
            if s.skipped:
                causes.setdefault(self.ledger.cause(s)[0], []).append(s)
        for cause, some in causes.items():
            axes.plot([s.number for s in some], [s.scale for s in some], "x", color=COLOURS[cause], markersize=7, markeredgewidth=2,
                      label=f"skipped ({len(some)}): {MEANING[cause]}")
        axes.set_yscale("log", base=2)
        axes.set_title(self._heading(), fontsize=10, loc="left")
        axes.set_xlabel("step")
        axes.set_ylabel("loss scale")
        axes.grid(alpha=0.25)
        if causes:
            axes.legend(fontsize=8, framealpha=0.9)


HEADER = ["step", "loss", "scale", "norm", "lr", "cause", "first parameter", "inf", "nan", "at"]
WORDS = {5, 6, 9}  # columns that are no numbers, and stand to the left


def _row(step: Step, cause: str) -> List[str]:
    g = step.culprit
    where = ["", str(step.infs), str(step.nans), ""]
    if g is not None:
        where = [g.name, str(g.infs), str(g.nans), str(list(g.first_bad)) if g.first_bad is not None else ""]
    return [str(step.number), f"{step.loss:.4g}", f"{step.scale:.8g}", f"{step.grad_norm:.4g}", f"{step.lr:.3g}", cause, *where]


def _draw_ranges(axes: Any, ranges: List[Gradient], scale: float) -> None:
    """Largest values as float16 sees them, scaled, against its range."""
    smallest, normal, largest = 2.0**-24, 2.0**-14, 65504.0
    axes.axvspan(normal, largest, color="#2e7d4f", alpha=0.15, label="float16's normal numbers")
    axes.axvspan(smallest, normal, color="#d98c00", alpha=0.15, label="its subnormal ones: digits are lost")
    for y, g in enumerate(ranges):
        bad = g.infs + g.nans > 0
        if g.amax > 0 and math.isfinite(g.amax):
            axes.plot([g.amax * scale], [y], "x" if bad else "o", color="#c0232c" if bad else "#30506e", markersize=5)
        axes.text(0.995, y, f"{100 * g.underflow:.0f} % low", transform=axes.get_yaxis_transform(), ha="right", va="center", fontsize=7)
    axes.set_xscale("log", base=2)
    axes.set_xlim(2.0**-30, 2.0**22)
    axes.set_ylim(-0.7, max(len(ranges), 1) - 0.3)
    axes.invert_yaxis()
    axes.set_yticks(range(len(ranges)), [g.name for g in ranges], fontsize=7)
    axes.set_xlabel("largest gradient value of the last applied step, scaled")
    axes.grid(axis="x", alpha=0.25)
    axes.legend(fontsize=7, loc="lower left", framealpha=0.9)
