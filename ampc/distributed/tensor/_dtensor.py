"""DTensor: a tensor of which each process holds a part. Parameters and gradients of sharded modules are such tensors.

It knows its whole shape and where the parts are. The memory behind it is this process' part alone. Optimizers update that, and methods in place that
act on each element by itself; other operators refuse it. Source: torch.distributed.tensor.DTensor."""

from __future__ import annotations

from typing import Any, Callable, List, NoReturn, Optional, Sequence, Tuple, Union

from ... import _C
from ..._C import Tensor
from ..._tensor import creation as make
from ...autograd.hooks import RemovableHandle
from ...nn.parameter import Parameter
from ..collectives import all_gather_into_tensor, broadcast
from ..device_mesh import DeviceMesh
from ..groups import ProcessGroup
from .placement_types import Placement, Replicate

Placements = Tuple[Placement, ...]


class DTensor(Tensor):
    """A tensor that is spread over the processes of a mesh. ``distribute_tensor``, ``from_local`` and ``fsdp.fully_shard`` make them."""

    __torch_function__ = _C._disabled_torch_function_impl

    _mesh: DeviceMesh
    _placements: Placements
    _whole: Tuple[int, ...]

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Any:
        raise TypeError("DTensor: make it with distribute_tensor(tensor, mesh, placements) or DTensor.from_local(local, mesh, placements)")

    @classmethod
    def _made(cls, local: Tensor, mesh: DeviceMesh, placements: Placements, shape: Sequence[int], requires_grad: bool = False) -> Any:
        t = _C._make_subclass(cls, local.detach(), requires_grad)
        t._mesh, t._placements, t._whole = mesh, placements, tuple(shape)
        _C._make_part(t)  # so that no operator takes it for the whole
        return t

    @staticmethod
    def from_local(local_tensor: Tensor, device_mesh: DeviceMesh, placements: Optional[Sequence[Placement]] = None, *, run_check: bool = False,
                   shape: Optional[Sequence[int]] = None) -> DTensor:
        """The DTensor of which ``local_tensor`` is this process' part; it has its memory, and no history.

        Args:
            placements: for each dimension of the mesh Shard(0) or Replicate(), which is the default.
            run_check: replicated parts take the values of the first process of the line.
            shape: of the whole; by default all parts have as many rows.

        NotImplementedError for other placements."""
        where = checked_placements("DTensor.from_local", placements, device_mesh)
        if run_check:
            for dim, placement in enumerate(where):
                if placement.is_replicate():
                    broadcast(local_tensor, group=device_mesh.get_group(dim), group_src=0)
        whole = list(local_tensor.shape)
        for dim, placement in enumerate(where):
            if placement.is_shard():
                whole[0] *= device_mesh.size(dim)
        return DTensor._made(local_tensor, device_mesh, where, whole if shape is None else shape)

    # -- its values

    def to_local(self) -> Tensor:
        """This process' part: a plain tensor on the same memory, without history."""
        return self.detach()

    def detach(self) -> Tensor:
        """``to_local()``."""
        return _C._make_subclass(Tensor, self, False)

    def clone(self, *, memory_format: Any = None) -> DTensor:
        """A copy."""
        copied = self.detach().clone() if memory_format is None else self.detach().clone(memory_format=memory_format)
        return DTensor._made(copied, self.device_mesh, self.placements, self._whole)

    def __getitem__(self, index: Any) -> NoReturn:
        raise NotImplementedError("DTensor: each process has a part of the rows; write full_tensor()[index], or to_local()[index] for rows of the "
                                  "part")

    def __iter__(self) -> NoReturn:
        raise NotImplementedError("DTensor: each process has a part of the rows; loop over full_tensor(), or over to_local() for rows of the part")

    def full_tensor(self) -> Tensor:
        """The whole, gathered in every process: a plain tensor. All processes of the mesh must call it."""
        group = shard_group(self)
        return self.detach().clone() if group is None else whole_of(self.detach(), self._whole, group)

    def redistribute(self, device_mesh: Optional[DeviceMesh] = None, placements: Optional[Sequence[Placement]] = None) -> DTensor:
        """The same tensor by other placements on the same mesh, gathered and cut again. All processes of the mesh must call it.
        NotImplementedError for another mesh."""
        if device_mesh is not None and device_mesh != self.device_mesh:
            raise NotImplementedError("DTensor.redistribute: to another mesh is not there; full_tensor() and distribute_tensor() are")
        where = checked_placements("DTensor.redistribute", placements, self.device_mesh)
        full = self.full_tensor()
        return DTensor._made(part_of(full, self.device_mesh, where), self.device_mesh, where, full.shape)

    @property
    def device_mesh(self) -> DeviceMesh:
        """The processes. Code that knows no DTensor asks a tensor's class for this name."""
        return self._mesh

    @property
    def placements(self) -> Placements:
        """How it is spread along each dimension of the mesh."""
        return self._placements

    # -- facts of the whole

    @property
    def shape(self) -> Any:  # type: ignore[override]
        """The shape of the whole."""
        return make.empty(self._whole, device="meta").shape

    def size(self, dim: Optional[int] = None) -> Any:
        """The shape of the whole, or one number of it."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        """The number of elements of the whole."""
        return int(self.shape.numel())

    nelement = numel

    def __len__(self) -> int:
        return self._whole[0]

    # -- Python's protocols

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        begin = "Parameter containing:\n" if isinstance(self, Parameter) else ""
        where = f"device_mesh={self.device_mesh!r}, placements=({', '.join(map(repr, self.placements))},)"
        return f"{begin}DTensor(local_tensor={self.detach()!r}, {where})"

    def __deepcopy__(self, memo: dict, **_options: Any) -> Any:
        copied = type(self)._made(self.detach().clone(), self.device_mesh, self.placements, self._whole, self.requires_grad)
        return memo.setdefault(id(self), copied)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise RuntimeError("a DTensor cannot be saved, as this process has a part of it alone; save full_tensor(), or to_local() in each process. Of "
                           "a model, distributed.checkpoint.state_dict.get_model_state_dict gives all values")


class ShardedParameter(DTensor, Parameter):
    """A parameter of a sharded module: this process' rows of it."""

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Calls ``hook(parameter)`` when the averaged gradient is in ``.grad``."""
        return RemovableHandle(self.__dict__.setdefault("_after_reduction", {}), hook)

    def register_hook(self, hook: Callable[[Tensor], Optional[Tensor]]) -> NoReturn:
        """NotImplementedError: backward computes gradients of the whole parameter."""
        raise NotImplementedError("register_hook: backward computes the gradient of the whole parameter, and this process gets rows of the average; "
                                  "register_post_accumulate_grad_hook is called with that in .grad")


def _elementwise(method: Callable[..., Tensor]) -> Callable[..., Any]:
    """A method in place that is right on each part alone: other DTensors among its arguments count with their parts."""
    def in_place(self: Any, *args: Any, **kwargs: Any) -> Any:
        method(self.detach(), *(_part_like(self, a) for a in args), **{k: _part_like(self, v) for k, v in kwargs.items()})
        return self

    in_place.__name__, in_place.__doc__ = method.__name__, f"Tensor.{method.__name__}, in each process of its part."
    return in_place


def _part_like(t: Any, value: Any) -> Any:
    """Of an argument, what belongs to the part of ``t``. RuntimeError for a plain tensor with several elements that is not of the whole's shape."""
    if isinstance(value, DTensor):
        return value.detach()
    if isinstance(value, Tensor) and value.numel() > 1:
        if tuple(value.shape) != t._whole:
            raise RuntimeError(f"DTensor: a plain tensor must have the whole's shape {list(t._whole)}, got {list(value.shape)}")
        return part_of(value, t.device_mesh, t.placements)
    return value


for _method in (Tensor.add_, Tensor.addcdiv_, Tensor.addcmul_, Tensor.clamp_, Tensor.copy_, Tensor.div_, Tensor.fill_, Tensor.lerp_, Tensor.mul_,
                Tensor.sub_, Tensor.zero_):
    setattr(DTensor, _method.__name__, _elementwise(_method))


# -- parts -------------------------------------------------------------------------------------------------------------


def checked_placements(what: str, placements: Optional[Sequence[Placement]], mesh: DeviceMesh) -> Placements:
    """A placement for each dimension of the mesh, of which at most one is Shard(0), the others Replicate(). NotImplementedError for others."""
    found = tuple(Replicate() for _ in range(mesh.ndim)) if placements is None else tuple(placements)
    if len(found) != mesh.ndim:
        raise ValueError(f"{what}: `placements` must be {mesh.ndim}, one for each dimension of the mesh, got {len(found)}")
    if not all(p.is_replicate() or p.is_shard(0) for p in found) or sum(p.is_shard() for p in found) > 1:
        raise NotImplementedError(f"{what}: placements are Replicate(), or once Shard(0), got {found}")
    return found


def shard_group(t: Any) -> Optional[ProcessGroup]:
    """The processes among which the rows of a DTensor are spread; None where each has all."""
    for dim, placement in enumerate(t.placements):
        if placement.is_shard():
            return t.device_mesh.get_group(dim)
    return None


def span_of(n: int, group: ProcessGroup) -> Tuple[int, int, int]:
    """Of ``n`` rows: how many a process has at most, and this process' first and the one after its last. As ``chunk`` cuts them."""
    each = -(-n // group.size())
    return each, min(group.rank() * each, n), min((group.rank() + 1) * each, n)


def part_of(full: Tensor, mesh: DeviceMesh, placements: Placements) -> Tensor:
    """This process' part of a tensor, copied."""
    for dim, placement in enumerate(placements):
        if placement.is_shard():
            _, begin, end = span_of(full.shape[0], mesh.get_group(dim))
            return full.detach()[begin:end].clone()
    return full.detach().clone()


def padded(local: Tensor, each: int) -> Tensor:
    """The rows of a part in one row of memory, with zeros up to ``each`` rows."""
    width = local.shape[1:].numel() if local.ndim > 1 else 1
    row = make.zeros(each * width, dtype=local.dtype, device=local.device)
    row[:local.numel()].copy_(local.reshape(-1))
    return row


def whole_of(local: Tensor, shape: Sequence[int], group: ProcessGroup) -> Tensor:
    """The tensor of which each process of the group has some rows."""
    each, _, _ = span_of(shape[0], group)
    row = padded(local, each)
    row = row if row.is_cuda else row.to(group.device)  # by NCCL where the group has no other way
    out = make.empty(row.numel() * group.size(), dtype=row.dtype, device=row.device)
    all_gather_into_tensor(out, row, group=group)
    return out.reshape(each * group.size(), *shape[1:])[:shape[0]].clone().to(local.device)


def distribute_tensor(tensor: Tensor, device_mesh: DeviceMesh, placements: Optional[Sequence[Placement]] = None, *,
                      src_data_rank: Optional[int] = 0) -> DTensor:
    """The values of rank ``src_data_rank`` of each line, spread by ``placements``: Shard(0) or Replicate() for each dimension of the mesh. With
    ``src_data_rank=None`` each process cuts its own. All processes of the mesh must call it. The result has no history."""
    where = checked_placements("distribute_tensor", placements, device_mesh)
    full = tensor.detach().clone()
    if src_data_rank is not None:
        for dim in range(device_mesh.ndim):
            broadcast(full, group=device_mesh.get_group(dim), group_src=src_data_rank)
    return DTensor._made(part_of(full, device_mesh, where), device_mesh, where, tensor.shape, tensor.requires_grad)


def local_tensors(tensors: List[Union[Tensor, Any]]) -> List[Tensor]:
    """Tensors, and the parts of those that are spread."""
    return [t.to_local() if isinstance(t, DTensor) else t for t in tensors]
