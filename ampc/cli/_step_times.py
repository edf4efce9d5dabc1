"""Whether 16 bits pay on this machine: a training step of a network that is wide enough for matrix units, in three precisions."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List

from ._common import autocast_and_scaler

WIDTH, ROWS, LAYERS, ROUNDS, STEPS = 1024, 256, 3, 7, 2


def _step(precision: str, device: str) -> Callable[[], None]:
    """A training step, AdamW included: autocast for 16 bits, a GradScaler for float16."""
    import ampc as torch

    torch.manual_seed(0)
    layers: List[Any] = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers).to(device)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
    x, y = torch.randn(ROWS, WIDTH, device=device), torch.randn(ROWS, WIDTH, device=device)
    autocast, scaler = autocast_and_scaler(precision, device, init_scale=2.0**10)

    def step() -> None:
        opt.zero_grad()
        with autocast:
            loss = torch.nn.functional.mse_loss(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()

    return step


def measure(precisions: tuple, device: str = "cpu") -> Dict[str, float]:
    """Median seconds of a step in each precision; the precisions take turns, so that a busy moment meets all of them."""
    import numpy as np

    import ampc as torch
    from ampc import doctor

    times: Dict[str, List[float]] = {p: [] for p in precisions}
    with doctor.off():  # which formats the machine has units for is what this is about
        steps = {p: _step(p, device) for p in precisions}
        for round_ in range(ROUNDS + 1):  # the first warms up
            for p, step in steps.items():
                begin = time.perf_counter()
                for _ in range(STEPS):
                    step()
                torch.cuda.synchronize()
                if round_:
                    times[p].append((time.perf_counter() - begin) / STEPS)
    return {p: float(np.median(t)) for p, t in times.items()}


def table(seconds: Dict[str, float]) -> str:
    """One line a precision."""
    lines = [f"{'precision':<10} {'ms/step':>9} {'of float32':>11}"]
    lines += [f"{p:<10} {1e3 * s:>9.1f} {s / seconds['float32']:>11.2f}" for p, s in seconds.items()]
    return "\n".join(lines)


def in_words(seconds: Dict[str, float], device: str = "cpu") -> str:
    """What the table says about this machine."""
    from .. import _C

    halves = [p for p in seconds if p != "float32"]
    if not device.startswith("cpu"):
        return ""
    units = [p for p in halves if _C._has_units(getattr(_C, p))]
    without = [p for p in halves if p not in units]
    shares = " and ".join(f"{seconds[p] / seconds['float32']:.2f}" for p in units)
    said = [f"This CPU has units for {' and '.join(units)}: a step takes {shares} of float32's time."] if units else []
    if without:
        said.append(f"It has no units for {' or '.join(without)}, which saves memory here, not time." if units else
                    "This CPU has no units for 16-bit products: both formats save memory here, not time. On a CPU or GPU that has them they pay.")
    return " ".join(said)
