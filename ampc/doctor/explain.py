"""What ran in which dtype, why, and what mixed precision cost: ``with ampc.explain() as e:`` around some steps, then ``print(e)``."""

from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .. import _C, policy
from .._messages.callers import call_site, location_text
from .._messages.table import html_table, html_text
from .._ops import SHOWN
from ._watcher import Watcher

TILES = "tiles"
COPIES = {"used": "reused", "packed": "made", "renewed": "renewed by an optimizer", "refused": "not kept for lack of memory"}
MOST = 25  # operators that are shown
CAST_BEFORE = ("flash_attention", "flash_attention_backward")  # products in 16 bits that autocast does not cast for
HALVES = (_C.float16, _C.bfloat16)
SMALL = 2**17  # multiplications, below which a product is over before its operands are cast


class Ran(NamedTuple):
    """Calls of one operator in one dtype, for one reason."""

    op: str
    dtype: str  # that it computed in
    reason: str
    calls: int
    seconds: float


class Casts(NamedTuple):
    """Casts from one dtype to another."""

    source: str
    target: str
    calls: int
    bytes: int  # read and written
    seconds: float


class Product(NamedTuple):
    """Products that used the CPU's or GPU's 16-bit units badly, or not at all."""

    op: str
    location: Tuple[str, int]
    shape: Optional[Tuple[int, ...]]  # m, n, k; None of what is no single product of matrices
    why: str
    calls: int
    multiplications: int  # of one call

    def __str__(self) -> str:
        """The operator and its size."""
        return f"{self.op} " + (" x ".join(map(str, self.shape)) if self.shape else f"of {self.multiplications} multiplications")


def _text(dtype: Any) -> str:
    return str(dtype).split(".")[-1]


def _other_region(t: Any) -> str:
    """The device type of the open region, where it is not that of the tensor; "" where one serves it, or none is open."""
    here, there = ("cuda", "cpu") if t.is_cuda else ("cpu", "cuda")
    apart = _C._is_autocast_enabled(there) and not _C._is_autocast_enabled(here)
    return there if apart and _C._cuda_count() else ""  # without a GPU both mean the CPU's


class Explain(Watcher):
    """Looks at every operator of this thread, forward and backward, until its end."""

    def __init__(self) -> None:
        self._ran: Dict[Tuple[str, str, str], List[float]] = {}
        self._casts: Dict[Tuple[str, str], List[float]] = {}
        self._products: Dict[tuple, int] = {}
        self.multiplications = [0, 0, 0]  # of products in 16 bits: all, those in which tiles are partly empty, and the most in one
        self.passed_over = ""  # 'cpu' or 'cuda': a product was there, and the open region is of the other
        self.without_units: Any = None  # the dtype of a product on the CPU, which has no units for it
        self._category = {op["name"]: op["cast"] for op in _C.op_table()}
        self._before: Dict[str, int] = {}
        self._copies: Dict[str, int] = {}

    def _begins(self) -> None:
        self._before = _C.weight_copy_stats()

    def _ends(self) -> None:
        now = _C.weight_copy_stats()
        self._copies = {k: now[k] - self._before[k] for k in ("used", "packed", "renewed", "refused")}

    # -- looking -------------------------------------------------------------------------------------------------

    def _saw(self, op: str, inputs: tuple, outputs: tuple, low: Any, onto: bool, nanoseconds: int) -> None:
        out = next((o for o in outputs if o.is_floating_point()), None)
        if out is None:
            return
        floats = [t for t in inputs if t is not None and t.is_floating_point() and t.ndim]
        if op == "cast" and floats and not onto:
            self._cast(floats[0], out, nanoseconds)
            return
        dtype, reason = self._why(op, floats, out, low)
        entry = self._ran.setdefault((SHOWN[op], dtype, reason), [0, 0])
        entry[0] += 1
        entry[1] += nanoseconds / 1e9
        if op in CAST_BEFORE:
            self._product(op, floats, outputs, floats[0].dtype)
        elif self._category.get(op) == "low":
            self._product(op, floats, outputs, low)

    def _cast(self, source: Any, target: Any, nanoseconds: int) -> None:
        entry = self._casts.setdefault((_text(source.dtype), _text(target.dtype)), [0, 0, 0])
        entry[0] += 1
        entry[1] += source.numel() * (source.element_size() + target.element_size())
        entry[2] += nanoseconds / 1e9

    def _why(self, op: str, floats: list, out: Any, low: Any) -> Tuple[str, str]:
        if low in HALVES:  # otherwise it computes in float32 and reads 16-bit inputs in place
            return _text(low), "autocast: products in 16 bits"
        if _C._running() is not None:
            return _text(out.dtype), "backward: the dtype that forward chose"
        if _other_region(out):
            return _text(out.dtype), f"the autocast region is of '{_other_region(out)}', this ran on {out.device.type}: the inputs' dtype"
        if not _C._autocast_active():
            within = _C._is_autocast_enabled("cpu") or _C._is_autocast_enabled("cuda")
            return _text(out.dtype), "autocast: part of an operator that runs in float32" if within else "no autocast region: the inputs' dtype"
        category = policy.category_now(op)
        if category == "float32":
            return "float32", "autocast: sums, losses and norms in float32" if policy.current() is None else "autocast: float32 by the policy"
        if category == "widest":
            return _text(out.dtype), "autocast: the widest dtype among the inputs"
        return _text(out.dtype), "autocast: the inputs' dtype"

    def _product(self, op: str, floats: list, outputs: tuple, low: Any) -> None:
        shape, size = _product_sizes(op, floats, outputs[0]), multiplications(op, floats, outputs)
        why = self._obstacle(shape, size, floats, low)
        if low is None and floats and _other_region(floats[0]):
            self.passed_over = floats[0].device.type
        if low is not None:
            if not floats[0].is_cuda and not _C._has_units(low):
                self.without_units = low
            self.multiplications[0] += size
            self.multiplications[1] += size if TILES in why else 0
            self.multiplications[2] = max(self.multiplications[2], size)
        if why:
            key = (SHOWN[op], call_site(), shape, why, size)
            self._products[key] = self._products.get(key, 0) + 1

    @staticmethod
    def _obstacle(shape: Optional[Tuple[int, ...]], size: int, floats: list, low: Any) -> str:
        dtype = low if low is not None else floats[0].dtype if floats else None
        if dtype not in HALVES:
            other = _other_region(floats[0]) if floats else ""
            return f"it ran in {_text(dtype)}: " + ("autocast leaves float64 alone" if dtype == _C.float64 else f"the autocast region is of '{other}'"
                                                    if other else "no autocast region is open")
        on_gpu = floats[0].is_cuda
        if not on_gpu and not _C._has_units(dtype):
            return f"this CPU has no unit for {_text(dtype)}"
        if 0 < size < SMALL:
            return "it is so small that the casts and the call take longer than the product"
        if shape is None:
            return ""
        m, n, k = shape
        if on_gpu and (m % 8 or n % 8 or k % 8):
            return f"the GPU multiplies {TILES} of 8, which these sizes leave partly empty: make the sizes multiples of 8"
        padded = -(-m // 16) * 16 * (-(-n // 16) * 16) * (-(-k // 32) * 32)
        if not on_gpu and padded > 1.25 * m * n * k:
            return (f"the CPU multiplies {TILES} of 16 x 16 x 32, which are {100 * (1 - m * n * k / padded):.0f} % empty here: make the sizes "
                    "multiples of 32")
        return ""

    # -- what was found ----------------------------------------------------------------------------------------------

    @property
    def ran(self) -> List[Ran]:
        """Operators, the longest first."""
        return sorted((Ran(*key, int(calls), seconds) for key, (calls, seconds) in self._ran.items()), key=lambda r: -r.seconds)

    @property
    def casts(self) -> List[Casts]:
        """Casts, the longest first. Those that a product does while it reads its operands are a part of it, and not here."""
        return sorted((Casts(*key, int(n), int(size), seconds) for key, (n, size, seconds) in self._casts.items()), key=lambda c: -c.seconds)

    @property
    def products(self) -> List[Product]:
        """Products that gain little or nothing from 16 bits, with the reason."""
        every = [Product(op, location, shape, why, calls, size) for (op, location, shape, why, size), calls in self._products.items()]
        return sorted(every, key=lambda p: -p.calls)

    @property
    def copies(self) -> Dict[str, int]:
        """How often a weight's 16-bit copy was ``used`` again, ``packed`` (made), ``renewed`` by an optimizer, or ``refused`` for lack of memory."""
        return dict(self._copies)

    def _summary(self) -> List[str]:
        """What casts cost, and what became of weights' copies."""
        total, spent = sum(r.seconds for r in self.ran), sum(c.seconds for c in self.casts)
        copies = ", ".join(f"{self.copies[k]} {text}" for k, text in COPIES.items() if k in self.copies)
        share = 100 * spent / (total + spent) if total + spent else 0
        return [f"casts take {share:.1f} % of the {1e3 * (total + spent):.3g} ms that all operators took", f"16-bit copies of weights: {copies}"]

    def __str__(self) -> str:
        lines = [f"{'operator':<28}{'computed in':<13}{'calls':>7}{'ms':>10}   reason"]
        lines += [f"{r.op:<28}{r.dtype:<13}{r.calls:>7}{1e3 * r.seconds:>10.3f}   {r.reason}" for r in self.ran[:MOST]]
        for c in self.casts:
            lines.append(f"{'cast ' + c.source + ' to ' + c.target:<41}{c.calls:>7}{1e3 * c.seconds:>10.3f}   {c.bytes / 1e6:.3g} MB")
        lines += self._summary()
        for p in self.products[:10]:
            lines.append(f"{location_text(p.location)}: {p} ({p.calls} times): {p.why}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        ran = [["operator", "computed in", "calls", "ms", "reason"]]
        ran += [[r.op, r.dtype, str(r.calls), f"{1e3 * r.seconds:.3f}", r.reason] for r in self.ran[:MOST]]
        casts = [["cast from", "to", "calls", "ms", "MB"]]
        casts += [[c.source, c.target, str(c.calls), f"{1e3 * c.seconds:.3f}", f"{c.bytes / 1e6:.3g}"] for c in self.casts]
        products = [["location", "product", "times", "why it gains little"]]
        products += [[location_text(p.location), str(p), str(p.calls), p.why] for p in self.products[:10]]
        tables = [html_table(rows, left) if len(rows) > 1 else "" for rows, left in ((ran, {0, 1, 4}), (casts, {0, 1}), (products, {0, 1, 3}))]
        return "".join([*tables[:2], html_text(*self._summary()), tables[2]])


def _product_sizes(op: str, inputs: list, out: Any) -> Optional[Tuple[int, ...]]:
    """m (of all of a batch), n and k of a product; None where it is not one alone."""
    first = {"mm": 0, "bmm": 0, "linear": 0, "addmm": 1, "baddbmm": 1}.get(op)
    if first is None or len(inputs) < first + 2:
        return None
    return out.numel() // max(out.shape[-1], 1), out.shape[-1], inputs[first].shape[-1]


def multiplications(op: str, x: list, y: tuple) -> int:
    """Of one call with the floating point inputs ``x`` and the results ``y``; attention's is that without a mask."""
    sizes = _product_sizes(op, x, y[0])
    if sizes is not None:
        return math.prod(sizes)
    if op == "convolution":  # weights are [out, in, ...], transposed ones [in, out, ...]: where both fit, the smaller image is the output
        positions = min((t for t in (y[0], x[0]) if t.shape[1] == x[1].shape[0]), key=lambda t: t.numel(), default=y[0])
        return int(positions.numel() * x[1].numel() // max(x[1].shape[0], 1))
    if op == "convolution_weight":
        return int(x[1].numel() * y[0].numel() // max(y[0].shape[0], 1))
    if op.startswith(("fused_attention", "flash_attention")):
        many, keys = (5, x[2]) if op.endswith("_backward") else (2, x[1])
        return int(many * x[0].numel() * keys.shape[-2])
    if op in ("recurrence", "recurrence_backward"):
        steps, weight = (x[0], x[2]) if op == "recurrence" else (x[2], x[-1])
        return int((1 if op == "recurrence" else 2) * steps.numel() // max(steps.shape[-1], 1) * weight.numel())
    return 0


def explain() -> Explain:
    """A context that records every operator with its dtype and the reason for it. It also records casts, 16-bit copies of weights, and
    products that gain nothing from 16 bits. Print it afterwards."""
    return Explain()
