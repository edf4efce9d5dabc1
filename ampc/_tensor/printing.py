"""How tensors look in a console: torch's layout, edges only beyond a threshold."""

from __future__ import annotations

import math
from typing import Any, Callable, List, Optional, Tuple

from .. import _C, _ops


class _Options:
    precision = 4
    threshold = 1000
    edgeitems = 3
    linewidth = 80
    sci_mode: Optional[bool] = None


_options = _Options()


class _Unwatched(_C.Scope):
    """What shows a tensor computes nothing of the script's: neither the doctor nor a profile sees it."""

    def _changes(self) -> tuple:
        return ((_C._watch, (None,), _C._watch, (_C._watcher(),)),)


def set_printoptions(precision: Optional[int] = None, threshold: Optional[int] = None, edgeitems: Optional[int] = None,
                     linewidth: Optional[int] = None, profile: Optional[str] = None, sci_mode: Optional[bool] = None) -> None:
    """Sets how tensors are printed.

    Args:
        precision: digits after the point (4).
        threshold: the number of elements above which only the edges are shown (1000).
        edgeitems: how many elements are shown at each edge (3).
        linewidth: characters in a line (80).
        profile: 'default', 'short' or 'full', which set several of these.
        sci_mode: scientific notation; None uses it if it reads better."""
    if profile not in (None, "default", "short", "full"):
        raise ValueError(f"set_printoptions: profile must be 'default', 'short' or 'full', got {profile!r}")
    if profile is not None:
        _options.precision, _options.edgeitems = (2, 2) if profile == "short" else (4, 3)
        _options.threshold = 10**18 if profile == "full" else 1000
        _options.linewidth = 80
    for name, value in (("precision", precision), ("threshold", threshold), ("edgeitems", edgeitems), ("linewidth", linewidth)):
        if value is not None:
            setattr(_options, name, value)
    _options.sci_mode = sci_mode


def _shown(values: Any, edge: int, depth: int) -> list:
    """The numbers that will be printed."""
    if depth == 0:
        return [values]
    items = list(values)
    if edge and len(items) > 2 * edge:
        items = items[:edge] + items[-edge:]
    return [n for v in items for n in _shown(v, edge, depth - 1)]


def _formatter(numbers: list, floating: bool) -> Tuple[Callable[[Any], str], int]:
    """How one number is written, and in how many characters; of nan, infinities and 0 in more, perhaps, as torch has it."""
    if not floating:
        width = max((len(str(n)) for n in numbers), default=0)
        return lambda n: str(n).rjust(width), width
    finite = [abs(n) for n in numbers if math.isfinite(n) and n != 0]
    precision = _options.precision
    whole = all(n == int(n) for n in finite)
    scientific = bool(finite) and _options.sci_mode  # torch's rule
    if finite and scientific is None:
        big, small = max(finite), min(finite)
        scientific = big / small > 1000 or big > 1e8 or small < 1e-4
    if scientific:
        text = lambda n: f"{n:.{precision}e}"  # noqa: E731
    elif whole:
        text = lambda n: f"{n:.0f}." if math.isfinite(n) else str(n)  # noqa: E731
    else:
        text = lambda n: f"{n:.{precision}f}" if math.isfinite(n) else str(n)  # noqa: E731
    width = max((len(text(n)) for n in numbers if math.isfinite(n) and n != 0), default=1)
    return lambda n: text(n).rjust(width), width


def _render(values: Any, depth: int, indent: int, edge: int, one: Callable[[Any], str], width: int) -> str:
    if depth == 0:
        return one(values)
    cut = edge and len(values) > 2 * edge
    if depth > 1:
        rows = [_render(v, depth - 1, indent + 1, edge, one, width) for v in (values[:edge] + values[-edge:] if cut else values)]
        if cut:
            rows.insert(edge, "...")
        return "[" + (("," + "\n" * (depth - 1) + " " * (indent + 1)).join(rows)) + "]"
    words = [one(v) for v in (values[:edge] + values[-edge:] if cut else values)]
    if cut:
        words.insert(edge, " ...")
    per_line = max(1, (_options.linewidth - indent) // (width + 2))
    lines = [", ".join(words[i:i + per_line]) for i in range(0, len(words), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def tensor_repr(t: Any) -> str:
    """The text of ``repr(tensor)``."""
    kind = type(t)
    name = "Parameter containing:\n" if kind.__name__ == "Parameter" else ""
    is_ours = kind is _C.Tensor or kind.__module__.partition(".")[0] == __name__.partition(".")[0]
    head = "tensor(" if is_ours else f"{kind.__name__}("  # of a script's own class
    if t.is_meta:
        return name + _noted(head + "...", [f"device='{t.device}'", f"size={tuple(t.shape)}", *_notes(t)], len(head))
    plain = t.detach()
    edge = _options.edgeitems if t.numel() > _options.threshold else 0
    floating = t.dtype.is_floating_point
    with _Unwatched():
        for d in range(plain.ndim if edge else 0):  # fetch only what is shown
            if plain.shape[d] > 2 * edge + 1:
                plain = _ops.cat([plain.narrow(d, 0, edge + 1), plain.narrow(d, plain.shape[d] - edge, edge)], d)
        values = plain.tolist()
    notes = [f"device='{t.device}'"] if t.is_cuda else []
    if t.numel() == 0:
        body = "[]"
        if t.ndim != 1:
            notes.append(f"size={tuple(t.shape)}")
    else:
        body = _render(values, t.ndim, len(head), edge, *_formatter(_shown(values, edge, t.ndim), floating))
    return name + _noted(head + body, [*notes, *_notes(t)], len(head))


def _notes(t: Any) -> List[str]:
    """What is said of its dtype and its gradient."""
    notes = []
    if t.dtype != _C.get_default_dtype() and (t.numel() == 0 or t.is_meta or t.dtype not in (_C.int64, _C.bool)):
        notes.append(f"dtype={t.dtype}")
    if not t.is_leaf and t.requires_grad:
        notes.append(f"grad_fn=<{_maker(t)}>")
    elif t.requires_grad:
        notes.append("requires_grad=True")
    return notes


def _noted(text: str, notes: List[str], indent: int) -> str:
    """What is said behind the values, on a new line where the line would be too long."""
    length = len(text) - text.rfind("\n") + 1
    for note in notes:
        fits = length + len(note) + 2 <= _options.linewidth
        text += f", {note}" if fits else f",\n{' ' * indent}{note}"
        length = length + len(note) + 2 if fits else indent + len(note)
    return text + ")"


def _maker(t: Any) -> str:
    """The name of what made it; Invalid for a view that can no longer be used, as in torch."""
    try:
        return _C._grad_fn(t).name()
    except RuntimeError:
        return "Invalid"


def tensor_format(t: Any, spec: str) -> str:
    """A number as its specification says, other tensors as text."""
    if t.ndim == 0 and t.device.type != "meta":
        return format(t.item(), spec)
    try:
        return format(str(t), spec)
    except ValueError:
        raise TypeError(f"format: {spec!r} is for one number, the tensor has shape {list(t.shape)}; use .item() or .tolist()") from None


def tensor_html(t: Any) -> str:
    """For notebooks: what it is, how its values lie, and the values."""
    import html

    plain = t.detach()
    facts = [f"{'x'.join(map(str, t.shape)) or 'one number'}", f"{t.dtype}".split(".")[-1], f"{t.device}", f"{t.numel() * t.element_size():,} bytes"]
    if t.requires_grad:
        facts.append("requires grad" if t.is_leaf else f"made by {_maker(t)}")
    if t.is_floating_point() and t.numel() and not t.is_meta:
        with _Unwatched():
            good = plain.isfinite()
            bad = t.numel() - int(good.sum())
            wide = plain.double()
            low, high = wide.where(good, math.inf).amin().item(), wide.where(good, -math.inf).amax().item()
        if bad < t.numel():
            facts.append(f"from {low:.4g} to {high:.4g}")
        if bad:
            facts.append(f"<b style='color:#c0232c'>{bad:,} not finite</b>")
    return f"<div><b>Tensor</b> {', '.join(facts)}</div><pre>{html.escape(tensor_repr(t))}</pre>"
