"""Nodes of the graph, and hooks for the tensors that it saves for backward."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from .. import _C
from .._C import Node, Tensor
from .engine import GradientEdge, call_after_backward, this_pass
from .function import node_of
from .hooks import RemovableHandle

__all__ = ["GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version",
           "register_multi_grad_hook", "saved_tensors_hooks", "save_on_cpu"]

_AFTER_NODE, _NOTES = -3, -4  # kinds of entries among a node's hooks (AC_HOOK_ in csrc/python/state.h)


def _register_prehook(self: Any, fn: Callable[..., Any]) -> RemovableHandle:
    """Calls ``fn(grad_outputs)`` before this node's backward, with a tuple of the gradients of its results; a tuple that it returns replaces
    them. Returns a handle with ``remove()``."""
    hooks, kind = _C._hooks(self)
    return RemovableHandle(hooks, (kind, fn))


def _register_hook(self: Any, fn: Callable[..., Any]) -> RemovableHandle:
    """Calls ``fn(grad_inputs, grad_outputs)`` after this node's backward, with tuples of gradients; a tuple that it returns replaces the first.
    After a leaf's accumulation, ``fn((), (leaf.grad,))``. Returns a handle with ``remove()``."""
    return RemovableHandle(_C._hooks(self)[0], (_AFTER_NODE, fn))


def _metadata(self: Any) -> Dict[Any, Any]:
    """A dict for whatever one wants to note about this node."""
    return _C._hooks(self)[0].setdefault("metadata", (_NOTES, {}))[1]


def _of_another(self: Any, name: str) -> Any:
    """Of a Function's node, what its forward left on ``ctx``. Of an operator's, ``_saved_self`` and the like: the tensors kept for backward,
    by the operand's name, and ``_saved_result``. AttributeError for what is not kept, RuntimeError where a backward has freed it."""
    if self._context is not None:
        return getattr(self._context, name)
    if name.startswith("_saved_"):
        return self._saved(name[len("_saved_"):])
    raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


for _name, _made in (("register_hook", _register_hook), ("register_prehook", _register_prehook), ("metadata", property(_metadata)),
                     ("__getattr__", _of_another)):
    setattr(Node, _name, _made)

_refusals = threading.local()  # .texts: those of the regions around, of this thread


class saved_tensors_hooks(_C.Scope):
    """A region with hooks for tensors that operators save for backward.

    ``pack_hook`` gets each Tensor, not numbers, and returns any object to save instead. ``unpack_hook`` gets that object when backward
    needs it, and returns a Tensor of the same shape and dtype. The innermost pair of hooks counts. Hooks must not change their tensors:
    RuntimeError where ``pack_hook`` does."""

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def _changes(self) -> tuple:
        if getattr(_refusals, "texts", ()):
            raise RuntimeError(_refusals.texts[-1])
        cell = ([(self.pack_hook, self.unpack_hook)],)
        return ((_C._swap_saved_hooks, cell, _C._swap_saved_hooks, cell),)


class save_on_cpu(saved_tensors_hooks):
    """A region in which tensors saved for backward are moved to the CPU's memory, page-locked with ``pin_memory``. Backward moves them back."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(t: Tensor) -> Tuple[Any, Tensor]:
            there = t.cpu()
            return t.device, there.pin_memory() if pin_memory and t.is_cuda else there

        def unpack(packed: Tuple[Any, Tensor]) -> Tensor:
            device, t = packed
            return t.to(device, non_blocking=pin_memory)

        super().__init__(pack, unpack)


class allow_mutation_on_saved_tensors(saved_tensors_hooks):
    """A region after which tensors saved for backward may be modified in place, and backward uses their old values: each is copied when it is
    saved. RuntimeError for such a region within another."""

    def __init__(self) -> None:
        super().__init__(_copied, _as_it_is)

    def _changes(self) -> tuple:
        outer = [None]
        _C._swap_saved_hooks(outer)
        inside = outer[0] is not None and outer[0][0] is _copied
        _C._swap_saved_hooks(outer)
        if inside:
            raise RuntimeError("allow_mutation_on_saved_tensors: this region is within another of its kind; leave one of them out")
        return super()._changes()


def _copied(t: Tensor) -> Tensor:
    return t.detach().clone()


def _as_it_is(t: Tensor) -> Tensor:
    return t


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """A region in which hooks for saved tensors are refused: to enter saved_tensors_hooks or save_on_cpu there is a RuntimeError of that text."""
    if not hasattr(_refusals, "texts"):
        _refusals.texts = []
    _refusals.texts.append(error_message)
    try:
        yield
    finally:
        _refusals.texts.pop()


class _Handles:
    """Takes several hooks off with ``remove()``; also a context manager."""

    def __init__(self, handles: List[RemovableHandle]) -> None:
        self._handles = handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> _Handles:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class _Gathered:
    """The gradients of several tensors in one backward pass, which ``fn`` is called with once."""

    def __init__(self, fn: Callable[..., Any], count: int, first_alone: bool) -> None:
        self.fn, self.first_alone, self.lock = fn, first_alone, threading.Lock()
        self.grads: List[Optional[Tensor]] = [None] * count
        self.of: Any = None  # the pass
        self.told = False

    def take(self, i: int, grad: Tensor) -> None:
        """The hook of tensor ``i``."""
        with self.lock:
            if self.of is not this_pass():
                self.grads, self.told = [None] * len(self.grads), False
                call_after_backward(self.tell)
                self.of = this_pass()
            self.grads[i] = grad
        if self.first_alone and not self.told:
            self.told = True
            self.fn(grad)
        elif not self.first_alone and all(g is not None for g in self.grads):
            self.tell()

    def tell(self) -> None:
        """When all are there; else, of those that this pass needed, at its end."""
        if not self.told:
            self.told = True
            self.fn(self.grads)
        self.grads = [None] * len(self.grads)


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: str = "all") -> _Handles:
    """Calls ``fn`` once in each backward pass that computes gradients of some of the tensors.

    With mode 'all' ``fn(grads)`` gets a list, None for tensors that the pass needed no gradient of: when all have come, else at the end of
    the pass. With 'any' ``fn(grad)`` gets the first gradient. Hooks must not change gradients. Returns a handle with ``remove()``.
    ValueError for another mode, RuntimeError for tensors that do not require gradients."""
    if mode not in ("all", "any"):
        raise ValueError(f"register_multi_grad_hook: `mode` must be 'all' or 'any', got {mode!r}")
    gathered = _Gathered(fn, len(tensors), mode == "any")
    return _Handles([t.register_hook(partial(gathered.take, i)) for i, t in enumerate(tensors)])


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The GradientEdge of a tensor, which backward and grad take in its place. RuntimeError where it does not require gradients."""
    if not tensor.requires_grad:
        raise RuntimeError("get_gradient_edge: the tensor does not require gradients, so the graph has no place for one")
    return GradientEdge(node_of(tensor), tensor.output_nr)


def increment_version(tensor: Union[Tensor, Iterable[Tensor]]) -> None:
    """Tells autograd that the memory of a tensor, or of several, was written in a way it does not see, such as a kernel of one's own that got
    ``data_ptr()``. Backward through a node that saved it before is then an error. Tensors made under inference_mode have no version."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        _C._increment_version(t)
