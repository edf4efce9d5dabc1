"""Products of float32 matrices: ampc and torch, beside the most that this machine gives, in one interleaved run.

    python benchmarks/products.py                            # this machine's own instructions, one thread
    AMPC_CPU=avx2 python benchmarks/products.py --threads 2  # both held to AVX2
    AMPC_CPU=avx512 python benchmarks/products.py --halves   # a step of training by autocast, beside the same in float32

For a layer of each size (rows x inputs x outputs) it times the forward product x W^T, the input's gradient dY W and the weight's
gradient dY^T x. ampc, torch and `limits.c`, which multiplies out of registers alone, take turns; each library has a process of its own.
The least time of all rounds counts, because neighbours on the machine can only add to it. For one thread it is the processor's time, so
that waiting for a turn does not count. For several it is the clock's, and means something only on a quiet machine. Rates are GFLOP/s,
and "of peak" is ampc's share of the rate of `limits.c` in this run.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

HERE = Path(__file__).resolve().parent
SIZES = [(2048, 2048, 2048), (512, 1024, 1024), (512, 256, 256), (512, 64, 64), (32, 64, 64)]
KINDS = ("forward", "dX", "dW")
HELD = {"avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
        "avx512": {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "MKL_ENABLE_INSTRUCTIONS": "AVX512"}}
LEAST = 0.004  # seconds that one measurement takes at least

# -- the measured side: a process that does what it is told --------------------------------------------------


def product(T: Any, kind: str, rows: int, inputs: int, outputs: int) -> Callable[[], Any]:
    """A function that makes one product."""
    x, w, dy = T.randn(rows, inputs), T.randn(outputs, inputs), T.randn(rows, outputs)
    if kind == "forward":
        return lambda: T.nn.functional.linear(x, w)
    if kind == "dX":
        return lambda: T.mm(dy, w)
    return lambda: T.mm(dy.t(), x)


def step(T: Any, dtype: str, rows: int, inputs: int, outputs: int) -> Callable[[], Any]:
    """A function that makes one step of training of a layer, in autocast unless dtype is float32."""
    layer, x, dy = T.nn.Linear(inputs, outputs), T.randn(rows, inputs, requires_grad=True), T.randn(rows, outputs)
    dy = dy.to(getattr(T, dtype))
    optimizer = T.optim.SGD(layer.parameters(), lr=1e-6)

    def run() -> None:
        with T.autocast("cpu", dtype=getattr(T, dtype if dtype != "float32" else "bfloat16"), enabled=dtype != "float32"):
            y = layer(x)
        y.backward(dy)
        optimizer.step()
        optimizer.zero_grad()
        x.grad = None

    return run


def clock(threads: int) -> Callable[[], float]:
    return time.process_time if threads == 1 else time.perf_counter


def serve(library: str, threads: int) -> None:
    now = clock(threads)
    T = __import__(library)
    T.set_num_threads(threads)
    for line in sys.stdin:
        name, *sizes = line.split()
        f = (product if name in KINDS else step)(T, name, *map(int, sizes))
        begin = now()
        f()
        f()
        repeats = 1 + int(LEAST / max(1e-6, (now() - begin) / 2))
        best = float("inf")
        for _ in range(5):
            begin = now()
            for _ in range(repeats):
                f()
            best = min(best, (now() - begin) / repeats)
        print(best, flush=True)


class Server:
    def __init__(self, library: str, threads: int) -> None:
        env = {**os.environ, **HELD.get(os.environ.get("AMPC_CPU", ""), {}), "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", library, "--threads", str(threads)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=env)

    def seconds(self, name: str, sizes: tuple) -> float:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{name} {' '.join(map(str, sizes))}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


# -- the measuring side ----------------------------------------------------------------------------------------


def peak_loop() -> Callable[[], float]:
    """A function that gives the rate of a loop of multiplications out of registers, on one thread."""
    place = tempfile.mkdtemp()
    subprocess.run(["cc", "-O3", "-pthread", "-shared", "-fPIC", str(HERE / "limits.c"), "-o", f"{place}/limits.so"], check=True)
    wide = os.environ.get("AMPC_CPU", "") != "avx2" and "avx512f" in Path("/proc/cpuinfo").read_text()
    loop = getattr(ctypes.CDLL(f"{place}/limits.so"), "fma_avx512" if wide else "fma_avx2")
    loop.restype = ctypes.c_double

    def run() -> float:
        begin = time.process_time()
        done = float(loop(0, 1))
        return done / (time.process_time() - begin) / 1e9

    return run


def chosen(text: str) -> List[tuple]:
    return [tuple(int(n) for n in size.split("x")) for size in text.split(",")] if text else SIZES


def compare_products(sizes: List[tuple], rounds: int, threads: int) -> None:
    libraries = {name: Server(name, threads) for name in ("ampc", "torch")}
    rate, peak = peak_loop(), 0.0
    best: Dict[tuple, float] = {}
    for _ in range(rounds):
        for size in sizes:
            for kind in KINDS:
                for name, server in libraries.items():
                    key = (size, kind, name)
                    best[key] = min(best.get(key, float("inf")), server.seconds(kind, size))
            peak = max(peak, rate())
    print(f"peak {peak:.1f} GFLOP/s a thread, {threads} thread(s), AMPC_CPU={os.environ.get('AMPC_CPU', '')}\n")
    print(f"{'rows x inputs x outputs':>24} {'product':>8} {'ampc':>7} {'torch':>7} {'of peak':>8} {'time of torch':>14}")
    for size in sizes:
        for kind in KINDS:
            ours, theirs = best[size, kind, "ampc"], best[size, kind, "torch"]
            work = 2e-9 * size[0] * size[1] * size[2]
            print(f"{'x'.join(map(str, size)):>24} {kind:>8} {work / ours:7.1f} {work / theirs:7.1f} {work / ours / peak / threads:8.2f} "
                  f"{ours / theirs:14.2f}")


def compare_halves(sizes: List[tuple], rounds: int, threads: int) -> None:
    server, dtypes = Server("ampc", threads), ("float32", "bfloat16", "float16")
    best: Dict[tuple, float] = {}
    for _ in range(rounds):
        for size in sizes:
            for dtype in dtypes:
                best[size, dtype] = min(best.get((size, dtype), float("inf")), server.seconds(dtype, size))
    print(f"{'rows x inputs x outputs':>24} {'float32, us':>12} {'bfloat16':>9} {'float16':>9}   (of the time of float32)")
    for size in sizes:
        base = best[size, "float32"]
        print(f"{'x'.join(map(str, size)):>24} {base * 1e6:12.1f} {best[size, 'bfloat16'] / base:9.2f} {best[size, 'float16'] / base:9.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="", help="such as 512x64x64,32x64x64")
    parser.add_argument("--halves", action="store_true", help="steps of training in 16 bits beside float32")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.threads)
    else:
        (compare_halves if args.halves else compare_products)(chosen(args.sizes), args.rounds, args.threads)


if __name__ == "__main__":
    main()
