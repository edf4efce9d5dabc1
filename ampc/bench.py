"""Measures steps of a model in float32, tf32, bfloat16, and float16 with a scaler: time, memory, error, and the share of the device's peak.

Use ``ampc bench`` or ``ampc.bench.bench(model, batch, loss_fn, optimizer)``."""

from __future__ import annotations

import functools
import html
import json
import math
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from . import _C, cuda, nn, optim
from ._messages.progress import Progress
from ._messages.table import html_table, text_lines
from ._tensor import creation as make
from .autograd import no_grad
from .doctor import guard
from .doctor._watcher import Watcher
from .doctor.explain import multiplications
from .doctor.precision_advisor import Advice, Subject, measure, tf32

F = nn.functional
PEAK_SIZE, PEAK_SECONDS = 1024, 0.4  # of the products that the device's peak is measured by
DISTURBED = 1.2  # of the peak: no step is that fast
COLOURS = {"float32": "#7a8896", "tf32": "#5f8f6b", "bfloat16": "#30506e", "float16": "#d98c00"}


class Row(NamedTuple):
    """Steps in one precision."""

    precision: str
    seconds: float  # a step, the median
    throughput: float  # samples a second
    peak_bytes: int
    error: float  # of the first step's gradients against float32's, relative in their norm
    flops: float  # a second, of its products alone
    peak_flops: float  # that one large product of that precision reaches here

    @property
    def share(self) -> float:
        """Of the peak; nan where it was not measured."""
        return self.flops / self.peak_flops if self.peak_flops > 0 else math.nan


class Bench:
    """``rows``, the ``verdict``, and why; text, HTML, ``save(picture)``, ``to_json()``."""

    def __init__(self, name: str, samples: int, multiplications: int, peaks: Dict[str, float], advice: Advice) -> None:
        self.name, self.samples, self.multiplications, self.advice = name, samples, multiplications, advice
        self.rows = [Row(t.precision, t.seconds, samples / t.seconds, t.peak_bytes, t.gradient_error, 2 * multiplications / t.seconds,
                         peaks.get(t.precision, 0.0)) for t in advice.trials.values()]

    @property
    def verdict(self) -> str:
        """Whether mixed precision pays here."""
        return self.advice.verdict

    @property
    def why(self) -> str:
        """What bounds the gain: products, which 16 bits make faster, and the rest, which they do not."""
        base = self.rows[0]
        products = min(base.share, 1.0)
        if not self.multiplications or math.isnan(products):
            return "There are no matrix products in a step, so 16 bits gain only by moving less memory."
        sentences = [f"At the device's peak the products of a float32 step would take {100 * products:.0f} % of its time."]
        faster = [r for r in self.rows[1:] if r.peak_flops and r.precision not in self.advice.without_units]
        if faster:
            fastest = max(faster, key=lambda r: r.peak_flops)
            gain = fastest.peak_flops / base.peak_flops
            if gain > 1:
                sentences.append(f"{fastest.precision} multiplies {gain:.1f} times as fast, so a step could fall to "
                                 f"{1 - products + products / gain:.2f} of float32's time if all else took as long as now.")
            else:
                sentences.append(f"{fastest.precision} did not multiply faster when its peak was measured.")
        if any(r.share > DISTURBED for r in self.rows):
            sentences.append("Something else used this machine: a step was faster than the peak that was measured. Measure again when it is quiet.")
        return " ".join([*sentences, *([self.advice.worth] if self.advice.worth else [])])

    def _cells(self) -> List[List[str]]:
        base = self.rows[0]
        rows = [["precision", "ms a step", "of float32", "samples/s", "peak MB", "gradient error", "GFLOP/s", "of peak"]]
        for r in self.rows:
            off = f"{100 * r.error:.2g} %" if r is not base else ""
            rows.append([r.precision, f"{1e3 * r.seconds:.3f}", f"{r.seconds / base.seconds:.2f}", f"{r.throughput:.0f}", f"{r.peak_bytes / 1e6:.2f}",
                         off, f"{r.flops / 1e9:.1f}", f"{100 * r.share:.0f} %" if r.share <= DISTURBED else ""])
        return rows

    def __str__(self) -> str:
        return "\n".join([f"{self.name} on {self.advice.hardware}", *text_lines(self._cells(), {0}), self.verdict, self.why])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return (f"<p><b>{html.escape(self.name)}</b> on {html.escape(self.advice.hardware)}</p>{html_table(self._cells(), {0})}"
                f"<p>{html.escape(self.verdict)}</p><p>{html.escape(self.why)}</p>")

    def to_json(self) -> str:
        """All numbers; those that are not finite as null."""
        rows = [{**r._asdict(), "share": r.share} for r in self.rows]
        clean = [{k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in r.items()} for r in rows]
        return json.dumps({"name": self.name, "hardware": self.advice.hardware, "samples": self.samples, "multiplications": self.multiplications,
                           "rows": clean, "verdict": self.verdict, "why": self.why}, indent=2)

    def save(self, path: Any) -> None:
        """Draws time and memory by precision into a picture file. ImportError without matplotlib."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 3), layout="constrained")
        FigureCanvasAgg(figure)
        names, colours = [r.precision for r in self.rows], [COLOURS.get(r.precision, "#30506e") for r in self.rows]
        parts = (("ms a step", [1e3 * r.seconds for r in self.rows], "{:.3g}"), ("peak MB", [r.peak_bytes / 1e6 for r in self.rows], "{:.3g}"),
                 ("% of the precision's peak", [0.0 if math.isnan(r.share) else 100 * r.share for r in self.rows], "{:.0f}"))
        for axes, (title, values, form) in zip(figure.subplots(1, 3), parts):
            bars = axes.bar(names, values, color=colours)
            axes.bar_label(bars, [form.format(v) for v in values], fontsize=8)
            axes.set_title(title, fontsize=9, loc="left")
            axes.tick_params(axis="x", labelsize=8)
            axes.margins(y=0.15)
        figure.suptitle(f"{self.name} on {self.advice.hardware}", fontsize=10)
        figure.savefig(path, dpi=110)


class _Products(Watcher):
    """Counts the multiplications of this thread's products, forward and backward."""

    count = 0

    def _saw(self, op: str, inputs: tuple, outputs: tuple, low: Any, onto: bool, nanoseconds: int) -> None:
        floats = [t for t in inputs if t is not None and t.is_floating_point() and t.ndim]
        if floats:
            self.count += multiplications(op, floats, outputs)


@functools.cache
def peak_flops(precision: str, device: Any = None) -> float:
    """Floating point operations a second that products of 1024 x 1024 reach: the best of 0.4 seconds of them, measured once."""
    a, b = (make.randn(PEAK_SIZE, PEAK_SIZE, device=device) for _ in range(2))
    if precision in ("float16", "bfloat16"):
        a, b = (t.to(getattr(_C, precision)) for t in (a, b))
    best, begin = math.inf, time.perf_counter()
    with no_grad(), tf32(precision == "tf32"):
        while time.perf_counter() - begin < PEAK_SECONDS or best == math.inf:
            before = time.perf_counter()
            for _ in range(4):
                a @ b
            cuda.synchronize()
            best = min(best, (time.perf_counter() - before) / 4)
    return 2 * PEAK_SIZE**3 / best


def bench(model: Any, batch: Any, loss_fn: Callable[..., Any], optimizer: Any, *, steps: int = 10, name: Optional[str] = None,
          progress: bool = False) -> Bench:
    """Measures steps of a model in each precision that there is. The model, the optimizer and the random numbers are put back;
    gradients are cleared.

    Args:
        batch: (inputs..., target) for ``loss_fn(model(*inputs), target)``; a dict for ``loss_fn(model(**batch))``; a Tensor for
            ``loss_fn(model(batch))``.
        steps: in each precision, more where they are short.
        progress: a bar in a terminal, elsewhere a line for each precision in each round, on standard error.

    ValueError for fewer than 2 steps."""
    subject, title = Subject(model, batch, loss_fn, optimizer, steps), name or type(model).__name__
    try:
        with guard.off():
            found = measure(subject, title=title if progress else "")
            with _Products() as products:
                subject.loss("float32").backward()
        device = next((p.device for p in model.parameters()), None)
        peaks = {p: peak_flops(p, device) for p in Progress(list(found.trials), title, shown=progress, name=lambda p: f"the device's peak, {p}")}
    finally:
        subject.restore()
    first = next(iter(batch.values())) if isinstance(batch, dict) else batch[0] if isinstance(batch, (tuple, list)) else batch
    return Bench(title, len(first), products.count, peaks, found)


# -- built-in models ------------------------------------------------------------------------------------------------


class _GPT(nn.Module):
    """Three layers of 128, four heads."""

    def __init__(self, vocabulary: int = 256, width: int = 128, length: int = 64) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Parameter(make.randn(length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.layers, self.norm, self.head = nn.TransformerEncoder(layer, 3), nn.LayerNorm(width), nn.Linear(width, vocabulary)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, ids: Any) -> Any:
        h = self.tokens(ids) + self.positions
        return self.head(self.norm(self.layers(h, mask=self.mask, is_causal=True))).flatten(0, 1)


class _LSTM(nn.Module):
    """Two layers of 256."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(64, 256, num_layers=2, batch_first=True), nn.Linear(256, 10)

    def forward(self, x: Any) -> Any:
        return self.head(self.lstm(x)[0][:, -1])


def _mlp(batch: int) -> tuple:
    layers: List[Any] = [part for _ in range(2) for part in (nn.Linear(1024, 1024), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(1024, 1024)), (make.randn(batch, 1024), make.randn(batch, 1024)), nn.MSELoss()


def _cnn(batch: int) -> tuple:
    def block(a: int, b: int, stride: int) -> List[Any]:
        return [nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]

    parts = [*block(3, 32, 1), *block(32, 64, 2), *block(64, 64, 1), *block(64, 128, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)]
    return nn.Sequential(*parts), (make.randn(batch, 3, 32, 32), make.randint(0, 10, (batch,))), nn.CrossEntropyLoss()


def _gpt(batch: int) -> tuple:
    return _GPT(), (make.randint(0, 256, (batch, 64)), make.randint(0, 256, (batch * 64,))), nn.CrossEntropyLoss()


def _lstm(batch: int) -> tuple:
    return _LSTM(), (make.randn(batch, 64, 64), make.randint(0, 10, (batch,))), nn.CrossEntropyLoss()


MODELS: Dict[str, Tuple[Callable[[int], tuple], int]] = {"mlp": (_mlp, 64), "cnn": (_cnn, 32), "gpt": (_gpt, 8), "lstm": (_lstm, 32)}  # and batches


def built_in(name: str, batch: Optional[int] = None) -> tuple:
    """(model, batch, loss_fn, optimizer) on the GPU where there is one. ValueError for an unknown name."""
    if name not in MODELS:
        raise ValueError(f"there is no model {name!r}; expected {', '.join(MODELS)}, or a file that ends in .py")
    maker, usual = MODELS[name]
    model, data, loss_fn = maker(batch or usual)
    where = "cuda" if cuda.is_available() else "cpu"
    model = model.to(where)
    return model, tuple(t.to(where) for t in data), loss_fn, optim.SGD(model.parameters(), lr=1e-3)
