"""What diagnosis costs: ampc with the guard and the ledger against ampc without, and under ampc.doctor() against without it.

    python benchmarks/diagnosis.py            # runs, prints the table
    python benchmarks/diagnosis.py --save     # and keeps the minima in benchmarks/rounds/diagnosis-*.json

A round times each way once, in turn; the figure is the ratio of the minima. The stamps that backward carries (csrc/autograd/stamp.c) are in
both: they are a few writes a parameter.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any, Callable

import ampc as T
from ampc.doctor import guard
from ampc.doctor.ledger import Ledger

HERE = Path(__file__).resolve().parent
CHECKS = ["before_unscale", "before_unscaled_step", "before_step", "before_norm", "before_clip", "before_backward", "after_skips"]
SIZES = [(64, 64, 20, 200), (256, 64, 5, 200), (1024, 64, 2, 200), (4096, 512, 1, 8)]  # width, batch, steps a round, rounds


def make_step(width: int, batch: int) -> Callable[[], None]:
    """The recipe's model: three linear layers, float16 autocast, GradScaler, clipping, SGD."""
    T.manual_seed(0)
    layers: list = []
    for _ in range(2):
        layers += [T.nn.Linear(width, width), T.nn.ReLU()]
    model = T.nn.Sequential(*layers, T.nn.Linear(width, width))
    optimizer, scaler, x = T.optim.SGD(model.parameters(), lr=1e-3), T.amp.GradScaler("cpu"), T.randn(batch, width)
    region = T.autocast("cpu", dtype=T.float16)

    def step() -> None:
        optimizer.zero_grad()
        with region:
            loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        T.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


def _nothing(*args: Any, **kwargs: Any) -> Any:
    return []


class Without:
    """No checks, no ledger."""

    def __enter__(self) -> None:
        self._kept = {name: getattr(guard, name) for name in CHECKS}, Ledger.add
        for name in CHECKS:
            setattr(guard, name, _nothing)
        Ledger.add = _nothing  # type: ignore[method-assign]

    def __exit__(self, *exc: object) -> None:
        checks, Ledger.add = self._kept  # type: ignore[method-assign]
        for name, check in checks.items():
            setattr(guard, name, check)


class With:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


def measure(width: int, batch: int, steps: int, rounds: int) -> dict:
    """The least seconds a step took, each way."""
    step = make_step(width, batch)
    ways = {"without": Without, "guard": With, "doctor": T.doctor}
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            with way():
                begin = time.perf_counter()
                for _ in range(steps):
                    step()
                best[name] = min(best[name], (time.perf_counter() - begin) / steps)
    return {"width": width, "batch": batch, "rounds": rounds, **best}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="keep the minima in benchmarks/rounds/")
    args = parser.parse_args()
    T.set_num_threads(2)
    T.doctor.ignore("autocast-without-effect")
    rows = [measure(*size) for size in SIZES]
    print("| MLP 3 x width, float16, GradScaler, clipping | without | guard and ledger / without (asked: at most 1.02) | doctor / guard (asked: at most 1.5) |")
    print("|---|---|---|---|")
    for r in rows:
        print(f"| {r['width']}, batch {r['batch']}, {r['rounds']} rounds | {1e3 * r['without']:.3f} ms | {r['guard'] / r['without']:.3f} | "
              f"{r['doctor'] / r['guard']:.2f} |")
    if args.save:
        from compare import machine

        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        kept = {"date": stamp, "machine": machine(), "load": os.getloadavg()[0], "threads": 2, "ampc": T.__version__, "rows": rows}
        (HERE / "rounds" / f"diagnosis-{stamp}.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
