"""Processes in a grid: ``init_device_mesh`` arranges them, and each line of the grid is a group. Source: torch.distributed.device_mesh."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple, Union

import numpy as np

from .._C import Tensor
from .._names.missing import absent_from
from .._tensor import creation as make
from .groups import ProcessGroup, _get_default_group, get_rank, get_world_size, init_process_group, is_initialized, new_group

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """Ranks in an array of any number of dimensions. Along each dimension, the ranks of a line form a group.

    Args:
        device_type: the name of a kind of device, such as 'cpu'. The processes talk by MPI whatever it is.
        mesh: the ranks, as a tensor or nested lists of integers. Every process gives the same.
        mesh_dim_names: a name for each dimension, by which a part of the mesh is taken: ``mesh["replicate"]``.

    All processes must make it, in the same order as other groups. ValueError for ranks that there are not, or that appear twice, and for
    names of another number."""

    def __init__(self, device_type: str, mesh: Any, *, mesh_dim_names: Optional[Sequence[str]] = None) -> None:
        ranks = np.array(mesh.tolist() if isinstance(mesh, Tensor) else mesh, dtype=np.int64)
        _check_type("DeviceMesh", device_type)
        if not is_initialized():
            init_process_group()
        world = get_world_size()
        if ranks.ndim == 0 or not ranks.size or len(set(ranks.flat)) != ranks.size or ranks.min() < 0 or ranks.max() >= world:
            raise ValueError(f"DeviceMesh: `mesh` must be an array of different ranks from 0 to {world - 1}, got {ranks.tolist()}")
        self._set(device_type, ranks, _checked_names("DeviceMesh", mesh_dim_names, ranks.ndim), _groups_of(ranks))

    def _set(self, device_type: str, ranks: Any, names: Optional[Tuple[str, ...]], groups: List[Any]) -> None:
        self.device_type, self._ranks, self.mesh_dim_names, self._groups = device_type, ranks, names, groups
        found = np.argwhere(ranks == get_rank())
        self._coordinate: Optional[List[int]] = found[0].tolist() if len(found) else None

    @staticmethod
    def from_group(group: Any, device_type: str, mesh: Any = None, *, mesh_dim_names: Optional[Sequence[str]] = None) -> DeviceMesh:
        """The mesh of one dimension on a group that is there, or of several on a list of groups, one for each dimension. The latter needs
        ``mesh``, the ranks. ValueError where they do not fit."""
        several = isinstance(group, (list, tuple))
        groups = list(group) if several else [group]
        if not all(isinstance(g, ProcessGroup) for g in groups) or not groups:
            raise ValueError(f"DeviceMesh.from_group: expected a ProcessGroup or a list of them, got {type(group).__name__}")
        if several and len(groups) > 1 and mesh is None:
            raise ValueError("DeviceMesh.from_group: several groups need `mesh`, the ranks")
        ranks = np.array(groups[0].ranks if mesh is None else mesh.tolist() if isinstance(mesh, Tensor) else mesh, dtype=np.int64)
        if ranks.ndim != len(groups):
            raise ValueError(f"DeviceMesh.from_group: {len(groups)} groups are the lines of {len(groups)} dimensions, and `mesh` has {ranks.ndim}")
        made = DeviceMesh.__new__(DeviceMesh)
        made._set(device_type, ranks, _checked_names("DeviceMesh.from_group", mesh_dim_names, ranks.ndim), groups)
        for dim, one in enumerate(groups):
            line = ranks.tolist() if made._coordinate is None else made._line(dim)
            if sorted(one.ranks) != sorted(line):
                raise ValueError(f"DeviceMesh.from_group: the group of dimension {dim} has the ranks {one.ranks}, and `mesh` {line}")
        return made

    def _line(self, dim: int) -> List[int]:
        """The ranks along a dimension through this process."""
        at: List[Any] = list(self._need_coordinate())
        at[dim] = slice(None)
        return self._ranks[tuple(at)].tolist()

    def _need_coordinate(self) -> List[int]:
        if self._coordinate is None:
            raise RuntimeError(f"DeviceMesh: rank {get_rank()} is not in the mesh {self._ranks.tolist()}")
        return self._coordinate

    # -- facts

    @property
    def mesh(self) -> Tensor:
        """The ranks, as an integer tensor."""
        return make.tensor(self._ranks.tolist(), device="cpu")

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return int(self._ranks.ndim)

    @property
    def shape(self) -> Tuple[int, ...]:
        """The number of ranks along each dimension."""
        return tuple(self._ranks.shape)

    def size(self, mesh_dim: Optional[int] = None) -> int:
        """The number of ranks, of all or along one dimension."""
        return int(self._ranks.size if mesh_dim is None else self._ranks.shape[mesh_dim])

    def _dim(self, what: str, mesh_dim: Union[int, str, None]) -> int:
        """The number of a dimension. RuntimeError where it is left out and there are several; KeyError or IndexError for one that there is not."""
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(f"{what}: the mesh has {self.ndim} dimensions; say which by `mesh_dim`")
            return 0
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise KeyError(f"{what}: the mesh has the dimensions {self.mesh_dim_names}, got {mesh_dim!r}")
            return (self.mesh_dim_names or ()).index(mesh_dim)
        if not -self.ndim <= mesh_dim < self.ndim:
            raise IndexError(f"{what}: the mesh has {self.ndim} dimensions, got {mesh_dim}")
        return mesh_dim % self.ndim

    def get_group(self, mesh_dim: Union[int, str, None] = None) -> ProcessGroup:
        """The group of the line along a dimension, by its number or name, that this process is in. A mesh of one dimension needs neither.
        RuntimeError in a process that is not in the mesh."""
        self._need_coordinate()
        return self._groups[self._dim("DeviceMesh.get_group", mesh_dim)]

    def get_all_groups(self) -> List[ProcessGroup]:
        """The groups of all dimensions."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    def get_rank(self) -> int:
        """This process' rank among all."""
        return get_rank()

    def get_local_rank(self, mesh_dim: Union[int, str, None] = None) -> int:
        """This process' place along a dimension."""
        return self._need_coordinate()[self._dim("DeviceMesh.get_local_rank", mesh_dim)]

    def get_coordinate(self) -> Optional[List[int]]:
        """This process' place along each dimension; None where it is not in the mesh."""
        return None if self._coordinate is None else list(self._coordinate)

    # -- parts

    def __getitem__(self, mesh_dim_names: Union[str, Tuple[str, ...]]) -> DeviceMesh:
        """The part of the mesh along some dimensions, by their names in the mesh's order, that this process is in. KeyError for other names."""
        names = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        dims = [self._dim("DeviceMesh", name) for name in names]
        if not dims or dims != sorted(set(dims)):
            raise KeyError(f"DeviceMesh: the names {names} must be different, and in the order of {self.mesh_dim_names}")
        at = [slice(None) if dim in dims else i for dim, i in enumerate(self._need_coordinate())]
        part = DeviceMesh.__new__(DeviceMesh)
        part._set(self.device_type, self._ranks[tuple(at)], names, [self._groups[dim] for dim in dims])
        return part

    # -- Python's protocols

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple:
        return self.device_type, self.shape, tuple(self._ranks.flat), self.mesh_dim_names

    def __repr__(self) -> str:
        names = self.mesh_dim_names or tuple(str(dim) for dim in range(self.ndim))
        sizes = ", ".join(f"{name}={n}" for name, n in zip(names, self.shape)) if self.mesh_dim_names else ", ".join(map(str, self.shape))
        return f"DeviceMesh(({sizes}), '{self.device_type}')"


def _check_type(what: str, device_type: Any) -> None:
    if not isinstance(device_type, str) or not device_type.isalpha():
        raise RuntimeError(f"{what}: `device_type` must be the name of a kind of device without a number, such as 'cpu', got {device_type!r}")


def _checked_names(what: str, names: Optional[Sequence[str]], ndim: int) -> Optional[Tuple[str, ...]]:
    if names is None:
        return None
    if len(names) != ndim or len(set(names)) != ndim:
        raise RuntimeError(f"{what}: `mesh_dim_names` must be {ndim} different names, one for each dimension, got {tuple(names)}")
    return tuple(names)


def _groups_of(ranks: Any) -> List[Any]:
    """For each dimension the group of this process' line. All processes make all groups, in the same order."""
    if ranks.ndim == 1 and ranks.tolist() == list(range(get_world_size())):
        return [_get_default_group()]
    found: List[Any] = []
    for dim in range(ranks.ndim):
        mine = None
        for line in np.moveaxis(ranks, dim, -1).reshape(-1, ranks.shape[dim]).tolist():
            made = new_group(line, group_desc=f"dimension {dim} of a mesh")
            mine = made if get_rank() in line else mine
        found.append(mine)
    return found


def init_device_mesh(device_type: str, mesh_shape: Sequence[int], *, mesh_dim_names: Optional[Sequence[str]] = None) -> DeviceMesh:
    """The first ranks in a grid of the shape ``mesh_shape``, row by row. Connects the processes first where ``init_process_group`` was not
    called. All processes must call it. RuntimeError for a shape that needs more processes than there are, and for names of another number."""
    _check_type("init_device_mesh", device_type)
    shape = tuple(mesh_shape)
    if not shape or not all(isinstance(n, int) and n > 0 for n in shape):
        raise ValueError(f"init_device_mesh: `mesh_shape` must be positive integers, got {shape}")
    _checked_names("init_device_mesh", mesh_dim_names, len(shape))
    if not is_initialized():
        init_process_group()
    if math.prod(shape) > get_world_size():
        raise RuntimeError(f"init_device_mesh: the shape {shape} needs {math.prod(shape)} processes, and there are {get_world_size()}")
    return DeviceMesh(device_type, np.arange(math.prod(shape)).reshape(shape), mesh_dim_names=mesh_dim_names)


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
