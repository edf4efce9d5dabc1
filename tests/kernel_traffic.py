"""python -m kernel_traffic --save writes docs/gpu.md: the launches of operators on a GPU, and the bytes that their kernels read and write, beside
the least that any kernel would. The GPU of tests/cuda_ptx counts them: in sectors of 32 bytes, each once for a block between two of its barriers,
as if caches held nothing longer."""

import argparse
import ctypes
import functools
import os
import re
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

Traffic = Dict[str, Tuple[int, int, int]]  # by kernel: launches, bytes read, bytes written
PAGE = Path(__file__).resolve().parent.parent / "docs" / "gpu.md"

# Bytes a second of their memory, as NVIDIA's data sheets give them; and what a launch costs where many follow each other.
BANDWIDTHS = {"H200": 4.8e12, "RTX 4090": 1.0e12}
LAUNCH = 2e-6

HEAD = f"""# Kernels of the GPU

This table is generated: `python -m kernel_traffic --save`, in `tests/`, on nvcc's PTX of the kernels, which the CPU runs.
`benchmarks/RESULTS-gpu.md` has times and bytes that a GPU measured, of other sizes.
How a script moves to a GPU, and what to know there, is in [Train on a GPU](howto/gpu.md).

- **Launches** are counted, with the kernels they are of. Copies and fills by the driver are not among them.
- **Bytes** are counted: sectors of 32 bytes of the GPU's memory that a block reads or writes between two of its barriers, each once. So a value that
  another block reads again counts again, though it may come from a cache.
- **Least** is what any kernel would move: each operand and each result once. It is an estimate where a result depends on values: a row
  that two indices name counts twice, although it may be read once.
- Operands are float16 where no dtype is named. A kernel's name ends with the type that it computes in.
- Sizes are small, because the CPU runs the kernels. At the sizes of a training step, sums of parts have a smaller share.
- A convolution's weight gradient moves 5.57 times the least at the size below: 2.40 MB for 0.43. Half of it are sums of 8 parts, 0.59 MB written and
  0.59 read: positions are cut into parts, so that enough blocks work. The output's gradient is read once for each of 3 tiles of taps, 0.79 MB for 0.26,
  and a line of the image once for each row of the window, 0.39 MB for 0.13. Blocks that read the same positions are neighbours, so a second-level cache
  of some megabytes answers what is read again. Fewer parts would move less, and leave multiprocessors without work.
- Products are cuBLASLt's and most convolutions are cuDNN's. Their bytes are not counted.
- **Estimates** are microseconds: the bytes at the speed of the GPU's memory ({" and ".join(f"{name} {speed / 1e12:.1f} TB/s" for name, speed in BANDWIDTHS.items())}), and
  {LAUNCH * 1e6:.0f} for each launch. A kernel that computes more than it moves takes longer, and one whose operands lie in a cache less.

| Operator | Sizes | Launches | Kernels | Bytes | Least | Ratio |{"".join(f" Estimate, {name} |" for name in BANDWIDTHS)}
|---|---|---:|---|---:|---:|---:|{"---:|" * len(BANDWIDTHS)}
"""


class Row(NamedTuple):
    """A line of the table: the numbers are bytes."""
    operator: str
    sizes: str
    kernels: Dict[str, int]
    moved: int
    least: int

    def text(self) -> str:
        kernels = ", ".join(f"`{name}`" + (f" × {n}" if n > 1 else "") for name, n in sorted(self.kernels.items()))
        estimates = "".join(f" {self.microseconds(speed):.1f} |" for speed in BANDWIDTHS.values())
        return (f"| {self.operator} | {self.sizes} | {self.launches} | {kernels} | {self.moved:,} | {self.least:,} | {self.moved / self.least:.2f} |{estimates}")

    @property
    def launches(self) -> int:
        return sum(self.kernels.values())

    def microseconds(self, bandwidth: float) -> float:
        """An estimate for a GPU whose memory moves so many bytes a second."""
        return 1e6 * (self.moved / bandwidth + self.launches * LAUNCH)


def so_far() -> Traffic:
    kernel = ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcuda.so.1")).sim_kernel
    kernel.restype, numbers, found = ctypes.c_char_p, (ctypes.c_longlong * 3)(), {}
    while (name := kernel(len(found), numbers)) is not None:
        found[name.decode()] = tuple(numbers)
    return found


def traffic(f: Callable[[], object]) -> Traffic:
    """That of a second call of ``f``: the first may make copies that later ones keep."""
    from where import settled, simulator

    settled(f())
    before = so_far()
    simulator("count_traffic", 1)
    try:
        settled(f())
    finally:
        simulator("count_traffic", 0)
    found = {name: tuple(now - then for now, then in zip(numbers, before.get(name, (0, 0, 0)))) for name, numbers in so_far().items()}
    return {name: numbers for name, numbers in found.items() if numbers[0]}


# -- cases: each gives a call, and the tensors that it must read or write ------------------------------------------------

CASES: List[Tuple[str, str, Callable[[Any], Tuple[Callable[[], object], List[Any]]]]] = []


def case(operator: str, sizes: str) -> Callable[[Any], Any]:
    def note(make: Any) -> Any:
        CASES.append((operator, sizes, make))
        return make
    return note


def half(lib: Any, *shape: int, grad: bool = False) -> Any:
    t = lib.randn(*shape, device="cuda").half()
    return t.requires_grad_() if grad else t


def forward_case(operator: str, sizes: str, f: Callable[..., Any], *shapes: Tuple[int, ...]) -> None:
    """float16 operands; each is read once, each result is written once."""
    def make(lib: Any) -> Any:
        operands = [half(lib, *shape) for shape in shapes]
        call = functools.partial(f, lib, *operands)
        results = call()
        return call, [*operands, *(results if isinstance(results, tuple) else [results])]
    CASES.append((operator, sizes, make))


def backward_case(operator: str, sizes: str, f: Callable[..., Any], *shapes: Tuple[int, ...], reads: str = "gx") -> None:
    """Gradients of all operands; what is read of the gradient (g), the first operand (x) and the result (y), and the gradients, which are written."""
    def make(lib: Any) -> Any:
        operands = [half(lib, *shape, grad=True) for shape in shapes]
        y = f(lib, *operands)
        g = lib.randn(*y.shape, device="cuda").to(y.dtype)
        return (lambda: lib.autograd.grad(y, operands, g, retain_graph=True)), [*operands, *({"g": g, "x": operands[0], "y": y}[name] for name in reads)]
    CASES.append((operator, sizes, make))


forward_case("`a + b`", "256 × 512", lambda lib, a, b: a + b, (256, 512), (256, 512))
forward_case("`a + row`", "256 × 512, 512", lambda lib, a, b: a + b, (256, 512), (512,))
forward_case("`gelu`", "256 × 512", lambda lib, a: lib.nn.functional.gelu(a), (256, 512))
forward_case("`float`", "256 × 512", lambda lib, a: a.float(), (256, 512))
forward_case("`dropout`", "256 × 512", lambda lib, a: lib.nn.functional.dropout(a), (256, 512))
forward_case("`cat`", "256 × 96, 256 × 160", lambda lib, a, b: lib.cat([a, b], 1), (256, 96), (256, 160))
forward_case("`sum`, rows", "512 × 256", lambda lib, a: a.sum(1), (512, 256))
forward_case("`sum`, columns (a bias)", "1024 × 256", lambda lib, a: a.sum(0), (1024, 256))
forward_case("`sum`, a convolution's bias", "8 × 16 × 32 × 32", lambda lib, a: a.sum((0, 2, 3)), (8, 16, 32, 32))
forward_case("`sum`, of all", "262144", lambda lib, a: a.sum(), (262144,))
forward_case("`var`", "512 × 256", lambda lib, a: a.var(1), (512, 256))
forward_case("`argmax`", "64 × 1024", lambda lib, a: a.argmax(1), (64, 1024))
forward_case("`cumsum`", "64 × 1024", lambda lib, a: a.cumsum(1), (64, 1024))
forward_case("`sort`", "4 × 2048", lambda lib, a: a.sort(1), (4, 2048))
for name in ("softmax", "log_softmax"):
    for n in (1024, 20000):
        forward_case(f"`{name}`", f"16 × {n}", lambda lib, a, name=name: getattr(lib, name)(a, 1), (16, n))
        backward_case(f"`{name}`, backward", f"16 × {n}", lambda lib, a, name=name: getattr(lib, name)(a, 1), (16, n), reads="gy")
forward_case("`logsumexp`", "16 × 20000", lambda lib, a: a.logsumexp(1), (16, 20000))


def layer_norm(lib: Any, x: Any, *w: Any) -> Any:
    return lib.nn.functional.layer_norm(x, x.shape[1:], *w)


forward_case("`layer_norm`", "1024 × 256", layer_norm, (1024, 256), (256,), (256,))
backward_case("`layer_norm`, backward", "1024 × 256", layer_norm, (1024, 256), (256,), (256,))


def batch_norm(training: bool, backward: bool) -> Callable[[Any], Any]:
    def make(lib: Any) -> Any:
        x, g = half(lib, 8, 16, 64, 64, grad=True), half(lib, 8, 16, 64, 64)
        w, b, mean, var = (lib.ones(16, device="cuda") for _ in range(4))
        w.requires_grad_(), b.requires_grad_()
        call = functools.partial(lib.nn.functional.batch_norm, x, mean, var, w, b, training)
        y = call()
        return (lambda: lib.autograd.grad(y, (x, w, b), g, retain_graph=True), [x, x, g]) if backward else (call, [x, x])
    return make


case("`batch_norm`, training", "8 × 16 × 64 × 64")(batch_norm(True, False))
case("`batch_norm`, training, backward", "8 × 16 × 64 × 64")(batch_norm(True, True))
case("`batch_norm`, evaluating", "8 × 16 × 64 × 64")(batch_norm(False, False))


def group_norm(lib: Any, x: Any, *w: Any) -> Any:
    return lib.nn.functional.group_norm(x, 4, *w)


forward_case("`group_norm`", "8 × 16 × 64 × 64", group_norm, (8, 16, 64, 64), (16,), (16,))
backward_case("`group_norm`, backward", "8 × 16 × 64 × 64", group_norm, (8, 16, 64, 64), (16,), (16,))


@case("`max_pool2d`, windows of 3, steps of 2", "4 × 8 × 64 × 64")
def max_pool(lib: Any) -> Any:
    x = half(lib, 4, 8, 64, 64)
    call = functools.partial(lib.nn.functional.max_pool2d, x, 3, 2, 1, return_indices=True)
    return call, [x, *call()]


@case("`max_pool2d`, backward", "4 × 8 × 64 × 64")
def max_pool_backward(lib: Any) -> Any:
    x = half(lib, 4, 8, 64, 64, grad=True)
    y, indices = lib.nn.functional.max_pool2d(x, 3, 2, 1, return_indices=True)
    return (lambda: lib.autograd.grad(y, x, y.detach(), retain_graph=True)), [x, y, indices]


forward_case("`avg_pool2d`", "4 × 8 × 64 × 64", lambda lib, x: lib.nn.functional.avg_pool2d(x, 2), (4, 8, 64, 64))
backward_case("`avg_pool2d`, backward", "4 × 8 × 64 × 64", lambda lib, x: lib.nn.functional.avg_pool2d(x, 2), (4, 8, 64, 64), reads="g")


def cross_entropy(backward: bool, soft: bool = False) -> Callable[[Any], Any]:
    def make(lib: Any) -> Any:
        x = half(lib, 16, 20000, grad=True)
        target = lib.softmax(lib.randn(16, 20000, device="cuda"), 1) if soft else lib.randint(0, 20000, (16,), device="cuda")
        call, read = functools.partial(lib.nn.functional.cross_entropy, x, target), [x, target] if soft else [x]
        loss = call()
        return (lambda: lib.autograd.grad(loss, x, retain_graph=True), [x, *read]) if backward else (call, read)
    return make


case("`cross_entropy`", "16 × 20000")(cross_entropy(False))
case("`cross_entropy`, backward", "16 × 20000")(cross_entropy(True))
case("`cross_entropy`, float32 probabilities", "16 × 20000")(cross_entropy(False, True))
case("`cross_entropy`, float32 probabilities, backward", "16 × 20000")(cross_entropy(True, True))


def embedding(backward: bool) -> Callable[[Any], Any]:
    def make(lib: Any) -> Any:
        table, index = half(lib, 500, 64, grad=True), lib.randint(0, 500, (2048,), device="cuda")
        y = lib.nn.functional.embedding(index, table)
        g = half(lib, 2048, 64)
        return ((lambda: lib.autograd.grad(y, table, g, retain_graph=True), [g, table, index]) if backward
                else (lambda: lib.nn.functional.embedding(index, table), [y, y, index]))
    return make


case("`embedding`", "2048 of 500 × 64")(embedding(False))
case("`embedding`, backward", "2048 of 500 × 64")(embedding(True))


def convolution(weight: bool) -> Callable[[Any], Any]:
    def make(lib: Any) -> Any:
        x, w = half(lib, 2, 32, 32, 32), half(lib, 64, 32, 3, 3, grad=True)
        lib.backends.cudnn.enabled = False
        y = lib.nn.functional.conv2d(x, w, padding=1)
        return ((lambda: lib.autograd.grad(y, w, y.detach(), retain_graph=True)), [x, y, w]) if weight else (
            functools.partial(lib.nn.functional.conv2d, x, w, padding=1), [x, w, y])
    return make


case("`conv2d` without cuDNN", "2 × 32 × 32 × 32, 64 × 32 × 3 × 3")(convolution(False))
case("`conv2d`, the weight's gradient", "2 × 32 × 32 × 32, 64 × 32 × 3 × 3")(convolution(True))


def attention(backward: bool = False, mask: str = "", **how: Any) -> Callable[[Any], Any]:
    """Forward q, k, v and a mask are read; backward these, the result and its gradient, and a trained mask's gradient is written, too."""
    def make(lib: Any) -> Any:
        q, k, v = (half(lib, 8, 256, 64, grad=backward) for _ in range(3))
        masks = [lib.randn(8, 256, 256, device="cuda").requires_grad_()] if mask == "trained" else [lib.rand(8, 256, 256, device="cuda") < 0.5] if mask else []
        call = functools.partial(lib.nn.functional.scaled_dot_product_attention, q, k, v, *masks, **how)
        y, leaves = call(), [q, k, v, *masks] if mask == "trained" else [q, k, v]
        g = half(lib, 8, 256, 64)
        return (lambda: lib.autograd.grad(y, leaves, g, retain_graph=True), [q, k, v, *masks, y, g, *leaves]) if backward else (call, [q, k, v, *masks, y])
    return make


for kind, how in (("", {}), (", causal", {"is_causal": True}), (", dropout", {"dropout_p": 0.1}), (", a mask of truth values", {"mask": "keeps"})):
    case(f"`scaled_dot_product_attention`{kind}", "8 × 256 × 64, each")(attention(**how))
    case(f"`scaled_dot_product_attention`{kind}, backward", "8 × 256 × 64, each")(attention(True, **how))
case("`scaled_dot_product_attention`, a trained mask, backward", "8 × 256 × 64, each")(attention(True, "trained"))


def recurrence(cell: str, units: int, gates: int, states: int, kept: int, backward: bool) -> Callable[[Any], Any]:
    """What goes step by step. `kept`: the values of a unit that backward reads, of y's size each."""
    def make(lib: Any) -> Any:
        x, w = half(lib, 8, 32, gates * units, grad=True), half(lib, gates * units, units)
        state, bias = half(lib, states, 32, units), half(lib, gates * units) if cell == "gru" else None
        call = functools.partial(lib._ops._recurrence, x, state, w, bias, None, cell, False, True)
        y, last = call()
        return ((lambda: lib.autograd.grad(y, x, y.detach(), retain_graph=True)), [x, y] + [y] * kept + [w]) if backward else (
            call, [x, y] + [y] * kept + [state, last])
    return make


for name, *how in (("LSTM", 72, 4, 2, 5), ("LSTM", 64, 4, 2, 5), ("GRU", 72, 3, 1, 4), ("GRU", 64, 3, 1, 4)):
    case(f"`{name}`, the steps", f"8 × 32 × {how[0]}")(recurrence(name.lower(), *how, False))
    case(f"`{name}`, the steps, backward", f"8 × 32 × {how[0]}")(recurrence(name.lower(), *how, True))


@case("the look over gradients", "131072, 4096, 64")
def grad_stats(lib: Any) -> Any:
    grads = [half(lib, n) for n in (131072, 4096, 64)]
    return (lambda: lib._C._cuda_grad_stats(grads)[0]), grads


def optimizer(name: str, state: int, **how: Any) -> None:
    def make(lib: Any) -> Any:
        params = [lib.randn(n, device="cuda").requires_grad_() for n in (65536, 4096, 64)]
        opt = getattr(lib.optim, name)(params, lr=0.1, **how)
        for p in params:
            p.grad = lib.randn_like(p)
        return opt.step, params * (3 + 2 * state)
    CASES.append((f"`{name}`, a step", "65536, 4096, 64, float32", make))


optimizer("SGD", 1, momentum=0.9)
optimizer("AdamW", 2)


# -- the table -----------------------------------------------------------------------------------------------------------


def row_of(lib: Any, operator: str, sizes: str, make: Any) -> Row:
    enabled = lib.backends.cudnn.enabled
    try:
        call, tensors = make(lib)
        found = traffic(call)
    finally:
        lib.backends.cudnn.enabled = enabled
    return Row(operator, sizes, {name: n[0] for name, n in found.items()}, sum(n[1] + n[2] for n in found.values()), sum(t.nbytes for t in tensors))


def rows(lib: Any) -> List[Row]:
    lib.manual_seed(0)
    return [row_of(lib, *one) for one in CASES]


def kept() -> Dict[Tuple[str, str], Tuple[int, float]]:
    """Launches and ratio of each line of the page, by operator and sizes."""
    lines = re.findall(r"^\| (.*?) \| (.*?) \| (\d+) \| .*? \| [\d,]+ \| [\d,]+ \| ([\d.]+) \|", PAGE.read_text(), re.M)
    return {(operator, sizes): (int(launches), float(ratio)) for operator, sizes, launches, ratio in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="write docs/gpu.md instead of printing it")
    save = parser.parse_args().save
    from conftest import build_simulator

    os.environ["AMPC_CUDA_LIBS"], os.environ["AMPC_TEST_DEVICE"] = str(build_simulator("ptx")), "cuda"
    import ampc

    text = HEAD + "\n".join(row.text() for row in rows(ampc)) + "\n"
    if save:
        PAGE.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
