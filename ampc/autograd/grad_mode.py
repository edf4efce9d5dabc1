"""Whether operations are recorded for backward: one state for each thread, set by context managers and decorators."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, overload

from .. import _C
from .._messages.callers import warn

if TYPE_CHECKING:
    from typing_extensions import Self

F = TypeVar("F", bound=Callable[..., Any])
_GENERATOR = 0x20  # CO_GENERATOR; asking the inspect module costs a tenth of the import


class ContextDecorator(_C.GradScope):
    """A context manager that also decorates functions and generators; each call enters a fresh one."""

    _records: Optional[bool] = None
    _inference: Optional[bool] = None
    prev: Optional[bool] = None

    def clone(self) -> Any:
        return type(self)()

    def __call__(self, f: F) -> F:
        if isinstance(f, type):
            return self._wrap_class(f)
        code = getattr(getattr(f, "__func__", f), "__code__", None)
        if code is not None and code.co_flags & _GENERATOR:
            return self._wrap_generator(f)

        @functools.wraps(f)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return f(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    def _wrap_generator(self, f: Any) -> Any:
        """The mode holds while the generator's body runs, not while its consumer does."""

        @functools.wraps(f)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            body = f(*args, **kwargs)
            step, given = body.send, None
            try:
                while True:
                    with self.clone():
                        value = step(given)
                    try:
                        step, given = body.send, (yield value)
                    except GeneratorExit:
                        with self.clone():
                            body.close()
                        raise
                    except BaseException as error:
                        step, given = body.throw, error
            except StopIteration as stop:
                return stop.value

        return wrapped

    def _wrap_class(self, cls: Any) -> Any:
        """A function that makes objects of the class, as torch has it: the mode holds while one is made, not in its methods."""
        warn(f"{type(self).__name__}: to decorate a class is deprecated, and the mode holds while an object is made, not in its methods; "
             f"decorate __init__ or the methods of {cls.__name__} that it is meant for", FutureWarning)
        return self(functools.wraps(cls, updated=())(lambda *args, **kwargs: cls(*args, **kwargs)))


class _PlainDecorator(ContextDecorator):
    """One that decorates without parentheses, too."""

    @overload
    def __new__(cls, orig_func: None = None) -> Self: ...
    @overload
    def __new__(cls, orig_func: F) -> F: ...  # type: ignore[misc]

    def __new__(cls, orig_func: Any = None) -> Any:
        self = super().__new__(cls)
        return self if orig_func is None else self(orig_func)


class no_grad(_PlainDecorator):
    """Operations inside are not recorded."""

    _records = False


class enable_grad(_PlainDecorator):
    """Operations inside are recorded, also within no_grad."""

    _records = True


_C._make_bare(no_grad)
_C._make_bare(enable_grad)


class set_grad_enabled(ContextDecorator):
    """Turns recording on or off when it is called. The end of a ``with`` restores the old mode.

    An interrupt between the call and the ``with`` leaves the new mode. ``no_grad`` and ``enable_grad`` are safe against that."""

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, int):
            raise TypeError(f"set_grad_enabled: expected a bool, got {type(mode).__name__}")
        self.prev = _C.is_grad_enabled()
        self.mode = self._records = mode
        _C._set_grad_enabled(mode)

    def __call__(self, f: F) -> F:
        _C._set_grad_enabled(self.prev)
        return super().__call__(f)

    def clone(self) -> set_grad_enabled:
        return set_grad_enabled(self.mode)


class inference_mode(ContextDecorator):
    """no_grad, and tensors made inside cannot be modified in place outside."""

    def __new__(cls, mode: Any = True) -> Any:
        self = super().__new__(cls)
        if callable(mode):
            self._set(True)
            return self(mode)
        return self

    def __init__(self, mode: bool = True) -> None:
        self._set(mode)

    def _set(self, mode: bool) -> None:
        self.mode, self._records, self._inference = mode, not mode, mode

    def clone(self) -> inference_mode:
        return inference_mode(self.mode)


_multithreading = True  # what set_multithreading_enabled was told last


class set_multithreading_enabled:
    """Notes a mode when it is called, and the end of a ``with`` notes the old one. It changes nothing: backward runs on the thread that calls it,
    and only operators use more."""

    def __init__(self, mode: bool) -> None:
        global _multithreading
        self.prev, self.mode = _multithreading, bool(mode)
        _multithreading = self.mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        global _multithreading
        _multithreading = self.prev


def is_multithreading_enabled() -> bool:
    """What set_multithreading_enabled was told last; True at first."""
    return _multithreading
