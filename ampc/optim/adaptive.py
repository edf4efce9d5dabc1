"""Optimizers whose learning rates adapt to the gradients: Adagrad, RMSprop, Adadelta and Rprop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Dict, List, Optional, Tuple

from .optimizer import check_options, check_ways, state_like
from .update_rule import UpdateRuleOptimizer


class Adagrad(UpdateRuleOptimizer):
    """p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(sum of g * g) + eps) (Duchi et al. 2011). Source: torch.optim.Adagrad."""

    _update_rule, _state_names = "adagrad", ("sum",)
    _numbers = {"lr": "lr", "later": "lr_decay", "weight_decay": "weight_decay", "eps": "eps"}

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
                 initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: Optional[bool] = None, *, maximize: bool = False,
                 differentiable: bool = False, fused: Optional[bool] = None, rounding: str = "nearest") -> None:
        check_options("Adagrad", lr=(lr, 0.0, None), lr_decay=(lr_decay, 0.0, None), weight_decay=(weight_decay, 0.0, None),
                      initial_accumulator_value=(initial_accumulator_value, 0.0, None), eps=(eps, 0.0, None))
        check_ways("Adagrad", lr, foreach, fused, True, differentiable)
        super().__init__(params, differentiable, rounding, lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay,
                         initial_accumulator_value=initial_accumulator_value, foreach=foreach, maximize=maximize, fused=fused)

    def _fresh(self, p: Any, group: Dict[str, Any], name: str) -> Any:
        return super()._fresh(p, group, name).fill_(float(group["initial_accumulator_value"]))


class RMSprop(UpdateRuleOptimizer):
    """p -= lr * g / (sqrt(mean of g * g) + eps) (Tieleman and Hinton 2012), ``centered`` after Graves 2013, with momentum. Source:
    torch.optim.RMSprop."""

    _update_rule = "rmsprop"
    _numbers = {"lr": "lr", "beta2": "alpha", "eps": "eps", "momentum": "momentum", "weight_decay": "weight_decay"}

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
                 momentum: float = 0, centered: bool = False, capturable: bool = False, foreach: Optional[bool] = None,
                 maximize: bool = False, differentiable: bool = False,
                 rounding: str = "nearest") -> None:
        check_options("RMSprop", lr=(lr, 0.0, None), alpha=(alpha, 0.0, None), eps=(eps, 0.0, None), weight_decay=(weight_decay, 0.0, None),
                      momentum=(momentum, 0.0, None))
        super().__init__(params, differentiable, rounding, lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum,
                         centered=centered, capturable=capturable, foreach=foreach, maximize=maximize)

    def _states(self, group: Dict[str, Any]) -> List[str]:
        return ["square_avg"] + ["momentum_buffer"] * bool(group["momentum"]) + ["grad_avg"] * bool(group["centered"])

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        return {**super()._options(group), "centered": group["centered"]}


class Adadelta(UpdateRuleOptimizer):
    """Steps in the parameters' own units (Zeiler 2012). Source: torch.optim.Adadelta."""

    _update_rule, _state_names = "adadelta", ("square_avg", "acc_delta")
    _numbers = {"lr": "lr", "beta2": "rho", "eps": "eps", "weight_decay": "weight_decay"}

    def __init__(self, params: Iterable[Any], lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
                 foreach: Optional[bool] = None, *, capturable: bool = False, maximize: bool = False, differentiable: bool = False,
                 rounding: str = "nearest") -> None:
        check_options("Adadelta", lr=(lr, 0.0, None), rho=(rho, 0.0, 1.0), eps=(eps, 0.0, None), weight_decay=(weight_decay, 0.0, None))
        super().__init__(params, differentiable, rounding, lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize,
                         capturable=capturable, foreach=foreach)


class Rprop(UpdateRuleOptimizer):
    """Steps of a size for every value, larger while its gradient keeps its sign and smaller when that turns (Riedmiller and Braun 1993).
    For whole batches. Source: torch.optim.Rprop."""

    _update_rule, _state_names = "rprop", ("prev", "step_size")

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, etas: Tuple[float, float] = (0.5, 1.2),
                 step_sizes: Tuple[float, float] = (1e-6, 50), *, capturable: bool = False, foreach: Optional[bool] = None,
                 maximize: bool = False, differentiable: bool = False, rounding: str = "nearest") -> None:
        check_options("Rprop", lr=(lr, 0.0, None))
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Rprop: `etas` must be below and above 1, the first above 0, got {etas}")
        super().__init__(params, differentiable, rounding, lr=lr, etas=etas, step_sizes=step_sizes, foreach=foreach, maximize=maximize,
                         capturable=capturable)

    def _fresh(self, p: Any, group: Dict[str, Any], name: str) -> Any:
        state = state_like(p)
        return state.fill_(float(group["lr"])) if name == "step_size" else state

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        (fall, rise), (least, most) = group["etas"], group["step_sizes"]
        return {"fall": float(fall), "rise": float(rise), "least": float(least), "most": float(most), "maximize": group["maximize"]}
