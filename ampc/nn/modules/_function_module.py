"""Bases of modules: of those that are a function of nn.functional with options, and of those that differ by the dimensions they take."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, ClassVar, Dict, Optional, Tuple

from ..._C import Tensor
from .. import functional as F
from .module import Module

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:
    def dataclass_transform() -> Any:
        return lambda cls: cls

_NONE: Any = object()  # the default of an option that must be given


class _Init:
    """``__init__`` of a class whose arguments are its options, with a signature that ``inspect`` can read."""

    def __init__(self, options: Dict[str, Any]) -> None:
        self.options = options

    def __get__(self, module: Any, cls: Any) -> Any:
        return self if module is None else types.MethodType(self, module)

    def __call__(self, module: Any, *args: Any, **kwargs: Any) -> None:
        module._begin(self.options, args, kwargs)

    @property
    def __signature__(self) -> Any:
        from inspect import Parameter, Signature

        kind = Parameter.POSITIONAL_OR_KEYWORD
        return Signature([Parameter("self", kind), *(Parameter(name, kind, default=Parameter.empty if default is _NONE else default)
                                                     for name, default in self.options.items())])


@dataclass_transform()
class FunctionModule(Module):
    """Base: the function of nn.functional that a subclass names, ``class ReLU(FunctionModule, function="relu")``.

    The variables that such a subclass annotates are its options, behind those of its base: the arguments that it is made with and attributes of
    the module. Their order is that of the function's arguments, unless ``forward`` calls it in another way."""

    _function: ClassVar[str] = ""
    _options: ClassVar[Dict[str, Any]] = {}  # and their defaults
    _shown: ClassVar[Optional[Tuple[str, ...]]] = None  # by repr; None: all, but `inplace` only where it is set

    def __init_subclass__(cls, function: Optional[str] = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if function is None:  # of somebody else, whose annotations are no options
            return
        cls._function = function
        names = [name for name, kind in cls.__dict__.get("__annotations__", {}).items() if not kind.startswith("ClassVar")]
        if not names:  # it has those of its base
            return
        cls._options = {**cls._options, **{name: cls.__dict__.get(name, _NONE) for name in names}}
        for name in names:
            if name in cls.__dict__:
                delattr(cls, name)  # else it would hide a buffer of that name
        if "__init__" not in cls.__dict__:
            cls.__init__ = _Init(cls._options)  # type: ignore[method-assign, assignment]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._begin(self._options, args, kwargs)

    def _begin(self, options: Dict[str, Any], args: tuple, kwargs: Dict[str, Any]) -> None:
        """Keeps the options, those that are given and the others' defaults. TypeError for those that are wrong or missing."""
        Module.__init__(self)
        name = type(self).__name__
        if len(args) > len(options):
            raise TypeError(f"{name}: {len(args)} arguments given, {len(options)} taken: {', '.join(options)}")
        given = dict(zip(options, args))
        for word in kwargs:
            if word not in options or word in given:
                raise TypeError(f"{name}: argument `{word}` " + ("was given twice" if word in given else "is unknown"))
        values = {**options, **given, **kwargs}
        missing = [word for word, value in values.items() if value is _NONE]
        if missing:
            raise TypeError(f"{name}: argument `{missing[0]}` is missing")
        self.__dict__.update(values)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Checks or changes the options."""

    def _call(self, *inputs: Any) -> Any:
        return getattr(F, self._function)(*inputs, *map(self.__dict__.__getitem__, self._options))

    def forward(self, input: Tensor) -> Tensor:
        return self._call(input)

    def extra_repr(self) -> str:
        names = self._shown
        if names is None:
            names = tuple(name for name in self._options if name != "inplace" or self.__dict__[name])
        return ", ".join(f"{name}={self.__dict__[name]!r}" for name in names)


class OfDims(Module):
    """Base of modules that differ by the dimensions they take, which a subclass says: ``class Conv2d(_Forward, dims=2)``."""

    _dims: Any = 0

    def __init_subclass__(cls, dims: Any = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if dims is not None:
            cls._dims = dims
