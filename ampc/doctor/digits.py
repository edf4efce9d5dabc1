"""Tells of updates that 16 bits cannot hold: float16 has eleven binary digits and bfloat16 eight, so a weight plus a thousandth of itself may be
the same weight. The first steps of an optimizer are looked at, and a few elements of its largest parameters."""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, Optional, Tuple

from .. import _C
from .._events import Listener, listen
from .guard import report

STEPS, IN_A_ROW, ADDITIONS, SHARE = 10, 5, 8, 0.9  # steps that are looked at; steps and additions that must lose; and the share of elements
MOST, ELEMENTS = 8, 64  # parameters, and elements of each
NEAR = 1 / 16  # an average with at least this weight of what is new comes within eight units of the last digit, and is right there
MANY = 10_000  # sums that are remembered
SUMMING = frozenset({"add", "sub", "lerp"})  # operators that add onto a tensor
_HALF = (_C.float16, _C.bfloat16)


class Updates:
    """What is known of one optimizer's updates."""

    def __init__(self, optimizer: Any) -> None:
        self.left, self.in_a_row = STEPS, 0
        self.params = _half_parameters(optimizer)
        self.before: List[Tuple[Any, Any, Any]] = []  # parameter, values and where gradients are not 0

    def begins(self, optimizer: Any) -> None:
        """A step begins: keeps values that it is to change."""
        self.before = []
        if all(group.get("lr", 0.0) > 0.1 * group.get("initial_lr", 0.0) for group in optimizer.param_groups):  # not while the rate warms up
            self.before = [(p, _some(p), _some(p.grad) != 0) for p in self.params if p.grad is not None and not p.grad.is_sparse]

    def ends(self, optimizer: Any) -> None:
        """The step has ended: compares them."""
        before, self.before = self.before, []
        lost = elements = 0.0
        for p, values, wanted in before:
            count = int(wanted.sum())
            if count:
                elements += p.numel()
                lost += p.numel() * int((wanted & (_some(p) == values)).sum()) / count
        flag = optimizer._found_inf
        if not elements or (flag is not None and flag.item()):  # the GPU has skipped the step
            return
        self.left -= 1
        self.in_a_row = self.in_a_row + 1 if lost >= SHARE * elements else 0
        if self.in_a_row == IN_A_ROW:
            self.left = 0
            dtype = str(self.params[0].dtype).split(".")[-1]
            report("weights-too-coarse", f"{type(optimizer).__name__}.step() leaves {100 * lost / elements:.0f} % of the {dtype} parameters as they "
                   f"were, in {IN_A_ROW} steps one after another, although their gradients are not 0: the updates are smaller than half a unit of "
                   "the last digit",
                   "keep the parameters in float32, which autocast casts where that is fast; or pass rounding='stochastic', 'kahan' or 'master'")


def _half_parameters(optimizer: Any) -> List[Any]:
    """The largest 16-bit parameters of an optimizer of ours that rounds its updates to the nearest value."""
    if not type(optimizer).__module__.startswith("ampc.optim"):
        return []  # it may keep what was lost
    groups = [g for g in optimizer.param_groups if g.get("rounding", "nearest") == "nearest" and isinstance(g.get("lr"), float)]
    found = [p for g in groups for p in g["params"] if p.dtype in _HALF and p.requires_grad and not p.is_meta]
    return sorted(found, key=lambda p: -p.numel())[:MOST] if len(groups) == len(optimizer.param_groups) else []


def _some(t: Any) -> Any:
    """A copy of a few elements."""
    flat = t.detach().reshape(-1)
    return flat[::max(1, flat.numel() // ELEMENTS)].clone()


def _beside(target: Any, other: Any) -> Any:
    """The elements of an operand that meet those few of the target."""
    return _some(other.detach().to(target.device).expand(target.shape)).float()


def seen_alpha() -> float:
    """The factor of what is added, of the operator that is shown."""
    alpha = _C._seen_argument("alpha")
    return 1.0 if alpha is None else float(alpha)


class Sums:
    """What a doctor sees of additions onto 16-bit tensors: each line and memory, how often in a row one more addition would change nothing."""

    def __init__(self) -> None:
        self._lost: Dict[tuple, Tuple[int, Any]] = {}  # and what was there then: another write may not be seen
        self._first: Dict[tuple, float] = {}

    def saw(self, op: str, inputs: tuple, target: Any, location: Tuple[str, int], goes_on: bool) -> None:
        """An operator has written its result onto ``target``, outside of backward. ``goes_on``: nothing else has written there since this line
        did last, so it is no new tensor in the same memory."""
        if op not in SUMMING or target.dtype not in _HALF or target.is_meta:
            return
        key = (*location, _C._address(target))
        now, added = _some(target).float(), _beside(target, inputs[1])
        size = float(now.abs().mean())
        if len(self._first) > MANY:  # lines times memory
            self._first.clear()
            self._lost.clear()
        self._first.setdefault(key, size)
        if op == "lerp":
            weight = _beside(target, inputs[2])
            added = (added - now) * weight * (weight < NEAR)
        else:
            added = added * seen_alpha()
        wanted = added != 0
        if wanted.any():
            again = (now - added if op == "sub" else now + added).to(target.dtype).float()
            stays = int((wanted & (again == now)).sum()) >= SHARE * int(wanted.sum())
            times, last = self._lost.get(key, (0, now))
            self._lost[key] = (times + 1 if stays and goes_on and bool((last == now).all()) else 0), now
            if self._lost[key][0] == ADDITIONS:
                _report_sum(op, target, size > 4 * self._first[key] or bool((added == added.round()).all()))


def _report_sum(op: str, target: Any, grown: bool) -> None:
    dtype = str(target.dtype).split(".")[-1]
    said = (f"{op}_ onto a {dtype} tensor of shape {list(target.shape)} changes nothing, {ADDITIONS} times one after another, although what is "
            "added is not 0")
    if grown:
        report("sum-too-coarse", f"{said}: the sum has grown so large that half a unit of its last digit is more",
               "add up in float32, or as Python numbers by item(); counts as integers (long)")
    else:
        report("weights-too-coarse", f"{said}: it is smaller than half a unit of the last digit", "keep weights and their averages in float32")


_UNKNOWN: Any = object()


class Digits(Listener):
    """Hears of the steps of optimizers."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Any, Optional[Updates]] = weakref.WeakKeyDictionary()
        self._running: Dict[int, Updates] = {}  # those whose step has begun and is looked at, by the optimizer's id

    def step_begins(self, optimizer: Any, closure: bool) -> None:
        """An optimizer's step begins."""
        updates = self._known.get(optimizer, _UNKNOWN)
        if updates is _UNKNOWN:
            made = Updates(optimizer)
            updates = self._known[optimizer] = made if made.params else None
        if updates is not None and updates.left:
            updates.begins(optimizer)
            self._running[id(optimizer)] = updates

    def step_ended(self, optimizer: Any) -> None:
        """It has ended."""
        updates = self._running.pop(id(optimizer), None) if self._running else None
        if updates is not None:
            updates.ends(optimizer)


listen(Digits())
