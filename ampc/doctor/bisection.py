"""The smallest set of operators, or modules, that must stay in float32, found by halving (Zeller and Hildebrandt 2002, ddmin)."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from .. import _C
from .. import policy as policies
from .._tensor import creation as make
from .explain import Explain

HALF = ("float16", "bfloat16")


class Bisection(NamedTuple):
    """What ``bisect`` found. ``policy`` keeps ``names`` in float32: ``autocast(policy=found.policy)``."""

    names: List[str]
    candidates: List[str]
    error: float  # with that policy, relative to all in float32
    error_before: float  # with 16 bits wherever autocast has them
    reached: bool  # whether the tolerance was kept
    runs: int
    policy: policies.CastPolicy

    def __str__(self) -> str:
        if not self.candidates:
            return "nothing ran in 16 bits; is the autocast region in step_fn enabled?"
        if not self.names:
            return f"all {len(self.candidates)} may run in 16 bits: the error is {self.error_before:.3g}"
        what = f"keep {len(self.names)} of {len(self.candidates)} in float32: {', '.join(self.names)}"
        end = "" if self.reached else "; the tolerance was not reached"
        return f"{what}. The error falls from {self.error_before:.3g} to {self.error:.3g} ({self.runs} runs){end}"


class _Runs:
    """Calls of step_fn from one state: random numbers and, where a model is given, its parameters and buffers."""

    def __init__(self, step_fn: Callable[[], Any], metric: Optional[Callable[[Any], Any]], model: Any) -> None:
        self.step_fn, self.metric, self.model, self.count = step_fn, metric, model, 0
        self.rng = make.get_rng_state()
        self.start = {k: v.detach().clone() for k, v in model.state_dict().items()} if model is not None else {}

    def __call__(self, policy: policies.CastPolicy) -> List[float]:
        self.count += 1
        make.set_rng_state(self.rng)
        try:
            with policies.using(policy):
                result = self.step_fn()
        finally:
            make.set_rng_state(self.rng)
            if self.model is not None:
                self.model.load_state_dict(self.start)
        value = result if self.metric is None else self.metric(result)
        if isinstance(value, _C.Tensor):
            return list(value.detach().double().flatten().tolist())
        return [float(value)]


def _distance(value: Sequence[float], reference: Sequence[float]) -> float:
    """Relative, in the largest magnitude; infinite where something is not finite."""
    size = max((abs(r) for r in reference), default=0.0) or 1.0
    away = [abs(v - r) for v, r in zip(value, reference)]
    return max(away, default=0.0) / size if all(a < float("inf") for a in away) else float("inf")


def bisect(step_fn: Callable[[], Any], metric: Optional[Callable[[Any], Any]] = None, tolerance: float = 1e-2, *, model: Any = None,
           by: str = "operators") -> Bisection:
    """Finds the smallest set of operators that must stay in float32 to keep a metric right.

    Right means within ``tolerance``, relative to the metric with everything in float32. With ``by='modules'`` the set has the innermost
    modules of ``model`` instead of operators.

    Args:
        step_fn: a step with autocast regions that name no policy. It is called many times and must do the same each time. For each call the
            random numbers begin anew, and ``model`` gets its first parameters and buffers back.
        metric: turns the result of step_fn into a number or Tensor; None takes the result itself.

    ValueError for another ``by``, for modules without a model, and if the metric is not finite in float32."""
    if by not in ("operators", "modules") or (by == "modules" and model is None):
        raise ValueError(f"bisect: `by` must be 'operators', or 'modules' with a `model`, got {by!r}")
    run = _Runs(step_fn, metric, model)
    low = [name for name, category in policies._categories().items() if category == 1]
    reference = run(policies.CastPolicy("float32", operators=dict.fromkeys(low, "float32")))
    if not all(abs(r) < float("inf") for r in reference):
        raise ValueError("bisect: the metric is not finite with everything in float32, so 16 bits are not the cause")
    with Explain() as seen:
        before = _distance(run(policies.default), reference)
    if by == "modules":
        candidates = [name for name, m in model.named_modules() if name and not list(m.children())]
    else:
        candidates = sorted({r.op for r in seen.ran if r.dtype in HALF and r.reason.startswith("autocast")})
    tried: Dict[frozenset, float] = {}

    def error_of(names: Sequence[str]) -> float:
        key = frozenset(names)
        if key not in tried:
            tried[key] = _distance(run(_policy(names, by, model)), reference)
        return tried[key]

    keep = [] if before <= tolerance or not candidates else _smallest(candidates, lambda names: error_of(names) <= tolerance)
    error = error_of(keep) if keep else before
    return Bisection(keep, candidates, error, before, error <= tolerance, run.count, _policy(keep, by, model))


def _policy(names: Sequence[str], by: str, model: Any) -> policies.CastPolicy:
    if by == "operators":
        return policies.CastPolicy("bisected", operators=dict.fromkeys(names, "float32"))
    from .._messages.model_names import Names

    root = Names().of(model)  # patterns are of names from the outermost module
    return policies.CastPolicy("bisected", modules={f"{root}.{name}" if root else name: "float32" for name in names})


def _smallest(names: List[str], enough: Callable[[List[str]], bool]) -> List[str]:
    """A set from which nothing can be left out; all of them where not even that is enough."""
    if not enough(names):
        return names
    parts = 2
    while len(names) >= 2:
        size = -(-len(names) // parts)
        cuts = [names[i:i + size] for i in range(0, len(names), size)]
        smaller = next((c for c in cuts if enough(c)), None) or next(
            (rest for rest in ([n for n in names if n not in c] for c in cuts) if rest and enough(rest)), None)
        if smaller is not None and len(smaller) < len(names):
            names, parts = smaller, max(2, parts - 1 if len(smaller) > size else 2)
        elif parts >= len(names):
            break
        else:
            parts = min(len(names), 2 * parts)
    return names
