"""The host's share of a training step on a GPU: its time, and its calls of the driver, by kind.

    python benchmarks/host_overhead.py           # prints the table
    python benchmarks/host_overhead.py --graph   # of the step as a CUDA graph (cuda.graph_step)
    python benchmarks/host_overhead.py --json    # the same as an object, for tests
    python benchmarks/host_overhead.py --steps 2000 --rounds 1    # a run to be looked at with a profiler

Needs no GPU: the driver is the one of tests/cuda_null, which does nothing and counts. A real driver's own time comes on top, some
microseconds for each launch. The step is an MLP's, 3 layers of 256, with float16 autocast, GradScaler and SGD. Its time is the minimum of
the rounds, each a mean over the steps, of the time that the process had a core: neighbours disturb it little.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

from gpu_cases import mlp

ROOT = Path(__file__).resolve().parent.parent
KINDS = (("launches", ("cuLaunchKernel",)), ("products", ("cublasLtMatmul",)), ("copies", ("cuMemcpy", "cuMemset")), ("contexts", ("cuCtx",)),
         ("events and streams", ("cuEvent", "cuStream")), ("memory", ("cuMem", "cuPointer")), ("other", ("",)))
WARMUP = 20  # steps in which plans, kernels and memory are found


def kind_of(name: str) -> str:
    """The first kind that a function's name fits; a product is one call, not all of its library."""
    return next(kind for kind, prefixes in KINDS if any(name == p if kind == "products" else name.startswith(p) for p in prefixes))


class Counters:
    """What the driver that does nothing has counted."""

    def __init__(self, folder: Path) -> None:
        self.driver = ctypes.CDLL(str(folder / "libcuda.so.1"))
        for name, result in (("null_name", ctypes.c_char_p), ("null_kernel", ctypes.c_char_p), ("null_calls", ctypes.c_longlong),
                             ("null_launches", ctypes.c_longlong)):
            getattr(self.driver, name).restype = result

    def _read(self, name_of: Callable[[int], bytes], count_of: Callable[[int], int]) -> Dict[str, int]:
        found, i = {}, 0
        while name := name_of(i):
            found[name.decode()] = count_of(i)
            i += 1
        return found

    def now(self) -> Tuple[Dict[str, int], Dict[str, int]]:
        """How often each function was called so far, and each kernel launched."""
        driver = self.driver
        return self._read(driver.null_name, driver.null_calls), self._read(driver.null_kernel, driver.null_launches)


def build(folder: Path) -> Path:
    """The driver that does nothing, compiled where it is out of date."""
    subprocess.run(["make", "-s", "-C", str(ROOT / "tests" / "cuda_null"), f"OUT={folder}"], check=True)
    return folder


def difference(after: Dict[str, int], before: Dict[str, int], steps: int) -> Dict[str, float]:
    """Calls of one step, of those that were called."""
    return {name: (n - before.get(name, 0)) / steps for name, n in after.items() if n != before.get(name, 0)}


def measure(counters: Counters, steps: int, rounds: int, graphed: bool = False) -> Dict[str, Any]:
    """Time and calls of one step."""
    import ampc

    step = mlp(ampc, 256, 64, graphed)
    for _ in range(WARMUP):
        step()
    times = []
    before = counters.now()
    gc.disable()
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(steps):
            step()
        times.append((time.process_time() - begin) / steps)
    gc.enable()
    after = counters.now()
    calls, launches = (difference(a, b, steps * rounds) for a, b in zip(after, before))
    kinds = {kind: sum(n for name, n in calls.items() if kind_of(name) == kind) for kind, _ in KINDS}
    return {"microseconds": min(times) * 1e6, "calls": sum(calls.values()), "kinds": kinds, "functions": calls, "kernels": launches}


def report(found: Dict[str, Any]) -> str:
    """The table."""
    lines = [f"host, without the driver's time: {found['microseconds']:.0f} us a step; {found['calls']:.1f} calls"]
    for title, key in (("calls by kind", "kinds"), ("by function", "functions"), ("launches by kernel", "kernels")):
        lines += ["", title] + [f"  {name:32} {n:7.2f}" for name, n in sorted(found[key].items(), key=lambda item: -item[1])]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one object instead of the table")
    parser.add_argument("--graph", action="store_true", help="replay the step as a CUDA graph")
    parser.add_argument("--steps", type=int, default=20, help="steps of a round")
    parser.add_argument("--rounds", type=int, default=400)
    args = parser.parse_args()
    folder = build(ROOT / "build" / "cuda_null")
    os.environ["AMPC_CUDA_LIBS"] = str(folder)  # read when ampc opens the driver
    found = measure(Counters(folder), args.steps, args.rounds, args.graph)
    print(json.dumps(found) if args.json else report(found))


if __name__ == "__main__":
    main()
