"""Derivatives of functions of tensors: jacobian, hessian, and products with them. Names and results are torch's.

``func`` takes the inputs and gives a tensor or a tuple of them; results have the structure of outputs and inputs. With
``create_graph`` they can be differentiated again; ``strict`` refuses outputs that do not depend on an input (RuntimeError)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, List, Tuple, Union

from .. import _ops
from .._C import Tensor
from .._tensor import creation as make
from .engine import grad
from .grad_mode import enable_grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Tensors = Union[Tensor, Sequence[Tensor]]


def _tuple(x: Any, what: str) -> Tuple[Tensor, ...]:
    every = (x,) if isinstance(x, Tensor) else tuple(x)
    if not every or not all(isinstance(t, Tensor) for t in every):
        raise TypeError(f"{what}: expected a Tensor or a tuple of Tensors, got {type(x).__name__}")
    return every


def _leaves(inputs: Tensors, create_graph: bool) -> Tuple[Tensor, ...]:
    """Inputs to differentiate: the same tensors in the graph they have, or detached ones."""
    return tuple(t.view(t.shape) if create_graph and t.requires_grad else t.detach().requires_grad_() for t in _tuple(inputs, "inputs"))


def _call(func: Callable[..., Any], leaves: Tuple[Tensor, ...], what: str) -> Tuple[Tuple[Tensor, ...], bool]:
    with enable_grad():
        result = func(*leaves)
    return _tuple(result, f"{what}: what func returned"), isinstance(result, Tensor)


def _weights(v: Any, like: Tuple[Tensor, ...], what: str) -> Tuple[Tensor, ...]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"{what}: `v` can be left out for a single number only")
        return (make.ones_like(like[0]),)
    every = _tuple(v, f"{what}: `v`")
    if len(every) != len(like) or any(a.shape != b.shape for a, b in zip(every, like)):
        raise RuntimeError(f"{what}: `v` must have the shapes {[list(t.shape) for t in like]}, got {[list(t.shape) for t in every]}")
    return every


def _derivatives(outputs: Tuple[Tensor, ...], inputs: Tuple[Tensor, ...], weights: Any, create_graph: bool, strict: bool,
                 what: str) -> Tuple[Tensor, ...]:
    used = [(o, w) for o, w in zip(outputs, weights) if o.requires_grad]
    found: Sequence[Any] = [None] * len(inputs)
    if used:
        found = grad([o for o, _ in used], inputs, [w for _, w in used], retain_graph=True, create_graph=create_graph, allow_unused=True)
    if strict and (len(used) < len(outputs) or any(g is None for g in found)):
        raise RuntimeError(f"{what}: an output does not depend on an input, and `strict` is set")
    return tuple(make.zeros_like(x) if g is None else g for g, x in zip(found, inputs))


def _shaped(values: Sequence[Any], single: bool) -> Any:
    return values[0] if single else tuple(values)


def _settled(values: Sequence[Tensor], create_graph: bool) -> List[Tensor]:
    return [v if create_graph else v.detach() for v in values]


@enable_grad()
def vjp(func: Callable[..., Any], inputs: Tensors, v: Any = None, create_graph: bool = False, strict: bool = False) -> Tuple[Any, Any]:
    """(func's outputs, v times the Jacobian)."""
    leaves = _leaves(inputs, create_graph)
    outputs, one = _call(func, leaves, "vjp")
    found = _derivatives(outputs, leaves, _weights(v, outputs, "vjp"), create_graph, strict, "vjp")
    return _shaped(_settled(outputs, create_graph), one), _shaped(_settled(found, create_graph), isinstance(inputs, Tensor))


@enable_grad()
def jvp(func: Callable[..., Any], inputs: Tensors, v: Any = None, create_graph: bool = False, strict: bool = False) -> Tuple[Any, Any]:
    """(func's outputs, the Jacobian times v), by differentiating the vjp with respect to its weights."""
    leaves = _leaves(inputs, create_graph)
    outputs, one = _call(func, leaves, "jvp")
    direction = _weights(v, leaves, "jvp")
    weights = tuple(make.zeros_like(o).requires_grad_() for o in outputs)
    for w in weights:
        w._stands_in = True  # type: ignore[attr-defined]  # no leaf that anybody else knows
    rows = _derivatives(outputs, leaves, weights, True, strict, "jvp")
    found = _derivatives(rows, weights, direction, create_graph, False, "jvp")
    return _shaped(_settled(outputs, create_graph), one), _shaped(_settled(found, create_graph), one)


@enable_grad()
def jacobian(func: Callable[..., Any], inputs: Tensors, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:
    """The derivative of each output by each input, [*output shape, *input shape]; a row at a time, with ``vectorize``, too."""
    _check_strategy("jacobian", strategy, vectorize)
    leaves = _leaves(inputs, create_graph)
    outputs, one = _call(func, leaves, "jacobian")
    table = []
    for out in outputs:
        rows: List[List[Tensor]] = [[] for _ in leaves]
        flat = out.reshape(-1)
        for i in range(flat.shape[0]):
            for kept, g in zip(rows, _derivatives((flat[i],), leaves, (None,), create_graph, strict, "jacobian")):
                kept.append(g)
        table.append([make.zeros((*out.shape, *x.shape), dtype=x.dtype, device=x.device) if not r else _stacked(r).reshape((*out.shape, *x.shape))
                      for r, x in zip(rows, leaves)])
    table = [_settled(row, create_graph) for row in table]
    return _shaped([_shaped(row, isinstance(inputs, Tensor)) for row in table], one)


def _check_strategy(what: str, strategy: str, vectorize: bool) -> None:
    if strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError(f"{what}: the strategy must be 'reverse-mode' or 'forward-mode', got {strategy!r}")
    if strategy == "forward-mode" and not vectorize:
        raise NotImplementedError(f"{what}: strategy='forward-mode' goes with vectorize=True")


def _stacked(rows: List[Tensor]) -> Tensor:
    return _ops.stack(rows)


def _number(func: Callable[..., Any], what: str) -> Callable[..., Tensor]:
    def f(*inputs: Tensor) -> Tensor:
        out = func(*inputs)
        if not isinstance(out, Tensor) or out.numel() != 1:
            raise RuntimeError(f"{what}: func must return a tensor of one element")
        return out.reshape(())
    return f


def hessian(func: Callable[..., Any], inputs: Tensors, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """The second derivatives of a number by each pair of inputs, [*shape of the first, *shape of the second]."""
    _check_strategy("hessian", outer_jacobian_strategy, vectorize)
    f = _number(func, "hessian")

    def slopes(*leaves: Tensor) -> Tuple[Tensor, ...]:
        return _derivatives((f(*leaves),), leaves, (None,), True, strict, "hessian")

    every = _tuple(inputs, "hessian: inputs")
    table = jacobian(slopes, every, create_graph, strict)
    return table[0][0] if isinstance(inputs, Tensor) else table


@enable_grad()
def vhp(func: Callable[..., Any], inputs: Tensors, v: Any = None, create_graph: bool = False, strict: bool = False) -> Tuple[Any, Any]:
    """(func's number, v times the Hessian)."""
    leaves = _leaves(inputs, create_graph)
    with enable_grad():
        out = _number(func, "vhp")(*leaves)
    weights = _weights(v, leaves, "vhp")
    slopes = _derivatives((out,), leaves, (None,), True, strict, "vhp")
    found = _derivatives(slopes, leaves, weights, create_graph, strict, "vhp")
    return _settled((out,), create_graph)[0], _shaped(_settled(found, create_graph), isinstance(inputs, Tensor))


def hvp(func: Callable[..., Any], inputs: Tensors, v: Any = None, create_graph: bool = False, strict: bool = False) -> Tuple[Any, Any]:
    """(func's number, the Hessian times v): the Hessian is symmetric, so as vhp."""
    return vhp(func, inputs, v, create_graph, strict)
