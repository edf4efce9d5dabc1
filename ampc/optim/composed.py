"""Optimizers whose update is no function of single values: Muon and Adafactor look at whole matrices, ASGD keeps an average. Written with
the table's operators; 16-bit parameters are computed in float32 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Dict, Optional, Tuple

from .. import _C, _ops
from .._C import Tensor
from .._tensor import creation as make
from .._tensor.finfo import finfo
from ..amp import autocast
from ..cuda.graphs import captured_graph
from .optimizer import Optimizer, check_options, refuse_differentiable, state_like


class ComposedOptimizer(Optimizer):
    """Base of those: a subclass updates one parameter."""

    def _update(self, p: Tensor, grad: Tensor, state: Dict[str, Any], group: Dict[str, Any]) -> Tensor:
        """What the parameter becomes. p and grad have at least 32 bits; p may be overwritten."""
        raise NotImplementedError

    def _step_group(self, group: Dict[str, Any]) -> None:
        if captured_graph() is not None:
            name = type(self).__name__
            raise _C.CaptureError(f"{name}.step cannot be captured in a CUDA graph: it counts steps in Python, which a replay does not run; "
                                  "capture forward and backward, and call it outside after each replay")
        for p in group["params"]:
            if p.grad is not None:
                with autocast("cuda" if p.is_cuda else "cpu", enabled=False):  # a step in a region is the same
                    self._step_one(p, group)

    def _step_one(self, p: Tensor, group: Dict[str, Any]) -> None:
        kind = _C.float64 if p.dtype == _C.float64 else _C.float32
        grad = p.grad.detach().to(kind)  # type: ignore[union-attr]
        p.copy_(self._update(p.detach().to(kind, copy=True), -grad if group.get("maximize") else grad, self.state[p], group))


class Muon(ComposedOptimizer):
    """p -= lr * (the momentum with its singular values made about 1) (Jordan et al. 2024), by Newton-Schulz steps in bfloat16. For matrices;
    other parameters go to another optimizer. Source: torch.optim.Muon.

    Args:
        ns_coefficients, ns_steps: of a Newton-Schulz step, a X + (b G + c G G) X with G = X X^T, and how many there are.
        adjust_lr_fn: None or 'original': lr times sqrt(max(1, rows / columns)); 'match_rms_adamw': times 0.2 sqrt(max(rows, columns)).

    ValueError for parameters that are no matrices, and for options out of range."""

    _needs_whole = True

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
                 ns_coefficients: Tuple[float, float, float] = (3.4445, -4.7750, 2.0315), eps: float = 1e-7, ns_steps: int = 5,
                 adjust_lr_fn: Optional[str] = None) -> None:
        check_options("Muon", lr=(lr, 0.0, None), weight_decay=(weight_decay, 0.0, None), momentum=(momentum, 0.0, None),
                      ns_steps=(ns_steps, 0, 100))
        if len(ns_coefficients) != 3:
            raise ValueError(f"Muon: `ns_coefficients` must be three numbers, got {ns_coefficients}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Muon: `adjust_lr_fn` must be None, 'original' or 'match_rms_adamw', got {adjust_lr_fn!r}")
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
                                  "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn})
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(f"Muon: parameters must be matrices, got one of shape {list(p.shape)}; give others to AdamW")

    def _update(self, p: Tensor, grad: Tensor, state: Dict[str, Any], group: Dict[str, Any]) -> Tensor:
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = state_like(p)
        momentum = float(group["momentum"])
        average = state["momentum_buffer"].lerp_(grad, 1 - momentum)
        step = _orthogonal(grad.lerp(average, momentum) if group["nesterov"] else average, group)
        rows, columns = p.shape
        lr = float(group["lr"])
        ratio = 0.2 * math.sqrt(max(rows, columns)) if group["adjust_lr_fn"] == "match_rms_adamw" else math.sqrt(max(1, rows / columns))
        return p.mul_(1 - lr * float(group["weight_decay"])).add_(step, alpha=-lr * ratio)


def _orthogonal(x: Tensor, group: Dict[str, Any]) -> Tensor:
    """x with its singular values made about 1, in bfloat16: the quintic that Newton-Schulz iterates."""
    a, b, c = group["ns_coefficients"]
    tall = x.shape[0] > x.shape[1]
    x = x.t().bfloat16() if tall else x.bfloat16()
    x = x / x.norm().clamp(min=float(group["eps"]))
    for _ in range(group["ns_steps"]):
        gram = x @ x.t()
        x = _ops.addmm(x, _ops.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.t() if tall else x


class Adafactor(ComposedOptimizer):
    """Adam's second moment by its row and column sums, steps relative to the parameter's size (Shazeer and Stern 2018). Source:
    torch.optim.Adafactor.

    Args:
        beta2_decay: the power of the step's number by which the second moment's memory grows, at most 0.
        eps: what the second moment's root is at least (None: the dtype's eps), and a parameter's size.
        d: an update's root mean square is at most this."""

    _needs_whole = True

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, beta2_decay: float = -0.8, eps: Tuple[Optional[float], float] = (None, 1e-3),
                 d: float = 1.0, weight_decay: float = 0.0, *, foreach: Optional[bool] = None, maximize: bool = False) -> None:
        check_options("Adafactor", lr=(lr, 0.0, None), d=(d, 1.0, None), weight_decay=(weight_decay, 0.0, None),
                      eps=(min(eps[0] or 0.0, eps[1]), 0.0, None))
        if not beta2_decay <= 0:
            raise ValueError(f"Adafactor: `beta2_decay` must be at most 0, got {beta2_decay}")
        super().__init__(params, {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay, "foreach": foreach,
                                  "maximize": maximize})

    def _update(self, p: Tensor, grad: Tensor, state: Dict[str, Any], group: Dict[str, Any]) -> Tensor:
        eps1, eps2 = group["eps"]
        lr, n = float(group["lr"]), math.sqrt(p.numel())
        eps1 = finfo(p.dtype).eps if eps1 is None else eps1
        step = int(state.get("step", 0)) + 1
        size = (p.norm() / n).clamp(min=eps2) * min(lr, 1 / math.sqrt(step))
        if group["weight_decay"]:
            p.mul_(1 - lr * float(group["weight_decay"]))
        update = self._second_moment(grad, state, step ** float(group["beta2_decay"]), eps1).clamp_(min=eps1 * eps1).rsqrt_().mul_(grad)
        state["step"] = step
        return p.sub_(update * (size / (update.norm() / (n * group["d"])).clamp(min=1.0)))

    @staticmethod
    def _second_moment(grad: Tensor, state: Dict[str, Any], new: float, eps: float) -> Tensor:
        """The second moment, or the product of its factors for a matrix: the mean squares of rows and columns."""
        square = grad.square()
        if grad.ndim < 2:
            if "variance" not in state:
                state["variance"] = make.zeros_like(grad)
            return state["variance"].lerp_(square, new).clone()
        for name, dim in (("row_var", -1), ("col_var", -2)):
            mean = square.mean(dim, keepdim=True)
            if name not in state:
                state[name] = make.zeros_like(mean)
            state[name].lerp_(mean, new)
        row = state["row_var"]
        return (row * state["col_var"]).div_(row.mean(-2, keepdim=True).clamp_(min=eps))


class ASGD(ComposedOptimizer):
    """Gradient descent whose average over the steps, from step ``t0`` on, is kept as the state ``ax`` (Polyak and Juditsky 1992). Source:
    torch.optim.ASGD.

    Args:
        lambd: decay of the parameters and of the rate. alpha: the power by which the rate falls."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6, weight_decay: float = 0,
                 foreach: Optional[bool] = None, maximize: bool = False, differentiable: bool = False, capturable: bool = False) -> None:
        check_options("ASGD", lr=(lr, 0.0, None), weight_decay=(weight_decay, 0.0, None))
        refuse_differentiable("ASGD", differentiable)
        super().__init__(params, {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach,
                                  "maximize": maximize, "differentiable": differentiable, "capturable": capturable})

    def _update(self, p: Tensor, grad: Tensor, state: Dict[str, Any], group: Dict[str, Any]) -> Tensor:
        lr, lambd = float(group["lr"]), float(group["lambd"])
        if "ax" not in state:
            state.update(step=0, eta=lr, mu=1.0, ax=state_like(p))
        step, eta, mu = int(state["step"]) + 1, float(state["eta"]), float(state["mu"])
        if group["weight_decay"]:
            grad = grad.add(p, alpha=float(group["weight_decay"]))
        p.mul_(1 - lambd * eta).add_(grad, alpha=-eta)
        state["ax"].copy_(p if mu == 1 else state["ax"] + (p - state["ax"]) * mu)
        state.update(step=step, eta=lr / (1 + lambd * lr * step) ** float(group["alpha"]), mu=1 / max(1, step - group["t0"]))
        return p
