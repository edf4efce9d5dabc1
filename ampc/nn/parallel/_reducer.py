"""Gradients' way between processes: each is put into its bucket when backward has it, and a full bucket leaves at once."""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, List, Optional, Sequence, Set, Tuple

from ... import _C
from ..._C import Tensor
from ..._tensor import creation as make
from ...autograd.engine import call_after_backward, is_running
from ...autograd.grad_mode import no_grad
from ...distributed._passes import Passes
from ...distributed.collectives import all_reduce
from ...distributed.groups import ProcessGroup
from ...distributed.reductions import ReduceOp
from . import _scalers
from ._buckets import Bucket, GradBucket, make_buckets

AFTER_ACCUMULATION = -1  # the index under which the core keeps such hooks of a leaf


class Reducer:
    """Averages the gradients of the parameters ``named`` over the processes of ``group``, which is this reducer's alone.

    A pass begins with the first gradient, and ends with the last: then the averages are in ``.grad``. Buckets leave in one order in all
    processes. After the first pass they are made anew, in the order in which rank 0's gradients came. ``title`` is what errors call it."""

    def __init__(self, title: str, named: Sequence[Tuple[str, Tensor]], group: ProcessGroup, limits: Sequence[int], as_views: bool,
                 rebuilds: bool) -> None:
        self.passes = Passes(title, [group], ", or train within `with model.join():`")
        self._names, self._parameters, self._group, self._limits = [name for name, _ in named], [p for _, p in named], group, limits
        self._as_views, self._rebuilds = as_views, rebuilds
        self._order: List[int] = []  # of the gradients of this pass
        self._used: Set[int] = set()  # parameters with a gradient since the last average
        self._next = 0  # the bucket that leaves next
        self._is_over = False  # whether this run of backward has averaged all
        self._has_gradients = True  # False where this process has no more batches
        self.unused: Set[int] = set()  # parameters that this pass does not reach
        self.finds_unused = False
        self.averages = True  # False within no_sync
        self._due = 0  # forward passes whose backward is to come
        self._is_new = True  # whether an average has ended since the last forward pass
        self.began = False  # whether a forward pass has
        self._shared: Set[int] = set()  # where gradients begin that several parameters had at the beginning of a pass
        self.divisor: Optional[float] = None  # of the sum of gradients, in place of the number of processes
        self.hook: Optional[Tuple[Any, Callable[..., Any]]] = None
        self._can_be_in_place = not as_views and group.on_one_host and all(p.device.type == "cpu" for p in self._parameters)
        self._set_buckets(range(len(named) - 1, -1, -1))
        self._handles = [p.register_post_accumulate_grad_hook(self._hook_of(i)) for i, p in enumerate(self._parameters)]
        _scalers.begin()

    def _hook_of(self, number: int) -> Callable[[Tensor], None]:
        def ready(parameter: Tensor) -> None:
            self._used.add(number)
            if self.averages and (self._due or self._is_over):
                with no_grad():
                    self._ready(number)

        return ready

    def _set_buckets(self, order: Sequence[int]) -> None:
        self._buckets = make_buckets(order, self._parameters, self._limits)
        self._bucket_of = {number: bucket for bucket in self._buckets for number in bucket.numbers}

    def expect(self) -> None:
        """Of a forward pass, whose backward averages. One that no forward pass has announced gives each process its own gradients, as in torch."""
        self._due = 1 if self._is_new else self._due + 1
        self._is_new, self.began = False, True

    def set_static(self) -> None:
        """Every pass reaches the same parameters: they are sought in the first one."""
        self.finds_unused = self._rebuilds = True

    def prepare_for_backward(self, outputs: Any) -> None:
        """The next backward pass averages, though no forward pass has announced it: that of ``outputs``, whose unused parameters are sought
        where that is asked for."""
        self.check_finished()
        self.expect()
        self.averages = True
        if self.finds_unused and _tensors(outputs):
            self.find_unused(outputs)

    def stop(self) -> None:
        """From now on nothing is averaged."""
        for handle in self._handles:
            handle.remove()

    # -- a pass

    def missing(self) -> List[str]:
        """The names of parameters whose gradients an unfinished pass waits for; none where no pass has begun."""
        if not self._order:
            return []
        return [self._names[i] for i in range(len(self._names)) if i in self._bucket_of[i].waits]

    def _ready(self, number: int) -> None:
        if not self._order:
            if self._is_over:
                self._refuse_second(number, "after all gradients were averaged")
            self.passes.begin_backward()
            begins = Counter(_C._address(p.grad) for p in self._parameters if p.grad is not None and self._is_in_place)
            self._shared = {address for address, n in begins.items() if n > 1}
            if self.finds_unused:
                call_after_backward(self._end_without_rest)
            for other in sorted(self.unused - {number}):
                self._fill(other)
        self._order.append(number)
        if number in self.unused:
            self.unused.discard(number)
        self._fill(number)
        self._leave_full()

    def _end_without_rest(self) -> None:
        """Ends a pass whose loss did not depend on all outputs: what it has not reached counts as unused."""
        if self._order:
            with no_grad():
                for bucket in self._buckets:
                    for number in sorted(bucket.waits):
                        self._fill(number)
                self._leave_full()

    def _leave_full(self) -> None:
        while self._next < len(self._buckets) and not self._buckets[self._next].waits:
            self._leave(self._buckets[self._next])
            self._next += 1
        if self._next == len(self._buckets):
            self._finish()

    @property
    def _is_in_place(self) -> bool:
        """Whether gradients are averaged where they lie, which saves the copies into a row and back."""
        return self._can_be_in_place and self.hook is None

    def _fill(self, number: int) -> None:
        bucket, p = self._bucket_of[number], self._parameters[number]
        if number not in bucket.waits:
            self._refuse_second(number, f"before {self._first(self.missing())} got the first")
        if p.grad is not None and (p.grad.shape != p.shape or p.grad.dtype != p.dtype):
            raise RuntimeError(f"DistributedDataParallel: the gradient of {self._names[number]} is {p.grad.dtype} of shape {list(p.grad.shape)}, "
                               f"its parameter is {p.dtype} of shape {list(p.shape)}")
        bucket.waits.discard(number)
        if self._is_in_place:
            bucket.own[number] = self._own(number)
            return
        view = bucket.views[bucket.place[number]]
        if p.grad is None:
            view.zero_()
            return
        if p.grad.is_set_to(view):
            view.untyped_storage()  # a factor that was left for later is multiplied in
            return
        view.copy_(p.grad.detach())
        if self._as_views:
            p.grad = view

    def _refuse_second(self, number: int, when: str) -> None:
        raise RuntimeError(f"DistributedDataParallel: parameter {self._names[number]} has got a second gradient {when}. Each backward pass must "
                           "reach every parameter once; find_unused_parameters=True leaves out those that it does not reach")

    @staticmethod
    def _first(names: List[str]) -> str:
        more = f" and {len(names) - 5} others" if len(names) > 5 else ""
        return (", ".join(names[:5]) + more) or "others"

    def _leave(self, bucket: Bucket) -> None:
        op = ReduceOp.AVG if self.divisor is None else ReduceOp.SUM
        if self._is_in_place:
            bucket.sent = [bucket.own.pop(number) if number in bucket.own else self._own(number) for number in bucket.numbers]
            bucket.work = self._group.way("all_reduce", *bucket.sent).all_reduce_parts(bucket.sent, op)
            return
        bucket.sent = bucket.views
        if self.hook is None:
            bucket.work = all_reduce(bucket.row, op, self._group, async_op=True)
            return
        state, hook = self.hook
        bucket.work = hook(state, GradBucket(bucket, bucket is self._buckets[-1]))
        if not hasattr(bucket.work, "wait"):
            raise RuntimeError(f"DistributedDataParallel: a communication hook must return a torch.futures.Future, got {type(bucket.work).__name__}")

    def _own(self, number: int) -> Tensor:
        """What is averaged in place for a parameter: its gradient, or a copy where that may stay, lies in the memory of others, or is read
        by a hook of the script."""
        p = self._parameters[number]
        if p.grad is None or not self._has_gradients:
            return make.zeros(p.shape, dtype=p.dtype)
        is_alone = p.grad._storage_bytes() == p.grad.numel() * p.grad.element_size() and _C._address(p.grad) not in self._shared
        is_free = number in self._used and sum(index == AFTER_ACCUMULATION for index, _ in _C._hooks(p)[0].values()) == 1 and is_alone
        return p.grad.detach() if is_free else p.grad.detach().clone()

    def _finish(self) -> None:
        used, order = self._agree(), self._order
        for bucket in self._buckets:
            self._bring(bucket, used)
        self._order, self._next, self._used, self.unused = [], 0, set(), set()
        self._due, self._is_new = max(0, self._due - 1), True
        if is_running():
            self._is_over = True
            call_after_backward(self._begin_anew)
        for bucket in self._buckets:
            bucket.waits, bucket.work = set(bucket.numbers), None
        if self._rebuilds:
            self._rebuilds = False
            self._rebuild(order)
        _C._set_provenance(self._parameters, "same")

    def shadow(self) -> None:
        """Takes part in the others' pass with gradients of 0, and takes the averages."""
        self._has_gradients = False
        self.passes.begin_backward()
        try:
            with no_grad():
                for bucket in self._buckets:
                    if not self._is_in_place:
                        bucket.row.zero_()
                    self._leave(bucket)
                self._finish()
        finally:
            self._has_gradients = True

    def _agree(self) -> Optional[List[float]]:
        """Which parameters any process has used; None where all count as used. The scalers agree in the same message."""
        own = _scalers.facts() if self._has_gradients else list(_scalers.NO_FACTS)
        if self.finds_unused:
            own += [float(i in self._used) for i in range(len(self._parameters))]
        message = make.tensor(own, dtype=_C.float64, device=self._group.device)
        all_reduce(message, ReduceOp.MAX, self._group)
        largest = message.tolist()
        for bucket in self._buckets:  # all have left, and none may be on its way when an error ends the pass
            self._wait(bucket)
        (_scalers.take if self._has_gradients else _scalers.note)(largest[:_scalers.FACTS])
        return largest[_scalers.FACTS:] if self.finds_unused else None

    def _wait(self, bucket: Bucket) -> None:
        found = bucket.work.wait()
        if self.hook is None and self.divisor is not None:
            for t in bucket.sent if self._is_in_place else [bucket.row]:
                t.div_(self.divisor)
        if self.hook is not None:
            found = found[0] if isinstance(found, (list, tuple)) else found
            if found is not bucket.row:
                bucket.row.copy_(found.reshape(-1))

    def _bring(self, bucket: Bucket, used: Optional[List[float]]) -> None:
        for number, p, sent in zip(bucket.numbers, bucket.parameters, bucket.sent):
            _C._note_write(sent, "distributed", False)
            if used is not None and not used[number]:
                continue  # as it was
            if p.grad is None:
                p.grad = sent if self._as_views or self._is_in_place else sent.clone()
            elif not p.grad.is_set_to(sent):
                p.grad.detach().copy_(sent)
        bucket.sent = []

    def _rebuild(self, order: List[int]) -> None:
        """Buckets in the order of rank 0's gradients."""
        got: List[Any] = []
        comm = self._group.comm
        self._group.submit("the order of gradients", lambda: got.append(comm.bcast(order))).wait()
        known = set(got[0])
        self._set_buckets(got[0] + [i for i in range(len(self._parameters) - 1, -1, -1) if i not in known])
        if self._as_views:
            for bucket in self._buckets:
                for p, view in zip(bucket.parameters, bucket.views):
                    if p.grad is not None:
                        view.copy_(p.grad.detach())
                        p.grad = view

    # -- between passes

    def _begin_anew(self) -> None:
        self._is_over = False

    def check_finished(self) -> None:
        """RuntimeError, which names parameters, where the last pass has not reached all."""
        self._begin_anew()
        names = self.missing()
        if names and self.finds_unused:
            raise RuntimeError(f"DistributedDataParallel: an error has ended the last backward pass before {self._first(names)} got a gradient, so "
                               "the ranks' gradients were not averaged; begin again from a checkpoint")
        if names:
            raise RuntimeError(f"DistributedDataParallel: the last backward pass gave no gradient to {self._first(names)}, so the ranks' gradients "
                               "were not averaged. Every output must enter the loss; for models of which a pass uses a part, set "
                               "find_unused_parameters=True")

    def find_unused(self, outputs: Any) -> None:
        """Notes the parameters that no tensor of ``outputs`` depends on."""
        reached = _reached(outputs)
        unused = {i for i, p in enumerate(self._parameters) if id(p) not in reached}
        self.unused = unused


def _tensors(values: Any) -> List[Tensor]:
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        values = list(values.values())
    elif hasattr(values, "__dataclass_fields__"):
        values = [getattr(values, name) for name in values.__dataclass_fields__]
    return [t for value in values for t in _tensors(value)] if isinstance(values, (list, tuple)) else []


def _reached(outputs: Any) -> Set[int]:
    """The ids of the leaves that the tensors depend on."""
    tensors = _tensors(outputs)
    found = {id(t) for t in tensors if t.is_leaf}
    nodes = [t.grad_fn for t in tensors if t.grad_fn is not None]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        for before, _ in node.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                nodes.append(before)
    return found
