"""The misuse guard. Backward carries a mark from a scaled loss to the gradients' provenance (csrc/autograd/provenance.h). Clipping, steps,
``unscale_`` and schedulers check it and report misuse here: one warning for each rule and line of the script, by one of the ranks of a host that run
it. Where nothing is wrong, a check costs one or two calls into the core."""

from __future__ import annotations

import math
import os
import sys
import warnings
import weakref
from typing import Any, List, NamedTuple, Optional, Set

from .. import _C
from .._events import Listener, announce, listen
from .._messages.callers import call_site
from .._messages.model_names import Names
from .._process.launcher import is_first, rank

PLAIN, SCALED, UNSCALED, USED, FAULTS, FLOAT16 = 2, 4, 8, 16, 0xFF00, 1 << 16  # of _provenance_flags, see csrc/autograd/provenance.h
MIXED_PLAIN, MIXED_SCALES, MIXED_UNSCALED, MIXED_LEFTOVER, EDITED = 1, 2, 4, 8, 16

_MODES = ("warn", "error", "off")


class MisuseWarning(UserWarning):
    """Misuse of mixed precision: the script runs, and trains worse than it should."""


class PerformanceNote(UserWarning):
    """Something makes the script slower than it could be. The script is right all the same: a note is told once, and is never an error."""


class MisuseError(RuntimeError):
    """The same, as an error; ``errors()`` asks for it."""


class Report(NamedTuple):
    """One report of the guard."""

    rule: str
    file: str
    line: int
    text: str
    fix: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: [{self.rule}] {self.text}\n    {self.fix}"


class _State:
    mode = os.environ.get("AMPC_GUARD") or "warn"
    ignored: Set[str] = set()
    said: Set[tuple] = set()
    log: List[Report] = []
    scale_read = 0.0  # what get_scale() told a script last
    read_since = False  # whether it has told it since the last loss was scaled
    waiting: Optional[tuple] = None  # a report that is dropped if the script reads the scale: the arguments of _say
    scaled: Optional[tuple] = None  # the last loss's scaler, weakly, and its scale
    passed_over = False  # an autocast region was of the device on which nothing ran
    with_closure: Any = None  # the optimizer whose step has a closure and has not ended


if _State.mode not in _MODES:
    raise ValueError(f"AMPC_GUARD is {_State.mode}; expected one of {', '.join(_MODES)}, or leave it unset")


class _Mode(_C.Scope):
    """A mode that holds from the call on, or only within a ``with``."""

    def __init__(self, mode: str) -> None:
        self._before, _State.mode = _State.mode, mode

    def _changes(self) -> tuple:
        return ((None, (), setattr, (_State, "mode", self._before)),)


def errors() -> _Mode:
    """From now on, or within ``with errors():``, misuse raises MisuseError. The environment's AMPC_GUARD=error does the same."""
    return _Mode("error")


def off() -> _Mode:
    """From now on, or within ``with off():``, nothing is reported. AMPC_GUARD=off does the same."""
    return _Mode("off")


def ignore(*rules: str) -> None:
    """Silences these rules. ValueError for a name that is no rule."""
    from .rules import RUN

    for rule in rules:
        if rule not in RUN:
            raise ValueError(f"ignore: there is no rule {rule!r}; expected some of {', '.join(sorted(RUN))}")
        _State.ignored.add(rule)


def reports(clear: bool = False) -> List[Report]:
    """All that was reported so far, oldest first; ``clear`` forgets it, so that a line may be reported again."""
    every = list(_State.log)
    if clear:
        _State.log.clear()
        _State.said.clear()
        _State.waiting, _State.passed_over = None, False
    return every


# -- reporting ------------------------------------------------------------------------------------------------


def report(rule: str, text: str, fix: str, once: bool = False) -> None:
    """Says it, or raises; at most once a line, or in all."""
    if _State.mode == "off" or rule in _State.ignored:
        return
    if once and (rule,) in _State.said and _State.mode != "error":
        return
    _say(rule, text, fix, *call_site(), once)


def say(rule: str, text: str, fix: str, file: str, line: int) -> None:
    """The same of another line."""
    if _State.mode != "off" and rule not in _State.ignored:
        _say(rule, text, fix, file, line)


def _say(rule: str, text: str, fix: str, file: str, line: int, once: bool = False) -> None:
    found = Report(rule, file, line, text, fix)
    announce.misuse_found(found)
    if _State.mode == "error":
        raise MisuseError(str(found))
    key = (rule,) if once else (rule, file, line)
    if key in _State.said:
        return
    _State.said.add(key)
    _State.log.append(found)
    if _says_first(key):
        warnings.warn_explicit(f"[{rule}] {text}\n    {fix}", MisuseWarning, file, line)


def _says_first(key: tuple) -> bool:
    """Whether no other process of a script that several run has told of this rule and line."""
    if rank() is None:
        return True
    from ..distributed import groups

    return groups.says_first(f"{key}")


def _is_silent(rule: str) -> bool:
    """Whether a note of this rule would not be said, because it was said before or nobody wants it."""
    return (rule,) in _State.said or _State.mode == "off" or rule in _State.ignored


def note(rule: str, text: str, fix: str) -> None:
    """Says what is about speed alone, once; of several processes of a script the first does."""
    if _is_silent(rule):
        return
    _State.said.add((rule,))
    if not is_first():
        return
    file, line = call_site()
    _State.log.append(Report(rule, file, line, text, fix))
    warnings.warn_explicit(f"[{rule}] {text}\n    {fix}", PerformanceNote, file, line)


# -- what is looked at ------------------------------------------------------------------------------------------


def params_of(optimizer: Any) -> List[Any]:
    """All parameters, in order."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def _name(optimizer: Any, at: int) -> str:
    for g, group in enumerate(optimizer.param_groups):
        if at < len(group["params"]):
            return Names().of_parameter(optimizer, g, at)
        at -= len(group["params"])
    return "?"


def _times(scale: float) -> str:
    return f"the loss scale {scale:g}" if scale else "the loss scale"


def before_clip(params: List[Any], what: str, limit: Optional[float]) -> None:
    """Clipping, or a norm, of the parameters' gradients."""
    found = _C._provenance_flags(params)
    if not found & SCALED:
        if found & USED and not found & (UNSCALED | PLAIN) and limit is not None and limit < math.inf:
            report("clip-after-step", f"{what} is called on gradients that scaler.step() has used already, so it limits nothing",
                   "clip before the step: scaler.unscale_(optimizer), then clip, then scaler.step(optimizer)")
        return
    scale = _C._provenance(params)[3][3]
    if limit is not None and _State.scale_read == (scale or _State.scale_read) != 0 and _is_scaled_limit(limit, _State.scale_read):
        return
    text = f"{what} is called on gradients that are still multiplied by {_times(scale)}"
    if limit is not None and scale:
        text += (f": a limit of {limit:g} limits the unscaled gradients to {limit / scale:.3g}. SGD then hardly changes the weights; the steps of "
                 "Adam, AdamW and RMSprop, which divide by the gradients' size, no longer depend on the limit")
    elif scale:
        text += f": its result is {scale:g} times too large"
    report("clip-scaled-gradients", text, "call scaler.unscale_(optimizer) after the last backward() and before clipping; scaler.step() "
           "then does not divide a second time")


def _is_scaled_limit(limit: float, scale: float) -> bool:
    """Whether a script that knows the scale has multiplied its limit by it: the limit without the scale has no more digits then."""
    return len(_digits(limit / scale)) <= len(_digits(limit))


def is_divided_by(factor: float, scale: float) -> bool:
    """Whether a script has divided a factor by the scale: it has fewer digits without; or no more, where the script has read the scale."""
    bare, digits = len(_digits(factor * scale)), len(_digits(factor))
    return bare < digits or (bare == digits and _State.scale_read == scale)


def _digits(value: float) -> str:
    return f"{value:.11e}".split("e")[0].replace(".", "").rstrip("0")


def _keep_scale(scale: float) -> None:
    """A script has read the scale: it may divide a norm by it."""
    _State.scale_read, _State.read_since, _State.waiting = scale, True, None


def _forget_scale(scaler: Any) -> None:
    """A new scaler has a scale of its own, which no script has read yet."""
    _State.scale_read = 0.0


def before_norm(t: Any) -> None:
    """The norm of one tensor. The script may divide it by the scale that it has read since the loss, or reads yet: so the report waits for the
    gradients' use."""
    if _State.waiting is None and not _State.read_since and _C._is_scaled(t):
        _State.waiting = (*_NORMS[t.requires_grad], *call_site())


_NORMS = {
    False: ("clip-scaled-gradients", "the gradient whose norm is taken is still multiplied by the loss scale, so the norm is too large by that "
            "factor", "call scaler.unscale_(optimizer) before reading gradients"),
    True: ("penalty-of-scaled", "a new loss contains the norm of a gradient that autograd.grad computed of a scaled loss: it is too large by the "
           "loss scale", "divide the gradients by scaler.get_scale() first; unscale_() does not reach results of autograd.grad"),
}


def _stop_waiting() -> None:
    """Gradients are used: the scale was not read in time."""
    said, _State.waiting = _State.waiting, None
    if said is not None:
        say(*said)


def before_scale(scaler: Any, outputs: Any) -> None:
    """``scaler.scale(outputs)`` is called."""
    if isinstance(outputs, _C.Tensor) and scaler.is_enabled():
        if outputs.requires_grad and _C._scale_of(outputs) != 1:
            report("scaled-twice", "scaler.scale() is called with a loss that it has multiplied already, and step() divides the gradients by one "
                   "scale alone", "call scaler.scale() once for each loss")
        _State.read_since = False
        _State.scaled = weakref.ref(scaler), scaler._init_scale if scaler._state is None else scaler._state.known


def loss_scale() -> float:
    """What the last loss was multiplied by; 0.0 where that is not known."""
    return float(_State.scaled[1] or 0.0) if _State.scaled else 0.0


def before_metric(metric: float) -> None:
    """A scheduler is given this metric."""
    scaler, scale = (_State.scaled[0](), _State.scaled[1]) if _State.scaled else (None, 0.0)
    loss = None if scaler is None else scaler._loss
    if isinstance(loss, float) and scale > 1 and metric != 0 and abs(metric - loss * scale) <= 1e-6 * abs(metric):
        report("metric-is-scaled", f"the scheduler is given {metric:g}, which is the loss {loss:g} multiplied by {_times(scale)}: it jumps whenever "
               "the scale changes", "give it the unscaled loss: the value that was passed to scaler.scale()")


def before_step(optimizer: Any, closure: bool) -> None:
    """A step of the optimizer itself, called by the script or by a scaler."""
    if _State.waiting is not None:
        _stop_waiting()
    if closure:  # it makes the gradients that the step uses: those that are there now are left over
        _State.with_closure = optimizer
    else:
        _judge_gradients(optimizer)


def after_step(optimizer: Any) -> None:
    if _State.with_closure is not optimizer:
        return
    _State.with_closure = None
    if sys.exc_info()[0] is None:
        _judge_gradients(optimizer)


def _judge_gradients(optimizer: Any) -> None:
    found = _C._provenance_flags(optimizer.param_groups)
    if found & UNSCALED:
        return
    if found & USED and not found & SCALED:
        report("step-twice", f"{type(optimizer).__name__}.step() uses gradients that scaler.step() has used already: their update is made twice, and "
               "also where the scaler has skipped it", "leave this call out: scaler.step(optimizer) calls optimizer.step()")
        return
    if found & SCALED:
        if hasattr(optimizer, "grad_scale"):  # it unscales within its step
            return
        scale = _C._provenance(optimizer.param_groups)[3][3]
        size = f"{scale:g} times too large" if scale else "too large by the scale"
        report("step-on-scaled-gradients", f"{type(optimizer).__name__}.step() uses gradients that are {size}: scaler.scale() multiplied the "
               "loss, and nothing has divided the gradients", "call scaler.step(optimizer) and then scaler.update()")
    elif found & FLOAT16:
        _train_fp16(params_of(optimizer))


def _train_fp16(params: List[Any]) -> None:
    grads = [p.grad.detach() for p in params if p.grad is not None]
    total = sum(g.numel() for g in grads)
    lost = sum(int((g == 0).sum()) for g in grads)
    report("fp16-without-scaler", "the backward pass runs in float16 without loss scaling: gradient values below 6e-8 become 0 "
           f"({lost} of {total} values, {100 * lost / max(total, 1):.0f} %, are 0 in this step)",
           _remedy_of_fp16(params))


def _remedy_of_fp16(params: List[Any]) -> str:
    """A GradScaler, which refuses parameters that are float16 themselves."""
    steps = "scaler.scale(loss).backward(), scaler.step(optimizer), scaler.update()"
    if _State.scaled is not None and _State.scaled[0]() is not None:
        return (f"the scaler has not multiplied the loss that made these gradients: write {steps} for it; or, if they are left over from an earlier "
                "backward(), call optimizer.zero_grad() before")
    if any(p.dtype is _C.float16 for p in params):
        return (f"the parameters are float16: leave .half() out, of the inputs too, compute the loss in a region of autocast, and use {steps} "
                "of a GradScaler; or make the model and its inputs bfloat16, which has float32's range")
    kind = next((p.device.type for p in params if p.grad is not None), "cpu")
    return f"make scaler = torch.amp.GradScaler('{kind}') once, then {steps}; or use dtype=torch.bfloat16, which has float32's range"


def before_unscale(number: int, iteration: int, scale: float, optimizer: Any) -> None:
    """A scaler is about to divide the optimizer's gradients."""
    if _State.waiting is not None:
        _stop_waiting()
    found = _C._provenance(optimizer.param_groups)
    if found is not None:
        states, faults, float16, first, faulty = found
        if faults:
            _mixed(faults, _name(optimizer, faulty), first)
        elif states == PLAIN:
            report("loss-not-scaled", f"the scaler divides gradients by {_times(scale)}, but scaler.scale() did not multiply their loss: "
                   f"they become {scale:g} times too small", "write scaler.scale(loss).backward() in place of loss.backward()")
        elif states & SCALED and first is not None:
            _of_whom(number, iteration, scale, first)
            if not float16 and not _State.passed_over:
                report("scaler-without-fp16", "nothing ran in float16, so a GradScaler has no use here; it does no harm, because it "
                       "divides by what it multiplied with", "leave the scaler out, or pass enabled=False; bfloat16 and float32 need none", once=True)


def before_unscaled_step(optimizer: Any) -> None:
    """A scaler is about to step with gradients that unscale_() divided before."""
    if _C._provenance_flags(optimizer.param_groups) & FAULTS:
        found = _C._provenance(optimizer.param_groups)
        _mixed(found[1], _name(optimizer, found[4]), found[3])
        _C._set_provenance(optimizer.param_groups, "unscaled")


def _mixed(faults: int, name: str, first: Any) -> None:
    scale = first[3] if first else 0.0
    if faults & MIXED_UNSCALED:
        report("unscale-before-accumulation", f"the gradient of {name} adds values that unscale_() has divided already to values that "
               f"are still multiplied by {_times(scale)}, so the sum is wrong",
               "call scaler.unscale_(optimizer) once, after the last micro-batch's backward()")
    elif faults & MIXED_SCALES:
        report("mixed-scales", f"the gradient of {name} adds values with different loss scales, the last {scale:g}: update() changed the "
               "scale between micro-batches", "call scaler.update() once, after scaler.step() and not after every micro-batch")
    elif faults & MIXED_PLAIN:
        report("mixed-scales", f"the gradient of {name} adds values that are multiplied by {_times(scale)} to values that are not",
               "call scaler.scale(loss).backward() for every loss")
    elif faults & MIXED_LEFTOVER:
        report("leftover-gradients", f"the gradient of {name} still contains the unscaled values of an earlier iteration, and values "
               f"multiplied by {_times(scale)} were added to them", "call optimizer.zero_grad() before the first backward() of an iteration")
    elif faults & EDITED:
        report("edit-scaled-gradients", f"the gradient of {name} was changed by hand while it was multiplied by {_times(scale)}",
               "call scaler.unscale_(optimizer) before changing gradients")


def _of_whom(scaler: int, round: int, scale: float, first: Any) -> None:
    _, by, of_round, by_scale = first
    if by != scaler:
        report("other-scaler", f"one GradScaler multiplied these gradients by {by_scale:g}, and another one divides them by {scale:g}",
               "use one GradScaler for both scale() and step(); it can serve several losses and optimizers")
    elif of_round != round:
        harm = "the scale is the same by chance, so the result is right this time" if by_scale == scale else f"they are now divided by {scale:g}"
        report("update-between-steps", f"these gradients were multiplied by {by_scale:g} before the last update(); {harm}",
               "call scaler.update() once, after the last optimizer's step of an iteration")


def after_skips(scheduler: str, skipped: int) -> None:
    """A scheduler steps although the scaler skipped every optimizer step since its last call."""
    report("scheduler-after-skip", f"{scheduler}.step() changes the learning rate, but the scaler has skipped "
           f"{'the only optimizer step' if skipped == 1 else f'all {skipped} optimizer steps'} since its last call",
           "call scaler.gate(scheduler).step(), which does nothing after a skipped step, or test `if not scaler.last_step.skipped:`")


def before_backward(loss: Any) -> None:
    """backward() was called by a script. (Where ``enable_autocast`` is on without a region, nothing could be ended before.)"""
    if _C._autocast_active() and _C._autocast_nest(0):
        report("backward-under-autocast", "backward() is called inside an autocast region. Gradients are computed in the dtypes that the "
               "forward pass chose, so the region has no effect here; in torch it makes backward slower or wrong",
               "end the autocast region after the loss")
    said = ("loss-not-finite",) in _State.said and _State.mode != "error"
    if _State.scaled is None and not said and loss.is_cpu and loss.numel() == 1 and _C._watcher() is None:  # a doctor says more
        _before_unscaled(loss.detach().item())


def _before_unscaled(loss: float) -> None:
    """backward() of a loss in a script whose losses no GradScaler multiplies: nothing else would tell that it is inf or nan, or skip the step."""
    if not math.isfinite(loss):
        report("loss-not-finite", f"the loss is {loss:g}, so gradients and weights become inf or nan with this step, and no later step mends them",
               "run the script under `ampc run --doctor`, or the step in `with ampc.doctor():`, which names the operator that made the first "
               "inf or nan, and the cause", once=True)


def before_wait(optimizer: Any, why: str) -> None:
    """A scaler waits for the GPU, to know whether it skips the optimizer's step."""
    note("step-waits", f"scaler.step() waits until the GPU has told whether the step of {type(optimizer).__name__} is skipped: {why}",
         "the script is right as it is; an optimizer of ampc.optim without hooks, and with its own step(), is skipped by the GPU, and "
         "nothing waits: do the rest after scaler.step()")


def before_region(dtype: Any) -> None:
    """A region of a CPU without units for its dtype is made. Where a GPU is, the region may have been meant for it: region_ends tells."""
    if _is_silent("autocast-without-effect") or _C._cuda_count():
        return
    _without_units(dtype)


def _without_units(dtype: Any) -> None:
    other = _C.bfloat16 if dtype is _C.float16 else _C.float16
    named = [str(d).split(".")[-1] for d in (dtype, other)]
    fix = f"use dtype=torch.{named[1]}, which this CPU can multiply" if _C._has_units(other) else \
        "leave autocast out on this machine, or pass enabled=False"
    note("autocast-without-effect", f"this CPU has no instructions that multiply {named[0]}: products are computed in "
         "float32, and casts take extra time, so autocast makes nothing faster", fix)


def region_begins(dtype: Any) -> Any:
    """The outermost autocast region of a thread is to be entered, one of the first (``_C._regions_to_observe``): who looks at what runs in
    it, None where nobody does."""
    if _is_silent("autocast-without-effect"):
        return None
    if not _C._has_units(dtype) and not _C._cuda_count():
        return None  # before_region has told of that
    if _C._watcher() is not None:  # a doctor is at work
        return None
    from .explain import Explain

    seen = Explain()
    seen._begins()
    return seen


def unsafe_here(name: str) -> None:
    """An operator runs in a region of 'cuda' that acts on the CPU, because there is no GPU; on one the region refuses it."""
    from .rules import BCE_FIX

    report("bce-under-autocast", f"{name} is called under autocast for 'cuda', which acts on the CPU here; on a GPU this call is an error, as in "
           "torch, because 16-bit probabilities reach 0 and 1, where its gradient is infinite", BCE_FIX)


def region_ends(seen: Any) -> None:
    """The outermost autocast region was left: reports if it had no use."""
    from .explain import SMALL

    seen._ends()
    every, partly, most = seen.multiplications
    if seen.passed_over and not every:
        _passed_over(seen.passed_over)
        return
    if seen.without_units is not None:
        _without_units(seen.without_units)
        return
    spent, casts = sum(r.seconds for r in seen.ran), sum(c.seconds for c in seen.casts)
    if 0 < most < SMALL:
        text = (f"the largest product in 16 bits of this region is {_shape_of(seen, 'small')}: so small that casts and calls take longer than "
                "the product")
        fix = "use larger batches or layers, or leave autocast out here"
    elif partly > 0.5 * every:
        text = (f"{100 * partly / every:.0f} % of this region's multiplications are in products like {_shape_of(seen, 'tiles')}, which leave tiles "
                "partly empty")
        fix = "make batch and layer sizes multiples of 32 (of 8 on a GPU)"
    elif every and casts > spent and casts > 1e-3:
        text = f"casts take {100 * casts / (casts + spent):.0f} % of this region's time ({sum(c.calls for c in seen.casts)} of them)"
        fix = "keep tensors in one dtype, or leave autocast out here; ampc.explain() lists the casts"
    else:
        return
    note("autocast-without-effect", text, fix)


def _passed_over(kind: str) -> None:
    """The products of a region ran on a device of another kind than it is of."""
    _State.passed_over = True
    other = "cpu" if kind == "cuda" else "cuda"
    note("autocast-without-effect", f"this region is of '{other}', and its products ran on '{kind}': they stay in their inputs' dtype, and nothing "
         "becomes faster", f"write torch.autocast('{kind}', ...), or torch.autocast(x.device.type, ...), which follows the data")


def _shape_of(seen: Any, word: str) -> str:
    """The largest product of which explain says the word."""
    return str(max((p for p in seen.products if word in p.why), key=lambda p: p.multiplications, default="these"))


# -- listening ----------------------------------------------------------------------------------------------------


class Guard(Listener):
    """Makes the checks above at their events."""

    region_without_units = staticmethod(before_region)
    scaler_made = staticmethod(_forget_scale)
    scale_read = staticmethod(_keep_scale)
    unscaling = staticmethod(before_unscale)
    stepping_unscaled = staticmethod(before_unscaled_step)
    step_begins = staticmethod(before_step)
    step_ended = staticmethod(after_step)
    step_waits = staticmethod(before_wait)
    schedule_ahead = staticmethod(after_skips)
    clipping = staticmethod(before_clip)
    norm_taken = staticmethod(before_norm)
    loss_scaled = staticmethod(before_scale)
    metric_given = staticmethod(before_metric)
    backward_begins = staticmethod(before_backward)


listening = Guard()
listen(listening)
_C._listen_to_regions(region_begins, region_ends, unsafe_here)
