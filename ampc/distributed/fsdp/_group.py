"""The parameters of one fully_shard: gathered together before their module computes, and their gradients reduced together."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set, Tuple

from ..._C import Tensor
from ..._tensor import creation as make
from ...autograd.grad_mode import no_grad
from ..collectives import all_gather_into_tensor, all_reduce, reduce_scatter_tensor
from ..device_mesh import DeviceMesh
from ..groups import ProcessGroup
from ..reductions import ReduceOp
from ._parameter import SplitParameter, neighbours, twins
from ._policies import MixedPrecisionPolicy

Gather = Tuple[List[SplitParameter], Tensor, int, Any]  # a message: its parameters, values, how many shards come from a process, and its Work


class ParameterGroup:
    """Parameters that travel together: in one message for each dtype.

    They are gathered by ``begin`` and ``gather``, and given back by ``drop``. In a backward pass hooks note each gradient. With the last, or at the
    end of the pass, they leave by ``reduce``, and ``finish_reduction`` puts the averages into the shards' ``.grad``."""

    def __init__(self, params: List[SplitParameter], mesh: DeviceMesh, policy: MixedPrecisionPolicy) -> None:
        self.params, self.mesh, self.policy = params, mesh, policy
        self._gathers, self._reduces = twins(mesh.get_group(mesh.ndim - 1))
        self._replicas = twins(mesh.get_group(0))[1] if mesh.ndim == 2 else None
        self.is_full = False
        self._near: Optional[ProcessGroup] = None  # the processes that hold the whole together between forward and backward
        self._kept: List[Tuple[List[SplitParameter], Tensor]] = []  # this process' part of it meanwhile
        self._coming: List[Gather] = []  # gathers on their way
        self._versions: List[int] = []  # of the shards that are gathered
        self._before: List[int] = []  # those of the gather before
        self._going: List[Tuple[List[SplitParameter], Tensor, Any]] = []  # reductions on their way
        self._sums: Dict[int, Tensor] = {}  # by the parameter's number: gradients of passes without synchronization, in the dtype of reductions
        self._waits: Set[int] = set()  # gradients that this pass still waits for
        self.divisor: Optional[float] = None  # instead of the number of processes
        self.syncs = self.syncs_replicas = True
        self._hooked: Set[int] = set()  # parameters whose gradients are noted
        self.all_ready: Any = None  # called with the last gradient of a pass

    def _kinds(self, params: List[SplitParameter]) -> List[List[SplitParameter]]:
        """The parameters of each dtype."""
        found: Dict[Any, List[SplitParameter]] = {}
        for param in params:
            found.setdefault(param.dtype, []).append(param)
        return list(found.values())

    # -- the whole

    def begin(self) -> None:
        """Begins to gather, unless the whole is there or on its way."""
        if self.is_full or self._coming:
            return
        versions = [param.version() for param in self.params]
        kept, self._kept = (self._kept if versions == self._versions else []), []
        self._versions = versions
        with no_grad():
            for params, row in kept:
                self._send_all(params, row, self._near)
            for params in self._kinds(self.params) if not kept else []:
                self._send_all(params, _in_a_row(params, [param.shard.detach() for param in params], 1), self._gathers)

    def _send_all(self, params: List[SplitParameter], row: Tensor, group: Any) -> None:
        out = make.empty(group.size() * row.numel(), dtype=row.dtype, device=row.device)
        self._coming.append((params, out, params[0].group_size // group.size(), all_gather_into_tensor(out, row, group, async_op=True)))

    def keep_near(self, count: int) -> None:
        """Between forward and backward ``count`` neighbours hold the whole together. All processes of the mesh must call it."""
        self._near = neighbours(self.mesh.get_group(self.mesh.ndim - 1), count)

    def _keep(self) -> None:
        near = self._near
        if near is None or not self.is_full or self._versions != [param.version() for param in self.params]:
            return
        times = self.params[0].group_size // near.size()
        with no_grad():
            for params in self._kinds(self.params):
                begins = [near.rank() * times * param.width for param in params]
                parts = [param.full.detach().reshape(-1)[at:at + times * param.width] for at, param in zip(begins, params)]
                self._kept.append((params, _in_a_row(params, parts, times)))

    def gather(self) -> None:
        """The modules hold the whole, with the shards' values of now."""
        if self._versions != [param.version() for param in self.params]:
            self.drop()  # a step was made since
        self.begin()
        with no_grad():
            for params, out, times, work in self._coming:
                work.wait()
                rows, at = out.view(params[0].group_size // times, -1), 0
                for param in params:
                    param.fill(rows[:, at:at + times * param.width], len(params) == 1)
                    at += times * param.width
            if self._before and self._before != self._versions:
                for param in self.params:
                    param.note_change()
        self._coming, self.is_full, self._before = [], True, self._versions
        self._show()

    def _show(self) -> None:
        for param in self.params:
            param.show(param.full if self.is_full else param.shard)

    def drop(self, for_backward: bool = False) -> None:
        """The modules hold the shards. The memory of the whole is given back; what is on its way is waited for. ``for_backward``: neighbours keep
        the whole together, if ``keep_near`` was called."""
        for _, _, _, work in self._coming:
            work.wait()
        self._coming, self._kept = [], []
        if for_backward:
            self._keep()
        if self.is_full:
            for param in self.params:
                param.drop()
        self.is_full = False
        self._show()

    # -- gradients

    def _hook_of(self, number: int) -> Any:
        def ready(_full: Tensor) -> None:
            self._waits.discard(number)
            if not self._waits and self.all_ready is not None:
                self.all_ready()

        return ready

    def expect(self) -> None:
        """A backward pass comes to the group."""
        self._waits = {i for i, param in enumerate(self.params) if param.is_trained}
        for i in self._waits - self._hooked:
            self.params[i].full.register_post_accumulate_grad_hook(self._hook_of(i))
        self._hooked |= self._waits

    def reduce(self) -> None:
        """Sends the gradients that there are, or keeps their sum where passes are not to be synchronized."""
        with no_grad():
            found = [(i, param, self._taken(i, param)) for i, param in enumerate(self.params)]
        grads = {i: grad for i, _, grad in found if grad is not None}
        if not self.syncs:
            self._sums = grads
            return
        self._sums = {}
        for params in self._kinds([param for i, param, _ in found if i in grads]):
            self._send(params, [grads[self.params.index(param)] for param in params])

    def _taken(self, number: int, param: SplitParameter) -> Optional[Tensor]:
        """The gradient of the whole, with those of earlier passes, in the dtype of reductions."""
        grad, before = param.full.grad, self._sums.get(number)
        if grad is None:
            return before
        param.full.grad = None
        grad = grad.detach()
        if self.policy.reduce_dtype is not None and grad.is_floating_point():
            grad = grad.to(self.policy.reduce_dtype)
        return grad if before is None else before.add_(grad)

    def _send(self, params: List[SplitParameter], grads: List[Tensor]) -> None:
        with no_grad():
            size, width = params[0].group_size, sum(param.width for param in params)
            rows, at = make.zeros(size, width, dtype=grads[0].dtype, device=grads[0].device), 0
            for param, grad in zip(params, grads):
                param.put_rows(grad, rows[:, at:at + param.width])
                at += param.width
            part = make.empty(width, dtype=rows.dtype, device=rows.device)
            op = ReduceOp.AVG if self.divisor is None else ReduceOp.SUM
            self._going.append((params, part, reduce_scatter_tensor(part, rows.view(-1), op, self._reduces, async_op=True)))

    def finish_reduction(self) -> None:
        """Waits for the reductions, and adds this process' parts to the shards' gradients."""
        with no_grad():
            for params, part, work in self._going:
                work.wait()
                if self._replicas is not None and self.syncs_replicas:
                    all_reduce(part, ReduceOp.AVG if self.divisor is None else ReduceOp.SUM, self._replicas)
                if self.divisor is not None:
                    part.div_(self.divisor)
                at = 0
                for param in params:
                    param.take(part[at:at + param.width])
                    at += param.width
        self._going = []

    @property
    def is_reducing(self) -> bool:
        """Whether a reduction is on its way."""
        return bool(self._going)

    def forget(self) -> None:
        """After a pass that has failed: what it has left is dropped, and what is on its way waited for."""
        for _, _, work in self._going:
            work.wait()
        self._going, self._waits, self._sums = [], set(), {}
        for param in self.params:
            param.full.grad = None
        self.drop()

def _in_a_row(params: List[SplitParameter], parts: List[Tensor], times: int) -> Tensor:
    """Parts of parameters in a row, where these compute, each with zeros up to ``times`` shards."""
    row, at = make.zeros(times * sum(param.width for param in params), dtype=params[0].dtype, device=params[0].device), 0
    for param, part in zip(params, parts):
        row[at:at + part.numel()].copy_(part.reshape(-1), non_blocking=True)
        at += times * param.width
    return row
