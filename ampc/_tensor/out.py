"""For functions written in Python: writes their results to ``out`` or in place, or gives them memory of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C, _ops


def own(result: _C.Tensor, source: _C.Tensor) -> _C.Tensor:
    """``result``, copied if it shares memory with ``source``. Without the copy, a later write would change both."""
    return result.clone() if _C._same_storage(result, source) else result


def _check(result: Any, out: Any, what: str) -> None:
    if not isinstance(out, _C.Tensor):
        raise TypeError(f"{what}: `out` must be a Tensor, got {type(out).__name__}")


def written(result: Any, out: Any, what: str, *, quiet: bool = False) -> Any:
    """Writes ``result``, a Tensor or a tuple of them, into ``out`` and returns it. ``out`` has its dtype, takes its shape, and needs
    no gradients, as for operators of the table; ``quiet``: without their warning of another shape. Errors name the function ``what``."""
    if out is None:
        return result
    if not isinstance(result, tuple):
        _check(result, out, what)
        if out.dtype != result.dtype:
            raise _C.WrongOut(f"{what}: `out` must be {result.dtype}, as the result is, got {out.dtype}; give it that dtype, or convert the result")
        if quiet and out.shape != result.shape:
            out.resize_(0)
        return _ops.clone(result, out=out)
    if not isinstance(out, (tuple, list)) or len(out) != len(result):
        raise TypeError(f"{what}: expected a tuple of {len(result)} Tensors as `out`, got {type(out).__name__}"
                        + (f" of {len(out)}" if isinstance(out, (tuple, list)) else ""))
    for r, o in zip(result, out):
        _check(r, o, what)  # all of them before the first is written
    each = [written(r, o, what) for r, o in zip(result, out)]
    return type(result)(*each) if hasattr(result, "_fields") else tuple(each)


def in_place(self: _C.Tensor, f: Callable[..., _C.Tensor], *args: Any, **kwargs: Any) -> _C.Tensor:
    """What ``f`` makes of the tensor, written into it. Where gradients are recorded f is given a copy: what it saves for backward
    must outlive the write. RuntimeError for a result that the tensor's dtype cannot hold."""
    result = f(self.clone() if _C.is_grad_enabled() and self.requires_grad else self, *args, **kwargs)
    if result.is_floating_point() and not self.is_floating_point() or self.dtype == _C.bool != result.dtype:
        raise RuntimeError(f"{getattr(f, '__name__', 'f')}_: a {result.dtype} result cannot be written into a {self.dtype} tensor")
    return self.copy_(result)
