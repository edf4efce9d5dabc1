"""Statistics of gradients from the scaler's pass, kept on their device for later readers.

``unscale_`` reads every gradient once, and the norm for clipping comes from that same read. The statistics are valid until one of the
gradients is written."""

from __future__ import annotations

import weakref
from typing import Dict, List, Optional, Tuple

from .. import _C
from .._C import Tensor

_last: Dict[int, Tuple[list, List[Optional[int]], Optional[Tensor]]] = {}  # by device, -1 the CPU: the gradients, their contents' counts, their table


def remember(grads: List[Tensor], table: Tensor) -> None:
    """``table``: [n, 6], see ``_C._look`` and ``_C._cuda_look``. Forgotten when a gradient dies."""
    place = table.get_device()

    def forget(dead: weakref.ref) -> None:
        if any(r is dead for r in _last.get(place, ([], [], None))[0]):
            del _last[place]

    _last[place] = ([weakref.ref(g, forget) for g in grads], [g._content for g in grads], table)


def _still_holds(grads: List[Tensor], refs: list, contents: List[Optional[int]]) -> bool:
    same = len(grads) == len(refs) and all(r() is g for g, r in zip(grads, refs))
    return same and all(c is not None and g._content == c for g, c in zip(grads, contents))


def ledger_of(grads: List[Tensor]) -> Tensor:
    """The table of these gradients, all on one device: what a pass has left, or from a look at them now."""
    refs, contents, table = _last.pop(grads[0].get_device(), ([], [], None))
    if table is not None and _still_holds(grads, refs, contents):
        return table
    plain = [g.detach() for g in grads]
    return _C._cuda_look(plain) if plain[0].is_cuda else _C._look(plain)
