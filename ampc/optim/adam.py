"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Dict, Optional, Tuple

from .. import _C
from .. import _creation as make
from .optimizer import Optimizer, check_options, state_like


class Adam(Optimizer):
    """Adaptive moments (Kingma and Ba 2015), ``amsgrad`` after Reddi et al. 2018. Weight decay is added to the
    gradient. One pass over all parameters in C; ``foreach``, ``fused`` and ``capturable`` are accepted for
    compatibility. Source: torch.optim.Adam."""

    _decoupled = False

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, amsgrad: bool = False, *, foreach: Optional[bool] = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False, fused: Optional[bool] = None) -> None:
        check_options(type(self).__name__, lr=(lr, 0.0, None), eps=(eps, 0.0, None), weight_decay=(weight_decay, 0.0, None),
                      **{"betas[0]": (betas[0], 0.0, 1.0), "betas[1]": (betas[1], 0.0, 1.0)})
        if differentiable:
            raise NotImplementedError("Adam: differentiable steps are not supported")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
                                  "maximize": maximize})

    def _step_group(self, group: Dict[str, Any]) -> None:
        params = [p for p in group["params"] if p.grad is not None]
        if not params:
            return
        states = [self._state_of(p, group["amsgrad"]) for p in params]
        b1, b2 = group["betas"]
        largest = [s["max_exp_avg_sq"] for s in states] if group["amsgrad"] else None
        # on a GPU the count is a tensor there, which the step itself advances
        steps = [s["step"] if isinstance(s["step"], _C.Tensor) else s["step"] + 1 for s in states]
        # sets each state's "step" to its count when that update is made; interrupted, the others keep theirs
        _C._adam(params, [p.grad for p in params], [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states], largest, states,
                 steps, float(group["lr"]), float(b1), float(b2), float(group["eps"]), float(group["weight_decay"]),
                 self._decoupled, group["maximize"], self._found_inf)

    def _can_leave_out(self) -> bool:
        return type(self)._step_group is Adam._step_group and self._on_one_gpu()

    def _state_of(self, p: Any, amsgrad: bool) -> Dict[str, Any]:
        state = self.state[p]
        if "exp_avg" not in state:
            fresh: Dict[str, Any] = {"step": 0, "exp_avg": state_like(p), "exp_avg_sq": state_like(p)}
            if amsgrad:
                fresh["max_exp_avg_sq"] = state_like(p)
            state.update(fresh)  # at once: an interrupted first step leaves nothing half made
        if p.is_cuda != isinstance(state["step"], _C.Tensor):  # fresh, or saved on the other kind of device
            state["step"] = make.full((), float(state["step"]), dtype=_C.float32, device=p.device) if p.is_cuda else int(state["step"])
        return state


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), 0.01 by default. Source: torch.optim.AdamW."""

    _decoupled = True

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False, **options: Any) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **options)
