"""Activation checkpointing (Chen et al. 2016): intermediate results are not saved for backward but computed again.

The module is itself callable: ``ampc.utils.checkpoint(function, *args)`` is ``checkpoint.checkpoint(function, *args)``."""

from __future__ import annotations

import struct
import sys
import types
import weakref
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Dict, List, Optional, Sequence, Tuple

from .. import _C, cuda, policy
from .._messages.callers import warn
from .._names.missing import absent_from
from ..amp.autocast_mode import autocast, is_autocast_enabled
from ..autograd import Function, backward, enable_grad
from ..autograd.graph import saved_tensors_hooks

Tensor = _C.Tensor

__all__ = ["CheckpointError", "checkpoint", "checkpoint_sequential", "noop_context_fn", "set_checkpoint_early_stop"]

_stop_early = True


class CheckpointError(RuntimeError):
    """The second run of a function saved other tensors than the first, so backward cannot use them."""


class _Enough(Exception):
    """Ends the second run, which has made all saved tensors again."""


def noop_context_fn() -> Tuple[ContextManager, ContextManager]:
    """Two contexts without effect, for the first and the second run."""
    return nullcontext(), nullcontext()


class set_checkpoint_early_stop(_C.Scope):
    """Whether the second run ends with the last tensor that backward needs (the default), or runs to its end."""

    def __init__(self, enable: bool) -> None:
        self._enable = enable

    def _changes(self) -> tuple:
        module = sys.modules[__name__]
        return ((setattr, (module, "_stop_early", self._enable), setattr, (module, "_stop_early", _stop_early)),)


class _State:
    """The state at the first run: autocast, and the random state."""

    def __init__(self, preserve_rng: bool) -> None:
        self.autocasts = [(d, is_autocast_enabled(d), _C.get_autocast_dtype(d), _C.is_autocast_cache_enabled()) for d in ("cpu", "cuda")]
        self.policy = policy.current()
        self.rng = struct.pack("=QQ", *_C._rng_state()) if preserve_rng else None

    def again(self) -> _Again:
        """The same state; random numbers then go on from where they are now."""
        return _Again(self)

    def _regions(self) -> List[tuple]:
        gpu = cuda.is_available()
        return [r for r in self.autocasts if r[0] == "cpu" or gpu or r[1]]


class _Again(_C.Scope):
    """A scope with the state of the first run."""

    def __init__(self, state: _State) -> None:
        self._state = state

    def _changes(self) -> tuple:
        s, cell = self._state, (bytearray(self._state.rng or b""),)
        regions: List[Any] = [autocast(d, dtype=dtype, enabled=on, cache_enabled=cache, policy=s.policy) for d, on, dtype, cache in s._regions()]
        random = [] if s.rng is None else [(_C._swap_rng, cell, _C._swap_rng, cell)]
        return (*random, *((scope.__enter__, (), scope.__exit__, ()) for scope in [enable_grad(), *regions]))


# -- by hooks on what is saved -----------------------------------------------------------------------------------


class _Slot:
    """Stands for one saved tensor, and holds it once the region has run again. Backward lets go of both at once, within C, where a
    __del__ would be the first to see an interrupt, and would swallow it."""

    __slots__ = ("__weakref__", "meta", "made", "region")

    def __init__(self, region: _Region, meta: tuple) -> None:
        self.region, self.meta = region, meta
        self.made: Optional[Tensor] = None


class _Region:
    def __init__(self, function: Callable, args: tuple, kwargs: Dict[str, Any], preserve_rng: bool, again: ContextManager,
                 check: bool, early: bool) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.state, self.again, self.check, self.early = _State(preserve_rng), again, check, early
        self.slots: List[Any] = []  # weak references, in the order of saving
        self.versions = [t._version for t in self.tensors()]  # of before the first run

    def tensors(self) -> List[Tensor]:
        return [a for a in (*self.args, *self.kwargs.values()) if isinstance(a, Tensor)]

    def pack(self, t: Tensor) -> _Slot:
        slot = _Slot(self, (t.dtype, tuple(t.shape), str(t.device)))
        self.slots.append(weakref.ref(slot))
        return slot

    def unpack(self, slot: _Slot) -> Tensor:
        if slot.made is None:
            self.run_again()
        assert slot.made is not None  # run_again raises where a tensor is not made again
        return slot.made

    def run_again(self) -> None:
        count = 0
        if self.versions != [t._version for t in self.tensors()]:
            raise RuntimeError("checkpoint: an argument was modified in place, so the second run would start from other "
                               "numbers; give the function a clone, or write `x = x.op()`")

        def keep(t: Tensor) -> Tensor:
            nonlocal count
            if count >= len(self.slots):
                raise CheckpointError(f"checkpoint: the second run saves more tensors than the {len(self.slots)} of the first")
            slot = self.slots[count]()
            meta = (t.dtype, tuple(t.shape), str(t.device))
            if slot is not None:
                if self.check and meta != slot.meta:
                    raise CheckpointError(f"checkpoint: tensor {count} that is saved was {_text(slot.meta)} in the first run and is "
                                          f"{_text(meta)} in the second; the function must do the same both times")
                slot.made = t
            count += 1
            if count == len(self.slots) and self.early:
                raise _Enough
            return t

        with self.state.again(), self.again, saved_tensors_hooks(keep, lambda t: t):
            try:
                self.function(*self.args, **self.kwargs)
            except _Enough:
                pass
        if count < len(self.slots):
            raise CheckpointError(f"checkpoint: the first run saved {len(self.slots)} tensors and the second {count}; the function must do the "
                                  "same both times")


def _text(meta: tuple) -> str:
    return f"{meta[0].name} {list(meta[1])} on {meta[2]}"


# -- by a backward inside backward ---------------------------------------------------------------------------------


class _Reentrant(Function):
    @staticmethod
    def forward(ctx: Any, function: Callable, preserve_rng: bool, *args: Any) -> Any:
        ctx.function, ctx.state = function, _State(preserve_rng)
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        ctx.positions = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*[a for a in args if isinstance(a, Tensor)])
        return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        if _C.is_grad_enabled():
            raise RuntimeError("checkpoint: a graph of the gradient needs use_reentrant=False")
        args = list(ctx.others)
        for position, t in zip(ctx.positions, ctx.saved_tensors):
            args[position] = t.detach().requires_grad_(t.requires_grad)
        with ctx.state.again():
            results = ctx.function(*args)
        results = results if isinstance(results, tuple) else (results,)
        wanted = [(r, g) for r, g in zip(results, grads) if isinstance(r, Tensor) and r.requires_grad]
        if not wanted:
            raise RuntimeError("checkpoint: none of the region's results requires gradients, so it need not be checkpointed")
        backward([r for r, _ in wanted], [g for _, g in wanted])
        return (None, None, *[a.grad if isinstance(a, Tensor) else None for a in args])


# -- the functions ---------------------------------------------------------------------------------------------------


def checkpoint(function: Callable, *args: Any, use_reentrant: Optional[bool] = None,
               context_fn: Callable[[], Tuple[ContextManager, ContextManager]] = noop_context_fn, determinism_check: str = "default",
               debug: bool = False, early_stop: bool = True, **kwargs: Any) -> Any:
    """Runs ``function(*args, **kwargs)`` and saves only the arguments for backward, which runs the function again.

    The second run has the same autocast state. It draws the same random numbers, except with ``preserve_rng_state=False``.

    Args:
        use_reentrant: False (also the default) supports any graph, keyword arguments, ``autograd.grad`` and gradients of gradients. True
            runs a backward inside backward. It needs a tensor argument that requires gradients, and only ``.backward()`` works.
        context_fn: returns two contexts, for the first and the second run.
        determinism_check: 'default' compares shapes, dtypes and devices of both runs, 'none' does not.
        early_stop: whether the second run ends with the last tensor that backward needs.
        debug: torch's option for more details in errors; here an error always names the tensor that differs.

    ValueError for arguments that exclude each other; CheckpointError when the runs differ. Source: torch.utils.checkpoint."""
    preserve = kwargs.pop("preserve_rng_state", True)
    if determinism_check not in ("default", "none"):
        raise ValueError(f"checkpoint: `determinism_check` must be 'default' or 'none', got {determinism_check!r}")
    if use_reentrant:
        if kwargs or context_fn is not noop_context_fn:
            extra = ", ".join(kwargs) or "context_fn"
            raise ValueError(f"checkpoint: use_reentrant=True takes no {extra}; use_reentrant=False does")
        if _C.is_grad_enabled() and not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            warn("checkpoint: no argument requires gradients, so parameters will get none. use_reentrant=False does not have this limit")
        return _Reentrant.apply(function, preserve, *args)
    first, second = context_fn()
    if not _C.is_grad_enabled():
        with first:
            return function(*args, **kwargs)
    region = _Region(function, args, kwargs, preserve, second, determinism_check == "default", early_stop and _stop_early)
    with saved_tensors_hooks(region.pack, region.unpack), first:
        return function(*args, **kwargs)


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: Optional[bool] = None, **kwargs: Any) -> Any:
    """Runs a Sequential, or a list of functions, in ``segments`` parts, all but the last of them checkpointed."""
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError(f"checkpoint_sequential: unexpected arguments {', '.join(kwargs)}")
    if not isinstance(segments, int) or segments < 1:
        raise ValueError(f"checkpoint_sequential: `segments` must be at least 1, got {segments!r}")
    steps: Sequence[Callable] = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = max(len(steps) // segments, 1)

    def run(first: int, last: int) -> Callable:
        def part(x: Any) -> Any:
            for step in steps[first:last]:
                x = step(x)
            return x
        return part

    borders = [i * size for i in range(min(segments, len(steps)))]
    for first, last in zip(borders[:-1], borders[1:]):
        input = checkpoint(run(first, last), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return run(borders[-1] if borders else 0, len(steps))(input)


class _Callable(types.ModuleType):
    def __call__(self, function: Callable, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(function, *args, **kwargs)


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
sys.modules[__name__].__class__ = _Callable
