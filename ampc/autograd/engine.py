"""Runs backward: ``backward`` accumulates gradients into leaves, ``grad`` returns them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Callable, List, NamedTuple, Optional, Union

from .. import _C
from .._C import Node, Tensor
from .._messages.callers import warn
from .._ops import stack
from .._tensor.creation import zeros_like

__all__ = ["GradientEdge", "backward", "grad"]



class GradientEdge(NamedTuple):
    """Where the gradient of a tensor arrives in the graph: the result ``output_nr`` of ``node``. ``backward`` and ``grad`` take it in a tensor's
    place. It keeps the graph alive, not the tensor's values; get_gradient_edge makes it."""

    node: Node
    output_nr: int
    ownership_token: Optional[Node] = None


Tensors = Union[Tensor, GradientEdge, Sequence[Union[Tensor, GradientEdge]]]


def _tuple(x: Any, like: Any = None) -> tuple:
    if x is None:
        return (None,) * len(like)
    return (x,) if isinstance(x, Tensor) else tuple(x)


def _ends(x: Any) -> tuple:
    """Roots or inputs of a pass, with a tensor without values of its own in the place of each GradientEdge."""
    ends = (x,) if isinstance(x, (Tensor, GradientEdge)) else tuple(x)
    return tuple(_C._result_of(e.node, e.output_nr) if isinstance(e, GradientEdge) else e for e in ends)


def _gradients(given: Any, roots: tuple, name: str) -> tuple:
    """The gradients of the roots, None for those that are 1. TypeError for what is neither a Tensor nor None."""
    grads = _tuple(given, roots)
    for g in grads:
        if g is not None and not isinstance(g, Tensor):
            raise TypeError(f"{name}: gradients must be Tensors or None, got {type(g).__name__}")
    return grads


class _Running(threading.local):
    """The backward passes of a thread, one within another, and what is called when the outermost has ended."""

    def __init__(self) -> None:
        self.depth = 0
        self.after: List[Callable[[], Any]] = []


_running = _Running()


def call_after_backward(f: Callable[[], Any]) -> None:
    """Calls ``f()`` when the backward pass that runs now in this thread has ended; after an error it is not called. torch's ``queue_callback``."""
    _running.after.append(f)


def this_pass() -> Any:
    """What tells the outermost backward pass of this thread from others, once call_after_backward was called in it."""
    return _running.after


def is_running() -> bool:
    """Whether a backward pass runs in this thread."""
    return _running.depth > 0


def _run(*args: Any) -> Any:
    _running.depth += 1
    try:
        found = _C._backward(*args)
    except BaseException:
        if _running.depth == 1:
            _running.after = []
        raise
    finally:
        _running.depth -= 1
    if _running.after and not _running.depth:
        calls, _running.after = _running.after, []
        for call in calls:
            call()
    return found


def backward(tensors: Tensors, grad_tensors: Any = None, retain_graph: Optional[bool] = None, create_graph: bool = False,
             grad_variables: Any = None, inputs: Optional[Tensors] = None) -> None:
    """Accumulates gradients of ``tensors`` into the ``.grad`` of the leaves they depend on, see Tensor.backward. A GradientEdge may stand
    for a tensor.

    With ``inputs``, only these get a gradient; those that are no leaves keep it, as after ``retain_grad``."""
    if grad_variables is not None:
        warn("backward: `grad_variables` is an old name; write grad_tensors", FutureWarning)
        if grad_tensors is not None:
            raise RuntimeError("backward: `grad_tensors` and `grad_variables`, its old name, were both given")
    roots = _ends(tensors)
    grads = _gradients(grad_variables if grad_tensors is None else grad_tensors, roots, "backward")
    keep = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        _run(roots, grads, keep, create_graph, None, None)
        return
    leaves = _ends(inputs)
    if not leaves:
        raise RuntimeError("backward: `inputs` is empty")
    for x in leaves:
        _C._retain_grad(x)
    _run(roots, grads, keep, create_graph, leaves, None)


def grad(outputs: Tensors, inputs: Tensors, grad_outputs: Any = None, retain_graph: Optional[bool] = None, create_graph: bool = False,
         only_inputs: bool = True, allow_unused: Optional[bool] = None, is_grads_batched: bool = False,
         materialize_grads: bool = False) -> tuple:
    """Gradients of ``outputs`` with respect to ``inputs``, as a tuple; nothing is accumulated. A GradientEdge may stand for a tensor.

    ``grad_outputs`` weighs the outputs; with ``is_grads_batched`` its first dimension numbers several weights, whose gradients are
    stacked: a pass for each. An input that was not used is an error unless ``allow_unused`` (then None) or ``materialize_grads``
    (then zeros), and so is to ask for none. RuntimeError otherwise as backward.
    """
    if not only_inputs:
        warn("grad: `only_inputs` has no effect: gradients of the inputs alone are made", FutureWarning)
    if allow_unused is not None and not isinstance(allow_unused, int):
        raise TypeError(f"grad: `allow_unused` must be a bool, got {type(allow_unused).__name__}")
    if materialize_grads and allow_unused is False:
        raise ValueError("grad: `materialize_grads` gives zeros for inputs that were not used, so `allow_unused` must be left out or True")
    roots, leaves = _ends(outputs), _ends(inputs)
    if not leaves:
        raise RuntimeError("grad: `inputs` is empty; name the tensors whose gradients are wanted")
    keep = create_graph if retain_graph is None else retain_graph
    unused = materialize_grads if allow_unused is None else allow_unused or materialize_grads
    weights = _gradients(grad_outputs, roots, "grad")
    if is_grads_batched:
        found = _of_each_weight(roots, weights, keep, create_graph, leaves, bool(unused))
    else:
        found = _run(roots, weights, keep, create_graph, leaves, bool(unused))
    if materialize_grads:
        found = tuple(zeros_like(x, requires_grad=create_graph) if g is None else g for g, x in zip(found, leaves))
    return found


def _of_each_weight(roots: tuple, weights: tuple, keep: bool, create_graph: bool, leaves: tuple, unused: bool) -> tuple:
    """The gradients for each index of the weights' first dimension, stacked. ValueError where these dimensions are none, or of several sizes."""
    sizes = {w.shape[0] if isinstance(w, Tensor) and w.ndim else 0 for w in weights}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError("grad: with is_grads_batched each of `grad_outputs` is a Tensor whose first dimension numbers the weights, of one size "
                         "above 0 for all outputs")
    n = sizes.pop()
    passes = [_run(roots, tuple(w[i] for w in weights), keep or i + 1 < n, create_graph, leaves, unused) for i in range(n)]
    return tuple(None if found[0] is None else stack(found) for found in zip(*passes))
