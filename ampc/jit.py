"""torch.jit's decorators pass through: functions and modules stay what they are."""

from __future__ import annotations

from typing import Any, Callable, NoReturn, Optional

from .nn import Module as ScriptModule

__all__ = ["Final", "ScriptModule", "annotate", "export", "freeze", "ignore", "interface", "is_scripting", "is_tracing", "load",
           "optimize_for_inference", "save", "script", "script_if_tracing", "trace", "trace_module", "unused"]

from typing import Final


def _itself(what: str) -> Callable[..., Any]:
    def passed(obj: Any = None, *args: Any, **kwargs: Any) -> Any:
        return obj if obj is not None else lambda f: f

    passed.__name__ = passed.__qualname__ = what
    passed.__doc__ = "Its argument itself."
    return passed


script, ignore, unused, export, interface = (_itself(n) for n in ("script", "ignore", "unused", "export", "interface"))
script_if_tracing, freeze, optimize_for_inference = (_itself(n) for n in ("script_if_tracing", "freeze", "optimize_for_inference"))


def trace(func: Callable, example_inputs: Any = None, **options: Any) -> Callable:
    """``func`` itself: it runs as it is for any input, not as it ran for this one."""
    return func


def trace_module(mod: Any, inputs: Any = None, **options: Any) -> Any:
    """``mod`` itself."""
    return mod


def annotate(the_type: Any, the_value: Any) -> Any:
    """``the_value``."""
    return the_value


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
