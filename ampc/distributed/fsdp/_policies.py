"""What fully_shard is told about dtypes and places. Source: torch.distributed.fsdp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes of a sharded module, at its borders, where autocast chooses for each operator. Each is by default the parameters' own.

    Fields:
        param_dtype: of the gathered parameters, and so of what forward and backward compute in. The optimizer updates the shards, which stay as they
            are.
        reduce_dtype: in which gradients are added up, over processes and over passes without synchronization; by default that of the gradients.
        output_dtype: of the forward's floating-point results.
        cast_forward_inputs: floating-point tensors among the forward's arguments are cast to ``param_dtype``.

    Source: torch.distributed.fsdp.MixedPrecisionPolicy."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True

    def __post_init__(self) -> None:
        for name in ("param_dtype", "reduce_dtype", "output_dtype"):
            dtype = getattr(self, name)
            if dtype is not None and not getattr(dtype, "is_floating_point", False):
                raise ValueError(f"MixedPrecisionPolicy: `{name}` must be a floating-point dtype or None, got {dtype!r}")


@dataclass
class OffloadPolicy:
    """Nothing is moved: shards are where the parameters were."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Shards, their gradients and the optimizer's state are in the CPU's memory, where the optimizer steps; modules compute on the GPU that their
    parameters were on. Rows are copied there before they are gathered, and gradients back when they have been reduced.

    Fields:
        pin_memory: shards are in page-locked memory, from which copies need not wait.

    Source: torch.distributed.fsdp.CPUOffloadPolicy."""

    pin_memory: bool = True
