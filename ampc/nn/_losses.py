"""Connectionist temporal classification, whose arguments come in many forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import List, Union

from .. import _C, _ops
from .._C import Tensor
from .._messages import checks as _checks
from .._tensor import creation as make

__all__ = ["ctc_loss"]

_Lengths = Union[Tensor, int, Sequence[int]]


def _numbers(lengths: _Lengths, n: int, most: int, what: str) -> List[int]:
    found = lengths.flatten().tolist() if isinstance(lengths, Tensor) else _checks.integers(lengths, "ctc_loss")
    if isinstance(lengths, Tensor) and lengths.is_floating_point():
        raise RuntimeError(f"ctc_loss: `{what}` must be integers, got {lengths.dtype}")
    if len(found) != n or any(not 0 <= k <= most for k in found):
        raise RuntimeError(f"ctc_loss: `{what}` must be {n} numbers from 0 to {most}, got {found}")
    return found


def _states(targets: Tensor, counts: List[int], blank: int) -> Tensor:
    """[N, 2 labels + 1]: each sequence's labels between blanks."""
    most = max(counts, default=0)
    states = make.full((len(counts), 2 * most + 1), blank, dtype=_C.int64, device=targets.device)
    begin = 0
    for k, count in enumerate(counts):
        row = targets[k] if targets.ndim == 2 else targets[begin:]
        states[k, 1:2 * count:2] = row[:count]
        begin += count
    return states


def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: _Lengths, target_lengths: _Lengths, blank: int = 0,
             reduction: str = "mean", zero_infinity: bool = False) -> Tensor:
    """-log of the probability of the labels, summed over all ways to spread them over the steps (Graves et al. 2006).

    Args:
        log_probs: [steps, N, classes] or [steps, classes], logarithms of probabilities, as of log_softmax. As torch's, the gradient is that of what
            log_softmax was given.
        targets: labels [N, labels], or all of them one after the other; of any dtype, whole numbers.
        blank: the class that stands for no label.
        zero_infinity: 0 in place of the infinite loss of labels that do not fit into the steps."""
    if log_probs.ndim not in (2, 3) or not log_probs.is_floating_point():
        raise RuntimeError(f"ctc_loss: `log_probs` must be floating point [steps, N, classes], got {log_probs.dtype} {list(log_probs.shape)}")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"ctc_loss: `reduction` must be none, mean or sum, got {reduction!r}")
    x = log_probs if log_probs.ndim == 3 else log_probs.unsqueeze(1)
    steps, n, classes = x.shape
    if not 0 <= blank < classes:
        raise RuntimeError(f"ctc_loss: `blank` must be a class from 0 to {classes - 1}, got {blank}")
    if targets.ndim not in (1, 2):
        raise RuntimeError(f"ctc_loss: `targets` must have 1 or 2 dimensions, got {list(targets.shape)}")
    counts = _numbers(target_lengths, n, targets.shape[-1], "target_lengths")
    if targets.ndim == 1 and sum(counts) != targets.shape[0] or targets.ndim == 2 and targets.shape[0] != n:
        raise RuntimeError(f"ctc_loss: `targets` {list(targets.shape)} do not fit {n} sequences with {counts} labels")
    lengths = make.tensor(_numbers(input_lengths, n, steps, "input_lengths"), dtype=_C.int64, device=x.device)
    labels = make.tensor(counts, dtype=_C.int64, device=x.device)
    loss = _ops._ctc_loss(x, _states(targets.to(x.device, _C.int64), counts, blank), lengths, labels)
    if x.requires_grad:  # log_softmax takes this part away again; without one it is torch's gradient
        taken = make.arange(steps, device=x.device).unsqueeze(1) < lengths
        all_of_it = _ops.where(taken.unsqueeze(2), x.exp(), 0.0).sum((0, 2))
        loss = loss + (all_of_it - all_of_it.detach())
    if zero_infinity:
        loss = _ops.where(loss == float("inf"), 0.0, loss)
    if reduction == "mean":
        return (loss / labels.clamp(min=1)).mean()
    return loss.sum() if reduction == "sum" else loss if log_probs.ndim == 3 else loss.squeeze(0)


_checks.install(globals())
