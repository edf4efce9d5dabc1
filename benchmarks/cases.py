"""What is measured: one entry a row of the table, and how a library does it once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Optional

from models import model_step

Build = Callable[[Any], Callable[[], Any]]  # takes a library, gives what it does once


@dataclass(frozen=True)
class Case:
    name: str
    what: str
    build: Optional[Build]  # None: `import`, which needs a new process
    bound: Optional[float] = None  # on time(ampc) / time(torch); None: no goal
    limit: Optional[str] = None  # what holds it back at best: a key of limits.c's object
    amount: float = 0  # of what that limit counts, in one call: floating point operations, or bytes
    share: Optional[float] = None  # of that limit, that ampc is to reach at least
    threads: Optional[int] = None  # None: those of the run
    in_float32: Optional[str] = None  # the case with the same work in float32
    on_one: Optional[str] = None  # the case with the same work on one thread
    needs_units: bool = False  # left out of classes that convert 16-bit numbers to float32
    short: Optional[str] = None  # in the picture

    @property
    def label(self) -> str:
        return self.short or self.what


def product(m: int, n: int, k: int) -> float:
    return 2.0 * m * n * k


def mlp(n: int) -> float:
    """Three forward, three weight-gradient and two input-gradient products of 512 rows."""
    return 8 * product(512, n, n)


F32, BF16, COPY, ADD = "f32_gflop_s", "bf16_gflop_s", "copy_gb_s", "add_gb_s"

# -- how a library does it ------------------------------------------------------------------------------


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


def plain_product(T: Any, which: str, m: int, n: int, k: int, dtype: str = "float32") -> Callable[[], Any]:
    """One of the three products of a linear layer of n times k weights that sees m rows, without autograd."""
    x, g, w = (T.randn(*shape).to(getattr(T, dtype)) for shape in ((m, k), (m, n), (n, k)))
    linear, mm = T.nn.functional.linear, T.mm
    return {"forward": lambda: linear(x, w), "dx": lambda: mm(g, w), "dw": lambda: mm(g.t(), x)}[which]


def sum_of_two(T: Any) -> Callable[[], Any]:
    a, b = T.ones(16), T.ones(16)
    return lambda: a + b


def cast(T: Any) -> Callable[[], Any]:
    wide = T.ones(1 << 26)
    return lambda: wide.to(T.float16)


# -- the table ------------------------------------------------------------------------------------------


def _in_both(name: str, what: str, short: str, build: Callable[..., Any], flops: float, bounds: tuple[float, float]) -> list[Case]:
    """A training step in float32, and the same under autocast. `build` takes `low`, and `what` has a place for the precision."""
    return [Case(name, what.format("float32"), partial(build, low=False), bounds[0], F32, flops, short=f"{short}, float32"),
            Case(f"{name}-bf16", what.format("bfloat16 autocast"), partial(build, low=True), bounds[1], BF16, flops, in_float32=name,
                 short=f"{short}, bfloat16 autocast")]


def _model(name: str, what: str, flops: float, bounds: tuple[float, float]) -> list[Case]:
    return _in_both(name, what + ", {}: training step", what.split(",")[0], partial(model_step, name=name), flops, bounds)


def _mlp(n: int, bounds: tuple[float, float]) -> list[Case]:
    what = f"MLP 3x{n}, batch 512, {{}}: training step with SGD"
    return _in_both(f"mlp{n}", what, f"MLP 3x{n}", partial(training_step, n=n), mlp(n), bounds)


def _float16(n: int, bound: float) -> Case:
    return Case(f"fp16-{n}", f"MLP 3x{n}, float16 autocast, GradScaler and SGD", partial(scaled_step, n=n), bound, BF16, mlp(n), in_float32=f"mlp{n}",
                short=f"MLP 3x{n}, float16 autocast, GradScaler")


_MODELS = [*_model("resnet20", "ResNet-20, 32 images of 32x32", 6 * 32 * 40.6e6, (0.85, 0.75)),
           *_model("gpt", "GPT, 3 blocks 128 wide, 16 sequences of 128", 6 * 2048 * (3 * (12 * 128 * 128 + 2 * 128 * 128) + 128 * 128), (0.85, 0.6)),
           *_model("lstm", "LSTM, 2 layers of 256, 32 sequences of 64 steps", 6 * 2048 * (4 * 512 * 256 * 2 + 256 * 64), (0.8, 0.75)),
           *_model("convnet", "two convolutions 3x3, with batch norm, 64 images of 32x32", 64 * (4 * 27 * 32 * 1024 + 6 * 288 * 64 * 256),
                   (0.85, 0.6))]

_MLPS = [*_mlp(64, (0.45, 0.2)), *_mlp(256, (0.85, 0.6)), *_mlp(1024, (0.95, 0.6)), *_mlp(4096, (1.0, 0.5)), _float16(1024, 0.5)]

_CALLS = [Case("import", "`import` in a fresh interpreter", None, 0.15),
          Case("add16", "`a + b` on 16 float32 numbers", sum_of_two, 0.15),
          Case("linear-small", "`F.linear` 32x64x64, bfloat16 autocast", partial(low_product, which="forward", m=32, n=64, k=64), 0.1, BF16,
               product(32, 64, 64))]

_PHASES = [Case(f"phase-{name}", f"unscale_, clipping, AdamW and update, 50 M parameters in 160 tensors{beside}",
                partial(optimizer_phase, fused=fused), bound, ADD, 32.0 * 50e6, share=0.85, short=f"unscaling, clipping and AdamW{beside}")
           for name, beside, fused, bound in (("default", "", False, 0.35), ("fused", ", torch's with fused=True", True, 0.6))]

_IMAGES = 2.0 * 32 * 64 * 32 * 32  # bytes of one pass over them
_LAYERS = [Case(name, f"{what}: forward, backward", partial(layer, which=name), bound, limit, amount, short=short)
           for name, what, short, bound, limit, amount in (
               ("convolution", "convolution 3x3, 64 to 128 channels, 32 images of 32x32, bfloat16 autocast", "convolution 3x3, bfloat16 autocast",
                0.7, BF16, 3 * product(32 * 32 * 32, 128, 64 * 9)),
               ("attention", "attention, batch 8, 8 heads, 512, 64, bfloat16 autocast", "attention, 8 heads, bfloat16 autocast", 0.7,
                BF16, 64 * 7 * product(512, 512, 64)),
               ("depthwise", "convolution 3x3, each of 64 channels its own, 32 images of 32x32, bfloat16 autocast",
                "depthwise convolution 3x3, bfloat16 autocast", None, COPY, 9 * _IMAGES),
               ("batch_norm", "batch norm, 32 images of 32x32, 64 channels, bfloat16", "batch norm, bfloat16", None, COPY, 8 * _IMAGES),
               ("group_norm", "group norm, 8 groups, 32 images of 32x32, 64 channels, bfloat16", "group norm, bfloat16", None, COPY, 8 * _IMAGES))]

WHICH = {"forward": "forward", "dx": "gradient of the input", "dw": "gradient of the weight"}
SHARES = {(2048, 2048, 2048): 0.92, (512, 1024, 1024): 0.9, (512, 256, 256): 0.85, (512, 64, 64): 0.7, (32, 64, 64): 0.5}  # of the limit


def _products(dtype: str, threads: int) -> list[Case]:
    """Rows x outputs x inputs of a linear layer. On two threads the goal is how much faster than on one."""
    cases = []
    wide, alone = dtype == "float32", threads == 1
    for (m, n, k), share in SHARES.items():
        for which, text in WHICH.items():
            name = f"product-{m}x{n}x{k}-{which}"
            cases.append(Case(
                f"{name}{'' if wide else '-bf16'}{'' if alone else f'-on{threads}'}",
                f"product {m}x{n}x{k}, {dtype}, {threads} thread{'' if alone else 's'}: {text}",
                partial(plain_product, which=which, m=m, n=n, k=k, dtype=dtype), 0.95, F32 if wide else BF16, product(m, n, k),
                share=share if alone else None, threads=threads, on_one=None if alone else name, needs_units=not wide, short=f"{m}x{n}x{k}: {text}"))
    return cases


# What every class is measured by.
GROUPS = {"Whole models": _MODELS, "Multilayer perceptrons": _MLPS, "Optimizer": _PHASES, "Layers": _LAYERS, "Small calls": _CALLS,
          "Products, float32 on one thread": _products("float32", 1), "Products, float32 on two threads": _products("float32", 2),
          "Products, bfloat16 on one thread": _products("bfloat16", 1)}
CASES = [case for cases in GROUPS.values() for case in cases]

# What takes minutes where 16 bits have no units, or was of interest once: `--more` measures it.
MORE = [
    *(_float16(n, bound) for n, bound in ((64, 0.25), (256, 0.35), (4096, 0.5))),
    Case("adamw-default", "MLP 3x4096, float16 autocast, GradScaler, clipping, AdamW", partial(scaled_step, n=4096, adamw=True), 0.35, BF16,
         mlp(4096)),
    Case("adamw-fused", "the same, torch's with fused=True", partial(scaled_step, n=4096, adamw=True, fused=True), 0.6, BF16, mlp(4096)),
    *(Case(which, f"product 512x4096x4096, bfloat16, weights kept: {text}", partial(low_product, which=which, m=512, n=4096, k=4096), bound, BF16,
           product(512, 4096, 4096)) for (which, text), bound in zip(WHICH.items(), (0.8, 0.8, 0.4))),
    Case("forward-64", "product 64x1024x1024, bfloat16, weights kept", partial(low_product, which="forward", m=64, n=1024, k=1024), 0.4, BF16,
         product(64, 1024, 1024)),
    *(Case(f"each-{what}", f"{text} of 16 Mi numbers, bfloat16", partial(elementwise, what=what), None, ADD, size * (1 << 24))
      for what, size, text in (("add", 6.0, "`x += y`"), ("gelu", 4.0, "GELU"), ("softmax", 4.0, "softmax in rows of 1024"),
                               ("layer_norm", 4.0, "layer_norm in rows of 1024"), ("cross_entropy", 2.0, "cross-entropy, 1024 classes,"),
                               ("dropout", 4.0, "dropout"))),
    Case("cast", "cast of 64 Mi numbers, float32 to float16", cast, 1.0, COPY, 6.0 * (1 << 26)),
]

BY_NAME = {case.name: case for case in [*CASES, *MORE]}

BUSY = dict.fromkeys(("mlp1024-bf16", "mlp64-bf16", "mlp1024"), 2.5)  # bound on time beside busy processes / quiet time, of ampc itself
