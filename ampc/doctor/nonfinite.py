"""The doctor: looks at what every operator makes, forward and backward, and names the first that makes infinities or nans of what was
finite. ``with ampc.doctor() as d:``; the environment's AMPC_DOCTOR=1 and ``ampc run --doctor`` put it around a whole script."""

from __future__ import annotations

import math
import os
import sys
import warnings
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .. import _C, policy
from .._callers import place_text, users_place
from .._model_names import Names
from ._watcher import Watcher
from .remedies import replacement

Place = Tuple[str, int]
MOST = 20  # findings, and operators of a chain
DELIBERATE = {"masked_fill", "where", "full", "fill"}  # they make the infinities they were asked for
COPIES = {"clone", "contiguous", "cast"}  # of no interest on the way on
CAME = {"data": "look at how the batch is made: it is not finite before anything is computed",
        "parameter": "look at what was loaded, or at a step that ran before the doctor came"}  # not finite before an operator ran
_OWN = tuple(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *part)  # who work on gradients, not on the model's values
             for part in (("amp", ""), ("doctor", ""), ("optim", ""), ("nn", "utils", "clip_grad.py")))
MARGINS = {"exp", "pow", "square", "cosh", "sinh", "expm1", "exp2", "mm", "linear", "addmm", "bmm", "sum", "norm"}


class DoctorWarning(UserWarning):
    """An operator made infinities or nans of what was finite."""


class DoctorError(FloatingPointError):
    """The same, under ``doctor(stop=True)``."""


class Made(NamedTuple):
    """What is known of a tensor that was seen."""

    op: str
    place: Place
    bad: bool
    inputs: Tuple[int, ...]


class Range(NamedTuple):
    """An input of the culprit."""

    dtype: str
    shape: Tuple[int, ...]
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)} from {self.low:.4g} to {self.high:.4g}"


class Call(NamedTuple):
    """An operator that has made something not finite."""

    op: str
    place: Place
    inputs: List[Any]  # floating point ones
    out: Any
    values: Tuple[float, ...]  # of it, see _look
    low: Any
    onto: bool
    running: Any  # the formula that it is a part of, see _C._running
    old: Dict[int, Optional[Made]]  # its inputs, as they were known before
    leaves: Dict[int, Any]  # its inputs that are trained, by address


class Finding:
    """Where values left their range."""

    def __init__(self, op: str, place: Place, what: str, index: Tuple[int, ...], count: int, numel: int, dtype: str, chosen: str, inputs: List[Range],
                 before: List[str], backward_of: Optional[Tuple[str, Optional[Place]]], scale: float, from_inf: bool) -> None:
        self.op, self.place, self.what, self.index, self.count, self.numel, self.dtype = op, place, what, index, count, numel, dtype
        self.chosen, self.inputs, self.before, self.backward_of, self.scale, self.from_inf = chosen, inputs, before, backward_of, scale, from_inf
        self.chain: List[Tuple[str, Place]] = []
        self.ended = False  # the chain, at the loss

    @property
    def cause(self) -> str:
        """'data', 'parameter' (it came so), 'scale' (a GradScaler's, which lowers it: harmless) or 'model'."""
        if self.op in CAME:
            return self.op
        return "scale" if self.backward_of and self.scale != 1 and self.dtype in ("float16", "bfloat16") else "model"

    @property
    def advice(self) -> str:
        """What to write instead."""
        if self.op in CAME:
            return CAME[self.op]
        negative = any(r.low < 0 for r in self.inputs)
        op = self.backward_of[0] if self.backward_of else self.op
        return replacement(op, self.dtype, self.before, [o for o, _ in self.chain], self.backward_of is not None, negative, self.from_inf)

    def __str__(self) -> str:
        at, of = place_text(self.place), f" in the backward of {self.backward_of[0]}" if self.backward_of else ""
        where = f"{self.count} of {self.numel} values, the first at {list(self.index)}"
        if self.op in CAME:
            return f"{at}: the {self.chosen} is {self.what} already, {where}\n  instead: {self.advice}"
        lines = [f"{at}: {self.op}{of} makes {self.what} of {'infinities' if self.from_inf else 'what is finite'}: {where}"]
        if self.backward_of and self.backward_of[1]:
            lines.append(f"  forward was at {place_text(self.backward_of[1])}")
        lines += [f"  input {i}: {r}" for i, r in enumerate(self.inputs)]
        limit = _limit(self.dtype)
        beyond = [i for i, r in enumerate(self.inputs) if limit < max(-r.low, r.high) < math.inf]
        lines += [f"  input {i} is beyond what {self.dtype} holds already" for i in beyond]
        lines.append(f"  its result is {self.dtype}, which ends at {limit:.4g}: {self.chosen}")
        if self.cause == "scale":
            lines.append(f"  while the loss was multiplied by {self.scale:g}: the scaler skips the step and lowers the scale; nothing is lost")
        if self.chain:
            lines.append("  from there: " + " -> ".join(f"{op} (line {at[1]})" for op, at in self.chain))
        lines.append(f"  instead: {self.advice}")
        return "\n".join(lines)


def is_own(frame: Any) -> bool:
    """Whether a scaler, an optimizer or a doctor is at work there."""
    return frame.f_code.co_filename.startswith(_OWN)


def _text(dtype: Any) -> str:
    return str(dtype).split(".")[-1]


def _limit(dtype: str) -> float:
    return {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}.get(dtype, 1.7976931348623157e308)


def _chosen(op: str, dtype: str, low: Any) -> str:
    """Why the operator computed in that dtype."""
    if low is not None:
        return f"autocast runs products in {str(low).split('.')[-1]}"
    if _C._autocast_active():
        cast = policy.category_now(op)
        if cast == "float32":
            return f"autocast runs {op} in float32"
        if cast == "widest":
            return "autocast runs it in the widest dtype among its inputs"
        return "autocast leaves it in its inputs' dtype"
    return "it keeps its inputs' dtype; no autocast region is open"


class Doctor(Watcher):
    """What ``ampc.doctor()`` gives: ``findings``, in their order, ``margins``, and text and HTML of both. ``stop=True`` raises
    DoctorError at the first finding that a scaler does not mend; else it is a warning, and nothing stops. Watches this thread."""

    def __init__(self, stop: bool = False) -> None:
        self.stop = stop
        self.findings: List[Finding] = []
        self.margins: Dict[Tuple[str, Place, str], float] = {}  # operator, place and dtype -> the largest magnitude it made
        self._made: Dict[int, Made] = {}
        self._places: Dict[int, Place] = {}  # of nodes
        self._seen: set = set()

    def _ends(self) -> None:
        self._made.clear()
        self._places.clear()

    # -- watching --------------------------------------------------------------------------------------------

    def _saw(self, op: str, inputs: tuple, outputs: tuple, low: Any, onto: bool, nanoseconds: int) -> None:
        if len(self._made) > 100_000:
            self._made.clear()
            self._places.clear()
        if is_own(sys._getframe(1)):
            return
        running, place = _C._running(), users_place()
        addresses = tuple(_C._address(t) for t in inputs if t is not None)
        old = {a: self._made.get(a) for a in addresses}
        for out in outputs:
            if not out.is_floating_point() or out.numel() == 0:
                continue
            plain = out.detach()
            values = _look(plain)
            bad = values[2] + values[3] > 0
            number = _C._node_number(out)
            if number:
                self._places[number] = place
            if op in MARGINS and running is None:
                key = (op, place, _text(out.dtype))
                self.margins[key] = max(self.margins.get(key, 0.0), math.inf if bad else values[1])
            floats = [t.detach() for t in inputs if t is not None and t.is_floating_point()]
            if bad and floats and op not in DELIBERATE:
                leaves = {_C._address(t): t for t in inputs if t is not None and t.is_leaf and t.requires_grad}
                self._judge(Call(op, place, floats, plain, values, low, onto, running, old, leaves))
            self._made[_C._address(out)] = Made(op, place, bad, addresses)

    def _judge(self, call: Call) -> None:
        """Whether what is not finite begins here."""
        nans, infs, data = False, False, None
        for t in call.inputs:
            made = call.old.get(_C._address(t))
            if call.onto and _C._address(t) == _C._address(call.out):  # overwritten by now
                nans = nans or (made is not None and made.bad)
                continue
            seen = _look(t)
            nans, infs = nans or seen[3] > 0, infs or seen[2] > 0
            unknown = (made is None or not made.bad) and call.running is None  # made before, elsewhere, or written by index
            if unknown and t.ndim and (seen[3] > 0 or (seen[2] > 0 and (t == math.inf).any().item())):
                data = t
        if data is not None:
            self._came(call, data)
        elif nans or (infs and call.values[3] == 0):
            self._go_on(call)
        elif not (infs and self._go_on(call)):  # nan of the infinities of a finding
            self._origin(call, infs)

    def _came(self, call: Call, t: Any) -> None:
        """An input was not finite before. A parameter that a step has spoiled since the last finding is that one's consequence."""
        leaf = call.leaves.get(_C._address(t))
        if leaf is not None and self.findings:
            return
        kind, name = ("data", "data: an input") if leaf is None else ("parameter", f"parameter {Names().of(leaf) or ''}".rstrip())
        self._find(Finding(kind, call.place, "nan" if t.isnan().any().item() else "inf", _first_bad(t), int((~t.isfinite()).sum()), t.numel(),
                           _text(t.dtype), name, [], [], None, 1.0, False))

    def _go_on(self, call: Call) -> bool:
        """What is not finite comes from the last finding; False where there is none that it can come from."""
        last = self.findings[-1] if self.findings else None
        if last is None or last.op in CAME or (last.backward_of and call.running is None):
            return False
        last.ended = last.ended or call.running is not None
        if not last.ended and len(last.chain) < MOST and call.op not in COPIES:
            last.chain.append((call.op, call.place))
        return True

    def _origin(self, call: Call, infs: bool) -> None:
        ranges = [Range(_text(t.dtype), tuple(t.shape), t.amin().item(), t.amax().item()) for t in call.inputs if t.numel()]
        dtype, running = _text(call.out.dtype), call.running
        of = (running[0], self._places.get(running[1])) if running else None
        self._find(Finding(call.op, call.place, "nan" if call.values[3] else "inf", _first_bad(call.out), int(call.values[2] + call.values[3]),
                           call.out.numel(), dtype, _chosen(call.op, dtype, call.low), ranges, self._before(call.old), of,
                           running[2] if running else 1.0, infs))

    def _before(self, old: Dict[int, Optional[Made]]) -> List[str]:
        """The operators behind the inputs, nearest first."""
        ops: List[str] = []
        front = [m for m in old.values() if m is not None]
        while front and len(ops) < 12:
            ops += [m.op for m in front]
            front = [self._made[a] for m in front for a in m.inputs if a in self._made][:12]
        return ops

    def _find(self, finding: Finding) -> None:
        key = (finding.op, finding.place, finding.backward_of)
        if key in self._seen or len(self.findings) >= MOST:
            return
        self._seen.add(key)
        self.findings.append(finding)
        if finding.cause == "scale":
            return
        if self.stop:
            raise DoctorError(str(finding))
        warnings.warn_explicit(str(finding).split(": ", 1)[-1], DoctorWarning, *finding.place)

    # -- showing ----------------------------------------------------------------------------------------------

    def report(self) -> str:
        """All findings, or how near the operators came to their formats' limits."""
        if self.findings:
            return "\n".join(str(f) for f in self.findings)
        lines = ["nothing left its range"]
        for (op, place, dtype), amax in sorted(self.margins.items(), key=lambda item: -item[1])[:8]:
            if amax > 0:
                limit = _limit(dtype)
                room = f"{math.log2(limit / amax):.0f} doublings are left to {limit:.4g}"
                lines.append(f"  {place_text(place)}: {op} ran in {dtype} and reached {amax:.4g}; {room}")
        return "\n".join(lines)

    __str__ = report

    def _repr_html_(self) -> str:
        import html

        items = "".join(f"<li><pre>{html.escape(str(f))}</pre></li>" for f in self.findings)
        return f"<b>ampc.doctor: {len(self.findings)} finding{'' if len(self.findings) == 1 else 's'}</b>" + (
            f"<ol>{items}</ol>" if items else f"<pre>{html.escape(self.report())}</pre>")


def _look(t: Any) -> Tuple[float, float, float, float, float]:
    """Squares, largest magnitude, infinities, nans, small values; waits for a GPU."""
    dense = t if t.is_contiguous() else t.contiguous()
    return _C._sum_up((_C._cuda_look([dense]) if t.is_cuda else _C._look([dense])).cpu())


def _first_bad(t: Any) -> Tuple[int, ...]:
    from .ledger import _unravel

    return _unravel(int((~t.isfinite()).flatten().int().argmax()), tuple(t.shape))
