"""What a scaler's last step met, worked out when somebody asks."""

from __future__ import annotations

import math
import weakref
from typing import Any, List, NamedTuple, Optional, Tuple, Union

from .._C import Tensor

SQUARES, AMAX, INFS, NANS, SMALL = range(5)  # the columns of a pass's table, see _C._look


class Culprit(NamedTuple):
    """A gradient that was not finite."""

    name: str  # the parameter's, where the optimizer or a model knows names; else its place in the groups
    shape: Tuple[int, ...]
    infs: int
    nans: int


class LastStep:
    """The status of one ``GradScaler.step``. On a GPU the first look at ``skipped``, ``scale``, ``grad_norm`` or ``culprit`` waits
    for it."""

    def __init__(self, optimizer: Any, found: List[Tensor], seen: List[Tuple[Tensor, list]], scale: Union[float, Tensor]) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._found, self._seen, self._scale = found, seen, scale

    @property
    def skipped(self) -> bool:
        """Whether the optimizer's step was left out."""
        return any(f.item() for f in self._found)

    @property
    def scale(self) -> float:
        """The scale of these gradients."""
        return self._scale.item() if isinstance(self._scale, Tensor) else self._scale

    @property
    def grad_norm(self) -> float:
        """The Euclidean norm of all unscaled gradients, before clipping; nan where it was not looked at."""
        if not self._seen:
            return math.nan
        return math.sqrt(sum(table[:, SQUARES].sum().item() for table, _ in self._seen))

    @property
    def culprit(self) -> Optional[Culprit]:
        """The first parameter, in the optimizer's order, whose gradient was not finite."""
        bad = [(*place, row) for table, places in self._seen for place, row in zip(places, table.tolist()) if row[INFS] + row[NANS]]
        optimizer = self._optimizer()
        if not bad or optimizer is None:
            return None
        g, i, row = min(bad)
        return Culprit(name_of(optimizer, g, i), tuple(optimizer.param_groups[g]["params"][i].shape), int(row[INFS]), int(row[NANS]))

    def __repr__(self) -> str:
        return f"LastStep(skipped={self.skipped}, scale={self.scale:g}, grad_norm={self.grad_norm:g}, culprit={self.culprit})"


def has_infs(table: Tensor) -> Tensor:
    """Whether a pass saw infinities; 1.0 or 0.0."""
    return (table[:, INFS].sum() > 0).float()


def only_nans(tables: List[Tensor]) -> bool:
    """Whether there were nans and no infinity in what passes saw."""
    totals = [table.sum(0).tolist() for table in tables]
    return sum(t[NANS] for t in totals) > 0 and sum(t[INFS] for t in totals) == 0


def name_of(optimizer: Any, group: int, i: int) -> str:
    """A parameter in messages: the name that the optimizer was given, or that a living model has for it, or its place."""
    from ..doctor._names import qualified_name

    names = optimizer.param_groups[group].get("param_names")
    return str(names[i]) if names else qualified_name(optimizer.param_groups[group]["params"][i]) or f"{i} (group {group})"
