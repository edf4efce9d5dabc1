"""Adam and its variants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Dict, List, Optional, Tuple

from .._C import Tensor
from .optimizer import check_options, check_rounding
from .update_rule import UpdateRuleOptimizer


def _check_moments(name: str, lr: Any, betas: Tuple[float, float], eps: float, weight_decay: float) -> None:
    check_options(name, lr=(lr, 0.0, None), eps=(eps, 0.0, None), weight_decay=(weight_decay, 0.0, None),
                  **{"betas[0]": (betas[0], 0.0, 1.0), "betas[1]": (betas[1], 0.0, 1.0)})


def _moments(group: Dict[str, Any]) -> Dict[str, Any]:
    b1, b2 = group["betas"]
    return {"lr": float(group["lr"]), "beta1": float(b1), "beta2": float(b2), "eps": float(group["eps"]),
            "weight_decay": float(group["weight_decay"]), "maximize": group["maximize"]}


class Adam(UpdateRuleOptimizer):
    """Adaptive moments (Kingma and Ba 2015), ``amsgrad`` after Reddi et al. 2018. Weight decay is added to the
    gradient. One pass over all parameters in C; ``foreach``, ``fused`` and ``capturable`` are accepted for
    compatibility. Source: torch.optim.Adam."""

    _update_rule, _decoupled = "adam", False

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, amsgrad: bool = False, *, foreach: Optional[bool] = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False, fused: Optional[bool] = None, rounding: str = "nearest") -> None:
        _check_moments(type(self).__name__, lr, betas, eps, weight_decay)
        if differentiable:
            raise NotImplementedError("Adam: differentiable steps are not supported")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
                                  "maximize": maximize,
                                  "rounding": check_rounding(type(self).__name__, rounding)})

    def _states(self, group: Dict[str, Any]) -> List[str]:
        return ["exp_avg", "exp_avg_sq"] + ["max_exp_avg_sq"] * bool(group["amsgrad"])

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        return {**_moments(group), "decoupled": self._decoupled}


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), 0.01 by default. Source: torch.optim.AdamW."""

    _decoupled = True

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False, **options: Any) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **options)


class Adamax(UpdateRuleOptimizer):
    """Adam by the largest magnitude (Kingma and Ba 2015). Source: torch.optim.Adamax."""

    _update_rule = "adamax"

    def __init__(self, params: Iterable[Any], lr: float = 2e-3, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, foreach: Optional[bool] = None, *, maximize: bool = False, differentiable: bool = False,
                 capturable: bool = False, rounding: str = "nearest") -> None:
        _check_moments("Adamax", lr, betas, eps, weight_decay)
        if differentiable:
            raise NotImplementedError("Adamax: differentiable steps are not supported")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
                                  "rounding": check_rounding(type(self).__name__, rounding)})

    def _states(self, group: Dict[str, Any]) -> List[str]:
        return ["exp_avg", "exp_inf"]

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        return _moments(group)


class NAdam(UpdateRuleOptimizer):
    """Adam with Nesterov's momentum (Dozat 2016). Source: torch.optim.NAdam."""

    _update_rule = "nadam"
    _counts = {"step": 0, "mu_product": 1.0}

    def __init__(self, params: Iterable[Any], lr: float = 2e-3, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
                 foreach: Optional[bool] = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False,
                 rounding: str = "nearest") -> None:
        _check_moments("NAdam", lr, betas, eps, weight_decay)
        check_options("NAdam", momentum_decay=(momentum_decay, 0.0, None))
        if differentiable:
            raise NotImplementedError("NAdam: differentiable steps are not supported")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
                                  "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize,
                                  "rounding": check_rounding(type(self).__name__, rounding)})

    def _states(self, group: Dict[str, Any]) -> List[str]:
        return ["exp_avg", "exp_avg_sq"]

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        return {**_moments(group), "later": float(group["momentum_decay"]), "decoupled": group["decoupled_weight_decay"]}

    def _products(self, states: List[Dict[str, Any]], steps: List[Any], group: Dict[str, Any]) -> Optional[List[Any]]:
        b1, decay = group["betas"][0], group["momentum_decay"]
        return [s["mu_product"] if isinstance(n, Tensor) else s["mu_product"] * b1 * (1 - 0.5 * 0.96 ** (n * decay))
                for s, n in zip(states, steps)]

    def _notes(self, states: List[Dict[str, Any]], steps: List[Any], group: Dict[str, Any]) -> Dict[str, list]:
        return {"step": steps, "mu_product": self._products(states, steps, group) or []}


class RAdam(UpdateRuleOptimizer):
    """Adam that begins without its second moment, until that can be trusted (Liu et al. 2020). Source: torch.optim.RAdam."""

    _update_rule = "radam"

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, decoupled_weight_decay: bool = False, *, foreach: Optional[bool] = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False, rounding: str = "nearest") -> None:
        _check_moments("RAdam", lr, betas, eps, weight_decay)
        if differentiable:
            raise NotImplementedError("RAdam: differentiable steps are not supported")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
                                  "decoupled_weight_decay": decoupled_weight_decay, "rounding": check_rounding(type(self).__name__, rounding)})

    def _states(self, group: Dict[str, Any]) -> List[str]:
        return ["exp_avg", "exp_avg_sq"]

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        return {**_moments(group), "decoupled": group["decoupled_weight_decay"]}
