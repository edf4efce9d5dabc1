"""Statistics and norms of gradients that are spread over processes. Each is the same in all processes of a mesh."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Tuple

from ... import _C
from ..._tensor import creation as make
from ...amp import _parts
from ...amp._ledger import AMAX, INFS, NANS, GradStats, join, ledger_of
from ..collectives import all_reduce
from ..groups import ProcessGroup
from ..reductions import ReduceOp
from ._dtensor import DTensor, local_tensors, shard_group


def _by_group(tensors: List[Any]) -> List[Tuple[Optional[ProcessGroup], List[int]]]:
    """The positions of tensors that are spread over one group, for each; None of those that each process has whole."""
    found: Dict[Optional[ProcessGroup], List[int]] = {}
    for i, t in enumerate(tensors):
        found.setdefault(shard_group(t) if isinstance(t, DTensor) else None, []).append(i)
    return list(found.items())


def _reduced(values: List[float], op: Any, group: ProcessGroup) -> List[float]:
    t = make.tensor(values, dtype=_C.float64, device=group.device)
    all_reduce(t, op, group)
    return t.tolist()


def stats_over_ranks(grads: List[Any], stats: GradStats) -> GradStats:
    """What a pass has found in gradients, with what it found in the other processes' parts of them."""
    sums = []
    table = stats.table.cpu()
    for group, rows in _by_group(grads):
        own = _C._sum_up(table[make.tensor(rows, device="cpu")])
        if group is not None:
            largest = _reduced([own[AMAX]], ReduceOp.MAX, group)[0]
            own = tuple(largest if i == AMAX else s for i, s in enumerate(_reduced(list(own), ReduceOp.SUM, group)))
        sums.append(own)
    whole = join(sums)
    flags = make.tensor([whole[INFS] + whole[NANS] > 0, whole[INFS] > 0], dtype=_C.float32, device=stats.flags.device)[:stats.flags.numel()]
    return GradStats(stats.table, stats.positions, whole, flags)


def total_norm(tensors: List[Any], norm_type: float) -> float:
    """The norm of order ``norm_type`` of all tensors together."""
    infinite = math.isinf(norm_type)
    terms = []
    for group, rows in _by_group(tensors):
        mine = [tensors[i] for i in rows]
        parts = local_tensors(mine)
        if infinite:
            own = max([t.abs().max().item() if t.numel() else 0.0 for t in parts])
        elif norm_type == 2.0:
            own = ledger_of(mine)[:, 0].sum().item()
        else:
            own = sum(t.double().norm(norm_type).item() ** norm_type for t in parts if t.numel())
        terms.append(own if group is None else _reduced([own], ReduceOp.MAX if infinite else ReduceOp.SUM, group)[0])
    return max(terms) if infinite else sum(terms) ** (1 / norm_type)


_parts.join_by(stats_over_ranks, total_norm)
