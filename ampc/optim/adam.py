"""Adam and its variants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Dict, List, Optional, Tuple

from .._C import Tensor
from .optimizer import check_options, check_ways
from .update_rule import UpdateRuleOptimizer


def _check_moments(name: str, lr: Any, betas: Tuple[float, float], eps: float, weight_decay: float) -> None:
    if isinstance(betas, str):
        raise TypeError(f"{name}: `betas` must be two numbers, got {betas!r}")
    if isinstance(betas[0], Tensor) != isinstance(betas[1], Tensor):
        raise ValueError(f"{name}: `betas` must both be numbers or both be Tensors")
    check_options(name, lr=(lr, 0.0, None), eps=(eps, 0.0, None), weight_decay=(weight_decay, 0.0, None),
                  **{"betas[0]": (betas[0], 0.0, 1.0), "betas[1]": (betas[1], 0.0, 1.0)})


class _WithMoments(UpdateRuleOptimizer):
    """Base of those whose ``betas`` say how long the gradient, and its square, are remembered."""

    _state_names = ("exp_avg", "exp_avg_sq")

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        b1, b2 = group["betas"]
        return {**super()._options(group), "beta1": float(b1), "beta2": float(b2), "decoupled": group.get("decoupled_weight_decay", False)}


class Adam(_WithMoments):
    """Adaptive moments (Kingma and Ba 2015), ``amsgrad`` after Reddi et al. 2018. Weight decay is added to the
    gradient. One pass over all parameters in C; ``foreach``, ``fused`` and ``capturable`` are kept in the
    groups and change nothing. Source: torch.optim.Adam."""

    _update_rule = "adam"

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, amsgrad: bool = False, *, foreach: Optional[bool] = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False, fused: Optional[bool] = None, decoupled_weight_decay: bool = False,
                 rounding: str = "nearest") -> None:
        _check_moments(type(self).__name__, lr, betas, eps, weight_decay)
        check_ways(type(self).__name__, lr, foreach, fused, capturable, differentiable)
        super().__init__(params, differentiable, rounding, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
                         maximize=maximize, foreach=foreach, capturable=capturable, fused=fused, decoupled_weight_decay=decoupled_weight_decay)

    def _states(self, group: Dict[str, Any]) -> List[str]:
        return [*self._state_names, *["max_exp_avg_sq"] * bool(group["amsgrad"])]


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), 0.01 by default. Source: torch.optim.AdamW."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False, foreach: Optional[bool] = None,
                 capturable: bool = False, differentiable: bool = False, fused: Optional[bool] = None, rounding: str = "nearest") -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
                         differentiable=differentiable, fused=fused, decoupled_weight_decay=True, rounding=rounding)

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        return {**super()._options(group), "decoupled": True}  # also of a group that Adam has saved


class Adamax(_WithMoments):
    """Adam by the largest magnitude (Kingma and Ba 2015). Source: torch.optim.Adamax."""

    _update_rule, _state_names = "adamax", ("exp_avg", "exp_inf")

    def __init__(self, params: Iterable[Any], lr: float = 2e-3, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, foreach: Optional[bool] = None, *, maximize: bool = False, differentiable: bool = False,
                 capturable: bool = False, rounding: str = "nearest") -> None:
        _check_moments("Adamax", lr, betas, eps, weight_decay)
        super().__init__(params, differentiable, rounding, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach,
                         maximize=maximize, capturable=capturable)


class NAdam(_WithMoments):
    """Adam with Nesterov's momentum (Dozat 2016). Source: torch.optim.NAdam."""

    _update_rule = "nadam"
    _counts = {"step": 0, "mu_product": 1.0}

    def __init__(self, params: Iterable[Any], lr: float = 2e-3, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
                 foreach: Optional[bool] = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False,
                 rounding: str = "nearest") -> None:
        _check_moments("NAdam", lr, betas, eps, weight_decay)
        check_options("NAdam", momentum_decay=(momentum_decay, 0.0, None))
        super().__init__(params, differentiable, rounding, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
                         decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, foreach=foreach, capturable=capturable)

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        return {**super()._options(group), "later": float(group["momentum_decay"])}

    def _products(self, states: List[Dict[str, Any]], steps: List[Any], group: Dict[str, Any]) -> Optional[List[Any]]:
        b1, decay = group["betas"][0], group["momentum_decay"]
        return [s["mu_product"] if isinstance(n, Tensor) else s["mu_product"] * b1 * (1 - 0.5 * 0.96 ** (n * decay))
                for s, n in zip(states, steps)]

    def _notes(self, states: List[Dict[str, Any]], steps: List[Any], group: Dict[str, Any]) -> Dict[str, list]:
        return {"step": steps, "mu_product": self._products(states, steps, group) or []}


class RAdam(_WithMoments):
    """Adam that begins without its second moment, until that can be trusted (Liu et al. 2020). Source: torch.optim.RAdam."""

    _update_rule = "radam"

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, decoupled_weight_decay: bool = False, *, foreach: Optional[bool] = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False, rounding: str = "nearest") -> None:
        _check_moments("RAdam", lr, betas, eps, weight_decay)
        super().__init__(params, differentiable, rounding, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize,
                         foreach=foreach, capturable=capturable, decoupled_weight_decay=decoupled_weight_decay)
