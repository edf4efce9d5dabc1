"""Checks the types of arguments against annotations, for functions written in Python. A wrong type is then a TypeError that names the
argument, as it is for the operators of the table."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import _C
from .._C import NoTensor, Tensor, dtype
from .._tensor.unsupported_dtypes import AbsentDtype
from .callers import warn


class NoWord(TypeError, ValueError, NotImplementedError):
    """An argument that must be one of a few words has another type. torch raises a ValueError or NotImplementedError for unknown words, so
    this is one, too."""

    __module__ = "ampc.errors"


overriding = False  # whether a class or mode that answers functions (see overrides) may exist, other than by an argument that does not fit

_NONE = type(None)
_PLAIN: Dict[str, Tuple[type, ...]] = {"Tensor": (Tensor,), "int": (int,), "float": (float, int), "bool": (bool,), "str": (str,), "dtype": (dtype,)}
_KINDS = {**_PLAIN, **{f"Optional[{name}]": (*kinds, _NONE) for name, kinds in _PLAIN.items()}}
_INT = {_KINDS["int"], _KINDS["Optional[int]"]}


def _stands_for(value: Any, kinds: Tuple[type, ...]) -> bool:
    """Whether a value of another type may stand there: NumPy's numbers, tensors of one element, 0 and 1 for a bool."""
    one = isinstance(value, Tensor) and value.numel() == 1
    if dtype in kinds:
        return any(value is k for k in (float, int, bool))
    if bool in kinds:
        return isinstance(value, int) or type(value).__module__ == "numpy"
    if float in kinds:
        return one or (hasattr(value, "__float__") and not isinstance(value, Tensor))
    if int in kinds:
        return (one and not value.is_floating_point()) or (hasattr(value, "__index__") and not isinstance(value, Tensor))
    return False


def _check_kind(name: str, parameter: str, value: Any, kinds: Tuple[type, ...]) -> None:
    """Raises for a value that may not stand there."""
    if isinstance(value, AbsentDtype):
        raise TypeError(f"{name}: there are no tensors of dtype {value!r}")
    if not isinstance(value, kinds) and not _stands_for(value, kinds):
        wanted = " or ".join("None" if k is _NONE else k.__name__ for k in kinds if not (k is int and float in kinds))
        kind = NoTensor if Tensor in kinds else NoWord if str in kinds else TypeError
        raise kind(f"{name}: argument `{parameter}` must be {wanted}, got {type(value).__name__}")
    if kinds in _INT and isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{name}: argument `{parameter}` does not fit 64 bits")


def flag(name: str, parameter: str, value: Any) -> bool:
    """``value`` as a truth value; TypeError for what is neither a bool nor None."""
    if value is not False and value is not True:
        _check_kind(name, parameter, value, _KINDS["Optional[bool]"])
    return bool(value)


def need_tensor(name: str, value: Any) -> Any:
    """``value``, which must be a Tensor: for functions that are called too often to have all of their arguments looked at."""
    if not isinstance(value, Tensor):
        _check_kind(name, "input", value, _PLAIN["Tensor"])
    return value


def number(name: str, parameter: str, value: Any) -> float:
    """``value`` as a float. TypeError for a string, which Python would read."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{name}: `{parameter}` must be a number, got {value!r}")
    return float(value)


def is_integer(value: Any) -> bool:
    """True for an int and what stands for one: NumPy's integers, integer tensors of one element."""
    return isinstance(value, int) or (not isinstance(value, (list, tuple, str)) and _stands_for(value, (int,)))


def integers(value: Any, what: str) -> List[int]:
    """The integers of a list or tuple, or the one that ``value`` is. TypeError for anything else, and for a list with a number beyond 64
    bits; ValueError for such a number alone."""
    if is_integer(value):
        _check_kind(what, "size", value, _KINDS["int"])
        return [int(value)]
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{what}: expected an int or a list or tuple of ints, got {type(value).__name__}")
    for v in value:
        if not (isinstance(v, int) or _stands_for(v, (int,))) or (isinstance(v, int) and v.bit_length() > 63):
            raise TypeError(f"{what}: expected ints of 64 bits, got {type(v).__name__}")
    return [int(v) for v in value]


def each(value: Any, what: str, n: int) -> List[int]:
    """The integers of a list or tuple, or the one that ``value`` is ``n`` times."""
    return integers(value, what) * (n if is_integer(value) else 1)


def tensors(values: Any, what: str) -> Any:
    """``values``, which must be a list or tuple of Tensors."""
    if not isinstance(values, (list, tuple)):
        raise NoTensor(f"{what}: expected a list or tuple of Tensors, got {type(values).__name__}")
    for at, v in enumerate(values):
        if not isinstance(v, Tensor):
            raise NoTensor(f"{what}: expected Tensors, got {type(v).__name__} at position {at}")
    return values


def reduction_word(size_average: Any, reduce: Any, reduction: str) -> str:
    """``reduction``, or what ``size_average`` and ``reduce``, its older words, say."""
    if size_average is None and reduce is None:
        return reduction
    if isinstance(size_average, Tensor) or isinstance(reduce, Tensor):
        raise RuntimeError("`size_average` and `reduce` must be bools, got a Tensor. A loss module is made first and then called: "
                           "nn.CrossEntropyLoss()(input, target)")
    warn("size_average and reduce are old names; write reduction='mean', 'sum' or 'none'")
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def _parameters(f: Any) -> Tuple[Tuple[str, ...], int]:
    """The names of a function's parameters, and how many of them may be given by position."""
    while hasattr(f, "__wrapped__"):
        f = f.__wrapped__
    code = f.__code__
    return code.co_varnames[:code.co_argcount + code.co_kwonlyargcount], code.co_argcount


def also(**words: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for functions that ``checked`` gets: other words that torch takes, each with the parameter that it stands for."""
    def with_words(f: Callable[..., Any]) -> Callable[..., Any]:
        f._words = words  # type: ignore[attr-defined]
        return f

    return with_words


def _words_of(f: Any, first: Tuple[str, ...], names: Tuple[str, ...]) -> Dict[str, str]:
    """Other words for a function's parameters: its own, and those that torch and NumPy have for the Tensor that comes ``first``."""
    words = {word: name for name in first for word in ("input", "a", "x", "x1")}
    return {word: name for word, name in {**words, **getattr(f, "_words", {})}.items() if word not in names}


def _respelled(name: str, kwargs: Dict[str, Any], words: Dict[str, str]) -> Dict[str, Any]:
    """The arguments by the names of the parameters. TypeError where one was given by two."""
    found = {words.get(word, word): value for word, value in kwargs.items()}
    if len(found) < len(kwargs):
        raise TypeError(f"{name}: an argument was given twice, by other names: {', '.join(sorted(kwargs))}")
    return found


def checked(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f``, its arguments looked at first, as far as they are annotated as Tensor, int, float, bool or str, or None beside these."""
    names, positional = _parameters(f)
    named: Dict[str, Optional[Tuple[type, ...]]] = {n: _KINDS.get(str(f.__annotations__.get(n))) for n in names}
    placed = [named[n] for n in names[:positional]]
    words = _words_of(f, tuple(n for n in names[:positional][:1] if named[n] == _KINDS["Tensor"]), names)
    if not any(named.values()) and not words:
        return f

    @functools.wraps(f)
    def g(*args: Any, **kwargs: Any) -> Any:
        if overriding and _C._overrides(args, kwargs):
            return _C._override(g, args, kwargs)
        for at, (value, kinds) in enumerate(zip(args, placed)):
            if kinds is not None and (kinds in _INT or not isinstance(value, kinds)):
                if _C._answers(value):
                    return _C._override(g, args, kwargs)
                _check_kind(f.__name__, names[at], value, kinds)
        for name, value in kwargs.items():
            kinds = named.get(name)
            if kinds is not None:
                if not isinstance(value, kinds) and _C._answers(value):
                    return _C._override(g, args, kwargs)
                _check_kind(f.__name__, name, value, kinds)
            elif name in words:
                return g(*args, **_respelled(f.__name__, kwargs, words))
        return f(*args, **kwargs)

    g._asks_overrides = True  # type: ignore[attr-defined]
    return g


def overridable(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f``, which the class of an argument or a mode may answer, with no other check."""
    return functools.update_wrapper(_C.OverridableFunction(f), f)


def install(module: Dict[str, Any], hot: str = "", internal: str = "") -> None:
    """Adds checks to the public functions that a module defines. Those named in ``hot`` only ask whether a class or mode answers; those
    in ``internal``, which no script calls, stay as they are.

    Training calls hot functions in every step, where a check would take as long as the call. Their operators check the arguments."""
    made: Dict[int, Any] = {}
    left_out, plain = hot.split(), internal.split()
    for name, f in list(module.items()):
        own = getattr(f, "__module__", None) == module["__name__"] and hasattr(getattr(f, "__wrapped__", f), "__code__")
        if own and not name.startswith("_") and name not in plain:
            made.setdefault(id(f), (f, overridable(f) if name in left_out else checked(f)))
            module[name] = made[id(f)][1]
