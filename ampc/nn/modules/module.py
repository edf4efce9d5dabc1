"""Module: the base of layers and models. Behaviour as torch.nn.Module."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set, Tuple

from ... import _C
from ... import _creation as make
from ..._C import Tensor
from ..._callers import warn
from ..._device import check_device
from ..._layout import check_format
from ..._model_names import register_module_class
from ...amp._regions import call_module
from ...autograd import no_grad
from ...autograd.hooks import RemovableHandle
from ...compiler import compile as hand_back
from ...policy import state as policies
from .._backward_hooks import BackwardHooks
from .._global_hooks import *  # noqa: F403
from .._global_hooks import HOOK_DICTS, everywhere, forward_hooks_of, pre_hooks_of, registered
from .._loading import _EXTRA_STATE_KEY_SUFFIX, _IncompatibleKeys, hint, kind_of, load_planned, post_hooks
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


class Module:
    """A part of a model: parameters, buffers and other Modules, assigned as attributes, and a ``forward``."""

    training: bool
    dump_patches = False
    _version = 1

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            raise TypeError(f"{type(self).__name__}.__init__ takes no arguments here, got {args or kwargs}")
        d = self.__dict__
        d["training"] = True
        d["_parameters"], d["_buffers"], d["_modules"] = {}, {}, {}
        d["_non_persistent_buffers_set"] = set()
        d.update((name, OrderedDict()) for name in HOOK_DICTS)

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
            if not (everywhere or d["_forward_hooks"] or d["_forward_pre_hooks"] or d["_backward_hooks"] or d["_backward_pre_hooks"]):
                return self.forward(*args, **kwargs)
            return self._call_with_hooks(args, kwargs)
        except RecursionError:  # no calls are left to name modules with
            raise
        except Exception as error:
            from .._module_path import mark

            mark(error, self)
            raise

    def _call_with_hooks(self, args: tuple, kwargs: dict) -> Any:
        for hook, with_kwargs in pre_hooks_of(self):
            changed = hook(self, args, kwargs) if with_kwargs else hook(self, args)
            if changed is None:
                continue
            if with_kwargs:
                args, kwargs = changed
            else:
                args = changed if isinstance(changed, tuple) else (changed,)
        backward = BackwardHooks(self)
        args = backward.watch_inputs(args)
        result, left = None, forward_hooks_of(self)
        try:
            result = self.forward(*args, **kwargs)
            while left:
                hook, with_kwargs, _ = left.pop(0)
                changed = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
                result = result if changed is None else changed
        except Exception:
            self._call_those_left(left, args, kwargs, result)
            raise
        return backward.watch_outputs(result)

    def _call_those_left(self, hooks: list, args: tuple, kwargs: dict, result: Any) -> None:
        """The forward hooks that are called even where forward, or a hook before them, has raised. What they raise is a warning."""
        for hook, with_kwargs, always in hooks:
            if not always:
                continue
            try:
                changed = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
                result = result if changed is None else changed
            except Exception as error:
                warn(f"an always_call hook raised {type(error).__name__}: {error}; the first error is raised")

    # -- attributes ----------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        d = self.__dict__
        for members in ("_parameters", "_buffers", "_modules"):
            if members in d and name in d[members]:
                return d[members][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        d = self.__dict__
        members = d.get("_parameters"), d.get("_buffers"), d.get("_modules")
        if isinstance(value, Parameter):
            _need_init(self)
            self._forget(name, d["_parameters"])
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            _need_init(self)
            self._forget(name, d["_modules"])
            d["_modules"][name] = registered("module", self, name, value)
        elif isinstance(value, Buffer):
            _need_init(self)
            self._forget(name, d["_buffers"])
            self.register_buffer(name, value, value.persistent)
        elif members[0] is not None and name in members[0]:
            if value is not None:
                raise TypeError(f"{type(self).__name__}.{name} is a parameter: assign a Parameter or None, got {type(value).__name__}")
            members[0][name] = None
        elif members[2] is not None and name in members[2] and value is None:
            members[2][name] = None
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
        return sorted({*object.__dir__(self), *self._parameters, *self._buffers, *self._modules})

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
        self._parameters[name] = registered("parameter", self, name, param)

    def register_buffer(self, name: str, tensor: Optional[Tensor], persistent: bool = True) -> None:
        """Adds a tensor that is saved with the module (unless not ``persistent``) but not trained."""
        self._check_name(name, "buffer")
        if hasattr(self, name) and name not in self._buffers:
            raise KeyError(f"attribute '{name}' already exists")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"register_buffer: '{name}' must be a Tensor or None, got {type(tensor).__name__}")
        self._buffers[name] = registered("buffer", self, name, tensor)
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name: str, module: Optional[Module]) -> None:
        """Adds a child module under ``name``."""
        self._check_name(name, "module")
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"add_module: '{name}' must be a Module or None, got {type(module).__name__}")
        if hasattr(self, name) and name not in self._modules:
            raise KeyError(f"attribute '{name}' already exists")
        self._modules[name] = registered("module", self, name, module)

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

    def modules(self) -> Iterator[Module]:
        """This module and all below it."""
        for _, m in self.named_modules():
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

    def _named_members(self, members: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[Tuple[str, Any]]:
        seen: Set[int] = set()
        for path, m in self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]:
            for name, value in m.__dict__[members].items():
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[Tuple[str, Parameter]]:
        """(path, parameter) of this module and all below it."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters of this module and all below it."""
        for _, p in self.named_parameters(recurse=recurse):
            yield p

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[Tuple[str, Tensor]]:
        """(path, buffer) of this module and all below it."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

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
                grad = fn(p.grad.detach())
                p.grad = None
                p.grad = grad
        for name, b in self._buffers.items():
            if b is not None:
                self._buffers[name] = fn(b)
        return self

    def to(self, *args: Any, device: Any = None, dtype: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Module:
        """Moves to a device or casts floating point parameters and buffers to ``dtype``, in place. Parameters stay row-major in any
        ``memory_format``: products read a packed copy of them."""
        check_format(memory_format, "Module.to")
        for a in args:
            if isinstance(a, Tensor):
                dtype, device = a.dtype, a.device
            elif isinstance(a, _C.dtype):
                dtype = a
            elif a is not None and not isinstance(a, bool):
                device = a
        if device is not None:
            device = check_device(device)
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"Module.to: parameters can be cast to floating point dtypes only, got {dtype}")
        return self._apply(lambda t: t.to(dtype=dtype if t.is_floating_point() else None, device=device, non_blocking=non_blocking))

    def float(self) -> Module:
        """Casts to float32."""
        return self.to(_C.float32)

    def double(self) -> Module:
        """Casts to float64."""
        return self.to(_C.float64)

    def half(self) -> Module:
        """Casts to float16."""
        return self.to(_C.float16)

    def bfloat16(self) -> Module:
        """Casts to bfloat16."""
        return self.to(_C.bfloat16)

    def type(self, dst_type: Any) -> Module:
        """Casts every parameter and buffer."""
        return self._apply(lambda t: t.to(dst_type))

    def cpu(self) -> Module:
        """Moves parameters and buffers to the CPU."""
        return self.to("cpu")

    def cuda(self, device: Any = None) -> Module:
        """Moves parameters and buffers to a GPU. RuntimeError when there is none that can be used."""
        return self.to("cuda" if device is None else device)

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
        for p in self.parameters():
            if p.grad is None:
                continue
            if set_to_none:
                p.grad = None
            else:
                p.grad = p.grad.detach().zero_()

    def to_empty(self, *, device: Any, recurse: bool = True) -> Module:
        """Moves parameters and buffers to a device without their values, which are undefined then: from 'meta' to where they are filled."""
        return self._apply(lambda t: make.empty_like(t, device=device), recurse)

    def share_memory(self) -> Module:
        """Moves every parameter and buffer to memory that processes forked from this one share (see Tensor.share_memory_)."""
        for t in (*self.parameters(), *self.buffers()):
            t.share_memory_()
        return self

    # -- hooks ----------------------------------------------------------------------------------------------------------

    def register_forward_pre_hook(self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """Calls ``hook(module, args)`` before forward; what it returns replaces the arguments."""
        return _handle(self._forward_pre_hooks, hook, prepend, [self._forward_pre_hooks_with_kwargs] if with_kwargs else [])

    def register_forward_hook(self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False,
                              always_call: bool = False) -> RemovableHandle:
        """Calls ``hook(module, args, output)`` after forward; what it returns replaces the output. With ``always_call`` after a forward
        that raised, too: with the output so far, or None."""
        marks = {"_forward_hooks_with_kwargs": with_kwargs, "_forward_hooks_always_called": always_call}
        return _handle(self._forward_hooks, hook, prepend, [self.__dict__[name] for name, wanted in marks.items() if wanted])

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(module, grad_input, grad_output)`` when the gradient of the inputs is known; what it
        returns replaces ``grad_input``."""
        return _handle(self._backward_hooks, hook, prepend)

    register_backward_hook = register_full_backward_hook

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(module, grad_output)`` when the gradient of the outputs is known; what it returns
        replaces it."""
        return _handle(self._backward_pre_hooks, hook, prepend)

    def register_state_dict_hook(self, hook: Callable) -> RemovableHandle:
        """Calls ``hook(module, state_dict, prefix, local_metadata)`` after state_dict."""
        return _handle(self._state_dict_hooks, hook, False)

    _register_state_dict_hook = register_state_dict_hook

    def register_load_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Calls ``hook(module, state_dict, prefix, local_metadata, strict, missing, unexpected, errors)`` before loading."""
        return _handle(self._load_state_dict_pre_hooks, hook, False)

    def _register_load_state_dict_pre_hook(self, hook: Callable, with_module: bool = False) -> RemovableHandle:
        """register_load_state_dict_pre_hook, whose hook is called without the module unless ``with_module``."""
        return self.register_load_state_dict_pre_hook(hook if with_module else lambda _, *args: hook(*args))

    def register_load_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Calls ``hook(module, incompatible_keys)`` after loading, before missing and unexpected keys are an error: it may take some off."""
        return _handle(self._load_state_dict_post_hooks, hook, False)

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
        about = {"version": self._version}
        if hasattr(out, "_metadata"):
            out._metadata[prefix[:-1]] = about
        self._save_to_state_dict(out, prefix, keep_vars)
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=out, prefix=prefix + name + ".", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            changed = hook(self, out, prefix, about)
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

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> _IncompatibleKeys:
        """Copies (or with ``assign`` takes over) tensors by path. With ``strict``, RuntimeError that lists every
        missing and unexpected key; always RuntimeError for shapes that differ. Nothing is loaded then."""
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"load_state_dict: expected a dict, got {type(state_dict).__name__}")
        state: Any = OrderedDict(state_dict)
        state._metadata = getattr(state_dict, "_metadata", {})
        missing: List[str] = []
        errors: List[str] = []
        plan: List[Tuple[Module, str, str, Any]] = []
        known = self._plan_load(state, "", missing, errors, plan, strict)
        keys = _IncompatibleKeys(missing, [k for k in state if k not in known])
        hooks = list(post_hooks(self))
        if hooks and not errors:
            load_planned(plan, assign)
            plan = []
            for module, hook in hooks:
                if hook(module, keys) is not None:
                    raise AssertionError("a hook of register_load_state_dict_post_hook must return None, and change the keys in place")
        missing, unexpected = keys
        if strict and missing:
            errors.insert(0, "missing: " + ", ".join(missing))
        if strict and unexpected:
            errors.insert(0, "unexpected: " + ", ".join(unexpected) + hint(missing, unexpected))
        if errors:
            raise RuntimeError(f"load_state_dict of {type(self).__name__}:\n  " + "\n  ".join(errors))
        load_planned(plan, assign)
        return keys

    def _plan_load(self, state: Any, prefix: str, missing: List[str], errors: List[str], plan: list, strict: bool) -> Set[str]:
        for hook in self._load_state_dict_pre_hooks.values():
            hook(self, state, prefix, state._metadata.get(prefix[:-1], {}), strict, missing, [], errors)
        known: Set[str] = set()
        local = {n: ("_parameters", v) for n, v in self._parameters.items() if v is not None}
        local.update({n: ("_buffers", v) for n, v in self._buffers.items() if v is not None and n not in self._non_persistent_buffers_set})
        if type(self).set_extra_state is not Module.set_extra_state:
            local[_EXTRA_STATE_KEY_SUFFIX] = ("extra", None)
        for name, (kind, own) in local.items():
            key = prefix + name
            known.add(key)
            if key not in state:
                missing.append(key)
            elif kind != "extra" and not isinstance(state[key], Tensor):
                errors.append(f"{key}: expected an ampc.Tensor, got {kind_of(state[key])}")
            elif kind != "extra" and not is_lazy(own) and state[key].shape != own.shape:
                errors.append(f"{key}: the checkpoint has shape {list(state[key].shape)}, the model {list(own.shape)}")
            else:
                plan.append((self, kind, name, state[key]))
        for name, child in self._modules.items():
            if child is not None:
                known |= child._plan_load(state, prefix + name + ".", missing, errors, plan, strict)
        return known

    def _load_one(self, kind: str, name: str, value: Any, assign: bool) -> None:
        if kind == "extra":
            self.set_extra_state(value)
            return
        own = self.__dict__[kind][name]
        with no_grad():
            if not assign:
                own.copy_(value)
            elif kind == "_parameters":
                own.data = value
            else:
                self._buffers[name] = value

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
        self.__dict__.update({**{name: OrderedDict() for name in HOOK_DICTS}, **state})  # older files lack some

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: there is no compiler to run. A UserWarning says so once."""
        hand_back(self)


def _handle(hooks: Any, entry: Any, prepend: bool, marks: Any = ()) -> RemovableHandle:
    handle = RemovableHandle(hooks, entry, marks)
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


register_module_class(Module)
