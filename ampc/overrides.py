"""torch.overrides's names. ``__torch_function__`` is never called: the core reads arguments in C, and asking each for it would slow small calls.
So no object is said to have one, and a mode is told of with a warning when it is entered."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Dict, NoReturn, Optional, Set, TypeVar

from ._C import Tensor
from ._messages.once import say_once
from ._names.missing import absent_from

__all__ = ["BaseTorchFunctionMode", "TorchFunctionMode", "get_ignored_functions", "get_overridable_functions", "handle_torch_function",
           "has_torch_function", "is_tensor_like", "is_tensor_method_or_property", "resolve_name", "wrap_torch_function"]

_F = TypeVar("_F", bound=Callable[..., Any])
_Mode = TypeVar("_Mode", bound="TorchFunctionMode")


class TorchFunctionMode:
    """A base class for modes that intercept every function of the namespace. Here none is intercepted: what runs within a mode runs as it does
    without, and a UserWarning says so, once for each class of modes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Optional[dict] = None) -> Any:
        """What a subclass defines; never called."""
        raise NotImplementedError("__torch_function__ is not called in ampc")

    def __enter__(self: _Mode) -> _Mode:
        say_once(f"mode {type(self).__module__}.{type(self).__qualname__}",
                 f"{type(self).__name__}.__torch_function__ is never called: ampc's functions cannot be intercepted, and run as they do without. For "
                 "a default device use set_default_device, for counts utils.flop_counter.FlopCounterMode, for diagnosis ampc.doctor (said once)")
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing."""


class BaseTorchFunctionMode(TorchFunctionMode):
    """The same."""


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """False: no ``__torch_function__`` is called. So functions that ask go on with what they are given, as for plain tensors."""
    return False


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> NoReturn:
    """TypeError: has_torch_function is False for all arguments, and nothing asks for this."""
    raise TypeError(f"handle_torch_function: __torch_function__ is never called in ampc, and {resolve_name(public_api)} was to be left to that of "
                    f"{', '.join(sorted({type(a).__name__ for a in relevant_args}))}; ask has_torch_function first")


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
    if is_tensor_method_or_property(f) and module != "ampc":
        return f"torch.Tensor.{name}"
    return f"{module or 'ampc'}.{name}".replace("ampc", "torch", 1)


def get_overridable_functions() -> Dict[Any, Any]:
    """Empty: no function asks for ``__torch_function__``."""
    return {}


def get_ignored_functions() -> Set[Any]:
    """Empty: torch's list of exceptions to what it overrides, and here nothing is overridden."""
    return set()


def wrap_torch_function(dispatcher: Callable[..., Any]) -> Callable[[_F], _F]:
    """A decorator that leaves a function what it does."""
    def wrap(f: _F) -> _F:
        @functools.wraps(f)
        def g(*args: Any, **kwargs: Any) -> Any:
            return f(*args, **kwargs)

        return g  # type: ignore[return-value]

    return wrap


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
