"""Operations written in Python: ``class MyOp(Function)`` with ``forward`` and ``backward``."""

from __future__ import annotations

from typing import Any, Callable, Optional

from .. import _C
from .._C import Tensor
from .._tensor.creation import zeros
from .grad_mode import enable_grad, no_grad


def node_of(t: Tensor) -> Any:
    """The node of the graph that a tensor's gradient goes to: of a leaf, the one that accumulates it."""
    if t.grad_fn is not None:
        return t.grad_fn
    with enable_grad():
        return t.view(t.shape).grad_fn.next_functions[0][0]  # type: ignore[union-attr]


class FunctionCtx:
    """What forward leaves for backward."""

    _name: str

    def __init__(self) -> None:
        self._saved: tuple = ()
        self._outputs: Any = None
        self._materialize = True
        self._non_differentiable: tuple = ()
        self._dirty: tuple = ()
        self._released = False
        self.needs_input_grad: tuple = ()

    def save_for_backward(self, *tensors: Optional[Tensor]) -> None:
        """Keeps tensors for backward. Inputs and outputs of forward belong here, not on ``self``."""
        self._to_save = tensors

    def save_for_forward(self, *tensors: Optional[Tensor]) -> None:
        """Keeps tensors for ``jvp``, for programs that name them: ampc differentiates forward through backward and never calls ``jvp``."""
        self.saved_for_forward = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """These outputs get no gradient. RuntimeError from ``apply`` for what is no Tensor."""
        self._non_differentiable = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Declares inputs that forward modified in place and returned. If one is a view, the gradient also reaches its base.

        ``apply`` then raises RuntimeError for anything that is no Tensor or no output. It also does for a Tensor that must not be
        modified while gradients are recorded, such as a leaf that requires gradients."""
        self._dirty = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether missing output gradients come as zeros (default) or as None."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple:
        """The tensors kept by save_for_backward. RuntimeError after a backward without retain_graph,
        or when one was modified in place since."""
        if self._released:
            raise RuntimeError(f"backward through {self._name} a second time: pass retain_graph=True to the first")
        return tuple(self._unpack(entry) for entry in self._saved)

    def _pack(self, outputs: tuple) -> None:
        """Outputs are kept without their history: it leads here, and would make a cycle."""
        saved: list = []
        positions = {id(o): i for i, o in reversed(list(enumerate(outputs)))}
        for t in getattr(self, "_to_save", ()):
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(f"save_for_backward keeps Tensors or None, got {type(t).__name__}")
            if t is None:
                saved.append((None, None, 0, None))
                continue
            if t._is_inference:
                raise RuntimeError(f"{self._name}: a tensor made under inference_mode cannot be saved for backward; clone it outside "
                                   "inference_mode first, or make it under no_grad")
            index = positions.get(id(t))
            kept = t if index is None else t.detach()
            packed = _C._pack_saved(kept.detach())
            history = node_of(t) if packed and index is None and t.requires_grad else None
            saved.append((packed or kept, index, t._version, history))
        self._saved = tuple(saved)
        self._to_save = ()

    def _unpack(self, entry: tuple) -> Optional[Tensor]:
        t, index, version, history = entry
        if t is None:
            return None
        if isinstance(t, tuple):  # by hooks on saved tensors
            t = _C._unpack_saved(t)
            version = t._version
            if history is not None:
                return _C._with_history(t, history)
        if t._version != version:
            raise RuntimeError(
                f"backward of {self._name} needs a tensor {t.dtype.name} {list(t.shape)} that was modified in place after it "
                f"was saved (version {t._version}, expected {version})"
            )
        if index is None:
            return t
        output = self._outputs[index]()
        return t if output is None else output


class Function(FunctionCtx):
    """Base of Python operations, used as ``MyOp.apply(*args)``.

    Define ``forward(ctx, *args)`` and ``backward(ctx, *grads)`` as static methods (or ``forward(*args)``
    with ``setup_context(ctx, inputs, output)``); backward returns one gradient, or None, for each argument.
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("Function: define forward")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError(f"{getattr(ctx, '_name', 'Function')}: define backward to differentiate it")

    setup_context: Optional[Callable[..., None]] = None
    vjp = None

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Runs forward and records it."""
        if cls.setup_context is not None:
            args, kwargs = _with_defaults(cls.forward, args, kwargs), {}
        ctx = cls()
        ctx._name = cls.__name__
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        with no_grad():
            if cls.setup_context is not None:
                result = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args, **kwargs)
        outputs = result if isinstance(result, tuple) else (result,)
        recorded = _C.is_grad_enabled() and any(ctx.needs_input_grad)
        if ctx._dirty or ctx._non_differentiable:
            ctx._check_marks(outputs, recorded)
        fresh = ctx._own(args, outputs, recorded)
        if recorded:
            ctx._record(args, outputs, fresh)
        return fresh if isinstance(result, tuple) else fresh[0]

    def _check_marks(self, outputs: tuple, recorded: bool) -> None:
        for what, tensors in (("mark_dirty", self._dirty), ("mark_non_differentiable", self._non_differentiable)):
            for t in tensors:
                if not isinstance(t, Tensor):
                    raise RuntimeError(f"{self._name}: {what} takes Tensors, got {type(t).__name__}")
        for t in self._dirty:
            if not any(t is o for o in outputs):
                raise RuntimeError(f"{self._name}: a tensor given to mark_dirty was not returned; what forward modifies in place must be an output")
            _C._note_write(t, self._name, recorded)

    def _own(self, args: tuple, outputs: tuple, recorded: bool) -> tuple:
        """An input passed through becomes a tensor of its own, so that its history stays: a view, detached where it gets no gradient."""
        given = {id(a) for a in args if isinstance(a, Tensor)}
        if not any(id(o) in given for o in outputs):
            return outputs
        dirty, skip = ({id(t) for t in tensors} for tensors in (self._dirty, self._non_differentiable))

        def own(o: Any) -> Any:
            if id(o) not in given:
                return o
            if o.requires_grad and (not recorded or id(o) in skip):
                return o.detach()
            return o if id(o) in dirty else o.view(o.shape)

        with no_grad():
            return tuple(own(o) for o in outputs)

    def _record(self, args: tuple, outputs: tuple, fresh: tuple) -> None:
        import weakref

        self._pack(fresh)
        skip = {id(t) for t in self._non_differentiable}
        tracked = tuple(None if id(o) in skip else f for o, f in zip(outputs, fresh))
        self._shapes = tuple((o.shape, o.dtype, o.device) if isinstance(o, Tensor) else None for o in fresh)
        _C._record_function(self, self._name, args, tracked, self._dirty)
        self._outputs = tuple(weakref.ref(o) if isinstance(o, Tensor) else None for o in fresh)

    def _run_backward(self, *grads: Optional[Tensor]) -> tuple:
        if self._materialize:
            grads = tuple(
                zeros(s[0], dtype=s[1], device=s[2]) if g is None and s is not None else g for g, s in zip(grads, self._shapes)
            )
        try:
            given = type(self).backward(self, *grads)
        except RuntimeError as error:
            self._explain_dtypes(error)
            raise
        if not isinstance(given, tuple):
            given = (given,)
        n = len(self.needs_input_grad)
        return given[:n] if all(g is None for g in given[n:]) else given  # torch lets trailing Nones pass


    def _explain_dtypes(self, error: RuntimeError) -> None:
        """Adds what to do to an error about dtypes. Autocast is off in backward, so what forward has cast meets what it has saved."""
        if "must have the same dtype" in str(error) and not hasattr(self, "_fwd_used_autocast"):
            error.args = (f"{error}. This is the backward of {self._name}, where autocast is off: decorate its forward with "
                          "torch.amp.custom_fwd(device_type=...) and its backward with torch.amp.custom_bwd(device_type=...), and both run alike",)


def _with_defaults(forward: Callable, args: tuple, kwargs: dict) -> tuple:
    """All arguments of forward by position, with the defaults of those that are left out: setup_context gets each of them."""
    code, defaults = getattr(forward, "__code__", None), getattr(forward, "__defaults__", None)
    if not kwargs and (not defaults or code is None or len(args) == code.co_argcount):
        return args
    import inspect

    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args


class _Twice(Function):
    """Passes gradients on whose own gradient is not defined: to ask for it is an error."""

    @staticmethod
    def forward(ctx: Any, *grads: Tensor) -> Any:
        return grads

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError("backward through a backward that is marked with once_differentiable: its own gradient is not defined; "
                           "write that backward with differentiable operations, and leave the mark out")


def once_differentiable(f: Callable) -> Callable:
    """A backward whose own gradient is not defined: a second backward through it is a RuntimeError."""
    import functools

    @functools.wraps(f)
    def wrapped(ctx: Any, *args: Any) -> Any:
        with no_grad():
            given = f(ctx, *args)
        if not _C.is_grad_enabled() or not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return given
        every = given if isinstance(given, tuple) else (given,)
        marked = iter(_Twice.apply(*(_stand_in(g) for g in every if g is not None)))
        every = tuple(None if g is None else next(marked) for g in every)
        return every if isinstance(given, tuple) else every[0]

    return wrapped


def _stand_in(grad: Tensor) -> Tensor:
    """A leaf that nobody else knows."""
    leaf = grad.detach().requires_grad_()
    leaf._stands_in = True  # type: ignore[attr-defined]
    return leaf
