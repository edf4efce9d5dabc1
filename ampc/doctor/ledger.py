"""The overflow ledger: what each step of a GradScaler found in the gradients. A step adds a few sums that its pass over the gradients
computes anyway. For a skipped step the ledger keeps every parameter's numbers. Numbers on a GPU stay there until they are read."""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple, Union

from .. import _C, _ops
from .._C import Tensor
from .._events import Listener, StepReport, listen
from .._messages.model_names import Names
from ..amp._ledger import AMAX, FIRST, INFS, NANS, SMALL, SQUARES, GradStats, join, total
from ._growth import growth
from .guard import MIXED_LEFTOVER

STEPS = 1000  # that are remembered
TABLES = 100  # of a GPU's steps that were not asked about, up to twice as many; of those before, sums are kept, there
SOON = 5  # updates, which are too few to show that losses grow


class Gradient(NamedTuple):
    """One parameter's gradient in a step."""

    name: str
    shape: Tuple[int, ...]
    amax: float  # the largest finite magnitude, unscaled
    infs: int
    nans: int
    underflow: float  # the share of its scaled values that lie below float16's normal numbers, 6e-5
    first_bad: Optional[Tuple[int, ...]]  # index of the first value that is not finite; None: all are


class Step:
    """One ``scaler.step``. On a GPU the first attribute that is read waits for it."""

    _found: List[Tensor] = []
    _seen: Any = None  # tables and positions; once settled, the rows and positions of a step that was skipped
    _late: Any = None  # sums of a step on a GPU, which nobody has waited for
    _sums: Optional[Tuple[float, ...]] = None
    _skipped: Optional[bool] = None
    _leftover = False  # whether the gradients were added to those of an earlier iteration

    def __init__(self, number: int, optimizer: Any, scale: Union[float, Tensor], loss: Union[float, Tensor, None], found: List[Tensor],
                 seen: List[GradStats]) -> None:
        self.number, self._scale, self._loss = number, scale, loss
        lr = optimizer.param_groups[0].get("lr", math.nan)
        self._lr = lr.clone() if isinstance(lr, Tensor) else lr
        self._optimizer = weakref.ref(optimizer)
        if len(seen) == 1 and seen[0].sums is not None and not found[0].item():  # the usual one, in few words: it is a part of every step
            self._sums, self._skipped = seen[0].sums, False
            return
        self._found, self._seen = found, seen
        if not any(flag.is_cuda for flag in found):
            self.settle()

    def settle(self) -> None:
        """Works out the sums, and lets go of the table of a step that was applied."""
        if self._late is not None:
            self._settle_late()
        if self._sums is None and self._seen is not None:
            self._sums = total(self._seen)
            self._skipped = any(f.item() for f in self._found)
            self._seen = [(stat.table.tolist(), stat.positions) for stat in self._seen] if self._skipped else None
        self._found = []

    def tables(self) -> List[Tensor]:
        """Those on a GPU, which nobody has waited for."""
        return [stat.table for stat in self._seen] if self._sums is None and self._seen is not None else []

    def shrink(self, sums: List[Any]) -> None:
        """Keeps sums in place of tables, on their GPU, without waiting for it. ``sums``: for each (of columns, largest in them, row)."""
        self._late, self._seen = sums, None

    def _settle_late(self) -> None:
        parts = [(sums[row].tolist(), amax[row].item()) for sums, amax, row in self._late]
        self._sums = join([(squares, amax, *counts[:-1]) for (squares, _, *counts), amax in parts])
        self._skipped, self._late = any(f.item() for f in self._found), None

    @property
    def skipped(self) -> bool:
        """Whether the optimizer's step was skipped."""
        self.settle()
        return bool(self._skipped)

    @property
    def scale(self) -> float:
        """What the loss was multiplied by."""
        return self._scale.item() if isinstance(self._scale, Tensor) else self._scale

    @property
    def lr(self) -> float:
        """The first group's rate; nan where it has none."""
        return float(self._lr)

    @property
    def loss(self) -> float:
        """The last loss before it was scaled; nan where there was none of one element."""
        return self._loss.item() if isinstance(self._loss, Tensor) else math.nan if self._loss is None else self._loss

    def _sum(self, i: int) -> float:
        self.settle()
        return self._sums[i] if self._sums else math.nan

    @property
    def grad_norm(self) -> float:
        """The norm of all unscaled gradients, before clipping; infinite or nan where one of them is."""
        squares = self._sum(SQUARES)
        return math.sqrt(squares) if squares >= 0 else math.nan

    @property
    def amax(self) -> float:
        """The largest finite magnitude among the unscaled gradients."""
        return self._sum(AMAX)

    @property
    def infs(self) -> int:
        """How many gradient values were infinite."""
        return int(self._sum(INFS))

    @property
    def nans(self) -> int:
        """How many were nan."""
        return int(self._sum(NANS))

    @property
    def gradients(self) -> List[Gradient]:
        """Each parameter's gradient, of a step that was skipped; else, and when the optimizer is gone, []."""
        return self._gradients(lambda values: True)

    def _gradients(self, wanted: Callable[[List[float]], bool]) -> List[Gradient]:
        self.settle()
        optimizer, names = self._optimizer(), Names()
        if optimizer is None or not self._seen:
            return []
        rows = sorted((position, values) for table, positions in self._seen for values, position in zip(table, positions) if wanted(values))
        return [gradient_of(optimizer, position, values, names) for position, values in rows]

    @property
    def culprit(self) -> Optional[Gradient]:
        """The first parameter, in the optimizer's order, whose gradient was not finite."""
        return next(iter(self._gradients(lambda values: values[INFS] + values[NANS] > 0)), None)

    def __repr__(self) -> str:
        culprit = self.culprit
        end = f", skipped, {self.infs} inf, {self.nans} nan" + (f", first in {culprit.name}" if culprit else "") if self.skipped else ""
        return f"Step({self.number}, loss={self.loss:.4g}, scale={self.scale:g}, norm={self.grad_norm:.4g}, lr={self.lr:g}{end})"


def gradient_of(optimizer: Any, position: Tuple[int, int], values: List[float], names: Names) -> Gradient:
    """A row of a pass's table with its parameter's name."""
    p = optimizer.param_groups[position[0]]["params"][position[1]]
    return Gradient(names.of_parameter(optimizer, *position), tuple(p.shape), values[AMAX], int(values[INFS]), int(values[NANS]),
                    values[SMALL] / max(p.numel(), 1), _unravel(int(values[FIRST]) - 1, tuple(p.shape)) if values[FIRST] else None)


def _unravel(at: int, shape: Tuple[int, ...]) -> Tuple[int, ...]:
    index = []
    for size in reversed(shape):
        index.append(at % size)
        at //= size
    return tuple(reversed(index))


def _shrink(steps: List[Step]) -> None:
    """Shrinks many steps at once: the sums of tables of one shape are computed together."""
    alike: Dict[Any, List[Tensor]] = {}
    at: Dict[int, List[Tuple[Any, int]]] = {}  # of a step: the group of each of its tables, and the place there
    for i, step in enumerate(steps):
        for table in step.tables():
            group = (_C._device_index(table), len(table))
            tables = alike.setdefault(group, [])
            at.setdefault(i, []).append((group, len(tables)))
            tables.append(table)
    together = {group: _ops.stack(tables) for group, tables in alike.items()}
    sums = {group: (all_.sum(1), all_[:, :, AMAX].amax(1)) for group, all_ in together.items()}
    for i, places in at.items():
        steps[i].shrink([(*sums[group], row) for group, row in places])


class Ledger:
    """The last 1,000 steps of a scaler, oldest first; ``scaler.ledger``."""

    def __init__(self) -> None:
        self._steps: Deque[Step] = deque(maxlen=STEPS)
        self.total = 0  # steps, remembered or not
        self.latest: Optional[Tuple[Step, List[GradStats]]] = None  # the last step that was applied, so far as that is known, and its tables

    def __repr__(self) -> str:
        return f"Ledger({self.total} steps, the last {len(self._steps)} kept)"

    def add(self, optimizer: Any, scale: Union[float, Tensor], loss: Union[float, Tensor, None], found: List[Tensor], seen: List[GradStats]) -> Step:
        """Adds a step and returns it."""
        self.total += 1
        step = Step(self.total, optimizer, scale, loss, found, seen)
        self._steps.append(step)
        if not step._skipped:
            self.latest = step, seen
        if step._sums is None and self.total % TABLES == 0:
            _shrink([self._steps[i] for i in range(-min(2 * TABLES, len(self._steps)), -TABLES)])
        return step

    def report(self, scaler: Any) -> StepReport:
        """A report on the steps, see ``GradScaler.report``."""
        from .ledger_report import LedgerReport

        return LedgerReport(scaler)

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, i: Any) -> Any:
        return list(self._steps)[i] if isinstance(i, slice) else self._steps[i]

    @property
    def skipped(self) -> List[Step]:
        """The steps that were skipped."""
        return [s for s in self._steps if s.skipped]

    def ranges(self) -> List[Gradient]:
        """Each parameter's gradient in the last step that was applied; [] where there is none, and on a GPU if the last step was skipped."""
        optimizer = self.latest[0]._optimizer() if self.latest is not None else None
        if self.latest is None or optimizer is None or self.latest[0].skipped:
            return []
        names = Names()
        return [gradient_of(optimizer, position, values, names) for stat in self.latest[1]
                for values, position in zip(stat.table.tolist(), stat.positions)]

    def cause(self, step: Step) -> Tuple[str, str]:
        """Why a step was skipped: 'scale', 'model', 'divergence', 'leftover' or 'none', and a sentence. It judges by the loss, by
        infinities and nans, and by the steps before."""
        if not step.skipped:
            return "none", "the step was applied"
        before = [s for s in self._steps if s.number < step.number][-50:]
        grown = _growth(before)
        if not math.isfinite(step.loss) and not (math.isnan(step.loss) and step._loss is None):
            if grown:
                return "divergence", f"the loss is {step.loss} after {grown}: lower the learning rate, or clip the gradients"
            return "model", f"the loss itself is {step.loss}, so no scale helps: an operator of the forward pass overflowed, or the batch "\
                f"contains inf or nan{_soon(before)}; `ampc run --doctor` names which"
        if step._leftover and _was_skipped(step, before):
            return "leftover", "the inf and nan of a step that was skipped before were still in the gradients that this one added to: call "\
                "optimizer.zero_grad() before the first backward() of an iteration"
        if step.scale <= 1:
            return "model", f"gradients are not finite even at a scale of {step.scale:g}, so scaling is not the cause: they are too large for "\
                "float16, or the backward pass divided by 0"
        if grown:
            return "divergence", f"gradients overflow after {grown}: lower the learning rate, or clip the gradients"
        text = f"the scale of {step.scale:g} was too high for these gradients; the scaler lowers it, and only this step is lost"
        return "scale", text if step.infs else f"{text} (the backward pass turned the infinities into nan)"


def _was_skipped(step: Step, before: List[Step]) -> bool:
    """Whether the same optimizer's step before this one was skipped."""
    same = [s for s in before if s._optimizer == step._optimizer]
    return bool(same) and same[-1].skipped


def _soon(before: List[Step]) -> str:
    """Says that updates may have caused it, where they were few: too few for ``_growth`` to see a rise."""
    updates = sum(not s.skipped for s in before)
    return f"; it came after {updates} update{'s'[:updates > 1]}, so the learning rate may be too high" if 0 < updates <= SOON else ""


def _growth(before: List[Step]) -> str:
    """Says in words that losses or norms have recently grown tenfold; '' if they have not."""
    norms = [s.grad_norm for s in before if not s.skipped]
    for what, found in (("loss", growth([s.loss for s in before])), ("gradient norm", growth(norms, rising=False))):
        if found is not None:
            return f"a {what} that grew from {found[0]:.3g} to {found[1]:.3g} within {found[2]} steps"
    return ""


class _Keeper(Listener):
    """Keeps a ledger for each scaler."""

    def __init__(self) -> None:
        self._leftover: weakref.WeakSet[Any] = weakref.WeakSet()  # optimizers whose gradients were added to those of an earlier iteration

    def scaler_made(self, scaler: Any) -> None:
        scaler.ledger = Ledger()

    def unscaling(self, number: int, iteration: int, scale: float, optimizer: Any) -> None:
        if _C._provenance_flags(optimizer.param_groups) >> 8 & MIXED_LEFTOVER:  # which unscaling forgets
            self._leftover.add(optimizer)

    def step_decided(self, scaler: Any, optimizer: Any, scale: Union[float, Tensor], loss: Union[float, Tensor, None],
                     found_inf: Dict[Any, Tensor], stats: List[GradStats]) -> None:
        scaler.last_step = scaler.ledger.add(optimizer, scale, loss, list(found_inf.values()), stats)
        if optimizer in self._leftover:
            scaler.last_step._leftover = True
            self._leftover.remove(optimizer)


listen(_Keeper())
