"""What goes wrong where several processes train one model. Rare events are always listened to, others only after those."""

from __future__ import annotations

import weakref
from typing import Any, List, Optional, Tuple

from .._events import Listener, announce, listen
from .._messages.callers import call_site
from .._process import launcher as _launcher
from . import guard


class _Ranks(Listener):
    """Watches ``no_sync`` regions and the orders of samplers."""

    def __init__(self) -> None:
        self.apart: List[Any] = []  # modules within no_sync, the innermost last
        self.repeated: Optional[Tuple[str, int]] = None  # where the order of an earlier pass was begun again

    def unscaling(self, number: int, iteration: int, scale: float, optimizer: Any) -> None:
        """Gradients are divided that no other rank has seen."""
        if not self.apart:
            return
        own = {id(p) for p in guard.params_of(optimizer)}
        if any(id(p) in own for module in self.apart for p in module.parameters()):
            guard.report("unscale-in-no-sync", "gradients are divided by the loss scale inside no_sync(), before they are averaged over the ranks: "
                         "each rank looks for infinities in its own alone, and what the next backward() adds is still multiplied",
                         "call scaler.unscale_(optimizer) and scaler.step(optimizer) after no_sync(), when the last micro-batch's backward() has "
                         "averaged them")

    def backward_begins(self, loss: Any) -> None:
        """The batches of a pass are trained on."""
        where, self.repeated = self.repeated, None
        if where is not None:
            guard.say("sampler-without-set-epoch", "the DistributedSampler serves the order of its last pass again, because set_epoch() was never "
                      "called: every epoch has the same batches", "call sampler.set_epoch(epoch) before each pass", *where)


_ranks = _Ranks()


def _watch() -> None:
    if _ranks not in announce._listeners:
        listen(_ranks)


class _Shards(Listener):
    """Looks at each optimizer once, in its first step after a module was sharded."""

    def __init__(self) -> None:
        self.seen: Any = weakref.WeakSet()

    def step_begins(self, optimizer: Any, closure: bool) -> None:
        """Looks whether the optimizer's parameters are still those of the module."""
        if optimizer in self.seen:
            return
        self.seen.add(optimizer)
        params = guard.params_of(optimizer)
        old = sum(bool(getattr(p, "_is_sharded", False)) for p in params)
        if old:
            guard.report("optimizer-before-sharding", f"of the optimizer's {len(params)} parameters {old} are no longer the module's: fully_shard() "
                         "has put other ones in their place, which this step does not update", "make the optimizer after the last fully_shard() "
                         "call, of model.parameters()")


_shards = _Shards()


class _Rare(Listener):
    """Hears what is rare."""

    def parameters_sharded(self, parameters: List[Any]) -> None:
        """Optimizers that were made before may hold these."""
        _shards.seen.clear()
        if _shards not in announce._listeners:
            listen(_shards)

    def no_sync_begins(self, module: Any) -> None:
        """From here on the module's gradients stay in this process."""
        if module.process_group.size() > 1:
            _watch()
            _ranks.apart.append(module)

    def no_sync_ends(self, module: Any) -> None:
        """They are averaged again."""
        _ranks.apart = [each for each in _ranks.apart if each is not module]

    def order_begins(self, sampler: Any, repeats: bool) -> None:
        """A pass whose batches may be trained on."""
        if repeats:
            _watch()
        _ranks.repeated = call_site() if repeats else None

    def order_ends(self, sampler: Any) -> None:
        """It is over."""
        _ranks.repeated = None

    def file_saved(self, path: str) -> None:
        """Looks whether other ranks save the same file."""
        if _launcher.rank() is None:
            return
        from ..distributed import groups

        others = ", ".join(map(str, groups.others_that_saved(path)))
        if others:
            guard.report("checkpoint-by-every-rank", f"rank {groups.get_rank()} saves {path}, which rank {others} has saved, too: "
                         "the ranks write over each other's files", "let one rank save, `if dist.get_rank() == 0:`, and the others wait in "
                         "dist.barrier(); or give each rank a file of its own")


listen(_Rare())
