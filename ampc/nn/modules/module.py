"""Module: the base of layers and models. Behaviour as torch.nn.Module."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set, Tuple

from ... import _C
from ..._C import Tensor
from ..._messages.callers import warn
from ..._messages.model_names import register_module_class
from ..._messages.once import say_that_nothing_is_compiled
from ..._tensor import creation as make
from ..._tensor.device import check_device, gpu_asked_for, parse_to
from ..._tensor.gradients import zero_grad
from ..._tensor.layout import check_format
from ...amp._regions import call_module
from ...autograd import no_grad
from ...policy import state as policies
from .._global_hooks import *  # noqa: F403
from .._global_hooks import (  # noqa: F401 - libraries read these here
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_buffer_registration_hooks,
    _global_forward_hooks,
    _global_forward_hooks_always_called,
    _global_forward_hooks_with_kwargs,
    _global_forward_pre_hooks,
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
    registered,
)
from .._loading import _EXTRA_STATE_KEY_SUFFIX, Metadata, _IncompatibleKeys, load_into, load_planned, plan_own
from .._module_hooks import NONE, SELDOM_USED, HasHooks, made_when_used
from ..parameter import Buffer, Parameter, is_lazy

if TYPE_CHECKING:
    from typing import Protocol, TypeVar

    from typing_extensions import ParamSpec

    P = ParamSpec("P")
    R = TypeVar("R", covariant=True)

    class HasForward(Protocol[P, R]):
        """So a call of a module has the arguments and the result of its ``forward``."""

        def forward(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


def _need_init(module: Any) -> None:
    if "_parameters" not in module.__dict__:
        raise AttributeError(f"{type(module).__name__}: call super().__init__() before assigning parameters, modules or buffers")


class Module(HasHooks):
    """A part of a model: parameters, buffers and other Modules, assigned as attributes, and a ``forward``."""

    training: bool
    dump_patches = False
    call_super_init = False
    _version = 1

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if (args or kwargs) and not self.call_super_init:
            raise TypeError(f"{type(self).__name__}.__init__ takes no arguments here, got {args or kwargs}")
        d = self.__dict__
        d["training"] = True
        d["_parameters"], d["_buffers"], d["_modules"] = {}, {}, {}
        d["_non_persistent_buffers_set"] = set()
        d["_forward_pre_hooks"], d["_forward_hooks"] = OrderedDict(), OrderedDict()
        d["_backward_hooks"], d["_backward_pre_hooks"] = OrderedDict(), OrderedDict()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    forward: Callable[..., Any]

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[no-redef]
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    # -- calling -----------------------------------------------------------------------------------------

    if TYPE_CHECKING:
        def __call__(self: HasForward[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...
    else:
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self._ampc_call(args, kwargs) if policies.by_module is None else call_module(self, args, kwargs)

    def _ampc_call(self, args: tuple, kwargs: dict) -> Any:
        d = self.__dict__
        try:
            if not (d["_forward_hooks"] or d["_forward_pre_hooks"] or d["_backward_hooks"] or d["_backward_pre_hooks"] or _global_forward_hooks
                    or _global_forward_pre_hooks or _global_backward_hooks or _global_backward_pre_hooks):
                return self.forward(*args, **kwargs)
            return self._call_with_hooks(args, kwargs)
        except RecursionError:  # no calls are left to name modules with
            raise
        except Exception as error:
            from .._module_path import mark

            mark(error, self)
            raise

    # -- attributes ----------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        d = self.__dict__
        for members in ("_parameters", "_buffers", "_modules"):
            if members in d and name in d[members]:
                return d[members][name]
        if name in SELDOM_USED and "_parameters" in d:
            return made_when_used(self, name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        d = self.__dict__
        members = d.get("_parameters"), d.get("_buffers"), d.get("_modules")
        if isinstance(value, Parameter):
            _need_init(self)
            self._forget(name, d["_parameters"])
            self.register_parameter(name, value)
        elif members[0] is not None and name in members[0]:
            if value is not None:
                raise TypeError(f"{type(self).__name__}.{name} is a parameter: assign a Parameter or None, got {type(value).__name__}")
            members[0][name] = None
        elif isinstance(value, Module):
            _need_init(self)
            self._forget(name, d["_modules"])
            d["_modules"][name] = registered(_global_module_registration_hooks, self, name, value)
        elif members[2] is not None and name in members[2]:
            if value is not None:
                raise TypeError(f"{type(self).__name__}.{name} is a module: assign a Module or None, got {type(value).__name__}")
            members[2][name] = None
        elif isinstance(value, Buffer):
            _need_init(self)
            if value.persistent:
                self.register_buffer(name, value)  # a subclass's own may know nothing of `persistent`
            else:
                self.register_buffer(name, value, persistent=False)
        elif members[1] is not None and name in members[1] and (value is None or isinstance(value, Tensor)):
            members[1][name] = value
        elif members[1] is not None and name in members[1]:
            raise TypeError(f"{type(self).__name__}.{name} is a buffer: assign a Tensor or None, got {type(value).__name__}")
        else:
            object.__setattr__(self, name, value)

    def _forget(self, name: str, new_members: Dict[str, Any]) -> None:
        """Takes the name from wherever it is, but for the dict where it will be: there it keeps its turn."""
        for members in (self.__dict__, self._parameters, self._buffers, self._modules):
            if members is not new_members:
                members.pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def __delattr__(self, name: str) -> None:
        for members in (self._parameters, self._buffers, self._modules):
            if name in members:
                del members[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> List[str]:
        names = {*object.__dir__(self), *self._parameters, *self._buffers, *self._modules}
        return sorted(name for name in names if not name[:1].isdigit())  # what cannot be written after a dot is no attribute

    # -- registering -----------------------------------------------------------------------------------------

    def _check_name(self, name: str, kind: str) -> None:
        _need_init(self)
        if not isinstance(name, str):
            raise TypeError(f"the name of a {kind} must be a string, got {type(name).__name__}")
        if name == "" or "." in name:
            raise KeyError(f"the name of a {kind} must not be empty or contain '.', got '{name}'")

    def register_parameter(self, name: str, param: Optional[Parameter]) -> None:
        """Adds a parameter under ``name``."""
        self._check_name(name, "parameter")
        if hasattr(self, name) and name not in self._parameters:
            raise KeyError(f"attribute '{name}' already exists")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"register_parameter: '{name}' must be a Parameter or None, got {type(param).__name__}")
        self._parameters[name] = registered(_global_parameter_registration_hooks, self, name, param)

    def register_buffer(self, name: str, tensor: Optional[Tensor], persistent: bool = True) -> None:
        """Adds a tensor that is saved with the module (unless not ``persistent``) but not trained."""
        self._check_name(name, "buffer")
        if hasattr(self, name) and name not in self._buffers:
            raise KeyError(f"attribute '{name}' already exists")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"register_buffer: '{name}' must be a Tensor or None, got {type(tensor).__name__}")
        self._buffers[name] = registered(_global_buffer_registration_hooks, self, name, tensor)
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name: str, module: Optional[Module]) -> None:
        """Adds a child module under ``name``."""
        self._check_name(name, "module")
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"add_module: '{name}' must be a Module or None, got {type(module).__name__}")
        if hasattr(self, name) and name not in self._modules:
            raise KeyError(f"attribute '{name}' already exists")
        self._modules[name] = registered(_global_module_registration_hooks, self, name, module)

    register_module = add_module

    # -- walking ------------------------------------------------------------------------------------------------

    def named_modules(self, memo: Optional[Set[Module]] = None, prefix: str = "", remove_duplicate: bool = True) -> Iterator[Tuple[str, Module]]:
        """(path, module) of this module and all below it."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it, each once unless ``remove_duplicate`` is False."""
        for _, m in self.named_modules(remove_duplicate=remove_duplicate):
            yield m

    def named_children(self) -> Iterator[Tuple[str, Module]]:
        """(name, module) of the direct children."""
        seen = set()
        for name, child in self._modules.items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator[Module]:
        """The direct children."""
        for _, m in self.named_children():
            yield m

    def _named_members(self, get_members_fn: Callable[[Module], Iterable[Tuple[str, Any]]], prefix: str = "", recurse: bool = True,
                       remove_duplicate: bool = True) -> Iterator[Tuple[str, Any]]:
        seen: Set[int] = set()
        for path, m in self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]:
            for name, value in get_members_fn(m):
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[Tuple[str, Parameter]]:
        """(path, parameter) of this module and all below it."""
        return self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters of this module and all below it."""
        for _, p in self.named_parameters(recurse=recurse):
            yield p

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[Tuple[str, Tensor]]:
        """(path, buffer) of this module and all below it."""
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this module and all below it."""
        for _, b in self.named_buffers(recurse=recurse):
            yield b

    def _descend(self, target: str) -> Module:
        m: Any = self
        for name in target.split(".") if target else []:
            if name not in m._modules:
                raise AttributeError(f"there is no module '{target}': {type(m).__name__} has no child '{name}'")
            m = m._modules[name]
        return m

    def _leaf(self, target: str, kind: str) -> Any:
        path, _, name = target.rpartition(".")
        members = getattr(self._descend(path), f"_{kind}s")
        if name not in members:
            raise AttributeError(f"there is no {kind} '{target}'")
        return members[name]

    def get_submodule(self, target: str) -> Module:
        """The module at a dotted path."""
        return self._descend(target)

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Puts a module at a dotted path, in place of the one there if there is any. ValueError for an empty path or what is no Module;
        AttributeError where the path leads to no module, and with ``strict`` where there is none to replace."""
        if target == "" or not isinstance(module, Module):
            raise ValueError(f"set_submodule: expected a path and a Module, got {target!r} and {type(module).__name__}")
        path, _, name = target.rpartition(".")
        parent = self._descend(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"set_submodule: there is no module '{target}' to replace; `strict=False` adds it")
        if not isinstance(getattr(parent, name, module), Module):
            raise AttributeError(f"set_submodule: '{target}' is no module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path."""
        return self._leaf(target, "parameter")

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path."""
        return self._leaf(target, "buffer")

    # -- changing ---------------------------------------------------------------------------------------------------

    def apply(self, fn: Callable[[Module], None]) -> Module:
        """Calls ``fn`` on every module below and on this one."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Module:
        for child in self.children() if recurse else []:
            child._apply(fn)
        for p in self._parameters.values():
            if p is None:
                continue
            changed = fn(p.detach())
            if changed is not p:
                p.data = changed
            if p.grad is not None:
                p.grad.data = fn(p.grad.detach())
        for name, b in self._buffers.items():
            if b is not None:
                self._buffers[name] = fn(b)
        return self

    def to(self, *args: Any, device: Any = None, dtype: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Module:
        """Moves to a device or casts floating point parameters and buffers to ``dtype``, in place. Parameters stay row-major in any
        ``memory_format``: products read a packed copy of them."""
        check_format(memory_format, "Module.to")
        if args:  # they count, and words for what they do not say
            given = parse_to(*args)
            device, dtype, non_blocking = given[0] or device, given[1] or dtype, non_blocking or given[2]
        device = None if device is None else check_device(device)
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"Module.to: parameters can be cast to floating point dtypes only, got {dtype}")
        return self._apply(lambda t: t.to(dtype=dtype if t.is_floating_point() else None, device=device, non_blocking=non_blocking))

    def _cast(self, dtype: Any) -> Module:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self) -> Module:
        """Casts to float32."""
        return self._cast(_C.float32)

    def double(self) -> Module:
        """Casts to float64."""
        return self._cast(_C.float64)

    def half(self) -> Module:
        """Casts to float16."""
        return self._cast(_C.float16)

    def bfloat16(self) -> Module:
        """Casts to bfloat16."""
        return self._cast(_C.bfloat16)

    def type(self, dst_type: Any) -> Module:
        """Casts every parameter and buffer."""
        return self._apply(lambda t: t.type(dst_type))

    def cpu(self) -> Module:
        """Moves parameters and buffers to the CPU."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device: Any = None) -> Module:
        """Moves parameters and buffers to a GPU. RuntimeError when there is none that can be used, and for another device."""
        there = gpu_asked_for(device)
        return self._apply(lambda t: t.to(there))

    def train(self, mode: bool = True) -> Module:
        """Sets training mode here and below."""
        if not isinstance(mode, bool):
            raise ValueError(f"train: `mode` must be a bool, got {type(mode).__name__}")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self) -> Module:
        """Sets evaluation mode here and below."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Sets requires_grad of every parameter."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets (or zeroes) every parameter's gradient."""
        zero_grad(self.parameters(), set_to_none)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Module:
        """Moves parameters and buffers to a device without their values, which are undefined then: from 'meta' to where they are filled."""
        return self._apply(lambda t: make.empty_like(t, device=device), recurse)

    def share_memory(self) -> Module:
        """Moves every parameter and buffer to memory that processes share (see Tensor.share_memory_)."""
        from ..._tensor.shared_memory import register_kinds, share

        tensors = [*self.parameters(), *self.buffers()]
        storages = dict.fromkeys(t.untyped_storage() for t in tensors)
        share([s for s in storages if not s.is_shared()])
        register_kinds(*{type(t) for t in tensors})
        return self

    # -- saving ---------------------------------------------------------------------------------------------------------

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Dict[str, Any]:
        """Parameters and persistent buffers by path, detached unless ``keep_vars``."""
        if args:
            destination = args[0]
            prefix = args[1] if len(args) > 1 else prefix
            keep_vars = args[2] if len(args) > 2 else keep_vars
        out: Any = destination
        if out is None:
            out = OrderedDict()
            out._metadata = OrderedDict()  # by the modules' paths, as in torch
        for hook in self.__dict__.get("_state_dict_pre_hooks", NONE).values():
            hook(self, prefix, keep_vars)
        about = {"version": self._version}
        if hasattr(out, "_metadata"):
            out._metadata[prefix[:-1]] = about
        self._save_to_state_dict(out, prefix, keep_vars)
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=out, prefix=prefix + name + ".", keep_vars=keep_vars)
        for hook in self.__dict__.get("_state_dict_hooks", NONE).values():
            changed = hook(self, out, prefix, about)
            if changed is not None and getattr(hook, "_from_public_api", False):
                raise RuntimeError(f"a hook of register_state_dict_post_hook must return None, got {changed.__class__.__name__}")
            out = out if changed is None else changed
        return out

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, p in self._parameters.items():
            if p is not None:
                destination[prefix + name] = p if keep_vars else p.detach()
        for name, b in self._buffers.items():
            if b is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = b if keep_vars else b.detach()
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def get_extra_state(self) -> Any:
        """Override to save more than tensors."""
        raise RuntimeError("get_extra_state is not defined")

    def set_extra_state(self, state: Any) -> None:
        """Override to load what get_extra_state gave."""
        raise RuntimeError("set_extra_state is not defined")

    set_extra_state._is_default = True  # type: ignore[attr-defined]

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> _IncompatibleKeys:
        """Copies (or with ``assign`` takes over) tensors by path. With ``strict``, RuntimeError that lists every
        missing and unexpected key; always RuntimeError for shapes that differ. Nothing is loaded then, but for modules that override
        ``_load_from_state_dict``. With ``assign`` make optimizers afterwards: parameters are replaced."""
        return load_into(self, state_dict, strict, assign)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: List[str],
                              unexpected_keys: List[str], error_msgs: List[str]) -> None:
        """Loads this module's own entries, not its children's. What a class overrides it with loads at once, all else when every key fits."""
        for hook in self.__dict__.get("_load_state_dict_pre_hooks", NONE).values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        self._complete(state_dict, prefix, local_metadata)
        at_once = type(self)._load_from_state_dict is not Module._load_from_state_dict or not isinstance(local_metadata, Metadata)
        plan = [] if at_once else local_metadata.plan
        plan_own(self, state_dict, prefix, plan, missing_keys if strict else [], unexpected_keys if strict else [], error_msgs)
        if at_once:
            load_planned(plan, local_metadata.get("assign_to_params_buffers", False), error_msgs)

    def _complete(self, state_dict: Any, prefix: str, local_metadata: Any) -> None:
        """Adds to a state dict what an older version of the module did not save."""

    def _load_one(self, kind: str, name: str, value: Any, assign: bool) -> None:
        if kind == "extra":
            self.set_extra_state(value)
            return
        own = self.__dict__[kind][name]
        if is_lazy(own) and is_lazy(value):
            return  # it stays as it is
        with no_grad():
            if not assign:
                if own.is_meta and not value.is_meta:
                    warn(f"load_state_dict: {name!r} of {type(self).__name__} is on the device meta, which keeps no values, so the checkpoint's "
                         "are lost; pass assign=True, or call the model's to_empty(device=...) first")
                own.copy_(value)
            elif isinstance(own, Parameter):
                given = value if isinstance(value, Parameter) else Parameter(value, requires_grad=own.requires_grad)
                setattr(self, name, given.requires_grad_(own.requires_grad))
            else:
                setattr(self, name, value)

    # -- printing and copying ------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What repr shows besides the children."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        own = self.extra_repr()
        lines = own.split("\n") if own else []
        children = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in self._modules.items()]
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({own})"
        return self._get_name() + "(\n  " + "\n  ".join(lines + children) + "\n)"

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)

    def _replicate_for_data_parallel(self) -> Module:
        """A copy that shares all but the dictionaries of buffers and modules, and has no parameters: modules override it to change their replicas."""
        replica = self.__new__(type(self))
        replica.__dict__ = {**self.__dict__, "_parameters": {}, "_buffers": dict(self._buffers), "_modules": dict(self._modules), "_is_replica": True}
        return replica

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: there is no compiler to run. A UserWarning says so once."""
        say_that_nothing_is_compiled()


register_module_class(Module)
