"""torch.jit's decorators pass through: functions and modules stay what they are."""

import builtins
from typing import Any, Callable, List, NoReturn, Optional, Union, get_args, get_origin

from ._messages.once import say_once
from ._names.missing import absent_from
from .nn import Module

__all__ = ["Final", "ScriptModule", "annotate", "export", "freeze", "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "load",
           "optimize_for_inference", "save", "script", "script_if_tracing", "script_method", "trace", "trace_module", "unused"]

from typing import Final


class ScriptModule(Module):
    """A base for modules whose methods torch would translate: a Module. No other Module is one."""


def _itself(what: str, said: bool = False) -> Callable[..., Any]:
    def passed(obj: Any = None, *args: Any, **kwargs: Any) -> Any:
        if obj is None:
            return lambda f: f
        if said:
            say_once("jit", f"jit.{what}: the model is handed back as it is: ampc has no TorchScript, it runs as Python (said once)")
        return obj

    passed.__name__ = passed.__qualname__ = what
    passed.__doc__ = "Its argument itself." + (" A UserWarning says so once." if said else "")
    return passed


ignore, unused, export, interface, script_method = (_itself(n) for n in ("ignore", "unused", "export", "interface", "script_method"))
_overload, _overload_method = _itself("_overload"), _itself("_overload_method")
script = _itself("script", True)
script_if_tracing, freeze, optimize_for_inference = (_itself(n) for n in ("script_if_tracing", "freeze", "optimize_for_inference"))
_script_if_tracing = script_if_tracing


def trace(func: Callable, example_inputs: Any = None, **options: Any) -> Callable:
    """``func`` itself: it runs as it is for any input, not as it ran for this one. A UserWarning says so once."""
    say_once("jit", "jit.trace: the model is handed back as it is: ampc has no TorchScript, it runs as Python (said once)")
    return func


def trace_module(mod: Any, inputs: Any = None, **options: Any) -> Any:
    """``mod`` itself. A UserWarning says so once."""
    return trace(mod)


def annotate(the_type: Any, the_value: Any) -> Any:
    """``the_value``."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether ``obj`` is of a type, or of the types of a tuple; of ``List[int]``, ``Dict[str, int]``, ``Tuple[int, str]`` and ``Optional[int]``
    the elements are looked at, too."""
    if builtins.isinstance(target_type, tuple):
        return any(isinstance(obj, t) for t in target_type)
    kind, inner = get_origin(target_type), get_args(target_type)
    if target_type is Any or kind is Union:
        return target_type is Any or any(isinstance(obj, t) for t in inner)
    if kind is None:
        return builtins.isinstance(obj, type(None) if target_type is None else target_type)
    if not builtins.isinstance(obj, kind):
        return False
    if kind is dict:
        return all(isinstance(k, inner[0]) and isinstance(v, inner[1]) for k, v in obj.items())
    if kind is tuple and inner[-1:] != (...,):
        return len(obj) == len(inner) and all(map(isinstance, obj, inner))
    return all(isinstance(x, inner[0]) for x in obj)


def is_scripting() -> bool:
    """False."""
    return False


def is_tracing() -> bool:
    """False."""
    return False


def save(m: Any, f: Any, _extra_files: Optional[Any] = None) -> NoReturn:
    """NotImplementedError: there are no TorchScript files here; save a state_dict."""
    raise NotImplementedError("jit.save: TorchScript files cannot be written; use ampc.save(model.state_dict(), path)")


def load(f: Any, map_location: Any = None, **options: Any) -> NoReturn:
    """NotImplementedError: there are no TorchScript files here."""
    raise NotImplementedError("jit.load: TorchScript files cannot be read; save the model's state_dict with torch and use ampc.load")


__path__: List[str] = []  # the table has modules below this one
__getattr__ = absent_from(__name__)
