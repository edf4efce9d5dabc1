"""The base of optimizers whose update rule is one function in C (csrc/shared/optim_update.inc): one pass over all parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Dict, List, Optional, Tuple

from .. import _C
from .._tensor import creation as make
from .optimizer import Optimizer, check_rounding, extras_of, refuse_differentiable, state_like

_ROUNDING_KEYS = {"master_param", "compensation"}


class UpdateRuleOptimizer(Optimizer):
    """Base of those. A subclass names its rule, its states and the rule's options.

    ``foreach``, ``fused`` and ``capturable`` of torch's are kept in the groups, as ``differentiable`` is: there is one way.

    ``rounding``: how a 16-bit parameter takes updates smaller than its spacing. 'nearest' loses them; 'stochastic' rounds up or down
    with the probability of what is cut off; 'kahan' keeps what is lost in 16 bits beside it; 'master' keeps a float32 copy, as
    apex's O2 does. Parameters of 32 and 64 bits are not concerned."""

    _update_rule = ""
    # states that are numbers, and their first values; on a GPU float32s there, which the step itself advances
    _counts: Dict[str, float] = {"step": 0}

    _state_names: Tuple[str, ...] = ()
    _numbers: Dict[str, str] = {"lr": "lr", "eps": "eps", "weight_decay": "weight_decay"}  # the rule's (AC_OPTIM_NUMBERS), and their options

    def __init__(self, params: Iterable[Any], differentiable: bool, rounding: str, **defaults: Any) -> None:
        refuse_differentiable(type(self).__name__, differentiable)
        super().__init__(params, {**defaults, "differentiable": differentiable, "rounding": check_rounding(type(self).__name__, rounding)})

    def _states(self, group: Dict[str, Any]) -> List[str]:
        """Names of the states that these options need, in the rule's order."""
        return list(self._state_names)

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        """The rule's options."""
        return {**{number: float(group[option]) for number, option in self._numbers.items()}, "maximize": group["maximize"]}

    def _fresh(self, p: Any, group: Dict[str, Any], name: str) -> Any:
        """A state's first value."""
        return state_like(p)

    def _products(self, states: List[Dict[str, Any]], steps: List[Any], group: Dict[str, Any]) -> Optional[List[float]]:
        return None

    def _notes(self, states: List[Dict[str, Any]], steps: List[Any], group: Dict[str, Any]) -> Dict[str, list]:
        """What each update leaves in its state, set as the update is made: interrupted, the others keep theirs."""
        return {"step": steps}

    def _step_group(self, group: Dict[str, Any]) -> None:
        params = [p for p in group["params"] if p.grad is not None]
        if not params:
            return
        names = self._states(group)
        states = [self._state_of(p, group, names) for p in params]
        # on a GPU the count is a tensor, advanced there
        steps = [s["step"] if isinstance(s["step"], _C.Tensor) else s["step"] + 1 for s in states]
        _C._step(self._update_rule, params, [p.grad for p in params], [[s[name] for s in states] for name in names], states,
                 self._notes(states, steps, group), steps, self._products(states, steps, group), self._options(group), self._found_inf,
                 group["rounding"], extras_of(params, states, group["rounding"]), self._zero_along)

    def _can_zero(self) -> bool:
        return type(self)._step_group is UpdateRuleOptimizer._step_group

    def _state_names_of(self, group: Dict[str, Any]) -> Iterable[str]:
        return (*self._counts, *self._states(group))

    def _state_of(self, p: Any, group: Dict[str, Any], names: List[str]) -> Dict[str, Any]:
        state = self.state[p]
        missing = [name for name in names if name not in state]
        if missing and not set(state) <= set(self._counts) | _ROUNDING_KEYS:
            raise KeyError(f"{type(self).__name__}: the state of a parameter has {sorted(state)} and lacks {missing}; it is of another "
                           "optimizer or of other options")
        if missing:  # at once: an interrupted first step leaves nothing half made
            state.update({**{name: state.get(name, first) for name, first in self._counts.items()},
                          **{name: self._fresh(p, group, name) for name in missing}})
        for name, first in self._counts.items():
            count = state[name]
            if p.is_cuda != isinstance(count, _C.Tensor):  # fresh, or saved on the other kind of device
                state[name] = make.full((), float(count), dtype=_C.float32, device=p.device) if p.is_cuda else type(first)(count)
        return state
