"""torch.library: operators that a script or package defines in Python. ``torch.ops.namespace.name`` finds them.

A call runs the function for the device of its tensors, unrecorded, as one operator with the derivative that ``register_autograd`` gives. What is
registered for tracing (``register_fake``) is called for tensors of the device 'meta' alone, because ampc traces nothing."""

from __future__ import annotations

import inspect
import re
import weakref
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union, overload

from . import _C, ops
from ._C import Tensor
from ._names.missing import absent_from
from ._operators import schemas as _schemas
from ._operators.opcheck import opcheck
from ._operators.schemas import infer_schema
from .autograd import Function, no_grad

__all__ = ["CustomOpDef", "Library", "custom_op", "define", "impl", "impl_abstract", "infer_schema", "opcheck", "register_autocast",
           "register_autograd", "register_fake", "register_kernel", "register_vmap"]

Kernel = Callable[..., Any]
# A dispatch key of torch: the kind of device whose kernel it is, "" for any, None for what nothing here asks.
_KEYS: Dict[str, Optional[str]] = {
    "CPU": "cpu", "CUDA": "cuda", "CompositeExplicitAutograd": "", "CompositeImplicitAutograd": "recorded", "": "recorded",
    "Autograd": "autograd", "AutogradCPU": "autograd", "AutogradCUDA": "autograd",
}
# torch's other keys, for which nothing is computed here.
_OTHER_KEYS = re.compile(r"(Quantized|Sparse|SparseCsr|Nested(Tensor)?|Autograd|Autocast)?(CPU|CUDA|HIP|XLA|MPS|IPU|XPU|HPU|VE|Lazy|MTIA|MAIA|Meta|"
                         r"PrivateUse[123])|(Autograd|Composite|FuncTorch|Batched|VmapMode|Python|PreDispatch|Functionalize|BackendSelect|"
                         r"ADInplaceOrView|Conjugate|Negative|ZeroTensor|MkldnnCPU|Vulkan|Metal|FPGA|Fake|Named|Tracer|AutocastOther|Other)\w*")
_DEVICES = frozenset(re.findall(r"\w+", """
    cpu cuda ipu xpu mkldnn opengl opencl ideep hip ve fpga maia xla lazy vulkan mps meta hpu mtia privateuseone
"""))


class _Operator(ops.OpOverloadPacket):
    """What is known of one operator."""

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(namespace, name)
        self.schema: Optional[_schemas.FunctionSchema] = None  # None where it is not defined yet
        self.parameters: Optional[inspect.Signature] = None
        self.shares = True  # whether a result may be an argument, or share memory with one
        self.tags: Sequence[Any] = ()
        self.mutates: Sequence[str] = ()
        self.kernels: Dict[str, Kernel] = {}
        self.backward: Optional[Kernel] = None
        self.setup_context: Optional[Kernel] = None
        self.fake: Optional[Kernel] = None
        self.batched: Optional[Kernel] = None  # of register_vmap
        self.casts: Dict[str, Any] = {}  # kind of device: the dtype of register_autocast

    def _has_overload(self, name: str) -> bool:
        return name == "default"

    @property
    def qualified(self) -> str:
        return f"{self.namespace}::{self.__name__}"

    # -- arguments -----------------------------------------------------------------------------------------------------

    def _bound(self, args: tuple, kwargs: Dict[str, Any]) -> Tuple[tuple, Dict[str, Any]]:
        """Positional and keyword-only arguments, the defaults filled in. RuntimeError where they are not the schema's."""
        assert self.schema is not None and self.parameters is not None
        try:
            return _schemas.bind(self.schema, self.parameters, args, kwargs)
        except TypeError as e:
            raise RuntimeError(f"{self.qualified}: {e}; it is {self.schema}") from None

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
        if where == "meta" and self.fake is not None:
            return self.fake(*args, **named)
        kernel = self.kernels.get(where) or self.kernels.get("") or self.kernels.get("recorded")
        if kernel is None:
            there = ", ".join(sorted(k for k in self.kernels if k)) or "none"
            raise NotImplementedError(f"{self.qualified}: has no function for tensors of the device {where}, only for {there}; register one with "
                                      "register_kernel")
        return self._checked(kernel(*args, **named), args, named)

    def _checked(self, result: Any, args: tuple, named: Dict[str, Any]) -> Any:
        """A result that is what the schema says. RuntimeError for another, and for memory that results share where they must not."""
        assert self.schema is not None
        try:
            result = _schemas.read_result(self.schema.returns, result)
        except TypeError as e:
            raise RuntimeError(f"{self.qualified}: {e}; it is {self.schema}") from None
        seen = {t._storage_ptr() for a in (*args, *named.values()) for t in _tensors(a) if t.numel()}
        for t in _tensors(result) if not self.shares else ():
            if t.numel() and t._storage_ptr() in seen:
                raise RuntimeError(f"{self.qualified}: a result is an argument or another result, or shares memory with one; return a clone()")
            seen.add(t._storage_ptr())
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
    """The gradients of the tensors among the arguments, from one for each argument. Those of other arguments are None, and may be left out at
    the end."""
    beyond = any(g is not None for g in grads[len(args):]) or any(list(_tensors(a)) for a in args[len(grads):])
    if beyond:
        raise RuntimeError(f"{op.qualified}: the backward function gave {len(grads)} gradients, the operator has {len(args)} arguments")
    found: List[Any] = []
    for i, (a, g) in enumerate(zip(args, grads)):
        own = list(_tensors(a))
        if not own and isinstance(g, Tensor):
            raise RuntimeError(f"{op.qualified}: the backward function gave a gradient for argument {i}, which is no Tensor; return None for it")
        if own:
            found += [g] if isinstance(a, Tensor) else [None] * len(own) if g is None else list(g)
    return tuple(found)


# -- names -------------------------------------------------------------------------------------------------------------


def _split(qualname: str) -> Tuple[str, str]:
    namespace, _, name = str(qualname).partition("::")
    wrong = f"expected an operator's name such as 'mine::f', got {qualname!r}"
    if not isinstance(qualname, str) or qualname.count("::") != 1:
        raise ValueError(wrong)
    if not namespace.isidentifier() or not name.partition(".")[0].isidentifier():
        raise RuntimeError(wrong)
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


# -- operators in Python -------------------------------------------------------------------------------------------------


class CustomOpDef:
    """An operator that ``custom_op`` made. Calling it calls the operator."""

    def __init__(self, op: _Operator, fn: Kernel) -> None:
        self._qualname, self._init_fn, self.__name__, self.__doc__ = op.qualified, fn, op.__name__, fn.__doc__
        self._namespace, self._name = op.namespace, op.__name__

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
        """``fn`` gives the results for tensors of the device 'meta'."""
        return register_fake(self, fn)

    def register_autograd(self, backward: Kernel, /, *, setup_context: Optional[Kernel] = None) -> None:
        """Gives the operator its derivative."""
        register_autograd(self, backward, setup_context=setup_context)

    def register_vmap(self, func: Optional[Kernel] = None) -> Any:
        """Keeps a function for vmap, which calls the operator for each sample instead."""
        return register_vmap(self, func)

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
        op = _fresh(namespace, short)
        _set_schema(op, text)
        if schema is not None and mutates_args != "unknown" and set(op.mutates) != set(mutates_args):
            raise ValueError(f"custom_op: `mutates_args` is {mutates_args!r}, and the schema {schema!r} says that {op.mutates or 'no'} arguments are "
                             "written into; both must name the same")
        op.shares, op.tags = False, [] if tags is None else list(tags) if isinstance(tags, (list, tuple)) else [tags]
        register_kernel(op, device_types, f)
        vars(getattr(ops, namespace))[short] = op
        return CustomOpDef(op, f)

    return make if fn is None else make(fn)


def _fresh(namespace: str, name: str) -> _Operator:
    """A new operator, with what was registered before it was defined."""
    old, new = vars(getattr(ops, namespace)).get(name), _Operator(namespace, name)
    if isinstance(old, _Operator) and old.parameters is None:
        new.backward, new.setup_context, new.fake = old.backward, old.setup_context, old.fake
    return new


def _set_schema(op: _Operator, schema: str) -> None:
    op.schema = _schemas.read_schema(schema)
    op.schema.name = op.qualified
    op.parameters = op.schema.signature()
    op.mutates = [a.name for a in op.schema.arguments if a.is_write]


def _kinds(device_types: Any) -> List[str]:
    """Kinds of devices, '' for all; RuntimeError for a word that is none."""
    given = ["default"] if device_types is None else [device_types] if isinstance(device_types, str) else list(device_types)
    for kind in given:
        if kind != "default" and kind not in _DEVICES:
            raise RuntimeError(f"expected a kind of device such as 'cpu' or 'cuda', got {kind!r}")
    return ["" if kind == "default" else kind for kind in given]


def register_kernel(op: Any, device_types: Any, func: Optional[Kernel] = None, /, *, lib: Any = None) -> Any:
    """``func`` computes the operator on a device, several, or for None on all; also as a decorator."""
    def put(f: Kernel) -> Kernel:
        _operator(op).kernels.update(dict.fromkeys(_kinds(device_types), f))
        return f

    return put if func is None else put(func)


def register_fake(op: Any, func: Optional[Kernel] = None, /, *, lib: Any = None, allow_override: bool = False) -> Any:
    """``func`` gives an operator's results for tensors of the device 'meta', which have no values; also as a decorator."""
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
        raise RuntimeError(f"register_autograd: {found.schema} writes into its arguments, and such operators have no derivative; "
                           "register it for one that returns new tensors")
    found.backward, found.setup_context = backward, setup_context


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Any = None) -> None:
    """Under autocast for a kind of device, an operator's floating point arguments, but float64, are cast to the dtype ``cast_inputs``."""
    for kind in _kinds(device_type):
        _operator(op).casts[kind] = cast_inputs


def register_vmap(op: Any, func: Optional[Kernel] = None, /, *, lib: Any = None) -> Any:
    """Keeps an operator's function for vmap, also as a decorator. Nothing here asks it: vmap calls the operator for each sample."""
    def put(f: Kernel) -> Kernel:
        _operator(op).batched = f
        return f

    return put if func is None else put(func)


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> None:
    """Declares an operator: ``define("mine::f", "(Tensor x) -> Tensor")``."""
    namespace, name = _split(qualname)
    if not schema.lstrip().startswith("("):
        raise ValueError(f"define: expected a schema such as '(Tensor x) -> Tensor', got {schema!r}")
    _kept.append(Library(namespace, "FRAGMENT"))
    _kept[-1].define(name + schema)


def impl(qualname: Any, types: Any, func: Optional[Kernel] = None, *, lib: Any = None) -> Any:
    """``func`` computes a declared operator on the devices of ``types`` ('cpu', 'default'), or for dispatch keys ('CPU',
    'CompositeExplicitAutograd'); also as a decorator."""
    given = [types] if isinstance(types, str) else list(types)
    keys = [kind for kind in given if kind in _KEYS]

    def put(f: Kernel) -> Kernel:
        register_kernel(qualname, [kind for kind in given if kind not in keys], f)
        for key in keys:
            _put(_operator(qualname), key, f)
        return f

    return put if func is None else put(func)


def _put(op: _Operator, key: str, f: Kernel) -> None:
    """Makes ``f`` what computes an operator for a dispatch key; RuntimeError for a word that is none."""
    if key not in _KEYS and not _OTHER_KEYS.fullmatch(key):
        raise RuntimeError(f"expected a dispatch key such as 'CPU' or 'CompositeExplicitAutograd', got {key!r}")
    kind = _KEYS.get(key)
    if kind is not None:
        op.kernels[kind] = f


_kept: List[Library] = []  # of `define`: their operators stay as long as the process
_defining: weakref.WeakValueDictionary[str, Library] = weakref.WeakValueDictionary()


def _forget(namespace: str, made: List[_Operator]) -> None:
    """A Library is gone, and with it what it has declared, but for what was declared anew since."""
    place = vars(getattr(ops, namespace))
    for op in made:
        if place.get(op.__name__) is op:
            del place[op.__name__]


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
        if ns == "prim":
            raise ValueError("Library: the namespace 'prim' is torch's own; choose another name")
        if kind == "DEF" and ns in _defining:
            raise RuntimeError(f"Library: another Library of kind 'DEF' has the namespace {ns!r}; use it, or make one of kind 'FRAGMENT'")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._made: List[_Operator] = []
        if kind == "DEF":
            _defining[ns] = self
        self._destroy = weakref.finalize(self, _forget, ns, self._made)  # so that one in its place may declare them again
        self._destroy.atexit = False

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Declares an operator: ``define("f(Tensor x, int n=2) -> Tensor")``. Returns its name. RuntimeError for one that is declared."""
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Library.define: `alias_analysis` must be 'FROM_SCHEMA' or 'CONSERVATIVE', got {alias_analysis!r}")
        if self.kind == "IMPL":
            raise RuntimeError("Library.define: a Library of kind 'IMPL' declares no operators; make one of kind 'DEF' or 'FRAGMENT'")
        namespace, _, name = _schemas.read_schema(schema).name.rpartition("::")
        name = name.partition(".")[0]
        if namespace not in ("", self.ns) or not name.isidentifier():
            raise RuntimeError(f"Library.define: expected a schema with a name of the namespace {self.ns}, such as 'f(Tensor x) -> Tensor', got "
                               f"{schema!r}")
        there = vars(getattr(ops, self.ns)).get(name)
        if isinstance(there, _Operator) and there.parameters is not None:
            raise RuntimeError(f"Library.define: {self.ns}::{name} is defined already, got {schema!r}")
        op = _operator(f"{self.ns}::{name}")
        _set_schema(op, schema)
        op.tags = list(tags) if isinstance(tags, (list, tuple)) else [tags]
        self._made.append(op)
        return name

    def impl(self, op_name: Any, fn: Kernel, dispatch_key: str = "", *, with_keyset: bool = False, allow_override: bool = False) -> None:
        """``fn`` computes an operator for a dispatch key: 'CPU', 'CUDA', 'CompositeExplicitAutograd' (all), 'CompositeImplicitAutograd' (all, and
        its own operators are recorded), 'Autograd'. What is given for other keys, such as 'Meta', is kept by nobody, because nothing here asks it."""
        if not callable(fn):
            raise TypeError(f"Library.impl: `fn` must be a function, got {type(fn).__name__}")
        given = op_name.name() if isinstance(op_name, ops.OpOverload) else str(op_name)
        namespace, _, name = given.rpartition("::")
        if namespace not in ("", self.ns):
            raise RuntimeError(f"Library.impl: {given} is not of the namespace {self.ns}, which this Library is for")
        key = dispatch_key or self.dispatch_key
        if self.ns == "aten":
            if _KEYS.get(key) is None:
                return
            raise RuntimeError(f"torch.library: aten::{name} is an operator of ampc's core, which cannot be replaced; define one in another "
                               "namespace")
        _put(_operator(f"{self.ns}::{name}"), key, fn)

    def fallback(self, fn: Kernel, dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """NotImplementedError: ampc calls an operator's own function."""
        raise NotImplementedError("torch.library.Library.fallback: ampc calls an operator's own function; use impl for each operator")


__getattr__ = absent_from(__name__)
