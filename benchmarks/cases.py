"""What is measured: one entry a row of the table, and how a library does it once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Optional

from models import MODELS, model_step


@dataclass(frozen=True)
class Case:
    name: str
    what: str
    bound: Optional[float]  # on time(ampc) / time(torch); None: no goal
    repeats: int  # calls that one figure averages
    limit: Optional[str] = None  # what holds it back at best: a key of limits.c's object
    amount: float = 0  # of what that limit counts, in one call: floating point operations, or bytes


def product(m: int, n: int, k: int) -> float:
    return 2.0 * m * n * k


def mlp(n: int) -> float:
    """Three forward, three weight-gradient and two input-gradient products of 512 rows."""
    return 8 * product(512, n, n)


F32, BF16, COPY = "f32_gflop_s", "bf16_gflop_s", "copy_gb_s"

CASES = [
    Case("import", "`import` in a fresh interpreter", 0.15, 1),
    Case("add16", "`a + b` on 16 float32 numbers", 0.2, 20000),
    Case("linear-small", "`F.linear` 32x64x64, bfloat16 autocast", 0.1, 3000, BF16, product(32, 64, 64)),
    Case("mlp64", "MLP 3x64, batch 512, float32: forward, backward, SGD step", 0.60, 300, F32, mlp(64)),
    Case("mlp1024", "MLP 3x1024, float32, the same", 1.10, 8, F32, mlp(1024)),
    Case("mlp4096", "MLP 3x4096, float32, the same", 1.05, 1, F32, mlp(4096)),
    Case("mlp64-bf16", "MLP 3x64, bfloat16 autocast", 0.25, 300, BF16, mlp(64)),
    Case("mlp1024-bf16", "MLP 3x1024, bfloat16 autocast", 0.5, 20, BF16, mlp(1024)),
    Case("mlp4096-bf16", "MLP 3x4096, bfloat16 autocast", 0.5, 1, BF16, mlp(4096)),
    Case("fp16-64", "MLP 3x64, float16 autocast, GradScaler and SGD", 0.25, 300, BF16, mlp(64)),
    Case("fp16-256", "MLP 3x256, float16 autocast, GradScaler and SGD", 0.35, 100, BF16, mlp(256)),
    Case("fp16-1024", "MLP 3x1024, float16 autocast, GradScaler and SGD", 0.5, 10, BF16, mlp(1024)),
    Case("fp16-4096", "MLP 3x4096, float16 autocast, GradScaler and SGD", 0.5, 1, BF16, mlp(4096)),
    Case("adamw-default", "MLP 3x4096, float16 autocast, GradScaler, clipping, AdamW", 0.35, 1, BF16, mlp(4096)),
    Case("adamw-fused", "the same, torch's with fused=True", 0.6, 1, BF16, mlp(4096)),
    Case("phase-default", "unscale_, clipping, AdamW and update, 50 M parameters in 160 tensors", 0.35, 1, "add_gb_s", 32.0 * 50e6),
    Case("phase-fused", "the same, torch's with fused=True", 0.6, 1, "add_gb_s", 32.0 * 50e6),
    Case("forward", "product 512x4096x4096, bfloat16, weights kept: forward", 0.8, 4, BF16, product(512, 4096, 4096)),
    Case("dx", "the same: gradient of the input", 0.8, 4, BF16, product(512, 4096, 4096)),
    Case("dw", "the same: gradient of the weight, float32 in ampc", 0.4, 4, BF16, product(512, 4096, 4096)),
    Case("forward-64", "product 64x1024x1024, bfloat16, weights kept", 0.4, 100, BF16, product(64, 1024, 1024)),
    Case("convolution", "convolution 3x3, 64 to 128 channels, 32 images of 32x32, bfloat16 autocast: forward, backward", 0.7, 10, BF16,
         3 * product(32 * 32 * 32, 128, 64 * 9)),
    Case("attention", "attention, batch 8, 8 heads, 512, 64, bfloat16 autocast: forward, backward", 0.7, 5, BF16, 64 * 7 * product(512, 512, 64)),
    Case("depthwise", "convolution 3x3, each of 64 channels its own, 32 images of 32x32, bfloat16 autocast: forward, backward", None, 10, COPY,
         9 * 2.0 * 32 * 64 * 32 * 32),
    Case("batch_norm", "batch norm, 32 images of 32x32, 64 channels, bfloat16: forward, backward", None, 20, COPY, 8 * 2.0 * 32 * 64 * 32 * 32),
    Case("group_norm", "group norm, 8 groups, the same", None, 20, COPY, 8 * 2.0 * 32 * 64 * 32 * 32),
    *(Case(f"each-{what}", f"{text} of 16 Mi numbers, bfloat16", None, 3, "add_gb_s", size * (1 << 24))
      for what, size, text in (("add", 6.0, "`x += y`"), ("gelu", 4.0, "GELU"), ("softmax", 4.0, "softmax in rows of 1024"),
                               ("layer_norm", 4.0, "layer_norm in rows of 1024"), ("cross_entropy", 2.0, "cross-entropy, 1024 classes,"),
                               ("dropout", 4.0, "dropout"))),
    *(Case(f"{name}{suffix}", f"{text}, {how}: training step", bound, repeats, limit, 3 * macs * 2)
      for name, text, bound, repeats, macs in (
          ("lstm", "LSTM, 2 layers of 256, 32 sequences of 64 steps", 0.7, 4, 2048 * (4 * 512 * 256 * 2 + 256 * 64)),
          ("gpt", "GPT, 3 blocks 128 wide, 16 sequences of 128", 0.6, 8, 2048 * (3 * (12 * 128 * 128 + 2 * 128 * 128) + 128 * 128)),
          ("resnet20", "ResNet-20, 32 images of 32x32", 0.8, 4, 32 * 40.6e6))
      for suffix, how, limit in (("", "float32", F32), ("-bf16", "bfloat16 autocast", BF16))),
    Case("cast", "cast of 64 Mi numbers, float32 to float16", 1.0, 1, COPY, 6.0 * (1 << 26)),
]

BUSY = [  # bound on time beside busy processes / quiet time, of ampc itself
    Case("mlp1024-bf16", "MLP 3x1024, bfloat16 autocast", 2.5, 16),
    Case("mlp64-bf16", "MLP 3x64, bfloat16 autocast", 2.5, 300),
    Case("mlp1024", "MLP 3x1024, float32", 2.5, 8),
]


def training_step(T: Any, n: int, low: bool, batch: int = 512) -> Callable[[], Any]:
    T.manual_seed(0)
    net = T.nn.Sequential(T.nn.Linear(n, n), T.nn.ReLU(), T.nn.Linear(n, n), T.nn.ReLU(), T.nn.Linear(n, n))
    opt = T.optim.SGD(net.parameters(), lr=1e-3)
    loss_fn, x, y = T.nn.MSELoss(), T.randn(batch, n), T.randn(batch, n)

    def step() -> None:
        opt.zero_grad()
        with T.autocast("cpu", dtype=T.bfloat16, enabled=low):
            loss = loss_fn(net(x), y)
        loss.backward()
        opt.step()

    return step


def scaled_step(T: Any, n: int, adamw: bool = False, fused: bool = False, batch: int = 512) -> Callable[[], Any]:
    """The recipe's step: float16 autocast and a scaler; with AdamW, clipping too."""
    T.manual_seed(0)
    net = T.nn.Sequential(T.nn.Linear(n, n), T.nn.ReLU(), T.nn.Linear(n, n), T.nn.ReLU(), T.nn.Linear(n, n))
    options = {"fused": True} if fused else {}
    opt = T.optim.AdamW(net.parameters(), lr=1e-4, **options) if adamw else T.optim.SGD(net.parameters(), lr=1e-3)
    scaler, loss_fn, x, y = T.amp.GradScaler("cpu"), T.nn.MSELoss(), T.randn(batch, n), T.randn(batch, n)

    def step() -> None:
        opt.zero_grad()
        with T.autocast("cpu", dtype=T.float16):
            loss = loss_fn(net(x), y)
        scaler.scale(loss).backward()
        if adamw:
            scaler.unscale_(opt)
            T.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()

    return step


def optimizer_phase(T: Any, fused: bool, parameters: int = 50_000_000, tensors: int = 160) -> Callable[[], Any]:
    """What follows backward, again and again on the same gradients, whose norm stays 1 after the first time."""
    each = parameters // tensors
    params = [T.nn.Parameter(T.randn(each)) for _ in range(tensors)]
    opt = T.optim.AdamW(params, lr=1e-3, **({"fused": True} if fused else {}))
    scaler = T.amp.GradScaler("cpu", init_scale=0.5, growth_interval=1 << 30)  # doubles them, clipping halves them
    scaler.scale(T.ones(()))
    for p in params:
        p.grad = T.randn(each)

    def step() -> None:
        scaler.unscale_(opt)
        T.nn.utils.clip_grad_norm_(params, 1.0)
        scaler.step(opt)
        scaler.update()

    return step


def low_product(T: Any, which: str, m: int, n: int, k: int) -> Callable[[], Any]:
    """As a training step under autocast meets it: activations in bfloat16, the weight a float32 parameter
    whose 16-bit copy is kept."""
    x, g = T.randn(m, k).to(T.bfloat16), T.randn(m, n).to(T.bfloat16)
    w = T.randn(n, k).requires_grad_()
    low = w.detach().to(T.bfloat16)
    own = T.__name__ == "ampc"

    def run() -> Any:
        with T.no_grad(), T.autocast("cpu", dtype=T.bfloat16):
            if which == "forward":
                return T.nn.functional.linear(x, w if own else low)
            if which == "dx":
                return T.mm(g, w if own else low)
            return T.mm(g.t(), x, out_dtype=T.float32) if own else T.mm(g.t(), x)

    return run


def layer(T: Any, which: str) -> Callable[[], Any]:
    """Forward, under autocast where something is multiplied, and backward from a gradient that is there."""
    F = T.nn.functional
    images, image = T.randn(32, 64, 32, 32), (32, 64, 32, 32)
    attended = [T.randn(8, 8, 512, 64) for _ in range(3)]
    plane = [t.to(T.bfloat16) for t in (images, T.ones(64), T.zeros(64))]
    inputs, forward, shape = {
        "convolution": ((images, T.randn(128, 64, 3, 3) * 0.05, T.zeros(128)), lambda x, w, b: F.conv2d(x, w, b, padding=1), (32, 128, 32, 32)),
        "depthwise": ((images, T.randn(64, 1, 3, 3), T.zeros(64)), lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=64), image),
        "batch_norm": (plane, lambda x, w, b: F.batch_norm(x, None, None, w, b, True), image),
        "group_norm": (plane, lambda x, w, b: F.group_norm(x, 8, w, b), image),
        "attention": (attended, F.scaled_dot_product_attention, (8, 8, 512, 64)),
    }[which]
    g = T.randn(*shape).to(T.bfloat16)
    for t in inputs:
        t.requires_grad_()

    def step() -> None:
        with T.autocast("cpu", dtype=T.bfloat16, enabled=inputs is not plane):
            y = forward(*inputs)
        y.backward(g)
        for t in inputs:
            t.grad = None

    return step


def elementwise(T: Any, what: str) -> Callable[[], Any]:
    """Out of cache: 32 MiB an operand."""
    F, rows = T.nn.functional, 1 << 14
    x, y = T.rand(rows, 1024).to(T.bfloat16), T.zeros(rows, 1024).to(T.bfloat16)
    labels, weight = T.zeros(rows, dtype=T.int64), T.ones(1024).to(T.bfloat16)
    work = {"add": lambda: x.add_(y), "gelu": lambda: F.gelu(x), "softmax": lambda: F.softmax(x, -1),
            "layer_norm": lambda: F.layer_norm(x, (1024,), weight, weight), "cross_entropy": lambda: F.cross_entropy(x, labels),
            "dropout": lambda: F.dropout(x, 0.1)}[what]

    def run() -> Any:
        with T.no_grad():
            return work()

    return run


def make(T: Any, name: str) -> Callable[[], Any]:
    kind, _, rest = name.partition("-")
    if kind == "add16":
        a, b = T.ones(16), T.ones(16)
        return lambda: a + b
    if kind == "linear":
        return low_product(T, "forward", 32, 64, 64)
    if kind in ("convolution", "attention", "depthwise", "batch_norm", "group_norm"):
        return layer(T, kind)
    if kind == "each":
        return elementwise(T, rest)
    if kind == "cast":
        wide = T.ones(1 << 26)
        return lambda: wide.to(T.float16)
    if kind in MODELS:
        return model_step(T, kind, rest == "bf16")
    if kind == "fp16":
        return scaled_step(T, int(rest))
    if kind == "adamw":
        return scaled_step(T, 4096, True, rest == "fused")
    if kind == "phase":
        return optimizer_phase(T, rest == "fused")
    if kind.startswith("mlp"):
        return training_step(T, int(kind[3:]), rest == "bf16")
    return low_product(T, kind, *((64, 1024, 1024) if rest else (512, 4096, 4096)))
