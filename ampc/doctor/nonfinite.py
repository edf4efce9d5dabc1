"""The doctor: checks the results of every operator, forward and backward, and names the first one that makes infinities or nans from
finite values. Use ``with ampc.doctor() as d:``; AMPC_DOCTOR=1 in the environment and ``ampc run --doctor`` check a whole script."""

from __future__ import annotations

import contextlib
import html
import math
import os
import sys
import warnings
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .. import _C, policy
from .._callers import call_site, location_text
from .._events import forget, listen
from .._model_names import Names
from .._table import RichText, html_table, html_text
from ._ear import Ear, stats_of
from ._watcher import Watcher
from .digits import Sums
from .remedies import lost_epsilon, replacement

Location = Tuple[str, int]
MOST = 20  # findings, and operators of a chain
NOTHING = "no operator returned inf or nan from finite inputs"
NEAREST = ["location", "operator", "dtype", "largest result", "times below the dtype's largest value"]
DELIBERATE = {"masked_fill", "where", "full", "fill"}  # they make the infinities they were asked for
COPIES = {"clone", "contiguous", "cast"}  # reports of how inf or nan spread leave them out
# What to do about an origin that no operator is.
CAME = {"data": "check how the batch is made; it contains inf or nan before the model uses it",
        "parameter": "check the checkpoint that was loaded, and the steps before the doctor was started",
        "buffer": "check the checkpoint that was loaded, and the batches before the doctor was started: statistics of a layer keep a nan that "
                  "one batch gave them, also of a step that the scaler left out; load_state_dict or reset_running_stats() makes them new"}
_OWN = tuple(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *part)  # they work on gradients, not on the model's values
             for part in (("amp", ""), ("doctor", ""), ("optim", ""), ("nn", "utils", "clip_grad.py"), ("utils", "data", "")))
_LOADER = _OWN[-1]
MARGINS = {"exp", "pow", "square", "cosh", "sinh", "expm1", "exp2", "mm", "linear", "addmm", "bmm", "sum", "norm"}


# They are infinite or nan at 0 or below: their results say nothing of large inputs.
POLES = {"div", "reciprocal", "remainder", "fmod", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "acos", "asin", "acosh", "atanh"}
TINY = {"float16": 2.0**-25, "float32": 2.0**-150}  # magnitudes up to these round to 0
KEEPERS = {"add", "clamp"}  # operators by which scripts keep a value from 0


class DoctorWarning(UserWarning):
    """An operator returned inf or nan although its inputs are finite."""


class DoctorError(FloatingPointError):
    """The same, under ``doctor(stop=True)``."""


class Made(NamedTuple):
    """What the doctor knows about a result: the operator and line that made it, and its inputs."""

    op: str
    location: Location
    bad: bool
    inputs: Tuple[int, ...]
    source: Optional[Finding] = None  # what its inf or nan comes from, where that is known
    lost: Tuple[float, int] = (0.0, 0)  # a number that was to keep it from 0 and is 0 in its dtype, and how many operators ago


class Range(NamedTuple):
    """The range of one input of a finding's operator."""

    dtype: str
    shape: Tuple[int, ...]
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.dtype}, shape {list(self.shape)}, values from {self.low:.4g} to {self.high:.4g}"


class Call(NamedTuple):
    """A call of an operator whose result is not finite."""

    op: str
    location: Location
    inputs: List[Any]  # floating point ones
    out: Any
    values: Tuple[float, ...]  # of it, see _stats
    low: Any
    onto: bool
    running: Any  # the formula that it is a part of, see _C._running
    old: Dict[int, Optional[Made]]  # its inputs, as they were known before
    leaves: Dict[int, Any]  # its inputs that are trained, by address


class Finding:
    """An operator that returned inf or nan, with its inputs, its dtype and what to write instead."""

    def __init__(self, op: str, location: Location, what: str, index: Tuple[int, ...], count: int, numel: int, dtype: str, chosen: str,
                 inputs: List[Range], before: List[str], backward_of: Optional[Tuple[str, Optional[Location]]], scale: float, from_inf: bool) -> None:
        self.op, self.location, self.what, self.index, self.count, self.numel, self.dtype = op, location, what, index, count, numel, dtype
        self.chosen, self.inputs, self.before, self.backward_of, self.scale, self.from_inf = chosen, inputs, before, backward_of, scale, from_inf
        self.chain: List[Tuple[str, Location]] = []
        self.ended = False  # the chain, at the loss
        self.grown = ""  # how the training diverged before, in words
        self.lost = 0.0  # an epsilon that is 0 in the dtype
        self.served = ""  # which samples of a data set it is about

    @property
    def cause(self) -> str:
        """'data', 'buffer' or 'parameter' (it already contained inf or nan), 'scale' (too high, and a GradScaler lowers it), 'divergence' (the
        loss or the parameters had grown before) or 'model'."""
        if self.op in CAME:
            return "divergence" if self.grown else self.op
        scaled = self.backward_of and self.scale != 1 and self.dtype in ("float16", "bfloat16")
        return "scale" if scaled else "divergence" if self.grown else "model"

    @property
    def advice(self) -> str:
        """What to write instead."""
        if self.cause == "divergence":
            return f"{self.grown}, so the training diverges: lower the learning rate, warm it up, or clip the gradients"
        if self.op in CAME:
            return CAME[self.op]
        low, high = min((r.low for r in self.inputs), default=0.0), max((r.high for r in self.inputs), default=0.0)
        op = self.backward_of[0] if self.backward_of else self.op
        if self.lost:
            return lost_epsilon(self.lost, self.dtype)
        return replacement(op, self.dtype, self.before, [o for o, _ in self.chain], self.backward_of is not None, low, high, self.what,
                           self.from_inf)

    def __str__(self) -> str:
        inputs = [f"input {i}: {r}" for i, r in enumerate(self.inputs)]
        return "\n  ".join([self._heading(), *self._forward(), *inputs, *self._told(), f"fix: {self.advice}"])

    def _repr_html_(self) -> str:
        rows = [["input", "dtype", "shape", "lowest", "highest"]]
        rows += [[str(i), r.dtype, str(list(r.shape)), f"{r.low:.4g}", f"{r.high:.4g}"] for i, r in enumerate(self.inputs)]
        table = html_table(rows, {1, 2}) if self.inputs else ""
        return (f"<p><b>{html.escape(self._heading())}</b></p>{html_text(*self._forward())}{table}{html_text(*self._told())}"
                f"<p><b>fix:</b> {html.escape(self.advice)}</p>")

    def _heading(self) -> str:
        where = f"{self.count} of {self.numel} values, the first at index {list(self.index)}"
        if self.op in CAME:
            return f"{location_text(self.location)}: {self.chosen} already contains {self.what}: {where}{self.served}"
        inputs = "because an input contains inf" if self.from_inf else "although its inputs are finite"
        return f"{location_text(self.location)}: {self._subject()} returned {self.what} {inputs}: {where}"

    def _forward(self) -> List[str]:
        """Of what ran backward: where it ran forward."""
        return [f"the forward call is at {location_text(self.backward_of[1])}"] if self.backward_of and self.backward_of[1] else []

    def _told(self) -> List[str]:
        """Why the result could not be held, and what became of it."""
        if self.op in CAME:
            return []
        limit = _limit(self.dtype)
        beyond = [i for i, r in enumerate(self.inputs) if limit < max(-r.low, r.high) < math.inf]
        lines = [f"input {i} has values that are too large for {self.dtype}" for i in beyond]
        lines.append(f"the result is {self.dtype}, whose largest value is {limit:.5g}: {self.chosen}")
        if self.cause == "scale":
            lines.append(f"the loss scale of {self.scale:g} is too high: the scaler skips the step and lowers it, and no weight is changed")
        if self.chain:
            lines.append(f"{self.what} then spread through: " + " -> ".join(f"{op} (line {at[1]})" for op, at in self.chain))
        return lines

    def _subject(self) -> str:
        """The operator, and whether it ran forward or backward."""
        if self.op == "cast":
            return f"casting {'a gradient ' if self.backward_of else ''}to {self.dtype}"
        return f"{self.op}, in the backward pass of {self.backward_of[0]}," if self.backward_of else self.op


def is_own(frame: Any) -> bool:
    """Whether a scaler, an optimizer or a doctor is at work there."""
    return frame.f_code.co_filename.startswith(_OWN)


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


def _limit(dtype: str) -> float:
    return {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}.get(dtype, 1.7976931348623157e308)


def _chosen(op: str, low: Any, running: Any) -> str:
    """Why the operator computed in that dtype."""
    if low is not None:
        return f"autocast runs {op} in {_text(low)}"
    if running is not None:
        return "the backward pass uses the dtype that the forward pass chose"
    if op == "cast":
        return "this is the dtype that was asked for"
    if _C._autocast_active():
        cast = policy.category_now(op)
        if cast == "float32":
            return f"autocast runs {op} in float32"
        if cast == "widest":
            return f"autocast runs {op} in the widest dtype among its inputs"
        return f"autocast leaves {op} in the dtype of its inputs"
    if _C._is_autocast_enabled("cpu") or _C._is_autocast_enabled("cuda"):
        return f"{op} is a part of an operator that autocast runs in float32"
    return f"no autocast region is open, so {op} computes in the dtype of its inputs"


def _lost(op: str, inputs: tuple, out: Any, old: Dict[int, Optional[Made]]) -> Tuple[float, int]:
    """The number that was to keep the result from 0, where that number is 0 in the result's dtype, and how many operators ago; else (0.0, 0)."""
    if out.dtype not in (_C.float16, _C.float32):
        return 0.0, 0
    if op not in KEEPERS:
        return next(((m.lost[0], m.lost[1] + 1) for m in old.values() if m is not None and m.lost[0] and m.lost[1] < 2), (0.0, 0))
    numbers = [t.item() for t in inputs if t is not None and t.ndim == 0 and t.dtype is _C.float64 and not t.is_cuda]
    if op == "clamp":
        numbers = [_C._seen_argument("min") or 0.0]
    return next((float(v) for v in numbers if 0 < abs(v) <= TINY[_text(out.dtype)]), 0.0), 0


def _of_guard(report: Any) -> str:
    return f"{location_text((report.file, report.line))}: [{report.rule}] {report.text}\n  fix: {report.fix}"


class Doctor(Watcher):
    """Checks every operator of this thread; ``ampc.doctor()`` makes one. ``findings`` are in their order, and ``margins`` has the largest
    magnitude of each operator. ``misuse`` has what the misuse guard found meanwhile. A finding is a warning. With ``stop=True`` it raises
    DoctorError, unless the cause is only the loss scale."""

    def __init__(self, stop: bool = False) -> None:
        self.stop = stop
        self.findings: List[Finding] = []
        self.margins: Dict[Tuple[str, Location, str], float] = {}  # operator, location and dtype -> the largest magnitude it made
        self._made: Dict[int, Made] = {}
        self._locations: Dict[int, Location] = {}  # of nodes
        self._seen: Dict[tuple, Finding] = {}
        self._held: List[Finding] = []  # of the whole that runs: told if its results are not finite
        self._ear = Ear(self._made)
        self._sums = Sums()

    def _changes(self) -> tuple:
        ear = (setattr, (self._ear, "over", False), setattr, (self._ear, "over", True))  # even where an exception ends _ends
        return (ear, *super()._changes(), (_C._watch_wholes, (self._whole,), _C._watch_wholes, (_C._whole_watcher(),)))

    def _begins(self) -> None:
        listen(self._ear)

    def _ends(self) -> None:
        with contextlib.suppress(ValueError):  # one doctor in two contexts, of which the inner has ended
            forget(self._ear)
        self._ear.let_go()
        self._tell_held()
        self._made.clear()
        self._locations.clear()

    # -- watching --------------------------------------------------------------------------------------------

    def _saw(self, op: str, inputs: tuple, outputs: tuple, low: Any, onto: bool, nanoseconds: int) -> None:
        if len(self._made) > 100_000:
            for address in [address for address, made in self._made.items() if made.source is None]:
                del self._made[address]
            self._locations.clear()
        if is_own(sys._getframe(1)):
            if not onto:  # what lay in this memory before is gone
                for out in outputs:
                    self._made.pop(_C._address(out), None)
            return
        if self._held and not _C._in_whole():
            self._tell_held()  # of a whole that an error ended
        running, location = _C._running(), call_site()
        if onto and running is None and outputs:
            made = self._made.get(_C._address(outputs[0]))
            self._sums.saw(op, inputs, outputs[0], location, made is None or (made.op, made.location) == (op, location))
        addresses = tuple(_C._address(t) for t in inputs if t is not None)
        old = {a: self._made.get(a) for a in addresses}
        for out in outputs:
            if not out.is_floating_point() or out.numel() == 0:
                continue
            plain = out.detach()
            values = stats_of(plain)
            bad = values[2] + values[3] > 0
            number = _C._node_number(out)
            if number:
                self._locations[number] = location
            if op in MARGINS and running is None:
                key = (op, location, _text(out.dtype))
                self.margins[key] = max(self.margins.get(key, 0.0), math.inf if bad else values[1])
            floats = [t.detach() for t in inputs if t is not None and t.is_floating_point()]
            source = None
            if bad and floats and op not in DELIBERATE:
                leaves = {_C._address(t): t for t in inputs if t is not None and t.is_leaf and t.requires_grad}
                source = self._judge(Call(op, location, floats, plain, values, low, onto, running, old, leaves))
            elif bad:
                source = next((m.source for m in old.values() if m is not None and m.source is not None), None)
            self._made[_C._address(out)] = Made(op, location, bad, addresses, source, _lost(op, inputs, out, old))

    def _judge(self, call: Call) -> Optional[Finding]:
        """Decides whether this call is the first to return inf or nan. Returns the finding that they come from, where one is known."""
        nans, infs, came, source = False, False, None, None
        for t in call.inputs:
            made = call.old.get(_C._address(t))
            if call.onto and _C._address(t) == _C._address(call.out):  # overwritten by now
                nans = nans or (made is not None and made.bad)
                source = source or (made.source if made is not None else None)
                continue
            seen = stats_of(t)
            nans, infs = nans or seen[3] > 0, infs or seen[2] > 0
            if made is not None and made.bad:
                source = source or (made.source if seen[2] + seen[3] > 0 else None)
            elif call.running is None and self._is_foreign(call, t, seen):
                came = t
        if source is None and came is not None:
            return self._came(call, came)
        if source is None and call.running is not None and (nans or infs):  # of what the forward pass saved
            source = self._latest()
        if source is not None:
            self._go_on(call, source)
            return source
        return None if nans or (infs and call.values[3] == 0) else self._origin(call, infs)

    @staticmethod
    def _is_foreign(call: Call, t: Any, seen: tuple) -> bool:
        """Whether inf or nan of an input that no operator is known to have made tells of bad data. -inf may be a mask, but not in a parameter."""
        if _C._address(t) in call.leaves:
            return bool(seen[2] + seen[3] > 0)
        return bool(t.ndim and (seen[3] > 0 or (seen[2] > 0 and (t == math.inf).any().item())))

    def _latest(self) -> Optional[Finding]:
        """The last finding that may have spoiled what came later. After one of the scale, the scaler skips the step."""
        known = [f for f in (*self.findings, *self._held) if f.cause != "scale"]
        return known[-1] if known else None

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
        if not any(source is f for f in (*self.findings, *self._held)):  # it was masked, and now it is not
            self._find(source, call.onto)
        if source.op in CAME or (source.backward_of and call.running is None):
            return
        step, last = (call.op, call.location), source.chain[-1][1] if source.chain else call.location
        again = step in source.chain and call.location[0] == last[0] and call.location[1] < last[1]
        source.ended = source.ended or call.running is not None or again
        if not source.ended and len(source.chain) < MOST and call.op not in COPIES:
            source.chain.append(step)

    def _origin(self, call: Call, infs: bool) -> Finding:
        ranges = [Range(_text(t.dtype), tuple(t.shape), t.amin().item(), t.amax().item()) for t in call.inputs if t.numel()]
        dtype, running = _text(call.out.dtype), call.running
        of = (running[0], self._locations.get(running[1])) if running else None
        what, count = "nan" if call.values[3] else "inf", int(call.values[2] + call.values[3])
        found = Finding(call.op, call.location, what, _first_bad(call.out), count, call.out.numel(), dtype, _chosen(call.op, call.low, running),
                        ranges, self._before(call.old), of, running[2] if running else 1.0, infs)
        pole = (of[0] if of else call.op) in POLES
        if pole or "pow" in (call.op, of and of[0]):
            found.lost = next((m.lost[0] for m in call.old.values() if m is not None and 0 < abs(m.lost[0]) <= TINY.get(dtype, 0.0)), 0.0)
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
        """Keeps a finding, and tells it unless it may still be masked: a composite operator or formula that has not ended has made it, and
        ``onto`` no tensor that was there before. Returns it, or the one that told the same before."""
        key = _key(finding)
        if key in self._seen or len(self.findings) + len(self._held) >= MOST:
            before = self._seen.get(key, finding)
            before.ended = True  # that pass is over
            return before
        self._seen[key] = finding
        if _C._in_whole() and not onto:
            self._held.append(finding)
        else:
            self._tell(finding)
        return finding

    def _whole(self, results: tuple) -> None:
        """A composite operator or formula has run: what it has made inside counts if it reached a result."""
        if not self._held:
            return
        floats = [t.detach() for t in results if t is not None and t.is_floating_point() and t.numel()]
        if any(sum(stats_of(t)[2:4]) > 0 for t in floats):
            self._tell_held()
        for finding in self._held:
            self._seen.pop(_key(finding), None)
        self._held.clear()

    def _tell_held(self) -> None:
        held, self._held = self._held, []
        for finding in held:
            self._tell(finding)

    def _tell(self, finding: Finding) -> None:
        self.findings.append(finding)
        if finding.cause == "scale":
            return
        if self.stop:
            raise DoctorError(str(finding))
        warnings.warn_explicit(str(finding).split(": ", 1)[-1], DoctorWarning, *finding.location)

    # -- showing ----------------------------------------------------------------------------------------------

    @property
    def misuse(self) -> List[Any]:
        """The misuse guard's reports of what ran under this doctor, each once."""
        return list(self._ear.misuse.values())

    def report(self) -> RichText:
        """All findings and misuse, or how near the operators came to the limits of their dtypes: text when printed, tables in a notebook."""
        return RichText(self._text(), self._repr_html_())

    def __str__(self) -> str:
        return self._text()

    def _nearest(self) -> List[List[str]]:
        """Location, operator, dtype, largest magnitude and room of those that came nearest to their limits."""
        rows = []
        for (op, location, dtype), amax in sorted(self.margins.items(), key=lambda item: -item[1])[:8]:
            if 0 < amax < math.inf:
                rows.append([location_text(location), op, dtype, f"{amax:.4g}", f"2^{math.log2(_limit(dtype) / amax):.0f}"])
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
