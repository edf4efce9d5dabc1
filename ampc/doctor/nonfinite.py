"""The doctor: checks the results of every operator, forward and backward, and names the first one that makes infinities or nans from
finite values. Use ``with ampc.doctor() as d:``; AMPC_DOCTOR=1 in the environment and ``ampc run --doctor`` check a whole script."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import warnings
from collections import deque
from typing import Any, Callable, Deque, Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from .. import _C, policy
from .._events import forget, listen
from .._messages.callers import OUTSIDE, call_site, is_shown, location_text
from .._messages.model_names import Names
from .._messages.table import RichText, html_table, html_text
from .._ops import SHOWN
from ._ear import Ear, is_judged, stats_of
from ._finding import CAME, Finding, Location, Range, limit_of
from ._watcher import Watcher
from .averages import TERMS
from .digits import SUMMING, Sums
from .guard import MisuseWarning
from .recomputed import PRODUCTS
from .rounded import SUBTRACTING
from .rules import RUN
from .values import Values

MOST = 20  # findings, and operators of a chain
NOTHING = "no operator returned inf or nan from finite inputs"
NEAREST = ["location", "operator", "dtype", "largest result", "times below the dtype's largest value"]
DELIBERATE = {"masked_fill", "where", "full", "fill"}  # they make the infinities they were asked for
COPIES = {"clone", "contiguous", "cast"}  # reports of how inf or nan spread leave them out
_OWN = tuple(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *part)  # they work on gradients, not on the model's values
             for part in (("amp", ""), ("doctor", ""), ("optim", ""), ("nn", "utils", "clip_grad.py"), ("utils", "data", "")))
_METHODS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_tensor", "methods.py")
_OWN_FILES: Dict[str, bool] = {_METHODS: False}  # those met so far; what methods of tensors do is their caller's
_LOADER = _OWN[-1]
MARGINS = frozenset({"exp", "pow", "square", "cosh", "sinh", "expm1", "exp2", "mm", "linear", "addmm", "bmm", "sum", "norm"})


# They are infinite or nan at 0 or below: their results say nothing of large inputs.
POLES = {"div", "reciprocal", "remainder", "fmod", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "acos", "asin", "acosh", "atanh"}
TINY = {"float16": 2.0**-25, "float32": 2.0**-150}  # magnitudes up to these round to 0
KEEPERS = frozenset({"add", "clamp"})  # operators by which scripts keep a value from 0
INVERTING = {"div", "reciprocal", "rsqrt", "pow"}  # what they make of an infinity that stands for a large number is finite and wrong
ORDERED = {"lt", "le", "gt", "ge"}  # they answer rightly for an infinity, and for a nan they do not
SPANS = 64  # values that are remembered to know their views
OPEN = 8  # values whose use is awaited, before the dropped ones among them are looked for
KNOWN = 100_000  # results that are known by their addresses, before those that are finite are forgotten


class DoctorWarning(UserWarning):
    """An operator returned inf or nan although its inputs are finite."""


class DoctorError(FloatingPointError):
    """The same, under ``doctor(stop=True)``."""


class Made(NamedTuple):
    """What the doctor knows about a result: the operator and line that made it, and its inputs."""

    op: str
    location: Optional[Location]  # None of an ordinary call, where nobody asks for it
    bad: bool
    inputs: Tuple[int, ...]
    sources: Tuple[Finding, ...] = ()  # what its inf or nan comes from, where that is known
    lost: Tuple[float, int] = (0.0, 0)  # a number that was to keep it from 0 and is 0 in its dtype, and how many operators ago


class End(NamedTuple):
    """A value with inf or nan that no operator has used so far."""

    tensor: Any
    begin: int
    past: int  # behind the last byte
    sources: Tuple[Finding, ...]  # not told yet
    gradient: bool  # a formula made it
    inner: bool  # within a composite operator or formula that has not ended

    def meets(self, addresses: Sequence[int]) -> bool:
        """Whether a tensor begins in its memory."""
        return any(self.begin <= a < self.past for a in addresses)


class Notes(NamedTuple):
    """What csrc/python/doctor.c is given, in this order. It enters ordinary calls of operators, which ``saw`` does not see."""

    saw: Callable[..., None]
    made: Dict[int, Made]
    locations: Dict[int, Location]
    margins: Dict[Tuple[str, Location, str], float]
    open: List[End]  # while there is something in it, or in the next, no call is ordinary
    held: List[Finding]
    followed: List[Any]  # and while there is something in this, see values.py
    own: Dict[str, bool]  # see is_own
    outside: Dict[str, bool]  # see call_site
    ordinary: Made  # what is entered, but for the operator and its inputs
    with_margins: FrozenSet[str]
    keepers: FrozenSet[str]
    summing: FrozenSet[str]
    terms: FrozenSet[str]  # the rest are operators that the rules of values.py may begin to follow values at
    subtracting: FrozenSet[str]
    products: FrozenSet[str]
    ran: Dict[int, tuple]  # while there is something in it, no product is ordinary
    most: int  # entries of `made`, before some are dropped


class Call(NamedTuple):
    """A call of an operator whose result is not finite."""

    op: str
    location: Location
    inputs: List[Any]  # floating point ones, or all where there are none
    out: Any
    values: Tuple[float, ...]  # of it, see _stats
    low: Any
    onto: bool
    running: Any  # the formula that it is a part of, see _C._running
    old: Dict[int, Optional[Made]]  # its inputs, as they were known before
    leaves: Dict[int, Any]  # its inputs that are trained, by address
    exponent: float = 1.0  # the smallest, of a power


def is_own(frame: Any) -> bool:
    """Whether a scaler, an optimizer or a doctor is at work there, perhaps by a method of a tensor, such as ``cpu()``."""
    while frame.f_code.co_filename == _METHODS and frame.f_back is not None:
        frame = frame.f_back
    name = frame.f_code.co_filename
    own = _OWN_FILES.get(name)
    if own is None:
        own = _OWN_FILES[name] = name.startswith(_OWN)
    return own


def _in_loader() -> bool:
    """Whether a DataLoader is fetching a batch."""
    frame: Any = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith(_LOADER):
        frame = frame.f_back
    return frame is not None


def _key(finding: Finding) -> tuple:
    """What is told once."""
    return finding.op, finding.location, finding.backward_of


def _text(dtype: Any) -> str:
    return str(dtype).split(".")[-1]


def _chosen(op: str, low: Any, running: Any) -> str:
    """Why the operator computed in that dtype."""
    shown = SHOWN[op]
    if low is not None:
        return f"autocast runs {shown} in {_text(low)}"
    if running is not None:
        return "the backward pass uses the dtype that the forward pass chose"
    if op == "cast":
        return "this is the dtype that was asked for"
    if _C._autocast_active():
        cast = policy.category_now(op)
        if cast == "float32":
            return f"autocast runs {shown} in float32"
        if cast == "widest":
            return f"autocast runs {shown} in the widest dtype among its inputs"
        return f"autocast leaves {shown} in the dtype of its inputs"
    if _C._is_autocast_enabled("cpu") or _C._is_autocast_enabled("cuda"):
        return f"{shown} is a part of an operator that autocast runs in float32"
    return f"no autocast region is open, so {shown} computes in the dtype of its inputs"


def _lost(op: str, inputs: tuple, out: Any, known: List[Optional[Made]]) -> Tuple[float, int]:
    """The number that was to keep the result from 0, where that number is 0 in the result's dtype, and how many operators ago; else (0.0, 0)."""
    if op not in KEEPERS:
        for m in known:
            if m is not None and m.lost[0] and m.lost[1] < 2:
                return m.lost[0], m.lost[1] + 1
        return 0.0, 0
    if out.dtype not in (_C.float16, _C.float32):
        return 0.0, 0
    numbers = [t.item() for t in inputs if t is not None and t.ndim == 0 and t.dtype is _C.float64 and not t.is_cuda]
    if op == "clamp":
        numbers = [_C._seen_argument("min") or 0.0]
    return next((float(v) for v in numbers if 0 < abs(v) <= TINY[_text(out.dtype)]), 0.0), 0


def _of_guard(report: Any) -> str:
    return f"{location_text((report.file, report.line))}: [{report.rule}] {report.text}\n  fix: {report.fix}"


class Doctor(Watcher):
    """Checks every operator of this thread; ``ampc.doctor()`` makes one. ``findings`` are in their order, and ``margins`` has the largest
    magnitude of each operator. ``misuse`` has what the misuse guard found meanwhile. A finding is a warning, once it is certain
    that the script does not repair the value: at a loss's backward(), at the end of backward, at a step, where it is dropped, or at the doctor's end.
    With ``stop=True`` it raises DoctorError there, unless the cause is only the loss scale."""

    def __init__(self, stop: bool = False) -> None:
        self.stop = stop
        self.findings: List[Finding] = []
        self.margins: Dict[Tuple[str, Location, str], float] = {}  # operator, location and dtype -> the largest magnitude it made
        self._made: Dict[int, Made] = {}
        self._locations: Dict[int, Location] = {}  # of nodes
        self._seen: Dict[tuple, Finding] = {}  # by what is told once: told, or still a candidate
        self._told: Set[tuple] = set()
        self._open: List[End] = []  # of candidates
        self._spans: Deque[Tuple[int, int]] = deque(maxlen=SPANS)  # of values that were not finite: the first byte, and behind the last
        self._held: List[Finding] = []  # candidates of the whole that runs
        self._extended: List[Finding] = []  # those whose chain has the call that is seen
        self._ear = Ear(self._made, self._loss_is_known, self._settle)
        self._sums = Sums()
        self._values = Values(self._made)

    def _changes(self) -> tuple:
        ear = (setattr, (self._ear, "over", False), setattr, (self._ear, "over", True))  # even where an exception ends _ends
        return (ear, (None, (), self._clear, ()), *super()._changes(), (_C._watch_wholes, (self._whole,), _C._watch_wholes, (_C._whole_watcher(),)))

    def _callback(self) -> Notes:
        return Notes(self._saw, self._made, self._locations, self.margins, self._open, self._held, self._values.followed, _OWN_FILES, OUTSIDE,
                     Made("", None, False, ()), MARGINS, KEEPERS, SUMMING, TERMS, SUBTRACTING, PRODUCTS, self._values.recomputed.ran, KNOWN)

    def _begins(self) -> None:
        self._values.begin()
        listen(self._ear)

    def _ends(self) -> None:
        with contextlib.suppress(ValueError):  # one doctor in two contexts, of which the inner has ended
            forget(self._ear)
        if self._open or self._held:  # an exception that is on its way is not replaced
            self._settle(every=True, stop=sys.exc_info()[0] is None)

    def _clear(self) -> None:
        self._ear.let_go()
        self._values.let_go()
        for notes in (self._open, self._held, self._made, self._locations):
            notes.clear()

    # -- watching --------------------------------------------------------------------------------------------

    def _saw(self, op: str, inputs: tuple, outputs: tuple, low: Any, onto: bool, nanoseconds: int) -> None:
        made = self._made
        if len(made) > KNOWN:
            for address in [address for address, each in made.items() if not each.sources]:
                del made[address]
            self._locations.clear()
        frame = sys._getframe(1)
        if is_own(frame) and not (self._open and frame.f_code.co_filename.startswith(_LOADER)):  # which makes a batch of what is awaited
            if not onto:  # what lay in this memory before is gone
                for out in outputs:
                    made.pop(_C._address(out), None)
            return
        if self._held and not _C._in_whole():
            self._keep_held()  # of a whole that an error ended
        location = call_site()
        if onto and outputs and _C._running() is None:
            before = made.get(_C._address(outputs[0]))
            self._sums.saw(op, inputs, outputs[0], location, before is None or (before.op, before.location) == (op, location))
        self._values.saw(op, inputs, outputs, low, onto, location)
        addresses = tuple([_C._address(t) for t in inputs if t is not None])
        known = [made.get(a) for a in addresses]
        used = self._used(op, addresses, outputs) if self._open else ()
        self._extended.clear()
        for out in outputs:
            if not is_judged(out):
                continue
            values = stats_of(out)
            bad = values[2] + values[3] > 0
            number = _C._node_number(out)
            if number:
                self._locations[number] = location
            if op in MARGINS and _C._running() is None:
                key = (op, location, _text(out.dtype))
                self.margins[key] = max(self.margins.get(key, 0.0), math.inf if bad else values[1])
            if bad:
                self._values.saw_bad(op, inputs, out, onto, location)
            old = dict(zip(addresses, known)) if bad else {}
            sources = self._sources(op, inputs, out, values, low, onto, location, old, used) if bad else ()
            made[_C._address(out)] = Made(op, location, bad, addresses, sources, _lost(op, inputs, out, known))
            if sources:
                self._opened(out, sources, onto)

    def _sources(self, op: str, inputs: tuple, out: Any, values: Tuple[float, ...], low: Any, onto: bool, location: Location,
                 old: Dict[int, Optional[Made]], used: Sequence[Finding]) -> Tuple[Finding, ...]:
        """What the inf or nan of a result comes from: the finding that the call makes first, or the one that it goes on with; then the others."""
        given, source = [t.detach() for t in inputs if t is not None], None
        if given and op not in DELIBERATE:
            trained = [t if t.is_leaf else t._base for t in inputs if t is not None and t.requires_grad]
            leaves = {_C._address(t): t for t in trained if t is not None and t.is_leaf}
            floats = [t for t in given if t.is_floating_point()]
            source = self._judge(Call(op, location, floats or given, out.detach(), values, low, onto, _C._running(), old, leaves,
                                      given[-1].amin().item() if op == "pow" and given[-1].numel() else 1.0), used)
        others = [f for m in old.values() if m is not None and m.bad for f in m.sources]
        return tuple(dict.fromkeys([*([source] if source is not None else []), *others, *used]))

    # -- what becomes of inf and nan: a finding is told where they are not repaired ----------------------------

    def _opened(self, out: Any, sources: Iterable[Finding], onto: bool) -> None:
        """Awaits what becomes of a value, unless all its sources are told already."""
        plain, begin = out.detach(), _C._address(out)
        past = begin + max((plain.numel() if plain.is_contiguous() else _extent(plain)) * plain.element_size(), 1)
        self._spans.append((begin, past))
        waiting = tuple(f for f in sources if _key(f) not in self._told)
        if not waiting:
            return
        if len(self._open) >= OPEN and not any(e.inner for e in self._open):
            self._settle(every=len(self._open) > 8 * OPEN)
        self._open[:] = [e for e in self._open if e.begin != begin]
        self._open.append(End(plain, begin, past, waiting, _C._running() is not None, _C._in_whole() and not onto))

    def _used(self, op: str, addresses: Sequence[int], outputs: tuple) -> Tuple[Finding, ...]:
        """An operator uses values that were awaited: it repairs them, or its own result is awaited from now on. Whether something is inf or nan
        is a question that repairs nothing."""
        floats = any(t.is_floating_point() for t in outputs)
        met = [e for e in self._open if e.meets(addresses) and (floats or (op in ORDERED and not e.tensor.isnan().any().item()))]
        self._open[:] = [e for e in self._open if not any(e is m for m in met)]
        if floats and op in INVERTING and not _C._in_whole():
            self._tell([f for e in met for f in e.sources if f.too_large and not e.gradient and not self._is_bad(outputs)])
        return tuple(f for e in met for f in e.sources)

    @staticmethod
    def _is_bad(some: Iterable[Any]) -> bool:
        """Whether one of them has inf or nan."""
        return any(sum(stats_of(t)[2:4]) > 0 for t in some if t is not None and is_judged(t))

    def _settle(self, every: bool = False, gradients: bool = False, stop: bool = True) -> None:
        """Tells what was dropped without being repaired; of ``gradients``, all that came out of a backward pass; or ``every`` one."""
        if self._held and not _C._in_whole():
            self._keep_held()
        if not self._open:
            return
        bad = [e for e in self._open if sum(stats_of(e.tensor)[2:4]) > 0]
        self._open.clear()
        over = [every or (gradients and e.gradient) or _C._holders(e.tensor) == 1 for e in bad]
        self._open[:] = [e for e, gone in zip(bad, over) if not gone]
        self._tell([f for e, gone in zip(bad, over) if gone for f in e.sources], stop)

    def _loss_is_known(self, loss: Any) -> None:
        """A script scales a loss, or calls its backward(): an origin that reached it counts."""
        made = self._made.get(_C._address(loss))
        if made is not None and made.sources and sum(stats_of(loss)[2:4]) > 0:
            self._tell(made.sources)
        if self._open:
            self._settle()

    def _judge(self, call: Call, used: Sequence[Finding]) -> Optional[Finding]:
        """Decides whether this call is the first to return inf or nan. Returns the finding that they come from, where one is known."""
        nans, infs, came, source = False, False, None, None
        for t in call.inputs:
            if not t.is_floating_point():
                continue
            made = call.old.get(_C._address(t))
            if call.onto and _C._address(t) == _C._address(call.out):  # overwritten by now
                whole = self._whole_of(t) if made is None else None
                nans = nans or whole is not None or (made is not None and made.bad)
                source = source or whole or (made.sources[0] if made is not None and made.sources else None)
                continue
            seen = stats_of(t)
            nans, infs = nans or seen[3] > 0, infs or seen[2] > 0
            if made is not None and made.bad:
                source = source or (made.sources[0] if made.sources and seen[2] + seen[3] > 0 else None)
            elif call.running is None and self._is_foreign(call, t, seen):
                source, came = source or self._whole_of(t), t
        if source is None and used and (nans or infs):  # a part of what was awaited
            source = used[0]
        if source is None and came is not None:
            return self._came(call, came)
        if source is None and call.running is not None and (nans or infs):  # of what the forward pass saved
            source = self._latest(spoiled=False)
        if source is not None:
            self._go_on(call, source)
            return source
        return None if nans or (infs and call.values[3] == 0) else self._origin(call, infs)

    def _whole_of(self, t: Any) -> Optional[Finding]:
        """What the inf or nan of a view comes from: the finding of the tensor whose memory it is a part of."""
        at = _C._address(t)
        whole = next((self._made.get(b) for b, past in reversed(self._spans) if b <= at < past), None)
        return whole.sources[0] if whole is not None and whole.bad and whole.sources else None

    @staticmethod
    def _is_foreign(call: Call, t: Any, seen: tuple) -> bool:
        """Whether inf or nan of an input that no operator is known to have made tells of bad data. -inf may be a mask, but not in a parameter."""
        if _C._address(t) in call.leaves:
            return bool(seen[2] + seen[3] > 0)
        return bool(t.ndim and (seen[3] > 0 or (seen[2] > 0 and (t == math.inf).any().item())))

    def _latest(self, spoiled: bool = True) -> Optional[Finding]:
        """The last finding that may have spoiled what came later. After one of the scale, the scaler skips the step. With ``spoiled``, what was
        repaired since is none."""
        known = [f for f in self._seen.values() if f.cause != "scale"]
        alive = [f for f in known if _key(f) in self._told or any(f is s for e in self._open for s in e.sources)] if spoiled else known
        return alive[-1] if alive else None

    def _came(self, call: Call, t: Any) -> Optional[Finding]:
        """An input already contained inf or nan. For a parameter or a buffer, after another finding, that finding is taken for the cause."""
        leaf = call.leaves.get(_C._address(t))
        buffer = Names().of_buffer(t) if leaf is None else None
        before = self._latest() if leaf is not None or buffer else None
        if before is not None or _in_loader():  # a loader's data counts when a script uses the batch
            return before
        kind, name = (("parameter", f"parameter {Names().of(leaf) or ''}".rstrip()) if leaf is not None else
                      ("buffer", f"buffer {buffer}") if buffer else ("data", "an input tensor"))
        what, bad = "nan" if t.isnan().any().item() else "inf", int((~t.isfinite()).sum())
        found = Finding(kind, call.location, what, _first_bad(t), bad, t.numel(), _text(t.dtype), name, [], [], None, 1.0, False)
        found.served = self._ear.served(t) if kind == "data" else ""
        if leaf is not None and what == "inf" and self._ear.has_stepped(leaf):
            found.grown = self._ear.grown() or f"an optimizer's step made {name} infinite"
        return self._find(found, call.onto)

    def _go_on(self, call: Call, source: Finding) -> None:
        """Adds the call to the chain of the finding that its inf or nan comes from. The chain ends with the pass that it began in: at the
        loss, or where a loop of the script begins again."""
        if _key(source) not in self._seen:  # it was masked, and now it is not
            self._find(source, call.onto)
        if source.op in CAME or (source.backward_of and call.running is None):
            return
        step, last = (SHOWN[call.op], call.location), source.chain[-1][1] if source.chain else call.location
        again = step in source.chain and call.location[0] == last[0] and call.location[1] < last[1]
        source.ended = source.ended or call.running is not None or again
        if not source.ended and len(source.chain) < MOST and call.op not in COPIES and not any(f is source for f in self._extended):
            source.chain.append(step)
            self._extended.append(source)

    def _origin(self, call: Call, infs: bool) -> Finding:
        ranges = [Range(_text(t.dtype), tuple(t.shape), t.amin().item(), t.amax().item()) for t in call.inputs if t.numel()]
        dtype, running = _text(call.out.dtype), call.running
        of = (running[0], self._locations.get(running[1])) if running else None
        scale = (running[2] or self._ear.scale()) if running else 1.0
        what, count = "nan" if call.values[3] else "inf", int(call.values[2] + call.values[3])
        found = Finding(SHOWN[call.op], call.location, what, _first_bad(call.out), count, call.out.numel(), dtype,
                        _chosen(call.op, call.low, running), ranges, self._before(call.old), of, scale, infs)
        pole = (of[0] if of else call.op) in POLES
        if pole or "pow" in (call.op, of and of[0]):
            found.lost = next((m.lost[0] for m in call.old.values() if m is not None and 0 < abs(m.lost[0]) <= TINY.get(dtype, 0.0)), 0.0)
        if call.op == "pow":
            found.exponent = call.exponent
        found.grown = "" if pole else self._ear.grown()
        return self._find(found, call.onto)

    def _before(self, old: Dict[int, Optional[Made]]) -> List[str]:
        """The operators behind the inputs, nearest first."""
        ops: List[str] = []
        front = [m for m in old.values() if m is not None]
        while front and len(ops) < 12:
            ops += [m.op for m in front]
            front = [self._made[a] for m in front for a in m.inputs if a in self._made][:12]
        return ops

    def _find(self, finding: Finding, onto: bool) -> Finding:
        """Keeps a finding as a candidate. Returns it, or the one that told the same before, or has not been repaired."""
        key = _key(finding)
        before = self._seen.get(key)
        if before is not None and (key in self._told or any(before is f for e in self._open for f in e.sources)):
            before.ended = True  # that pass is over
            return before
        self._seen[key] = finding
        if _C._in_whole() and not onto:
            self._held.append(finding)
        return finding

    def _whole(self, results: tuple, op: str, inputs: tuple) -> None:
        """A composite operator or formula has run: what it has made inside counts if it reached a result. A loss that is not finite, though
        its operators made their infinities on purpose, has begun with the loss."""
        if op.endswith("_loss") and not self._held and not is_own(sys._getframe(1)):
            self._loss_ran(results, op, inputs)
        if not self._held and not self._open:
            return
        inside, held = [e for e in self._open if e.inner], self._held[:]
        self._open[:] = [e for e in self._open if not e.inner]
        self._held.clear()
        if not inside and not held:
            return
        floats = [t for t in results if t is not None and is_judged(t)]
        bad = [t for t in floats if sum(stats_of(t)[2:4]) > 0]
        if not bad:
            for finding in held:
                self._seen.pop(_key(finding), None)
        for t in bad:
            made = self._made.get(_C._address(t))
            self._opened(t, made.sources if made is not None and made.sources else held or [f for e in inside for f in e.sources], True)
            if _C._running() is not None or any(e.gradient for e in inside):
                self._open[-1:] = [e._replace(gradient=True) for e in self._open[-1:]]

    def _loss_ran(self, results: tuple, op: str, inputs: tuple) -> None:
        """Judges a loss as one operator."""
        for out in results:
            address = _C._address(out) if out is not None else 0
            made = self._made.get(address)
            if made is None or made.sources or not self._is_bad([out]):
                continue
            location = call_site()
            known = tuple(_C._address(t) for t in inputs if t is not None)
            sources = self._sources(op, inputs, out, stats_of(out), None, False, location, {a: self._made.get(a) for a in known}, ())
            self._made[address] = Made(op, location, True, known, sources)
            self._opened(out, sources, True)

    def _keep_held(self) -> None:
        """What an error ended is told: nobody could repair it."""
        held = self._held[:]
        self._held.clear()
        self._open[:] = [e for e in self._open if not e.inner]
        self._tell(held)

    def _tell(self, some: Iterable[Finding], stop: bool = True) -> None:
        """Tells those that are not told yet, in their order; under ``stop=True`` raises the first."""
        fresh = [f for f in dict.fromkeys(some) if _key(f) not in self._told][:max(MOST - len(self.findings), 0)]
        serious = [f for f in fresh if f.cause != "scale"]
        self._told.update(map(_key, fresh))
        self.findings.extend(fresh)
        self._open[:] = [e for e in (e._replace(sources=tuple(f for f in e.sources if _key(f) not in self._told)) for e in self._open) if e.sources]
        if serious and self.stop and stop:
            raise DoctorError(str(serious[0]))
        for finding in serious:
            warnings.warn_explicit(str(finding).split(": ", 1)[-1], DoctorWarning, *finding.location)

    # -- showing ----------------------------------------------------------------------------------------------

    @property
    def misuse(self) -> List[Any]:
        """The misuse guard's reports of what ran under this doctor, each once."""
        return list(self._ear.misuse.values())

    def report(self) -> RichText:
        """All findings and misuse, or how near the operators came to the limits of their dtypes: text when printed, tables in a notebook.
        An inf or nan that is still there counts."""
        self._settle(every=True, stop=False)
        return RichText(self._text(), self._repr_html_())

    def closing(self) -> str:
        """The report at a script's end: of what a warning has told, where it was and a sentence."""
        self._settle(every=True, stop=False)
        briefly = [f.heading() for f in self.findings if f.cause != "scale" and is_shown(str(f).split(": ", 1)[-1], DoctorWarning, f.location)]
        briefly += [f"{location_text((m.file, m.line))}: [{m.rule}] {RUN[m.rule]}" for m in self.misuse
                    if is_shown(f"[{m.rule}]", MisuseWarning, (m.file, m.line))]
        if len(briefly) < len(self.findings) + len(self.misuse) or not briefly:
            return self._text()
        return "\n  ".join([f"{len(briefly)} finding{'' if len(briefly) == 1 else 's'}, of which the warnings above say more:", *briefly])

    def __str__(self) -> str:
        return self._text()

    def _nearest(self) -> List[List[str]]:
        """Location, operator, dtype, largest magnitude and room of those that came nearest to their limits."""
        rows = []
        for (op, location, dtype), amax in sorted(self.margins.items(), key=lambda item: -item[1])[:8]:
            if 0 < amax < math.inf:
                rows.append([location_text(location), op, dtype, f"{amax:.4g}", f"2^{math.log2(limit_of(dtype) / amax):.0f}"])
        return rows

    def _text(self) -> str:
        if self.findings or self.misuse:
            told = [*map(str, self.findings), *(_of_guard(m) for m in self.misuse)]
            return "\n".join([*([] if self.findings else [NOTHING + ", but mixed precision is misused:"]), *told])
        near = [f"  {location}: {op} ran in {dtype} and reached {amax}, {room} times below the largest {dtype} value"
                for location, op, dtype, amax, room in self._nearest()]
        return "\n".join([NOTHING, *near])

    def _repr_html_(self) -> str:
        told = [*(f._repr_html_() for f in self.findings), *(html_text(*_of_guard(m).split("\n")) for m in self.misuse)]
        if told:
            items = "".join(f"<li>{each}</li>" for each in told)
            return f"<p><b>ampc.doctor: {len(told)} finding{'' if len(told) == 1 else 's'}</b></p><ol>{items}</ol>"
        near = self._nearest()
        return f"<p><b>ampc.doctor:</b> {NOTHING}</p>" + (html_table([NEAREST, *near], {0, 1, 2}) if near else "")


def _first_bad(t: Any) -> Tuple[int, ...]:
    from .ledger import _unravel

    return _unravel(int((~t.isfinite()).flatten().int().argmax()), tuple(t.shape))


def _extent(t: Any) -> int:
    """From its first element to behind its last, in elements."""
    return 1 + sum((n - 1) * step for n, step in zip(t.shape, t.stride()))
