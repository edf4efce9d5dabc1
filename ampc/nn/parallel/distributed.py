"""DistributedDataParallel: each process trains on its share of the batch, and gradients are averaged while backward runs."""

from __future__ import annotations

import weakref
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Tuple

from ... import _C
from ..._C import Tensor, is_grad_enabled
from ..._events import announce
from ..._messages.callers import warn
from ..._names.missing import absent_from
from ..._tensor import creation as make
from ...autograd.grad_mode import no_grad
from ...distributed._memory import flat, spread
from ...distributed.algorithms.join import Join, Joinable, JoinHook
from ...distributed.collectives import all_reduce, broadcast
from ...distributed.groups import ProcessGroup, group_of
from ...distributed.reductions import ReduceOp
from ..modules.module import Module
from ._buckets import GradBucket
from ._reducer import Reducer

__all__ = ["DistributedDataParallel", "GradBucket"]
MEGABYTE = 1 << 20
_CONNECTION = {"_twin", "reducer", "_known_unused"}  # what _connect makes
_NOT_COPIED = _CONNECTION | {"process_group", "_parameters_given", "_buffers_given"}


class _JoinHook(JoinHook):
    """A rank without more batches adds zeros to the others' gradients, and takes the averages."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self._model = model

    def main_hook(self) -> None:
        self._model.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        self._model.give_from_last(is_last_joiner)


class DistributedDataParallel(Module, Joinable):
    """``module``, whose gradients ``backward`` averages over the processes of a group.

    Args:
        module: the same in every process; its parameters are named ``module.*``. Rank 0's values are given to all.
        device_ids, output_device: None, or the one device of a module on a GPU; ValueError for a module on the CPU.
        broadcast_buffers: as ``forward_sync_buffers``, and with False buffers are each process' own from the beginning, of any shape.
            Deprecated, as in torch: a FutureWarning.
        init_sync: False: parameters and buffers are not given to all, but must be equal.
        process_group: the group, by default that of all processes.
        bucket_cap_mb: how many megabytes of gradients travel in one message; by default 1 in the first and 25 in the others.
        bucket_cap_mb_list: the same for each message by itself; the last counts for those after it.
        find_unused_parameters: the outputs' graph is searched for parameters that it does not reach, and the loss need not depend on all
            outputs. A parameter that no process used keeps its ``.grad``.
        gradient_as_bucket_view: ``.grad`` is a view of the message's memory, which saves a copy.
        static_graph: every pass reaches the same parameters, so they are searched for once.
        device_mesh: a mesh of one dimension, whose group it is, in place of ``process_group``.
        forward_sync_buffers: rank 0's buffers, such as running means, are given to all before forward passes that train. True by default.
        mixed_precision: None; NotImplementedError for torch's private class. autocast computes in 16 bits.
        delay_all_reduce_named_params, param_to_hook_all_reduce: when gradients of torch travel. Both or neither, ValueError otherwise; here
            all gradients travel in the order in which they come.
        skip_all_reduce_unused_params, batched_grad_copy, dim, check_reduction: taken, of no effect.

    A model of the group of all processes is copied (``copy.deepcopy``), and saved and loaded whole, with all but what ``register_comm_hook`` was
    given. It keeps each process' own values, and one process may make it alone: it meets the others when it first trains or gives buffers.

    RuntimeError for a module without trained parameters, for processes whose modules differ (with the first parameter that does), in the next
    forward pass when a backward pass has not reached every parameter, and for a copy of a model of another group."""

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0, broadcast_buffers: Optional[bool] = None,
                 init_sync: bool = True, process_group: Optional[ProcessGroup] = None, bucket_cap_mb: Optional[float] = None,
                 find_unused_parameters: bool = False, check_reduction: bool = False, gradient_as_bucket_view: bool = False,
                 static_graph: bool = False, delay_all_reduce_named_params: Any = None, param_to_hook_all_reduce: Any = None,
                 mixed_precision: None = None, device_mesh: Any = None, skip_all_reduce_unused_params: bool = False,
                 bucket_cap_mb_list: Optional[List[float]] = None, batched_grad_copy: bool = False,
                 forward_sync_buffers: Optional[bool] = None) -> None:
        super().__init__()
        if (delay_all_reduce_named_params is None) != (param_to_hook_all_reduce is None):
            raise ValueError("DistributedDataParallel: `delay_all_reduce_named_params` and `param_to_hook_all_reduce` must be given both or neither")
        if mixed_precision is not None:
            raise NotImplementedError("DistributedDataParallel: `mixed_precision` must be None; write the forward pass within torch.autocast")
        self.forward_sync_buffers = _syncs_buffers(broadcast_buffers, forward_sync_buffers)
        group = group_of("DistributedDataParallel", process_group if device_mesh is None else _group_of_mesh(process_group, device_mesh))
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError(f"DistributedDataParallel: a process trains on one device, not {list(device_ids)}; start a process for each")
        kinds_of_devices = {p.device.type for p in module.parameters()}
        if len(kinds_of_devices) > 1:
            raise ValueError(f"DistributedDataParallel: the parameters must be on devices of one kind, got {sorted(kinds_of_devices)}")
        if (device_ids or output_device) and "cpu" in kinds_of_devices:
            raise ValueError(f"DistributedDataParallel: `device_ids` and `output_device` are for modules on a GPU, got {device_ids} and "
                             f"{output_device} for one on the CPU; leave them out, or move the module to its GPU first")
        self._limits = _limits(bucket_cap_mb, bucket_cap_mb_list)
        self.module, self.device_ids, self.output_device, self.dim = module, device_ids, output_device, dim
        self.process_group, self.static_graph = group, static_graph
        self.find_unused_parameters, self.gradient_as_bucket_view = find_unused_parameters, gradient_as_bucket_view
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._has_same_buffers = self.forward_sync_buffers or forward_sync_buffers is not None
        self._divides_by_all = True
        state = self._list_state()
        self._connect()
        if init_sync:
            self._give([t for _, t in state])
        else:
            check_same("DistributedDataParallel", self._twin, "has the checksum", {name: _checksum(t) for name, t in state})

    def _list_state(self) -> List[Tuple[str, Tensor]]:
        """Notes the parameters, and the buffers that are the same in all processes. Returns both with their names."""
        ignored = set(getattr(self.module, "_ddp_params_and_buffers_to_ignore", ()))
        parameters = [(name, p) for name, p in self.module.named_parameters() if name not in ignored]
        buffers = [(name, b) for name, b in self.module.named_buffers() if name not in ignored] if self._has_same_buffers else []
        self._parameters_given, self._buffers_given = [p for _, p in parameters], [b for _, b in buffers]
        return parameters + buffers

    def _connect(self) -> None:
        """Makes what sends gradients and buffers. All processes of the group call it."""
        state = self._list_state()
        trained = [(name, t) for name, t in state[:len(self._parameters_given)] if t.requires_grad]
        if not trained:
            raise RuntimeError("DistributedDataParallel: no parameter of the module requires gradients, so there is nothing to average; use the "
                               "module itself")
        self._known_unused: Optional[set] = None  # of a static graph
        self._twin = self.process_group.twin("gradients of DistributedDataParallel")
        kinds = {name: f"{t.dtype.name} {list(t.shape)}{' trained' if t.requires_grad else ''}" for name, t in state}
        check_same("DistributedDataParallel", self._twin, "is", kinds)
        self._twin.checks = False  # from here on all processes make the same calls
        self.reducer = Reducer(f"DistributedDataParallel({type(self.module).__name__})", trained, self._twin, self._limits,
                               self.gradient_as_bucket_view, self.static_graph or not self.find_unused_parameters)
        self.reducer.finds_unused = self.find_unused_parameters or self.static_graph
        weakref.finalize(self, self.reducer.stop).atexit = False

    def _give(self, tensors: List[Tensor], root: int = 0) -> None:
        """All processes' tensors take the values of those of rank ``root`` of the group, in one message for each dtype and device."""
        kinds: Dict[Any, List[Tensor]] = {}
        for t in tensors:
            kinds.setdefault((t.dtype, t.device), []).append(t.detach())
        for same in kinds.values():
            row = flat(same)
            broadcast(row, group=self._twin, group_src=root)
            if self._twin.rank() != root:
                spread(same, row)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        averages = is_grad_enabled() and self.require_backward_grad_sync
        if averages:
            self.reducer.check_finished()
            self.reducer.expect()
        joined = self._join_config.enable and is_grad_enabled()
        if joined or self._gives_buffers():
            self.reducer.passes.begin_forward()
        root = self._begin_joined(averages) if joined else 0
        if self._gives_buffers():
            with no_grad():
                self._give(self._buffers_given, root)
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

    def _set_static_graph(self) -> None:
        """The same as ``static_graph=True``. RuntimeError after the first forward pass."""
        if self.reducer.began:
            raise RuntimeError("_set_static_graph: a forward pass has been made already; call it before the first, or pass static_graph=True")
        self.static_graph = True
        self.reducer.set_static()

    def __getstate__(self) -> Dict[str, Any]:
        if self.process_group is not group_of("DistributedDataParallel"):
            raise RuntimeError("DistributedDataParallel: a model of the group of all processes is copied or saved whole, and this one is of "
                               f"{self.process_group}; copy or save model.module, and wrap it again")
        return {name: value for name, value in self.__dict__.items() if name not in _NOT_COPIED}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(state)
        self.process_group = group_of("DistributedDataParallel")
        self._list_state()

    def __getattr__(self, name: str) -> Any:
        if name in _CONNECTION and "process_group" in self.__dict__:
            self._connect()  # of a copy, at its first use
            return self.__dict__[name]
        return super().__getattr__(name)

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

    # -- ranks with different numbers of batches

    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False) -> Join:
        """A context for training loops in which ranks have different numbers of batches. Those that have no more add zeros to the gradients of the
        others, and get their steps' gradients. At the end all have the parameters and buffers of a rank that was among the last.

        Args:
            divide_by_initial_world_size: gradients are divided by the number of all ranks; False: of those that still have batches.
            enable: False: the context has no effect.
            throw_on_early_termination: RuntimeError in all ranks as soon as one has no more batches.

        The optimizer must step in the loop alone; for a ZeroRedundancyOptimizer write ``Join([model, optimizer])``."""
        return Join([self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size)

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Its hook for ``Join``, which takes ``divide_by_initial_world_size``, see ``join``."""
        self._divides_by_all = bool(kwargs.get("divide_by_initial_world_size", True))
        self.reducer.divisor = None  # a copy connects here, before ranks go different ways
        return _JoinHook(self)

    @property
    def broadcast_buffers(self) -> bool:
        """The older name of ``forward_sync_buffers``."""
        return self.forward_sync_buffers

    @broadcast_buffers.setter
    def broadcast_buffers(self, value: bool) -> None:
        self.forward_sync_buffers = value

    @property
    def device(self) -> Any:
        """The device of its first parameter."""
        return self.join_device

    @property
    def join_device(self) -> Any:
        """The device of its first parameter."""
        return next(self.module.parameters()).device

    @property
    def join_process_group(self) -> Any:
        """Its group of processes."""
        return self.process_group

    def _highest(self, is_meant: bool) -> int:
        """The last rank of the group of those that are meant."""
        t = make.full((), self.process_group.rank() if is_meant else -1, dtype=_C.int64, device=self._twin.device)
        all_reduce(t, ReduceOp.MAX, self._twin)
        return int(t.item())

    def _begin_joined(self, averages: bool) -> int:
        """Before a forward pass within a Join: tells the others of it. Returns the rank whose buffers are given to all."""
        work = Join.notify_join_context(self)
        if work is not None:
            work.wait()
        root = self._highest(True) if self._gives_buffers() else 0
        self._agree_on_pass(averages, True)
        return root

    def _agree_on_pass(self, averages: bool, is_active: bool) -> bool:
        """Whether the gradients of this pass are averaged, which the ranks that have batches know. They are counted for the average."""
        message = make.tensor([averages, is_active], dtype=_C.int64, device=self._twin.device)
        all_reduce(message, group=self._twin)
        averaging, active = message.tolist()
        self.reducer.divisor = None if self._divides_by_all else float(active)
        return averaging > 0

    def _gives_buffers(self) -> bool:
        return bool(self.forward_sync_buffers and self.require_forward_param_sync and self._buffers_given)

    def shadow(self) -> None:
        """Takes part in an iteration of ranks that have batches: in the message of buffers, and that of gradients."""
        self.reducer.passes.begin_forward()
        with no_grad():
            root = self._highest(False) if self._gives_buffers() else None
            averages = self._agree_on_pass(False, False)
            if root is not None:
                self._give(self._buffers_given, root)
            self.require_forward_param_sync = averages
            if averages:
                self.reducer.shadow()

    def give_from_last(self, is_last: bool) -> None:
        """All ranks take the parameters and buffers of a rank that was among the last."""
        self.reducer.divisor = None
        self._twin.within("the end of `with model.join():`")
        with no_grad():
            given = [*self._parameters_given, *(self._buffers_given if self.forward_sync_buffers else [])]
            self._give(given, self._highest(is_last))


def _limits(most: Optional[float], each: Optional[List[float]]) -> Tuple[int, ...]:
    """Of the buckets, in bytes. ValueError for one that is not positive."""
    limits = each or ([most] if most is not None else [1, 25])
    if not all(limit > 0 for limit in limits):
        raise ValueError(f"DistributedDataParallel: `{'bucket_cap_mb_list' if each else 'bucket_cap_mb'}` must be positive, got {each or most}")
    return tuple(int(limit * MEGABYTE) for limit in limits)


def _syncs_buffers(older: Optional[bool], newer: Optional[bool]) -> bool:
    """By `broadcast_buffers`, with a warning, and `forward_sync_buffers`, which counts where both are given."""
    if older is not None:
        warn("DistributedDataParallel: `broadcast_buffers` is deprecated; `forward_sync_buffers` replaces it, " +
             ("and counts where both are given" if newer is not None else "and with False still gives all rank 0's buffers at the beginning"),
             FutureWarning)
    return bool(newer if newer is not None else older is None or older)


def _group_of_mesh(process_group: Any, mesh: Any) -> ProcessGroup:
    """RuntimeError for a mesh of several dimensions, or beside a group."""
    if process_group is not None:
        raise RuntimeError("DistributedDataParallel: `process_group` and `device_mesh` exclude each other")
    if mesh.ndim != 1:
        raise RuntimeError(f"DistributedDataParallel: `device_mesh` must have one dimension, got {mesh.ndim}; take a part by its name: mesh['name']")
    return mesh.get_group()


def _checksum(t: Tensor) -> str:
    from ...distributed._memory import row

    plain = row(t.detach())
    return f"{zlib.crc32(plain.reshape(-1).view(_C.uint8).numpy().tobytes()) if plain.numel() else 0:08x}"


def check_same(what: str, group: ProcessGroup, verb: str, mine: Dict[str, str]) -> None:
    """RuntimeError, which names the first parameter or buffer that differs from rank 0's, in every process where one does."""
    got: List[List[Tuple[str, str]]] = []
    group.submit(f"{what}'s comparison of modules", lambda: got.extend(group.comm.allgather(list(mine.items())))).wait()
    for rank, theirs in enumerate(got[1:], 1):
        if theirs == got[0]:
            continue
        for here, there in zip([*got[0], ("", "nothing")], [*theirs, ("", "nothing")]):
            if here != there:
                raise RuntimeError(f"{what}: the ranks' modules differ: {here[0] or 'nothing more'} of rank {group.ranks[0]} {verb} "
                                   f"{here[1]}, and {there[0] or 'nothing more'} of rank {group.ranks[rank]} {verb} {there[1]}")


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
