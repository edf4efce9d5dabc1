"""What benchmarks/gpu.py measures, written once for either library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict

from models import MODELS

MANY = 160  # tensors of an optimizer's list
ELEMENTS = 16384 * 4096  # of the operators' operands


@dataclass(frozen=True)
class Case:
    name: str
    what: str
    bound: float  # on time(ampc) / time(torch)
    repeats: int
    make: Callable[[Any, int], Callable[[], Any]]  # (library, divisor of sizes) -> one call
    flop: float = 0
    bytes: float = 0  # moved at least, by one call
    share: float = 0.85  # the goal for these, as a share of the device copy's bandwidth


def half(T: Any, *shape: int, grad: bool = False) -> Any:
    return T.randn(*shape, device="cuda").half().requires_grad_(grad)


# -- products, models and optimizers ---------------------------------------------------------------------------------


def product(T: Any, dtype: str, m: int, n: int, k: int) -> Callable[[], Any]:
    a, b = T.randn(m, k, device="cuda").to(getattr(T, dtype)), T.randn(k, n, device="cuda").to(getattr(T, dtype))
    return lambda: a @ b


def amp_step(T: Any, net: Any, opt: Any, loss_fn: Callable[[Any, Any], Any], x: Any, y: Any) -> Callable[[], Any]:
    """One training step: fp16 autocast and GradScaler."""
    scaler = T.amp.GradScaler("cuda")

    def step() -> None:
        opt.zero_grad()
        with T.autocast("cuda", dtype=T.float16):
            loss = loss_fn(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()

    return step


def mlp(T: Any, n: int, batch: int, graphed: bool = False) -> Callable[[], Any]:
    """A step of an MLP of 3 layers, with SGD; eager, or ampc's as a CUDA graph."""
    T.manual_seed(0)
    net = T.nn.Sequential(T.nn.Linear(n, n), T.nn.ReLU(), T.nn.Linear(n, n), T.nn.ReLU(), T.nn.Linear(n, n)).to("cuda")
    opt, loss_fn = T.optim.SGD(net.parameters(), lr=1e-3), T.nn.MSELoss()
    x, y = T.randn(batch, n, device="cuda"), T.randn(batch, n, device="cuda")
    if graphed and hasattr(T.cuda, "graph_step"):
        replayed = T.cuda.graph_step(net, loss_fn, opt, T.amp.GradScaler("cuda"))
        return lambda: replayed(x, y)
    return amp_step(T, net, opt, loss_fn, x, y)


def model(name: str, **sizes: int) -> Callable[[Any, int], Callable[[], Any]]:
    """A step of one of models.py; ``sizes`` as its function takes them."""

    def make(T: Any, small: int) -> Callable[[], Any]:
        T.manual_seed(0)
        with T.device("cuda"):
            net, opt, x, y = MODELS[name](T, **({} if small > 1 else sizes))
        step = amp_step(T, net, opt, T.nn.functional.cross_entropy, x, y)

        def on_the_gpu() -> None:
            with T.device("cuda"):  # of what the model makes itself, such as positions
                step()

        return on_the_gpu

    return make


def parameters(T: Any, small: int) -> list:
    """50 M float32 numbers in 160 tensors, with gradients."""
    made = [T.nn.Parameter(T.zeros(50_000_000 // MANY // small, device="cuda")) for _ in range(MANY)]
    for p in made:
        p.grad = T.ones_like(p)
    return made


def unscale(T: Any, small: int) -> Callable[[], Any]:
    """Unscale and check alone."""
    opt, scaler = T.optim.SGD(parameters(T, small), lr=0.0), T.amp.GradScaler("cuda", init_scale=1.0)
    scaler.scale(T.ones((), device="cuda"))

    def f() -> None:
        scaler.unscale_(opt)
        scaler._per_optimizer_states.clear()

    return f


def adamw(T: Any, small: int) -> Callable[[], Any]:
    """Unscale, clip, AdamW's fused step and the scale's update."""
    params = parameters(T, small)
    opt, scaler = T.optim.AdamW(params, lr=1e-4, fused=True), T.amp.GradScaler("cuda", init_scale=1.0)
    scaler.scale(T.ones((), device="cuda"))

    def f() -> None:
        scaler.unscale_(opt)
        T.nn.utils.clip_grad_norm_(params, 1.0)
        scaler.step(opt)
        scaler.update()

    return f


# -- operators -------------------------------------------------------------------------------------------------------


def with_backward(f: Callable[..., Any], *inputs: Any) -> Callable[[], Any]:
    """The call and its gradients; the output's gradient is made once."""
    slope = f(*inputs).detach().clone()

    def call() -> None:
        for x in inputs:
            x.grad = None
        f(*inputs).backward(slope)

    return call


def attention(T: Any, small: int, backward: bool) -> Callable[[], Any]:
    q, k, v = (half(T, 8, 16, 2048 // small, 64, grad=backward) for _ in range(3))

    def f(q: Any, k: Any, v: Any) -> Any:
        return T.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return with_backward(f, q, k, v) if backward else lambda: f(q, k, v)


def convolution(T: Any, small: int, backward: bool) -> Callable[[], Any]:
    x, w = half(T, 64 // small, 128, 28, 28, grad=backward), half(T, 128, 128, 3, 3, grad=backward)

    def f(x: Any, w: Any) -> Any:
        return T.nn.functional.conv2d(x, w, padding=1)

    return with_backward(f, x, w) if backward else lambda: f(x, w)


def embedding(T: Any, small: int) -> Callable[[], Any]:
    table, tokens = T.randn(50_000 // small, 768, device="cuda").requires_grad_(), T.randint(0, 50_000 // small, (16384 // small,), device="cuda")
    return with_backward(lambda table: T.nn.functional.embedding(tokens, table), table)


def large_vocabulary(T: Any, small: int) -> Callable[[], Any]:
    x, target = half(T, 8192 // small, 50_000 // small, grad=True), T.randint(0, 50_000 // small, (8192 // small,), device="cuda")
    return with_backward(lambda x: T.nn.functional.cross_entropy(x, target), x)


def layer_norm(T: Any, small: int) -> Callable[[], Any]:
    x, w, b = half(T, 32768 // small, 1024, grad=True), T.ones(1024, device="cuda").half().requires_grad_(), half(T, 1024, grad=True)
    return with_backward(lambda x, w, b: T.nn.functional.layer_norm(x, (1024,), w, b), x, w, b)


def batch_norm(T: Any, small: int) -> Callable[[], Any]:
    x, w, b = half(T, 64 // small, 64, 112, 112, grad=True), T.ones(64, device="cuda").requires_grad_(), T.zeros(64, device="cuda").requires_grad_()
    return with_backward(lambda x, w, b: T.nn.functional.batch_norm(x, None, None, w, b, True), x, w, b)


def max_pool(T: Any, small: int) -> Callable[[], Any]:
    return with_backward(lambda x: T.nn.functional.max_pool2d(x, 3, 2, 1), half(T, 64 // small, 64, 112, 112, grad=True))


def each(op: str) -> Callable[[Any, int], Callable[[], Any]]:
    """One operator on 16384 x 4096 values."""

    def build(T: Any, small: int) -> Callable[[], Any]:
        rows, cols = 16384 // small, 4096 // small
        x, F = half(T, rows, cols), T.nn.functional
        wide, row, target = x.float(), half(T, cols), T.randint(0, cols, (rows,), device="cuda")
        calls: Dict[str, Callable[[], Any]] = {
            "cast": wide.half, "add": lambda: x + x, "add_row": lambda: x + row, "gelu": lambda: F.gelu(x), "softmax": lambda: x.softmax(1),
            "cross_entropy": lambda: F.cross_entropy(x, target), "dropout": lambda: F.dropout(x, 0.1), "transpose": lambda: x.t().contiguous(),
            "sum_columns": lambda: x.sum(0), "sum_rows": lambda: x.sum(1), "sum_all": lambda: x.sum(), "argmax": lambda: x.argmax(1),
            "cumsum": lambda: wide.cumsum(1), "cat": lambda: T.cat([x, x], 1), "var": lambda: wide.var(1), "isfinite": lambda: wide.isfinite().all()}
        return calls[op]

    return build


def sort(T: Any, small: int) -> Callable[[], Any]:
    x = T.randn(64, 100_000 // small, device="cuda")
    return lambda: x.sort(1)


def launch(T: Any, small: int) -> Callable[[], Any]:
    a, b = T.ones(16, device="cuda"), T.ones(16, device="cuda")
    return lambda: a + b


_ATTENTION = 2 * 2 * 8 * 16 * 2048 * 2048 * 64 / 2  # both products, the causal half of them
_CONVOLUTION = 2 * 64 * 28 * 28 * 128 * 128 * 9
_NORM, _CHANNELS, _LOGITS = 2.0 * 32768 * 1024, 2.0 * 64 * 64 * 112 * 112, 2.0 * 8192 * 50_000  # bytes of an operand

CASES = [
    *(Case(f"product-{d}-{m}", f"product {m}x{n}x{k}, {d}", 1.05, 10, lambda T, s, d=d, m=m, n=n, k=k: product(T, d, m // s, n // s, k // s),
           flop=2.0 * m * n * k) for d in ("float16", "bfloat16") for m, n, k in ((4096, 4096, 4096), (8192, 4096, 4096))),
    Case("recipe", "recipe MLP 512x4096x3, fp16 and GradScaler: a step", 1.0, 10, lambda T, s: mlp(T, 4096 // s, 512 // s)),
    Case("mlp256", "MLP 3x256, batch 128: a step", 0.5, 20, lambda T, s: mlp(T, 256, 128)),
    Case("mlp256-graph", "the same as a CUDA graph (torch: eager)", 0.25, 20, lambda T, s: mlp(T, 256, 128, graphed=True)),
    Case("resnet20", "ResNet-20, batch 32: a step", 0.75, 5, model("resnet20")),
    Case("convnet", "conv net, batch 64: a step", 0.75, 10, model("convnet")),
    Case("lstm", "LSTM, 2 layers of 256: a step", 1.0, 5, model("lstm")),
    Case("gpt", "GPT, 3 layers of 128: a step", 0.75, 5, model("gpt")),
    Case("gpt768", "GPT, 6 layers of 768, 16 x 512 tokens of 32,768: a step", 1.0, 3,
         model("gpt", width=768, layers=6, heads=12, block=512, batch=16, vocabulary=32768)),
    Case("unscale", "unscale and check, 50 M float32 in 160 tensors", 1.0, 10, unscale, bytes=4 * 50e6, share=0.9),
    Case("adamw", "unscale, clip, AdamW (fused) and update, the same", 1.0, 10, adamw, bytes=32 * 50e6),
    *(Case(op, f"{op} 16384x4096, {'float32' if wide else 'float16'}", 1.0, 10, each(op), bytes=b * ELEMENTS)
      for op, b, wide in (("cast", 6.0, False), ("add", 4.0, False), ("add_row", 4.0, False), ("gelu", 4.0, False), ("softmax", 4.0, False),
                          ("cross_entropy", 2.0, False), ("dropout", 4.0, False), ("transpose", 4.0, False), ("cat", 6.0, False),
                          ("sum_columns", 2.0, False), ("sum_rows", 2.0, False), ("sum_all", 2.0, False), ("argmax", 2.0, False),
                          ("cumsum", 8.0, True), ("var", 4.0, True), ("isfinite", 4.0, True))),
    Case("large-vocabulary", "cross entropy over 50,000 classes, 8192 rows, and backward", 1.0, 5, large_vocabulary, bytes=3 * _LOGITS),
    Case("layer_norm", "layer norm 32768x1024 and backward", 1.0, 10, layer_norm, bytes=5 * _NORM),
    Case("batch_norm", "batch norm 64x64x112x112 and backward", 1.0, 10, batch_norm, bytes=8 * _CHANNELS),
    Case("max_pool", "max pooling of 3x3 by 2, the same, and backward", 1.0, 10, max_pool, bytes=2.5 * _CHANNELS),
    Case("embedding", "embedding 16384 of 50,000x768 and backward, float32", 1.0, 5, embedding),
    Case("attention", "attention 8x16x2048x64, causal", 1.0, 5, lambda T, s: attention(T, s, False), flop=_ATTENTION),
    Case("attention-backward", "attention, the same, and backward", 1.0, 5, lambda T, s: attention(T, s, True), flop=3.5 * _ATTENTION),
    Case("convolution", "convolution 64x128x28x28, 128 3x3", 1.05, 10, lambda T, s: convolution(T, s, False), flop=_CONVOLUTION),
    Case("convolution-backward", "convolution, the same, and backward", 1.05, 10, lambda T, s: convolution(T, s, True), flop=3 * _CONVOLUTION),
    Case("sort", "sort of 64 rows of 100,000 float32", 1.0, 3, sort),
    Case("launch", "host time of one small `a + b`, not waited for", 0.5, 2000, launch),
]
