"""What the scaler's pass over gradients saw of them, kept on their GPU for whoever asks next.

``unscale_`` reads every gradient once; the norm that clipping wants comes out of that same read. It holds until somebody
writes one of them."""

from __future__ import annotations

import weakref
from typing import Dict, List, Optional, Tuple

from .. import _C
from .._C import Tensor

_last: Dict[int, Tuple[list, List[Optional[int]], Optional[Tensor]]] = {}  # by GPU: the gradients, their contents' counts, their table


def remember(grads: List[Tensor], table: Tensor) -> None:
    """``table``: [n, 5], see ``_C._cuda_ledger``."""
    _last[table.get_device()] = ([weakref.ref(g) for g in grads], [g._content for g in grads], table)


def _still_holds(grads: List[Tensor], refs: list, contents: List[Optional[int]]) -> bool:
    same = len(grads) == len(refs) and all(r() is g for g, r in zip(grads, refs))
    return same and all(c is not None and g._content == c for g, c in zip(grads, contents))


def ledger_of(grads: List[Tensor]) -> Tensor:
    """The table of these gradients, all on one GPU: what a pass has left, or from a look at them now."""
    refs, contents, table = _last.pop(grads[0].get_device(), ([], [], None))
    if table is not None and _still_holds(grads, refs, contents):
        return table
    return _C._cuda_ledger([g.detach() for g in grads])
