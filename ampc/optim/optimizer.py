"""Optimizer: parameter groups, state and the step protocol, as torch.optim.Optimizer."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set

from .. import _C
from .._C import Tensor
from .._events import announce
from .._names.missing import absent_from
from .._tensor.device import device_of
from .._tensor.gradients import zero_grad
from .._tensor.grouping import _group_tensors_by_device_and_dtype
from ..autograd import enable_grad, no_grad
from ..cuda.graphs import captured_graph
from ._hooks import HasHooks, after_step, before_step, has_step_hooks, register_optimizer_step_post_hook, register_optimizer_step_pre_hook  # noqa: F401


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def _noted(step: Callable[..., Any]) -> Callable[..., Any]:
    """``step``, which schedules are to know of."""
    @functools.wraps(step)
    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._has_stepped = True
        if self._stepping:  # it is super().step()
            return step(self, *args, **kwargs)
        announce.step_begins(self, (args[0] if args else kwargs.get("closure")) is not None)
        self._stepping = True
        try:
            given, kwargs = before_step(self, (self, *args), kwargs)
            result = step(*given, **kwargs)
            self._n_applied += 1
            after_step(self, given, kwargs)
            return result
        finally:
            self._stepping = False
            announce.step_ended(self)

    return noting


# What a step looks up in its optimizer. Where a subclass has its own, a script's code runs within the step.
_PARTS = frozenset({"_can_zero", "_check_capture", "_counts", "_fresh", "_notes", "_numbers", "_options", "_products", "_state_names", "_state_of",
                    "_states", "_step_group", "_update_rule", "param_groups", "state", "step_unless", "__getattribute__", "__setattr__"})
_HALF = (_C.float16, _C.bfloat16)
# What torch or ampc added to optimizers that existed before: checkpoints from then lack it, and the group's own value stays.
_ADDED_LATER = frozenset({"amsgrad", "capturable", "centered", "decoupled_weight_decay", "differentiable", "foreach", "fused", "maximize", "nesterov",
                          "rounding"})
_KEPT = {"master": "master_param", "kahan": "compensation"}  # what a rounding keeps beside 16-bit parameters


def _check_parts(state: Dict[str, Any]) -> None:
    """KeyError for what is no optimizer's state_dict, such as a model's or a whole checkpoint."""
    lacking = [name for name in ("param_groups", "state") if name not in state]
    if lacking:
        inside = [name for name, part in state.items() if isinstance(part, Mapping) and "param_groups" in part]
        what = f"pass its part {inside[0]!r}" if inside else "load what an optimizer's state_dict() has returned"
        raise KeyError(f"load_state_dict: the state has {list(state)[:6]} and lacks {lacking}; {what}")


class Optimizer(HasHooks):
    """Base of optimizers.

    Args:
        params: Tensors, or dicts with 'params' and options of their own (groups).
        defaults: options of groups that do not set them.
    """

    _stepping = False  # within step()
    _needs_whole = False  # whether an element's update depends on the parameter's other elements
    _n_applied = _n_skipped = 0  # steps, and those that a scaler left out: what schedulers want to know

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _noted(cls.__dict__["step"])  # type: ignore[method-assign]

    def __init__(self, params: Iterable[Any], defaults: Dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError("params must be an iterable of Tensors or dicts, got one Tensor; write [tensor]")
        if not isinstance(params, Iterable):
            raise TypeError(f"'{type(params).__name__}' object is not iterable; of a module, pass its parameters()")
        self.defaults, self._own_options = defaults, frozenset(defaults)
        self.state: Dict[Tensor, Dict[str, Any]] = defaultdict(dict)
        self.param_groups: List[Dict[str, Any]] = []
        self._forget_hooks()
        self._found_inf: Optional[Tensor] = None  # the flag by which a GPU skips the step
        self._zero_along = False  # whether the step also sets gradients to 0
        self._has_stepped = False  # schedulers ask for it; a step that a scaler skipped counts, too
        groups = list(params)
        if not groups:
            raise ValueError("the optimizer got no parameters; is the model empty, or was its parameters() iterator used up?")
        self._known: Optional[Set[int]] = set()  # parameters of the groups so far, while these are many; None afterwards, for groups may be changed
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)
        self._known = None

    def _patch_step_function(self) -> None:
        """Nothing: `step` announces itself as it is. Optimizers that wrap others and do not call `__init__` call this in torch."""

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Adds parameters with options of their own. TypeError or ValueError for what cannot be trained, or
        what another group has already."""
        if not isinstance(param_group, dict):
            raise TypeError(f"a parameter group must be a dict, got {type(param_group).__name__}")
        group = param_group  # the dict itself becomes the group, as in torch
        params = group["params"]
        if isinstance(params, set):
            raise TypeError("parameters need an order; pass a list, not a set")
        group["params"] = [params] if isinstance(params, Tensor) else list(params)
        names = []
        for i, p in enumerate(group["params"]):
            if isinstance(p, tuple):  # named_parameters()
                names.append(p[0])
                group["params"][i] = p = p[1]
            if not isinstance(p, Tensor):
                raise TypeError(f"an optimizer trains Tensors, got {type(p).__module__}.{type(p).__name__}")
            if not p.is_leaf:
                raise ValueError("an optimizer trains leaves, such as parameters; this tensor was made by an operation: pass what it was made "
                                 "of, or x.detach().requires_grad_()")
            if hasattr(p, "_is_gathered"):
                raise ValueError(f"{type(self).__name__}: a parameter of shape {list(p.shape)} is gathered for a pass of its sharded module; call "
                                 "the module's reshard() first, so that the optimizer gets the parameters that stay")
            if self._needs_whole and hasattr(type(p), "device_mesh"):
                raise NotImplementedError(f"{type(self).__name__}: its update looks at all elements of a parameter together, and each process has a "
                                          f"part of this one, of shape {list(p.shape)}, which fully_shard has spread; use AdamW or SGD")
        if names and len(names) != len(group["params"]):
            raise ValueError("parameters come with names, as of named_parameters(), or all of them without; some names are missing")
        if self.param_groups and bool(names) != ("param_names" in self.param_groups[0]):
            raise ValueError("either all parameter groups come with names, as of named_parameters(), or none does")
        if names:
            group["param_names"] = names
        if self.param_groups and ("param_names" in group) != ("param_names" in self.param_groups[0]):
            raise ValueError("either all parameter groups have names, as of named_parameters(), or none has")
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(f"parameter group: option '{name}' is required")
            group.setdefault(name, default)
        mine = {id(p) for p in group["params"]}
        known = self._known if self._known is not None else {id(p) for g in self.param_groups for p in g["params"]}
        if len(mine) != len(group["params"]) or not known.isdisjoint(mine):
            raise ValueError("some parameters appear more than once in the optimizer's groups")
        known |= mine
        self.param_groups.append(group)

    # -- stepping -------------------------------------------------------------------------------------------

    @_noted
    def step(self, closure: Optional[Callable[[], Any]] = None, *, zero_grad: bool = False) -> Any:
        """Updates the parameters once. ``closure`` computes the loss again, which is returned.

        ``zero_grad``: the gradients become 0 in the same pass over memory, as ``zero_grad(set_to_none=False)`` after it would make
        them; ``scaler.step(optimizer, zero_grad=True)`` zeroes them when the step is skipped, too."""
        loss = None
        self._has_stepped = True
        if closure is not None:
            with enable_grad():
                loss = closure()
        self._check_capture()
        grads = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None] if zero_grad else []
        self._zero_along = self._can_zero() and len({id(g) for g in grads}) == len(grads) > 0  # none is read again
        try:
            with no_grad():
                for group in self.param_groups:
                    self._step_group(group)
                    graph = captured_graph()
                    if graph is not None:
                        graph.note_step(self, group)
                for g in grads:
                    if not self._zero_along:
                        g.detach_().zero_()
                if zero_grad:
                    _C._set_provenance(self.param_groups, "none")
        finally:
            self._zero_along = False
        return loss

    def can_leave_step_out(self) -> bool:
        """Whether a flag on the GPU can skip the next step there, so that nothing of it is seen."""
        return not self.why_wait()

    def why_wait(self) -> str:
        """Why it must be known before a step whether it is skipped, in words; "" where a flag on the GPU is enough. That takes an update in C,
        all gradients on one GPU, and no code of a script within the step."""
        if not self._can_zero():
            return "its update is computed in Python"
        if has_step_hooks(self):
            return "it has step hooks"
        step: Any = self.step
        if getattr(step, "__func__", None) is not _STEP or step.__self__ is not self:
            return "its step() is not that of ampc.optim"
        return self._changed_part() or ("" if self._on_one_gpu() else "its gradients are on several devices")

    def _changed_part(self) -> str:
        """Which part of a step a class of a script changes, in words; "" if none."""
        classes = type(self).__mro__
        for other in classes[:classes.index(Optimizer)]:
            changed = () if other.__module__.startswith("ampc.optim.") else _PARTS.intersection(vars(other))
            if changed:
                return f"{other.__name__} changes {min(changed)}"
        return ""

    def step_unless(self, found_inf: Tensor, *args: Any, **kwargs: Any) -> Any:
        """``step(*args, **kwargs)``, which the GPU skips if ``found_inf`` is not 0. A GradScaler calls it if ``can_leave_step_out()``.

        A step that makes state, such as the first, waits for the flag: a skipped one makes none."""
        self._check_capture()
        if self._makes_state() and found_inf.item():
            self.step_left_out()
            if kwargs.get("zero_grad"):
                self.zero_grad(set_to_none=False)
            return None
        self._found_inf = found_inf
        try:
            return self.step(*args, **kwargs)
        finally:
            self._found_inf = None

    def _check_capture(self) -> None:
        if captured_graph() is not None and self._makes_state():
            raise _C.CaptureError(f"{type(self).__name__}.step: a CUDA graph cannot capture the step that makes the optimizer's state, because each "
                                  "replay would make it anew; make a step that is not skipped before the capture")

    def _state_names_of(self, group: Dict[str, Any]) -> Iterable[str]:
        """Names of what a parameter's state has after a step, but for what ``rounding`` keeps."""
        return ()

    def _makes_state(self) -> bool:
        """Whether the next step makes state of some parameter."""
        for group in self.param_groups:
            names = frozenset(self._state_names_of(group))
            names_of_half = names | {_KEPT[group["rounding"]]} if group.get("rounding") in _KEPT else names
            params = [p for p in group["params"] if p.grad is not None] if names_of_half else []
            if not all((names_of_half if p.dtype in _HALF else names).issubset(self.state.get(p, ())) for p in params):
                return True
        return False

    def step_left_out(self) -> None:
        """A GradScaler has skipped a step. Schedulers still count it, as torch's do."""
        self._has_stepped = True
        self._n_skipped += 1

    def _can_zero(self) -> bool:
        """Whether its step can also set gradients to 0, as ``_zero_along`` asks."""
        return False

    def _on_one_gpu(self) -> bool:
        found = _C._gradients_of(self.param_groups)
        return len(found) == 1 and device_of(found[0][0]).type == "cuda"

    def _step_group(self, group: Dict[str, Any]) -> None:
        raise NotImplementedError(f"{type(self).__name__} defines neither step nor _step_group")

    @staticmethod
    def _group_tensors_by_device_and_dtype(tensorlistlist: Any, with_indices: bool = False) -> Any:
        return _group_tensors_by_device_and_dtype(tensorlistlist, with_indices)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients, or zeroes them."""
        for group in self.param_groups:
            zero_grad(group["params"], set_to_none)

    # -- saving ---------------------------------------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """{'state': by number of the parameter, 'param_groups': options and numbers}."""
        self._call_each(self._optimizer_state_dict_pre_hooks)
        number: Dict[int, int] = {}
        for group in self.param_groups:
            for p in group["params"]:
                number.setdefault(id(p), len(number))
        groups = [{**{k: v for k, v in g.items() if k != "params"}, "params": [number[id(p)] for p in g["params"]]} for g in self.param_groups]
        state = {number[id(p)] if isinstance(p, Tensor) else p: s for p, s in self.state.items()}
        return self._passed_on(self._optimizer_state_dict_post_hooks, {"state": state, "param_groups": groups})

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Continues from a state_dict. ValueError when its groups do not fit; KeyError when they lack options that this optimizer needs, as those
        of another kind of optimizer do, or when it is no optimizer's; TypeError for what is no dict. Options that old checkpoints lack, such as
        'maximize', keep their values."""
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"load_state_dict: expected a dict that an optimizer's state_dict() has returned, got {type(state_dict).__name__}")
        state_dict = self._passed_on(self._optimizer_load_state_dict_pre_hooks, dict(state_dict))
        _check_parts(state_dict)
        saved = state_dict["param_groups"]
        sizes = [len(g["params"]) for g in saved], [len(g["params"]) for g in self.param_groups]
        if sizes[0] != sizes[1]:
            raise ValueError(f"load_state_dict: the saved groups have {sizes[0]} parameters, this optimizer's {sizes[1]}")
        self._check_options_of(saved)
        by_number = {n: p for s, g in zip(saved, self.param_groups) for n, p in zip(s["params"], g["params"])}
        state: Dict[Any, Any] = defaultdict(dict)
        for n, values in state_dict["state"].items():
            state[by_number.get(n, n)] = self._loaded(values, by_number.get(n))
        for s, g in zip(deepcopy(saved), self.param_groups):  # of all at once: what groups share, they share afterwards
            g.update({k: v for k, v in s.items() if k != "params"})
        self.__setstate__({"state": state, "param_groups": self.param_groups})
        self._call_each(self._optimizer_load_state_dict_post_hooks)

    def _has_own_step(self) -> bool:
        """Whether this is a class of a script, which computes its steps itself."""
        return type(self)._step_group is Optimizer._step_group

    def _loaded(self, value: Any, p: Optional[Tensor], key: Any = None) -> Any:
        """A copy of a parameter's saved state: tensors are on its device, and in the dtype that its optimizer would give them. A class with a step
        of its own has its state in the parameter's dtype."""
        if isinstance(value, dict):
            return {k: self._loaded(v, p, k) for k, v in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._loaded(v, p) for v in value)
        if not isinstance(value, Tensor):
            return deepcopy(value)
        if p is None:
            return value.clone()
        if self._has_own_step():
            return value.clone() if key == "step" else value.to(p.device, p.dtype if p.is_floating_point() else None, copy=True)
        if key in ("step", "mu_product", "compensation") or not value.is_floating_point():
            return value.to(p.device, copy=True)
        return value.to(p.device, state_dtype(p), copy=True)

    def _check_options_of(self, saved: List[Dict[str, Any]]) -> None:
        """KeyError naming the options that a saved group lacks."""
        if type(self).__setstate__ is not Optimizer.__setstate__:
            return  # a class of a script that fills in what its old checkpoints lack
        for i, group in enumerate(saved):
            own = getattr(self, "_own_options", self.defaults.keys())  # what an optimizer around this one added to `defaults` is not asked for
            lacking = sorted(own - group.keys() - _ADDED_LATER)
            if lacking:
                raise KeyError(f"{type(self).__name__}: group {i} of the state has the options {sorted(group.keys() - {'params'})} and lacks "
                               f"{lacking}; it is of another kind of optimizer. Load a state that {type(self).__name__} saved, or start without one")

    def __getstate__(self) -> Dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_found_inf" not in self.__dict__:  # it is a new object, and not one that loads a state_dict
            self._forget_hooks()
            self._found_inf, self._zero_along = None, False
            self._has_stepped = False

    def __repr__(self) -> str:
        text = type(self).__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            plain = {"params"} if group.get("rounding", "nearest") != "nearest" else {"params", "rounding"}  # as torch shows it
            text += "".join(f"    {k}: {group[k]}\n" for k in sorted(group) if k not in plain)
        return text + ")"


_STEP = Optimizer.step


def check_options(name: str, **limits: Any) -> None:
    """ValueError naming the option whose value is outside its limits: option=(value, low, high)."""
    for option, (value, low, high) in limits.items():
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError(f"{name}: `{option}` must be a number or a Tensor of one element, got shape {list(value.shape)}")
        number = value.item() if isinstance(value, Tensor) else value
        if not (low <= number and (high is None or number < high)):
            raise ValueError(f"{name}: `{option}` must be at least {low}" + ("" if high is None else f" and below {high}") + f", got {value}")


def check_ways(name: str, lr: Any, foreach: Optional[bool], fused: Optional[bool], capturable: bool, differentiable: bool) -> None:
    """Which of torch's words for a way of stepping do not go together, though here is one way: RuntimeError or ValueError, as torch."""
    if fused and (differentiable or foreach):
        other = "differentiable" if differentiable else "foreach"
        raise RuntimeError(f"{name}: `fused` does not go together with `{other}`; leave them out: there is one way of stepping")
    if isinstance(lr, Tensor) and foreach and not capturable:
        raise ValueError(f"{name}: a Tensor `lr` does not go together with `foreach` unless `capturable`; leave both out: there is one way of "
                         "stepping")
    refuse_differentiable(name, differentiable)


def refuse_differentiable(name: str, differentiable: bool) -> None:
    """NotImplementedError for ``differentiable=True``: a step is not recorded."""
    if differentiable:
        raise NotImplementedError(f"{name}: a step is not recorded, so `differentiable` is not supported. To differentiate through an update, write "
                                  "it with the gradients of autograd.grad(loss, params, create_graph=True), and call the model with the new "
                                  "values: func.functional_call")


ROUNDINGS = ("nearest", "stochastic", "kahan", "master")


def check_rounding(name: str, rounding: str) -> str:
    """ValueError for a rounding that there is not."""
    if rounding not in ROUNDINGS:
        raise ValueError(f"{name}: `rounding` must be one of {', '.join(map(repr, ROUNDINGS))}, got {rounding!r}")
    return rounding


def extras_of(params: List[Any], states: List[Dict[str, Any]], rounding: str) -> Optional[List[Any]]:
    """What ``rounding`` keeps beside 16-bit parameters, as states: float32 masters, or what was lost so far."""
    key = _KEPT.get(rounding)
    if key is None:
        return None
    from .._tensor.creation import zeros

    for p, state in zip(params, states):
        if key not in state and p.dtype in _HALF:
            own = p.detach()
            state[key] = own.float() if rounding == "master" else zeros(own.shape, dtype=own.dtype, device=own.device)
    return [state.get(key) for state in states]


def state_dtype(p: Tensor) -> Any:
    """Of an optimizer's state of one parameter: float32 for 16-bit parameters, whose own dtype would lose small updates."""
    from .. import _C

    return _C.float64 if p.dtype == _C.float64 else _C.float32


def state_like(p: Tensor) -> Tensor:
    """Zeros for an optimizer's state of one parameter."""
    from .._tensor.creation import zeros

    return zeros(p.detach().shape, dtype=state_dtype(p), device=p.device)  # of a DTensor: of its part


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
