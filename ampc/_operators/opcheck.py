"""torch.library.opcheck: whether what was registered for an operator fits together."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from .. import ops
from .._C import Tensor
from ..autograd import no_grad
from ..testing import assert_close

Call = Callable[[], Any]


class OpCheckError(Exception):
    """A check of ``opcheck`` failed."""


class _Case:
    """An operator with the arguments of the checks."""

    def __init__(self, op: Any, args: Sequence[Any], kwargs: Dict[str, Any], rtol: Optional[float], atol: Optional[float]) -> None:
        self.op, self.args, self.kwargs, self.rtol, self.atol = op, args, kwargs, rtol, atol

    def given(self, change: Callable[[Tensor], Tensor]) -> Tuple[List[Any], Dict[str, Any]]:
        """The arguments, each tensor changed."""
        return [_changed(a, change) for a in self.args], {k: _changed(v, change) for k, v in self.kwargs.items()}

    @property
    def own(self) -> Any:
        """What was registered; None for an operator of the core."""
        return self.op.overloadpacket if hasattr(self.op.overloadpacket, "kernels") else None


def _changed(a: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(a, Tensor):
        return change(a)
    return type(a)(_changed(t, change) for t in a) if type(a) in (list, tuple) else a


def _copy(t: Tensor) -> Tensor:
    return t.detach().clone().requires_grad_(t.requires_grad)


def _tensors(made: Any) -> List[Tensor]:
    return [made] if isinstance(made, Tensor) else [t for t in made if isinstance(t, Tensor)] if isinstance(made, (list, tuple)) else []


def test_schema(case: _Case) -> None:
    """Arguments that the schema does not mark as written stay what they are, and no result shares their memory."""
    args, kwargs = case.given(lambda t: t.detach().clone())
    result = case.op(*args, **kwargs)
    written = set(case.own.mutates) if case.own is not None else set()
    names = list(case.own.parameters.parameters) if case.own is not None else []
    before = [*zip([*names, *map(str, range(len(names), len(args)))], case.args, args), *((k, case.kwargs[k], v) for k, v in kwargs.items())]
    for name, old, new in before:
        for a, b in zip(_tensors(old), _tensors(new)):
            if name not in written and not a.detach().allclose(b, rtol=0, atol=0, equal_nan=True):
                raise RuntimeError(f"argument {name} was written into, and the schema does not say so")
            if case.own is not None and not written and any(t.numel() and t._storage_ptr() == b._storage_ptr() for t in _tensors(result)):
                raise RuntimeError(f"a result shares memory with argument {name}; return a clone()")


def test_autograd_registration(case: _Case) -> None:
    """A function for the key 'Autograd' and a formula of register_autograd are not both there."""
    if case.own is not None and case.own.backward is not None and "autograd" in case.own.kernels:
        raise RuntimeError("a derivative is registered twice: by register_autograd, and for the key 'Autograd'")


def test_faketensor(case: _Case) -> None:
    """What register_fake has gives results of the shapes and dtypes of the operator's own."""
    if case.own is None:
        return
    if case.own.fake is None:
        raise RuntimeError(f"nothing says which shapes {case.op} returns: there is no function of register_fake")
    args, kwargs = case.given(lambda t: t.detach().clone())
    metas, named = case.given(lambda t: t.detach().to("meta"))
    with no_grad():
        real, fake = _tensors(case.op(*args, **kwargs)), _tensors(case.own.fake(*metas, **named))
    told = [[(tuple(t.shape), t.dtype) for t in made] for made in (real, fake)]
    if told[0] != told[1]:
        raise RuntimeError(f"the operator returns {told[0]}, and its function of register_fake {told[1]}")


def test_aot_dispatch_dynamic(case: _Case) -> None:
    """A second call gives the same, and backward runs where an argument requires gradients."""
    made = []
    for _ in range(2):
        args, kwargs = case.given(_copy)
        made.append(_tensors(case.op(*args, **kwargs)))
        for t in made[-1]:
            if t.requires_grad:
                t.sum().backward(retain_graph=True)
    for a, b in zip(*made):
        assert_close(a.detach(), b.detach(), rtol=case.rtol, atol=case.atol, equal_nan=True)


CHECKS = {f.__name__: f for f in (test_schema, test_autograd_registration, test_faketensor, test_aot_dispatch_dynamic)}


def opcheck(op: Any, args: Sequence[Any], kwargs: Optional[Dict[str, Any]] = None, *, test_utils: Union[str, Sequence[str]] = tuple(CHECKS),
            raise_exception: bool = True, rtol: Optional[float] = None, atol: Optional[float] = None) -> Dict[str, Any]:
    """Checks what was registered for an operator, on some arguments: that it writes into nothing but what its schema says, and that the function
    of ``register_fake`` and the derivative fit. Nothing is traced.

    Args:
        op: an operator of ``torch.ops``, or what ``custom_op`` returned.
        args, kwargs: of a call. Tensors are copied.
        test_utils: which of 'test_schema', 'test_autograd_registration', 'test_faketensor' and 'test_aot_dispatch_dynamic'; all by default.
        raise_exception: whether a failure raises an OpCheckError.
        rtol, atol: tolerances between two calls; both or neither.

    Returns 'SUCCESS', or the exception, for each check. ValueError for other operators and names.
    """
    if (rtol is None) != (atol is None):
        raise ValueError("opcheck: give both `rtol` and `atol`, or neither")
    overload = getattr(op, "_opoverload", op)
    overload = overload.default if isinstance(overload, ops.OpOverloadPacket) else overload
    if not isinstance(overload, ops.OpOverload):
        raise ValueError(f"opcheck: expected an operator such as torch.ops.aten.sin.default, got {type(op).__name__}")
    names = tuple(CHECKS) if test_utils == "ALL" else (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    if not set(names) <= set(CHECKS):
        raise ValueError(f"opcheck: `test_utils` must be of {', '.join(CHECKS)}, got {test_utils!r}")
    case, results = _Case(overload, args, kwargs or {}, rtol, atol), {}
    for name in names:
        try:
            CHECKS[name](case)
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"opcheck: {name} failed: {error}") from error
            results[name] = error  # type: ignore[assignment]
    return results
