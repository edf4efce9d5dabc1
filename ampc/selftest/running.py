"""Cases, and how they are run and judged."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Tuple

import ampc

from .data import Draw, Trial

FLOATS = ("float32", "bfloat16", "float16")
HALVES = ("bfloat16", "float16")
ALL = ("float64", *FLOATS)


@dataclass(frozen=True)
class Border:
    """A size at which the kernel takes another way: the smallest between ``low`` and ``high``, in steps, that enters ``way``. It is found on
    the machine, by asking the core which way it took, so it is the border whatever the caches are. Sizes right below, at and beyond it are run."""

    way: str
    low: int
    high: int
    step: int = 1


@dataclass(frozen=True)
class Case:
    """A kernel at some sizes, one of which may be a Border."""

    kernel: str
    trial: Callable[..., Trial]
    ways: Tuple[str, ...]  # that it enters, on this instruction set or another, in one of the dtypes
    sizes: Mapping[str, Any]
    dtypes: Tuple[str, ...] = FLOATS
    threads: int = 1  # at least


@dataclass
class Result:
    """What came of one case in one dtype at one size."""

    kernel: str
    dtype: str
    sizes: Dict[str, Any]
    seed: int
    claims: Tuple[str, ...]  # the case's ways,
    ways: List[str] = field(default_factory=list)  # and those of them that were entered
    units: float = 0.0  # the worst error, in units of its bound
    seconds: float = 0.0
    wrong: str = ""  # what was wrong, and where

    @property
    def ok(self) -> bool:
        return not self.wrong


def entered() -> FrozenSet[str]:
    """The ways that have been entered since they were last forgotten."""
    return frozenset(w["name"] for w in ampc._C._ways() if w["entered"])


def _enters(case: Case, draw: Callable[[], Draw], sizes: Mapping[str, Any], way: str) -> bool:
    trial = case.trial(draw(), **sizes)
    ampc._C._reset_ways()
    trial.compute()
    return way in entered()


def _with(sizes: Mapping[str, Any], n: int) -> Dict[str, Any]:
    """The sizes with ``n`` where the Border is."""
    def put(value: Any) -> Any:
        return n if isinstance(value, Border) else tuple(map(put, value)) if isinstance(value, tuple) else value

    return {name: put(value) for name, value in sizes.items()}


def _border_of(case: Case) -> Optional[Border]:
    values = [v for value in case.sizes.values() for v in (value if isinstance(value, tuple) else (value,))]
    return next((v for v in values if isinstance(v, Border)), None)


def _around(case: Case, draw: Callable[[], Draw], border: Border) -> List[int]:
    """The sizes right below and at a border, found by doubling, then by halves; and one beyond, where what is cut leaves another rest."""
    def at(steps: int) -> int:
        return border.low + steps * border.step

    low, high, last = 0, 1, (border.high - border.low) // border.step  # in steps: below the border, and not
    while high < last and not _enters(case, draw, _with(case.sizes, at(high)), border.way):
        low, high = high, min(2 * high, last)
    while high - low > 1:
        middle = (low + high) // 2
        if _enters(case, draw, _with(case.sizes, at(middle)), border.way):
            high = middle
        else:
            low = middle
    return [at(steps) for steps in (low, high, high + (high + 1) // 2) if steps <= last]


def _sizes(case: Case, draw: Callable[[], Draw]) -> List[Dict[str, Any]]:
    border = _border_of(case)
    return [_with(case.sizes, n) for n in _around(case, draw, border)] if border else [dict(case.sizes)]


def judge(got: Mapping[str, Any], trial: Trial) -> Tuple[float, str]:
    """The worst error in units of its bound, and what is wrong."""
    units, wrong = 0.0, []
    for name, bounded in trial.expect().items():
        away = bounded.distance(got[name].detach().cpu().double().numpy())
        units = max(units, away)
        if not away <= 1:
            wrong.append(f"{name} is {away:.3g} times its bound away")
    return units, "; ".join(wrong)


FAULTS = (ArithmeticError, RuntimeError, TypeError, ValueError)  # of a kernel


def _failed(result: Result, error: Exception) -> Result:
    if isinstance(error, ampc.OutOfMemoryError):  # a RuntimeError that says nothing of the kernel
        raise error
    result.units, result.wrong = float("inf"), f"{type(error).__name__}: {error}"
    return result


def _run(case: Case, draw: Callable[[], Draw], dtype: str, sizes: Dict[str, Any], seed: int) -> Result:
    result, begin = Result(case.kernel, dtype, sizes, seed, case.ways), time.perf_counter()
    try:
        trial = case.trial(draw(), **sizes)
        ampc._C._reset_ways()
        got, now = trial.compute(), entered()
        result.ways = [w for w in case.ways if w in now]
        result.units, result.wrong = judge(got, trial)
    except FAULTS as error:
        _failed(result, error)
    result.seconds = time.perf_counter() - begin
    return result


def run_case(case: Case, dtype: str, seed: int, device: str = "cpu") -> List[Result]:
    """One case in one dtype, at its size or around its border, on as many threads as it needs at least."""
    threads = ampc.get_num_threads()

    def draw() -> Draw:
        return Draw(dtype, seed, device)

    ampc.set_num_threads(max(threads, case.threads))
    try:
        return [_run(case, draw, dtype, sizes, seed) for sizes in _sizes(case, draw)]
    except FAULTS as error:  # of one that looked for the border
        return [_failed(Result(case.kernel, dtype, {"around": _border_of(case)}, seed, case.ways), error)]
    finally:
        ampc.set_num_threads(threads)
