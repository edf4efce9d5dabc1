"""Tells of values that 16 bits have rounded, where that matters. Rounding is a small part of a value, so most uses do not suffer: only those of
which the absolute error counts. Each rule marks what was rounded and speaks when the value reaches such a use."""

from __future__ import annotations

import math
from typing import Any, List, NamedTuple, Optional, Tuple

from .. import _C
from ._finding import Location
from ._marks import Mark, Marks
from .digits import _beside, _some
from .guard import say

HALF = {_C.float16: 11, _C.bfloat16: 8}  # binary digits: whole numbers up to 2 to this power are exact
INTEGERS = (_C.int64, _C.int32, _C.int16)
MOVES = {"cast", "clone", "contiguous", "cat", "stack", "index", "index_select", "gather", "where", "repeat", "flip", "roll"}
ARITHMETIC = {"mul", "div", "add", "sub", "neg", "mm", "bmm", "linear"}
PERIODIC = {"sin", "cos", "tan"}
SUBTRACTING = frozenset({"sub"})
COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
RADIANS = 0.1  # an error of an angle that matters
ULPS, SHARE, AMPLIFIED = 4, 0.9, 32.0  # a difference of so few units of the last digit, in so many elements, times so much


def text_of(dtype: Any) -> str:
    """float16 of ampc.float16."""
    return str(dtype).split(".")[-1]


class Rounded(NamedTuple):
    """What is known of whole numbers that were rounded."""

    dtype: Any
    largest: float
    moved: bool  # they were only moved about since: they still stand for whole numbers


class Counts:
    """Whole numbers, such as positions and indices, beyond what 16 bits count: those that are whole numbers again, angles, or compared."""

    def __init__(self, followed: List[Any]) -> None:
        self.marks = Marks(followed)

    def saw(self, op: str, inputs: tuple, out: Any, low: Any, onto: bool, location: Location) -> None:
        """An operator has run forward."""
        made = self._made(op, inputs, out, low)
        if made is not None:
            self.marks.add(out, location, made)
        elif self.marks:
            found = self.marks.among(inputs, onto)
            if found:
                self._used(op, inputs, out, found)

    @staticmethod
    def _made(op: str, inputs: tuple, out: Any, low: Any) -> Optional[Rounded]:
        """The rounding that an operator makes, of whole numbers; None where it makes none."""
        if op in ("mm", "bmm", "linear"):  # of two vectors: positions times frequencies
            return next((_product(t, low) for t in inputs[:2] if low in HALF and inputs[0].shape[-1] == 1 and _product(t, low)), None)
        if out.dtype not in HALF or out.is_meta or not out.numel():
            return None
        if op == "arange":
            flat = out.detach().float()
            largest, same = float(flat.abs().max()), out.numel() > 1 and bool((flat[1:] == flat[:-1]).any())
            return Rounded(out.dtype, largest, True) if same and largest > 2 ** HALF[out.dtype] and math.isfinite(largest) else None
        if op == "cast" and inputs[0].dtype in INTEGERS:
            return _rounding(inputs[0], out)
        return None

    def _used(self, op: str, inputs: tuple, out: Any, found: Tuple[Mark, ...]) -> None:
        mark = found[0]
        if op in PERIODIC and float(inputs[0].detach().abs().max()) * 2.0 ** -(HALF[mark.what.dtype] + 1) > RADIANS:
            _report_count(mark, f"{op}() of them is taken, whose angle is then wrong by more than {RADIANS:g}")
        elif op == "cast" and out.dtype in INTEGERS and mark.what.moved and _is_rounded(inputs[0], mark):
            _report_count(mark, f"they are whole numbers ({text_of(out.dtype)}) again later, and some are others then")
        elif op in COMPARISONS and len(found) == 2 and all(m.what.moved and _is_rounded(t, m) for t, m in zip(inputs, found)) and _differ(*inputs):
            _report_count(mark, "they are compared with one another, and neighbours are equal")
        elif out.is_floating_point() and (op in MOVES or op in ARITHMETIC):
            self.marks.add(out, mark.location, mark.what._replace(moved=mark.what.moved and op in MOVES))


def _rounding(whole: Any, out: Any) -> Optional[Rounded]:
    """What a cast has rounded; None where all numbers are what they were."""
    whole = whole.detach()
    largest = float(whole.abs().max()) if whole.numel() else 0.0
    if not 2 ** HALF[out.dtype] < largest <= 32768 ** (1 if out.dtype is _C.float16 else 4):
        return None
    return Rounded(out.dtype, largest, True) if bool((out.detach().to(_C.int64) != whole.to(_C.int64)).any()) else None


def _product(t: Any, low: Any) -> Optional[Rounded]:
    """The same of a product's operand, which autocast rounds."""
    if t.dtype is not _C.float32 or not t.numel():
        return None
    t = t.detach()
    largest = float(t.abs().max())
    if not 2 ** HALF[low] < largest < 32768 or bool((t != t.round()).any()):
        return None
    return Rounded(low, largest, False) if bool((t.to(low).float() != t).any()) else None


def _is_rounded(t: Any, mark: Mark) -> bool:
    """Whether a part of what is marked has numbers that may be wrong."""
    return t.numel() > 0 and float(t.detach().abs().max()) > 2 ** HALF[mark.what.dtype]


def _differ(a: Any, b: Any) -> bool:
    """Whether two operands are not the same throughout: a test for nan compares a tensor with itself."""
    return bool((a.detach() != b.detach()).any())


def _report_count(mark: Mark, use: str) -> None:
    dtype, digits = text_of(mark.what.dtype), HALF[mark.what.dtype]
    say("count-too-coarse", f"whole numbers up to {mark.what.largest:g} are {dtype} here, which has not all of them above {2 ** digits}: {use}",
        "keep them as integers (long), or in float32 until the result is made; under autocast, switch the region off around them",
        *mark.location)


class Differences:
    """Differences of 16-bit values of one size, which are little more than rounding errors, and are made larger."""

    def __init__(self, followed: List[Any]) -> None:
        self.marks = Marks(followed)

    def saw(self, op: str, inputs: tuple, out: Any, location: Location, same: bool) -> None:
        """An operator has run forward. ``same``: one operator has made its inputs."""
        if op in SUBTRACTING and same and _cancels(inputs, out):
            self.marks.add(out, location, text_of(out.dtype))
        elif self.marks and op in ("mul", "div", "cast"):
            self._used(op, inputs, out)

    def _used(self, op: str, inputs: tuple, out: Any) -> None:
        for mark in self.marks.among(inputs):
            by = [t for t in (inputs[1:] if op == "div" else inputs) if t is not None and t.ndim == 0]
            factor = abs(float(by[0].item())) if by and op != "cast" else 0.0
            factor = 1 / factor if op == "div" and factor else factor
            if factor >= AMPLIFIED:
                say("difference-too-coarse", f"two {mark.what} values that agree in nearly all their digits are subtracted, so that the difference "
                    f"is rounding errors for the most part, and it is multiplied by {factor:.3g} then",
                    "compute both values in float32, with autocast(enabled=False); or take the derivative by torch.autograd.grad", *mark.location)
            elif op == "cast" and out.is_floating_point():
                self.marks.add(out, mark.location, mark.what)


def _cancels(inputs: tuple, out: Any) -> bool:
    """Whether nine tenths of the elements of both operands differ by few units of the last digit, and they are not the same."""
    a, b = inputs[:2]
    if out.dtype not in HALF or out.is_meta or out.numel() < 2 or a.dtype is not out.dtype or b.dtype is not out.dtype or a.shape != b.shape:
        return False
    x, y = _beside(out, a), _beside(out, b)
    size = x.abs().maximum(y.abs())
    near = (x - y).abs() <= ULPS * 2.0 ** (1 - HALF[out.dtype]) * size
    if bool((x == x.round()).all()) and bool((y == y.round()).all()):  # whole numbers, of which a difference is exact
        return False
    return int((near & (size > 0)).sum()) >= SHARE * x.numel() and int((x != y).sum()) >= (1 - SHARE) * x.numel()


class Numbers:
    """Numbers of a script that are 1 or 0 as a 16-bit tensor, where one minus them is taken, or something is multiplied by them."""

    def __init__(self, followed: List[Any]) -> None:
        self.marks = Marks(followed)

    def made(self, value: float, t: Any, location: Location) -> None:
        """A script makes a tensor of a number."""
        if 0 < value < 1 and not t.is_meta and t.item() in (0.0, 1.0):
            self.marks.add(t, location, (value, t.item(), text_of(t.dtype)))

    def saw(self, op: str, inputs: tuple, out: Any) -> None:
        """An operator has run forward."""
        if not self.marks or op not in ("sub", "mul", "div", "add"):
            return
        for mark in self.marks.among(inputs):
            value, becomes, dtype = mark.what
            if (op == "sub" and not out.detach().any()) if becomes else out.ndim > 0:
                harm = "one minus it is 0" if becomes else f"{op} does not notice it"
                say("rate-too-coarse", f"{value:g} is {becomes:g} in {dtype}, so that {harm}",
                    "keep it as a Python number, or in float32", *mark.location)


class Rates:
    """Rates that became 0 in float16: of a list of rates all nonzero ones are 0 after an operator, and the optimizer's rate is 0 then."""

    STEPS, MOST = 3, 4096

    def __init__(self) -> None:
        self._lost: Optional[Tuple[Location, str]] = None
        self._still: dict = {}  # steps in a row with a rate of 0, by the optimizer's id

    def saw(self, op: str, inputs: tuple, out: Any, location: Location) -> None:
        """An operator has run forward."""
        if op not in ("mul", "div", "cast") or out.dtype is not _C.float16 or out.requires_grad or out.is_meta or not 0 < out.numel() <= self.MOST:
            return
        if out.ndim > 1 or bool(out.detach().any()):
            return
        wanted = _some(inputs[0]) != 0
        if op == "mul":
            wanted = (_beside(out, inputs[0]) != 0) & (_beside(out, inputs[1]) != 0)
        if bool(wanted.any()):
            self._lost = location, f"{op} in float16 makes all values 0 that were not, because they are below 6e-8"

    def steps(self, optimizer: Any) -> None:
        """An optimizer's step begins."""
        if self._lost is None:
            return
        wanted = optimizer.defaults.get("lr") != 0 and not any("initial_lr" in g for g in optimizer.param_groups)  # not frozen, nor by a scheduler
        still = wanted and all(float(g.get("lr", 1.0)) == 0.0 for g in optimizer.param_groups)
        self._still[id(optimizer)] = self._still.get(id(optimizer), 0) + 1 if still else 0
        if self._still[id(optimizer)] == self.STEPS:
            location, what = self._lost
            say("rate-too-coarse", f"{what}; {type(optimizer).__name__}.step() has a rate of 0 then, in {self.STEPS} steps one after another",
                "keep rates as Python numbers or in float32", *location)
