"""How what ampc gives differs from what torch gives, if it does."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple

import torch

import ampc

from .translate import DTYPES, to_torch

Found = Optional[Tuple[str, str, str]]  # what differs, torch's, ampc's


def difference(t: Any, a: Any, values: bool = True, strides: bool = True, reference: Optional[Callable[[], Any]] = None) -> Found:
    exact: List[Any] = []

    def at(path: Tuple[int, ...]) -> Any:
        if not exact:
            try:
                exact.append(reference() if reference else None)
            except Exception:  # noqa: BLE001  torch has no float64 of it
                exact.append(None)
        found = exact[0]
        for i in path:
            found = found[i] if isinstance(found, (list, tuple)) and i < len(found) else None
        return found

    return walk(t, a, values, strides, at, ())


def walk(t: Any, a: Any, values: bool, strides: bool, exact: Callable[[Tuple[int, ...]], Any], path: Tuple[int, ...]) -> Found:
    if isinstance(t, torch.Tensor):
        if not isinstance(a, ampc.Tensor):
            return "type", type(t).__name__, type(a).__name__
        return of_tensors(t, a, values, strides, lambda: exact(path))
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


def of_tensors(t: torch.Tensor, a: Any, values: bool, strides: bool, exact: Callable[[], Any]) -> Found:
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


def close(t: torch.Tensor, a: torch.Tensor, exact: Callable[[], Any]) -> bool:
    """Within some units in the last place, or as near to what torch gives in float64 as twice torch's own distance and these units."""
    units = 4 if t.element_size() == 2 else 32
    eps, smallest = torch.finfo(t.dtype).eps, torch.finfo(t.dtype).smallest_normal
    x, y = t.to(torch.float64), a.to(torch.float64)
    if apart(x, y, units * eps * x.abs() + smallest).logical_not().all():
        return True
    wide = exact()
    if not isinstance(wide, torch.Tensor) or wide.shape != t.shape:
        wide = x
    wide = wide.detach().to(torch.float64)
    finite = wide[wide.isfinite()].abs()
    scale = finite.max().item() if finite.numel() else 0.0
    distance = (x - wide).abs()
    distance = distance[distance.isfinite()]
    worst = distance.max().item() if distance.numel() else 0.0
    room = 2 * worst + units * eps * torch.clamp(wide.abs(), min=scale / 4) + smallest
    rounded = wide.to(t.dtype).to(torch.float64)  # what overflows is infinite
    return bool((apart(rounded, y, room) & apart(x, y, room)).logical_not().all())


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
