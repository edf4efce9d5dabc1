"""Groups that divide the processes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .groups import get_process_group_ranks, get_world_size, group_of, is_member, new_group


def new_subgroups(group_size: Optional[int] = None, group: Any = None, timeout: Optional[timedelta] = None, backend: Optional[str] = None,
                  pg_options: Any = None, group_desc: Optional[str] = None) -> Tuple[Any, List[Any]]:
    """Divides the processes of a group, by default all, into groups of ``group_size``, in the order of ranks. Returns this process' group and the
    list of all, in which others' are ``GroupMember.NON_GROUP_MEMBER``. All processes of the group must call it. Without ``group_size`` it is the
    number of GPUs.

    ValueError for a size that is not positive, larger than the group, or does not divide its number of processes, and without GPUs for no size."""
    if group_size is None:
        from ..cuda import device_count

        group_size = device_count()
        if not group_size:
            raise ValueError("new_subgroups: without GPUs `group_size` must be given")
    ranks = get_process_group_ranks(group)
    if not 0 < group_size <= len(ranks) or len(ranks) % group_size:
        raise ValueError(f"new_subgroups: `group_size` must be positive and divide the number of processes ({len(ranks)}), got {group_size}")
    parts = [ranks[i:i + group_size] for i in range(0, len(ranks), group_size)]
    return _made(parts, len(ranks) < get_world_size(), timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(ranks_per_subgroup_list: Sequence[Sequence[int]], timeout: Optional[timedelta] = None,
                                 backend: Optional[str] = None, pg_options: Any = None, group_desc: Optional[str] = None) -> Tuple[Any, List[Any]]:
    """A group for each list of ranks. Returns the one that this process is in, or None, and the list of all, in which others' are
    ``GroupMember.NON_GROUP_MEMBER``. All processes must call it. ValueError for no lists, and for a rank in two of them."""
    if not ranks_per_subgroup_list:
        raise ValueError("new_subgroups_by_enumeration: `ranks_per_subgroup_list` must be lists of ranks, one for each group")
    group_of("new_subgroups_by_enumeration")
    found: Dict[int, Sequence[int]] = {}
    for ranks in ranks_per_subgroup_list:
        for rank in ranks:
            if rank in found:
                raise ValueError(f"new_subgroups_by_enumeration: rank {rank} is in both {list(found[rank])} and {list(ranks)}")
            found[rank] = ranks
    return _made(ranks_per_subgroup_list, False, timeout, backend, pg_options, group_desc)


def _made(parts: Sequence[Sequence[int]], is_called_by_some: bool, timeout: Optional[timedelta], backend: Optional[str], pg_options: Any,
          group_desc: Optional[str]) -> Tuple[Any, List[Any]]:
    made = [new_group(list(ranks), timeout, backend, pg_options, is_called_by_some, group_desc) for ranks in parts]
    return next((each for each in made if is_member(each)), None), made
