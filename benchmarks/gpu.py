"""ampc against torch on a GPU, in one interleaved run of one process.

    python benchmarks/gpu.py            # runs and prints the table
    python benchmarks/gpu.py --save     # the same, keeps the raw rounds in benchmarks/rounds-gpu/ and writes RESULTS-gpu.md
    python benchmarks/gpu.py --report   # writes RESULTS-gpu.md from the kept rounds

A round of a case times both libraries, in an order that alternates, between two waits for the GPU; the figure is the
median of the rounds' ratios. What the device gives at best is measured in the same run: a copy of 1 GiB within its
memory, by torch, for the rows that memory holds back; for products the rate stands alone.
``--small`` divides all sizes, to try the program; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from report import Goal, ratios_of, unit

HERE = Path(__file__).resolve().parent
ROUNDS = HERE / "rounds-gpu"
MANY = 160  # tensors of an optimizer's list


@dataclass(frozen=True)
class Case:
    name: str
    what: str
    bound: float  # on time(ampc) / time(torch)
    repeats: int
    make: Callable[[Any, int], Callable[[], Any]]  # (library, divisor of sizes) -> one call
    flop: float = 0
    bytes: float = 0  # moved at least, by one call
    share: float = 0  # the goal, as a share of the device copy's bandwidth


# -- the work, for either library ----------------------------------------------------------------------------------


def product(T: Any, dtype: str, m: int, n: int, k: int) -> Callable[[], Any]:
    a, b = T.randn(m, k, device="cuda").to(getattr(T, dtype)), T.randn(k, n, device="cuda").to(getattr(T, dtype))

    def f() -> Any:
        return a @ b

    return f


def mlp(T: Any, n: int, batch: int, graphed: bool = False) -> Callable[[], Any]:
    """A step of an MLP of 3 layers: fp16 autocast, GradScaler and SGD; eager, or ampc's as a CUDA graph."""
    T.manual_seed(0)
    net = T.nn.Sequential(T.nn.Linear(n, n), T.nn.ReLU(), T.nn.Linear(n, n), T.nn.ReLU(), T.nn.Linear(n, n)).to("cuda")
    opt, scaler, loss_fn = T.optim.SGD(net.parameters(), lr=1e-3), T.amp.GradScaler("cuda"), T.nn.MSELoss()
    x, y = T.randn(batch, n, device="cuda"), T.randn(batch, n, device="cuda")

    if graphed:
        replayed = T.cuda.graph_step(net, loss_fn, opt, scaler)
        return lambda: replayed(x, y)

    def step() -> None:
        opt.zero_grad()
        with T.autocast("cuda", dtype=T.float16):
            loss = loss_fn(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()

    return step


def recipe(T: Any, small: int) -> Callable[[], Any]:
    """The recipe's MLP, 3x4096 with batches of 512."""
    return mlp(T, 4096 // small, 512 // small)


def unscale(T: Any, small: int) -> Callable[[], Any]:
    """Unscale and check alone, 50 M float32 gradients in 160 tensors."""
    params = [T.nn.Parameter(T.zeros(50_000_000 // MANY // small, device="cuda")) for _ in range(MANY)]
    for p in params:
        p.grad = T.ones_like(p)
    opt, scaler = T.optim.SGD(params, lr=0.0), T.amp.GradScaler("cuda", init_scale=1.0)
    scaler.scale(T.ones((), device="cuda"))

    def f() -> None:
        scaler.unscale_(opt)
        scaler._per_optimizer_states.clear()

    return f


def each(op: str) -> Callable[[Any, int], Callable[[], Any]]:
    def build(T: Any, small: int) -> Callable[[], Any]:
        rows, cols = 16384 // small, 4096 // small
        x, F = T.randn(rows, cols, device="cuda").half(), T.nn.functional
        wide, target = x.float(), T.randint(0, cols, (rows,), device="cuda")

        def cast() -> Any:
            return wide.half()

        def add() -> Any:
            return x + x

        def gelu() -> Any:
            return F.gelu(x)

        def softmax() -> Any:
            return x.softmax(1)

        def cross_entropy() -> Any:
            return F.cross_entropy(x, target)

        def dropout() -> Any:
            return F.dropout(x, 0.1)

        return {"cast": cast, "add": add, "gelu": gelu, "softmax": softmax, "cross_entropy": cross_entropy, "dropout": dropout}[op]

    return build


def launch(T: Any, small: int) -> Callable[[], Any]:
    a, b = T.ones(16, device="cuda"), T.ones(16, device="cuda")

    def f() -> Any:
        return a + b

    return f


ELEMENTS = 16384 * 4096
CASES = [
    *(Case(f"product-{d}-{m}", f"product {m}x{n}x{k}, {d}", 1.05, 10, lambda T, s, d=d, m=m, n=n, k=k: product(T, d, m // s, n // s, k // s),
           flop=2.0 * m * n * k) for d in ("float16", "bfloat16") for m, n, k in ((4096, 4096, 4096), (8192, 4096, 4096))),
    Case("recipe", "recipe MLP 512x4096x3, fp16 and GradScaler: a step", 1.0, 10, recipe),
    Case("unscale", "unscale and check, 50 M float32 in 160 tensors", 1.0, 10, unscale, bytes=8 * 50e6, share=0.9),
    *(Case(op, f"{op} 16384x4096, float16", 1.0, 10, each(op), bytes=b * ELEMENTS, share=0.85)
      for op, b in (("cast", 6.0), ("add", 4.0), ("gelu", 4.0), ("softmax", 4.0), ("cross_entropy", 2.0), ("dropout", 4.0))),
    Case("launch", "host time of one small `a + b`, not waited for", 0.5, 2000, launch),
]


# -- the run ---------------------------------------------------------------------------------------------------------


def timed(T: Any, case: Case, f: Callable[[], Any]) -> float:
    """Seconds a call: of the device's work, or (launch) of the host's alone."""
    T.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(case.repeats):
        f()
    if case.name == "launch":
        seconds = time.perf_counter() - begin
        T.cuda.synchronize()
        return seconds / case.repeats
    T.cuda.synchronize()
    return (time.perf_counter() - begin) / case.repeats


def copy_bandwidth(T: Any, small: int) -> float:
    """Bytes a second of a copy within the device: read and written."""
    a = T.ones((1 << 28) // small, device="cuda")
    b = T.empty_like(a)
    best = float("inf")
    for _ in range(5):
        T.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(5):
            b.copy_(a)
        T.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / 5)
    return 2 * 4 * a.numel() / best


def run(rounds: int, small: int, cases: list) -> dict:
    import ampc

    libraries = {"ampc": ampc}
    try:
        import torch

        if torch.cuda.is_available():
            libraries["torch"] = torch
    except ImportError:
        pass
    if not ampc.cuda.is_available():
        sys.exit("no usable GPU: `ampc info` says what is missing")
    yardstick = libraries.get("torch", ampc)
    result: dict = {"rounds": {}, "copy_bytes_s": copy_bandwidth(yardstick, small)}
    for case in cases:
        calls = {name: case.make(T, small) for name, T in libraries.items()}
        for name, f in calls.items():  # what is made once is made before the clock starts
            for _ in range(3):
                f()
            libraries[name].cuda.synchronize()
        result["rounds"][case.name] = []
        for i in range(rounds):
            order = list(calls) if i % 2 else list(calls)[::-1]
            result["rounds"][case.name].append({name: timed(libraries[name], case, calls[name]) for name in order})
        calls.clear()
        for T in libraries.values():
            T.cuda.empty_cache()
        print(f"{case.name}: done", file=sys.stderr)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=HERE).stdout.strip()
    result.update(commit=commit, gpu=ampc.cuda.get_device_name(), small=small, ampc=ampc.__version__,
                  torch=getattr(libraries.get("torch"), "__version__", None), driver=ampc._C._cuda_note("driver"),
                  cublaslt=ampc._C._cuda_note("cublasLt"), date=time.strftime("%Y-%m-%d %H:%M", time.gmtime()))
    return result


def table(result: dict) -> str:
    lines = ["| work | ampc | torch | ampc / torch | lowest to highest round | goal | ampc's rate |", "|---|---|---|---|---|---|---|"]
    for case in CASES:
        pairs = result["rounds"].get(case.name)
        if not pairs:
            continue
        mid = {k: statistics.median(p[k] for p in pairs) for k in pairs[0]}
        rate = f"{case.flop / mid['ampc'] / 1e12:.0f} TFLOP/s" if case.flop else ""
        if case.bytes:
            share = case.bytes / mid["ampc"] / result["copy_bytes_s"]
            missed = "" if share >= case.share else " - **missed**"
            rate = f"{case.bytes / mid['ampc'] / 1e9:.0f} GB/s, {100 * share:.0f} % of a copy (goal: {100 * case.share:.0f} %{missed})"
        if "torch" not in mid:
            lines.append(f"| {case.what} | {unit(mid['ampc'])} | - | - | - | at most {case.bound} | {rate} |")
            continue
        ratios = ratios_of(result, case)
        ratio = statistics.median(ratios)
        lines.append(f"| {case.what} | {unit(mid['ampc'])} | {unit(mid['torch'])} | {ratio:.3f} | {ratios[0]:.3f} to {ratios[-1]:.3f} | "
                     f"{Goal(f'at most {case.bound:g}', ratio <= case.bound)} | {rate} |")
    return "\n".join(lines)


def write_report() -> None:
    """RESULTS-gpu.md, from every kept run."""
    parts = ["# On a GPU", "", "Generated by `python benchmarks/gpu.py --report` from the raw rounds in `rounds-gpu/`; nothing is typed by hand.", ""]
    for path in sorted(ROUNDS.glob("*.json"), reverse=True):
        r = json.loads(path.read_text())
        parts += [f"## {r['gpu']}, {r['date']} UTC", "",
                  f"Commit {r['commit'][:12]}, ampc {r['ampc']}, torch {r['torch']}, driver {r['driver']}, cuBLASLt {r['cublaslt']}. "
                  f"A copy within the device moves {r['copy_bytes_s'] / 1e9:.0f} GB/s.", "", table(r), ""]
    (HERE / "RESULTS-gpu.md").write_text("\n".join(parts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", nargs="*", help="names of cases")
    parser.add_argument("--small", type=int, default=1, help="divides all sizes, to try the program")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    if args.report:
        write_report()
        return
    unknown = set(args.only or ()) - {c.name for c in CASES}
    if unknown:
        parser.error(f"unknown case {', '.join(sorted(unknown))}; there are {', '.join(c.name for c in CASES)}")
    result = run(args.rounds, args.small, [c for c in CASES if not args.only or c.name in args.only])
    print(f"{result['gpu']}; a copy within the device moves {result['copy_bytes_s'] / 1e9:.0f} GB/s\n\n{table(result)}")
    if args.save and args.small == 1:
        ROUNDS.mkdir(exist_ok=True)
        (ROUNDS / (time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + ".json")).write_text(json.dumps(result, indent=1))
        write_report()


if __name__ == "__main__":
    main()
