"""torch.library: operators that a script or package defines in Python. ``torch.ops.namespace.name`` finds them.

A call runs the function for the device of its tensors, unrecorded, as one operator with the derivative that ``register_autograd`` gives. What is
registered for tracing (``register_fake``) is kept, and called by nobody, because ampc traces nothing."""

from __future__ import annotations

import inspect
import re
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union, get_args, get_origin, get_type_hints, overload

from . import _C, ops
from ._C import Tensor
from ._device import device
from ._missing import absent_from
from .autograd import Function, no_grad

__all__ = ["CustomOpDef", "Library", "custom_op", "define", "impl", "impl_abstract", "infer_schema", "register_autocast", "register_autograd",
           "register_fake", "register_kernel"]

Kernel = Callable[..., Any]
# A dispatch key of torch: the kind of device whose kernel it is, "" for any, None for what nothing here asks.
_KEYS: Dict[str, Optional[str]] = {
    "CPU": "cpu", "CUDA": "cuda", "CompositeExplicitAutograd": "", "CompositeImplicitAutograd": "recorded", "": "recorded",
    "Autograd": "autograd", "AutogradCPU": "autograd", "AutogradCUDA": "autograd",
}


class _Operator(ops.OpOverloadPacket):
    """What is known of one operator."""

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(namespace, name)
        self.schema = ""  # of torch's form, without the name; '' where it is not defined yet
        self.parameters: Optional[inspect.Signature] = None
        self.mutates: Sequence[str] = ()
        self.kernels: Dict[str, Kernel] = {}
        self.backward: Optional[Kernel] = None
        self.setup_context: Optional[Kernel] = None
        self.fake: Optional[Kernel] = None
        self.casts: Dict[str, Any] = {}  # kind of device: the dtype of register_autocast

    def _has_overload(self, name: str) -> bool:
        return name == "default"

    @property
    def qualified(self) -> str:
        return f"{self.namespace}::{self.__name__}"

    # -- arguments -----------------------------------------------------------------------------------------------------

    def _bound(self, args: tuple, kwargs: Dict[str, Any]) -> Tuple[tuple, Dict[str, Any]]:
        """Positional and keyword-only arguments, the defaults filled in. RuntimeError where they are not the schema's."""
        assert self.parameters is not None
        unknown = [k for k in kwargs if k not in self.parameters.parameters]
        if unknown:
            raise RuntimeError(f"{self.qualified}: has no argument `{unknown[0]}`; it is {self.qualified}{self.schema}")
        try:
            bound = self.parameters.bind(*args, **kwargs)
        except TypeError as e:
            raise RuntimeError(f"{self.qualified}: {e}; it is {self.qualified}{self.schema}") from None
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if self.parameters.parameters[name].annotation == "Tensor" and not isinstance(value, Tensor):
                raise RuntimeError(f"{self.qualified}: argument `{name}` must be a Tensor, got {type(value).__name__}; it is "
                                   f"{self.qualified}{self.schema}")
        return bound.args, bound.kwargs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.parameters is None:
            raise RuntimeError(f"{self.qualified}: something was registered for this operator, but nothing defines it")
        given, named = self._bound(args, kwargs)
        tensors = [t for a in (*given, *named.values()) for t in _tensors(a)]
        where = next((t.device.type for t in tensors), "cpu")
        dtype = self.casts.get(where)
        if dtype is not None and _C._is_autocast_enabled(where):
            given, named = _cast(given, dtype), {k: _cast(v, dtype) for k, v in named.items()}
            from .amp import autocast

            with autocast(where, enabled=False):
                return self._run(given, named, where)
        return self._run(given, named, where)

    # -- running -------------------------------------------------------------------------------------------------------

    def _run(self, args: tuple, named: Dict[str, Any], where: str) -> Any:
        recorded = _C.is_grad_enabled() and any(t.requires_grad for a in (*args, *named.values()) for t in _tensors(a))
        for key in ("autograd", "recorded"):
            if key in self.kernels and (key == "recorded" or recorded) and self.backward is None:
                return self.kernels[key](*args, **named)
        if not recorded or self.mutates:
            with no_grad():
                return self._compute(args, named, where)
        return _Recorded(self).run(args, named, where)

    def _compute(self, args: tuple, named: Dict[str, Any], where: str) -> Any:
        kernel = self.kernels.get(where) or self.kernels.get("") or self.kernels.get("recorded")
        if kernel is None:
            there = ", ".join(sorted(k for k in self.kernels if k)) or "none"
            raise NotImplementedError(f"{self.qualified}: has no function for tensors of the device {where}, only for {there}; register one with "
                                      "register_kernel")
        result = kernel(*args, **named)
        given = {t._storage_ptr() for a in (*args, *named.values()) for t in _tensors(a) if t.numel()}
        if any(t.numel() and t._storage_ptr() in given for t in _tensors(result)):
            raise RuntimeError(f"{self.qualified}: a result is an argument, or shares memory with one; return a clone()")
        return result


class _Recorded:
    """An operator on the tape: a Function whose inputs are the tensors among the arguments, those in lists as well."""

    def __init__(self, op: _Operator) -> None:
        self.op = op

    def run(self, args: tuple, named: Dict[str, Any], where: str) -> Any:
        """Calls the operator and records it."""
        op, flat, many = self.op, [t for a in args for t in _tensors(a)], []

        def forward(ctx: Any, *tensors: Tensor) -> Any:
            fresh = iter(tensors)
            inputs = tuple(_with(a, fresh) for a in args)
            result = op._compute(inputs, named, where)
            many.append(type(result))
            ctx._view = _View(ctx, args)
            if op.setup_context is not None:
                more = {"keyword_only_inputs": named} if named else {}
                op.setup_context(ctx=ctx._view, inputs=inputs, output=result, **more)
            return tuple(result) if isinstance(result, list) else result

        def backward(ctx: Any, *grads: Any) -> tuple:
            if op.backward is None:
                raise RuntimeError(f"{op}: has no derivative, and backward came to it; give it one with register_autograd")
            given = op.backward(ctx._view, *([list(grads)] if many == [list] else grads))
            return _flat(given if isinstance(given, tuple) else (given,), args, op)

        kind: Any = type(op.__name__, (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})
        result = kind.apply(*flat)
        return list(result) if many == [list] else result


class _View:
    """What ``setup_context`` and the backward function see of a Function's ctx: ``needs_input_grad`` is by argument."""

    def __init__(self, ctx: Any, args: tuple) -> None:
        needs = iter(ctx.needs_input_grad)
        object.__setattr__(self, "_ctx", ctx)
        object.__setattr__(self, "needs_input_grad", tuple(
            [next(needs) for _ in _tensors(a)] if isinstance(a, (list, tuple)) and len(list(_tensors(a))) else
            next(needs) if isinstance(a, Tensor) else False for a in args))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._ctx, name, value)


def _tensors(a: Any) -> Iterable[Tensor]:
    if isinstance(a, Tensor):
        yield a
    elif isinstance(a, (list, tuple)):
        yield from (t for t in a if isinstance(t, Tensor))


def _with(a: Any, fresh: Any) -> Any:
    """The argument with other tensors in the place of its own."""
    if isinstance(a, Tensor):
        return next(fresh)
    return type(a)(next(fresh) if isinstance(t, Tensor) else t for t in a) if type(a) in (list, tuple) else a


def _cast(a: Any, dtype: Any) -> Any:
    if isinstance(a, Tensor):
        return a.to(dtype) if a.is_floating_point() and a.dtype != _C.float64 else a
    return type(a)(_cast(t, dtype) for t in a) if type(a) in (list, tuple) else a


def _flat(grads: tuple, args: tuple, op: _Operator) -> tuple:
    """The gradients of the tensors among the arguments, from one for each argument."""
    if len(grads) != len(args):
        raise RuntimeError(f"{op.qualified}: the backward function gave {len(grads)} gradients for {len(args)} arguments")
    found: List[Any] = []
    for a, g in zip(args, grads):
        own = list(_tensors(a))
        if own:
            found += [g] if isinstance(a, Tensor) else [None] * len(own) if g is None else list(g)
    return tuple(found)


# -- names -------------------------------------------------------------------------------------------------------------


def _split(qualname: str) -> Tuple[str, str]:
    namespace, colons, name = str(qualname).partition("::")
    if not colons or not namespace.isidentifier() or not name.partition(".")[0].isidentifier():
        raise ValueError(f"expected an operator's name such as 'mine::f', got {qualname!r}")
    return namespace, name.partition(".")[0]


def _operator(op: Any) -> _Operator:
    """The operator of a name, an entry of ``ops`` or a CustomOpDef; a new one, to be defined, where there is none of this name."""
    if isinstance(op, CustomOpDef):
        return op._op
    if isinstance(op, ops.OpOverload):
        op = op.overloadpacket
    if isinstance(op, _Operator):
        return op
    namespace, name = _split(op.name() if isinstance(op, ops.OpOverloadPacket) else op)
    place = vars(getattr(ops, namespace))
    if not isinstance(place.get(name), _Operator):
        place[name] = _Operator(namespace, name)
    return place[name]


# -- schemas -----------------------------------------------------------------------------------------------------------

_SIMPLE = {Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", device: "Device", _C.dtype: "ScalarType"}
_NUMBERS = {frozenset(kinds) for kinds in ((int, float), (int, float, bool))}


def _kind_of(annotation: Any) -> Optional[str]:
    """torch's word for a type; None where it has none."""
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    kind, inner = get_origin(annotation), get_args(annotation)
    if kind is Union:
        some = [t for t in inner if t is not type(None)]
        if len(some) < len(inner):
            word = _kind_of(some[0] if len(some) == 1 else Union[tuple(some)])
            return None if word is None else word + "?"
        return "Scalar" if frozenset(some) in _NUMBERS else None
    if kind is not None and issubclass(kind, Sequence) and kind is not tuple and len(inner) == 1:
        word = _kind_of(inner[0])
        return None if word is None else word + "[]"
    return None


def _parameter(p: inspect.Parameter, annotation: Any, mark: str, about: str) -> str:
    if annotation is p.empty:
        raise ValueError(f"infer_schema: parameter `{p.name}` has no annotation of its type, in {about}")
    word = _kind_of(annotation)
    if word is None:
        raise ValueError(f"infer_schema: parameter `{p.name}` is of type {annotation}, which schemas do not know, in {about}")
    default = "" if p.default is p.empty else f'="{p.default}"' if isinstance(p.default, str) else f"={p.default}".replace("ampc.", "")
    return f"{word.replace('Tensor', f'Tensor({mark}!)', 1) if mark else word} {p.name}{default}"


def infer_schema(prototype_function: Kernel, /, *, mutates_args: Any, op_name: Optional[str] = None) -> str:
    """torch's schema of a function, from its annotations: ``(Tensor x, SymInt n=2) -> Tensor``. ValueError for types that a schema has no
    word for, and for names in ``mutates_args`` that are no parameters."""
    signature, hints = inspect.signature(prototype_function), get_type_hints(prototype_function)
    parameters = list(signature.parameters.values())
    unknown = mutates_args == "unknown"
    strange = set() if unknown else set(mutates_args) - set(signature.parameters)
    if strange:
        raise ValueError(f"infer_schema: `mutates_args` names {strange}, and the parameters are {signature}")
    texts, marks = [], 0
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and "*" not in texts:
            texts.append("*")
        marked = p.name in mutates_args or unknown and "Tensor" in (_kind_of(hints.get(p.name)) or "")
        texts.append(_parameter(p, hints.get(p.name, p.empty), f"a{marks}" if marked else "", str(signature)))
        marks += marked
    return f"{op_name or ''}({', '.join(texts)}) -> {_returned(hints.get('return', inspect.Signature.empty), str(signature))}"


def _returned(annotation: Any, about: str) -> str:
    if annotation is type(None):
        return "()"
    several = get_args(annotation) if get_origin(annotation) is tuple else ()
    words = [_kind_of(a) for a in several or (annotation,)]
    if None in words:
        raise ValueError(f"infer_schema: results of type {annotation} are not known to schemas, in {about}")
    return f"({', '.join(map(str, words))})" if several else str(words[0])


def _read_schema(schema: str) -> Tuple[str, inspect.Signature]:
    """The name, and what Python says of the parameters: each one's annotation is torch's word for its type."""
    found = re.fullmatch(r"\s*([\w:.]*)\s*\((.*)\)\s*->\s*(.+?)\s*", schema, re.S)
    if found is None:
        raise RuntimeError(f"expected a schema such as 'f(Tensor x, int n=2) -> Tensor', got {schema!r}")
    parameters: List[inspect.Parameter] = []
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for text in re.split(r",\s*(?![^\[(]*[\])])", found[2].strip()) if found[2].strip() else []:
        if text.strip() == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        declared, equals, default = text.partition("=")
        word, _, name = declared.strip().rpartition(" ")
        parameters.append(inspect.Parameter(name, kind, annotation=word, default=_default(default.strip()) if equals else inspect.Parameter.empty))
    return found[1], inspect.Signature(parameters)


def _default(text: str) -> Any:
    import ast

    try:
        return ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
    except (ValueError, SyntaxError):
        return text  # a word, such as a dtype's


# -- operators in Python -------------------------------------------------------------------------------------------------


class CustomOpDef:
    """An operator that ``custom_op`` made. Calling it calls the operator."""

    def __init__(self, op: _Operator, fn: Kernel) -> None:
        self._qualname, self._init_fn, self.__name__, self.__doc__ = op.qualified, fn, op.__name__, fn.__doc__

    @property
    def _op(self) -> _Operator:
        return _operator(self._qualname)  # the one that is registered now

    @property
    def _opoverload(self) -> ops.OpOverload:
        return self._op.default

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._op(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def register_kernel(self, device_types: Any, fn: Optional[Kernel] = None, /) -> Any:
        """``fn`` computes the operator on these devices, also as a decorator."""
        return register_kernel(self, device_types, fn)

    def register_fake(self, fn: Kernel, /) -> Kernel:
        """Keeps the function that gives shapes and dtypes alone; nothing here asks it."""
        return register_fake(self, fn)

    def register_autograd(self, backward: Kernel, /, *, setup_context: Optional[Kernel] = None) -> None:
        """Gives the operator its derivative."""
        register_autograd(self, backward, setup_context=setup_context)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """Under autocast, floating point arguments are cast to this dtype."""
        register_autocast(self, device_type, cast_inputs)


@overload
def custom_op(name: str, fn: Kernel, /, *, mutates_args: Union[str, Iterable[str]], device_types: Any = ..., schema: Optional[str] = ...,
              tags: Any = ...) -> CustomOpDef: ...
@overload
def custom_op(name: str, fn: None = ..., /, *, mutates_args: Union[str, Iterable[str]], device_types: Any = ..., schema: Optional[str] = ...,
              tags: Any = ...) -> Callable[[Kernel], CustomOpDef]: ...
def custom_op(name: str, fn: Optional[Kernel] = None, /, *, mutates_args: Union[str, Iterable[str]], device_types: Any = None,
              schema: Optional[str] = None, tags: Any = None) -> Any:
    """Makes a function an operator ``namespace::name``, also as a decorator; returns a CustomOpDef.

    ``fn`` has annotations of types that ``infer_schema`` knows, or ``schema`` says them. ``mutates_args`` names the arguments that it writes into,
    'unknown' for any. ``device_types``: the device, or devices, that it is for; None for all. The result must not share memory with an argument."""
    def make(f: Kernel) -> CustomOpDef:
        namespace, short = _split(name)
        text = schema if schema is not None else infer_schema(f, mutates_args=mutates_args)
        op = vars(getattr(ops, namespace))[short] = _fresh(namespace, short)
        _set_schema(op, text)
        register_kernel(op, device_types, f)
        return CustomOpDef(op, f)

    return make if fn is None else make(fn)


def _fresh(namespace: str, name: str) -> _Operator:
    """A new operator, with what was registered before it was defined."""
    old, new = vars(getattr(ops, namespace)).get(name), _Operator(namespace, name)
    if isinstance(old, _Operator) and old.parameters is None:
        new.backward, new.setup_context, new.fake = old.backward, old.setup_context, old.fake
    return new


def _set_schema(op: _Operator, schema: str) -> None:
    op.schema, (_, op.parameters) = schema[schema.index("("):], _read_schema(schema)
    op.mutates = [p.name for p in op.parameters.parameters.values() if "!" in p.annotation]


def register_kernel(op: Any, device_types: Any, func: Optional[Kernel] = None, /, *, lib: Any = None) -> Any:
    """``func`` computes the operator on a device, several, or for None on all; also as a decorator."""
    def put(f: Kernel) -> Kernel:
        kinds = [""] if device_types is None else [device_types] if isinstance(device_types, str) else list(device_types)
        _operator(op).kernels.update({"" if kind == "default" else kind: f for kind in kinds})
        return f

    return put if func is None else put(func)


def register_fake(op: Any, func: Optional[Kernel] = None, /, *, lib: Any = None, allow_override: bool = False) -> Any:
    """Keeps the function that gives an operator's shapes and dtypes alone, also as a decorator. Nothing here asks it."""
    def put(f: Kernel) -> Kernel:
        _operator(op).fake = f
        return f

    return put if func is None else put(func)


impl_abstract = register_fake


def register_autograd(op: Any, backward: Kernel, /, *, setup_context: Optional[Kernel] = None, lib: Any = None) -> None:
    """Gives an operator its derivative. ``backward(ctx, *grads)`` returns a gradient, or None, for each argument; for a list of tensors a
    list. ``setup_context(ctx, inputs, output)``, with ``keyword_only_inputs`` where there are such, keeps what it needs. RuntimeError for an
    operator that writes into its arguments."""
    found = _operator(op)
    if found.mutates:
        raise RuntimeError(f"register_autograd: {found.qualified}{found.schema} writes into its arguments, and such operators have no derivative; "
                           "register it for one that returns new tensors")
    found.backward, found.setup_context = backward, setup_context


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Any = None) -> None:
    """Under autocast for a kind of device, an operator's floating point arguments, but float64, are cast to the dtype ``cast_inputs``."""
    if device_type not in ("cpu", "cuda"):
        raise ValueError(f"register_autocast: expected 'cpu' or 'cuda', got {device_type!r}")
    _operator(op).casts[device_type] = cast_inputs


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> None:
    """Declares an operator: ``define("mine::f", "(Tensor x) -> Tensor")``."""
    namespace, name = _split(qualname)
    Library(namespace, "FRAGMENT").define(name + schema)


def impl(qualname: Any, types: Any, func: Optional[Kernel] = None, *, lib: Any = None) -> Any:
    """``func`` computes a declared operator on the devices of ``types`` ('cpu', 'default'), also as a decorator."""
    return register_kernel(qualname, types, func)


class Library:
    """Operators of a namespace, declared with ``define`` and computed by what ``impl`` gives.

    Args:
        ns: the namespace.
        kind: 'DEF', 'IMPL' or 'FRAGMENT'.
        dispatch_key: torch's name of a kind of device, for ``impl``.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("DEF", "IMPL", "FRAGMENT"):
            raise ValueError(f"Library: `kind` must be 'DEF', 'IMPL' or 'FRAGMENT', got {kind!r}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Declares an operator: ``define("f(Tensor x, int n=2) -> Tensor")``. Returns its name. RuntimeError for one that is declared."""
        name = _read_schema(schema)[0].rpartition("::")[2].partition(".")[0]
        there = vars(getattr(ops, self.ns)).get(name)
        if isinstance(there, _Operator) and there.parameters is not None:
            raise RuntimeError(f"Library.define: {self.ns}::{name} is defined already, got {schema!r}")
        _set_schema(_operator(f"{self.ns}::{name}"), schema)
        return name

    def impl(self, op_name: Any, fn: Kernel, dispatch_key: str = "", *, with_keyset: bool = False, allow_override: bool = False) -> None:
        """``fn`` computes an operator for a dispatch key: 'CPU', 'CUDA', 'CompositeExplicitAutograd' (all), 'CompositeImplicitAutograd' (all, and
        its own operators are recorded), 'Autograd'. What is given for other keys, such as 'Meta', is kept by nobody, because nothing here asks it."""
        name = op_name.overloadpacket.__name__ if isinstance(op_name, ops.OpOverload) else str(op_name).rpartition("::")[2]
        kind = _KEYS.get(dispatch_key or self.dispatch_key)
        if kind is not None and self.ns == "aten":
            raise RuntimeError(f"torch.library: aten::{name} is an operator of ampc's core, which cannot be replaced; define one in another "
                               "namespace")
        if kind is not None:
            _operator(f"{self.ns}::{name}").kernels[kind] = fn

    def fallback(self, fn: Kernel, dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """NotImplementedError: ampc calls an operator's own function."""
        raise NotImplementedError("torch.library.Library.fallback: ampc calls an operator's own function; use impl for each operator")

    def _destroy(self) -> None:
        """Nothing: operators stay as long as the process."""


__getattr__ = absent_from(__name__)
