"""When sharded modules gather and reduce: ``State`` is of one fully_shard, ``Schedule`` of all of a model."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple

from ... import _C
from ..._C import Tensor, is_grad_enabled
from ..._tensor import creation as make
from ...autograd.engine import call_after_backward, is_running
from ...nn.parallel import _scalers
from .._passes import Passes
from ..collectives import all_reduce
from ..device_mesh import DeviceMesh
from ..reductions import ReduceOp
from ..tensor._dtensor import DTensor, ShardedParameter, part_of
from ._group import ParameterGroup
from ._parameter import twins
from ._policies import MixedPrecisionPolicy


class Schedule:
    """The sharded modules of a model, in the order in which they were called in forward. All processes call them in the same order."""

    def __init__(self, mesh: DeviceMesh, title: str) -> None:
        self.mesh, self.states = mesh, []  # type: DeviceMesh, List[State]
        self._passes = Passes(title, [group for dim in range(mesh.ndim) for group in twins(mesh.get_group(dim))])
        self.order: List[State] = []  # of the forward pass that runs, or of the last
        self.last_order: List[State] = []  # of the one before
        self.outermost: Optional[State] = None  # whose forward runs
        self.in_backward = False
        self._reducing: Optional[ParameterGroup] = None
        _scalers.begin()

    # -- forward

    def begin_forward(self, state: State) -> None:
        """A module's forward begins. The outermost one forgets what a failed pass has left."""
        if self.outermost is None or self.outermost is state:
            if self.in_backward:
                self.forget()
            self.outermost, self.last_order, self.order = state, self.order, []
            self._passes.begin_forward()
        self.order.append(state)

    def end_forward(self, state: State) -> None:
        """A module's forward has ended."""
        if self.outermost is state:
            self.outermost = None

    def after(self, state: State) -> List[State]:
        """The module that came next in the last forward pass, if the passes are the same so far."""
        place = len(self.order)
        if place < len(self.last_order) and self.last_order[place - 1] is state:
            return [self.last_order[place]]
        return []

    def before(self, state: State) -> List[State]:
        """The module that was called before in forward."""
        if state not in self.order:
            return []
        place = len(self.order) - 1 - self.order[::-1].index(state)
        return self.order[place - 1:place] if place else []

    # -- backward

    def begin_backward(self) -> None:
        """A backward pass has come to a sharded module."""
        if not self.in_backward:
            self.in_backward = True
            self._passes.begin_backward()
            call_after_backward(self.end_backward)

    def reduce(self, group: ParameterGroup) -> None:
        """Sends a group's gradients. One reduction runs at a time, so that no more than the gradients of two groups take memory."""
        if self._reducing is not None:
            self._reducing.finish_reduction()
        group.reduce()
        self._reducing = group if group.is_reducing else None

    def end_backward(self) -> None:
        """The backward pass has ended: gradients of modules that it reached in part leave now."""
        for state in self.states:
            state.end_backward()
        if self._reducing is not None:
            self._reducing.finish_reduction()
        self._reducing, self.in_backward = None, False
        if any(state.group is not None and state.group.syncs for state in self.states):
            self._agree()

    def _agree(self) -> None:
        """The scalers agree on what gradients do not show, see ``_scalers``."""
        facts = _scalers.facts()
        for dim in range(self.mesh.ndim):
            group = twins(self.mesh.get_group(dim))[1]
            message = make.tensor(facts, dtype=_C.float64, device=group.device)
            all_reduce(message, ReduceOp.MAX, group)
            facts = message.tolist()
        _scalers.take(facts)

    def forget(self) -> None:
        """After a pass that has failed."""
        self.outermost, self._reducing, self.in_backward = None, None, False
        for state in self.states:
            state.forget()


class State:
    """What one fully_shard knows of its modules, and does before and after their passes."""

    def __init__(self, modules: List[Any], group: Optional[ParameterGroup], mesh: DeviceMesh, policy: MixedPrecisionPolicy,
                 reshard_after_forward: Optional[bool], inner: List[State]) -> None:
        self._modules, self.group, self._policy = modules, group, policy
        self._reshards, self._is_outermost = reshard_after_forward, True
        self.reshard_after_backward = self.gathers_in_backward = True
        self.next_in_forward: List[State] = []
        self.next_in_backward: List[State] = []
        self._to_run = {id(m) for m in modules}  # in this forward pass
        self._has_frozen = False
        self._expects = False  # a backward pass has come here, and its gradients have not left
        self.schedule = Schedule(mesh, f"fully_shard({type(modules[0]).__name__})")
        for state in [*dict.fromkeys(inner), self]:
            state.schedule, state._is_outermost = self.schedule, state is self
            self.schedule.states.append(state)
        if group is not None:
            group.all_ready = self._gradients_are_there

    @property
    def reshard_after_forward(self) -> bool:
        """Whether the whole is given back after forward: by default in all modules but the outermost."""
        return not self._is_outermost if self._reshards is None else self._reshards

    @reshard_after_forward.setter
    def reshard_after_forward(self, value: bool) -> None:
        self._reshards = value

    # -- the whole

    def begin(self) -> None:
        """Begins to gather."""
        if self.group is not None:
            self.group.begin()

    def gather(self) -> None:
        """The modules hold the whole."""
        if self.group is not None:
            self.group.gather()
            self._has_frozen = not all(param.is_trained for param in self.group.params)

    def drop(self, for_backward: bool = False) -> None:
        """They hold the shards."""
        if self.group is not None:
            self.group.drop(for_backward)

    # -- forward

    def before_forward(self, module: Any, args: tuple, kwargs: dict) -> Optional[Tuple[tuple, dict]]:
        """The hook before forward. Within a backward pass it is a checkpoint's second one."""
        again = is_running()
        if not again:
            self.schedule.begin_forward(self)
        self._to_run.discard(id(module))
        self.gather()
        if not again:
            for state in self.next_in_forward or self.schedule.after(self):
                state.begin()
        if is_grad_enabled():
            map_tensors((args, kwargs), self._drop_after)
        dtype = self._policy.param_dtype
        if dtype is None or not self._policy.cast_forward_inputs:
            return None
        return map_tensors((args, kwargs), lambda t: t.to(dtype) if t.is_floating_point() else t)

    def after_forward(self, _module: Any, _args: tuple, output: Any) -> Any:
        """The hook after forward."""
        dtype = self._policy.output_dtype
        if dtype is not None:
            output = map_tensors(output, lambda t: t.to(dtype) if t.is_floating_point() else t)
        map_tensors(output, self._gather_before)
        if not self._to_run:
            self._to_run = {id(m) for m in self._modules}
            if not is_running() and (self.reshard_after_forward or not is_grad_enabled()):
                self.drop(is_grad_enabled())
        if not is_running():
            self.schedule.end_forward(self)
        return output

    # -- backward

    def _gather_before(self, t: Tensor) -> Tensor:
        """The gradient of an output is the first that backward computes of the module."""
        if t.requires_grad and t.grad_fn is not None and self.group is not None:
            t.register_hook(lambda _grad: self._before_backward())
        return t

    def _drop_after(self, t: Tensor) -> Tensor:
        """The gradient of an input is the last."""
        if t.requires_grad and self.group is not None:
            handles: List[Any] = []

            def last(_grad: Tensor) -> None:
                handles.pop().remove()
                self._after_backward()

            handles.append(t.register_hook(last))
        return t

    def _before_backward(self) -> None:
        self.schedule.begin_backward()
        if self._expects or self.group is None:
            return
        self._expects = True
        self.group.expect()
        if self.gathers_in_backward:
            self.gather()
        for state in self.next_in_backward or self.schedule.before(self):
            if state.gathers_in_backward:
                state.begin()

    def _gradients_are_there(self) -> None:
        """The last gradient of the group has come. Parameters that are not trained may still be read."""
        if self._expects and self.group is not None:
            self._expects = False
            self.schedule.reduce(self.group)
            if not self._has_frozen:
                self._after_backward()

    def _after_backward(self) -> None:
        if self.schedule.in_backward and not self._expects and self.reshard_after_backward:
            self.drop()

    def end_backward(self) -> None:
        """What the pass has reached in part leaves."""
        if self.group is None:
            return
        if self._expects or any(param.full.grad is not None for param in self.group.params):
            self._expects = False
            self.schedule.reduce(self.group)
        if self.reshard_after_backward:
            self.drop()

    def forget(self) -> None:
        """After a pass that has failed."""
        self._expects, self._to_run = False, {id(m) for m in self._modules}
        if self.group is not None:
            self.group.forget()

    # -- state dicts

    def name_shards(self, module: Any, state_dict: Any, prefix: str, _metadata: Any) -> None:
        """The hook after state_dict, which has this process' rows: they say what they are part of."""
        for key, p in _sharded_of(module, prefix):
            if key in state_dict and not isinstance(state_dict[key], DTensor):
                state_dict[key] = DTensor._made(state_dict[key], p.device_mesh, p.placements, p._whole)

    def cut_loaded(self, module: Any, state_dict: Any, prefix: str, about: Any, *_more: Any) -> None:
        """The hook before load_state_dict: of whole tensors this process takes its rows. NotImplementedError for ``assign=True``."""
        if about.get("assign_to_params_buffers"):
            raise NotImplementedError("load_state_dict: a sharded module keeps its parameters, so `assign` is not there; leave it out, and their "
                                      "values are set")
        self.drop()
        for key, p in _sharded_of(module, prefix):
            value = state_dict.get(key)
            if isinstance(value, Tensor) and not isinstance(value, DTensor) and tuple(value.shape) == p._whole:
                state_dict[key] = DTensor._made(part_of(value, p.device_mesh, p.placements), p.device_mesh, p.placements, p._whole)

    def check_after_apply(self) -> None:
        """RuntimeError where the module's ``to`` and the like have changed dtype or device, or made other parameters."""
        for param in self.group.params if self.group is not None else []:
            if param.is_changed():
                raise RuntimeError(f"fully_shard: {param.name} has changed its dtype or device, or is another parameter now; change the module "
                                   "before fully_shard. Values are changed in place")


def _sharded_of(module: Any, prefix: str) -> List[Tuple[str, Any]]:
    """The sharded parameters of a module, by their keys in a state dict."""
    return [(prefix + (f"{path}." if path else "") + name, p) for path, m in module.named_modules(remove_duplicate=False)
            for name, p in m._parameters.items() if isinstance(p, ShardedParameter)]


def map_tensors(value: Any, f: Callable[[Tensor], Tensor]) -> Any:
    """``f`` of every tensor in lists, tuples and dicts."""
    if isinstance(value, Tensor):
        return f(value)
    if isinstance(value, dict):
        return type(value)((k, map_tensors(v, f)) for k, v in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(v, f) for v in value))
    return type(value)(map_tensors(v, f) for v in value) if isinstance(value, (list, tuple)) else value
