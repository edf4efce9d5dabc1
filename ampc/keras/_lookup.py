"""What strings stand for: activations, initializers, optimizers. Source of names and defaults: Keras."""

from __future__ import annotations

from typing import Any, Callable, Dict, Union

from .. import nn, optim
from .._C import Tensor

F = nn.functional

ACTIVATIONS: Dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x, "relu": F.relu, "relu6": F.relu6, "sigmoid": lambda x: x.sigmoid(), "tanh": lambda x: x.tanh(), "gelu": F.gelu,
    "elu": F.elu, "selu": F.selu, "softplus": F.softplus, "softsign": F.softsign, "silu": F.silu, "swish": F.silu, "mish": F.mish,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2), "hard_sigmoid": F.hardsigmoid, "exponential": lambda x: x.exp(),
    "softmax": lambda x: F.softmax(x.float(), -1), "log_softmax": lambda x: F.log_softmax(x.float(), -1),  # float32, and so are their results
}
INITIALIZERS: Dict[str, Callable[[Tensor], Any]] = {
    "zeros": nn.init.zeros_, "ones": nn.init.ones_, "glorot_uniform": nn.init.xavier_uniform_, "glorot_normal": nn.init.xavier_normal_,
    "he_uniform": lambda t: nn.init.kaiming_uniform_(t, nonlinearity="relu"), "he_normal": lambda t: nn.init.kaiming_normal_(t, nonlinearity="relu"),
    "uniform": lambda t: nn.init.uniform_(t, -0.05, 0.05), "random_uniform": lambda t: nn.init.uniform_(t, -0.05, 0.05),
    "random_normal": lambda t: nn.init.normal_(t, 0.0, 0.05), "orthogonal": nn.init.orthogonal_,
}


def named(given: Any, among: Dict[str, Any], what: str, default: str) -> Any:
    """A function by its name; functions are themselves. ValueError for an unknown name."""
    if given is None:
        given = default
    if callable(given):
        return given
    if given not in among:
        raise ValueError(f"{what} {given!r} is not known; expected one of {', '.join(among)}, or a function")
    return among[given]


class OptimizerSpec:
    """An optimizer that has no parameters yet: ``compile`` gives it the model's."""

    def __init__(self, kind: Any, options: Dict[str, Any]) -> None:
        self.kind, self.options = kind, options

    def build(self, params: Any) -> Any:
        """The ``ampc.optim`` optimizer."""
        return self.kind(params, **self.options)

    def __repr__(self) -> str:
        return f"{self.kind.__name__}({', '.join(f'{k}={v!r}' for k, v in self.options.items())})"


def _maker(kind: Any, name: str, renamed: Dict[str, str], **defaults: Any) -> Callable[..., OptimizerSpec]:
    def make(**options: Any) -> OptimizerSpec:
        known = {"learning_rate": "lr", "weight_decay": "weight_decay", **renamed}
        names = [*known, *(("beta_1", "beta_2") if "betas" in defaults else ())]
        unknown = [k for k in options if k not in names]
        if unknown:
            raise TypeError(f"{name}: no option {unknown[0]!r}; expected some of {', '.join(names)}")
        given = {known[k]: v for k, v in options.items() if k in known}
        if "betas" in defaults:
            first, second = defaults["betas"]
            given["betas"] = (options.get("beta_1", first), options.get("beta_2", second))
        return OptimizerSpec(kind, {**defaults, **given})

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"ampc.optim.{kind.__name__} by Keras' options and defaults: {', '.join(['learning_rate', *renamed])}."
    return make


_EPS, _ADAM = {"epsilon": "eps"}, {"lr": 1e-3, "eps": 1e-7, "betas": (0.9, 0.999)}
OPTIMIZERS: Dict[str, Callable[..., OptimizerSpec]] = {
    "sgd": _maker(optim.SGD, "SGD", {"momentum": "momentum", "nesterov": "nesterov"}, lr=0.01),
    "adam": _maker(optim.Adam, "Adam", {**_EPS, "amsgrad": "amsgrad"}, **_ADAM),
    "adamw": _maker(optim.AdamW, "AdamW", {**_EPS, "amsgrad": "amsgrad"}, weight_decay=0.004, **_ADAM),
    "adamax": _maker(optim.Adamax, "Adamax", _EPS, **_ADAM),
    "nadam": _maker(optim.NAdam, "Nadam", _EPS, **_ADAM),
    "rmsprop": _maker(optim.RMSprop, "RMSprop", {**_EPS, "rho": "alpha", "momentum": "momentum", "centered": "centered"}, lr=1e-3,
                      alpha=0.9, eps=1e-7),
    "adagrad": _maker(optim.Adagrad, "Adagrad", {**_EPS, "initial_accumulator_value": "initial_accumulator_value"}, lr=1e-3,
                      initial_accumulator_value=0.1, eps=1e-7),
    "adadelta": _maker(optim.Adadelta, "Adadelta", {**_EPS, "rho": "rho"}, lr=1e-3, rho=0.95, eps=1e-7),
}


def optimizer_of(given: Union[str, Any], params: Any) -> Any:
    """By name, as a spec, or one that is made already. ValueError or TypeError for anything else."""
    if isinstance(given, str):
        given = named(given.lower(), OPTIMIZERS, "optimizer", "adam")()
    if isinstance(given, OptimizerSpec):
        return given.build(params)
    if not hasattr(given, "param_groups"):
        raise TypeError(f"compile: `optimizer` must be a name, one of keras.optimizers, or an ampc.optim optimizer, got {type(given).__name__}")
    return given
