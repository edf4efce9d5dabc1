"""Modules that contain modules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Optional, Union

from ..._C import Tensor
from ..._callers import warn
from ..parameter import Parameter
from .module import Module


class Container(Module):
    """A module of those given by name. Deprecated, as torch's: write a Module."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        warn("nn.Container is deprecated: its work is done by nn.Module")
        for name, module in kwargs.items():
            self.add_module(name, module)


class Sequential(Module):
    """Modules called one after another: ``Sequential(a, b, c)`` or ``Sequential(OrderedDict(name=module))``."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], (dict, OrderedDict)) else enumerate(args)
        for name, module in named:
            self.add_module(str(name), module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __getitem__(self, index: Union[int, slice]) -> Any:
        names = list(self._modules)
        if isinstance(index, slice):
            return type(self)(OrderedDict((n, self._modules[n]) for n in names[index]))
        return self._modules[_name_at(names, index)]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, _name_at(list(self._modules), index), module)

    def __delitem__(self, index: Union[int, slice]) -> None:
        names = list(self._modules)
        for n in names[index] if isinstance(index, slice) else [_name_at(names, index)]:
            delattr(self, n)
        self.__dict__["_modules"] = {str(i): m for i, m in enumerate(self._modules.values())}

    def append(self, module: Module) -> Sequential:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Sequential:
        """Adds modules at the end."""
        for m in modules:
            self.append(m)
        return self

    def insert(self, index: int, module: Module) -> Sequential:
        """Puts a module before position ``index``."""
        modules = list(self._modules.values())
        modules.insert(index, module)
        self.__dict__["_modules"] = {str(i): m for i, m in enumerate(modules)}
        return self


def _name_at(names: list, index: int) -> str:
    if not -len(names) <= index < len(names):
        raise IndexError(f"index {index} is out of range for {len(names)} modules")
    return names[index]


class ModuleList(Module):
    """A list whose modules are registered."""

    def __init__(self, modules: Optional[Iterable[Module]] = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __contains__(self, module: object) -> bool:
        return any(m is module for m in self)

    def __getitem__(self, index: Union[int, slice]) -> Any:
        names = list(self._modules)
        if isinstance(index, slice):
            return ModuleList(self._modules[n] for n in names[index])
        return self._modules[_name_at(names, index)]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, _name_at(list(self._modules), index), module)

    def _renumber(self, modules: list) -> ModuleList:
        self.__dict__["_modules"] = {str(i): m for i, m in enumerate(modules)}
        return self

    def __delitem__(self, index: Union[int, slice]) -> None:
        modules = list(self)
        del modules[index]
        self._renumber(modules)

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def append(self, module: Module) -> ModuleList:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Adds modules at the end."""
        for m in modules:
            self.append(m)
        return self

    def insert(self, index: int, module: Module) -> None:
        """Puts a module before position ``index``."""
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)

    def pop(self, index: int) -> Module:
        """Takes a module out."""
        module = self[index]
        del self[index]
        return module


class ModuleDict(Module):
    """Modules by name, in the order they came."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def keys(self) -> Any:
        """The names."""
        return self._modules.keys()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def items(self) -> Any:
        """Pairs of both."""
        return self._modules.items()

    def clear(self) -> None:
        """Forgets all."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Takes one out."""
        return self._modules.pop(key)

    def update(self, modules: Any) -> None:
        """Adds those of a mapping, or of pairs. TypeError for something else."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleDict: expected a mapping or pairs of names and modules, got {type(modules).__name__}")
        for key, module in modules.items() if hasattr(modules, "items") else modules:
            self[key] = module


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


class ParameterDict(Module):
    """Parameters by name, in the order they came; Tensors that are none become Parameters."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[key] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __repr__(self) -> str:
        return _listed(self, self.items())

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def keys(self) -> Any:
        """The names."""
        return self._keys.keys()

    def values(self) -> Any:
        """The parameters."""
        return (self[k] for k in self._keys)

    def items(self) -> Any:
        """Pairs of both."""
        return ((k, self[k]) for k in self._keys)

    def get(self, key: str, default: Any = None) -> Any:
        """One by name, or ``default``."""
        return self[key] if key in self else default  # noqa: SIM401 - this is it

    def pop(self, key: str) -> Any:
        """Takes one out."""
        value = self[key]
        del self[key]
        return value

    def update(self, parameters: Any) -> None:
        """Adds those of a mapping, or of pairs."""
        for key, value in parameters.items() if hasattr(parameters, "items") else parameters:
            self[key] = value


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value
