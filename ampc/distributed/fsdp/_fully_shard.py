"""fully_shard: each process holds its rows of every parameter, gradient and optimizer state; the whole exists while a module computes.
Source: Rajbhandari et al. 2020 (ZeRO, stage 3), Zhao et al. 2023 (FSDP), torch.distributed.fsdp.fully_shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, NoReturn, Optional, Set, Tuple, Union

from ..._C import Tensor
from ..._events import announce
from ..._names.missing import absent_from
from ...nn.modules.container import ModuleDict, ModuleList
from ...nn.modules.module import Module
from ...nn.parallel.distributed import check_same
from ..device_mesh import DeviceMesh, init_device_mesh
from ..groups import get_world_size, init_process_group, is_initialized
from ..tensor._dtensor import DTensor
from ..tensor.placement_types import Shard
from ._group import ParameterGroup
from ._parameter import SplitParameter, twins
from ._policies import MixedPrecisionPolicy, OffloadPolicy
from ._schedule import State

__all__ = ["FSDPModule", "UnshardHandle", "fully_shard", "register_fsdp_forward_method"]

_POLICY, _NO_OFFLOAD = MixedPrecisionPolicy(), OffloadPolicy()


def fully_shard(module: Any, *, mesh: Optional[DeviceMesh] = None, reshard_after_forward: Union[bool, int, None] = None,
                shard_placement_fn: Optional[Callable[[Tensor], Any]] = None, mp_policy: MixedPrecisionPolicy = _POLICY,
                offload_policy: OffloadPolicy = _NO_OFFLOAD, ignored_params: Optional[Set[Tensor]] = None) -> Any:
    """Spreads the parameters of ``module`` over processes, each of which keeps its rows, as ``chunk`` cuts them. Returns ``module``, whose class is
    now a subclass of its own class and of FSDPModule.

    Before the module's forward and backward passes the parameters are gathered, and given back after them. Gradients are averaged, and each process
    gets its rows. Parameters of submodules that are sharded already are left to those: call it for the blocks of a model first, and for the model
    last. Make the optimizer after that. While one block computes, the next one's parameters are gathered.

    Args:
        module: a Module, or a list of Modules whose parameters are one group; these must all run in each pass.
        mesh: of one dimension, over which rows are spread; or of two, where the first has replicas. By default all processes.
        reshard_after_forward: True: the whole is given back after forward, and gathered again for backward. False: it stays for backward. None: True,
            but False for the outermost module. A number: between forward and backward so many neighbours hold the whole together, and gather it
            from each other; it must divide the number of processes that rows are spread over. 1 means False, and all of them True.
        shard_placement_fn: for a parameter None or Shard(0), which mean the same; others are refused.
        mp_policy: dtypes, see MixedPrecisionPolicy.
        offload_policy: CPUOffloadPolicy() keeps the shards of a GPU's parameters in the CPU's memory.
        ignored_params: parameters that stay whole, and whose gradients are not reduced.

    The shards stay on the parameters' device, unless ``offload_policy`` says otherwise. Values of a GPU travel by NCCL, on a
    stream of its own, where the group has it.

    ValueError for parameters without dimensions, on 'meta' or several devices, or held by a module that another call has sharded, and for a number
    that does not divide; NotImplementedError for options that are not there; RuntimeError where the processes' modules differ."""
    modules = list(module) if isinstance(module, (list, tuple)) else [module]
    _check(modules)
    found = _parameters(modules, ignored_params or set())
    _check_parameters(found, shard_placement_fn)
    mesh = _mesh_of_all(found[0][1].device.type if found else "cpu") if mesh is None else mesh
    if not isinstance(mesh, DeviceMesh) or mesh.ndim > 2:
        raise ValueError(f"fully_shard: `mesh` must be a DeviceMesh of one or two dimensions, got {mesh!r}")
    reshard_after_forward, neighbours = _resharding(reshard_after_forward, mesh)
    _check_alike(found, mesh)
    params = [SplitParameter(name, param, places, mesh, mp_policy.param_dtype, offload_policy) for name, param, places in found]
    group = ParameterGroup(params, mesh, mp_policy) if params else None
    if group is not None and neighbours:
        group.keep_near(neighbours)
    inner = [m._fsdp_state for one in modules for m in one.modules() if isinstance(m, FSDPModule)]
    state = State(modules, group, mesh, mp_policy, reshard_after_forward, inner)
    for (_, param, _places), split in zip(found, params):
        param._is_sharded = True  # type: ignore[attr-defined]  # who holds it elsewhere is told
        split.put(split.shard)
    for one in modules:
        _wrap(one, state)
    announce.parameters_sharded([param for _, param, _places in found])
    return module


# -- checks ------------------------------------------------------------------------------------------------------------


def _mesh_of_all(kind: str) -> DeviceMesh:
    """All processes, which are connected first where nobody has done so."""
    if not is_initialized():
        init_process_group()
    return init_device_mesh(kind, (get_world_size(),))


def _resharding(value: Union[bool, int, None], mesh: DeviceMesh) -> Tuple[Optional[bool], int]:
    """Whether the whole is given back after forward, and how many neighbours keep it together then; 0: none do."""
    if value is None or isinstance(value, bool):
        return value, 0
    size = mesh.size(mesh.ndim - 1)
    if not isinstance(value, int) or value < 1 or size % value:
        raise ValueError(f"fully_shard: `reshard_after_forward` must be True, False, None, or a number that divides the {size} processes of the "
                         f"mesh's last dimension, got {value!r}")
    return value > 1, value if 1 < value < size else 0


def _check(modules: List[Any]) -> None:
    for one in modules:
        if not isinstance(one, Module):
            raise ValueError(f"fully_shard: expected a Module or a list of Modules, got {type(one).__name__}")
        if isinstance(one, (ModuleList, ModuleDict)):
            raise ValueError(f"fully_shard: {type(one).__name__} has no forward, before which its parameters could be gathered; shard its members")
        if isinstance(one, FSDPModule):
            raise ValueError(f"fully_shard: {type(one).__name__} is sharded already")
    if not modules:
        raise ValueError("fully_shard: the list of modules is empty")


Found = List[Tuple[str, Tensor, List[Tuple[Any, str]]]]


def _parameters(modules: List[Any], ignored: Iterable[Any]) -> Found:
    """The parameters that no other call has sharded: by name, with all places where the modules hold them."""
    found: Dict[int, Tuple[str, Tensor, List[Tuple[Any, str]]]] = {}
    left_out = {id(p) for p in ignored}
    for number, root in enumerate(modules):
        for path, module in root.named_modules(remove_duplicate=False):
            for name, param in module._parameters.items():
                if param is None or isinstance(param, DTensor) or id(param) in left_out:
                    continue
                full_name = ".".join([*[str(number)] * (len(modules) > 1), *[path] * bool(path), name])
                places = found.setdefault(id(param), (full_name, param, []))[2]
                if (module, name) not in places:
                    places.append((module, name))
    return list(found.values())


def _check_parameters(found: Found, placement: Any) -> None:
    for name, param, _ in found:
        if getattr(param, "_is_sharded", False):
            raise ValueError(f"fully_shard: {name} is tied to a parameter that another call has sharded; shard the modules that share it in one "
                             "call, as in fully_shard([a, b])")
        if param.ndim == 0:
            raise ValueError(f"fully_shard: {name} has no dimensions, so no rows to spread; make it a tensor of one element, or name it in "
                             "`ignored_params`")
        if param.is_meta:
            raise ValueError(f"fully_shard: {name} is on meta and has no values; to_empty(device=...) gives it memory")
        if param.device != found[0][1].device:
            raise ValueError(f"fully_shard: all parameters must be on one device, {found[0][0]} is on '{found[0][1].device}' and {name} on "
                             f"'{param.device}'; move the module before")
        where = placement(param) if placement is not None else None
        if where is not None and where != Shard(0):
            raise NotImplementedError(f"fully_shard: `shard_placement_fn` gives {where!r} for {name}; parameters are spread by Shard(0)")


def _check_alike(found: Found, mesh: DeviceMesh) -> None:
    """RuntimeError in all processes where their parameters differ in name, shape or dtype."""
    mine = {name: f"{param.dtype.name} {list(param.shape)}{' trained' if param.requires_grad else ''}" for name, param, _ in found}
    for dim in range(mesh.ndim):
        check_same("fully_shard", twins(mesh.get_group(dim))[0], "is", mine)


# -- modules -----------------------------------------------------------------------------------------------------------


def _wrap(module: Any, state: State) -> None:
    cls = type(module)
    kept = {"__deepcopy__": _no_copy, "__module__": cls.__module__, "__doc__": cls.__doc__}
    module.__dict__["_fsdp_state"] = state
    module.__class__ = _classes.setdefault(cls, type(f"FSDP{cls.__name__}", (FSDPModule, cls), kept))
    module.register_forward_pre_hook(state.before_forward, prepend=True, with_kwargs=True)
    module.register_forward_hook(state.after_forward)
    module.register_state_dict_pre_hook(lambda *_: state.drop())
    module.register_state_dict_post_hook(state.name_shards)
    module.register_load_state_dict_pre_hook(state.cut_loaded)


_classes: Dict[type, type] = {}


def _no_copy(self: Any, memo: Any) -> NoReturn:
    raise RuntimeError(f"a sharded module cannot be copied: {type(self).__name__}; copy it before fully_shard, or load its state dict into another")


class UnshardHandle:
    """A gather that may still run."""

    def __init__(self, state: State) -> None:
        self._state = state

    def wait(self) -> None:
        """Waits until the module holds the gathered parameters."""
        self._state.gather()


class FSDPModule:
    """What fully_shard makes of a module's class: the methods by which a script steers gathers and reductions. Those with ``recurse`` act on the
    submodules that are sharded, too."""

    _fsdp_state: State

    def _states(self, recurse: bool) -> List[State]:
        if not recurse:
            return [self._fsdp_state]
        return list({id(m._fsdp_state): m._fsdp_state for m in self.modules() if isinstance(m, FSDPModule)}.values())  # type: ignore[attr-defined]

    def unshard(self, async_op: bool = False) -> Optional[UnshardHandle]:
        """Gathers the module's parameters, until ``reshard`` or the end of the next pass. With ``async_op`` it returns a handle to wait for. All
        processes must call it."""
        self._fsdp_state.begin()
        if async_op:
            return UnshardHandle(self._fsdp_state)
        self._fsdp_state.gather()
        return None

    def reshard(self) -> None:
        """Gives the gathered parameters back: the module holds its shards."""
        self._fsdp_state.drop()

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """False: backward passes add up gradients of the whole parameters in each process. The next pass with True averages the sum."""
        for state in self._states(recurse):
            if state.group is not None:
                state.group.syncs = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """False: gradients are averaged within each replica of a mesh of two dimensions alone."""
        for state in self._states(recurse):
            if state.group is not None:
                state.group.syncs_replicas = requires_all_reduce

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether the whole is given back after forward."""
        if not isinstance(reshard_after_forward, bool):
            raise ValueError(f"set_reshard_after_forward: expected a bool, got {type(reshard_after_forward).__name__}")
        for state in self._states(recurse):
            state.reshard_after_forward = reshard_after_forward

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Whether the whole is given back after backward. It is gathered again in any case when a shard was written since."""
        for state in self._states(recurse):
            state.reshard_after_backward = reshard_after_backward

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """False: the parameters are not gathered for backward, such as those of an embedding, whose backward does not read them."""
        self._fsdp_state.gathers_in_backward = unshard_in_backward

    def set_modules_to_forward_prefetch(self, modules: List[FSDPModule]) -> None:
        """The modules whose gathers begin in this module's forward, in place of the one that came next in the last pass."""
        self._fsdp_state.next_in_forward = [m._fsdp_state for m in _checked(modules)]

    def set_modules_to_backward_prefetch(self, modules: List[FSDPModule]) -> None:
        """The modules whose gathers begin in this module's backward, in place of the one that ran before it in forward."""
        self._fsdp_state.next_in_backward = [m._fsdp_state for m in _checked(modules)]

    def set_gradient_divide_factor(self, factor: float) -> None:
        """What the sum of the gradients is divided by, in place of the number of processes."""
        if not factor > 0:
            raise ValueError(f"set_gradient_divide_factor: expected a positive number, got {factor}")
        if self._fsdp_state.group is not None:
            self._fsdp_state.group.divisor = float(factor)

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def reset_iter_state(self) -> None:
        """After a forward or backward pass that has failed: forgets what it has left, with its gradients that are not reduced. The next pass does so
        by itself."""
        self._fsdp_state.schedule.forget()

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        for state in self._states(True):
            state.drop()
        result = super()._apply(fn, recurse)  # type: ignore[misc]
        for state in self._states(True):
            state.check_after_apply()
        return result


def _checked(modules: Any) -> List[FSDPModule]:
    for m in modules:
        if not isinstance(m, FSDPModule):
            raise ValueError(f"expected modules that fully_shard was called for, got {type(m).__name__}")
    return list(modules)


def register_fsdp_forward_method(module: Any, method_name: str) -> None:
    """The method ``method_name`` gathers parameters before it and gives them back after it, as ``forward`` does. Nothing for a module that is not
    sharded. AttributeError for a method that there is not."""
    if not isinstance(module, FSDPModule):
        return
    method, state = getattr(module, method_name), module._fsdp_state

    def gathered(*args: Any, **kwargs: Any) -> Any:
        changed = state.before_forward(module, args, kwargs)
        args, kwargs = (args, kwargs) if changed is None else changed
        output = method(*args, **kwargs)
        changed = state.after_forward(module, args, output)
        return output if changed is None else changed

    module.__dict__[method_name] = gathered


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
