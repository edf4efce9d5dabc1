"""Modules that contain modules."""

from __future__ import annotations

import itertools
import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable, Optional, Tuple, Union

from ..._C import Tensor
from ..._messages.callers import warn
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

    _get_abs_string_index = _Listed._name_at  # torch's name, which subclasses of libraries call

    def __contains__(self, module: object) -> bool:
        return any(m is module for m in self)

    def __repr__(self) -> str:
        equal = [(text, [i for i, _ in group]) for text, group in itertools.groupby(enumerate(map(repr, self)), key=lambda pair: pair[1])]
        lines = [f"({of[0]}): {text}" if len(of) == 1 else f"({of[0]}-{of[-1]}): {len(of)} x {text}" for text, of in equal]
        return f"{self._get_name()}(" + "".join("\n  " + line.replace("\n", "\n  ") for line in lines) + ("\n)" if lines else ")")

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
        raise NotImplementedError

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
        """Adds those of a mapping, or of pairs. TypeError for something else, ValueError for what is no pair."""
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


class _Parameters(Module):
    """Base of modules that hold parameters, and cannot be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{type(self).__name__} holds parameters; it cannot be called")

    def _lines(self, items: Iterable, dtype_of: Callable[[Tensor], Any]) -> str:
        """One line for each, as torch's, which differ in how they name the dtype."""
        lines = []
        for name, p in items:
            what = f"Object of type: {type(p).__name__}"
            if isinstance(p, Tensor):
                where = f" ({p.device})" if p.is_cuda else ""
                kind = "Parameter" if isinstance(p, Parameter) else "Tensor"
                what = f"{kind} containing: [{dtype_of(p)} of size {'x'.join(map(str, p.shape))}{where}]"
            lines.append(f"  ({name}): {what}")
        return "\n".join(lines)


class ParameterList(_Parameters):
    """Parameters in a list; Tensors that are none become Parameters."""

    def __init__(self, values: Any = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _key(self, i: Any) -> str:
        i = operator.index(i)  # a Tensor of one integer is an index, too
        if not -self._size <= i < self._size:
            raise IndexError(f"ParameterList: index {i} of {self._size}")
        return str(i % self._size)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return type(self)([self[k] for k in range(*i.indices(self._size))])
        return getattr(self, self._key(i))

    def __setitem__(self, i: int, value: Any) -> None:
        setattr(self, self._key(i), _as_parameter(value))

    def extra_repr(self) -> str:
        """A line for each."""
        return self._lines(enumerate(self), lambda p: p.dtype)

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


class ParameterDict(_Parameters, _Named):
    """Parameters by name, in the order they came, or sorted where a plain dict gave them; Tensors that are none become Parameters."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict = {}
        if parameters is not None:
            self.update(parameters)

    def _names(self) -> Any:
        return self._keys.keys()

    def _key_to_attr(self, key: str) -> str:
        if not isinstance(key, str):
            raise TypeError(f"ParameterDict: names must be strings, got {type(key).__name__}")
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._key_to_attr(key))

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, self._key_to_attr(key), _as_parameter(value))
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __or__(self, other: Any) -> ParameterDict:
        both = self.copy()
        both.update(other)
        return both

    def __ror__(self, other: Any) -> Any:
        both = other.copy()
        both.update(self)
        return both

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self

    def extra_repr(self) -> str:
        """A line for each."""
        return self._lines(self.items(), Tensor.type)

    def update(self, parameters: Any) -> None:
        """Adds those of a mapping, or of pairs; those of a plain dict in the order of their names, as torch. TypeError for something else,
        ValueError for what is no pair."""
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            parameters = sorted(parameters.items(), key=lambda pair: pair[0])
        super().update(parameters)

    def copy(self) -> ParameterDict:
        """Another with the same parameters."""
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """One by name, which is ``default`` from now on where there was none."""
        if key not in self:
            self[key] = default
        return self[key]

    def popitem(self) -> Tuple[str, Any]:
        """Takes the last one out: its name and itself."""
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """Another that has one parameter, ``default``, under each of the names."""
        return ParameterDict((key, default) for key in keys)

    def get(self, key: str, default: Any = None) -> Any:
        """One by name, or ``default``."""
        return self[key] if key in self else default  # noqa: SIM401 - this is it


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value
