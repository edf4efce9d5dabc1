"""Schemas of operators that are defined in Python: torch's notation ``(Tensor x, SymInt n=2) -> Tensor``, made from annotations or read from
text, and what a call of the operator may pass and return by it."""

from __future__ import annotations

import ast
import collections.abc
import inspect
import operator
import re
import types
import typing
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union, get_args, get_origin

from .._C import Tensor
from .._C import dtype as dtype_type
from .._tensor.creation import Generator
from .._tensor.device import device

# -- from annotations ----------------------------------------------------------------------------------------------------

_SIMPLE = {Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", device: "Device", dtype_type: "ScalarType",
           Generator: "Generator"}
_UNIONS = (Union, getattr(types, "UnionType", Union))
_LISTS = (list, collections.abc.Sequence)
_RESULTS = ("Tensor", "SymInt", "float", "bool", "Scalar")


def _kind_of(annotation: Any) -> Optional[str]:
    """torch's word for the type of a parameter; None where it has none."""
    if isinstance(annotation, type) and annotation in _SIMPLE:
        return _SIMPLE[annotation]
    inner = get_args(annotation)
    if get_origin(annotation) in _UNIONS:
        return _of_union([t for t in inner if t is not type(None)], type(None) in inner)
    if get_origin(annotation) in _LISTS and len(inner) == 1:
        word = _kind_of(inner[0])
        held = ("Tensor", "Tensor?", "SymInt", "float", "bool", "Scalar")
        return word + "[]" if word in held else None
    return None


def _of_union(some: List[Any], optional: bool) -> Optional[str]:
    """Of Union[int, float, bool], which is a number, and of Optional, which lists of tensors cannot be."""
    word = "Scalar" if set(some) == {int, float, bool} else _kind_of(some[0]) if len(some) == 1 and optional else None
    if not optional or word is None:
        return word
    return None if word in ("Tensor[]", "Tensor?[]", "Scalar[]") else word + "?"


def _default_text(p: inspect.Parameter, about: str) -> str:
    if p.default is p.empty:
        return ""
    if isinstance(p.default, (str, device)):
        return f'="{p.default}"'
    if p.default is None or isinstance(p.default, (int, float, bool)):
        return f"={p.default}"
    if isinstance(p.default, dtype_type):
        return f"={p.default.name}"
    raise ValueError(f"infer_schema: the default of parameter `{p.name}` is of type {type(p.default).__name__}; a schema holds None, numbers, words, "
                     f"dtypes and devices, in {about}")


def _parameter(p: inspect.Parameter, annotation: Any, mark: str, about: str) -> str:
    if annotation is p.empty:
        raise ValueError(f"infer_schema: parameter `{p.name}` has no annotation of its type, in {about}")
    word = _kind_of(annotation)
    if word is None:
        instead = "; write List instead of Tuple" if get_origin(annotation) is tuple else ""
        raise ValueError(f"infer_schema: parameter `{p.name}` is of type {annotation}, which schemas do not know{instead}, in {about}")
    if mark and not word.startswith("Tensor"):
        raise ValueError(f"infer_schema: `mutates_args` names `{p.name}`, which is no Tensor and cannot be written into, in {about}")
    return f"{word.replace('Tensor', f'Tensor({mark}!)', 1) if mark else word} {p.name}{_default_text(p, about)}"


def _hints(f: Callable[..., Any]) -> Dict[str, Any]:
    try:
        return typing.get_type_hints(f)
    except NameError as error:
        raise ValueError(f"infer_schema: an annotation cannot be read: {error}; write one whose names the function's module has") from None


def infer_schema(prototype_function: Callable[..., Any], /, *, mutates_args: Any, op_name: Optional[str] = None) -> str:
    """torch's schema of a function, from its annotations: ``(Tensor x, SymInt n=2) -> Tensor``. ValueError for missing annotations, types and
    defaults that a schema has no word for, parameters by position only and ``*args``, and for names in ``mutates_args`` that are no parameters
    with tensors."""
    signature = inspect.signature(prototype_function)
    parameters, about = list(signature.parameters.values()), str(signature)
    if any(p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in parameters):
        raise ValueError(f"infer_schema: parameters must have a name that a call may use: none before `/`, no *args and no **kwargs, in {about}")
    if isinstance(mutates_args, str) and mutates_args != "unknown":
        raise ValueError(f"infer_schema: `mutates_args` must be names in a list, tuple or set, or 'unknown', got {mutates_args!r}")
    hints, unknown = _hints(prototype_function), mutates_args == "unknown"
    strange = set() if unknown else set(mutates_args) - set(signature.parameters)
    if strange:
        raise ValueError(f"infer_schema: `mutates_args` names {strange}, and the parameters are {about}")
    texts: List[str] = []
    for i, p in enumerate(parameters):
        if p.kind is p.KEYWORD_ONLY and "*" not in texts:
            texts.append("*")
        annotation = hints.get(p.name, p.empty) if p.annotation is not p.empty else p.empty
        annotation = p.annotation if p.default is None and not isinstance(p.annotation, str) else annotation  # 3.9 and 3.10 make it Optional
        marked = (_kind_of(annotation) or "").startswith("Tensor") if unknown else p.name in mutates_args
        texts.append(_parameter(p, annotation, f"a{i}" if marked else "", about))
    returned = hints.get("return", inspect.Signature.empty)
    return f"{op_name or ''}({', '.join(texts)}) -> {_returned(returned, about)}"


def _returned(annotation: Any, about: str) -> str:
    if annotation is type(None):
        return "()"
    if annotation is inspect.Signature.empty:
        raise ValueError(f"infer_schema: the result has no annotation of its type, in {about}; write `-> None` where there is none")
    several = get_origin(annotation) is tuple and get_args(annotation) != ((),)
    inner = get_args(annotation) if several else (annotation,)
    if get_origin(annotation) is tuple and not (several and inner):
        return "()"
    words = ["Tensor[]" if get_origin(a) is list and get_args(a) == (Tensor,) and not several else _kind_of(a) for a in inner]
    if any(word not in (*_RESULTS, "Tensor[]") for word in words) or (several or get_origin(annotation) is not list) and "Tensor[]" in words:
        raise ValueError(f"infer_schema: a result of type {annotation} is not known to schemas, which have tensors, lists of tensors, numbers, and "
                         f"tuples of tensors and numbers, in {about}")
    return f"({', '.join(map(str, words))})" if several else str(words[0])


# -- from text -------------------------------------------------------------------------------------------------------------

_WORDS = frozenset(re.findall(r"\w+", """
    Tensor SymInt int float SymFloat bool SymBool str Scalar ScalarType Device Generator Layout MemoryFormat Dimname Stream Storage complex number
    t Any QScheme DeviceIndex Dict AnyEnumType
"""))


class Argument(NamedTuple):
    """A parameter or result of a schema."""

    name: str
    type: str  # torch's word, without marks of what is written: 'Tensor', 'SymInt[]'
    kwarg_only: bool = False
    default_value: Any = None
    is_write: bool = False
    given: bool = False  # whether there is a default

    def has_default_value(self) -> bool:
        """Whether a call may leave it out."""
        return self.given


class FunctionSchema:
    """What an operator takes and returns. Printed, it is torch's text."""

    def __init__(self, name: str, text: str, arguments: List[Argument], returns: List[Argument]) -> None:
        self.name, self.overload_name, self._text, self.arguments, self.returns = name, "", text, arguments, returns

    @property
    def is_mutable(self) -> bool:
        """Whether an argument is written into."""
        return any(a.is_write for a in self.arguments)

    def signature(self) -> inspect.Signature:
        """What Python says of the parameters."""
        kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature([inspect.Parameter(a.name, kinds[a.kwarg_only], default=a.default_value if a.given else inspect.Parameter.empty,
                                                    annotation=a.type) for a in self.arguments])

    def __str__(self) -> str:
        return self.name + self._text

    __repr__ = __str__


def read_schema(text: str, name: str = "") -> FunctionSchema:
    """A schema that is written out; ``name`` is the operator's where the text has none. RuntimeError for what is none."""
    found = re.fullmatch(r"\s*([\w:.]*)\s*(\((.*)\)\s*->\s*(.+?))\s*", text, re.S)
    if found is None:
        raise RuntimeError(f"expected a schema such as 'f(Tensor x, int n=2) -> Tensor', got {text!r}")
    arguments: List[Argument] = []
    only = False
    for part in _parts(found[3]):
        if part == "*":
            only = True
        else:
            arguments.append(_argument(part, only, text))
    returned = found[4].strip()
    several = _parts(returned[1:-1]) if returned.startswith("(") and returned.endswith(")") else [returned]
    return FunctionSchema(found[1] or name, found[2], arguments, [Argument("", _word(part.split(" ")[0], text)) for part in several])


def _parts(text: str) -> List[str]:
    """Between the commas that are in no brackets."""
    return [p.strip() for p in re.split(r",\s*(?![^\[(]*[\])])", text.strip())] if text.strip() else []


def _argument(part: str, only: bool, schema: str) -> Argument:
    declared, equals, default = part.partition("=")
    word, _, name = declared.strip().rpartition(" ")
    if not name.isidentifier():
        raise RuntimeError(f"expected a type and a name for each argument, got {part!r} in the schema {schema!r}")
    return Argument(name, _word(word, schema), only, _default(default.strip()) if equals else None, "!" in word, bool(equals))


def _word(text: str, schema: str) -> str:
    word = re.sub(r"\([^)]*\)", "", text).strip()
    base = re.match(r"[A-Za-z]\w*(?:\.\w+)*", word)
    if base is None or base[0].rpartition(".")[2] not in _WORDS or not re.fullmatch(r"(?:\?|\[\d*\])*", word[base.end():]):
        raise RuntimeError(f"{text!r} is no type of schemas, such as Tensor, int, float?, or Tensor[]; the schema is {schema!r}")
    return word


def _default(text: str) -> Any:
    try:
        return ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
    except (ValueError, SyntaxError):
        return text  # a word, such as a dtype's


# -- calls -----------------------------------------------------------------------------------------------------------------


def _number_of(value: Any) -> Any:
    """A tensor of one value as a number."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise TypeError
        return value.item()
    return value


def _is_number(value: Any) -> bool:
    return hasattr(value, "__index__") or hasattr(value, "__float__")


def _int(value: Any) -> Any:
    return int(_number_of(value)) if isinstance(value, Tensor) else int(operator.index(value))


def _float(value: Any) -> Any:
    value = _number_of(value)
    if isinstance(value, str) or not _is_number(value):
        raise TypeError
    return float(value)


def _bool(value: Any) -> Any:
    value = _number_of(value)
    if isinstance(value, str) or not (_is_number(value) or hasattr(value, "dtype")):
        raise TypeError
    return bool(value)


def _only(*kinds: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise TypeError
        return value

    return check


def _device(value: Any) -> Any:
    return device(_only(str, device)(value))


_READERS: Dict[str, Callable[[Any], Any]] = {
    "Tensor": _only(Tensor, type(None)), "SymInt": _int, "int": _int, "float": _float, "SymFloat": _float, "bool": _bool, "SymBool": _bool,
    "str": _only(str),
    "Scalar": _only(int, float), "number": _only(int, float), "ScalarType": _only(dtype_type, int), "Device": _device,
}


def read_value(word: str, value: Any) -> Any:
    """A value as an operator's function gets it for a parameter of this type. TypeError where it cannot be one."""
    if word.endswith("?"):
        return None if value is None else read_value(word[:-1], value)
    if word.endswith("]"):
        inner, _, size = word[:-1].rpartition("[")
        if size and isinstance(value, (int, float)):
            return [read_value(inner, value)] * int(size)
        if not isinstance(value, (list, tuple)) or inner == "Tensor" and any(v is None for v in value):
            raise TypeError
        return [read_value(inner, v) for v in value]
    return _READERS[word](value) if word in _READERS else value


def read_result(returns: Sequence[Argument], value: Any) -> Any:
    """What an operator's function has returned, as its schema has it: a list where it returns several becomes a tuple. TypeError with the reason
    for anything else. None may stand for a tensor."""
    if not returns:
        if value is not None:
            raise TypeError(f"its schema says that it returns nothing, and its function returned {_named(value)}")
        return None
    if len(returns) == 1:
        return _one_result(returns[0].type, value)
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or len(value) != len(returns):
        raise TypeError(f"its schema says that it returns {len(returns)} values, and its function returned {_named(value)}")
    return tuple(_one_result(r.type, v) for r, v in zip(returns, value))


def _one_result(word: str, value: Any) -> Any:
    try:
        return read_value(word, value)
    except (TypeError, ValueError):
        raise TypeError(f"its schema says that it returns a value of type {word}, and its function returned {_named(value)}") from None


def _named(value: Any) -> str:
    return f"{len(value)} values" if isinstance(value, (list, tuple)) else f"a value of type {type(value).__name__}"


def bind(schema: FunctionSchema, signature: inspect.Signature, args: tuple, kwargs: Dict[str, Any]) -> Tuple[tuple, Dict[str, Any]]:
    """Positional and keyword-only arguments of a call, read, the defaults filled in. TypeError with the reason where they are not the
    schema's."""
    unknown = [k for k in kwargs if k not in signature.parameters]
    if unknown:
        raise TypeError(f"has no argument `{unknown[0]}`")
    bound = signature.bind(*args, **kwargs)
    for a in schema.arguments:
        if a.name in bound.arguments:
            try:
                bound.arguments[a.name] = read_value(a.type, bound.arguments[a.name])
            except (TypeError, ValueError, RuntimeError):
                raise TypeError(f"argument `{a.name}` must be of type {a.type}, got {type(bound.arguments[a.name]).__name__}") from None
    bound.apply_defaults()
    return bound.args, bound.kwargs
