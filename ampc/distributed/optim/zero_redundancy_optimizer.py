"""ZeroRedundancyOptimizer: each process holds the optimizer's state of its share of the parameters. Source: Rajbhandari et al. 2020 (ZeRO, stage
1), torch.distributed.optim.ZeroRedundancyOptimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from ..._C import Tensor
from ..._names.missing import absent_from
from ...autograd.grad_mode import enable_grad
from ...nn.parallel import _scalers
from ...nn.parallel._buckets import views_of
from ...optim.optimizer import Optimizer
from .._memory import flat
from ..algorithms.join import Join, Joinable, JoinHook
from ..collectives import broadcast
from ..groups import group_of

__all__ = ["ZeroRedundancyOptimizer"]


class _JoinHook(JoinHook):
    """A rank without more batches still updates its share, by the gradients that DistributedDataParallel's hook has put there."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self._optimizer = optimizer

    def main_hook(self) -> None:
        if _scalers.others_scale():
            raise RuntimeError("ZeroRedundancyOptimizer: the other ranks multiply their losses by a GradScaler's scale, by which a rank without more "
                               "batches does not divide. Within Join leave the scaler out, or give all ranks the same number of batches")
        self._optimizer.step()


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """``optimizer_class``, of which each process keeps the state, and makes the updates, of its share of the parameters. After a step each
    process sends its share to the others, so all have the same parameters.

    The parameters of a group are given to the processes one by one, the largest first, each to the process that has the fewest elements so
    far. Gradients must be the same in all processes, as after a backward pass of DistributedDataParallel.

    Args:
        params: Tensors, or dicts with 'params' and options of their own (groups).
        optimizer_class: a class of optimizers, such as ``optim.AdamW``.
        process_group: the group, by default that of all processes.
        parameters_as_bucket_view: the parameters of a share become views of one memory, which travels in one message.
        overlap_with_ddp: must be False.
        defaults: options of ``optimizer_class``.

    TypeError or ValueError for parameters that are none, and for several dtypes or kinds of device; NotImplementedError for
    ``overlap_with_ddp``."""

    def __init__(self, params: Any, optimizer_class: Callable[..., Optimizer], process_group: Any = None, parameters_as_bucket_view: bool = False,
                 overlap_with_ddp: bool = False, **defaults: Any) -> None:
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer: `overlap_with_ddp` is not there; leave it out, and the step follows backward")
        self._local: Optional[Optimizer] = None
        self.process_group = group_of("ZeroRedundancyOptimizer", process_group)
        self.rank, self.world_size = self.process_group.rank(), self.process_group.size()
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._rows: List[List[Tensor]] = []
        self._gathered: List[Dict[str, Any]] = []  # all processes' state dicts, in the process that they were gathered in
        Optimizer.__init__(self, params, defaults)
        self._check_kinds()
        own = [{**group, "params": share} for group, share in zip(self.param_groups, self._shares()[self.rank])]
        self._local = optimizer_class(own, **defaults)
        self.state = self._local.state
        _copy_options(self._local.param_groups, self.param_groups)
        self._make_rows()

    # -- shares

    def _check_kinds(self) -> None:
        """ValueError for parameters of several dtypes or kinds of device."""
        kinds = {(p.dtype.name, p.device.type) for group in self.param_groups for p in group["params"]}
        if len(kinds) > 1:
            raise ValueError(f"ZeroRedundancyOptimizer: all parameters must be of one dtype and kind of device, got {sorted(kinds)}; use one for "
                             "each")

    def _shares(self) -> List[List[List[Tensor]]]:
        """For each rank, and each group, the parameters that are this rank's."""
        shares: List[List[List[Tensor]]] = [[[] for _ in self.param_groups] for _ in range(self.world_size)]
        sizes = [0] * self.world_size
        for number, group in enumerate(self.param_groups):
            for p in sorted(group["params"], key=lambda p: p.numel(), reverse=True):
                rank = sizes.index(min(sizes))
                shares[rank][number].append(p)
                sizes[rank] += p.numel()
        return shares

    def _make_rows(self) -> None:
        """What travels after a step, by rank: the parameters, or with ``parameters_as_bucket_view`` a row whose views they are."""
        self._rows = [[p for group in share for p in group] for share in self._shares()]
        if not self.parameters_as_bucket_view:
            return
        for rank, params in enumerate(self._rows):
            if params:
                row = flat([p.detach() for p in params])
                for p, view in zip(params, views_of(row, params)):
                    p.data = view
                self._rows[rank] = [row]

    @property
    def optim(self) -> Optimizer:
        """The optimizer of this process' share."""
        assert self._local is not None
        return self._local

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Adds parameters with options of their own. Those that are there already stay in their shares."""
        super().add_param_group(param_group)
        if self._local is None:  # while it is made
            return
        self._check_kinds()
        self._local.add_param_group({**self.param_groups[-1], "params": self._shares()[self.rank][-1]})
        _copy_options(self._local.param_groups[-1:], self.param_groups[-1:])  # the others' may have changed since the last step
        self._make_rows()

    # -- stepping

    def step(self, closure: Optional[Callable[[], Any]] = None, **kwargs: Any) -> Any:
        """Updates this process' share, and gives all processes the new parameters. ``closure`` computes the loss again, which is returned.
        Every process of the group must call it. ``kwargs`` go to the step of ``optimizer_class``."""
        Join.notify_join_context(self)
        loss = None
        if closure is not None:  # once, and in all processes: its backward has collectives
            with enable_grad():
                loss = closure()
        _copy_options(self.param_groups, self.optim.param_groups)
        self.optim.step(**kwargs)
        _copy_options(self.optim.param_groups, self.param_groups)
        self._give()
        if kwargs.get("zero_grad"):  # of the other processes' shares, too
            self.zero_grad(set_to_none=False)
        return loss

    def _give(self) -> None:
        works = [broadcast(t.detach(), group=self.process_group, async_op=True, group_src=rank) for rank, row in enumerate(self._rows) for t in row]
        for work in works:
            assert work is not None
            work.wait()
        if self.parameters_as_bucket_view:
            _note_writes(p for group in self.param_groups for p in group["params"])

    # -- joining

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Its hook for ``Join``, in which it follows the DistributedDataParallel that has its gradients."""
        return _JoinHook(self)

    @property
    def join_device(self) -> Any:
        """The device of its first parameter."""
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self) -> Any:
        """Its group of processes."""
        return self.process_group

    # -- saving

    def _has_own_step(self) -> bool:
        return self.optim._has_own_step()

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gathers the states of all processes in rank ``to`` of the group, on the CPU. ``state_dict`` gives them there. Every process of the group
        must call it."""
        if not 0 <= to < self.world_size:
            raise ValueError(f"consolidate_state_dict: `to` must be a rank from 0 to {self.world_size - 1}, got {to}")
        _copy_options(self.param_groups, self.optim.param_groups)
        own, found = _on_cpu(self.optim.state_dict()), []
        self.process_group.objects(f"consolidate_state_dict to {to}", lambda by: found.append(by.gather(own, to)))
        self._gathered = found[0] or []

    def state_dict(self) -> Dict[str, Any]:
        """The state of all processes, as ``optimizer_class`` would give it in one, when ``consolidate_state_dict`` was called last. RuntimeError in a
        process that it was not gathered in."""
        if not self._gathered:
            raise RuntimeError("ZeroRedundancyOptimizer.state_dict: the state is not gathered in this process; call "
                               f"consolidate_state_dict(to={self.rank}) in all processes before")
        self._call_each(self._optimizer_state_dict_pre_hooks)
        number = {id(p): i for i, p in enumerate(self._every())}
        groups = [{**{k: v for k, v in g.items() if k != "params"}, "params": [number[id(p)] for p in g["params"]]} for g in self.param_groups]
        state = {}
        for share, theirs in zip(self._shares(), self._gathered):
            for params, group in zip(share, theirs["param_groups"]):
                for p, there in zip(params, group["params"]):
                    if there in theirs["state"]:
                        state[number[id(p)]] = theirs["state"][there]
        found = {"state": dict(sorted(state.items())), "param_groups": groups}
        return self._passed_on(self._optimizer_state_dict_post_hooks, found)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Continues from a state dict of all processes, or from that of ``optimizer_class`` in one. Each process keeps its share. ValueError when
        the groups do not fit."""
        mine = {id(p) for group in self._shares()[self.rank] for p in group}
        own = {i for i, p in enumerate(self._every()) if id(p) in mine}
        super().load_state_dict({**state_dict, "state": {i: s for i, s in state_dict["state"].items() if i in own}})
        self.optim.state = self.state
        _copy_options(self.param_groups, self.optim.param_groups)

    def _every(self) -> List[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]


def _copy_options(source: List[Dict[str, Any]], target: List[Dict[str, Any]]) -> None:
    for theirs, ours in zip(source, target):
        ours.update({k: v for k, v in theirs.items() if k not in ("params", "param_names")})


def _note_writes(params: Any) -> None:
    from ... import _C

    for p in params:
        _C._note_write(p.detach(), "distributed", False)


def _on_cpu(value: Any) -> Any:
    """Values of a state dict on the CPU, copied."""
    if isinstance(value, Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, dict):
        return {k: _on_cpu(v) for k, v in value.items()}
    return [_on_cpu(v) for v in value] if isinstance(value, list) else value


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
