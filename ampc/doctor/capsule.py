"""Saves the inputs and state of a bad step to a file. A replay runs the step again: in float32, in 16 bits, or operator by operator.

    capsules = ampc.doctor.Capsules("capsules", model, scaler, make_model, loss_of)   # both functions of the script's top level
    for batch in batches:
        with capsules(batch):
            ...                                                                     # the step as it is

    $ ampc replay capsules/step-17.ampc --script train.py
"""

from __future__ import annotations

import math
import os
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from .. import _C, cuda
from .. import policy as policies
from .._tensor import creation as make
from .nonfinite import Doctor

VERSION = 1
KEYS = ("batch", "rng", "model", "training", "scale", "dtype", "names", "policy", "step", "loss", "cause")  # of a capsule, beside its version


def _top_level(function: Any, what: str) -> str:
    name = getattr(function, "__qualname__", "")
    if not callable(function) or not name or "." in name or "<" in name:
        raise ValueError(f"Capsules: `{what}` must be a function of the script's top level, which a replay can find by name; got {function!r}")
    return str(name)


class _Step:
    """One step, as a context."""

    def __init__(self, capsules: Capsules, batch: Any) -> None:
        self._capsules, self._batch = capsules, batch

    def __enter__(self) -> _Step:
        self._rng = make.get_rng_state()
        self._steps = self._capsules.scaler.ledger.total
        return self

    def __exit__(self, *exc: object) -> None:
        scaler = self._capsules.scaler
        if scaler.ledger.total > self._steps and scaler.ledger[-1].skipped:  # on a GPU this waits
            self._capsules._write(self._batch, self._rng, scaler.ledger[-1])


class Capsules:
    """Writes a file for each step that the scaler skips, ``most`` at most.

    Args:
        folder: the folder for files ``step-N.ampc``, which is created if needed.
        model: the model whose parameters and buffers are saved, after the skipped step, which did not change the parameters.
        scaler: the GradScaler whose skipped steps are saved.
        make_model: a function of the script's top level; ``make_model()`` returns a model of the same kind.
        loss_fn: a function of the script's top level; ``loss_fn(model, batch)`` returns the loss. A replay opens an autocast region
            around it.
        dtype: the dtype of that region, float16 by default.

    ValueError for functions that a replay could not find."""

    def __init__(self, folder: Any, model: Any, scaler: Any, make_model: Callable[[], Any], loss_fn: Callable[[Any, Any], Any], *,
                 dtype: Any = None, most: int = 10) -> None:
        self.folder, self.model, self.scaler, self.most = os.fspath(folder), model, scaler, most
        self.names = {"make_model": _top_level(make_model, "make_model"), "loss_fn": _top_level(loss_fn, "loss_fn")}
        self.dtype = _C.float16 if dtype is None else dtype
        self.written: List[str] = []

    def __call__(self, batch: Any) -> _Step:
        """A context for one step on ``batch`` (Tensors, numbers and texts, in lists, tuples and dicts)."""
        return _Step(self, batch)

    def _write(self, batch: Any, rng: Any, step: Any) -> None:
        from ..serialization import save

        if len(self.written) >= self.most:
            return
        os.makedirs(self.folder, exist_ok=True)
        path, policy = os.path.join(self.folder, f"step-{step.number}.ampc"), policies.state.chosen
        save({"capsule": VERSION, "batch": batch, "rng": rng, "model": self.model.state_dict(), "training": self.model.training,
              "scale": step.scale, "dtype": str(self.dtype).split(".")[-1], "names": self.names,
              "policy": None if policy is None else policy.to_dict(),
              "step": step.number, "loss": step.loss, "cause": self.scaler.ledger.cause(step)[1]}, path)
        self.written.append(path)


class Replayed(NamedTuple):
    """The result of running a step again."""

    precision: str
    loss: float
    bad: Dict[str, int]  # parameter -> gradient values that are not finite, where some are
    norm: float  # of the unscaled gradients
    found: Doctor  # what the operators did

    def __str__(self) -> str:
        text = f"{self.precision:<9} loss {self.loss:.6g}; "
        if not self.bad:
            return f"{text}gradients are finite, their norm is {self.norm:.4g}"
        some = ", ".join(f"{name} ({n})" for name, n in list(self.bad.items())[:5])
        return f"{text}inf or nan in the gradients of {some}" + (f" and {len(self.bad) - 5} more" if len(self.bad) > 5 else "")


def read(path: Any) -> Dict[str, Any]:
    """A capsule's content; nothing in it is executed. ValueError for another file."""
    import pickle

    from ..serialization import load

    try:
        data = load(path)
    except (pickle.UnpicklingError, RuntimeError) as error:
        raise ValueError(f"{os.fspath(path)}: not a capsule of ampc.doctor.Capsules ({error})") from None
    if not isinstance(data, dict) or data.get("capsule") != VERSION:
        raise ValueError(f"{os.fspath(path)}: not a capsule of ampc.doctor.Capsules")
    missing = [key for key in KEYS if key not in data]
    if missing or set(data["names"]) != {"make_model", "loss_fn"}:
        raise ValueError(f"{os.fspath(path)}: a capsule that lacks {', '.join(missing) or 'the names of its functions'}")
    return data


def replay(capsule: Dict[str, Any], make_model: Callable[[], Any], loss_fn: Callable[[Any, Any], Any], precision: str,
           scale: Optional[float] = None) -> Replayed:
    """Runs the step again under the doctor, forward and backward, in 'float32', 'bfloat16' or 'float16'.

    The loss is multiplied by the scale of that step, or by ``scale``; in float32 by 1."""
    from ..amp.autocast_mode import autocast

    before = make.get_rng_state()
    model = make_model()
    model.load_state_dict(capsule["model"])
    model.train(capsule["training"])
    kind = "cuda" if any(p.is_cuda for p in model.parameters()) else "cpu"
    given = capsule["policy"]
    policy = policies.CastPolicy(given["name"], given["version"], given["operators"], given["modules"]) if given else None
    times = 1.0 if precision == "float32" else capsule["scale"] if scale is None else scale
    make.set_rng_state(capsule["rng"])
    try:
        with Doctor() as doctor:
            low = _C.bfloat16 if precision == "float32" else getattr(_C, precision)
            with autocast(kind, dtype=low, enabled=precision != "float32", policy=policy):
                loss = loss_fn(model, capsule["batch"])
            (loss * times).backward()
    finally:
        make.set_rng_state(before)
    if kind == "cuda":
        cuda.synchronize()
    bad, squares = {}, 0.0
    for name, p in model.named_parameters():
        if p.grad is not None:
            count = int((~p.grad.isfinite()).sum())
            squares += ((p.grad.detach().double() / times) ** 2).sum().item()
            if count:
                bad[name] = count
    return Replayed(precision, loss.item(), bad, math.sqrt(squares) if squares >= 0 else math.nan, doctor)
