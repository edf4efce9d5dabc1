"""TrainingOptimizer: training steps in mixed precision. It falls back to float32 if a step overflows."""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import os
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple
from weakref import WeakKeyDictionary

from .. import _C, backends, cuda, nn
from .._C import Tensor
from .._messages.callers import warn
from .._messages.progress import Progress
from .._tensor import creation as make
from ..amp import GradScaler, autocast
from ..autograd import no_grad
from ..distributed import get_rank, get_world_size
from ..distributed.groups import is_one_of_several
from ..doctor import guard
from ..utils.data.distributed import DistributedSampler
from ._ranks import Ranks, plain
from .config import AMPConfig, PerformanceConfig

SHAPES = 8  # of a model's data for which the memory of a float32 forward pass is measured
SKIPPED_IN_A_ROW = 4  # after so many skipped steps, one is computed in float32
SEVERAL = ("sync_batch_norm", "sync_across_gpus", "enable_distributed_accumulation")  # fields about several processes
MEGABYTE = 1024**2


def _fresh_stats() -> Dict[str, Any]:
    return {"total_steps": 0, "amp_steps": 0, "fp32_fallbacks": 0, "skipped_steps": 0, "optimizer_steps": 0, "scaler_scale": [], "memory_savings": []}


class TrainingOptimizer:
    """Training steps by a configuration.

    Args:
        config: a PerformanceConfig, or an AMPConfig alone (default: the level 'advanced').

    In several processes it trains one model where ``sync_across_gpus`` is on: gradients are averaged, and losses, statistics, fallbacks and
    checkpoints are those of all processes. Each must make the same calls. RuntimeError where they are not connected yet."""

    def __init__(self, config: Optional[Any] = None) -> None:
        if isinstance(config, AMPConfig):
            config = PerformanceConfig(amp_config=config)
        self.config: PerformanceConfig = config if config is not None else PerformanceConfig.preset("advanced")
        if not isinstance(self.config, PerformanceConfig):
            raise TypeError(f"TrainingOptimizer: `config` must be a PerformanceConfig or an AMPConfig, got {type(config).__name__}")
        self.logger = logging.getLogger("ampc.training")
        self.amp_config = self.config.amp_config
        self._ranks = Ranks()
        self._ranks.check(self.amp_config)
        self.amp_stats = _fresh_stats()
        self.epoch = self._fallbacks = self._skips = self._micro_batch = 0  # fallbacks of this epoch, skips in a row, micro-batches of this step
        self._next: Optional[AMPConfig] = None
        self._dtype = "float32"  # dtype of autocast regions; bfloat16 after too many fallbacks
        self._retry = False  # whether the next step runs in float32
        self._low_met = False  # whether micro-batches of this step ran in 16 bits
        self._saved: Optional[float] = None  # megabytes, by the last forward pass
        self._bad_loss = ""  # the dtype in which a loss of this step was not finite
        self._plain_bytes: WeakKeyDictionary = WeakKeyDictionary()  # model -> bytes that a float32 forward pass keeps
        self._setup_mixed_precision()

    # -- configuration ----------------------------------------------------------------------------------------

    def _setup_mixed_precision(self, before: Optional[AMPConfig] = None) -> None:
        amp = self.amp_config
        self._dtype = amp.dtype if amp.enabled else "float32"
        backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = amp.enable_tf32  # type: ignore[attr-defined]
        backends.cudnn.benchmark = amp.enable_cudnn_benchmark  # type: ignore[attr-defined]
        if cuda.is_available():
            cuda.set_per_process_memory_fraction(amp.amp_memory_fraction if amp.enable_amp_memory_pooling else 1.0)
        if before is None or before.scaler_options != amp.scaler_options:
            self._make_scaler()
        inactive = self.inactive_fields()
        if inactive:
            self.logger.info("without effect here: %s", "; ".join(f"{name} ({why})" for name, why in inactive.items()))

    def _make_scaler(self) -> None:
        options = self.amp_config.scaler_options
        options["enabled"] = options["enabled"] and self._dtype == "float16"
        self.scaler = GradScaler("cuda" if cuda.is_available() else "cpu", **options)

    def inactive_fields(self) -> Dict[str, str]:
        """Fields that are on but have no effect here, and why."""
        amp = self.amp_config
        found = {}
        if not self._ranks.together(amp):
            why = "there is one process" if not is_one_of_several() else "sync_across_gpus is off"
            found = {name: why for name in SEVERAL if getattr(amp, name)}
        if amp.enable_cudnn_benchmark:
            found["enable_cudnn_benchmark"] = "convolutions have one algorithm, so none are tried out"
        if not cuda.is_available():
            found.update({name: "there is no GPU" for name in ("enable_tf32", "enable_amp_memory_pooling") if getattr(amp, name)})
        return found

    def update_amp_config(self, new_config: AMPConfig) -> None:
        """Sets a new configuration, which applies from the optimizer's next step on. The scale stays unless its fields change.

        TypeError for anything but an AMPConfig."""
        if not isinstance(new_config, AMPConfig):
            raise TypeError(f"update_amp_config: expected an AMPConfig, got {type(new_config).__name__}")
        self._next = new_config

    def _take_next_config(self) -> None:
        if self._micro_batch:
            return
        if self._next is not None:
            before, self.amp_config, self._next = self.amp_config, self._next, None
            self._setup_mixed_precision(before)
        if self.scaler.is_enabled() and self._dtype != "float16":  # after too many fallbacks
            self._make_scaler()

    # -- a step -----------------------------------------------------------------------------------------------

    def training_step(self, model: nn.Module, data: Any, target: Any, criterion: Callable[[Any, Any], Tensor], optimizer: Any) -> Dict[str, Any]:
        """Forward and backward of a micro-batch, and a step of the optimizer after the last one.

        Returns ``loss`` (a float; the mean over all processes), ``precision`` ('float16', 'bfloat16' or 'float32'), ``fallback`` (whether it
        was computed again), ``stepped``, ``skipped`` (the scaler left the step out) and ``scale``. Errors of the model pass through, but for
        RuntimeErrors that speak of overflow or underflow, where ``enable_fallback_to_fp32``: beyond ``max_fp32_fallbacks``, too, such a step
        has no loss but the one in float32. Where one process falls back, all do."""
        self._take_next_config()
        amp, steps = self.amp_config, self.config.gradient_accumulation_steps
        module = self._ranks.module_of(model, amp)
        precision = "float32" if self._retry else self._dtype
        fallback = self._retry
        self._retry = False
        with self._ranks.apart(module, amp.enable_distributed_accumulation and self._micro_batch + 1 < steps):
            loss, value, again = self._forward(module, data, target, criterion, precision)
            if again:
                precision, fallback = "float32", True
            self.scaler.scale(loss / steps if amp.scale_loss else loss).backward()
        self._low_met = precision != "float32" or (self._low_met and self._micro_batch > 0)
        self._bad_loss = precision if not math.isfinite(value) else self._bad_loss if self._micro_batch > 0 else ""
        self.amp_stats["total_steps"] += 1
        self.amp_stats["amp_steps"] += precision != "float32"
        self._micro_batch = (self._micro_batch + 1) % steps
        done = {"loss": value, "precision": precision, "fallback": fallback, "stepped": False, "skipped": False,
                "scale": self.scaler.get_scale()}
        if amp.track_amp_stats and precision != "float32":
            self.amp_stats["scaler_scale"].append(done["scale"])
        if self._micro_batch == 0:
            with contextlib.nullcontext() if self._low_met else guard.off():  # a scaler for float32: it has its reason here
                done["skipped"] = self._update(optimizer)
            done["stepped"] = not done["skipped"]
        return done

    def _forward(self, module: nn.Module, data: Any, target: Any, criterion: Any, precision: str) -> Tuple[Tensor, float, bool]:
        """The loss, its mean over all processes, and whether it was computed again in float32, with random numbers and buffers as before."""
        if precision == "float32":
            loss = self._loss(module, data, target, criterion, precision)
            return loss, self._join(loss)[0], False
        falls_back = self.amp_config.enable_fallback_to_fp32
        before = _State(module) if falls_back else None
        tried, why = None, ""
        try:
            tried = self._measured(module, data, target, criterion, precision)
        except RuntimeError as error:
            if not falls_back or not any(word in str(error).lower() for word in ("overflow", "underflow")):
                raise
            why = str(error)
        value, failed = self._join(tried)
        if before is None or (tried is not None and not failed and (math.isfinite(value) or not self._may_fall_back())):
            return tried, value, False  # type: ignore[return-value]
        before.restore()
        self._note_fallback(why or ("an error on another rank" if failed else "the loss is not finite"))
        loss = self._loss(module, data, target, criterion, "float32")
        return loss, self._join(loss)[0], True

    def _join(self, loss: Optional[Tensor]) -> Tuple[float, float]:
        """The mean loss of all processes, and how many have none, because of an error. What their forward passes save is noted."""
        saved, self._saved = self._saved, None
        mine = [0.0 if loss is None else loss.item(), float(loss is None), saved or 0.0, float(saved is not None)]
        total, failed, megabytes, measured = self._ranks.sums(mine, self.amp_config)
        if measured:
            self.amp_stats["memory_savings"].append(megabytes)
        return total / (get_world_size() if self._ranks.together(self.amp_config) else 1), failed

    def _may_fall_back(self) -> bool:
        return self.amp_config.enable_fallback_to_fp32 and self._fallbacks < self.amp_config.max_fp32_fallbacks

    def _loss(self, model: nn.Module, data: Any, target: Any, criterion: Any, precision: str) -> Tensor:
        with _region(precision):
            return criterion(model(data), target)

    def _measured(self, model: nn.Module, data: Any, target: Any, criterion: Any, precision: str) -> Tensor:
        """The loss; and, where statistics are kept, what the model's forward pass holds beside what it would in float32. For that the model
        runs once more for each of its first SHAPES shapes of data; the criterion, whose calls a script may count, does not."""
        known = self._plain_bytes.setdefault(model, {})
        key = tuple(data.shape) if isinstance(data, Tensor) else None, model.training
        shapes = 1 if self._ranks.together(self.amp_config) else SHAPES  # all processes measure at once, whatever shapes their data have
        if not self.amp_config.track_amp_stats or (key not in known and len(known) >= shapes):
            return self._loss(model, data, target, criterion, precision)
        if key not in known:
            before, held = _State(model), cuda.memory_allocated()
            with _region("float32"):
                plain = model(data)
            known[key] = cuda.memory_allocated() - held
            before.restore()
            del plain
        held = cuda.memory_allocated()
        with _region(precision):
            output = model(data)
            self._saved = (known[key] - (cuda.memory_allocated() - held)) / MEGABYTE
            return criterion(output, target)

    def _update(self, optimizer: Any) -> bool:
        """A step of the optimizer; whether it was skipped, by the scaler or because a loss was not finite."""
        if self._bad_loss:
            where = ", in float32 either" if self._bad_loss == "float32" else f" in {self._bad_loss}, and was not computed in float32"
            self._tell("a loss is not finite%s: the step is left out. Look at the batch, or with ampc.doctor()", where)
        if self._bad_loss and not self.scaler.is_enabled():
            skipped = True
        else:
            skipped = self._step(optimizer)
        if self.amp_config.clear_gradients_after_step:
            optimizer.zero_grad()
        self.amp_stats["skipped_steps"] += skipped
        self.amp_stats["optimizer_steps"] += not skipped
        self._skips = self._skips + 1 if skipped and not self._bad_loss else 0
        if self._skips >= SKIPPED_IN_A_ROW and self._may_fall_back():
            self._skips, self._retry = 0, True
            self._note_fallback(f"{SKIPPED_IN_A_ROW} steps in a row were skipped; the next is")
        return skipped

    def _step(self, optimizer: Any) -> bool:
        if self.config.max_grad_norm is not None:
            self.scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], self.config.max_grad_norm)
        self.scaler.step(optimizer)
        self.scaler.update()
        return self.scaler.last_step is not None and self.scaler.last_step.skipped

    def _tell(self, text: str, *values: Any) -> None:
        """Logs a warning; of several processes that train together rank 0 does."""
        if self._ranks.tells(self.amp_config):
            self.logger.warning(text, *values)

    def _note_fallback(self, why: str) -> None:
        amp = self.amp_config
        self._fallbacks += 1
        self.amp_stats["fp32_fallbacks"] += 1
        self._tell("overflow in %s, computed in float32: %s", self._dtype, why)
        if self._fallbacks != max(amp.max_fp32_fallbacks, 1):
            return
        if self.config.on_too_many_fallbacks == "bfloat16" and self._dtype == "float16":
            self._dtype = "bfloat16"
            self._tell("%d fallbacks to float32 in epoch %d: from here on in bfloat16", self._fallbacks, self.epoch)
        elif self._ranks.tells(amp):
            warn(f"TrainingOptimizer: epoch {self.epoch} has reached max_fp32_fallbacks with {self._fallbacks} fallbacks to float32, so steps that "
                 "overflow are skipped from now on. Train in bfloat16 (AMPConfig(dtype='bfloat16')), lower the learning rate, or find what "
                 "overflows with ampc.doctor()")

    # -- epochs -------------------------------------------------------------------------------------------------

    def start_epoch(self, epoch: Optional[int] = None) -> None:
        """Starts an epoch, with no fallbacks counted."""
        self.epoch = self.epoch + 1 if epoch is None else epoch
        self._fallbacks = 0

    def train_epoch(self, model: nn.Module, batches: Iterable[Any], criterion: Callable[[Any, Any], Tensor], optimizer: Any, *,
                    scheduler: Any = None, progress: bool = True) -> Dict[str, float]:
        """One pass over (data, target) batches, with a bar in a terminal. A DistributedSampler of the batches that nobody has told the epoch
        since its last pass is told this one. ``scheduler`` steps after every step of the optimizer that was
        not skipped. What gradients an earlier loop has left is zeroed first. Returns the mean ``loss`` and the epoch's ``steps``, ``skipped``
        and ``fallbacks``."""
        self.start_epoch()
        if not self._micro_batch:
            optimizer.zero_grad()
        sampler = getattr(batches, "sampler", None)
        if isinstance(sampler, DistributedSampler) and not sampler.told:
            sampler.set_epoch(self.epoch)
        before, total, count = dict(self.amp_stats), 0.0, 0
        bar = Progress(batches, f"epoch {self.epoch}", getattr(batches, "__len__", lambda: None)(), progress)
        for data, target in bar:
            done = self.training_step(model, data, target, criterion, optimizer)
            total, count = total + done["loss"], count + 1
            if scheduler is not None and done["stepped"]:
                scheduler.step()
            bar.note({"loss": done["loss"], "scale": done["scale"]})
        found = {"loss": total / max(count, 1), "steps": self.amp_stats["optimizer_steps"] - before["optimizer_steps"],
                 "skipped": self.amp_stats["skipped_steps"] - before["skipped_steps"],
                 "fallbacks": self.amp_stats["fp32_fallbacks"] - before["fp32_fallbacks"]}
        if self._ranks.tells(self.amp_config):
            self.logger.info("epoch %d: %s", self.epoch, ", ".join(f"{k} {v:.4g}" for k, v in found.items()))
        return found

    # -- looking --------------------------------------------------------------------------------------------------

    def get_amp_stats(self) -> Dict[str, Any]:
        """Counts, and ratios and means of them; ``memory_savings`` in MB, of what the forward pass holds, as the allocator counts it."""
        stats = copy.deepcopy(self.amp_stats)
        stats.update(amp_enabled=self._dtype != "float32", dtype=self._dtype, fp32_fallbacks_this_epoch=self._fallbacks)
        if stats["total_steps"]:
            stats["amp_usage_ratio"] = stats["amp_steps"] / stats["total_steps"]
            stats["fp32_fallback_ratio"] = stats["fp32_fallbacks"] / stats["total_steps"]
        scales: List[float] = stats["scaler_scale"]
        if scales:
            stats.update(avg_scaler_scale=sum(scales) / len(scales), min_scaler_scale=min(scales), max_scaler_scale=max(scales))
        saved: List[float] = stats["memory_savings"]
        if saved:
            stats.update(total_memory_saved_mb=sum(saved), avg_memory_saved_mb=sum(saved) / len(saved))
        return stats

    def reset_amp_stats(self) -> None:
        """Sets the counts to 0. The scale and the epoch's fallbacks stay."""
        self.amp_stats = _fresh_stats()

    def get_gradient_accumulation_status(self) -> Dict[str, Any]:
        """Where the present step stands."""
        steps = self.config.gradient_accumulation_steps
        return {"accumulation_steps": steps, "current_step": self._micro_batch, "remaining": steps - self._micro_batch,
                "is_accumulating": self._micro_batch > 0, "optimizer_steps": self.amp_stats["optimizer_steps"]}

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """All that a run needs to continue bit for bit, besides its model and optimizer."""
        return {"scaler": self.scaler.state_dict(), "stats": copy.deepcopy(self.amp_stats), "epoch": self.epoch, "fallbacks": self._fallbacks,
                "skips": self._skips, "dtype": self._dtype, "retry": self._retry, "rng": make.get_rng_state()}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Continues from a state_dict, of the same configuration. KeyError for what is none."""
        self.amp_stats, self.epoch, self._fallbacks, self._skips = state["stats"], state["epoch"], state["fallbacks"], state["skips"]
        self._micro_batch, self._dtype, self._retry = 0, state["dtype"], state["retry"]
        self._make_scaler()
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        make.set_rng_state(state["rng"])

    def save_checkpoint(self, path: Any, model: nn.Module, optimizer: Any, scheduler: Any = None) -> None:
        """Saves everything to one file, atomically. Of several processes that train together rank 0 writes, with the random numbers' states of all,
        and all wait; an error is raised on all. RuntimeError between the micro-batches of a step, because their gradients would be lost, and where
        the processes have made different numbers of steps."""
        from ..serialization import save

        if self._micro_batch:
            raise RuntimeError(f"save_checkpoint: {self._micro_batch} of {self.config.gradient_accumulation_steps} micro-batches are accumulated; "
                               "save after the step")
        ranks = self._ranks.every((self.amp_stats["total_steps"], make.get_rng_state()), self.amp_config)
        if len({steps for steps, _ in ranks}) > 1:
            raise RuntimeError("save_checkpoint: the ranks have made different numbers of steps: "
                               + ", ".join(f"rank {rank} {steps}" for rank, (steps, _) in enumerate(ranks)))
        state = {"training": self.state_dict(), "model": plain(model).state_dict(), "optimizer": optimizer.state_dict(),
                 "scheduler": None if scheduler is None else scheduler.state_dict(), "rng": [rng for _, rng in ranks]}
        self._ranks.by_first(lambda: save(state, path), self.amp_config)

    def load_checkpoint(self, path: Any, model: nn.Module, optimizer: Any, scheduler: Any = None) -> None:
        """Continues from ``save_checkpoint``, bit for bit in as many processes as have saved it. Of several that train together rank 0 reads the
        file, and an error is raised on all. In more processes the further ones keep their random numbers. ValueError for another file, or if a
        requested scheduler is not in it."""
        from ..serialization import load

        kept = self._ranks.by_first(lambda: load(path), self.amp_config)
        if not isinstance(kept, dict) or set(kept) | {"rng"} != {"training", "model", "optimizer", "scheduler", "rng"}:
            raise ValueError(f"load_checkpoint: {os.fspath(path)} was not written by save_checkpoint")
        if scheduler is not None and kept["scheduler"] is None:
            raise ValueError(f"load_checkpoint: {os.fspath(path)} has no scheduler's state")
        plain(model).load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        if scheduler is not None:
            scheduler.load_state_dict(kept["scheduler"])
        rank, own = get_rank() if self._ranks.together(self.amp_config) else 0, make.get_rng_state()
        self.load_state_dict(kept["training"])
        states = kept.get("rng", [kept["training"]["rng"]])
        make.set_rng_state(states[rank] if rank < len(states) else own)


def _region(precision: str) -> autocast:
    """An autocast region, which does nothing for 'float32'."""
    low = precision != "float32"
    return autocast(None, dtype=getattr(_C, precision) if low else _C.bfloat16, enabled=low)


class _State:
    """What a forward pass changes: random numbers and buffers."""

    def __init__(self, model: nn.Module) -> None:
        self._rng = make.get_rng_state()
        self._buffers = [(b, b.clone()) for b in model.buffers()] if model.training else []

    def restore(self) -> None:
        """As they were."""
        make.set_rng_state(self._rng)
        with no_grad():
            for buffer, old in self._buffers:
                buffer.copy_(old)
