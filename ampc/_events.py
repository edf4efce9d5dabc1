"""Events that diagnosis listens to. Other packages announce them without knowing the listeners; ``ampc.doctor`` listens.

``announce.step_begins(optimizer)`` announces an event. ``listen`` adds a ``Listener``, and ``forget`` removes it. The core announces three
events itself (``_C._listen_to_regions``): entering and leaving the outermost autocast region, and a call that a region of 'cuda' refuses on a GPU."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Protocol, Tuple, Union

from ._C import Tensor, dtype


class StepRecord(Protocol):
    """The record of one step of a GradScaler, ``scaler.last_step``. ``doctor.ledger`` makes it."""

    number: int

    @property
    def skipped(self) -> bool:
        """Whether the optimizer's step was skipped."""

    @property
    def scale(self) -> float:
        """What the loss was multiplied by."""

    @property
    def loss(self) -> float:
        """The last loss before it was scaled."""

    @property
    def lr(self) -> float:
        """The first group's rate."""

    @property
    def grad_norm(self) -> float:
        """The norm of all unscaled gradients."""

    @property
    def amax(self) -> float:
        """The largest finite magnitude among them."""

    @property
    def infs(self) -> int:
        """How many values were infinite."""

    @property
    def nans(self) -> int:
        """How many were nan."""

    @property
    def gradients(self) -> Any:
        """Each parameter's gradient, of a step that was skipped."""

    @property
    def culprit(self) -> Any:
        """The first parameter whose gradient was not finite, or None."""


class StepReport(Protocol):
    """A report on the steps of a GradScaler, ``scaler.report()``. It prints as text."""

    def _repr_html_(self) -> str:
        """The same for a notebook, with pictures."""

    def save(self, path: Any) -> None:
        """A picture in a file."""


class StepLedger(Protocol):
    """The records of a GradScaler's steps, ``scaler.ledger``."""

    total: int

    def __len__(self) -> int: ...

    def __getitem__(self, i: Any) -> Any: ...

    @property
    def skipped(self) -> Any:
        """Those that were skipped."""

    def ranges(self) -> Any:
        """Each parameter's gradient in the last step that was applied."""

    def cause(self, step: Any) -> Tuple[str, str]:
        """Why a step was skipped, in a word and in a sentence."""

    def report(self, scaler: Any) -> StepReport:
        """A report on the steps."""


class Listener:
    """A base for listeners. A subclass overrides the methods of the events it needs. Its exceptions reach the script."""

    over = False  # whether it has ended: the next change of listeners leaves it out

    def region_without_units(self, dtype: dtype) -> None:
        """An autocast region of the CPU was made, which will compute in ``dtype``, and this CPU multiplies no values of that dtype."""

    def scaler_made(self, scaler: Any) -> None:
        """A GradScaler was made, or unpickled. A listener may leave a ``ledger`` with it."""

    def loss_scaled(self, scaler: Any, outputs: Any) -> None:
        """``scaler.scale(outputs)`` is called."""

    def scale_read(self, scale: float) -> None:
        """A script reads the scale by ``get_scale()``."""

    def misuse_found(self, report: Any) -> None:
        """The misuse guard has found misuse, told before or not: a ``doctor.Report``."""

    def unscaling(self, number: int, iteration: int, scale: float, optimizer: Any) -> None:
        """A scaler is about to divide the optimizer's gradients. ``number`` and ``iteration`` are what it marks losses with;
        ``scale`` is 0.0 where it is on a GPU."""

    def stepping_unscaled(self, optimizer: Any) -> None:
        """A scaler is about to step with gradients that ``unscale_`` divided before."""

    def step_decided(self, scaler: Any, optimizer: Any, scale: Union[float, Tensor], loss: Union[float, Tensor, None],
                     found_inf: Dict[Any, Tensor], stats: List[Any]) -> None:
        """A scaler is about to make a step, or to leave it out where a flag of ``found_inf`` is not 0. ``stats``: ``amp._ledger.GradStats``, one
        a device. A listener may set ``scaler.last_step``."""

    def step_waits(self, optimizer: Any, why: str) -> None:
        """A scaler is about to wait for the GPU, because it must know whether it skips the optimizer's step. ``why``: what needs it, in words."""

    def step_begins(self, optimizer: Any, closure: bool) -> None:
        """An optimizer's own step begins, called by the script or by a scaler; with a ``closure``, which makes the gradients that it uses."""

    def step_ended(self, optimizer: Any) -> None:
        """The same step has ended, with or without an error."""

    def schedule_ahead(self, scheduler: str, skipped: int) -> None:
        """A scheduler steps, but a scaler has skipped all ``skipped`` steps since the scheduler's last one."""

    def metric_given(self, metric: float) -> None:
        """ReduceLROnPlateau is given a metric."""

    def clipping(self, params: List[Any], what: str, limit: Optional[float]) -> None:
        """``what`` is about to clip the parameters' gradients to ``limit``."""

    def norm_taken(self, t: Tensor) -> None:
        """The norm of a tensor is computed."""

    def number_rounded(self, value: float, t: Tensor) -> None:
        """A script makes a 16-bit tensor of a number."""

    def batch_served(self, batch: Any, dataset: Any, number: int, indices: Any) -> None:
        """A DataLoader is about to give out a batch, the ``number``-th of its pass, counted from 0. ``indices``: those of its samples in
        ``dataset``, or the one of a sample without a batch; None of a stream."""

    def no_sync_begins(self, module: Any) -> None:
        """Within ``module.no_sync()`` gradients of a DistributedDataParallel add up in this process from here on."""

    def no_sync_ends(self, module: Any) -> None:
        """They do not any more."""

    def order_begins(self, sampler: Any, repeats: bool) -> None:
        """A DistributedSampler begins a pass; ``repeats``: it shuffles, and this is the last pass' order, because ``set_epoch`` was never called."""

    def order_ends(self, sampler: Any) -> None:
        """It has served its last index."""

    def file_saved(self, path: str) -> None:
        """``save`` is about to write to a path."""

    def parameters_sharded(self, parameters: List[Any]) -> None:
        """fully_shard has put other parameters in the place of these, which are marked with ``_is_sharded``."""

    def backward_begins(self, loss: Tensor) -> None:
        """A script calls ``loss.backward()``."""

    def backward_ended(self, loss: Tensor) -> None:
        """The same call has ended, without an error."""


EVENTS: Tuple[str, ...] = tuple(name for name, event in vars(Listener).items() if callable(event))


class _Announcer(Listener):
    """Passes events to the listeners. If only one listener overrides an event, the event is that listener's method, so it costs one call."""

    def __init__(self) -> None:
        self._listeners: List[Listener] = []

    def _connect(self, listeners: List[Listener]) -> None:
        """Makes these the listeners, in one step: an exception before it leaves those that were."""
        table: Dict[str, Any] = {"_listeners": [each for each in listeners if not each.over]}
        for name in EVENTS:
            heard = [getattr(each, name) for each in table["_listeners"] if getattr(type(each), name) is not getattr(Listener, name)]
            if heard:
                table[name] = heard[0] if len(heard) == 1 else _in_turn(heard)
        self.__dict__ = table


def _in_turn(heard: List[Callable[..., None]]) -> Callable[..., None]:
    def each(*args: Any) -> None:
        for hear in heard:
            hear(*args)

    return each


announce = _Announcer()


def listen(listener: Listener) -> None:
    """Adds a listener after the present ones."""
    announce._connect([*announce._listeners, listener])


def forget(listener: Listener) -> None:
    """Removes a listener. ValueError if it was not added."""
    if listener not in announce._listeners:
        raise ValueError("forget: this listener was not added")
    announce._connect([each for each in announce._listeners if each is not listener])
