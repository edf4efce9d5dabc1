"""Trials of optimizers' rules, of how 16-bit parameters are rounded, and of what a loss scaler sees of gradients."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

import numpy as np

import ampc

from .bounded import Bounded
from .data import Draw, Trial

LR, STEPS, EPS = 0.01, 3, 1e-3  # an eps that keeps quotients away from 0
FIRST, SECOND = 0.9, 0.99

State = List[Bounded]
UpdateRule = Callable[[Bounded, Bounded, State, int], Bounded]  # parameter, gradient, states, step from 1 on: the new parameter


def _moments(g: Bounded, s: State) -> None:
    s[0], s[1] = s[0] * FIRST + g * (1 - FIRST), s[1] * SECOND + g * g * (1 - SECOND)


def _momentum(p: Bounded, g: Bounded, s: State, t: int) -> Bounded:
    g = g + p * 0.1
    s[0] = g if t == 1 else s[0] * FIRST + g * 0.5
    return p - s[0] * LR


def _nesterov(p: Bounded, g: Bounded, s: State, t: int) -> Bounded:
    s[0] = g if t == 1 else s[0] * FIRST + g
    return p - (g + s[0] * FIRST) * LR


def _adam(p: Bounded, g: Bounded, s: State, t: int) -> Bounded:
    _moments(g + p * 0.1, s)
    s[2] = s[1].larger(s[2])
    root = (s[2] * (1 / (1 - SECOND**t))).sqrt() + EPS
    return p - s[0] * (LR / (1 - FIRST**t)) * root.reciprocal()


def _adagrad(p: Bounded, g: Bounded, s: State, t: int) -> Bounded:
    s[0] = s[0] + g * g
    return p - g * LR * (s[0].sqrt() + EPS).reciprocal()


def _rmsprop(p: Bounded, g: Bounded, s: State, t: int) -> Bounded:
    s[0], s[1] = s[0] * SECOND + g * g * (1 - SECOND), s[1] * SECOND + g * (1 - SECOND)
    s[2] = s[2] * FIRST + g * ((s[0] - s[1] * s[1]).sqrt() + EPS).reciprocal()
    return p - s[2] * LR


def _adadelta(p: Bounded, g: Bounded, s: State, t: int) -> Bounded:
    s[0] = s[0] * FIRST + g * g * (1 - FIRST)
    step = (s[1] + EPS).sqrt() * (s[0] + EPS).sqrt().reciprocal() * g
    s[1] = s[1] * FIRST + step * step * (1 - FIRST)
    return p - step * LR


def _nadam(p: Bounded, g: Bounded, s: State, t: int) -> Bounded:
    _moments(g, s)
    now, after = (FIRST * (1 - 0.5 * 0.96 ** (u * 0.004)) for u in (t, t + 1))
    product = float(np.prod([FIRST * (1 - 0.5 * 0.96 ** (u * 0.004)) for u in range(1, t + 1)]))
    root = ((s[1] * (1 / (1 - SECOND**t))).sqrt() + EPS).reciprocal()
    return p - (g * (LR * (1 - now) / (1 - product)) + s[0] * (LR * after / (1 - product * after))) * root


def _adamax(p: Bounded, g: Bounded, s: State, t: int) -> Bounded:
    s[0], s[1] = s[0] * FIRST + g * (1 - FIRST), (s[1] * SECOND).larger(g.larger(g * -1.0) + EPS)
    return p - s[0] * (LR / (1 - FIRST**t)) * s[1].reciprocal()


def _radam(p: Bounded, g: Bounded, s: State, t: int) -> Bounded:
    _moments(g, s)
    longest = 2 / (1 - SECOND) - 1
    length = longest - 2 * t * SECOND**t / (1 - SECOND**t)
    if length <= 5:
        return p - s[0] * (LR / (1 - FIRST**t))
    trust = ((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)) ** 0.5
    return p - s[0] * (LR / (1 - FIRST**t) * trust * (1 - SECOND**t) ** 0.5) * (s[1].sqrt() + EPS).reciprocal()


BETAS = (FIRST, SECOND)
UPDATE_RULES: Dict[str, Any] = {
    "SGD": (_momentum, {"momentum": FIRST, "dampening": 0.5, "weight_decay": 0.1}), "Nesterov": (_nesterov, {"momentum": FIRST, "nesterov": True}),
    "Adam": (_adam, {"betas": BETAS, "eps": EPS, "weight_decay": 0.1, "amsgrad": True}), "Adagrad": (_adagrad, {"eps": EPS}),
    "RMSprop": (_rmsprop, {"alpha": SECOND, "eps": EPS, "centered": True, "momentum": FIRST}), "Adadelta": (_adadelta, {"rho": FIRST, "eps": EPS}),
    "NAdam": (_nadam, {"betas": BETAS, "eps": EPS}), "Adamax": (_adamax, {"betas": BETAS, "eps": EPS}),
    "RAdam": (_radam, {"betas": BETAS, "eps": EPS}),
}


def update_rules(d: Draw, n: int, steps: int = STEPS) -> Trial:
    """Steps of every rule that has a formula of its own, with a gradient that changes."""
    p = d.reals(n)
    g = [d.held(d.random.choice([-1, 1], n) * d.random.uniform(0.5, 2, n)) for _ in range(steps)]

    def run(name: str) -> Any:
        param = d.tensor(p, True)
        opt = getattr(ampc.optim, name.replace("Nesterov", "SGD"))([param], lr=LR, **UPDATE_RULES[name][1])
        for values in g:
            param.grad = d.tensor(values)
            opt.step()
        return param

    def steps_of(rule: UpdateRule) -> Bounded:
        param, states = d.given(p), [d.given(np.zeros(n)) for _ in range(3)]
        for t, values in enumerate(g, 1):
            param = rule(param, d.given(values), states, t)
            states[:] = [s.rounded(d.dtype) for s in states]
            param = param.rounded(d.dtype)
        return param

    return Trial(lambda: {name: run(name) for name in UPDATE_RULES}, lambda: {name: steps_of(rule) for name, (rule, _) in UPDATE_RULES.items()})


def rounding(d: Draw, n: int) -> Trial:
    """Many updates of a 16-bit parameter, each smaller than the parameter's spacing.

    The optimizer keeps the lost part, or a float32 copy, or rounds up with the right probability."""
    count, by = 64, 2.0**-11 if d.dtype == "bfloat16" else 2.0**-14
    p, g = d.random.integers(1, 3, n).astype(float), d.random.choice([-1.0, 1.0], n)

    def run(how: str) -> Any:
        param = d.tensor(p, True)
        opt = ampc.optim.SGD([param], lr=by, rounding=how)
        for _ in range(count):
            param.grad = d.tensor(g)
            opt.step()
        return param

    def expect() -> Dict[str, Bounded]:
        after = p - count * by * g
        spread = 8 * np.sqrt(count * by * 2.0**-6 / n)  # 8 standard deviations of a mean of draws, each at most a spacing
        return {"kahan": d.exact(after), "master": d.exact(after), "stochastic": Bounded(np.mean((after - p) * g), spread)}

    def compute() -> Dict[str, Any]:
        with d.seeded():
            raised = run("stochastic")
        mean = ((raised.detach().double() - d.tensor(p, dtype="float64")) * d.tensor(g, dtype="float64")).mean()
        return {"kahan": run("kahan"), "master": run("master"), "stochastic": mean}

    return Trial(compute, expect)


def scaling(d: Draw, n: int) -> Trial:
    """What a loss scaler does to gradients, and whether it sees an infinity or a nan in the last place; the norm of all."""
    g, last = d.few(n), np.zeros(n)
    last[-1] = 1.0

    def stepped(bad: float) -> Any:
        """1 where the parameter stays as it is."""
        param = d.tensor(np.zeros(n), True)
        opt, scaler = ampc.optim.SGD([param], lr=1.0), ampc.amp.GradScaler(d.device, init_scale=4.0, fp16_gradients=True)
        (scaler.scale(param.sum()) * 0).backward()
        param.grad = d.tensor(np.where(last > 0, bad, 4.0))
        scaler.step(opt)
        scaler.update()
        return param

    def compute() -> Dict[str, Any]:
        param = d.tensor(np.zeros(n), True)
        param.grad = d.tensor(g)
        norm = ampc.nn.utils.clip_grad_norm_([param], 1e6)
        return {"good": stepped(8.0), "infinite": stepped(float("inf")), "nan": stepped(float("nan")), "norm": norm}

    def expect() -> Dict[str, Bounded]:
        nothing = Bounded(np.zeros(n))
        return {"good": Bounded(-1 - last), "infinite": nothing, "nan": nothing, "norm": d.given((g * g).sum()).sqrt().rounded(d.dtype)}

    return Trial(compute, expect)


def dropout(d: Draw, n: int, p: float = 0.25) -> Trial:
    """Each value is dropped or made larger, with its gradient, and as many as ``p`` tells."""
    x = d.few(n) + 3.0
    leaf, slope = d.tensor(x, True), d.tensor(np.ones(n))

    def compute() -> Dict[str, Any]:
        leaf.grad = None
        with d.seeded():
            y = ampc.nn.functional.dropout(leaf, p, True)
        y.backward(slope)
        kept = (y != 0).double()
        wanted = (leaf.detach().double() / (1 - p) * kept).to(y.dtype)
        return {"values": y - wanted, "gradient": leaf.grad - (kept / (1 - p)).to(y.dtype), "share": kept.mean()}

    def expect() -> Dict[str, Bounded]:
        slack = d.exact(x / (1 - p)).error + 4 * d.given(x).unit * 8
        return {"values": Bounded(np.zeros(n), 2 * slack), "gradient": Bounded(np.zeros(n), 2 * slack),
                "share": Bounded(np.array(1 - p), 8 * np.sqrt(p * (1 - p) / n))}

    return Trial(compute, expect)
