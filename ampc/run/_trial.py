"""One run of a script in one precision, for ``ampc advise``: python -m ampc.run._trial RESULT PRECISION STEPS SCRIPT ARGS... The precision
``doctor`` is float32, watched for what makes the first inf or nan."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import random
import shutil
import statistics
import sys
import time
from typing import Any, Dict, List

import numpy

import ampc
from ampc._events import forget, listen
from ampc.amp import autocast_mode

from ..doctor import guard
from ..doctor.fp32_shadow import HALVES, Shadow
from ..doctor.nonfinite import Doctor
from ..doctor.precision_advisor import SCALES, _hardware, _lost, origin_of
from ..serialization import _scratch
from . import script


class _Enough(SystemExit):
    """Ends the script, as sys.exit() would."""


class _Notes(guard.Guard):
    """What the run has shown. It listens in the guard's place."""

    def __init__(self, precision: str, steps: int) -> None:
        self.precision, self.steps = precision, steps
        self.enough = False  # all steps were made
        self.begins: List[float] = []
        self.losses: List[float] = []
        self.scaled: Any = None  # the last loss that a scaler was given
        self.underflow: Dict[float, float] = {}
        self.amax = 0.0
        self.scalers: List[Any] = []
        self.kind = "cuda" if ampc.cuda.is_available() else "cpu"
        self.shadow = Shadow()  # of the second step, from the first's backward on
        self.doctor = Doctor() if precision == "doctor" else None

    def backward(self, loss: Any) -> None:
        """A backward pass begins, and with it a step."""
        if len(self.begins) > self.steps:
            self.enough = True
            raise _Enough
        value = loss if self.scaled is None else self.scaled
        self.losses.append(value.item() if value.numel() == 1 else math.nan)
        self.scaled = None
        self.begins.append(time.perf_counter())
        if len(self.begins) == 1 and self.doctor is None:
            self.shadow.__enter__()
        if len(self.begins) == 2 and self.doctor is None:
            self.shadow.__exit__()
            ampc.cuda.reset_peak_memory_stats()

    def scaler_made(self, scaler: Any) -> None:
        """One more."""
        self.scalers.append(scaler)

    def loss_scaled(self, scaler: Any, outputs: Any) -> None:
        """Keeps the loss, for the backward pass that follows."""
        self.scaled = outputs.detach() if isinstance(outputs, ampc.Tensor) else None

    def step_begins(self, optimizer: Any, closure: bool) -> None:
        """Looks at unscaled float32 gradients, once."""
        guard.before_step(optimizer, closure)
        if self.underflow or self.precision != "float32":
            return
        grads = [p.grad.detach().double() for p in guard.params_of(optimizer) if p.grad is not None]
        if grads:
            self.kind = "cuda" if grads[0].is_cuda else "cpu"
            self.underflow = {s: _lost(grads, s) for s in SCALES}
            self.amax = max(g.abs().max().item() for g in grads if g.numel())

    def result(self) -> Dict[str, Any]:
        """For the parent."""
        took = [b - a for a, b in zip(self.begins, self.begins[1:])]
        used = sorted((s for s in self.scalers if s.ledger.total), key=lambda s: s.ledger.total)[-1:]
        return {"losses": self.losses, "seconds": statistics.median(took[len(took) // 2:]) if took else math.nan,
                "peak_bytes": ampc.cuda.max_memory_allocated(), "underflow": self.underflow, "amax": self.amax,
                "operators": self.shadow.operators, "kind": self.kind, "hardware": _hardware(self.kind),
                "skipped": sum(len(s.ledger.skipped) for s in used), "scale": used[0].get_scale() if used else 1.0,
                "history": str(used[0].report()) if used else "",
                "misuse": [str(r) for r in guard.reports()],
                "origin": origin_of(self.doctor.findings) if self.doctor is not None else ""}


def _prepare(notes: _Notes, has_regions: bool) -> None:
    dtype = getattr(ampc, notes.precision) if notes.precision in HALVES else None
    ampc.set_float32_matmul_precision("high" if notes.precision == "tf32" else "highest")
    ampc.set_float32_matmul_precision = lambda precision: None  # not for the script to say
    begin, backward = autocast_mode.autocast.__init__, ampc.Tensor.backward

    def region(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self._enabled = self._enabled and dtype is not None
        self.fast_dtype = dtype or self.fast_dtype

    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        notes.backward(self)
        backward(self, *args, **kwargs)

    autocast_mode.autocast.__init__ = region  # type: ignore[method-assign]
    ampc.Tensor.backward = start  # type: ignore[method-assign]
    guard._State.mode = "warn"
    guard.ignore("autocast-without-effect", "fp16-without-scaler", "scaler-without-fp16")  # which a trial may cause itself
    forget(guard.listening)
    listen(notes)
    if not has_regions and dtype is not None:
        guard.ignore("backward-under-autocast")  # this region is the trial's
        ampc.autocast("cuda" if ampc.cuda.is_available() else "cpu").__enter__()


def _keep_files() -> None:
    """Files of safetensors' own functions are saved and looked for where ampc's are. A file whose save was left out is moved, copied and removed
    there; other uses of it are refused."""
    import safetensors

    write, read = safetensors.serialize_file, safetensors.safe_open
    safetensors.serialize_file = lambda tensors, filename, *args, **kwargs: write(tensors, _scratch.written_at(os.fspath(filename)), *args, **kwargs)
    safetensors.safe_open = lambda filename, *args, **kwargs: read(  # type: ignore[assignment, misc]
        _scratch.read_at(os.fspath(filename)), *args, **kwargs)
    for move in (os.rename, os.replace):
        setattr(os, move.__name__, _among_saves(move, leaves=True))
    for copy in (shutil.copyfile, shutil.copy, shutil.copy2):
        setattr(shutil, copy.__name__, _among_saves(copy, leaves=False))
    for remove in (os.remove, os.unlink):
        setattr(os, remove.__name__, _of_saved(remove))
    sys.addaudithook(_refuse)


def _is_saved(path: Any, leaves: bool) -> bool:
    """Whether the file of this path is one whose save was left out. One that ``leaves`` its place must not bring an older one to light."""
    if not isinstance(path, (str, bytes, os.PathLike)) or not _scratch.was_saved(os.fsdecode(path)):
        return False
    return not (leaves and os.path.lexists(path))


def _among_saves(move: Any, leaves: bool) -> Any:
    """``move(src, dst)``, which moves or copies a file whose save was left out to where that of ``dst`` would be."""
    @functools.wraps(move)
    def moving(src: Any, dst: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_saved(src, leaves):
            return move(src, dst, *args, **kwargs)
        to = os.fsdecode(dst)
        to = os.path.join(to, os.path.basename(os.fsdecode(src))) if os.path.isdir(to) else to
        done = move(_scratch.read_at(os.fsdecode(src)), _scratch.written_at(to), *args, **kwargs)
        return None if done is None else to

    return moving


def _of_saved(remove: Any) -> Any:
    """``remove(path)``, which removes what was saved in place of a file whose save was left out."""
    @functools.wraps(remove)
    def removing(path: Any, *args: Any, **kwargs: Any) -> None:
        remove(_scratch.read_at(os.fsdecode(path)) if _is_saved(path, leaves=True) else path, *args, **kwargs)

    return removing


def _refuse(event: str, args: Any) -> None:
    """Keeps a script from taking an older file for the one that it has saved, as where it copies a checkpoint to the best one."""
    if event in ("open", "os.rename", "os.remove", "os.truncate", "shutil.copyfile") and isinstance(args[0], (str, bytes, os.PathLike)):
        path = os.fsdecode(args[0])
        if _scratch.was_saved(path):
            raise RuntimeError(f"ampc advise has left out the save of {path}, which the script now uses without ampc ({event}). "
                               "Run fewer steps by --steps, so that the trial ends before that, or leave this out of the script")


def _seed() -> None:
    """The same random numbers in every trial, for a script that does not seed its generators."""
    random.seed(0)
    numpy.random.seed(0)
    ampc.manual_seed(0)  # the GPU's, too


def main() -> int:
    """Runs the script until it has made so many backward passes, or ends. Returns its exit status; what it raises is shown on stderr."""
    out, precision, steps, path, *args = sys.argv[1:]
    notes = _Notes(precision, int(steps))
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            _prepare(notes, "autocast" in f.read())
        _keep_files()
        _seed()
        with notes.doctor or contextlib.nullcontext():
            status = script.run(path, args)
    except SystemExit as end:
        status = 0 if end.code is None else end.code if isinstance(end.code, int) else 1
        if status and isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    status = 0 if notes.enough else status
    with open(out, "w") as f:
        json.dump(notes.result() if notes.begins and not status else {"begun": bool(notes.begins), "has_read": _scratch.has_read}, f)
    return status


if __name__ == "__main__":
    sys.exit(main())
