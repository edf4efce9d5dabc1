"""Policies: what layers compute in, and what their variables are. Source of names and meaning: keras.mixed_precision, keras.DTypePolicy."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

from .. import _C
from .._C import Tensor
from ..amp import GradScaler, StaticLossScaler

_NAMES = {"mixed_float16": ("float16", "float32"), "mixed_bfloat16": ("bfloat16", "float32"),  # compute, variables
          **{name: (name, name) for name in ("float16", "bfloat16", "float32", "float64")}}


class Policy:
    """What a layer computes in (``compute_dtype``) and what its variables are (``variable_dtype``), both names of dtypes.

    Args:
        name: 'mixed_float16', 'mixed_bfloat16', 'float32', 'float16', 'bfloat16' or 'float64'.

    ValueError for another name, TypeError for what is none."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"Policy: `name` must be a string such as 'mixed_float16', got {type(name).__name__}")
        if name not in _NAMES:
            raise ValueError(f"Policy: there is no policy {name!r}; expected one of {', '.join(map(repr, _NAMES))}")
        self._name = name

    @property
    def name(self) -> str:
        """What it was made from."""
        return self._name

    @property
    def compute_dtype(self) -> str:
        """Of inputs, products and outputs."""
        return _NAMES[self._name][0]

    @property
    def variable_dtype(self) -> str:
        """Of weights, and of their gradients."""
        return _NAMES[self._name][1]

    def get_config(self) -> Dict[str, str]:
        """What ``from_config`` takes."""
        return {"name": self._name}

    @classmethod
    def from_config(cls, config: Dict[str, str]) -> Policy:
        """The policy that gave this config."""
        return cls(**config)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and other._name == self._name

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f'<Policy "{self._name}">'

    def _repr_html_(self) -> str:
        return f"<b>Policy {self._name}</b>: computes in {self.compute_dtype}, keeps variables in {self.variable_dtype}"


_global = Policy("float32")


def policy_of(value: Union[Policy, str, _C.dtype, None]) -> Policy:
    """A policy, a policy's or dtype's name, a dtype, or None: the global one."""
    if value is None:
        return _global
    return value if isinstance(value, Policy) else Policy(value.name if isinstance(value, _C.dtype) else value)


def set_global_policy(policy: Union[Policy, str]) -> None:
    """From here on layers of ``ampc.keras`` that are made without a ``dtype`` have this one. Those that are there keep theirs. Layers of
    ``ampc.nn`` have no policy: they follow ``autocast`` and their own dtype, so after this call they compute as before."""
    global _global
    _global = policy_of(policy if policy is not None else "float32")


def global_policy() -> Policy:
    """What ``set_global_policy`` was told last; float32 at first."""
    return _global


class LossScaleOptimizer:
    """An optimizer whose losses are scaled. Source of names: keras' LossScaleOptimizer (2 and 3).

    Args:
        inner_optimizer: an ``ampc.optim`` optimizer.
        dynamic: False keeps the scale as it is.
        initial_scale: the first scale.
        dynamic_growth_steps: steps without overflow before it doubles; it halves at every overflow.

    TypeError for what is no optimizer."""

    def __init__(self, inner_optimizer: Any, dynamic: bool = True, initial_scale: float = 2.0**15, dynamic_growth_steps: int = 2000) -> None:
        if not hasattr(inner_optimizer, "param_groups"):
            raise TypeError(f"LossScaleOptimizer: `inner_optimizer` must be an ampc.optim optimizer, got {type(inner_optimizer).__name__}")
        self.inner_optimizer, self.dynamic = inner_optimizer, bool(dynamic)
        self.initial_scale, self.dynamic_growth_steps = float(initial_scale), int(dynamic_growth_steps)
        on_gpu = any(p.is_cuda for group in inner_optimizer.param_groups for p in group["params"])
        self.scaler = GradScaler("cuda" if on_gpu else "cpu", init_scale=initial_scale, growth_interval=dynamic_growth_steps)

    @property
    def loss_scale(self) -> float:
        """The present one; on a GPU it is waited for."""
        return self.scaler.get_scale()

    dynamic_scale = loss_scale

    @property
    def dynamic_counter(self) -> int:
        """Steps without overflow since the scale changed last."""
        return self.scaler._get_growth_tracker()

    @property
    def learning_rate(self) -> float:
        """The first group's."""
        return float(self.inner_optimizer.param_groups[0]["lr"])

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        for group in self.inner_optimizer.param_groups:
            group["lr"] = rate

    def scale_loss(self, loss: Tensor) -> Tensor:
        """``loss`` times the scale."""
        return self.scaler.scale(loss)

    get_scaled_loss = scale_loss

    def get_unscaled_gradients(self, grads: Iterable[Optional[Tensor]]) -> List[Optional[Tensor]]:
        """Gradients of a scaled loss, divided; new ones."""
        return StaticLossScaler(self.loss_scale).unscale_gradients(grads)

    def apply_gradients(self, grads_and_vars: Iterable[Tuple[Optional[Tensor], Tensor]]) -> bool:
        """Steps with these gradients, which are unscaled, unless one is not finite; adapts the scale. Whether it stepped.

        AssertionError where there is no gradient."""
        given = {id(variable): grad for grad, variable in grads_and_vars}
        for group in self.inner_optimizer.param_groups:
            for p in group["params"]:
                p.grad = given.get(id(p))
        self.scaler.take_unscaled(self.inner_optimizer)
        return self._step()

    def minimize(self, loss: Tensor) -> bool:
        """Backward of the scaled loss, and a step with what that gives. Whether it stepped."""
        self.inner_optimizer.zero_grad()
        self.scale_loss(loss).backward()
        return self._step()

    def _step(self) -> bool:
        self.scaler.step(self.inner_optimizer)
        self.scaler.update(None if self.dynamic else self.initial_scale)
        return self.scaler.last_step is not None and not self.scaler.last_step.skipped

    def __getattr__(self, name: str) -> Any:
        if name == "inner_optimizer":  # while it is being made, or unpickled
            raise AttributeError(name)
        return getattr(self.inner_optimizer, name)
