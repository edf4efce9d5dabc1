"""DistributedDataParallel: each process trains on its share of the batch, and gradients are averaged while backward runs."""

from __future__ import annotations

import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Tuple

from ..._C import Tensor, is_grad_enabled
from ..._events import announce
from ..._missing import absent_from
from ...autograd.grad_mode import no_grad
from ...distributed._memory import flat, spread
from ...distributed.collectives import broadcast
from ...distributed.groups import ProcessGroup, group_of
from ..modules.module import Module
from ._buckets import GradBucket
from ._reducer import Reducer

__all__ = ["DistributedDataParallel", "GradBucket"]
MEGABYTE = 1 << 20


class DistributedDataParallel(Module):
    """``module``, whose gradients ``backward`` averages over the processes of a group.

    Args:
        module: the same in every process; its parameters are named ``module.*``. Rank 0's values are given to all.
        device_ids, output_device: None, or the one device of the module.
        broadcast_buffers: rank 0's buffers, such as running means, are given to all before forward passes that train.
        init_sync: False: parameters and buffers are not given to all, but must be equal.
        process_group: the group, by default that of all processes.
        bucket_cap_mb: how many megabytes of gradients travel in one message, 25 by default.
        find_unused_parameters: the outputs' graph is searched for parameters that it does not reach. A parameter that no process used
            keeps its ``.grad``.
        gradient_as_bucket_view: ``.grad`` is a view of the message's memory, which saves a copy.
        static_graph: every pass reaches the same parameters, so they are searched for once.
        dim, check_reduction: taken as in torch, where they have no effect either.

    RuntimeError for a module without trained parameters, for processes whose modules differ (with the first parameter that does), and in
    the next forward pass when a backward pass has not reached every parameter."""

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0, broadcast_buffers: bool = True,
                 init_sync: bool = True, process_group: Optional[ProcessGroup] = None, bucket_cap_mb: Optional[float] = None,
                 find_unused_parameters: bool = False, check_reduction: bool = False, gradient_as_bucket_view: bool = False,
                 static_graph: bool = False) -> None:
        super().__init__()
        group = group_of("DistributedDataParallel", process_group)
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError(f"DistributedDataParallel: a process trains on one device, not {list(device_ids)}; start a process for each")
        if bucket_cap_mb is not None and not bucket_cap_mb > 0:
            raise ValueError(f"DistributedDataParallel: `bucket_cap_mb` must be positive, got {bucket_cap_mb}")
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad and name not in ignored]
        if not trained:
            raise RuntimeError("DistributedDataParallel: no parameter of the module requires gradients, so there is nothing to average; use the "
                               "module itself")
        self.module, self.device_ids, self.output_device, self.dim = module, device_ids, output_device, dim
        self.process_group, self.broadcast_buffers, self.static_graph = group, broadcast_buffers, static_graph
        self.find_unused_parameters, self.gradient_as_bucket_view = find_unused_parameters, gradient_as_bucket_view
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._known_unused: Optional[set] = None  # of a static graph
        self._twin = group.twin("gradients of DistributedDataParallel")
        state = [(name, t) for name, t in (*module.named_parameters(), *module.named_buffers()) if name not in ignored]
        _check_same(self._twin, "is", {name: f"{t.dtype.name} {list(t.shape)}{' trained' if t.requires_grad else ''}" for name, t in state})
        self._twin.checks = False  # from here on all processes make the same calls
        if init_sync:
            self._give([t for _, t in state])
        else:
            _check_same(self._twin, "has the checksum", {name: _checksum(t) for name, t in state})
        self._buffers_given = [b for name, b in module.named_buffers() if name not in ignored]
        limit = int((25 if bucket_cap_mb is None else bucket_cap_mb) * MEGABYTE)
        searches = find_unused_parameters or static_graph
        self.reducer = Reducer([name for name, _ in trained], [p for _, p in trained], self._twin, limit, gradient_as_bucket_view,
                               static_graph or not find_unused_parameters)
        self.reducer.finds_unused = searches

    def _give(self, tensors: List[Tensor]) -> None:
        """All processes' tensors take the values of rank 0's, in one message for each dtype."""
        kinds: Dict[Any, List[Tensor]] = {}
        for t in tensors:
            kinds.setdefault(t.dtype, []).append(t.detach())
        for same in kinds.values():
            row = flat(same)
            broadcast(row, group=self._twin, group_src=0)
            if self._twin.rank():
                spread(same, row)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        averages = is_grad_enabled() and self.require_backward_grad_sync
        if averages:
            self.reducer.check_finished()
        if self.broadcast_buffers and self.require_forward_param_sync and self._buffers_given:
            with no_grad():
                self._give(self._buffers_given)
        outputs = self.module(*inputs, **kwargs)
        self.require_forward_param_sync = averages
        if is_grad_enabled():
            self.reducer.averages = averages
            if averages and self.reducer.finds_unused:
                self._search(outputs)
        return outputs

    def _search(self, outputs: Any) -> None:
        if self._known_unused is None or not self.static_graph:
            self.reducer.find_unused(outputs)
            self._known_unused = set(self.reducer.unused)
        self.reducer.unused = set(self._known_unused)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Forward passes within, with their backward passes, add to ``.grad`` without averaging. The next one outside averages the sum."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        announce.no_sync_begins(self)
        try:
            yield
        finally:
            self.require_backward_grad_sync = before
            announce.no_sync_ends(self)

    def register_comm_hook(self, state: object, hook: Callable[[Any, GradBucket], Any]) -> None:
        """``hook(state, bucket)`` sends gradients in place of the average. It returns a ``futures.Future`` of the row that the bucket shall
        have. TypeError for what cannot be called; RuntimeError for a second hook."""
        if not callable(hook):
            raise TypeError(f"register_comm_hook: `hook` must be callable, got {type(hook).__name__}")
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook: there is a hook already")
        self.reducer.hook = state, hook

    def join(self, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError: give every rank the same number of batches, as DistributedSampler does."""
        raise NotImplementedError("DistributedDataParallel.join: ranks with different numbers of batches are not there yet; DistributedSampler "
                                  "gives all the same number")


def _checksum(t: Tensor) -> str:
    from ... import _C
    from ...distributed._memory import row

    plain = row(t.detach())
    return f"{zlib.crc32(plain.reshape(-1).view(_C.uint8).numpy().tobytes()) if plain.numel() else 0:08x}"


def _check_same(group: ProcessGroup, verb: str, mine: Dict[str, str]) -> None:
    """RuntimeError, which names the first parameter or buffer that differs from rank 0's, in every process where one does."""
    got: List[List[Tuple[str, str]]] = []
    group.submit("DistributedDataParallel's comparison of modules", lambda: got.extend(group.comm.allgather(list(mine.items())))).wait()
    for rank, theirs in enumerate(got[1:], 1):
        if theirs == got[0]:
            continue
        for here, there in zip([*got[0], ("", "nothing")], [*theirs, ("", "nothing")]):
            if here != there:
                raise RuntimeError(f"DistributedDataParallel: the ranks' modules differ: {here[0] or 'nothing more'} of rank {group.ranks[0]} {verb} "
                                   f"{here[1]}, and {there[0] or 'nothing more'} of rank {group.ranks[rank]} {verb} {there[1]}")


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
