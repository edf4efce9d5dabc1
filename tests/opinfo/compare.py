"""How what ampc gives differs from what torch gives, if it does."""

from __future__ import annotations

import functools
from typing import Any, Callable, List, Optional, Tuple

import torch

import ampc

from .translate import DTYPES, to_torch

Found = Optional[Tuple[str, str, str]]  # what differs, torch's, ampc's
Convert = Callable[[torch.Tensor], torch.Tensor]  # of floating point operands
Reference = Callable[[Convert], Any]  # what torch gives for converted operands
MOVES = 8  # neighbours of a sample at which torch's own rounding is looked at


def difference(t: Any, a: Any, values: bool = True, strides: bool = True, reference: Optional[Reference] = None) -> Found:
    @functools.cache
    def whole(narrow: bool, wide: bool, move: int) -> Any:
        try:
            return reference(conversion(narrow, wide, move)) if reference else None
        except Exception:  # noqa: BLE001  torch has no such dtype of it
            return None

    def at(path: Tuple[int, ...], *how: Any) -> Any:
        found = whole(*how)
        for i in path:
            found = found[i] if isinstance(found, (list, tuple)) and i < len(found) else None
        return found

    return walk(t, a, values, strides, at, ())


def conversion(narrow: bool, wide: bool, move: int) -> Convert:
    """Operands nearer to 0 by up to two units in the last place, if `move` is not 0: of float32 for float64 where `narrow`; and then
    in float64 where `wide`."""
    draws = torch.Generator().manual_seed(move)

    def convert(x: torch.Tensor) -> torch.Tensor:
        x = x.detach()
        if narrow and x.dtype is torch.float64:
            x = x.to(torch.float32)
        if move:
            x = x * (1 - torch.finfo(x.dtype).eps * torch.randint(3, x.shape, generator=draws)).to(x.dtype)
        return x.to(torch.float64) if wide else x.clone()

    return convert


def walk(t: Any, a: Any, values: bool, strides: bool, exact: Callable[..., Any], path: Tuple[int, ...]) -> Found:
    if isinstance(t, torch.Tensor):
        if not isinstance(a, ampc.Tensor):
            return "type", type(t).__name__, type(a).__name__
        return of_tensors(t, a, values, strides, functools.partial(exact, path))
    if isinstance(t, (list, tuple)):
        if not isinstance(a, (list, tuple)) or len(t) != len(a):
            return "type", f"{type(t).__name__} of {len(t)}", f"{type(a).__name__} of {len(a) if hasattr(a, '__len__') else ''}"
        for i, (x, y) in enumerate(zip(t, a)):
            found = walk(x, y, values, strides, exact, (*path, i))
            if found:
                return found
        return None
    if isinstance(t, torch.dtype):
        return None if DTYPES.get(t) is a else ("value", str(t), str(a))
    if type(t).__name__ != type(a).__name__:
        return "type", type(t).__name__, type(a).__name__
    if values and t != a and t == t:
        if isinstance(t, float) and abs(t - a) <= 1e-6 * abs(t):
            return None
        return ("value", str(t), str(a)) if isinstance(t, (bool, int, float, str)) else None
    return None


def of_tensors(t: torch.Tensor, a: Any, values: bool, strides: bool, exact: Callable[..., Any]) -> Found:
    if DTYPES.get(t.dtype) is not a.dtype:
        return "dtype", str(t.dtype), str(a.dtype)
    if tuple(t.shape) != tuple(a.shape):
        return "shape", str(tuple(t.shape)), str(tuple(a.shape))
    if t.requires_grad != a.requires_grad and strides:
        return "requires_grad", str(t.requires_grad), str(a.requires_grad)
    if strides and t._is_view() and steps(t) != steps(a):
        return "strides", str(t.stride()), str(tuple(a.stride()))
    if not values or t.numel() == 0:
        return None
    mine, theirs = to_torch(a), t.detach()
    if t.dtype.is_floating_point:
        return None if close(theirs, mine, exact) else ("value", *where_apart(theirs, mine))
    return None if torch.equal(theirs, mine) else ("value", *where_apart(theirs, mine))


def steps(x: Any) -> List[int]:
    return [d for s, d in zip(x.shape, x.stride()) if s > 1] if 0 not in x.shape else []


def close(t: torch.Tensor, a: torch.Tensor, exact: Callable[..., Any]) -> bool:
    """Within some units in the last place; or as near to what torch gives in float64 as twice torch's own distance and these units,
    where torch's distance is that of this sample, or else the largest of this sample and its neighbours."""
    units = 4 if t.element_size() == 2 else 32
    eps, smallest = torch.finfo(t.dtype).eps, torch.finfo(t.dtype).smallest_normal
    x, y = t.to(torch.float64), a.to(torch.float64)
    if apart(x, y, units * eps * x.abs() + smallest).logical_not().all():
        return True
    wide = as_float64(exact(False, True, 0), x)
    wide = x if wide is None else wide
    finite = wide[wide.isfinite()].abs()
    room = units * eps * torch.clamp(wide.abs(), min=finite.max().item() / 4 if finite.numel() else 0.0) + smallest
    rounded = wide.to(t.dtype).to(torch.float64)  # what overflows is infinite

    def within(distance: float) -> bool:
        return bool((apart(rounded, y, room + 2 * distance) & apart(x, y, room + 2 * distance)).logical_not().all())

    return within(largest(x - wide)) or within(rounding(t, exact))


def rounding(t: torch.Tensor, exact: Callable[..., Any]) -> float:
    """How far what torch gives lies from what it gives in float64 for the same operands, at most, near this sample. Of float64
    results: that of float32 in float64's units, three times: vectors are half as long there and so chains of additions twice, and
    torch's result, with its own rounding, stands for the exact one."""
    narrow = t.dtype is torch.float64
    worst = 0.0
    for move in range(1, MOVES + 1):
        found, wide = (as_float64(exact(narrow, w, move), t) for w in (False, True))
        if found is not None and wide is not None:
            worst = max(worst, largest(found - wide))
    return 3 * worst * torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps if narrow else worst


def as_float64(found: Any, like: torch.Tensor) -> Optional[torch.Tensor]:
    return found.detach().to(torch.float64) if isinstance(found, torch.Tensor) and found.shape == like.shape else None


def largest(distance: torch.Tensor) -> float:
    """Of those that are finite."""
    sizes = distance[distance.isfinite()].abs()
    return sizes.max().item() if sizes.numel() else 0.0


def apart(x: torch.Tensor, y: torch.Tensor, room: Any) -> torch.Tensor:
    same = (x == y) | (x.isnan() & y.isnan())
    return ~(same | ((x - y).abs() <= room))


def where_apart(t: torch.Tensor, a: torch.Tensor) -> Tuple[str, str]:
    t64, a64 = t.to(torch.float64), a.to(torch.float64)
    far = (t64 - a64).abs().nan_to_num(nan=float("inf"))
    far[(t64 == a64) | (t64.isnan() & a64.isnan())] = 0
    worst = int(far.argmax())
    at = f"[{worst} of {t.numel()}] "
    return at + str(t.flatten()[worst].item()), at + str(a.flatten()[worst].item())
