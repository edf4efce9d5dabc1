"""L-BFGS: the last few steps approximate the matrix of second derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, List, NamedTuple, Optional, Tuple

from .. import _ops
from .._C import Tensor
from .._tensor import creation as make
from ..autograd import enable_grad, no_grad
from .optimizer import Optimizer, check_options


class _Point(NamedTuple):
    """A point on the line that is searched: how far along, the loss, its gradient, and the slope along the line."""

    t: float
    loss: float
    grad: Tensor
    slope: float


def _lowest(a: _Point, b: _Point, bounds: Optional[Tuple[float, float]] = None) -> float:
    """Where the cubic through both points, with their slopes, is lowest, within bounds (Nocedal and Wright 2006, 3.59)."""
    low, high = bounds or (min(a.t, b.t), max(a.t, b.t))
    first = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = first * first - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    if a.t > b.t:
        a, b = b, a
    root = math.sqrt(square)
    at = b.t - (b.t - a.t) * ((b.slope + root - first) / (b.slope - a.slope + 2 * root))
    return min(max(at, low), high)


def _strong_wolfe(objective: Callable[[float], _Point], start: _Point, t: float, size: float, tolerance: float, most: int = 25,
                  c1: float = 1e-4, c2: float = 0.9) -> Tuple[_Point, int]:
    """A point that satisfies the strong Wolfe conditions (Nocedal and Wright 2006, algorithms 3.5 and 3.6), and at how many the
    objective was computed. ``size``: the direction's largest value."""

    def too_high(p: _Point) -> bool:
        return p.loss > start.loss + c1 * p.t * start.slope

    def flat(p: _Point) -> bool:
        return abs(p.slope) <= -c2 * start.slope

    now, before, n = objective(t), start, 0
    while n < most:  # until a stretch holds such a point
        if too_high(now) or (n > 1 and now.loss >= before.loss) or now.slope >= 0 and not flat(now):
            break
        if flat(now):
            return now, n + 1
        farther = _lowest(before, now, (now.t + 0.01 * (now.t - before.t), now.t * 10))
        before, now, n = now, objective(farther), n + 1
    low, high = (before, now) if n < most else (start, now)
    if low.loss > high.loss:
        low, high = high, low
    calls, cramped = n + 1, False
    while n < most and abs(high.t - low.t) * size >= tolerance:  # narrows it
        left, right = min(low.t, high.t), max(low.t, high.t)
        at, margin = _lowest(low, high), 0.1 * (right - left)
        if min(right - at, at - left) < margin:  # near an end twice running: away from it
            if cramped or at >= right or at <= left:
                at = right - margin if abs(at - right) < abs(at - left) else left + margin
                cramped = False
            else:
                cramped = True
        else:
            cramped = False
        new, n, calls = objective(at), n + 1, calls + 1
        if too_high(new) or new.loss >= low.loss:
            high = new
            if low.loss > high.loss:
                low, high = high, low
            continue
        if flat(new):
            return new, calls
        if new.slope * (high.t - low.t) >= 0:
            high = low
        low = new
    return low, calls


class LBFGS(Optimizer):
    """Limited-memory BFGS (Liu and Nocedal 1989), for whole batches; one parameter group. ``step`` needs a closure that computes the loss
    again. Source: torch.optim.LBFGS.

    Args:
        lr: of a step, or the first length that a line search tries.
        max_iter, max_eval: iterations and evaluations of the closure in one ``step``; ``max_eval`` is 1.25 ``max_iter`` by default.
        tolerance_grad: a largest gradient that ends it; tolerance_change: a change of parameters or loss that does.
        history_size: steps that are remembered.
        line_search_fn: None or 'strong_wolfe'.

    ValueError for several groups, and for options out of range."""

    _needs_whole = True

    def __init__(self, params: Iterable[Any], lr: float = 1, max_iter: int = 20, max_eval: Optional[int] = None, tolerance_grad: float = 1e-7,
                 tolerance_change: float = 1e-9, history_size: int = 100, line_search_fn: Optional[str] = None) -> None:
        check_options("LBFGS", lr=(lr, 0.0, None))
        if line_search_fn not in (None, "strong_wolfe"):
            raise ValueError(f"LBFGS: `line_search_fn` must be None or 'strong_wolfe', got {line_search_fn!r}")
        super().__init__(params, {"lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                                  "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
                                  "line_search_fn": line_search_fn})
        if len(self.param_groups) != 1:
            raise ValueError(f"LBFGS takes one parameter group, got {len(self.param_groups)}")
        self._params: List[Tensor] = self.param_groups[0]["params"]

    # -- all parameters as one vector ------------------------------------------------------------------------

    def _gradient(self) -> Tensor:
        parts = [make.zeros(p.numel(), dtype=p.dtype, device=p.device) if p.grad is None else p.grad.detach().reshape(-1) for p in self._params]
        return _ops.cat(parts)

    def _move(self, t: float, direction: Tensor) -> None:
        at = 0
        for p in self._params:
            p.add_(direction[at:at + p.numel()].view(p.shape), alpha=t)
            at += p.numel()

    # -- the step -------------------------------------------------------------------------------------------------

    @staticmethod
    def _direction(grad: Tensor, steps: List[Tensor], changes: List[Tensor], weights: List[float], scale: float) -> Tensor:
        """-H grad by the two loops, H made of steps and of the gradients' changes over them."""
        q, parts = grad.neg(), []
        for s, y, w in zip(reversed(steps), reversed(changes), reversed(weights)):
            parts.append(s.dot(q).item() * w)
            q.add_(y, alpha=-parts[-1])
        d = q.mul_(scale)
        for s, y, w, part in zip(steps, changes, weights, reversed(parts)):
            d.add_(s, alpha=part - y.dot(d).item() * w)
        return d

    def _remember(self, state: dict, grad: Tensor, most: int) -> None:
        change, step = grad - state["prev_flat_grad"], state["d"] * state["t"]
        product = change.dot(step).item()
        if product <= 1e-10:
            return
        if len(state["old_dirs"]) == most:
            for name in ("old_dirs", "old_stps", "ro"):
                state[name].pop(0)
        state["old_dirs"].append(change)
        state["old_stps"].append(step)
        state["ro"].append(1.0 / product)
        state["H_diag"] = product / change.dot(change).item()

    def step(self, closure: Optional[Callable[[], Any]] = None, *, zero_grad: bool = False) -> Any:
        """Several iterations. ``closure`` zeroes the gradients, computes the loss, calls backward and returns the loss; the first
        loss is returned. TypeError without one."""
        if closure is None:
            raise TypeError("LBFGS.step needs a closure that zeroes the gradients, computes the loss, calls backward and returns it")
        with no_grad():
            first = self._iterate(closure)
            if zero_grad:
                self.zero_grad(set_to_none=False)
        return first

    def _iterate(self, closure: Callable[[], Any]) -> Any:
        group, state = self.param_groups[0], self.state[self._params[0]]
        if not state:
            state.update({"func_evals": 0, "n_iter": 0, "old_dirs": [], "old_stps": [], "ro": [], "H_diag": 1.0})

        def evaluate() -> Any:
            with enable_grad():
                return closure()

        first = evaluate()
        loss, grad, evals = float(first), self._gradient(), 1
        state["func_evals"] += 1
        if grad.abs().max().item() <= group["tolerance_grad"]:
            return first
        for i in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            fresh = state["n_iter"] == 1
            if not fresh:
                self._remember(state, grad, group["history_size"])
            d = grad.neg() if fresh else self._direction(grad, state["old_stps"], state["old_dirs"], state["ro"], state["H_diag"])
            t = group["lr"] / max(1.0, grad.abs().sum().item()) if fresh else group["lr"]
            state["d"], state["t"], state["prev_flat_grad"], before, slope = d, t, grad, loss, grad.dot(d).item()
            if slope > -group["tolerance_change"]:
                break
            calls = 0
            if group["line_search_fn"] is not None:
                t, loss, grad, calls = self._search(evaluate, _Point(0.0, loss, grad, slope), t, d)
                state["t"] = t
                self._move(t, d)
            else:
                self._move(t, d)
                if i < group["max_iter"]:  # the last gradient would be of no use
                    loss, calls = float(evaluate()), 1
                    grad = self._gradient()
            evals += calls
            state["func_evals"] += calls
            if (evals >= group["max_eval"] or grad.abs().max().item() <= group["tolerance_grad"]
                    or d.abs().max().item() * t <= group["tolerance_change"] or abs(loss - before) < group["tolerance_change"]):
                break
        return first

    def _search(self, evaluate: Callable[[], Any], start: _Point, t: float, d: Tensor) -> Tuple[float, float, Tensor, int]:
        home = [p.clone() for p in self._params]

        def objective(at: float) -> _Point:
            self._move(at, d)
            loss = float(evaluate())
            grad = self._gradient()
            for p, old in zip(self._params, home):
                p.copy_(old)
            return _Point(at, loss, grad, grad.dot(d).item())

        found, calls = _strong_wolfe(objective, start, t, d.abs().max().item(), self.param_groups[0]["tolerance_change"])
        return found.t, found.loss, found.grad, calls
