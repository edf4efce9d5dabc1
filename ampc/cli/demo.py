"""``ampc demo``: one model, real data, three precisions; then what a step of a wide network costs in each; and one picture."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List

from .._messages.progress import somebody_watches
from . import _step_times
from ._common import autocast_and_scaler, examples, must_be_writable

EPOCHS, BATCH, HIDDEN = 30, 64, 256
PRECISIONS = ("float32", "bfloat16", "float16")


@dataclass
class Run:
    """What one training produced."""

    precision: str
    accuracy: float = 0.0
    seconds_per_epoch: float = 0.0
    peak_bytes: int = 0
    skipped: int = 0
    final_scale: float = 1.0
    losses: List[float] = field(default_factory=list)  # one a step
    scales: List[float] = field(default_factory=list)
    epoch_seconds: List[float] = field(default_factory=list)


def make_model(T: Any, seed: int) -> Any:
    """64 -> 256 -> 256 -> 10, the same numbers for the same seed."""
    T.manual_seed(seed)
    return T.nn.Sequential(T.nn.Linear(64, HIDDEN), T.nn.ReLU(), T.nn.Linear(HIDDEN, HIDDEN), T.nn.ReLU(), T.nn.Linear(HIDDEN, 10))


def train(precision: str, data: Any, seed: int = 0, epochs: int = EPOCHS, progress: Any = None,
          device: str = "cpu") -> Run:
    """Trains on (x, y, x_test, y_test) in one precision: 'float32', 'bfloat16' (autocast), or 'float16' (autocast and
    GradScaler), on ``device``. The scaler starts at 2**24, high enough to show overflow and recovery."""
    import numpy as np

    import ampc as torch

    x, y, x_test, y_test = (torch.tensor(a, device=device) for a in data)
    torch.cuda.reset_peak_memory_stats()
    run = Run(precision)
    net = make_model(torch, seed).to(device)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    loss_fn = torch.nn.CrossEntropyLoss()
    autocast, scaler = autocast_and_scaler(precision, device, init_scale=2.0**24, growth_interval=200)
    order = np.random.default_rng(seed)
    for epoch in range(epochs):
        begin = time.perf_counter()
        shuffled = torch.tensor(order.permutation(len(x)), device=device)
        for i in range(0, len(x), BATCH):
            pick = shuffled[i:i + BATCH]
            opt.zero_grad()
            with autocast:
                loss = loss_fn(net(x[pick]), y[pick])
            scaler.scale(loss).backward()
            before = scaler.get_scale()
            scaler.step(opt)
            scaler.update()
            run.skipped += scaler.get_scale() < before
            run.losses.append(loss.item())
            run.scales.append(before)
        run.epoch_seconds.append(time.perf_counter() - begin)
        if progress:
            progress(precision, epoch + 1, run.losses[-1])
    with torch.no_grad(), autocast:
        run.accuracy = (net(x_test).argmax(1) == y_test).float().mean().item()
    run.seconds_per_epoch = sum(run.epoch_seconds) / epochs
    run.peak_bytes = torch.cuda.max_memory_allocated()
    run.final_scale = scaler.get_scale()
    return run


class Bar:
    """A progress bar over all epochs of all precisions, on standard error."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.live = somebody_watches()

    def __call__(self, precision: str, epoch: int, loss: float) -> None:
        self.done += 1
        filled = 30 * self.done // self.total
        text = f"[{'#' * filled}{'.' * (30 - filled)}] {precision:<9} epoch {epoch:>2}  loss {loss:.4f}"
        if self.live:
            last = "\n" if self.done == self.total else ""
            self._write("\r" + text[:shutil.get_terminal_size().columns - 1] + last)  # a line that wraps cannot be written over
        elif self.done % 10 == 0 or self.done == self.total:
            self._write(text + "\n")

    @staticmethod
    def _write(text: str) -> None:
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()


def table(runs: List[Run]) -> str:
    """The comparison, one line a precision."""
    lines = [f"{'precision':<10} {'accuracy':>9} {'s/epoch':>9} {'peak memory':>12} {'skipped steps':>14} {'final scale':>12}"]
    for r in runs:
        scale = f"{r.final_scale:g}" if r.precision == "float16" else "-"
        lines.append(f"{r.precision:<10} {r.accuracy:>9.4f} {r.seconds_per_epoch:>9.4f} {r.peak_bytes / 1e6:>9.2f} MB {r.skipped:>14} {scale:>12}")
    return "\n".join(lines)


def draw(runs: List[Run], seconds: Dict[str, float], path: str) -> None:
    """Loss curves, the scale's history and the time of a wide network's step, as one picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    colours = {"float32": "#4477aa", "bfloat16": "#ee6677", "float16": "#228833"}
    fig, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4.5))
    window = 25
    for r in runs:
        smooth = np.convolve(r.losses, np.ones(window) / window, mode="valid")
        left.plot(np.arange(len(smooth)) + window, smooth, label=r.precision, color=colours[r.precision], linewidth=1.6,
                  linestyle={"float32": "-", "bfloat16": "--", "float16": ":"}[r.precision])
    left.set(title=f"Training loss (mean of {window} steps)", xlabel="step", ylabel="cross entropy", yscale="log")
    left.legend(frameon=False)
    half = next(r for r in runs if r.precision == "float16")
    middle.step(range(len(half.scales)), half.scales, where="post", color=colours["float16"])
    middle.set(title=f"float16: loss scale ({half.skipped} steps skipped)", xlabel="step", ylabel="scale", yscale="log")
    middle.set_yscale("log", base=2)
    names, times = list(seconds), [1e3 * s for s in seconds.values()]
    bars = right.bar(names, times, color=[colours[n] for n in names], width=0.6)
    right.bar_label(bars, [f"{t:.1f} ms" for t in times], padding=3)
    right.set(title=f"A training step of {_step_times.LAYERS} layers of {_step_times.WIDTH}", ylabel="ms", ylim=(0, 1.2 * max(times)))
    for ax in (left, middle, right):
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", alpha=0.3)
    fig.suptitle("Handwritten digits learnt in three precisions from the same start; and what a wide network's step costs in each")
    fig.tight_layout()
    fig.savefig(path, dpi=110)
    plt.close(fig)


def demo(out: str, epochs: int, device: str = "cpu") -> List[Run]:
    """The demonstration: trains, prints the table, writes the picture when matplotlib is there."""
    from ..data import load_digits, stratified_folds

    os.makedirs(out, exist_ok=True)
    path = os.path.join(out, "ampc-demo.png")
    must_be_writable(path)
    images, labels = load_digits()
    train_rows, test_rows = next(iter(stratified_folds(labels, 5, seed=0)))
    data = images[train_rows], labels[train_rows], images[test_rows], labels[test_rows]
    print(f"{len(train_rows)} digits to learn from, {len(test_rows)} to test on; {epochs} epochs of batches of {BATCH}")
    bar = Bar(len(PRECISIONS) * epochs)
    train("float32", data, epochs=1, device=device)  # the first product loads BLAS; not to be timed
    runs = [train(p, data, epochs=epochs, progress=bar, device=device) for p in PRECISIONS]
    print(table(runs))
    print(f"\nThis network is too small for 16 bits to save time. {_step_times.LAYERS} layers of {_step_times.WIDTH}, batches of {_step_times.ROWS}:")
    seconds = _step_times.measure(PRECISIONS, device)
    print(_step_times.table(seconds))
    print(_step_times.in_words(seconds, device))
    try:
        draw(runs, seconds, path)
        print(f"picture: {path}")
    except ImportError:
        print("no picture: install matplotlib (pip install 'ampc[plot]')")
    return runs


def add_demo(commands: Any) -> None:
    """Adds the subcommand to the command line."""
    parser = commands.add_parser("demo", help="train a classifier of handwritten digits in three precisions",
                                 description="Trains a small network in float32, bfloat16 and float16, and measures a step of a wide one in each. "
                                 "Draws a picture if matplotlib is installed. Exits with 0, or with 2 if a device or folder cannot be used.",
                                 epilog=examples("ampc demo", "ampc demo --epochs 5 --out /tmp/demo    shorter, with the picture elsewhere",
                                                 "ampc demo --device cuda                 on a GPU"))
    parser.add_argument("--out", default="demo", help="folder for the picture (default: demo)")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"passes over the data (default: {EPOCHS})")
    parser.add_argument("--device", default="cpu", help="where to train: cpu (default), cuda, cuda:1")
    parser.set_defaults(run=_demo)


def _demo(args: argparse.Namespace) -> int:
    import ampc

    from ..doctor import guard

    if args.epochs < 1:
        print(f"ampc demo: --epochs must be 1 or more, got {args.epochs}", file=sys.stderr)
        return 2
    try:
        ampc.zeros(1, device=args.device)
    except RuntimeError as error:
        print(f"ampc demo: {error}", file=sys.stderr)
        return 2
    with guard.off():  # whether 16 bits pay here is said below the table
        demo(args.out, args.epochs, args.device)
    return 0
