"""Parameters that are computed from others each time they are read, as in torch.nn.utils.parametrize.

``module.weight`` becomes ``parametrization(original)``, and training changes the original. ``module.parametrizations.weight`` holds it."""

from __future__ import annotations

import contextlib
import copy
import sys
from typing import Any, Dict, List, Optional, Tuple

from ... import _C
from ..._C import Tensor
from ...autograd import no_grad
from ..modules.container import ModuleDict, ModuleList
from ..modules.module import Module
from ..parameter import Parameter

__all__ = ["ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
           "transfer_parametrizations_and_params", "type_before_parametrizations"]

_cache: Optional[Dict[Tuple[int, str], Any]] = None


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied in order to ``original``, or to ``original0``, ``original1``, ... where the
    first of them needs several."""

    def __init__(self, modules: List[Module], original: Any, unsafe: bool = False) -> None:
        super().__init__(modules)
        self.unsafe = unsafe
        first = original
        with no_grad():
            for m in reversed(modules):
                if hasattr(m, "right_inverse"):
                    with contextlib.suppress(NotImplementedError):  # then the value is trained as it is
                        first = m.right_inverse(first)
        self.is_tensor, self.ntensors = isinstance(first, Tensor), 1 if isinstance(first, Tensor) else len(first)
        values = [first] if self.is_tensor else list(first)
        for i, value in enumerate(values):
            if not isinstance(value, Tensor):
                raise ValueError(f"parametrize: right_inverse must return a Tensor or several, got {type(value).__name__}")
            name = "original" if self.is_tensor else f"original{i}"
            if self.is_tensor and isinstance(original, Parameter):
                original.data = value.detach()
                self.register_parameter(name, original)
            elif isinstance(original, Parameter):
                self.register_parameter(name, Parameter(value.detach().clone(), original.requires_grad))
            else:
                self.register_buffer(name, value)
        self._check(original)

    def _check(self, original: Tensor) -> None:
        if self.unsafe:
            return
        with no_grad():
            _need_like(self(), original, "the parametrization")

    def _originals(self) -> List[Tensor]:
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Sets the originals so that the parametrized tensor becomes ``value``. RuntimeError where a parametrization has no
        ``right_inverse``."""
        with no_grad():
            back: Any = value
            for m in reversed(list(self)):
                if not hasattr(m, "right_inverse"):
                    raise RuntimeError(f"parametrize: {type(m).__name__} has no right_inverse, so the tensor cannot be assigned")
                back = m.right_inverse(back)
            for original, new in zip(self._originals(), [back] if self.is_tensor else back):
                original.data = new.detach().clone()

    def forward(self) -> Tensor:
        steps = list(self)
        x = steps[0](*self._originals())
        for m in steps[1:]:
            x = m(x)
        return x


class cached(_C.Scope):
    """Inside, each parametrized tensor is made once and then read again."""

    def _changes(self) -> tuple:
        module = sys.modules[__name__]
        return ((setattr, (module, "_cache", {} if _cache is None else _cache), setattr, (module, "_cache", _cache)),)


def _read(module: Module, name: str) -> Tensor:
    made = module.parametrizations[name]
    if _cache is None:
        return made()
    key = (id(module), name)
    if key not in _cache:
        _cache[key] = made()
    return _cache[key]


def _property(name: str) -> property:
    def read(self: Module) -> Tensor:
        return _read(self, name)

    def write(self: Module, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(read, write)


def _refuse_to_pickle(module: Module) -> None:
    """A module whose class exists in this process alone."""
    raise RuntimeError(f"{type(module).__name__}: a parametrized module cannot be pickled; save its state_dict()")


def _own_class(module: Module) -> None:
    """Gives this one module a class of its own, where the parametrized names are properties."""
    if hasattr(type(module), "_before_parametrizations"):
        return
    cls = type(module)

    def of_class(self: Module, memo: Dict[int, Any]) -> Any:  # a copy is parametrized like the module
        copied = self.__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), {"_before_parametrizations": cls, "__deepcopy__": of_class,
                                                                    "__getstate__": _refuse_to_pickle, "__module__": cls.__module__})
    module.parametrizations = ModuleDict()


def _need_like(made: Any, wanted: Tensor, what: str) -> None:
    if isinstance(made, Tensor) and made.shape == wanted.shape and made.dtype == wanted.dtype:
        return
    got = f"{made.dtype} {tuple(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
    raise ValueError(f"parametrize: {what} must give a tensor like the one it replaces, {wanted.dtype} {tuple(wanted.shape)}, and gave "
                     f"{got}; unsafe=True allows it")


def _check_next(parametrization: Module, before: Tensor) -> None:
    """Whether a further parametrization gives, forwards and backwards, tensors like what was shown before it."""
    made = parametrization(before)
    _need_like(made, before, "the parametrization")
    if hasattr(parametrization, "right_inverse"):
        with contextlib.suppress(NotImplementedError):
            _need_like(parametrization.right_inverse(made), before, "right_inverse")


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Module:
    """Makes ``module.<tensor_name>`` (a parameter, a buffer, or parametrized already) the result of ``parametrization``.
    The ``right_inverse`` of the first parametrization, when it has one, gives the first value of what is trained; a further one changes
    what the tensor shows, and not what is trained. ValueError when there is no such tensor, or the result is not like it and ``unsafe`` is
    not set."""
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        chain = module.parametrizations[tensor_name]
        if not unsafe:
            _check_next(parametrization, getattr(module, tensor_name))
        chain.append(parametrization)
        chain.unsafe = chain.unsafe or unsafe
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(f"parametrize: {type(module).__name__} has no parameter or buffer named {tensor_name!r}")
    original = getattr(module, tensor_name)
    chain = ParametrizationList([parametrization], original, unsafe)
    delattr(module, tensor_name)
    _own_class(module)
    module.parametrizations[tensor_name] = chain
    setattr(type(module), tensor_name, _property(tensor_name))
    return module


def is_parametrized(module: Module, tensor_name: Optional[str] = None) -> bool:
    """Whether anything, or the named tensor, of the module is parametrized."""
    chains = module._modules.get("parametrizations")
    if not isinstance(chains, ModuleDict):
        return False
    return len(chains) > 0 if tensor_name is None else tensor_name in chains


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Makes the tensor an ordinary one again: with the value it shows, or with its original's. ValueError when it is not
    parametrized, or has several originals and ``leave_parametrized`` is False."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"parametrize: {tensor_name!r} of {type(module).__name__} is not parametrized")
    chain = module.parametrizations[tensor_name]
    if not leave_parametrized and not chain.is_tensor:
        raise ValueError("parametrize: leave_parametrized=False needs a tensor that is made of one original")
    with no_grad():
        shown = getattr(module, tensor_name).detach().clone()
    originals = chain._originals()
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    kept: Tensor = originals[0] if chain.is_tensor else Parameter(shown) if isinstance(originals[0], Parameter) else shown
    if leave_parametrized and chain.is_tensor:
        kept.data = shown
    if isinstance(kept, Parameter):
        module.register_parameter(tensor_name, kept)
    else:
        module.register_buffer(tensor_name, kept)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type_before_parametrizations(module)
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class the module had before it was parametrized."""
    return getattr(type(module), "_before_parametrizations", type(module))


def transfer_parametrizations_and_params(from_module: Module, to_module: Module, tensor_name: Optional[str] = None) -> Module:
    """Gives ``to_module`` the parametrizations of ``from_module`` (all, or those of one tensor) with their originals."""
    if not is_parametrized(from_module, tensor_name):
        raise ValueError(f"parametrize: {type(from_module).__name__} has nothing parametrized to transfer")
    for name in list(from_module.parametrizations) if tensor_name is None else [tensor_name]:
        chain = copy.deepcopy(from_module.parametrizations[name])
        if is_parametrized(to_module, name):
            raise ValueError(f"parametrize: {name!r} of the target is parametrized already")
        _own_class(to_module)
        if name in to_module._parameters or name in to_module._buffers:
            delattr(to_module, name)
        to_module.parametrizations[name] = chain
        setattr(type(to_module), name, _property(name))
    return to_module
