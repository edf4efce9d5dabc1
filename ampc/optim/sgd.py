"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Dict, Optional

from .. import _C
from .optimizer import Optimizer, check_options, check_rounding, check_ways, extras_of, state_like


class SGD(Optimizer):
    """p -= lr * (g + weight_decay * p), with momentum and Nesterov's variant (Sutskever et al. 2013). One pass
    over all parameters in C; ``foreach`` and ``fused`` are kept in the groups and change nothing.

    Source: torch.optim.SGD.
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
                 nesterov: bool = False, *, maximize: bool = False, foreach: Optional[bool] = None, differentiable: bool = False,
                 fused: Optional[bool] = None, rounding: str = "nearest") -> None:
        check_options("SGD", lr=(lr, 0.0, None), momentum=(momentum, 0.0, None), weight_decay=(weight_decay, 0.0, None))
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("SGD: Nesterov momentum needs `momentum` above 0 and `dampening` 0")
        check_ways("SGD", lr, foreach, fused, True, differentiable)
        super().__init__(params, {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
                                  "nesterov": nesterov, "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused,
                                  "rounding": check_rounding(type(self).__name__, rounding)})

    def _step_group(self, group: Dict[str, Any]) -> None:
        params = [p for p in group["params"] if p.grad is not None]
        if not params:
            return
        kept = group["momentum"] or group["rounding"] in ("kahan", "master")
        states = [self.state[p] for p in params] if kept else [{} for _ in params]
        momenta, steps = None, [2] * len(params)
        if group["momentum"]:
            momenta = [state.get("momentum_buffer") for state in states]
            steps = [1 if m is None else 2 for m in momenta]  # the first buffer is the gradient itself
            momenta = [state_like(p) if m is None else m for p, m in zip(params, momenta)]
        # sets each state's "momentum_buffer" when that update is made; interrupted, the others have none yet
        _C._step("sgd", params, [p.grad for p in params], [] if momenta is None else [momenta], states,
                 {} if momenta is None else {"momentum_buffer": momenta}, steps, None,
                 self._options(group), self._found_inf, group["rounding"],
                 extras_of(params, states, group["rounding"]), self._zero_along)

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        return {"lr": float(group["lr"]), "momentum": float(group["momentum"]), "dampening": float(group["dampening"]),
                "weight_decay": float(group["weight_decay"]), "nesterov": group["nesterov"], "maximize": group["maximize"]}

    def _can_zero(self) -> bool:
        return type(self)._step_group is SGD._step_group

    def _state_names_of(self, group: Dict[str, Any]) -> Iterable[str]:
        return ("momentum_buffer",) if group["momentum"] else ()
