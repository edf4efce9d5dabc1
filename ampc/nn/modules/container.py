"""Modules that contain modules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Optional, Union

from ..._C import Tensor
from ..._callers import warn
from ..parameter import Parameter
from .module import Module

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class Container(Module):
    """A module of those given by name. Deprecated, as torch's: write a Module."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        warn("nn.Container is deprecated: its work is done by nn.Module")
        for name, module in kwargs.items():
            self.add_module(name, module)


class _Listed(Module):
    """Base of modules that hold others by position."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def _name_at(self, index: int) -> str:
        names = list(self._modules)
        if not -len(names) <= index < len(names):
            raise IndexError(f"index {index} is out of range for {len(names)} modules")
        return names[index]

    def __getitem__(self, index: Union[int, slice]) -> Any:
        if isinstance(index, slice):
            return self._part(list(self._modules.items())[index])
        return self._modules[self._name_at(index)]

    def _part(self, named: list) -> Any:
        raise NotImplementedError

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name_at(index), module)

    def __delitem__(self, index: Union[int, slice]) -> None:
        for name in list(self._modules)[index] if isinstance(index, slice) else [self._name_at(index)]:
            delattr(self, name)
        self._number(list(self))

    def _number(self, modules: Iterable[Module]) -> None:
        self.__dict__["_modules"] = {str(i): m for i, m in enumerate(modules)}

    def append(self, module: Module) -> Any:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Adds modules at the end. TypeError for what is not iterable."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"{type(self).__name__}: expected an iterable of modules, got {type(modules).__name__}")
        for m in list(modules):
            self.append(m)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Puts a module before position ``index``."""
        modules = list(self)
        modules.insert(index, module)
        self._number(modules)

    def pop(self, key: Union[int, slice]) -> Any:
        """Takes a module out, or several."""
        found = self[key]
        del self[key]
        return found


class Sequential(_Listed):
    """Modules called one after another: ``Sequential(a, b, c)`` or ``Sequential(OrderedDict(name=module))``.

    ``+`` joins two, and ``*`` repeats the same modules; ValueError for what is no Sequential, and for less than one time."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], (list, tuple)):
            raise TypeError(f"Sequential: modules are separate arguments, got one {type(args[0]).__name__}; write Sequential(*modules)")
        named = args[0].items() if len(args) == 1 and isinstance(args[0], (dict, OrderedDict)) else enumerate(args)
        for name, module in named:
            self.add_module(str(name), module)

    def _part(self, named: list) -> Any:
        return type(self)(OrderedDict(named))

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    def insert(self, index: int, module: Module) -> Sequential:
        """Puts a module before position ``index``. IndexError beyond the end."""
        if not isinstance(module, Module):
            raise AssertionError(f"Sequential.insert: expected a Module, got {type(module).__name__}")
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Sequential.insert: position {index} of {len(self)} modules")
        super().insert(index, module)
        return self

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self).__iadd__(other)

    def __iadd__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"Sequential: only another Sequential can be added, got {type(other).__name__}")
        return self.extend(other)

    def __mul__(self, times: int) -> Sequential:
        return Sequential(*self).__imul__(times)

    __rmul__ = __mul__

    def __imul__(self, times: int) -> Sequential:
        if not isinstance(times, int):
            raise TypeError(f"Sequential: can be repeated a number of times, got {type(times).__name__}")
        if times < 1:
            raise ValueError(f"Sequential: can be repeated 1 time or more, got {times}")
        return self.extend(list(self) * (times - 1))


class ModuleList(_Listed):
    """A list whose modules are registered."""

    def __init__(self, modules: Optional[Iterable[Module]] = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def _part(self, named: list) -> Any:
        return type(self)(module for _, module in named)

    def __contains__(self, module: object) -> bool:
        return any(m is module for m in self)

    def __add__(self, modules: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *modules])

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)


class _Named(Module):
    """Base of modules that hold something by name, in the order it came."""

    def _names(self) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._names())

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __contains__(self, key: object) -> bool:
        return key in self._names()

    def __getitem__(self, key: str) -> Any:
        if key not in self:
            raise KeyError(key)
        return getattr(self, key)

    def keys(self) -> Any:
        """The names."""
        return self._names()

    def values(self) -> Any:
        """What they name."""
        return dict(self.items()).values()

    def items(self) -> Any:
        """Pairs of both."""
        return {key: self[key] for key in self}.items()

    def clear(self) -> None:
        """Forgets all."""
        for key in list(self):
            del self[key]

    def pop(self, key: str) -> Any:
        """Takes one out."""
        value = self[key]
        del self[key]
        return value

    def update(self, parameters: Any) -> None:
        """Adds those of a mapping, or of pairs. TypeError for something else."""
        if not isinstance(parameters, Iterable):
            raise TypeError(f"{type(self).__name__}: expected a mapping or pairs of names and values, got {type(parameters).__name__}")
        for key, value in parameters.items() if hasattr(parameters, "items") else parameters:
            self[key] = value


class ModuleDict(_Named):
    """Modules by name, in the order they came."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def _names(self) -> Any:
        return self._modules.keys()

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __delitem__(self, key: str) -> None:
        del self._modules[key]


def _listed(holder: Module, items: Iterable) -> str:
    lines = [f"  ({name}): {type(p).__name__} containing: [{p.dtype} of size {'x'.join(map(str, p.shape))}]" if isinstance(p, Tensor) else
             f"  ({name}): {type(p).__name__}" for name, p in items]
    return "\n".join([f"{type(holder).__name__}(", *lines, ")"]) if lines else f"{type(holder).__name__}()"


class ParameterList(Module):
    """Parameters in a list; Tensors that are none become Parameters."""

    def __init__(self, values: Any = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _key(self, i: int) -> str:
        if not -self._size <= i < self._size:
            raise IndexError(f"ParameterList: index {i} of {self._size}")
        return str(i % self._size)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return type(self)([self[k] for k in range(*i.indices(self._size))])
        return getattr(self, self._key(i))

    def __setitem__(self, i: int, value: Any) -> None:
        setattr(self, self._key(i), _as_parameter(value))

    def __repr__(self) -> str:
        return _listed(self, enumerate(self))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(self._size))

    def __iadd__(self, values: Iterable) -> ParameterList:
        return self.extend(values)

    def append(self, value: Any) -> ParameterList:
        """Adds one at the end."""
        self._size += 1
        self[-1] = value
        return self

    def extend(self, values: Iterable) -> ParameterList:
        """Adds several. TypeError for a single Tensor."""
        if isinstance(values, Tensor) or not isinstance(values, Iterable):
            raise TypeError(f"ParameterList: expected an iterable of parameters, got {type(values).__name__}")
        for value in values:
            self.append(value)
        return self


class ParameterDict(_Named):
    """Parameters by name, in the order they came; Tensors that are none become Parameters."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict = {}
        if parameters is not None:
            self.update(parameters)

    def _names(self) -> Any:
        return self._keys.keys()

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[key] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __repr__(self) -> str:
        return _listed(self, self.items())

    def get(self, key: str, default: Any = None) -> Any:
        """One by name, or ``default``."""
        return self[key] if key in self else default  # noqa: SIM401 - this is it


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value
