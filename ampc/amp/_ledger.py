"""Statistics of gradients from the scaler's pass, kept on their device for later readers.

``unscale_`` reads every gradient once, and the norm for clipping comes from that same read. The statistics are valid until one of the
gradients is written."""

from __future__ import annotations

import math
import weakref
from typing import Dict, List, Optional, Tuple, Union

from .. import _C
from .._C import Tensor

SQUARES, AMAX, INFS, NANS, SMALL, FIRST = range(6)  # columns of a table, see _C._grad_stats

_last: Dict[int, Tuple[list, List[Optional[int]], Optional[Tensor]]] = {}  # by device, -1 the CPU: the gradients, their contents' counts, their table


class GradStats:
    """Statistics of an optimizer's gradients on one device.

    ``table``: a row a gradient. ``positions``: the (group, position) of each row's parameter. ``sums``: of the table's columns, where they are
    known, on the CPU. ``flags``: 1.0 where some value is not finite; for a scale on a GPU also whether some is infinite."""

    __slots__ = ("flags", "positions", "sums", "table")

    def __init__(self, table: Tensor, positions: List[Tuple[int, int]], sums: Optional[Tuple[float, ...]], flags: Tensor) -> None:
        self.table, self.positions, self.sums, self.flags = table, positions, sums, flags


def remember(grads: List[Tensor], table: Tensor) -> None:
    """``table``: [n, 6], see ``_C._grad_stats`` and ``_C._cuda_grad_stats``. Forgotten when the first gradient dies."""
    device = table.get_device()

    def forget(dead: weakref.ref) -> None:
        refs = _last.get(device, ([], [], None))[0]
        if refs and refs[0] is dead:
            del _last[device]

    first, *others = grads  # which mostly die together
    _last[device] = ([weakref.ref(first, forget), *map(weakref.ref, others)], [g._content for g in grads], table)


def _still_holds(grads: List[Tensor], refs: list, contents: List[Optional[int]]) -> bool:
    same = len(grads) == len(refs) and all(r() is g for g, r in zip(grads, refs))
    return same and all(c is not None and g._content == c for g, c in zip(grads, contents))


def ledger_of(grads: List[Tensor]) -> Tensor:
    """The table of these gradients, all on one device: those that a pass has left, or computed now."""
    refs, contents, table = _last.pop(grads[0].get_device(), ([], [], None))
    if table is not None and _still_holds(grads, refs, contents):
        return table
    plain = [g.detach() for g in grads]
    return _C._cuda_grad_stats(plain)[0] if plain[0].is_cuda else _C._grad_stats(plain)


def total(stats: List[GradStats]) -> Tuple[float, ...]:
    """The sums of all tables, which are waited for."""
    return join([_C._sum_up(stat.table.cpu()) if stat.sums is None else stat.sums for stat in stats])


def join(sums: List[Tuple[float, ...]]) -> Tuple[float, ...]:
    """One row from several; of none nothing is known."""
    if not sums:
        return (math.nan, math.nan, 0.0, 0.0, 0.0)
    return sums[0] if len(sums) == 1 else tuple(max(column) if i == AMAX else sum(column) for i, column in enumerate(zip(*sums)))


def only_nans(stats: List[GradStats]) -> bool:
    """Whether there were nans and no infinity in what passes saw."""
    sums = total(stats)
    return sums[NANS] > 0 and sums[INFS] == 0


def loss_behind(losses: List[Union[float, Tensor]], stats: List[GradStats]) -> Union[float, Tensor, None]:
    """Of an iteration's losses the one that explains an optimizer's gradients: the last one. Where only some are finite, it is the last that
    is, or the first that is not where the gradients have nan alone. To look at losses on a GPU would wait: there it is the last."""
    finite = [isinstance(loss, Tensor) or math.isfinite(loss) for loss in losses]
    if all(finite) or not any(finite):
        return losses[-1] if losses else None
    nan = only_nans(stats)
    return [loss for loss, good in zip(losses, finite) if good != nan][0 if nan else -1]
