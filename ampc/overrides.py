"""torch.overrides's names: ``__torch_function__``, by which a class of arguments, or a mode, answers a function in ampc's place.

A class answers that has a ``__torch_function__(func, types, args=(), kwargs=None)``: a subclass of Tensor, or any other whose objects are
given to functions of the namespace, of ``nn.functional``, ``linalg`` and ``special``, and to methods of Tensor. A subclass that defines
none has Tensor's, which gives results its class. ``func`` is the function that was called, ``Tensor.add`` for ``x + y``. Of the properties,
``data``, ``T`` and ``mT`` ask. ``Tensor.view`` and ``Tensor.contiguous`` do not ask themselves, but the operators do that they are made of.
Who answers is looked for in C (csrc/python/override.c), and not at all in a program that defines no such class and enters no mode."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Set, Tuple, TypeVar

from . import _C, _ops
from ._C import Tensor
from ._messages import checks as _checks
from ._names.missing import absent_from

__all__ = ["BaseTorchFunctionMode", "TorchFunctionMode", "get_ignored_functions", "get_overridable_functions", "handle_torch_function",
           "has_torch_function", "is_tensor_like", "is_tensor_method_or_property", "resolve_name", "wrap_torch_function"]

_F = TypeVar("_F", bound=Callable[..., Any])
_Mode = TypeVar("_Mode", bound="TorchFunctionMode")


class _Modes(threading.local):
    """The modes that a thread has entered, the innermost last."""

    def __init__(self) -> None:
        self.entered: List[TorchFunctionMode] = []

    def push(self, mode: TorchFunctionMode) -> None:
        _checks.overriding = True
        self.entered.append(mode)
        _C._set_modes(len(self.entered))

    def pop(self) -> TorchFunctionMode:
        mode = self.entered.pop()
        _C._set_modes(len(self.entered))
        return mode


_modes = _Modes()


class TorchFunctionMode:
    """A base class for modes that answer every function within a ``with`` block, on its thread. Within ``__torch_function__`` the mode is
    not entered, so that it may call ``func``; the mode around it, if there is one, then answers first."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Optional[dict] = None) -> Any:
        """What a subclass defines. NotImplementedError here."""
        raise NotImplementedError(f"{type(self).__name__} must define __torch_function__(self, func, types, args=(), kwargs=None)")

    def __enter__(self: _Mode) -> _Mode:
        _modes.push(self)
        return self

    def __exit__(self, *exc: object) -> None:
        """Leaves the innermost mode."""
        _modes.pop()


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Optional[dict] = None) -> Any:
        """``func(*args, **kwargs)``"""
        return func(*args, **(kwargs or {}))


# -- who answers -------------------------------------------------------------------------------------------------------


def _those_that_answer(values: Iterable[Any]) -> List[Any]:
    """One object of each class that answers, in order, but a subclass before its base classes."""
    found: List[Any] = []
    for value in values:
        if _C._answers(value) and all(type(value) is not type(f) for f in found):
            at = next((i for i, f in enumerate(found) if isinstance(value, type(f))), len(found))
            found.insert(at, value)
    return found


def _flat(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Iterable[Any]:
    for value in (*args, *kwargs.values()):
        if type(value) in (list, tuple):
            yield from value
        else:
            yield value


def _decide(func: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """What the innermost mode answers, or else the first class that does not return NotImplemented. TypeError where all do."""
    return _asked(func, _those_that_answer(_flat(args, kwargs)), args, kwargs)


def _asked(func: Callable[..., Any], answering: List[Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    types = tuple(type(a) for a in answering)
    if _modes.entered:
        mode = _modes.pop()
        try:
            answer = mode.__torch_function__(func, types, args, kwargs)
        finally:
            _modes.push(mode)
        if answer is not NotImplemented:
            return answer
    for a in answering:
        answer = a.__torch_function__(func, types, args, kwargs)
        if answer is not NotImplemented:
            return answer
    if not answering:
        return func(*args, **kwargs)
    raise TypeError(f"{resolve_name(func)}: every __torch_function__ returned NotImplemented, of " + ", ".join(sorted(t.__name__ for t in types)))


def _default(cls: type, func: Callable[..., Any], types: Iterable[type], args: Tuple[Any, ...] = (), kwargs: Optional[dict] = None) -> Any:
    """``func(*args, **kwargs)``, whose Tensors become ``cls``, but for ``.grad`` and ``._base``. NotImplemented if an argument is of a class that
    ``cls`` does not derive from."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with _C.DisableTorchFunctionSubclass():
        return _as_class(func(*args, **(kwargs or {})), cls)


def _as_class(result: Any, cls: Any) -> Any:
    if isinstance(result, Tensor):
        return result if isinstance(result, cls) else result.as_subclass(cls)
    if type(result) in (list, tuple):
        return type(result)(_as_class(r, cls) for r in result)
    if isinstance(result, tuple) and hasattr(result, "n_fields"):  # results with names
        return type(result)([_as_class(r, cls) for r in result])
    return result


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a mode is entered or one of the arguments answers functions by its ``__torch_function__``."""
    return _C._overrides(tuple(relevant_args), {})


def has_torch_function_unary(relevant_arg: Any) -> bool:
    """has_torch_function of one argument."""
    return _C._overrides((relevant_arg,), {})


def has_torch_function_variadic(*relevant_args: Any) -> bool:
    """has_torch_function of arguments."""
    return _C._overrides(relevant_args, {})


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """What a mode or the ``__torch_function__`` of the relevant arguments answers for ``public_api(*args, **kwargs)``. TypeError where
    none does."""
    return _asked(public_api, _those_that_answer(relevant_args), args, kwargs)


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[_F], _F]:
    """A decorator for functions that classes may answer: ``dispatcher(*args, **kwargs)`` gives the arguments that are asked."""
    def wrap(f: _F) -> _F:
        @functools.wraps(f)
        def g(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(g, relevant, *args, **kwargs)
            return f(*args, **kwargs)

        return g  # type: ignore[return-value]

    return wrap


# -- which functions ---------------------------------------------------------------------------------------------------


def get_default_nowrap_functions() -> Set[Any]:
    """The getters of ``Tensor.grad`` and ``Tensor._base``, whose results stay as they are."""
    return {Tensor.grad.__get__, Tensor._base.__get__}  # type: ignore[union-attr]


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a Tensor, or of a class with a ``__torch_function__``."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether it is a method or property of Tensor."""
    return any(found is func for found in vars(Tensor).values()) or getattr(func, "__name__", None) == "__get__"


def resolve_name(f: Any) -> Optional[str]:
    """The name by which a function is reached, ``torch.add`` or ``torch.Tensor.add_``; None for what has none here."""
    name, module = getattr(f, "__name__", None), getattr(f, "__module__", None)
    if name is None:
        return None
    if isinstance(f, type(Tensor.add)) or (is_tensor_method_or_property(f) and module != "ampc"):
        return f"torch.Tensor.{name}"
    module = next((space.__name__ for space in _spaces() if getattr(space, name, None) is f), module)
    return f"{module or 'ampc'}.{name}".replace("ampc", "torch", 1)


def get_overridable_functions() -> Dict[Any, List[Callable[..., Any]]]:
    """The functions that classes may answer, each by the namespace that it is found in: ampc, ``nn.functional``, ``linalg``, ``special``, Tensor."""
    return {space: [f for name, f in vars(space).items() if not name.startswith("_") and _asks(f)] for space in (*_spaces(), Tensor)}


def _spaces() -> List[ModuleType]:
    """The modules in which functions that classes may answer are public."""
    return [sys.modules[name] for name in ("ampc", "ampc.nn.functional", "ampc.linalg", "ampc.special") if name in sys.modules]


def _asks(f: Any) -> bool:
    return isinstance(f, (type(_ops.add), type(Tensor.add), _C.OverridableFunction)) or getattr(f, "_asks_overrides", False)


def get_ignored_functions() -> Set[Any]:
    """Functions of the namespace that neither classes nor modes are asked for themselves."""
    public = [f for name, f in vars(sys.modules["ampc"]).items() if not name.startswith("_") and callable(f)]
    return {f for f in public if not isinstance(f, type) and not _asks(f)}


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
