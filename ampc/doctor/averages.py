"""Tells of sums and averages in 16 bits that a script makes with several operators, or into a new tensor each time, and that do not change any
more: ``total = total + x``, ``t.mul_(1 - tau).add_(x, alpha=tau)`` and ``t.copy_(m * t + (1 - m) * x)``. What one operator makes in place is
looked at in digits.py."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Dict, NamedTuple, Optional, Tuple

from .. import _C
from ._finding import Location
from .digits import ADDITIONS, NEAR, SHARE, _beside, _some, seen_alpha
from .guard import say
from .rounded import HALF, text_of

TERMS = frozenset({"mul", "add", "sub", "lerp"})  # operators whose results sums and averages are made of
MOST = 64  # terms, and values that are followed
NEARLY = 0.01  # the rounding of two weights
GROWN = 4.0  # a sum is so many times its first value


class Term(NamedTuple):
    """A result of which a sum or an average may be made: a few elements of it and of what it was made of."""

    op: str
    inputs: Tuple[int, ...]  # addresses
    shapes: Tuple[tuple, ...]
    versions: Tuple[int, ...]
    values: Tuple[Any, ...]
    made: Any


class Value(NamedTuple):
    """A sum or an average as it was last time, a few elements of it."""

    address: int
    values: Any
    first: float  # how large it was when it began
    location: Location


class Averages:
    """What is known of them."""

    def __init__(self) -> None:
        self._terms: OrderedDict[int, Term] = OrderedDict()  # by address
        self._sums: OrderedDict[Location, Value] = OrderedDict()  # of new tensors, by line
        self._targets: OrderedDict[int, Value] = OrderedDict()  # of those changed in place, by address
        self._multiplied: Dict[int, Tuple[Value, Any]] = {}  # what such a target was before mul_, and by what
        self._read: OrderedDict[tuple, int] = OrderedDict()  # the version of a target that an average was made of last, by line and address
        self._lost: Dict[tuple, Tuple[int, Any]] = {}  # how often in a row nothing has changed, and which way it should have

    def clear(self) -> None:
        """Forgets all."""
        for each in (self._terms, self._sums, self._targets, self._multiplied, self._read, self._lost):
            each.clear()

    def saw(self, op: str, inputs: tuple, out: Any, onto: bool, location: Location, before: Optional[Tuple[str, Location]]) -> None:
        """An operator has run forward. ``before``: what wrote the target last, before this."""
        recorded = out.requires_grad and not (onto and out.is_leaf)  # a leaf that is changed in place is so in no_grad
        if out.dtype not in HALF or recorded or out.is_meta or not out.numel():
            return
        if onto:
            self._changed(op, inputs, out, location, before)
            return
        if op in ("add", "sub"):
            self._added(op, inputs, out, location)
        if op in TERMS:
            given = [t for t in inputs if t is not None and t.is_floating_point() | (t.ndim == 0)]
            values = tuple(_beside(out, t) for t in given)
            shapes, versions = tuple(tuple(t.shape) for t in given), tuple(t._version for t in given)
            _keep(self._terms, _C._address(out), Term(op, tuple(map(_C._address, given)), shapes, versions, values, _some(out)))

    # -- new tensors: total = total + x, average = m * average + (1 - m) * x ---------------------------------------------

    def _added(self, op: str, inputs: tuple, out: Any, location: Location) -> None:
        last, now = self._sums.get(location), _some(out).float()
        first = float(now.abs().mean())
        if last is not None and last.values.shape == now.shape:
            other = self._other(inputs, out, last)
            term = self._average(inputs, last) if other is None else None
            first = last.first if other is not None or term is not None else first
            if other is not None:
                grown = float(now.abs().mean()) > GROWN * first or bool((other == other.round()).all())
                self._count((location, "sum"), other.sign(), now == last.values, "sum-too-coarse" if grown else "", op, out, location)
            elif term is not None:
                self._count((location, "average"), (term - last.values).sign(), now == last.values, "weights-too-coarse", op, out, location)
        self._added_to_memory(op, inputs, out, location)
        _keep(self._sums, location, Value(_C._address(out), now, first, location))

    @staticmethod
    def _other(inputs: tuple, out: Any, last: Value) -> Optional[Any]:
        """What is added to the last value."""
        for i, t in enumerate(inputs[:2]):
            if _C._address(t) == last.address and t.shape == out.shape and t.dtype is out.dtype and bool((_some(t).float() == last.values).all()):
                return _beside(out, inputs[1 - i])
        return None

    def _average(self, inputs: tuple, last: Value) -> Optional[Any]:
        """What the last value is averaged with: x of m * last + (1 - m) * x."""
        terms = [self._term(t) for t in inputs[:2]]
        for term, other in ((terms[0], terms[1]), (terms[1], terms[0])):
            if term is not None and other is not None and term.op == other.op == "mul" and last.address in term.inputs:
                at = term.inputs.index(last.address)
                is_mean = _are_weights(_weight(term, at), _weight(other, _drawn_at(other, term.shapes[at])))
                if is_mean and term.values[at].shape == last.values.shape and bool((term.values[at] == last.values).all()):
                    return _drawn(other, term.shapes[at])
        return None

    def _term(self, t: Any) -> Optional[Term]:
        """What a tensor was made of, if it is still that tensor."""
        term = self._terms.get(_C._address(t))
        return term if term is not None and term.made.shape == _some(t).shape and bool((term.made == _some(t)).all()) else None

    # -- in place ------------------------------------------------------------------------------------------------------

    def _changed(self, op: str, inputs: tuple, out: Any, location: Location, before: Optional[Tuple[str, Location]]) -> None:
        """mul_ and then add_."""
        at, last = _C._address(out), self._targets.get(_C._address(out))
        if op == "mul":
            known = last is not None and before is not None and before[1] == last.location
            self._multiplied.clear()
            self._multiplied[at] = (last if known and last is not None else Value(at, None, 0.0, location)), _beside(out, inputs[1])
        elif op in ("add", "sub") and before is not None and before[0] == "mul" and at in self._multiplied:
            (was, kept), now = self._multiplied.pop(at), _some(out).float()
            drawn, weight = self._addend(inputs[1], out)
            if was.values is not None and was.values.shape == now.shape and op == "add" and _are_weights(kept, weight):
                self._count((location, at), (drawn - was.values).sign(), now == was.values, "weights-too-coarse", f"mul_ and {op}", out, location)
            _keep(self._targets, at, Value(at, now, 0.0, location))

    def _addend(self, t: Any, out: Any) -> Tuple[Any, Any]:
        """What is added to a product, and its weight: x and a of add_(x, alpha=a), and of add_(a * x)."""
        term, weight = self._term(t), seen_alpha()
        at = _drawn_at(term, tuple(out.shape)) if term is not None and term.op == "mul" else None
        if term is not None and at is not None:
            return term.values[at], weight * _weight(term, at)
        return _beside(out, t), _beside(out, t) * 0 + weight

    def _added_to_memory(self, op: str, inputs: tuple, out: Any, location: Location) -> None:
        """m * t + (1 - m) * x, which the script copies onto t then: t has been written since the same line read it last."""
        parts = [self._term(t) for t in inputs[:2]]
        for term, other in ((parts[0], parts[1]), (parts[1], parts[0])):
            if term is None or other is None or not term.op == other.op == "mul":
                return
            for i, (at, shape, version) in enumerate(zip(term.inputs, term.shapes, term.versions)):
                key, drawn = (location, at), _drawn(other, tuple(out.shape))
                weights = drawn is not None and _are_weights(_weight(term, i), _weight(other, _drawn_at(other, shape)))
                if shape == tuple(out.shape) and weights and self._read.get(key, version) < version:
                    self._count(key, (drawn - term.values[i]).sign(), _some(out).float() == term.values[i], "weights-too-coarse", op, out, location)
                if shape == tuple(out.shape):
                    _keep(self._read, key, version)

    # -- counting ------------------------------------------------------------------------------------------------------

    def _count(self, key: tuple, way: Any, same: Any, rule: str, op: str, out: Any, location: Location) -> None:
        """Counts one more time that nothing has changed, although each time the same ``way`` was to be gone."""
        times, ways = self._lost.get(key, (0, way))
        wanted = (way != 0) & (way == ways)
        lost = bool(wanted.any()) and int((wanted & same).sum()) >= SHARE * max(int((way != 0).sum()), 1)
        if len(self._lost) > 100 * MOST:
            self._lost.clear()
        self._lost[key] = (times + 1, ways if times else way) if lost else (0, way)
        if lost and times + 1 >= ADDITIONS and rule:
            self._lost[key] = (0, way)
            _report(rule, op, out, location)


def _report(rule: str, op: str, out: Any, location: Location) -> None:
    dtype = text_of(out.dtype)
    said = f"{op} gives the same {dtype} tensor of shape {list(out.shape)}, {ADDITIONS} times one after another, although"
    if rule == "sum-too-coarse":
        say(rule, f"{said} what is added is not 0: the sum has grown so large that half a unit of its last digit is more",
            "add up in float32, or as Python numbers by item(); counts as integers (long)", *location)
    else:
        say(rule, f"{said} what it is averaged with is another: the change is smaller than half a unit of the last digit",
            "keep weights, their averages and the factors of these in float32", *location)


def _drawn(term: Term, shape: tuple) -> Optional[Any]:
    """x of (1 - m) * x: the operand that has the average's shape."""
    at = _drawn_at(term, shape)
    return None if at is None else term.values[at]


def _drawn_at(term: Term, shape: tuple) -> Optional[int]:
    return next((i for i, s in enumerate(term.shapes) if s == shape), None)


def _weight(term: Term, at: Optional[int]) -> Any:
    """What a product multiplies one of its operands by."""
    return term.values[1 - at] if at is not None and len(term.values) == 2 else None


def _are_weights(kept: Any, drawn: Any) -> bool:
    """Whether two factors are 1 together, so that a mean is made, and the second is small. A sum that decays, such as momentum, stays where it is
    for another reason."""
    return kept is not None and drawn is not None and bool((((kept + drawn - 1).abs() <= NEARLY) & (drawn < NEAR)).all())


def _keep(kept: OrderedDict, key: Any, value: Any) -> None:
    """As the newest of MOST."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > MOST:
        kept.popitem(last=False)
