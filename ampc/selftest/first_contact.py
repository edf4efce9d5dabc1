"""What ``ampc first-contact`` runs on a GPU, each in a process of its own: products and convolutions of all sorts of shapes, CUDA graphs, a group of
NCCL, speeds beside torch.

``python -m ampc.selftest.first_contact products float16`` runs one by hand."""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import itertools
import statistics
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import numpy as np

import ampc
from ampc import nn

DTYPES = ("float64", "float32", "float16", "bfloat16")
SIZES = (1, 2, 3, 7, 8, 17, 4096)
SMALL = (1, 3, 8, 17)
BATCHES = (65_536, 65_537)  # cuBLASLt and kernels may count batches in 16 bits
SHOWN = 20  # errors that are printed
_ROWS = 6  # of a large result, that are compared
PROGRESS = "> "  # begins a line that says what comes next; a report keeps the last one, of a part that ended before it was done


class Case(NamedTuple):
    """One product, of whole numbers: its result is exact but for one rounding."""

    m: int
    n: int
    k: int
    bias: bool
    offset: int  # elements that the operands lie behind a boundary of 256 bytes

    def __str__(self) -> str:
        return f"{self.m} x {self.n} x {self.k}, {'bias' if self.bias else 'no bias'}, offset {self.offset}"


class Numbers:
    """Small whole numbers, on the GPU in one dtype and on the CPU in float64."""

    def __init__(self, dtype: Any, n: int, seed: int) -> None:
        self.exact = np.random.default_rng(seed).integers(-2, 3, n + 1).astype(np.float64)
        self.there = ampc.tensor(self.exact, device="cpu").to(dtype).to("cuda")

    def cut(self, rows: int, columns: int, offset: int) -> Tuple[Any, np.ndarray]:
        """A matrix of the first numbers behind the offset."""
        end = offset + rows * columns
        return self.there[offset:end].view(rows, columns), self.exact[offset:end].reshape(rows, columns)


def _wrong(got: Any, exact: np.ndarray, dtype: Any) -> str:
    """What is wrong with a result, in words; "" if nothing is. One rounding of the dtype, and one of its accumulation, are right."""
    values = got.float().cpu().numpy().astype(np.float64) if dtype is not ampc.float64 else got.cpu().numpy()
    allowed = 2 * ampc.finfo(dtype).eps * np.abs(exact)
    off = ~(np.abs(values - exact) <= allowed)
    if not off.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(off)[0])
    return f"{int(off.sum())} of {off.size} values are wrong; at {list(at)}: {values[at]:g}, not {exact[at]:g}"


def _check(case: Case, a: Numbers, b: Numbers, dtype: Any) -> str:
    x, x_exact = a.cut(case.m, case.k, case.offset)
    rows = np.unique(np.linspace(0, case.m - 1, _ROWS).astype(int)) if case.m > 100 else np.arange(case.m)
    if case.bias:
        w, w_exact = b.cut(case.n, case.k, case.offset)
        bias, bias_exact = a.cut(1, case.n, case.offset)
        got, exact = nn.functional.linear(x, w, bias[0]), x_exact[rows] @ w_exact.T + bias_exact
    else:
        y, y_exact = b.cut(case.k, case.n, case.offset)
        got, exact = x @ y, x_exact[rows] @ y_exact
    return _wrong(got[ampc.tensor(rows, device="cpu").to("cuda")], exact, dtype)


def _batched(n: int, dtype: Any) -> str:
    a, b = Numbers(dtype, n * 6, 3), Numbers(dtype, n * 6, 4)
    x, y = a.there[:n * 6].view(n, 2, 3), b.there[:n * 6].view(n, 3, 2)
    return _wrong(x @ y, a.exact[:n * 6].reshape(n, 2, 3) @ b.exact[:n * 6].reshape(n, 3, 2), dtype)


def _checks(dtype: Any, sizes: Tuple[int, ...]) -> Iterator[Tuple[str, Callable[[], str]]]:
    a, b = Numbers(dtype, max(sizes)**2, 1), Numbers(dtype, max(sizes)**2, 2)
    for m, n, k, bias, offset in itertools.product(sizes, sizes, sizes, (False, True), (0, 1)):
        case = Case(m, n, k, bias, offset)
        yield str(case), lambda case=case: _check(case, a, b, dtype)  # type: ignore[misc]
    for batches in BATCHES:
        yield f"{batches} batches of 2 x 2 x 3", lambda batches=batches: _batched(batches, dtype)  # type: ignore[misc]


def _next(what: str) -> None:
    """Says what comes next, in case that it never ends, or ends the process."""
    print(f"{PROGRESS}{what}", flush=True)


def _tried(name: str, kind: str, checks: Iterator[Tuple[str, Callable[[], str]]]) -> int:
    """How many were wrong or failed; the first of these are printed."""
    bad = run = 0
    for what, check in checks:
        run += 1
        _next(f"{name}{what}")
        try:
            wrong = check()
        except Exception as error:  # a library's own errors too: the others are tried all the same
            wrong = f"{type(error).__name__}: {error}"
        bad += bool(wrong)
        if wrong and bad <= SHOWN:
            print(f"{name}{what}: {wrong}")
    print(f"{name}{run} {kind}, {bad} wrong")
    return bad


def products(name: str, sizes: Tuple[int, ...]) -> int:
    """Compares products of one dtype with exact ones. How many were wrong or failed."""
    return _tried(f"{name}: ", "products", _checks(getattr(ampc, name), sizes))


# -- convolutions ------------------------------------------------------------------------------------------------------------------


class Convolution(NamedTuple):
    """One convolution of whole numbers, with its gradients."""

    channels: int
    outs: int
    size: int  # of a side of the image
    kernel: int
    stride: int
    bias: bool
    last: bool  # channels last in memory

    def __str__(self) -> str:
        return (f"{self.channels} channels of {self.size} x {self.size}, {self.outs} of {self.kernel} x {self.kernel} by {self.stride}, "
                f"{'bias' if self.bias else 'no bias'}, channels {'last' if self.last else 'first'}")


def _convolved(case: Convolution, dtype: Any, device: str) -> List[Any]:
    """The result, and the gradients of image, weight and bias."""
    numbers = np.random.default_rng(7)
    shapes = [(2, case.channels, case.size, case.size), (case.outs, case.channels, case.kernel, case.kernel), *([(case.outs,)] if case.bias else [])]
    leaves = [ampc.tensor(numbers.integers(-2, 3, shape).astype(np.float64), device="cpu").to(dtype).to(device) for shape in shapes]
    if case.last:
        leaves[0] = leaves[0].to(memory_format=ampc.channels_last)
    leaves = [leaf.requires_grad_() for leaf in leaves]
    y = nn.functional.conv2d(leaves[0], leaves[1], leaves[2] if case.bias else None, stride=case.stride, padding=case.kernel // 2)
    slope = ampc.tensor(numbers.integers(-2, 3, tuple(y.shape)).astype(np.float64), device="cpu").to(dtype).to(device)
    return [y.detach(), *ampc.autograd.grad(y, leaves, slope)]


def _check_convolution(case: Convolution, dtype: Any) -> str:
    names, exact = ("result", "gradient of the image", "gradient of the weight", "gradient of the bias"), _convolved(case, ampc.float64, "cpu")
    wrong = ((name, _wrong(got, want.numpy(), dtype)) for name, got, want in zip(names, _convolved(case, dtype, "cuda"), exact))
    return "; ".join(f"{name}: {text}" for name, text in wrong if text)


def _check_beyond(dtype: Any, bias: bool, last: bool) -> str:
    """What is larger than every number of the dtype is infinite, and what an infinite pixel meets; nothing else."""
    large = float(ampc.finfo(dtype).max) ** 0.5
    x, w = (ampc.full(shape, large, dtype=dtype, device="cuda") for shape in ((2, 64, 8, 8), (64, 64, 3, 3)))
    pixel, one = ampc.ones_like(x), ampc.ones_like(w)
    pixel[1, 3, 4, 5] = float("inf")
    if last:
        x, pixel = (t.to(memory_format=ampc.channels_last) for t in (x, pixel))
    zero = ampc.zeros(64, dtype=dtype, device="cuda") if bias else None
    found = []
    if not nn.functional.conv2d(x, w, zero, padding=1).isinf().all():
        found.append("a result too large is finite")
    if not nn.functional.conv_transpose2d(x, w, zero, padding=1).isinf().all():
        found.append("a transposed result too large is finite")
    outside = ampc.ones(2, 1, 8, 8, dtype=ampc.bool, device="cuda")
    outside[1, 0, 3:6, 4:7] = False
    if not (nn.functional.conv2d(pixel, one, zero, padding=1).isfinite() == outside).all():
        found.append("an infinite pixel is not where it belongs")
    return "; ".join(found)


def _convolutions(dtype: Any, small: bool) -> Iterator[Tuple[str, Callable[[], str]]]:
    sides = ((3, 8), (5, 16), (7, 8), (1, 3)) if small else ((3, 8, 32), (5, 16, 64), (7, 8, 14, 28), (1, 3))
    for sizes in itertools.product(*sides, (1, 2), (False, True), (False, True)):
        case = Convolution(*sizes)
        yield str(case), lambda case=case: _check_convolution(case, dtype)  # type: ignore[misc]
    for bias, last in itertools.product((False, True), (False, True)):
        what = f"beyond the largest number, {'bias' if bias else 'no bias'}, channels {'last' if last else 'first'}"
        yield what, lambda bias=bias, last=last: _check_beyond(dtype, bias, last)  # type: ignore[misc]


def convolutions(name: str, small: bool) -> int:
    """Compares convolutions of one dtype, and their gradients, with exact ones. How many were wrong or failed."""
    return _tried(f"{name}: ", "convolutions", _convolutions(getattr(ampc, name), small))


# -- NCCL ------------------------------------------------------------------------------------------------------------------------


def nccl() -> int:
    """A group of one process: its collectives leave a tensor as it is, and DistributedDataParallel trains. 1 where they do not."""
    from ampc import distributed

    distributed.init_process_group("nccl")
    try:
        x = ampc.arange(5.0).to("cuda")
        kept, parts = x.clone(), [ampc.zeros_like(x)]
        distributed.all_reduce(x)
        distributed.broadcast(x, 0)
        distributed.all_gather(parts, x)
        distributed.barrier()
        model = nn.parallel.DistributedDataParallel(nn.Linear(5, 3).to("cuda"))
        model(x[None]).sum().backward()
        same = bool((x == kept).all() and (parts[0] == kept).all() and (model.module.weight.grad == kept).all())
        print(f"a group of one process over {distributed.get_backend()}: {'right' if same else 'WRONG'}")
        return int(not same)
    finally:
        distributed.destroy_process_group()


# -- CUDA graphs ---------------------------------------------------------------------------------------------------------------


def _train(steps: int, graphed: bool) -> List[float]:
    ampc.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10)).to("cuda")
    optimizer, scaler = ampc.optim.AdamW(model.parameters(), lr=1e-2), ampc.amp.GradScaler("cuda", init_scale=2.0**20, growth_interval=4)
    step = ampc.cuda.graph_step(model, nn.functional.cross_entropy, optimizer, scaler, max_norm=1.0, warmup=2 if graphed else steps)
    x, y = ampc.randn(32, 64).to("cuda"), ampc.randint(0, 10, (32,)).to("cuda")
    found: List[float] = []
    for _ in range(steps):
        found += [step(x, y).item(), scaler.get_scale()]
    return found


def graphs(steps: int) -> int:
    """Whether a training step replayed as a CUDA graph gives the numbers of one without."""
    _next("steps without a graph")
    eager = _train(steps, False)
    _next("steps with a graph")
    graphed = _train(steps, True)
    differ = [i for i, (a, b) in enumerate(zip(eager, graphed)) if a != b and not (np.isnan(a) and np.isnan(b))]
    first = differ[0] if differ else 0
    how = f"the numbers differ from step {first // 2} on: {eager[first]:g} without, {graphed[first]:g} with" if differ else "numbers equal"
    print(f"{steps} steps of mixed precision as a CUDA graph: scales {sorted(set(eager[1::2]))}; {how}")
    return len(differ)


# -- speeds ----------------------------------------------------------------------------------------------------------------------


def _cases(T: Any, n: int) -> Dict[str, Callable[[], Any]]:
    """The same work for either library."""
    def tensor(*shape: int, dtype: Any = None) -> Any:
        return T.randn(*shape).to(dtype or T.float32).to("cuda")

    a, b, h, x = tensor(n, n), tensor(n, n), tensor(n, n, dtype=T.float16), tensor(n, n)
    image, kernel = tensor(8, 32, max(n // 32, 8), max(n // 32, 8), dtype=T.float16), tensor(64, 32, 3, 3, dtype=T.float16)
    model = T.nn.Sequential(T.nn.Linear(256, 256), T.nn.ReLU(), T.nn.Linear(256, 256)).to("cuda")
    optimizer, scaler, batch = T.optim.AdamW(model.parameters(), lr=1e-3), T.amp.GradScaler("cuda"), tensor(128, 256)

    def step() -> None:
        optimizer.zero_grad()
        with T.autocast("cuda", dtype=T.float16):
            loss = model(batch).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return {f"product float32 {n}": lambda: a @ b, f"product float16 {n}": lambda: h @ h, f"add float32 {n}": lambda: x + a,
            f"softmax float32 {n}": lambda: x.softmax(-1), f"sum float32 {n}": lambda: x.sum(0),
            "layer norm": lambda: T.nn.functional.layer_norm(x, (n,)),
            "convolution float16": lambda: T.nn.functional.conv2d(image, kernel), "AMP step, MLP 2 x 256": step}


def _milliseconds(T: Any, call: Callable[[], Any], seconds: float) -> float:
    times: List[float] = []
    call()
    T.cuda.synchronize()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        begin = time.perf_counter()
        for _ in range(10):
            call()
        T.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 100)
    return statistics.median(times)


def speed(n: int, seconds: float) -> int:
    """A table of times, beside torch's where it is installed and has a GPU. How many cases failed."""
    try:
        torch: Any = importlib.import_module("torch")
        torch = torch if torch.cuda.is_available() else None
    except ImportError:
        torch = None
    mine, theirs = _cases(ampc, n), _cases(torch, n) if torch else {}
    bad = 0
    print(f"{'':24}{'ampc ms':>10}{'torch ms':>10}{'ratio':>8}" + ("" if torch else "   (torch is not there, or has no GPU)"))
    for name, call in mine.items():
        _next(name)
        try:
            took = _milliseconds(ampc, call, seconds)
            other = _milliseconds(torch, theirs[name], seconds) if torch else None
        except Exception as error:  # the other cases are tried all the same
            print(f"{name:24}{type(error).__name__}: {error}")
            bad += 1
            continue
        print(f"{name:24}{took:10.3f}" + (f"{other:10.3f}{took / other:8.2f}" if other else ""))
    return bad


def main(argv: List[str]) -> int:
    """Runs one part; 0 where nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m ampc.selftest.first_contact")
    parser.add_argument("part", choices=("products", "convolutions", "nccl", "graphs", "speed"))
    parser.add_argument("dtype", nargs="?", choices=DTYPES, default="float32", help="of products and convolutions")
    parser.add_argument("--small", action="store_true", help="few sizes, to try the program")
    args = parser.parse_args(argv)
    faulthandler.enable()
    if args.part == "products":
        return int(products(args.dtype, SMALL if args.small else SIZES) > 0)
    if args.part == "convolutions":
        return int(convolutions(args.dtype, args.small) > 0)
    if args.part == "nccl":
        return nccl()
    if args.part == "graphs":
        return int(graphs(8 if args.small else 60) > 0)
    return int(speed(64 if args.small else 4096, 0.0 if args.small else 0.5) > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
