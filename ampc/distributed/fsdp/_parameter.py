"""A parameter of a sharded module: this process' rows of it, which are trained, and the whole, which exists while its module computes."""

from __future__ import annotations

import math
from typing import Any, List, Tuple

from ... import _C
from ..._C import Tensor
from ..._tensor import creation as make
from ..._tensor.device import number_of
from ..._tensor.storage import UntypedStorage
from ...nn.parameter import Parameter
from ..device_mesh import DeviceMesh
from ..groups import ProcessGroup, new_group
from ..tensor import _over_ranks  # noqa: F401  which tells GradScaler and clipping of DTensors
from ..tensor._dtensor import DTensor, ShardedParameter, part_of, span_of
from ..tensor.placement_types import Replicate, Shard
from ._policies import CPUOffloadPolicy, OffloadPolicy


class SplitParameter:
    """One parameter. ``places`` are the modules that hold it, with its names there; they hold ``shard``, or ``full`` while that exists. The device of
    ``full`` is ``device``.

    Graphs keep ``full``, so it is one object for good. Its memory is taken from a gather, and given back."""

    def __init__(self, name: str, param: Tensor, places: List[Tuple[Any, str]], mesh: DeviceMesh, dtype: Any, offload: OffloadPolicy) -> None:
        self.name, self.places, self.device = name, places, param.device
        placements = (Replicate(),) * (mesh.ndim - 1) + (Shard(0),)
        group = mesh.get_group(mesh.ndim - 1)
        self.group_size = group.size()
        self.each, self.begin, self.end = span_of(param.shape[0], group)
        self.width = self.each * math.prod(param.shape[1:])  # elements of a process' part in a message
        own = _placed(part_of(param, mesh, placements), offload)
        self.shard: Any = ShardedParameter._made(own, mesh, placements, param.shape, param.requires_grad)
        self._place = self.shard.dtype, self.shard.device
        self.shape, self.dtype = tuple(param.shape), dtype if dtype is not None and param.is_floating_point() else param.dtype
        self._storage: Any = _C._storage_new(UntypedStorage, 0, number_of(param.device))
        first = make.empty(self.shape, dtype=self.dtype, device=param.device)
        _C._storage_fill(self._storage, first.untyped_storage())
        self.full: Any = _C._make_subclass(Parameter, _C._storage_tensor(self._storage, self.dtype, 0, self.shape, first.stride()),
                                           param.requires_grad)
        self.full._is_gathered = True  # optimizers refuse it
        self.drop()

    @property
    def is_trained(self) -> bool:
        """Whether it gets gradients."""
        return bool(self.shard.requires_grad)

    def version(self) -> int:
        """A number that every write to the shard changes."""
        return int(self.shard._version)

    # -- the whole

    def fill(self, rows: Tensor, alone: bool) -> None:
        """The whole has the values ``rows``, [processes, elements of a part]. It takes their memory, if nothing else lies there (``alone``)."""
        whole = rows.reshape(self.group_size * self.each, *self.shape[1:])[:self.shape[0]]
        if not alone and _C._same_storage(whole, rows):
            whole = whole.clone()
        _C._storage_fill(self._storage, whole.untyped_storage())
        if self.full.requires_grad != self.shard.requires_grad:
            self.full.requires_grad_(self.shard.requires_grad)

    def drop(self) -> None:
        """Gives the memory of the whole back. RuntimeError where an array, or another library, has its address."""
        if self._storage._foreign:
            raise RuntimeError(f"fully_shard: the memory of {self.name} cannot be given back, because an array or another library uses it; clone() "
                               "the parameter before numpy(), or set reshard_after_forward=False and reshard_after_backward=False")
        _C._storage_drop(self._storage, self.dtype)

    def note_change(self) -> None:
        """The whole has other values than before: backward refuses graphs that have kept those."""
        _C._note_write(self.full.detach(), "fully_shard", False)

    def show(self, which: Tensor) -> None:
        """The modules hold ``which``, the shard or the whole. RuntimeError where one has got another parameter since."""
        if self.is_replaced():
            raise RuntimeError(f"fully_shard: another parameter was assigned to {self.name}; change the values of the one that is there, by "
                               "load_state_dict or copy_")
        self.put(which)

    def put(self, which: Tensor) -> None:
        """The same, whatever they hold."""
        for module, name in self.places:
            module._parameters[name] = which

    def is_replaced(self) -> bool:
        """Whether a module holds something else by now."""
        return not all(any(module._parameters.get(name) is own for own in (self.shard, self.full)) for module, name in self.places)

    def is_changed(self) -> bool:
        """Whether it was replaced, or the shard has another dtype or device."""
        return self.is_replaced() or (self.shard.dtype, self.shard.device) != self._place

    # -- gradients

    def put_rows(self, grad: Tensor, row: Tensor) -> None:
        """Writes a gradient of the whole into ``row``, [processes, elements of a part]; what is beyond the last row is 0."""
        flat = grad.detach().reshape(-1)
        for rank in range(self.group_size):
            part = flat[rank * self.width:(rank + 1) * self.width]
            row[rank, :part.numel()].copy_(part)

    def take(self, part: Tensor) -> None:
        """Adds this process' part of the gradient to that of the shard."""
        local = self.shard.detach()
        grad = part[:local.numel()].reshape(local.shape).to(device=local.device, dtype=local.dtype)
        if self.shard.grad is None:
            owned = grad.clone() if _C._same_storage(grad, part) else grad
            self.shard.grad = DTensor._made(owned, self.shard.device_mesh, self.shard.placements, self.shape)
        else:
            self.shard.grad.detach().add_(grad)
        for hook in list(self.shard.__dict__.get("_after_reduction", {}).values()):
            hook(self.shard)


def _placed(local: Tensor, offload: OffloadPolicy) -> Tensor:
    """Rows where the policy has them."""
    if not isinstance(offload, CPUOffloadPolicy):
        return local
    return local.cpu().pin_memory() if offload.pin_memory else local.cpu()


def neighbours(group: ProcessGroup, count: int) -> ProcessGroup:
    """The group of this process and those beside it, ``count`` in all, whose operations run beside others. All processes of ``group`` must
    call it."""
    found = group.__dict__.setdefault("_neighbours", {})
    if count not in found:
        begin = group.rank() // count * count
        found[count] = new_group(group.ranks[begin:begin + count], use_local_synchronization=True, group_desc="neighbours of fully_shard")
    return found[count]


def twins(group: ProcessGroup) -> Tuple[ProcessGroup, ProcessGroup]:
    """Two groups of the same processes, whose operations run beside the group's own and each other: for gathers, and for gradients. All modules that
    are sharded over the group share them."""
    found = group.__dict__.get("_of_sharding")
    if found is None:
        found = group.__dict__["_of_sharding"] = group.twin("parameters of fully_shard"), group.twin("gradients of fully_shard")
    return found
