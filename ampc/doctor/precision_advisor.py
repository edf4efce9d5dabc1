"""Recommends float16, bfloat16 or neither: runs a model's own steps in each, and compares them with float32."""

from __future__ import annotations

import contextlib
import copy
import html
import math
import statistics
import time
import warnings
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from .. import _C, cuda
from .. import policy as policies
from .._messages.callers import location_text
from .._messages.progress import Progress, somebody_watches
from .._messages.table import html_table, html_text
from .._process.launcher import ALONE
from .._process.settings import get_float32_matmul_precision, set_float32_matmul_precision
from .._tensor import creation as make
from ..serialization import _scratch
from . import guard
from ._finding import Finding
from .fp32_shadow import HALVES, OperatorError, Shadow

SCALES = (2.0**0, 2.0**8, 2.0**16, 2.0**24)
LEAST_SECONDS = 0.1  # each precision runs steps for at least this long
WORTH = 0.95  # mixed precision pays below this share of float32's time or memory
LEAST_BYTES = 8e6  # memory that is worth a change
BEARABLE = 1.1  # share of float32's time that saved memory may cost
ROUNDS = 3  # the precisions take turns so often
ERRORS = {"gradients": "gradient error", "losses": "loss error"}  # headings
WIDTHS = (-10, 11, 10, 12, 17, 9, 17)  # of the columns of numbers; the first stands to the left
TOLERANCE = 2e-2  # relative error of the gradients that training bears


class Trial(NamedTuple):
    """Measurements of some steps in one precision."""

    precision: str
    seconds: float  # a step, the median
    peak_bytes: int
    losses: List[float]
    gradient_error: float  # of the first step's gradients against float32's, relative in their norm; nan where it was skipped
    skipped: int
    final_scale: float
    largest: float  # magnitude that an operator made in 16 bits
    room: float  # how often that can double before it overflows
    rounds: Tuple[float, ...] = ()  # seconds of a step in each round

    @property
    def fastest(self) -> float:
        """Seconds of a step in the fastest round."""
        return min(self.rounds, default=self.seconds)

    @property
    def slowest(self) -> float:
        """Seconds of a step in the slowest round."""
        return max(self.rounds, default=self.seconds)

    def timed(self, rounds: List[float]) -> Trial:
        """The same with the times of several rounds."""
        return self._replace(seconds=statistics.median(rounds), rounds=tuple(rounds))

    @property
    def first_bad(self) -> int:
        """The first step, from 1, whose loss was not finite; 0 where all were."""
        return next((i for i, loss in enumerate(self.losses, 1) if not math.isfinite(loss)), 0)


class Advice:
    """The result of ``advise``. ``precision``, ``init_scale`` and ``policy`` are the recommendation.

    ``trials`` has the measurements and ``operators`` the rounding errors in each precision. ``underflow`` has, for each loss scale, the
    share of gradient values that float16 would round to 0. ``without_units`` has the 16-bit formats whose products are computed in float32,
    ``left_out`` the files that a script would have saved. ``origin`` says what made the first inf or nan, where losses are not finite in
    float32 either."""

    def __init__(self, trials: List[Trial], underflow: Dict[float, float], amax: float, hardware: str, history: str,
                 operators: Dict[str, List[OperatorError]], error_of: str = "gradients", misuse: Iterable[str] = (),
                 without_units: Iterable[str] = (), left_out: Iterable[str] = (), origin: str = "") -> None:
        self.error_of, self.operators, self.misuse, self.without_units = error_of, operators, list(misuse), list(without_units)
        self.left_out, self.origin = list(left_out), origin
        self.trials, self.underflow, self.amax, self.hardware, self.history = {t.precision: t for t in trials}, underflow, amax, hardware, history
        self.policy: Optional[policies.CastPolicy] = None
        self.precision = self._choose()
        self.init_scale = 1.0 if self.precision != "float16" else 2.0**16 if self.misuse else self._scale()

    @property
    def _others(self) -> List[str]:
        return [p for p in self.trials if p != "float32"]

    def _faster(self, precision: str) -> bool:
        """Whether its slowest round is faster than float32's fastest, and by enough."""
        return self.trials[precision].slowest < WORTH * self.trials["float32"].fastest

    def _smaller(self, precision: str) -> bool:
        """Whether it saves memory that is worth it, and takes hardly more time."""
        t, base = self.trials[precision], self.trials["float32"]
        saved = base.peak_bytes - t.peak_bytes
        return saved > max((1 - WORTH) * base.peak_bytes, LEAST_BYTES) and t.seconds <= BEARABLE * base.seconds

    def _pays(self, precision: str) -> bool:
        return (self._faster(precision) or self._smaller(precision)) and not self._keeps_all(precision)

    def _keeps_all(self, precision: str) -> bool:
        """Whether every product of a script would have to stay in float32, so that nothing is left in 16 bits."""
        operators = self.operators.get(precision, []) if self.error_of == "losses" and precision in HALVES else []
        products = {e.op for e in operators if not e.backward_of} & {op["shown"] for op in _C.op_table() if op["cast"] == "low"}
        kept = _keeping(operators)
        return kept is not None and bool(products) and products <= set(kept.operators)

    def _sound(self, precision: str) -> bool:
        t = self.trials[precision]
        return all(math.isfinite(loss) for loss in t.losses) and t.skipped < len(t.losses) and t.gradient_error < 10 * TOLERANCE

    def _choose(self) -> str:
        fit = [p for p in self._others if self._pays(p) and self._sound(p)]
        best = min(fit, key=lambda p: self.trials[p].seconds, default="float32")
        if best == "float16" and "bfloat16" in fit and self.trials["bfloat16"].fastest <= self.trials["float16"].slowest:
            return "bfloat16"  # as fast, as far as can be told, and it needs no GradScaler
        return best

    def _scale(self) -> float:
        """The largest power of 2 that leaves the largest gradient eight doublings of room."""
        if not self.amax > 0:
            return 2.0**16
        return 2.0 ** max(0, min(24, math.floor(math.log2(65504.0 / self.amax)) - 8))

    @property
    def verdict(self) -> str:
        """In a sentence or two."""
        base = self.trials["float32"]
        if not all(math.isfinite(loss) for loss in base.losses):
            return self._not_finite()
        if self.precision == "float32":
            unsound = [p for p in self._others if self._pays(p) and not self._sound(p)]
            if unsound:
                return (f"Stay in float32. {' and '.join(unsound)} would save time or memory, but their losses or gradients differ too much from "
                        "float32's (see below). ampc.doctor.bisect finds the operators that must stay in float32.")
            if any(self._keeps_all(p) for p in self._others):
                return "Stay in float32: the products would have to be kept in float32, and nothing is left in 16 bits."
            if self._disturbed():
                return ("Stay in float32 for now: the rounds differ too much to tell whether mixed precision is worth it here. "
                        f"{self._times()} Measure again when the machine is quiet.")
            return f"Stay in float32: mixed precision is not worth it here. {self._times()}"
        t = self.trials[self.precision]
        text = (f"Use {self.precision}: a step takes {t.seconds / base.seconds:.2f} of float32's time and "
                f"{t.peak_bytes / max(base.peak_bytes, 1):.2f} of its memory; {self.error_of} differ by {100 * t.gradient_error:.2g} %. "
                f"{self._times()}")
        if self.precision == "tf32":
            text += " Write set_float32_matmul_precision('high')."
        if self.precision == "float16":
            text += " Mend the misuse below before choosing an init_scale." if self.misuse else f" Use a GradScaler(init_scale={self.init_scale:g})."
        return text + (f" Keep {', '.join(self.policy.operators)} in float32 (advice.policy)." if self.policy is not None else "")

    @property
    def worth(self) -> str:
        """What the 16-bit formats without units are worth here; empty where all have units."""
        if not self.without_units:
            return ""
        base, names = self.trials["float32"], [p for p in self.trials if p in self.without_units]
        saves = any(self.trials[p].peak_bytes < base.peak_bytes for p in names)
        shares = [f"in {t.precision} {t.seconds / base.seconds:.2f} of float32's time and {t.peak_bytes / max(base.peak_bytes, 1):.2f} of its memory"
                  for t in map(self.trials.__getitem__, names)]
        return (f"This CPU has no units for {' and '.join(names)}, and computes such products in float32. So {'it' if len(names) == 1 else 'they'} "
                f"can {'save memory here, but hardly time' if saves else 'hardly save time here, and this step needs more memory'}: "
                f"a step takes {', and '.join(shares)}.")

    def _disturbed(self) -> bool:
        """Whether the rounds say of a precision that it may halve float32's time, and that it may double it."""
        base = self.trials["float32"]
        return any(2 * self.trials[p].fastest < base.slowest and self.trials[p].slowest > 2 * base.fastest for p in self._others)

    def _times(self) -> str:
        """How sure the comparison of times is."""
        base = self.trials["float32"]
        n = len(base.rounds) or 1
        ranges = [f"{p} {self.trials[p].fastest / base.slowest:.2f} to {self.trials[p].slowest / base.fastest:.2f}" for p in self._others]
        return f"Times of {n} {'round' if n == 1 else 'rounds'} in turn, as shares of float32's: {', '.join(ranges)}."

    def _not_finite(self) -> str:
        """Of losses that are not finite in float32 either."""
        text = "The losses are not finite in float32 either"
        own = min(self.operators.get("float32", []), key=lambda e: e.room if math.isfinite(e.room) else math.inf, default=None)
        if own is None:
            told = f": {self.origin}" if self.origin else ". `ampc run --doctor` names the first operator that returns them."
            return f"{text}, so autocast's precision is not the cause{told}"
        return (f"{text}, but the script itself computes in {own.dtype} there, by .half() or the like: {own.op} at "
                f"{location_text(own.location)} comes nearest to overflow. Keep that in float32, or run the script by `ampc run --doctor`.")

    def _trials(self) -> List[List[str]]:
        """What was measured, a row for each precision."""
        rows = [["precision", "ms a step", "peak MB", "last loss", ERRORS[self.error_of], "skipped", "room to overflow"]]
        for t in self.trials.values():
            room = f"2^{t.room:.0f} times" if math.isfinite(t.room) else "-"
            error = "-" if t.precision == "float32" else f"{100 * t.gradient_error:.2g} %" if math.isfinite(t.gradient_error) else "not finite"
            rows.append([t.precision, f"{1e3 * t.seconds:.3f}", f"{t.peak_bytes / 1e6:.2f}", f"{t.losses[-1]:.4g}", error, str(t.skipped), room])
        return rows

    def _diverged(self) -> List[str]:
        return [f"in {t.precision} losses are not finite from step {t.first_bad} on" for t in self.trials.values() if t.first_bad]

    def _rounded(self, precision: str) -> List[OperatorError]:
        """The three operators with the largest errors."""
        return [e for e in self.operators.get(precision, []) if e.error > 0][:3]

    def __str__(self) -> str:
        lines = [self.verdict, *([self.worth] if self.worth else []), f"on {self.hardware}"]
        lines += ["".join(cell.rjust(width) if width > 0 else cell.ljust(-width) for cell, width in zip(row, WIDTHS)) for row in self._trials()]
        lines += self._diverged()
        lines += [f"misuse: {text}" for text in self.misuse]
        shares = ", ".join(f"{100 * share:.2g} % at {scale:.8g}" for scale, share in self.underflow.items())
        if self.underflow:
            lines.append(f"gradient values that float16 rounds to 0, by loss scale: {shares}; the largest gradient value is {self.amax:.3g}")
        for p in HALVES:
            rounded = self._rounded(p)
            lines += [f"largest rounding errors in {p}:", *(f"  {e}" for e in rounded)] if rounded else []
        return "\n".join([*lines, *([self.history] if self.history else []), *_left_out(self.left_out)])

    def _repr_html_(self) -> str:
        shares = [["loss scale", "gradient values that float16 rounds to 0"]]
        shares += [[f"{scale:.8g}", f"{100 * share:.2g} %"] for scale, share in self.underflow.items()]
        errors = [["dtype", "location", "operator", "relative error", "largest result", "room to overflow"]]
        errors += [[p, location_text(e.location), f"{e.op}, backward of {e.backward_of}" if e.backward_of else e.op, f"{100 * e.error:.2g} %",
                    f"{e.amax:.3g}", f"2^{e.room:.0f} times" if math.isfinite(e.room) else ""] for p in HALVES for e in self._rounded(p)]
        return "".join([f"<p><b>{html.escape(self.verdict)}</b></p>", html_text(*([self.worth] if self.worth else []), f"on {self.hardware}"),
                        html_table(self._trials(), {0}),
                        html_text(*self._diverged(), *(f"misuse: {text}" for text in self.misuse)),
                        html_table(shares, ()) + html_text(f"The largest gradient value is {self.amax:.3g}.") if self.underflow else "",
                        html_text("Largest rounding errors:") + html_table(errors, {0, 1, 2}) if len(errors) > 1 else "",
                        f"<pre>{html.escape(self.history)}</pre>" if self.history else "", html_text(*_left_out(self.left_out))])


def _left_out(files: List[str]) -> List[str]:
    """A line on the files that a script would have saved."""
    more = f" and {len(files) - 5} more" if len(files) > 5 else ""
    return [f"the script's saves were left out: {', '.join(files[:5])}{more}"] if files else []


class Subject:
    """A model whose steps are measured, from one state. ValueError for fewer than 2 steps; TypeError for a loss that the batch does not fit."""

    def __init__(self, model: Any, batch: Any, loss_fn: Callable[..., Any], optimizer: Any, steps: int) -> None:
        if steps < 2:
            raise ValueError(f"`steps` must be 2 or more, got {steps}")
        _check_loss(batch, loss_fn)
        self.model, self.batch, self.loss_fn, self.optimizer, self.steps = model, batch, loss_fn, optimizer, steps
        self.weights = {k: v.detach().clone() for k, v in model.state_dict().items()}
        self.memory = copy.deepcopy(optimizer.state_dict())
        self.rng, self.training = make.get_rng_state(), model.training
        first = next(iter(model.parameters()), None)
        self.kind = "cuda" if first is not None and first.is_cuda else "cpu"

    def restore(self) -> None:
        """As it was found, but for gradients, of which there are none."""
        self.model.load_state_dict(self.weights)
        self.optimizer.load_state_dict(copy.deepcopy(self.memory))
        self.optimizer.zero_grad()
        make.set_rng_state(self.rng)

    def loss(self, precision: str) -> Any:
        """Of a forward pass."""
        from ..amp.autocast_mode import autocast

        dtype = getattr(_C, precision) if precision in HALVES else _C.bfloat16
        with autocast(self.kind, dtype=dtype, enabled=precision in HALVES):
            return _loss(self.model, self.batch, self.loss_fn)

    def gradients(self, precision: str) -> Tuple[List[Any], List[OperatorError]]:
        """The first step's, unscaled, in float64, and what its operators did in 16 bits."""
        self.restore()
        scale = 2.0**8 if precision == "float16" else 1.0
        with Shadow() as shadow:
            (self.loss(precision) * scale).backward()
        return [p.grad.detach().double() / scale for p in self.model.parameters() if p.grad is not None], shadow.operators

    def trial(self, precision: str, exact: Optional[List[Any]]) -> Tuple[Trial, List[Any], List[OperatorError]]:
        """Some steps; also the first one's gradients, which are compared with the ``exact`` ones, and operators."""
        with tf32(precision == "tf32"):
            return self._trial(precision, exact)

    def _trial(self, precision: str, exact: Optional[List[Any]]) -> Tuple[Trial, List[Any], List[OperatorError]]:
        from ..amp import GradScaler

        grads, operators = self.gradients(precision)
        self.restore()
        scaler = GradScaler(self.kind, enabled=precision == "float16")
        seconds: List[float] = []
        losses: List[float] = []
        skipped = 0
        while len(seconds) <= self.steps or (sum(seconds) < LEAST_SECONDS and len(seconds) < 50 * self.steps):
            if len(seconds) == 1:  # the first one warms up
                cuda.reset_peak_memory_stats()
            begin = time.perf_counter()
            self.optimizer.zero_grad()
            loss = self.loss(precision)
            scaler.scale(loss).backward()
            scaler.step(self.optimizer)
            scaler.update()
            losses.append(loss.item())  # waits
            seconds.append(time.perf_counter() - begin)
            skipped += bool(scaler.last_step and scaler.last_step.skipped)
        error = 0.0 if exact is None else _error(grads, exact)
        median = statistics.median(seconds[len(seconds) // 2:])
        return Trial(precision, median, cuda.max_memory_allocated(), losses, error, skipped, scaler.get_scale(), *margin(operators)), grads, operators


def margin(operators: List[OperatorError]) -> Tuple[float, float]:
    """The largest magnitude of a forward pass, and how often it can double before it overflows; nan if there is none."""
    forward = [e for e in operators if not e.backward_of]
    nearest = min(forward, key=lambda e: e.room if e.amax > 0 else math.inf, default=None)
    return (nearest.amax, nearest.room) if nearest is not None else (math.nan, math.nan)


@contextlib.contextmanager
def tf32(on: bool) -> Iterator[None]:
    """Float32 products and convolutions in tf32, or in float32."""
    before, convolutions = get_float32_matmul_precision(), _C._cuda_convolution_tf32()
    set_float32_matmul_precision("high" if on else "highest")
    _C._cuda_convolution_tf32(on)
    try:
        yield
    finally:
        set_float32_matmul_precision(before)
        _C._cuda_convolution_tf32(convolutions)


def precisions(kind: str) -> List[str]:
    """The precisions to compare on a device."""
    return ["float32", *(["tf32"] if kind == "cuda" and cuda.is_tf32_supported() else []), "bfloat16", "float16"]


def _loss(model: Any, batch: Any, loss_fn: Callable[..., Any]) -> Any:
    if isinstance(batch, dict):
        return loss_fn(model(**batch))
    if _has_target(batch):
        return loss_fn(model(*batch[:-1]), batch[-1])
    return loss_fn(model(batch[0] if isinstance(batch, (tuple, list)) else batch))


def _has_target(batch: Any) -> bool:
    return isinstance(batch, (tuple, list)) and len(batch) > 1


def _check_loss(batch: Any, loss_fn: Callable[..., Any]) -> None:
    """TypeError where a loss function takes another number of arguments than the batch leads to."""
    import inspect

    call, many = ("loss_fn(model(*inputs), target)", 2) if _has_target(batch) else ("loss_fn(model(batch))", 1)
    try:
        signature = inspect.signature(getattr(loss_fn, "forward", loss_fn))
    except (TypeError, ValueError):  # not told, or nothing that can be called
        return
    try:
        signature.bind(*[None] * many)
    except TypeError as error:
        name = type(loss_fn).__name__ if hasattr(loss_fn, "forward") else getattr(loss_fn, "__name__", "the function")
        raise TypeError(f"`batch` is a {type(batch).__name__}, so the loss is {call}, which {name} does not take: {error}. Pass (inputs, target) for "
                        "a loss of an output and a target; one Tensor, or a dict, for a loss of the output alone") from None


def _error(grads: List[Any], exact: List[Any]) -> float:
    away = sum(((g - e) ** 2).sum().item() for g, e in zip(grads, exact))
    size = sum((e**2).sum().item() for e in exact)
    return math.sqrt(away / size) if size > 0 and away >= 0 else math.nan


def _lost(grads: List[Any], scale: float) -> float:
    """The share of values that are not 0 and would round to 0 in float16."""
    there = sum(int((g != 0).sum()) for g in grads)
    lost = sum(int(((g != 0) & ((g * scale).abs() <= 2.0**-25)).sum()) for g in grads)
    return lost / max(there, 1)


def without_units(kind: str) -> List[str]:
    """The 16-bit formats whose products a device computes in float32."""
    return [p for p in HALVES if kind == "cpu" and not _C._has_units(getattr(_C, p))]


def _hardware(kind: str) -> str:
    if kind == "cuda":
        return f"{cuda.get_device_name()}, tensor cores for both"
    units = [p for p in HALVES if p not in without_units(kind)]
    return f"the CPU ({_C._build_info()['cpu_features']}), with units for {' and '.join(units) if units else 'neither 16-bit format'}"


def _in_turn(turn: Tuple[str, int]) -> str:
    return f"{turn[0]}, round {turn[1]} of {ROUNDS}"


def measure(subject: Subject, history: str = "", title: str = "") -> Advice:
    """Trials in every precision that there is, and what follows from them. With a ``title`` progress is shown under it. The subject is left as they
    end."""
    trials, operators, exact = [], {}, None
    rounds: Dict[str, List[float]] = {}
    turns = [(p, number) for number in range(1, ROUNDS + 1) for p in precisions(subject.kind)]
    for p, number in Progress(turns, title, shown=bool(title), name=_in_turn):
        trial, grads, found = subject.trial(p, exact)
        exact = grads if exact is None else exact
        if number == 1:
            operators[p] = found
            trials.append(trial)
        rounds.setdefault(p, []).append(trial.seconds)
    trials = [t.timed(rounds[t.precision]) for t in trials]
    grads = exact or []
    amax = max((g.abs().max().item() for g in grads if g.numel()), default=0.0)
    bad = trials[0].first_bad
    return Advice(trials, {s: _lost(grads, s) for s in SCALES}, amax, _hardware(subject.kind), history, operators,
                  without_units=without_units(subject.kind), origin=_origin(subject, bad) if bad else "")


def advise(model: Any, batch: Any, loss_fn: Callable[..., Any], optimizer: Any, *, steps: int = 5, scaler: Any = None) -> Advice:
    """Runs ``steps`` steps of the model (more where they are short) in float32, bfloat16 and float16, and says what to use. float16 has a
    GradScaler. On a GPU with tf32 it measures that, too. Afterwards the model, the optimizer and the random state are restored, and
    gradients are cleared.

    Args:
        batch: (inputs..., target) for ``loss_fn(model(*inputs), target)``; a dict for ``loss_fn(model(**batch))``; one Tensor for
            ``loss_fn(model(batch))``.
        scaler: one that a training used; its report is added.

    ValueError for fewer than 2 steps."""
    subject = Subject(model, batch, loss_fn, optimizer, steps)
    try:
        with guard.off():  # its own steps are no misuse
            found = measure(subject, str(scaler.report()) if scaler is not None else "")
            if found.precision in HALVES and found.trials[found.precision].gradient_error > TOLERANCE:
                found.policy = _mend(subject, found.precision)
    finally:
        subject.restore()
    return found


def advise_script(script: str, args: List[str], steps: int = 20, progress: bool = False) -> Advice:
    """Like ``advise``, for a script, which runs for ``steps`` backward passes in each precision, each time in a new process. A script of several
    processes runs as the only rank. ``progress`` shows a line for each run also where standard error is no terminal.

    Its autocast regions get that dtype, or are off in float32. A script without a region runs in one. Errors are measured on the losses.
    Every process begins with the same seed, of Python's, NumPy's and ampc's generators. The precisions take turns, for three rounds: one is
    called faster where its slowest round is faster than float32's fastest.

    What the script saves by ampc or safetensors goes to a folder of its own, where its loads look first, and is removed: ``left_out`` names
    the files. What it writes by other means, such as ``open`` or ``numpy.save``, is written.

    FileNotFoundError if there is no such file; RuntimeError, with the script's own error, if a run fails or has no backward pass."""
    import json
    import os
    import subprocess
    import sys
    import tempfile

    if not os.path.isfile(script):
        raise FileNotFoundError(f"there is no file {script}")

    left_out: Dict[str, None] = {}

    def run(precision: str, steps: int = steps) -> Dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            path, saves = os.path.join(folder, "trial.json"), os.path.join(folder, "saves")
            os.mkdir(saves)
            command = [sys.executable, "-m", "ampc.run._trial", path, precision, str(steps), script, *args]
            environment = {**ALONE, "PYTHONHASHSEED": "0", **os.environ, _scratch.VARIABLE: saves}  # sets in the same order in every trial
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
            left_out.update(dict.fromkeys(_scratch.saved(saves)))
            said = "\n".join(filter(None, [done.stderr.strip(), *_left_out(list(left_out))]))
            row: Dict[str, Any] = {}
            if os.path.exists(path):  # unless a signal has ended the process
                with open(path, encoding="utf-8") as out:
                    row = json.load(out)
            if "losses" not in row:
                raise RuntimeError(f"{script} {_failure(precision, done.returncode, row)}\n{said}")
            return row

    rows: Dict[str, Dict[str, Any]] = {}
    rounds: Dict[str, List[float]] = {}

    def turns() -> Iterator[Tuple[str, int]]:
        yield "float32", 1
        names = precisions(rows["float32"]["kind"])
        yield from [(p, number) for number in range(1, ROUNDS + 1) for p in names][1:]

    expected = ROUNDS * len(precisions("cuda" if cuda.is_available() else "cpu"))
    for p, _ in Progress(turns(), f"{script}, {steps} steps", expected, shown=progress or somebody_watches(), name=_in_turn):
        row = run(p)
        rows.setdefault(p, row)
        rounds.setdefault(p, []).append(row["seconds"])
    base = rows["float32"]
    bad = next((i for i, loss in enumerate(base["losses"], 1) if not math.isfinite(loss)), 0)
    origin = ""
    if bad:
        with contextlib.suppress(RuntimeError):  # a script that fails this time alone has its verdict without it
            origin = run("doctor", bad)["origin"]
    operators = {p: [OperatorError(e[0], (e[1][0], e[1][1]), *e[2:]) for e in row["operators"]] for p, row in rows.items()}
    trials = []
    for precision, row in rows.items():
        away = [abs(a - b) / max(abs(b), 1e-12) for a, b in zip(row["losses"], base["losses"])]
        error = max(away) if away and all(math.isfinite(a) for a in away) else math.nan
        trials.append(Trial(precision, row["seconds"], row["peak_bytes"], row["losses"], error, row["skipped"], row["scale"],
                            *margin(operators[precision])).timed(rounds[precision]))
    found = Advice(trials, {float(k): v for k, v in base["underflow"].items()}, base["amax"], base["hardware"],
                   rows["float16"]["history"] or "the script does not use a GradScaler",
                   operators, "losses", dict.fromkeys(text for row in rows.values() for text in row["misuse"]), without_units(base["kind"]),
                   left_out, origin)
    if found.precision in HALVES:
        found.policy = _keeping(operators[found.precision])
    return found


def _failure(precision: str, status: int, row: Dict[str, Any]) -> str:
    """How a run ended that gave no losses. Only one that may have resumed from a checkpoint is told of them."""
    failed = f"failed in {precision} (exit status {status})" if status else f"ended in {precision}"
    if status and not row.get("has_read"):
        return failed if row.get("begun", True) else f"{failed} before its first backward pass"
    if row.get("begun"):
        return failed
    return (f"{failed} without a backward pass, so that there was nothing to measure. If it resumes from the checkpoint of an earlier run, that may "
            "have ended the training already: name another one, or move it away")


def _keeping(operators: List[OperatorError]) -> Optional[policies.CastPolicy]:
    """Chooses float32 for operators with too large errors, or whose results are less than a doubling from overflow."""
    names = {e.backward_of or e.op for e in operators if e.error > TOLERANCE or e.room < 1}
    known = [name for name in sorted(names) if policies.known(name)]
    return policies.CastPolicy("advised", operators=dict.fromkeys(known, "float32")) if known else None


def origin_of(findings: List[Finding]) -> str:
    """What made the first inf or nan, and what to write instead; empty where the doctor has found nothing."""
    return f"{findings[0].heading()}. To mend it: {findings[0].advice}." if findings else ""


def _origin(subject: Subject, steps: int) -> str:
    """Of the first steps in float32, again, under the doctor."""
    from .nonfinite import Doctor

    subject.restore()
    with warnings.catch_warnings(), Doctor() as watching:
        warnings.simplefilter("ignore")
        for _ in range(steps):
            subject.optimizer.zero_grad()
            subject.loss("float32").backward()
            subject.optimizer.step()
    return origin_of(watching.findings)


def _mend(subject: Subject, precision: str) -> Optional[policies.CastPolicy]:
    """Operators that bring the loss to within the tolerance, where some do."""
    from .bisection import bisect

    subject.restore()
    result = bisect(lambda: subject.loss(precision).detach().float(), tolerance=TOLERANCE / 10, model=subject.model)
    return result.policy if result.names and result.reached and len(result.names) < len(result.candidates) else None
