"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Dict, Optional

from .. import _C
from .optimizer import Optimizer, check_options, state_like


class SGD(Optimizer):
    """p -= lr * (g + weight_decay * p), with momentum and Nesterov's variant (Sutskever et al. 2013). One pass
    over all parameters in C; ``foreach``, ``fused`` and ``differentiable`` are accepted for compatibility.

    Source: torch.optim.SGD.
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
                 nesterov: bool = False, *, maximize: bool = False, foreach: Optional[bool] = None, differentiable: bool = False,
                 fused: Optional[bool] = None) -> None:
        check_options("SGD", lr=(lr, 0.0, None), momentum=(momentum, 0.0, None), weight_decay=(weight_decay, 0.0, None))
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("SGD: Nesterov momentum needs `momentum` above 0 and `dampening` 0")
        if differentiable:
            raise NotImplementedError("SGD: differentiable steps are not supported")
        super().__init__(params, {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
                                  "nesterov": nesterov, "maximize": maximize})

    def _step_group(self, group: Dict[str, Any]) -> None:
        params = [p for p in group["params"] if p.grad is not None]
        if not params:
            return
        momenta, steps = None, [2] * len(params)
        if group["momentum"]:
            momenta = []
            for i, p in enumerate(params):
                state = self.state[p]
                if state.get("momentum_buffer") is None:
                    state["momentum_buffer"] = state_like(p)
                    steps[i] = 1  # the first buffer is the gradient itself
                momenta.append(state["momentum_buffer"])
        fresh = [p for p, step in zip(params, steps) if step == 1]
        try:
            _C._sgd(params, [p.grad for p in params], momenta, steps, float(group["lr"]), float(group["momentum"]),
                    float(group["dampening"]), float(group["weight_decay"]), group["nesterov"], group["maximize"])
        finally:  # interrupted, `steps` has those that were updated: the others have no momentum yet
            for p in params[len(steps):] if fresh else ():
                if any(p is q for q in fresh):
                    del self.state[p]["momentum_buffer"]
