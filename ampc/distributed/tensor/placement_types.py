"""How a tensor would lie on several devices: plain values, which libraries make when they are imported. Nothing in ampc is laid out by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from ..._names.missing import absent_from

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class Placement:
    """A placement along one dimension of the devices."""

    def is_shard(self, dim: Optional[int] = None) -> bool:
        """Whether each device has a part, along dimension ``dim`` if that is given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether each device has all values."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: Optional[str] = None) -> bool:
        """Whether each device has a term of a reduction, of ``reduce_op`` if that is given."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Each device has one part along the dimension ``dim``."""

    dim: int

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class _StridedShard(Shard):
    """``Shard`` after another one along the same dimension, which comes later in the order of devices."""

    split_factor: int = 1

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


@dataclass(frozen=True)
class Replicate(Placement):
    """Each device has all values."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """Each device has a term: the value is their reduction by ``reduce_op``."""

    reduce_op: str = "sum"

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
